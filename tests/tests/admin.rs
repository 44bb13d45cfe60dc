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

// --- Who may ask --------------------------------------------------------------------------------------------------------

const TOKEN: &str = "canary-of-the-admin-listener";

#[tokio::test]
async fn where_others_can_reach_it_the_gateway_does_not_start_without_a_token() {
    let any = "0.0.0.0:0";
    let output = Gateway::setup().allow(&[HOST]).admin(any).try_start().await.unwrap_err();
    assert_ne!(output.code, Some(0));
    assert!(output.stderr.contains("[admin] token"), "{}", output.stderr);
    let short = Gateway::setup().allow(&[HOST]).set("admin", "token", "{ env = \"ADMIN\" }").env("ADMIN", "short");
    let output = short.try_start().await.unwrap_err();
    assert!(output.stderr.contains("at least 16 bytes"), "{}", output.stderr);
    let setup = Gateway::setup().allow(&[HOST]).admin(any).set("admin", "token", "{ file = \"@DIR@/token\" }");
    let gateway = setup.file("token", TOKEN).start().await;
    let admin = std::net::SocketAddr::from(([127, 0, 0, 1], gateway.admin().port()));
    let ask = async |method: &str, path: &str, token: &str| {
        let field = if token.is_empty() { String::new() } else { format!("\r\nAuthorization: Bearer {token}") };
        let mut conn = RawConn::open(admin).await;
        conn.roundtrip(&format!("{method} {path} HTTP/1.1\r\nHost: exeat.internal{field}")).await
    };
    for path in ["/metrics", "/v1/evidence", "/v1/reload", "/v1/sessions", "/nothing"] {
        let refused = ask("GET", path, "").await;
        assert_eq!(refused.status, 401, "{path}");
        assert_eq!(refused.value("www-authenticate").as_deref(), Some(r#"Bearer realm="exeat admin""#));
        assert_eq!(ask("GET", path, "wrong").await.status, 401, "{path}");
    }
    for path in ["/livez", "/readyz"] {
        assert_eq!(ask("GET", path, "").await.status, 200, "{path}");
    }
    assert_eq!(ask("POST", "/v1/reload", "").await.status, 401);
    assert_eq!(ask("POST", "/v1/reload", TOKEN).await.status, 200);
    assert_eq!(ask("GET", "/metrics", TOKEN).await.status, 200);
    // A token that is replaced is replaced at once.
    gateway.write("token", "another-token-of-the-admin");
    assert_eq!(ask("GET", "/metrics", TOKEN).await.status, 401);
    assert_eq!(ask("GET", "/metrics", "another-token-of-the-admin").await.status, 200);
    assert!(!gateway.lines().concat().contains("token-of-the-admin"));
}

#[tokio::test]
async fn on_a_unix_socket_its_owner_needs_no_token() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("admin.sock");
    let setup = Gateway::setup().names(&[HOST]).allow(&[HOST]).admin(format!("unix:{}", path.display()));
    let gateway = setup.start().await;
    gateway.await_line(&format!("unix:{}", path.display())).await;
    let curl = |args: &[&str]| {
        let socket = ["-sS", "-w", "\n%{http_code}", "--unix-socket", path.to_str().unwrap()];
        Cmd::new("curl").args(socket).args(args.iter().copied())
    };
    assert!(curl(&["http://exeat/metrics"]).run().await.success().ends_with("\n200"));
    assert!(curl(&["-X", "POST", "http://exeat/v1/reload"]).run().await.success().ends_with("\n200"));
    // What takes trust is trusted here.
    let own = folder.path().join("own.sock");
    let session = serde_json::json!({
        "identity": { "unix": own },
        "bindings": { "A": { "env": "PATH" } },
    });
    let session = session.to_string();
    let created = curl(&["-H", "Content-Type: application/json", "-d", &session, "http://exeat/v1/sessions"]);
    assert!(created.run().await.success().ends_with("\n201"));
    assert!(own.exists());
    let mut conn = RawConn::open_unix(&own).await;
    conn.get("http://outside.test/", "outside.test").await.assert_refused(403, "not_allowed");
    // curl speaks SOCKS to a Unix socket.
    let origin = Origin::http(Site::default()).await;
    let proxy = format!("socks5h://localhost{}", own.display());
    let output = Cmd::new("curl").args(["-sS", "-x", &proxy, &origin.url(HOST, "/x")]).run().await.success();
    assert_eq!(output, "GET /x\n");
    let foreign = curl(&["-H", "Origin: https://evil.test", "-X", "POST", "http://exeat/v1/reload"]);
    assert!(foreign.run().await.success().ends_with("\n403"));
}

#[tokio::test]
async fn pages_of_other_sites_get_nothing() {
    let gateway = Gateway::setup().allow(&[HOST]).start().await;
    let ask = async |head: String| RawConn::open(gateway.admin()).await.roundtrip(&head).await.status;
    let host = gateway.admin();
    for (method, path) in
        [("GET", "/metrics"), ("GET", "/v1/sessions"), ("POST", "/v1/reload"), ("DELETE", "/v1/sessions/x")]
    {
        let head = |field: &str| format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{field}");
        for field in ["Origin: https://evil.test", "Origin: null", "Origin: http://localhost:1"] {
            assert_eq!(ask(head(field)).await, 403, "{method} {path} {field}");
        }
        assert_eq!(ask(format!("{method} {path} HTTP/1.1\r\nHost: evil.test")).await, 421, "{method} {path}");
        assert_ne!(ask(head(&format!("Origin: http://{host}"))).await, 403, "{method} {path}");
    }
    assert_eq!(ask(format!("DELETE /v1/sessions/x HTTP/1.1\r\nHost: {host}\r\nSec-Fetch-Site: cross-site")).await, 403);
}
