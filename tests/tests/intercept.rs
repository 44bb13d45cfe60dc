//! Inspected tunnels: path rules on https, whose certificates are believed, and requests that leave their tunnel.

use std::os::unix::fs::PermissionsExt;

use exeat_tests::certs::roots_of;
use exeat_tests::prelude::*;
use exeat_tests::ws;
use tempfile::TempDir;

const HOST: &str = "api.example.test";
const OTHER: &str = "other.example.test";

/// An HTTPS origin known as [`HOST`], and a gateway that allows `/v1/` there.
async fn scene(site: Site) -> (Origin, Gateway) {
    let ca = TestCa::new();
    let origin = Origin::https(site, &ca.leaf(&[HOST])).await;
    let gateway = setup(&origin).trust(&ca).start().await;
    (origin, gateway)
}

fn setup(origin: &Origin) -> Setup {
    Gateway::setup().names(&[HOST, OTHER]).allow(&[origin.url(HOST, "/v1/")])
}

#[tokio::test]
async fn each_request_in_a_tunnel_is_judged_by_its_path() {
    let (origin, gateway) = scene(Site::default()).await;
    let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
    assert_eq!(conn.alpn(), Some("http/1.1"));
    for (path, allowed) in [
        ("/v1/users", true),
        ("/v2/users", false),
        ("/v1/a%2Fb", true),
        ("/v1/../admin", false),
        ("/v1/%2e%2e/admin", false),
        ("/v1/..%2fadmin", false),
        ("/v1/..;/admin", false),
        ("/v1/%252e%252e/admin", false),
        ("/v1\\..\\admin", false),
        ("/V1/users", false),
        ("/v1", false),
        ("/v1/?q=1", true),
    ] {
        let response = conn.get(path, HOST).await;
        match allowed {
            true => response.assert_ok(&format!("GET {path}")),
            false => drop(response.assert_refused(403, "not_allowed")),
        }
    }
    let seen: Vec<String> = origin.requests().into_iter().map(|request| request.target).collect();
    assert_eq!(seen, ["/v1/users", "/v1/a%2Fb", "/v1/?q=1"]);
    gateway.await_metric("exeat_requests_total", &[("entry", "intercept"), ("verdict", "allow")], 3.0).await;
    gateway.await_metric("exeat_requests_total", &[("entry", "intercept"), ("verdict", "deny")], 9.0).await;
    gateway.await_metric("exeat_tunnels_total", &[("kind", "inspected"), ("result", "opened")], 1.0).await;
}

#[tokio::test]
async fn a_blocked_path_of_an_allowed_host_is_refused() {
    let ca = TestCa::new();
    let origin = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let gateway = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[HOST]).block(&[origin.url(HOST, "/admin/")]);
    let gateway = gateway.start().await;
    let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
    conn.get("/public", HOST).await.assert_ok("GET /public");
    for path in ["/admin/x", "/public/../admin/x", "/public/..%2Fadmin/x", "//admin/x", "/%61dmin/x"] {
        let refusal = conn.get(path, HOST).await;
        assert_eq!((refusal.status, refusal.reason().as_deref()), (403, Some("blocked")), "{path}");
    }
    assert_eq!(origin.requests().len(), 1);
}

#[tokio::test]
async fn requests_are_cleaned_as_in_forwarding() {
    let reply = Reply::text("ok\n").header("Exeat-Reason", "forged");
    let (origin, gateway) = scene(Site::default().at("/v1/x", reply)).await;
    let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
    let fields = "Connection: X-Named\r\nX-Named: 1\r\nProxy-Authorization: Basic eDp5\r\nX-Kept: 1";
    let response = conn.roundtrip(&format!("GET /v1/x HTTP/1.1\r\nHost: {HOST}\r\n{fields}")).await;
    assert!(!response.head.has("exeat-reason"));
    let request = origin.only_request().await;
    assert!(request.has("via") && request.has("x-kept"));
    assert!(!request.has("x-named") && !request.has("proxy-authorization"));
    assert_eq!(request.value("host"), Some(origin.authority(HOST)));
    assert_eq!(request.sni.as_deref(), Some(HOST));
}

#[tokio::test]
async fn bodies_events_and_websockets_pass_inside() {
    let (events, source) = Reply::events();
    let site = Site::default().at("/v1/echo", Reply::echo()).at("/v1/events", events).at("/v1/ws", Reply::websocket());
    let (origin, gateway) = scene(site).await;

    let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
    conn.send(format!("POST /v1/echo HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"))
        .await;
    let mut opened = conn.opened("POST").await;
    assert_eq!(conn.piece(&mut opened).await.unwrap(), b"abc");
    conn.send("0\r\n\r\n").await;
    conn.rest(opened).await.unwrap();

    conn.send(format!("GET /v1/events HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await;
    let mut opened = conn.opened("GET").await;
    source.send("one").await;
    assert_eq!(conn.piece(&mut opened).await.unwrap(), b"data: one\n\n");
    drop(source);
    conn.rest(opened).await.unwrap();

    conn.send(ws::handshake("/v1/ws", HOST)).await;
    assert_eq!(conn.opened("GET").await.response.status, 101);
    assert_eq!(conn.websocket_echo("hello").await, "hello");
}

#[tokio::test]
async fn a_websocket_is_judged_by_its_path() {
    let (origin, gateway) = scene(Site::default().at("/v2/ws", Reply::websocket())).await;
    let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
    conn.send(ws::handshake("/v2/ws", HOST)).await;
    conn.response().await.assert_refused(403, "not_allowed");
    assert_eq!(origin.connections(), 0);
}

// --- Misdirected requests -----------------------------------------------------------------------------------------------

#[tokio::test]
async fn host_and_target_have_to_name_the_host_of_the_tunnel() {
    let (origin, gateway) = scene(Site::default()).await;
    let authority = origin.authority(HOST);
    for (target, host) in [
        ("/v1/x", OTHER.to_owned()),
        ("/v1/x", format!("{HOST}:1")),
        ("/v1/x", format!("{HOST}.{OTHER}")),
        (&format!("https://{OTHER}/v1/x"), HOST.to_owned()),
        (&format!("http://{authority}/v1/x"), authority.clone()),
    ] {
        let mut conn = gateway.intercepted(&authority).await;
        let refusal = conn.get(target, &host).await;
        assert_eq!((refusal.status, refusal.reason().as_deref()), (421, Some("misdirected")), "{target} {host}");
    }
    for (target, host) in [
        ("/v1/1", authority.clone()),
        ("/v1/2", HOST.to_ascii_uppercase()),
        (&origin.url(HOST, "/v1/3"), authority.clone()),
    ] {
        gateway.intercepted(&authority).await.get(target, &host).await.assert_ok("GET /v1/");
    }
    assert_eq!(origin.await_requests(3).await.len(), 3);
}

#[tokio::test]
async fn a_second_request_for_another_host_is_misdirected_too() {
    let (origin, gateway) = scene(Site::default()).await;
    let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
    conn.get("/v1/x", HOST).await.assert_ok("GET /v1/x");
    conn.get("/v1/x", OTHER).await.assert_refused(421, "misdirected");
    assert_eq!(origin.requests().len(), 1);
}

#[tokio::test]
async fn a_server_name_for_another_host_is_misdirected() {
    let (origin, gateway) = scene(Site::default()).await;
    let tunnel = gateway.tunnel(&origin.authority(HOST)).await;
    let mut conn = tunnel.tls_unchecked(OTHER).await.unwrap();
    for host in [HOST, OTHER] {
        conn.get("/v1/x", host).await.assert_refused(421, "misdirected");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn a_connect_inside_a_tunnel_is_refused() {
    let (origin, gateway) = scene(Site::default()).await;
    let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
    conn.connect(&origin.authority(HOST)).await.assert_refused(403, "method_refused");
}

// --- Certificates -------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn an_upstream_certificate_that_is_not_good_is_a_502_and_nothing_is_sent() {
    let ca = TestCa::new();
    for (case, leaf) in [
        ("expired", ca.expired(&[HOST])),
        ("wrong name", ca.leaf(&[OTHER])),
        ("self-signed", Leaf::self_signed(&[HOST])),
        ("unknown authority", TestCa::new().leaf(&[HOST])),
    ] {
        let origin = Origin::https(Site::default(), &leaf).await;
        let gateway = setup(&origin).trust(&ca).start().await;
        let refusal = gateway.intercepted(&origin.authority(HOST)).await.get("/v1/x", HOST).await;
        assert_eq!((refusal.status, refusal.reason().as_deref()), (502, Some("upstream_tls")), "{case}");
        gateway.get(&origin.url(HOST, "/v1/x")).await.assert_refused(502, "upstream_tls");
        assert!(origin.requests().is_empty(), "{case}");
    }
}

#[tokio::test]
async fn an_upstream_without_tls_is_a_502() {
    let plain = Echo::banner().await;
    let rule = format!("https://{}/v1/", plain.authority(HOST));
    let gateway = Gateway::setup().names(&[HOST]).allow(&[rule]).start().await;
    let mut conn = gateway.intercepted(&plain.authority(HOST)).await;
    conn.get("/v1/x", HOST).await.assert_refused(502, "upstream_tls");
}

#[tokio::test]
async fn a_leaf_is_made_once_for_its_host() {
    let (origin, gateway) = scene(Site::default()).await;
    let first = gateway.intercepted(&origin.authority(HOST)).await.certificates().to_vec();
    let second = gateway.intercepted(&origin.authority(HOST)).await.certificates().to_vec();
    assert_eq!(first[0], second[0]);
}

#[tokio::test]
async fn a_leaf_can_be_for_an_address_or_a_long_name() {
    let long = format!("{}.{}.example.test", "a".repeat(60), "b".repeat(60));
    for host in ["127.0.0.1", &long] {
        let ca = TestCa::new();
        let origin = Origin::https(Site::default(), &ca.leaf(&[host])).await;
        let gateway = Gateway::setup().trust(&ca).host(&long, "127.0.0.1").allow(&[origin.url(host, "/v1/")]);
        let gateway = gateway.start().await;
        let mut conn = gateway.intercepted(&origin.authority(host)).await;
        conn.get("/v1/x", &origin.authority(host)).await.assert_ok("GET /v1/x");
    }
}

#[tokio::test]
async fn the_ca_is_made_once_and_its_key_is_private() {
    let state = TempDir::new().unwrap();
    let first = Gateway::setup().state_dir(state.path()).start().await;
    let certificate = std::fs::read(first.ca()).unwrap();
    assert!(first.ca().starts_with(state.path()));
    drop(first);
    let second = Gateway::setup().state_dir(state.path()).start().await;
    assert_eq!(std::fs::read(second.ca()).unwrap(), certificate);
    let keys: Vec<_> = walk(state.path()).into_iter().filter(|path| holds_key(path)).collect();
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert_eq!(std::fs::metadata(&keys[0]).unwrap().permissions().mode() & 0o777, 0o600);
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

fn holds_key(path: &std::path::Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.contains("PRIVATE KEY"))
}

#[tokio::test]
async fn a_ca_given_by_config_is_used() {
    let (own, upstream) = (TestCa::new(), TestCa::new());
    let origin = Origin::https(Site::default(), &upstream.leaf(&[HOST])).await;
    let path = |path: std::path::PathBuf| format!("{path:?}");
    let gateway = setup(&origin).trust(&upstream).set("intercept", "ca_cert", &path(own.pem_path()));
    let gateway = gateway.set("intercept", "ca_key", &path(own.key_path())).start().await;
    let tunnel = gateway.tunnel(&origin.authority(HOST)).await;
    let mut conn = tunnel.tls(roots_of(&own.pem_path()), HOST, &["http/1.1"]).await.unwrap();
    conn.get("/v1/x", HOST).await.assert_ok("GET /v1/x");
}

// --- Tunnels without TLS ------------------------------------------------------------------------------------------------

#[tokio::test]
async fn clear_http_in_a_tunnel_is_judged_the_same() {
    let origin = Origin::http(Site::default()).await;
    let gateway = setup(&origin).start().await;
    let mut conn = gateway.tunnel(&origin.authority(HOST)).await;
    conn.get("/v1/x", HOST).await.assert_ok("GET /v1/x");
    conn.get("/v2/x", HOST).await.assert_refused(403, "not_allowed");
    assert_eq!(origin.requests().len(), 1);
}

#[tokio::test]
async fn anything_else_closes_an_inspected_tunnel() {
    let (origin, gateway) = scene(Site::default()).await;
    for opening in ["\0\u{1}\u{2}\u{3}", "\u{16}garbage garbage garbage"] {
        let mut tunnel = gateway.tunnel(&origin.authority(HOST)).await;
        tunnel.send(opening).await;
        assert!(tunnel.to_end().await.is_empty(), "{opening:?}");
    }
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "not_tls")], 2.0).await;
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn clear_http_in_a_tunnel_does_not_satisfy_an_https_rule() {
    let (origin, gateway) = scene(Site::default()).await;
    let mut conn = gateway.tunnel(&origin.authority(HOST)).await;
    conn.get("/v1/x", HOST).await.assert_refused(403, "not_allowed");
    assert_eq!(origin.connections(), 0);
}
