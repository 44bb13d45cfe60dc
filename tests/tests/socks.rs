//! SOCKS5: the same gate as an HTTP CONNECT, in other words.

use exeat_tests::client::curl;
use exeat_tests::client::socks::{self, NO_AUTH, PASSWORD};
use exeat_tests::origin::BANNER;
use exeat_tests::prelude::*;

const HOST: &str = "api.example.test";
const OTHER: &str = "other.example.test";

async fn origin(ca: &TestCa) -> Origin {
    Origin::https(Site::default(), &ca.leaf(&[HOST, OTHER, "127.0.0.1"])).await
}

fn setup() -> Setup {
    Gateway::setup().names(&[HOST, OTHER])
}

async fn count(gateway: &Gateway, reason: &str, value: f64) {
    gateway.await_metric("exeat_requests_total", &[("entry", "socks5"), ("reason", reason)], value).await;
}

// --- Tunnels ------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_permitted_tunnel_is_blind() {
    let ca = TestCa::new();
    let origin = origin(&ca).await;
    let gateway = setup().allow(&[HOST]).start().await;
    let tunnel = gateway.socks_tunnel(&origin.authority(HOST)).await;
    let mut tls = tunnel.tls(ca.roots(), HOST, &["http/1.1"]).await.expect("TLS with the origin itself");
    tls.get("/x", HOST).await.assert_ok("GET /x");
    assert!(!origin.only_request().await.has("via"), "a blind tunnel changes nothing");
    count(&gateway, "allowed", 1.0).await;
    gateway.await_metric("exeat_tunnels_total", &[("kind", "blind"), ("result", "opened")], 1.0).await;
}

#[tokio::test]
async fn any_protocol_passes_and_a_half_closed_tunnel_still_brings_the_answer() {
    let (echo, banner) = (Echo::tcp().await, Echo::banner().await);
    let gateway = setup().allow(&[HOST]).start().await;
    let mut tunnel = gateway.socks_tunnel(&echo.authority(HOST)).await;
    tunnel.exchange(b"SSH-2.0-client\r\n").await;
    tunnel.send("last words").await;
    tunnel.finish().await;
    assert_eq!(tunnel.to_end().await, b"last words");
    let mut tunnel = gateway.socks_tunnel(&banner.authority(HOST)).await;
    assert_eq!(tunnel.exact(BANNER.len()).await, BANNER.as_bytes(), "the server speaks first");
}

#[tokio::test]
async fn everything_may_be_sent_at_once_or_byte_by_byte() {
    let echo = Echo::tcp().await;
    let gateway = setup().allow(&[HOST]).start().await;
    let all = [&[5, 1, NO_AUTH], &*socks::request(1, HOST, echo.port()), b"early"].concat();
    let mut conn = gateway.open().await;
    conn.send(&all).await;
    assert_eq!(conn.exact(2).await, [5, NO_AUTH]);
    assert_eq!(conn.socks_reply().await, 0);
    assert_eq!(conn.exact(5).await, b"early");
    let mut conn = gateway.open().await;
    for byte in all {
        conn.send([byte]).await;
    }
    assert_eq!(conn.exact(2).await, [5, NO_AUTH]);
    assert_eq!(conn.socks_reply().await, 0);
    assert_eq!(conn.exact(5).await, b"early");
}

#[tokio::test]
async fn a_rule_with_a_path_is_judged_request_by_request() {
    let ca = TestCa::new();
    let origin = origin(&ca).await;
    let plain = Origin::http(Site::default()).await;
    let rules = [origin.url(HOST, "/v1/"), plain.url(OTHER, "/v1/")];
    let gateway = setup().trust(&ca).allow(&rules).start().await;
    let tunnel = gateway.socks_tunnel(&origin.authority(HOST)).await;
    let mut tls = tunnel.tls(gateway.roots(), HOST, &["http/1.1"]).await.expect("TLS with the interception CA");
    tls.get("/v1/x", HOST).await.assert_ok("GET /v1/x");
    tls.get("/v2/x", HOST).await.assert_refused(403, "not_allowed");
    let mut tunnel = gateway.socks_tunnel(&plain.authority(OTHER)).await;
    tunnel.get("/v1/x", OTHER).await.assert_ok("GET /v1/x");
    tunnel.get("/v2/x", OTHER).await.assert_refused(403, "not_allowed");
    assert_eq!((origin.requests().len(), plain.requests().len()), (1, 1));
    gateway.await_metric("exeat_tunnels_total", &[("kind", "inspected"), ("result", "opened")], 2.0).await;
}

#[tokio::test]
async fn the_server_name_is_checked_as_in_any_tunnel() {
    let ca = TestCa::new();
    let origin = origin(&ca).await;
    let gateway = setup().allow(&[HOST]).start().await;
    let tunnel = gateway.socks_tunnel(&origin.authority(HOST)).await;
    assert!(tunnel.tls(ca.roots(), OTHER, &[]).await.is_err());
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "sni_mismatch")], 1.0).await;
}

// --- Refusals -----------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn refusals_carry_the_code_of_their_reason_and_reach_nothing() {
    let ca = TestCa::new();
    let origin = origin(&ca).await;
    let path = origin.url(HOST, "/v1/");
    let cases = [
        (setup().allow(&[HOST]), OTHER, "not_allowed"),
        (setup().allow(&["*.example.test"]).block(&[HOST]), HOST, "blocked"),
        (setup().set("policy", "default", "\"deny\"").unrestricted(), HOST, "default_deny"),
        (setup().allow(&[path]).set("intercept", "enabled", "false"), HOST, "inspect_off"),
        (setup().allow(&[HOST]).set("guard", "blocked_ports", &format!("[{}]", origin.port())), HOST, "guard_port"),
        (setup().allow(&["127.0.0.1"]).set("guard", "allow", "[]"), "127.0.0.1", "guard_address"),
        (setup().allow(&["[::ffff:127.0.0.1]"]).set("guard", "allow", "[]"), "[::ffff:7f00:1]", "guard_address"),
        (setup().allow(&["169.254.169.254"]), "169.254.169.254", "guard_metadata"),
    ];
    for (setup, host, reason) in cases {
        let dns = Dns::start().await;
        let gateway = setup.set("dns", "servers", &format!("[\"{}\"]", dns.addr())).start().await;
        let (mut conn, code) = gateway.socks(&format!("{host}:{}", origin.port())).await;
        assert_eq!(code, 2, "{reason}");
        assert!(conn.to_end().await.is_empty(), "nothing comes behind the reply");
        count(&gateway, reason, 1.0).await;
        assert!(dns.queries().is_empty(), "{reason}");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn names_are_asked_for_once_they_are_permitted_and_not_before() {
    let dns = Dns::start().await;
    let echo = Echo::tcp().await;
    dns.set("known.test", Answer::addresses(&["127.0.0.1"]));
    let setup = Gateway::setup().set("dns", "servers", &format!("[\"{}\"]", dns.addr()));
    let gateway = setup.allow(&["known.test", "absent.test"]).start().await;
    assert_eq!(gateway.socks(&echo.authority("denied.test")).await.1, 2);
    assert!(dns.queries().is_empty());
    gateway.socks_tunnel(&echo.authority("known.test")).await.exchange(b"hello").await;
    assert_eq!(gateway.socks(&echo.authority("absent.test")).await.1, 4);
    count(&gateway, "dns_not_found", 1.0).await;
}

#[tokio::test]
async fn what_cannot_be_reached_is_said() {
    let closed = Origin::http(Site::default()).await.authority(HOST);
    let gateway = setup().allow(&[HOST]).start().await;
    assert_eq!(gateway.socks(&closed).await.1, 5);
    count(&gateway, "connect_refused", 1.0).await;
}

#[tokio::test]
async fn the_gateways_own_listeners_are_out_of_reach() {
    let gateway = setup().allow(&["127.0.0.1", HOST]).start().await;
    for authority in
        [gateway.proxy().to_string(), gateway.admin().to_string(), format!("{HOST}:{}", gateway.proxy().port())]
    {
        assert_eq!(gateway.socks(&authority).await.1, 2, "{authority}");
    }
    count(&gateway, "guard_self", 3.0).await;
}

#[tokio::test]
async fn names_that_cannot_be_read_are_refused_without_a_query() {
    let dns = Dns::start().await;
    let gateway = Gateway::setup().set("dns", "servers", &format!("[\"{}\"]", dns.addr())).unrestricted().start().await;
    let (long_label, long_name) = ([b'a'; 64], [&b"a.".repeat(127)[..], b"a"].concat());
    let names: [&[u8]; 14] = [
        b"",
        b".",
        b"a..test",
        b"attacker.test\0.example.com",
        b"a.test\r",
        b"a.test\n",
        b"a\tb.test",
        b"a b.test",
        b" ",
        b"user@a.test",
        b"a.test:80",
        b"[a.test]",
        &long_label,
        &long_name,
    ];
    for name in names {
        let mut conn = gateway.open().await;
        conn.socks_greet(&[NO_AUTH]).await;
        conn.send(socks::request(1, name, 443)).await;
        assert_eq!(conn.socks_reply().await, 2, "{:?}", String::from_utf8_lossy(name));
        assert!(conn.to_end().await.is_empty());
    }
    assert_eq!(gateway.socks("a.test:0").await.1, 2);
    count(&gateway, "malformed", 15.0).await;
    assert!(dns.queries().is_empty(), "{:?}", dns.queries());
    let line = gateway.await_line("attacker.test").await;
    assert!(line.contains(r"\\0") && !line.contains("\\u0000"), "what is odd is escaped: {line}");
}

#[tokio::test]
async fn only_connect_and_known_addresses_are_served() {
    let gateway = setup().allow(&[HOST]).start().await;
    let unknown_type = vec![5, 1, 0, 2, 1, 2, 3, 4, 0, 80];
    let reserved = vec![5, 1, 1, 1, 1, 2, 3, 4, 0, 80];
    for (message, code) in [
        (socks::request(2, HOST, 80), 7),
        (socks::request(3, "0.0.0.0", 0), 7),
        (socks::request(9, HOST, 80), 7),
        (unknown_type, 8),
        (reserved, 1),
        (vec![4; 10], 1),
    ] {
        let mut conn = gateway.open().await;
        conn.socks_greet(&[NO_AUTH]).await;
        conn.send(&message).await;
        assert_eq!(conn.socks_reply().await, code, "{message:?}");
        assert!(conn.to_end().await.is_empty());
    }
    for (reason, value) in [("method_refused", 3.0), ("unsupported_protocol", 1.0), ("bad_request", 2.0)] {
        count(&gateway, reason, value).await;
    }
    gateway.await_line("UDP ASSOCIATE").await;
}

#[tokio::test]
async fn methods_of_authentication_are_agreed_on() {
    let echo = Echo::tcp().await;
    let gateway = setup().allow(&[HOST]).start().await;
    for (offer, chosen) in [
        (&[NO_AUTH][..], NO_AUTH),
        (&[PASSWORD, NO_AUTH], NO_AUTH),
        (&[1, 3, 0x80, NO_AUTH], NO_AUTH),
        (&[PASSWORD], PASSWORD),
        (&[1], 0xFF),
        (&[], 0xFF),
    ] {
        let mut conn = gateway.open().await;
        assert_eq!(conn.socks_greet(offer).await, chosen, "{offer:?}");
        match chosen {
            0xFF => assert!(conn.to_end().await.is_empty()),
            PASSWORD => assert_eq!(conn.socks_login("anybody", "").await, 0, "nobody has to authenticate here"),
            _ => {}
        }
        if chosen != 0xFF {
            assert_eq!(conn.socks_connect(&echo.authority(HOST)).await, 0);
            conn.exchange(b"hello").await;
        }
    }
    count(&gateway, "proxy_auth", 2.0).await;
}

#[tokio::test]
async fn a_client_that_stops_in_the_middle_is_not_waited_for() {
    let gateway = setup().set("limits", "header_timeout", "\"200ms\"").start().await;
    for (sent, answer) in [(&[5][..], &[5, 0xFF][..]), (&[5, 1, 2, 1, 4], &[5, 2, 1, 1])] {
        let mut conn = gateway.open().await;
        conn.send(sent).await;
        assert_eq!(conn.to_end().await, answer, "{sent:?}");
    }
    let mut conn = gateway.open().await;
    conn.socks_greet(&[NO_AUTH]).await;
    conn.send([5, 1, 0, 3]).await;
    assert_eq!(conn.socks_reply().await, 1);
    count(&gateway, "head_timeout", 3.0).await;
    gateway.await_metric("exeat_connections_active", &[], 0.0).await;
}

#[tokio::test]
async fn socks4_is_refused_in_its_own_words() {
    let gateway = setup().unrestricted().start().await;
    for message in
        [&b"\x04\x01\x00\x50\x7f\x00\x00\x01user\0"[..], b"\x04\x01\x01\xbb\x00\x00\x00\x01\0api.example.test\0"]
    {
        let mut conn = gateway.open().await;
        conn.send(message).await;
        assert_eq!(conn.to_end().await, [0, 0x5B, 0, 0, 0, 0, 0, 0]);
    }
    let labels = [("entry", "forward"), ("reason", "unsupported_protocol")];
    gateway.await_metric("exeat_requests_total", &labels, 2.0).await;
}

#[tokio::test]
async fn tunnels_are_capped_and_end_with_a_narrower_policy() {
    let echo = Echo::tcp().await;
    let gateway = setup().allow(&[HOST]).set("limits", "tunnels", "1").start().await;
    let mut tunnel = gateway.socks_tunnel(&echo.authority(HOST)).await;
    assert_eq!(gateway.socks(&echo.authority(HOST)).await.1, 1);
    count(&gateway, "tunnel_limit", 1.0).await;
    tunnel.exchange(b"one").await;
    gateway.write("agent.toml", "name = \"agent\"\n[network_access]\nallowed = [\"other.example.test\"]\n");
    gateway.reload().await;
    assert!(tunnel.to_end().await.is_empty());
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "policy_changed")], 1.0).await;
}

// --- Programs -----------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn curl_speaks_it_with_names_resolved_on_either_side() {
    let ca = TestCa::new();
    let origin = origin(&ca).await;
    let gateway = setup().trust(&ca).allow(&[origin.url(HOST, "/v1/"), "127.0.0.1".to_owned()]).start().await;
    let proxy = gateway.proxy().to_string();
    let get = async |how: &str, url: &str| curl(&gateway, &[how, &proxy, url]).run().await;
    let remote = async |path: &str| get("--socks5-hostname", &origin.url(HOST, path)).await.success();
    assert_eq!(remote("/v1/x").await, "GET /v1/x\n\n200");
    assert!(remote("/v2/x").await.ends_with("403"));
    let plain = Origin::http(Site::default()).await;
    assert_eq!(get("--socks5", &plain.url("127.0.0.1", "/x")).await.success(), "GET /x\n\n200");
    let denied = get("--socks5-hostname", "https://outside.test/").await;
    assert_eq!(denied.code, Some(97), "curl's word for a refusal by the proxy: {denied:#?}");
    let old = get("--socks4a", &plain.url(HOST, "/x")).await;
    assert_eq!(old.code, Some(97), "{old:#?}");
}
