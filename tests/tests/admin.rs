//! The admin listener: metrics and health, for operators and not for agents.

use exeat_tests::prelude::*;

const HOST: &str = "api.example.test";

#[tokio::test]
async fn health_says_that_traffic_is_served_and_under_which_policy() {
    let gateway = Gateway::setup().allow(&[HOST]).start().await;
    assert_eq!(gateway.livez().await.status, 200);
    let ready = gateway.readyz().await;
    assert_eq!((ready.status, &ready.json()["ready"]), (200, &true.into()));
    let digest = ready.json()["policy"]["digest"].as_str().unwrap().to_owned();
    assert!(gateway.metrics().await.has("exeat_policy_info", &[("digest", &digest)]));
}

#[tokio::test]
async fn credentials_never_affect_health() {
    let gateway = Gateway::setup().allow(&[HOST]).mcp_server(
        "docs",
        "https://api.example.test/mcp",
        &[("Authorization", "${NOT_BOUND}")],
    );
    let gateway = gateway.start().await;
    assert_eq!((gateway.livez().await.status, gateway.readyz().await.status), (200, 200));
}

#[tokio::test]
async fn series_stand_at_zero_from_the_start() {
    let gateway = Gateway::setup().allow(&[HOST]).start().await;
    let metrics = gateway.metrics().await;
    for (name, labels) in [
        ("exeat_requests_total", &[("entry", "forward"), ("verdict", "deny"), ("reason", "not_allowed")][..]),
        ("exeat_requests_total", &[("entry", "connect"), ("verdict", "allow"), ("reason", "allowed")]),
        ("exeat_tunnels_total", &[("kind", "blind"), ("result", "opened")]),
        ("exeat_tunnels_closed_total", &[("cause", "policy_changed")]),
        ("exeat_bytes_total", &[("direction", "up")]),
        ("exeat_bytes_total", &[("direction", "down")]),
        ("exeat_tunnels_active", &[]),
        ("exeat_policy_reload_total", &[]),
    ] {
        assert!(metrics.has(name, labels), "{name}{labels:?}");
        assert_eq!(metrics.sum(name, labels), 0.0, "{name}{labels:?}");
    }
    assert!(metrics.has("exeat_build_info", &[]) && metrics.has("exeat_policy_generation", &[]));
}

#[tokio::test]
async fn traffic_is_counted_by_verdict_and_reason() {
    let origin = Origin::http(Site::default().at("/", Reply::text("0123456789"))).await;
    let gateway = Gateway::setup().names(&[HOST]).allow(&[HOST]).start().await;
    for _ in 0..3 {
        gateway.get(&origin.url(HOST, "/")).await.assert_ok("0123456789");
    }
    gateway.get("http://outside.test/").await.assert_refused(403, "not_allowed");
    let closed = Origin::http(Site::default()).await.url(HOST, "/");
    gateway.get(&closed).await.assert_refused(502, "connect_refused");
    for (verdict, reason, count) in
        [("allow", "allowed", 3.0), ("deny", "not_allowed", 1.0), ("error", "connect_refused", 1.0)]
    {
        let labels = [("entry", "forward"), ("verdict", verdict), ("reason", reason)];
        gateway.await_metric("exeat_requests_total", &labels, count).await;
    }
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("exeat_requests_total", &[]), 5.0);
    assert_eq!(metrics.sum("exeat_bytes_total", &[("direction", "down")]), 30.0);
    assert!(metrics.sum("exeat_decision_seconds_count", &[]) >= 4.0);
}

#[tokio::test]
async fn the_number_of_series_does_not_grow_with_traffic() {
    let gateway = Gateway::setup().allow(&[HOST]).start().await;
    let before = gateway.metrics().await.len();
    let mut conn = gateway.open().await;
    for number in 0..300 {
        let host = format!("h{number}.outside.test");
        assert_eq!(conn.get(&format!("http://{host}/p{number}"), &host).await.status, 403);
    }
    assert_eq!(gateway.metrics().await.len(), before);
}

#[tokio::test]
async fn only_reads_of_known_paths_by_a_loopback_name_are_answered() {
    let gateway = Gateway::setup().allow(&[HOST]).start().await;
    assert_eq!(gateway.admin_get("/nothing").await.status, 404);
    let mut conn = RawConn::open(gateway.admin()).await;
    assert!(conn.roundtrip("POST /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0").await.status >= 400);
    for (host, status) in [("evil.test", 421), ("127.0.0.1.evil.test", 421), ("localhost", 200)] {
        let mut conn = RawConn::open(gateway.admin()).await;
        assert_eq!(conn.get("/metrics", host).await.status, status, "{host}");
    }
}

#[tokio::test]
async fn agents_reach_their_targets_metrics_and_never_the_gateways() {
    let origin = Origin::http(Site::default()).await;
    let gateway = Gateway::setup().names(&[HOST]).allow(&[HOST, "127.0.0.1"]).start().await;
    gateway.get(&origin.url(HOST, "/metrics")).await.assert_ok("GET /metrics");
    gateway.get(&format!("http://{}/metrics", gateway.admin())).await.assert_refused(403, "guard_self");
    gateway.connect(&gateway.admin().to_string()).await.1.assert_refused(403, "guard_self");
    for path in ["/metrics", "/livez", "/readyz"] {
        gateway.open().await.get(path, &gateway.proxy().to_string()).await.assert_refused(400, "malformed");
    }
}
