//! CONNECT: which tunnels open, what is asked of their first bytes, and how they end.

use exeat_tests::origin::BANNER;
use exeat_tests::prelude::*;

const HOST: &str = "api.example.test";
const OTHER: &str = "other.example.test";

/// An HTTPS origin whose certificate is good for every name that the tests use.
async fn origin(ca: &TestCa) -> Origin {
    Origin::https(Site::default(), &ca.leaf(&[HOST, OTHER, "127.0.0.1"])).await
}

fn setup() -> Setup {
    Gateway::setup().names(&[HOST, OTHER])
}

// --- Blind tunnels ------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_permitted_tunnel_is_blind() {
    let ca = TestCa::new();
    let origin = origin(&ca).await;
    let gateway = setup().allow(&[HOST]).start().await;
    let tunnel = gateway.tunnel(&origin.authority(HOST)).await;
    let mut tls = tunnel.tls(ca.roots(), HOST, &["http/1.1"]).await.expect("TLS with the origin itself");
    tls.get("/x", HOST).await.assert_ok("GET /x");
    assert!(!origin.only_request().await.has("via"), "a blind tunnel changes nothing");
    gateway.await_metric("exeat_tunnels_total", &[("kind", "blind"), ("result", "opened")], 1.0).await;
    gateway.await_metric("exeat_tunnels_active", &[], 1.0).await;
    drop(tls);
    gateway.await_metric("exeat_tunnels_active", &[], 0.0).await;
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "closed")], 1.0).await;
}

#[tokio::test]
async fn any_protocol_passes_where_the_whole_host_is_allowed() {
    let (echo, banner) = (Echo::tcp().await, Echo::banner().await);
    let gateway = setup().allow(&[HOST]).start().await;
    let mut tunnel = gateway.tunnel(&echo.authority(HOST)).await;
    for text in ["SSH-2.0-client\r\n", "\0\u{1}\u{2}", "GET / HTTP/1.1\r\n\r\n"] {
        tunnel.send(text).await;
        assert_eq!(tunnel.exact(text.len()).await, text.as_bytes());
    }
    let mut tunnel = gateway.tunnel(&banner.authority(HOST)).await;
    assert_eq!(tunnel.exact(BANNER.len()).await, BANNER.as_bytes(), "the server speaks first");
}

#[tokio::test]
async fn a_half_closed_tunnel_still_brings_the_answer() {
    let echo = Echo::tcp().await;
    let gateway = setup().allow(&[HOST]).start().await;
    let mut tunnel = gateway.tunnel(&echo.authority(HOST)).await;
    tunnel.send("last words").await;
    tunnel.finish().await;
    assert_eq!(tunnel.to_end().await, b"last words");
    assert_eq!(echo.await_ended(1).await, [10]);
}

#[tokio::test]
async fn bytes_sent_before_the_200_are_not_lost() {
    let echo = Echo::tcp().await;
    let gateway = setup().allow(&[HOST]).start().await;
    let mut conn = gateway.open().await;
    let authority = echo.authority(HOST);
    conn.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\nearly")).await;
    assert_eq!(conn.response_to("CONNECT").await.status, 200);
    assert_eq!(conn.exact(5).await, b"early");
}

#[tokio::test]
async fn fields_of_a_connect_say_nothing_about_the_tunnel() {
    let echo = Echo::tcp().await;
    let gateway = setup().allow(&[HOST]).start().await;
    let head = format!(
        "CONNECT {} HTTP/1.1\r\nHost: {OTHER}\r\nConnection: close\r\nProxy-Connection: keep-alive",
        echo.authority(HOST)
    );
    let mut conn = gateway.open().await;
    assert_eq!(conn.roundtrip(&head).await.status, 200);
    conn.send("still here").await;
    assert_eq!(conn.exact(10).await, b"still here");
}

#[tokio::test]
async fn much_passes_through_a_tunnel_unharmed() {
    let echo = Echo::tcp().await;
    let gateway = setup().allow(&[HOST]).start().await;
    let mut tunnel = gateway.tunnel(&echo.authority(HOST)).await;
    let block: Vec<u8> = (0_u32..64 * 1024).flat_map(u32::to_le_bytes).collect();
    for _ in 0..32 {
        tunnel.exchange(&block).await;
    }
    gateway.await_metric("exeat_tunnels_active", &[], 1.0).await;
    tunnel.finish().await;
    assert!(tunnel.to_end().await.is_empty());
    gateway.await_metric("exeat_bytes_total", &[("direction", "up")], 32.0 * 262_144.0).await;
    gateway.await_metric("exeat_bytes_total", &[("direction", "down")], 32.0 * 262_144.0).await;
}

// --- The server name ----------------------------------------------------------------------------------------------------

#[tokio::test]
async fn the_server_name_has_to_be_the_host_of_the_connect() {
    // The check, the name sent (an address sends none), and whether TLS comes about.
    for (check, name, opens) in [
        ("require", HOST, true),
        ("require", OTHER, false),
        ("require", "127.0.0.1", false),
        ("match", HOST, true),
        ("match", OTHER, false),
        ("match", "127.0.0.1", true),
        ("off", OTHER, true),
        ("off", "127.0.0.1", true),
    ] {
        let ca = TestCa::new();
        let origin = origin(&ca).await;
        let gateway = setup().allow(&[HOST]).set("intercept", "sni_check", &format!("{check:?}")).start().await;
        let tunnel = gateway.tunnel(&origin.authority(HOST)).await;
        let tls = tunnel.tls(ca.roots(), name, &["http/1.1"]).await;
        assert_eq!(tls.is_ok(), opens, "{check} {name}");
        if !opens {
            gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "sni_mismatch")], 1.0).await;
            assert!(origin.requests().is_empty());
        }
    }
}

#[tokio::test]
async fn the_server_name_is_found_in_a_hello_that_comes_byte_by_byte() {
    for (name, mut opens) in [(HOST, true), (OTHER, false)] {
        let ca = TestCa::new();
        let origin = origin(&ca).await;
        let gateway = setup().allow(&[HOST]).start().await;
        let mut tunnel = gateway.tunnel(&origin.authority(HOST)).await;
        for byte in exeat_tests::certs::client_hello(name) {
            // The gateway may close before the last byte where the name is wrong.
            opens &= tunnel.try_send([byte]).await.is_ok();
        }
        let answer = if opens { tunnel.exact(1).await } else { tunnel.to_end().await };
        // 22 is a TLS handshake record: the ServerHello of the origin.
        assert_eq!(answer.first() == Some(&22), opens, "{name}: {answer:?}");
    }
}

// --- Whole-origin rules -------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_rule_for_a_whole_origin_is_a_blind_tunnel_that_has_to_be_tls() {
    let ca = TestCa::new();
    let origin = origin(&ca).await;
    let gateway = setup().allow(&[origin.url(HOST, "/")]).start().await;
    let tunnel = gateway.tunnel(&origin.authority(HOST)).await;
    let mut tls = tunnel.tls(ca.roots(), HOST, &["http/1.1"]).await.expect("TLS with the origin itself");
    tls.get("/any", HOST).await.assert_ok("GET /any");

    for opening in ["GET / HTTP/1.1\r\nHost: api.example.test\r\n\r\n", "SSH-2.0-x\r\n", "\u{16}garbage garbage"] {
        let mut tunnel = gateway.tunnel(&origin.authority(HOST)).await;
        tunnel.send(opening).await;
        assert!(tunnel.to_end().await.is_empty(), "{opening:?}");
    }
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "not_tls")], 3.0).await;
    let wrong = gateway.tunnel(&origin.authority(HOST)).await.tls(ca.roots(), OTHER, &[]).await;
    assert!(wrong.is_err());
    assert_eq!(origin.requests().len(), 1);
}

#[tokio::test]
async fn a_server_that_speaks_first_gets_nothing_through_a_tls_only_tunnel() {
    let banner = Echo::banner().await;
    let rule = format!("https://{}/", banner.authority(HOST));
    let gateway = setup().allow(&[rule]).start().await;
    let mut tunnel = gateway.tunnel(&banner.authority(HOST)).await;
    tunnel.send("HELO me\r\n").await;
    assert!(tunnel.to_end().await.is_empty());
}

// --- Refusals -----------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn tunnels_are_refused_before_anything_is_dialled() {
    let ca = TestCa::new();
    let origin = origin(&ca).await;
    let other_port = Origin::http(Site::default()).await;
    let cases = [
        (setup().allow(&[HOST]), OTHER, "not_allowed"),
        (setup().allow(&["*.example.test"]).block(&[HOST]), HOST, "blocked"),
        (setup().block(&[origin.url(HOST, "/")]), HOST, "blocked"),
        (setup().allow(&[other_port.url(HOST, "/v1/")]), HOST, "not_allowed"),
        (setup().set("policy", "default", "\"deny\"").unrestricted(), HOST, "default_deny"),
        (setup().allow(&[origin.url(HOST, "/v1/")]).set("intercept", "enabled", "false"), HOST, "inspect_off"),
        (setup().allow(&[HOST]).set("guard", "blocked_ports", &format!("[{}]", origin.port())), HOST, "guard_port"),
    ];
    for (setup, host, reason) in cases {
        let gateway = setup.start().await;
        let (mut conn, refusal) = gateway.connect(&origin.authority(host)).await;
        refusal.assert_refused(403, reason);
        gateway.await_metric("exeat_requests_total", &[("entry", "connect"), ("reason", reason)], 1.0).await;
        assert_eq!(conn.connect(&origin.authority(host)).await.status, 403, "the connection stays after {reason}");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn authorities_that_cannot_be_read_are_refused() {
    let gateway = setup().start().await;
    for authority in [
        "example.test",
        "user@example.test:443",
        "[example.test]:443",
        "example.test:+443",
        "example.test:0",
        "example.test:65536",
        "example.test:",
        ":443",
        "a..test:443",
        "[::1%25eth0]:443",
        "https://example.test:443/",
        "example.test:443/path",
    ] {
        let refusal = gateway.open().await.roundtrip(&format!("CONNECT {authority} HTTP/1.1\r\nHost: x")).await;
        assert_eq!((refusal.status, refusal.reason().as_deref()), (400, Some("malformed")), "{authority}");
    }
}

#[tokio::test]
async fn a_connect_with_a_body_is_refused() {
    let gateway = setup().allow(&[HOST]).start().await;
    let mut conn = gateway.open().await;
    conn.send(format!("CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 3\r\n\r\nabc")).await;
    conn.response_to("CONNECT").await.assert_refused(400, "bad_request");
}

#[tokio::test]
async fn what_cannot_be_reached_is_said_before_the_200() {
    let closed = Origin::http(Site::default()).await.authority(HOST);
    let gateway = setup().allow(&[HOST]).start().await;
    gateway.connect(&closed).await.1.assert_refused(502, "connect_refused");
    gateway.await_metric("exeat_tunnels_total", &[("kind", "blind"), ("result", "failed")], 1.0).await;
}

// --- Limits -------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn tunnels_are_capped_apart_from_requests() {
    let (echo, origin) = (Echo::tcp().await, Origin::http(Site::default()).await);
    let gateway = setup().allow(&[HOST]).set("limits", "tunnels", "1").start().await;
    let tunnel = gateway.tunnel(&echo.authority(HOST)).await;
    gateway.connect(&echo.authority(HOST)).await.1.assert_refused(503, "tunnel_limit");
    gateway.get(&origin.url(HOST, "/")).await.assert_ok("GET /");
    drop(tunnel);
    gateway.await_metric("exeat_tunnels_active", &[], 0.0).await;
    gateway.tunnel(&echo.authority(HOST)).await;
}

#[tokio::test]
async fn an_idle_tunnel_is_closed() {
    let echo = Echo::tcp().await;
    let gateway = setup().allow(&[HOST]).set("limits", "idle_timeout", r#""1s""#).start().await;
    let mut tunnel = gateway.tunnel(&echo.authority(HOST)).await;
    assert!(tunnel.to_end().await.is_empty());
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "idle")], 1.0).await;
}
