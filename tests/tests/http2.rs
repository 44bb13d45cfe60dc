//! HTTP/2: on the proxy port, inside tunnels, and upstream, in every combination with HTTP/1.1.

use std::sync::atomic::Ordering;

use exeat_tests::client::{RawConn, curl};
use exeat_tests::peers::{self, NodeDir};
use exeat_tests::prelude::*;
use exeat_tests::wait::settled;
use http::Request;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const HOST: &str = "api.example.test";
const OTHER: &str = "other.example.test";

/// An origin that speaks HTTP/2 over TLS, and a gateway that allows `/v1/` there.
async fn scene(site: Site) -> (Origin, Gateway) {
    let ca = TestCa::new();
    let origin = Origin::h2(site, &ca.leaf(&[HOST])).await;
    let gateway = setup(&origin).trust(&ca).start().await;
    (origin, gateway)
}

fn setup(origin: &Origin) -> Setup {
    Gateway::setup().names(&[HOST, OTHER]).allow(&[origin.url(HOST, "/v1/")])
}

/// A site with what the combinations ask for.
fn site() -> Site {
    let trailers = Reply::chunked(&["a", "b"]).trailer("X-Sum", "2").trailer("Exeat-Reason", "forged");
    let site = Site::default().at("/v1/echo", Reply::echo()).at("/v1/trailers", trailers);
    site.at("/v1/empty", Reply::status(204)).at("/v1/same", Reply::status(304).header("ETag", "\"1\""))
}

// --- The proxy port -----------------------------------------------------------------------------------------------------

#[tokio::test]
async fn requests_on_the_proxy_port_are_judged_one_by_one() {
    let origin = Origin::http(Site::default()).await;
    let gateway = setup(&origin).start().await;
    let mut conn = gateway.h2().await;
    for (path, allowed) in [("/v1/x", true), ("/v2/x", false), ("/v1/../admin", false), ("/v1/?q=1", true)] {
        let response = conn.get(&origin.url(HOST, path)).await;
        match allowed {
            true => response.assert_ok(&format!("GET {path}")),
            false => drop(response.assert_refused(403, "not_allowed")),
        }
    }
    conn.get("http://outside.test/").await.assert_refused(403, "not_allowed");
    let requests = origin.requests();
    assert_eq!(requests.iter().map(|request| request.target.as_str()).collect::<Vec<_>>(), ["/v1/x", "/v1/?q=1"]);
    let first = &requests[0];
    assert_eq!((first.version.as_str(), first.value("host")), ("HTTP/1.1", Some(origin.authority(HOST))));
    assert!(first.value("via").unwrap().starts_with("2 exeat-"), "{first:?}");
    gateway.await_metric("exeat_requests_total", &[("entry", "forward"), ("verdict", "allow")], 2.0).await;
    gateway.await_metric("exeat_requests_total", &[("entry", "forward"), ("verdict", "deny")], 3.0).await;
}

#[tokio::test]
async fn a_request_without_a_place_is_refused() {
    let gateway = Gateway::setup().unrestricted().start().await;
    let mut conn = gateway.h2().await;
    for (request, status, reason) in [
        (Request::get("http://u:p@a.test/"), 400, "malformed"),
        (Request::get("http://a.test/").header("host", "b.test"), 400, "bad_request"),
        (Request::get("http://a.test/").header("host", "a.test").header("host", "a.test"), 400, "bad_request"),
        (Request::get("ftp://a.test/"), 400, "unsupported_scheme"),
        (Request::connect("a.test:0"), 400, "malformed"),
    ] {
        let response = conn.send(request.body(()).unwrap()).await;
        response.assert_refused(status, reason);
    }
}

#[tokio::test]
async fn blind_tunnels_run_beside_each_other_on_one_connection() {
    let ca = TestCa::new();
    let echo = Echo::tls(&ca.leaf(&[HOST])).await;
    let gateway = Gateway::setup().names(&[HOST]).allow(&[HOST]).start().await;
    let mut conn = gateway.h2().await;
    let authority = format!("{HOST}:{}", echo.port());
    let (first, second) = (conn.connect(&authority).await.unwrap(), conn.connect(&authority).await.unwrap());
    let mut first = first.tls(ca.roots(), HOST, &[]).await.unwrap();
    let mut second = second.tls(ca.roots(), HOST, &[]).await.unwrap();
    first.exchange(&vec![1; 1 << 20]).await;
    second.exchange(&vec![2; 1 << 20]).await;
    gateway.await_metric("exeat_tunnels_active", &[], 2.0).await;
    first.finish().await;
    first.to_end().await;
    drop(first);
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "closed")], 1.0).await;
    second.exchange(b"still here").await;
    drop((second, conn));
    gateway.await_metric("exeat_tunnels_active", &[], 0.0).await;
    gateway.await_metric("exeat_connections_active", &[], 0.0).await;
    gateway.await_metric("exeat_tunnels_total", &[("kind", "blind"), ("result", "opened")], 2.0).await;
}

#[tokio::test]
async fn a_tunnel_over_a_stream_keeps_its_name_check() {
    let ca = TestCa::new();
    let echo = Echo::tls(&ca.leaf(&[HOST])).await;
    let gateway = Gateway::setup().names(&[HOST]).allow(&[HOST]).start().await;
    let mut conn = gateway.h2().await;
    let tunnel = conn.connect(&format!("{HOST}:{}", echo.port())).await.unwrap();
    tunnel.tls_unchecked(OTHER).await.map(drop).unwrap_err();
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "sni_mismatch")], 1.0).await;
}

#[tokio::test]
async fn inspected_tunnels_over_streams_are_inspected() {
    let (origin, gateway) = scene(Site::default()).await;
    let mut outer = gateway.h2().await;
    for alpn in ["h2", "http/1.1"] {
        let tunnel = outer.connect(&origin.authority(HOST)).await.unwrap();
        let mut tunnel = tunnel.tls(gateway.roots(), HOST, &[alpn]).await.unwrap();
        if alpn == "h2" {
            let mut inner = tunnel.h2().await;
            inner.get(&origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
            inner.get(&origin.url(HOST, "/v2/x")).await.assert_refused(403, "not_allowed");
            let refusal = inner.connect(&origin.authority(HOST)).await.err().unwrap();
            refusal.assert_refused(403, "method_refused");
        } else {
            tunnel.get("/v1/x", HOST).await.assert_ok("GET /v1/x");
            tunnel.get("/v2/x", HOST).await.assert_refused(403, "not_allowed");
        }
    }
    gateway.await_metric("exeat_tunnels_total", &[("kind", "inspected"), ("result", "opened")], 2.0).await;
    gateway.await_metric("exeat_requests_total", &[("entry", "intercept"), ("verdict", "allow")], 2.0).await;
}

#[tokio::test]
async fn a_refused_tunnel_leaves_the_connection_open() {
    let origin = Origin::http(Site::default()).await;
    let gateway = setup(&origin).set("intercept", "enabled", "false").start().await;
    let mut conn = gateway.h2().await;
    conn.connect("outside.test:443").await.err().unwrap().assert_refused(403, "not_allowed");
    conn.connect(&origin.authority(HOST)).await.err().unwrap().assert_refused(403, "inspect_off");
    conn.get(&origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
}

#[tokio::test]
async fn a_policy_that_narrows_ends_the_tunnel_and_not_the_connection() {
    let echo = Echo::tcp().await;
    let gateway = Gateway::setup().names(&[HOST]).allow(&[HOST]).start().await;
    let mut conn = gateway.h2().await;
    let mut tunnel = conn.connect(&format!("{HOST}:{}", echo.port())).await.unwrap();
    tunnel.exchange(b"hello").await;
    gateway.write("agent.toml", "name = \"narrow\"\n[network_access]\nallowed = [\"other.test\"]\n");
    gateway.reload().await;
    tunnel.to_end().await;
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "policy_changed")], 1.0).await;
    conn.get(&format!("http://{HOST}/")).await.assert_refused(403, "not_allowed");
}

// --- Inside tunnels -----------------------------------------------------------------------------------------------------

#[tokio::test]
async fn each_stream_in_a_tunnel_is_judged_by_its_path() {
    let (origin, gateway) = scene(Site::default()).await;
    let mut conn = gateway.intercepted_h2(&origin.authority(HOST)).await;
    for (path, allowed) in [
        ("/v1/users", true),
        ("/v2/users", false),
        ("/v1/a%2Fb", true),
        ("/v1/../admin", false),
        ("/v1/..%2fadmin", false),
        ("/v1/..;/admin", false),
        ("/V1/users", false),
        ("/v1", false),
    ] {
        let response = conn.get(&origin.url(HOST, path)).await;
        match allowed {
            true => response.assert_ok(&format!("GET {path}")),
            false => drop(response.assert_refused(403, "not_allowed")),
        }
    }
    assert_eq!(origin.requests().len(), 2);
    assert_eq!(origin.connections(), 1, "both requests share a connection");
}

#[tokio::test]
async fn a_stream_for_another_host_is_misdirected() {
    let (origin, gateway) = scene(Site::default()).await;
    let mut conn = gateway.intercepted_h2(&origin.authority(HOST)).await;
    conn.get(&origin.url(OTHER, "/v1/x")).await.assert_refused(421, "misdirected");
    conn.get(&format!("https://{HOST}:1/v1/x")).await.assert_refused(421, "misdirected");
    conn.get(&format!("http://{}/v1/x", origin.authority(HOST))).await.assert_refused(421, "misdirected");
    let named = Request::get(origin.url(HOST, "/v1/x")).header("host", OTHER).body(()).unwrap();
    conn.send(named).await.assert_refused(400, "bad_request");
    assert_eq!(origin.connections(), 0);
    // The name alone means the tunnel's port: it is what a client without a port in its URL says.
    let same = Request::get(origin.url(HOST, "/v1/x")).header("host", origin.authority(HOST)).body(()).unwrap();
    conn.send(same).await.assert_ok("GET /v1/x");
}

#[tokio::test]
async fn a_server_name_for_another_host_misdirects_every_stream() {
    let (origin, gateway) = scene(Site::default()).await;
    let tunnel = gateway.tunnel(&origin.authority(HOST)).await;
    let mut conn = tunnel.tls_unchecked_with(OTHER, &["h2"]).await.unwrap().h2().await;
    conn.get(&origin.url(HOST, "/v1/x")).await.assert_refused(421, "misdirected");
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn the_preface_in_clear_text_is_judged_the_same() {
    let origin = Origin::h2c(site()).await;
    let gateway = setup(&origin).start().await;
    let mut conn = gateway.tunnel(&origin.authority(HOST)).await.h2().await;
    conn.get(&origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
    conn.get(&origin.url(HOST, "/v2/x")).await.assert_refused(403, "not_allowed");
    conn.get(&origin.url(OTHER, "/v1/x")).await.assert_refused(421, "misdirected");
    let request = origin.only_request().await;
    assert_eq!((request.version.as_str(), request.value("scheme").as_deref()), ("HTTP/2", Some("http")));
}

#[tokio::test]
async fn the_preface_in_pieces_or_wrong_does_not_escape_judgement() {
    let origin = Origin::h2c(Site::default()).await;
    let gateway = setup(&origin).start().await;
    let mut tunnel = gateway.tunnel(&origin.authority(HOST)).await;
    for piece in ["P", "RI * HTTP/2.0\r\n", "\r\nXX\r\n\r\n"] {
        tunnel.send(piece).await;
    }
    tunnel.response().await.assert_refused(400, "bad_request");
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn an_upgrade_to_h2c_is_an_ordinary_request() {
    let origin = Origin::http(Site::default()).await;
    let gateway = setup(&origin).start().await;
    let mut tunnel = gateway.tunnel(&origin.authority(HOST)).await;
    let upgrade = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__";
    tunnel.roundtrip(&format!("GET /v1/x HTTP/1.1\r\nHost: {HOST}\r\n{upgrade}")).await.assert_ok("GET /v1/x");
    let request = origin.only_request().await;
    assert!(!request.has("upgrade") && !request.has("http2-settings"), "{request:?}");
}

// --- Translation --------------------------------------------------------------------------------------------------------

/// A client in an inspected tunnel, in either version.
enum Client {
    One(RawConn),
    Two(H2Conn),
}

impl Client {
    async fn new(gateway: &Gateway, authority: &str, alpn: &str) -> Self {
        match alpn {
            "h2" => Self::Two(gateway.intercepted_h2(authority).await),
            _ => Self::One(gateway.intercepted(authority).await),
        }
    }

    async fn send(&mut self, method: &str, url: &str) -> exeat_tests::client::Response {
        match self {
            Self::One(conn) => {
                let (_, rest) = url.split_once("://").unwrap();
                let (authority, path) = rest.split_at(rest.find('/').unwrap());
                conn.roundtrip(&format!(
                    "{method} {path} HTTP/1.1\r\nHost: {authority}\r\nTE: trailers\r\nConnection: TE"
                ))
                .await
            }
            Self::Two(conn) => {
                let request = Request::builder().method(method).uri(url).header("te", "trailers");
                conn.send(request.body(()).unwrap()).await
            }
        }
    }
}

#[tokio::test]
async fn both_sides_choose_their_version_by_themselves() {
    let ca = TestCa::new();
    let leaf = ca.leaf(&[HOST]);
    for (client, server) in [("h2", "HTTP/2"), ("h2", "HTTP/1.1"), ("http/1.1", "HTTP/2"), ("http/1.1", "HTTP/1.1")] {
        let case = format!("{client} to {server}");
        let origin = match server {
            "HTTP/2" => Origin::h2(site(), &leaf).await,
            _ => Origin::https(site(), &leaf).await,
        };
        let gateway = setup(&origin).trust(&ca).start().await;
        let mut client = Client::new(&gateway, &origin.authority(HOST), client).await;
        client.send("GET", &origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
        let head = client.send("HEAD", &origin.url(HOST, "/v1/x")).await;
        assert_eq!((head.status, head.value("content-length").as_deref()), (200, Some("11")), "{case}");
        let empty = client.send("GET", &origin.url(HOST, "/v1/empty")).await;
        assert_eq!((empty.status, empty.body.len(), empty.head.has("content-length")), (204, 0, false), "{case}");
        let same = client.send("GET", &origin.url(HOST, "/v1/same")).await;
        assert_eq!((same.status, same.value("etag").as_deref()), (304, Some("\"1\"")), "{case}");
        let trailed = client.send("GET", &origin.url(HOST, "/v1/trailers")).await;
        let trailers: Vec<String> = trailed.trailers.iter().map(|line| line.to_lowercase()).collect();
        assert_eq!((trailed.text().as_str(), trailers), ("ab", vec!["x-sum: 2".to_owned()]), "{case}");
        for response in [&head, &same, &trailed] {
            let received = server.strip_prefix("HTTP/").unwrap();
            assert!(response.value("via").unwrap().starts_with(&format!("{received} exeat-")), "{case}: {response:?}");
            for field in ["connection", "transfer-encoding", "keep-alive"] {
                assert!(matches!(client, Client::One(_)) || !response.head.has(field), "{case}: {response:?}");
            }
        }
        let requests = origin.requests();
        assert_eq!(requests.len(), 5, "{case}");
        for request in requests {
            assert_eq!(
                (request.version.as_str(), request.value("te").as_deref()),
                (server, Some("trailers")),
                "{case}"
            );
            assert_eq!(request.value("connection").as_deref(), (server == "HTTP/1.1").then_some("TE"), "{case}");
            let named = request.value(if server == "HTTP/2" { "authority" } else { "host" });
            assert_eq!(named, Some(origin.authority(HOST)), "{case}");
            assert_eq!(request.has("host"), server == "HTTP/1.1", "{case}");
        }
        assert_eq!(origin.connections(), 1, "{case}");
    }
}

#[tokio::test]
async fn bodies_stream_both_ways_with_their_trailers() {
    let ca = TestCa::new();
    let leaf = ca.leaf(&[HOST]);
    for origin in [Origin::h2(site(), &leaf).await, Origin::https(site(), &leaf).await] {
        let gateway = setup(&origin).trust(&ca).start().await;
        let mut two = gateway.intercepted_h2(&origin.authority(HOST)).await;
        let request = Request::post(origin.url(HOST, "/v1/echo")).header("trailer", "x-sent").body(()).unwrap();
        let mut stream = two.open(request, false).await;
        stream.send(b"first").await.unwrap();
        let mut sender = stream.body;
        let (parts, mut back) = within("an early answer", stream.response).await.unwrap().into_parts();
        assert_eq!(parts.status, 200);
        assert_eq!(
            &within("an echo", back.data()).await.unwrap().unwrap()[..],
            b"first",
            "before the request has ended"
        );
        sender.send_trailers(http::HeaderMap::from_iter([("x-sent".parse().unwrap(), "1".parse().unwrap())])).unwrap();
        while let Some(rest) = within("the end", back.data()).await {
            assert_eq!(&rest.unwrap()[..], b"");
        }
        let mut one = gateway.intercepted(&origin.authority(HOST)).await;
        let head =
            format!("POST /v1/echo HTTP/1.1\r\nHost: {HOST}\r\nTrailer: X-Sent\r\nTransfer-Encoding: chunked\r\n\r\n");
        one.send(head + "5\r\nfirst\r\n0\r\nX-Sent: 1\r\n\r\n").await;
        one.response().await.assert_ok("first");
        for request in origin.await_requests(2).await {
            let trailers: Vec<String> = request.trailers.iter().map(|line| line.to_lowercase()).collect();
            assert_eq!(trailers, ["x-sent: 1"], "{request:?}");
        }
    }
}

#[tokio::test]
async fn a_get_keeps_its_body_whatever_its_framing() {
    let ca = TestCa::new();
    let leaf = ca.leaf(&[HOST]);
    for origin in [Origin::h2(site(), &leaf).await, Origin::https(site(), &leaf).await] {
        let gateway = setup(&origin).trust(&ca).start().await;
        let mut two = gateway.intercepted_h2(&origin.authority(HOST)).await;
        let mut stream = two.open(Request::get(origin.url(HOST, "/v1/echo")).body(()).unwrap(), false).await;
        stream.send(b"asked").await.unwrap();
        stream.finish();
        stream.whole().await.unwrap().assert_ok("asked");
        let mut one = gateway.intercepted(&origin.authority(HOST)).await;
        let head = format!("GET /v1/echo HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n");
        one.send(head + "5\r\nasked\r\n0\r\n\r\n").await;
        one.response().await.assert_ok("asked");
    }
}

#[tokio::test]
async fn cookie_crumbs_become_one_field() {
    let origin = Origin::http(Site::default()).await;
    let gateway = setup(&origin).start().await;
    let request = Request::get(origin.url(HOST, "/v1/x"));
    let request = request.header("cookie", "a=1").header("cookie", "b=2").header("cookie", "c=3");
    gateway.h2().await.send(request.body(()).unwrap()).await.assert_ok("GET /v1/x");
    assert_eq!(origin.only_request().await.values("cookie"), ["a=1; b=2; c=3"]);
}

#[tokio::test]
async fn credentials_are_injected_into_streams() {
    let ca = TestCa::new();
    let origin = Origin::h2(Site::default(), &ca.leaf(&[HOST])).await;
    let gateway = setup(&origin).trust(&ca).bind("TOKEN", "Bearer s3cret");
    let gateway = gateway.inject(&origin.url(HOST, "/v1/"), &[("Authorization", "${TOKEN}")]).start().await;
    let mut conn = gateway.intercepted_h2(&origin.authority(HOST)).await;
    let request = Request::get(origin.url(HOST, "/v1/x")).header("authorization", "Bearer own").body(()).unwrap();
    conn.send(request).await.assert_ok("GET /v1/x");
    assert_eq!(origin.only_request().await.values("authorization"), ["Bearer s3cret"]);
}

#[tokio::test]
async fn an_expectation_is_answered_before_an_http2_upstream() {
    let (origin, gateway) = scene(site()).await;
    let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
    let fields = "Expect: 100-continue\r\nContent-Length: 4";
    conn.send(format!("POST /v1/x HTTP/1.1\r\nHost: {HOST}\r\n{fields}\r\n\r\n")).await;
    assert!(conn.head().await.start.starts_with("HTTP/1.1 100"));
    conn.send("body").await;
    conn.response_to("POST").await.assert_ok("POST /v1/x");
    assert_eq!(origin.only_request().await.body, b"body");
}

#[tokio::test]
async fn a_websocket_goes_to_an_http2_origin_over_http1() {
    let (origin, gateway) = scene(Site::default().at("/v1/ws", Reply::websocket())).await;
    let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
    conn.get("/v1/x", HOST).await.assert_ok("GET /v1/x");
    let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                  Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    let opened = conn.roundtrip(&format!("GET /v1/ws HTTP/1.1\r\nHost: {HOST}\r\n{fields}")).await;
    assert_eq!(opened.status, 101, "{}", opened.text());
    assert_eq!(conn.websocket_echo("hello").await, "hello");
    let versions: Vec<String> = origin.requests().into_iter().map(|request| request.version).collect();
    assert_eq!(versions, ["HTTP/2", "HTTP/1.1"]);
}

#[tokio::test]
async fn extended_connect_is_not_offered() {
    let gateway = Gateway::setup().unrestricted().start().await;
    let mut conn = gateway.h2().await;
    let mut request = Request::connect("https://a.test/chat").body(()).unwrap();
    request.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
    let stream = conn.open(request, false).await;
    let error = stream.opened().await.unwrap_err();
    assert_eq!(error.reason(), Some(h2::Reason::PROTOCOL_ERROR));
    conn.get("ftp://a.test/").await.assert_refused(400, "unsupported_scheme");
}

// --- Streams that end early ---------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_stream_that_the_client_resets_is_given_up_upstream() {
    let ca = TestCa::new();
    let leaf = ca.leaf(&[HOST]);
    for secure in [true, false] {
        let (events, source) = Reply::events();
        let site = Site::default().at("/v1/hang", Reply::hang()).at("/v1/events", events);
        let origin = if secure { Origin::h2(site, &leaf).await } else { Origin::https(site, &leaf).await };
        let gateway = setup(&origin).trust(&ca).start().await;
        let mut conn = gateway.intercepted_h2(&origin.authority(HOST)).await;
        if secure {
            let mut hanging = conn.open(Request::get(origin.url(HOST, "/v1/hang")).body(()).unwrap(), true).await;
            origin.await_heads(1).await;
            hanging.reset();
            drop(hanging);
            let failures = origin.await_failures(1).await;
            assert!(failures[0].contains("no longer needed"), "the stream was cancelled: {failures:?}");
        }
        let events = conn.open(Request::get(origin.url(HOST, "/v1/events")).body(()).unwrap(), true).await;
        let mut events = events.opened().await.unwrap();
        source.send("one").await;
        assert_eq!(&events.piece().await.unwrap().unwrap()[..], b"data: one\n\n");
        drop(events);
        source.abandoned().await;
        conn.get(&origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_never_a_clean_end() {
    let ca = TestCa::new();
    let leaf = ca.leaf(&[HOST]);
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf";
    for origin in [
        Origin::h2(Site::default().at("/v1/cut", Reply::reset("half")), &leaf).await,
        Origin::https(Site::default().at("/v1/cut", Reply::verbatim(cut)), &leaf).await,
    ] {
        let gateway = setup(&origin).trust(&ca).start().await;
        let mut two = gateway.intercepted_h2(&origin.authority(HOST)).await;
        let stream = two.open(Request::get(origin.url(HOST, "/v1/cut")).body(()).unwrap(), true).await;
        // A reset overtakes what was not written yet, the head included.
        let error = match stream.opened().await {
            Ok(mut opened) => opened.rest().await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!((error.is_reset(), error.reason()), (true, Some(h2::Reason::INTERNAL_ERROR)));
        two.get(&origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
        let mut one = gateway.intercepted(&origin.authority(HOST)).await;
        one.send(format!("GET /v1/cut HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await;
        let opened = one.opened("GET").await;
        one.rest(opened).await.unwrap_err();
    }
}

#[tokio::test]
async fn an_answer_before_the_end_of_the_request_is_passed_on() {
    let (origin, gateway) = scene(Site::default().at("/v1/early", Reply::early(413))).await;
    let mut two = gateway.intercepted_h2(&origin.authority(HOST)).await;
    let mut stream = two.open(Request::post(origin.url(HOST, "/v1/early")).body(()).unwrap(), false).await;
    stream.send(b"some of it").await.unwrap();
    assert_eq!(stream.whole().await.unwrap().status, 413);
    two.get(&origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
    let mut one = gateway.intercepted(&origin.authority(HOST)).await;
    one.send(format!("POST /v1/early HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 1000\r\n\r\nsome of it")).await;
    assert_eq!(one.response_to("POST").await.status, 413);
}

#[tokio::test]
async fn a_body_shorter_than_its_length_is_not_sent_as_whole() {
    let origin = Origin::http(site()).await;
    let gateway = setup(&origin).start().await;
    let mut conn = gateway.h2().await;
    let request = Request::post(origin.url(HOST, "/v1/echo")).header("content-length", "100").body(()).unwrap();
    let mut stream = conn.open(request, false).await;
    stream.send(b"short").await.unwrap();
    origin.await_heads(1).await;
    stream.finish();
    let whole = stream.whole().await;
    assert!(whole.is_err(), "{whole:?}");
    origin.await_failures(1).await;
    assert!(origin.requests().iter().all(|request| !request.complete));
}

#[tokio::test]
async fn a_refused_stream_is_sent_once_more_on_a_new_connection() {
    let (origin, gateway) = scene(Site::default().at("/v1/refused", Reply::vanish())).await;
    let mut conn = gateway.intercepted_h2(&origin.authority(HOST)).await;
    conn.get(&origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
    conn.get(&origin.url(HOST, "/v1/refused")).await.assert_refused(502, "upstream_protocol");
    let connections: Vec<usize> = origin.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [0, 0, 1]);
    // What has a body is not sent twice: it is gone.
    conn.post(&origin.url(HOST, "/v1/refused"), b"body").await.assert_refused(502, "upstream_protocol");
    assert_eq!(origin.requests().len(), 4);
}

#[tokio::test]
async fn a_connection_that_goes_away_is_replaced() {
    // Frames by hand: a server that answers one request, then says that it has not looked at the next one.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = format!("{HOST}:{}", listener.local_addr().unwrap().port());
    let server = tokio::spawn(async move {
        for round in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
            let mut preface = [0; 24];
            stream.read_exact(&mut preface).await.unwrap();
            // `:status: 204` from the static table, with END_STREAM and END_HEADERS.
            let answers =
                if round == 0 { vec![frame(1, 5, 1, &[0x89]), goaway(1)] } else { vec![frame(1, 5, 1, &[0x89])] };
            for answer in answers {
                while next_frame(&mut stream).await != Some(1) {}
                stream.write_all(&answer).await.unwrap();
            }
            if round == 1 {
                return next_frame(&mut stream).await;
            }
        }
        None
    });
    let rule = format!("http://{authority}/v1/");
    let gateway = Gateway::setup().names(&[HOST]).allow(&[rule]).start().await;
    let mut conn = gateway.tunnel(&authority).await.h2().await;
    for _ in 0..2 {
        assert_eq!(conn.get(&format!("http://{authority}/v1/x")).await.status, 204);
    }
    drop((conn, gateway));
    within("the server to end", server).await.unwrap();
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn goaway(last: u32) -> Vec<u8> {
    frame(7, 0, 0, &[&last.to_be_bytes()[..], &[0; 4]].concat())
}

/// Reads a frame and gives its type.
async fn next_frame(stream: &mut tokio::net::TcpStream) -> Option<u8> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut payload).await.ok()?;
    Some(head[3])
}

#[tokio::test]
async fn requests_at_once_share_connections_within_bounds() {
    let gate = exeat_tests::origin::Gate::default();
    let site = Site::default().at("/v1/held", Reply::text("held\n").after(&gate));
    let (origin, gateway) = scene(site).await;
    let mut conn = gateway.intercepted_h2(&origin.authority(HOST)).await;
    let mut streams = Vec::new();
    for _ in 0..40 {
        let request = Request::get(origin.url(HOST, "/v1/held")).body(()).unwrap();
        streams.push(conn.open(request, true).await);
    }
    origin.await_requests(40).await;
    // 32 on the first one; the others found it full and made their own, at most one each.
    assert!((2..=9).contains(&origin.connections()), "{}", origin.connections());
    gate.open();
    for stream in streams {
        stream.whole().await.unwrap().assert_ok("held");
    }
}

// --- Backpressure and limits --------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_slow_reader_holds_the_origin_back() {
    const LENGTH: u64 = 64 << 20;
    let ca = TestCa::new();
    let leaf = ca.leaf(&[HOST]);
    for secure in [true, false] {
        let (flood, written) = Reply::flood(LENGTH);
        let site = Site::default().at("/v1/flood", flood);
        let origin = if secure { Origin::h2(site, &leaf).await } else { Origin::https(site, &leaf).await };
        let gateway = setup(&origin).trust(&ca).start().await;
        let mut conn = gateway.intercepted_h2(&origin.authority(HOST)).await;
        let stream = conn.open(Request::get(origin.url(HOST, "/v1/flood")).body(()).unwrap(), true).await;
        let mut opened = stream.opened().await.unwrap();
        let held = settled(|| written.load(Ordering::SeqCst)).await;
        // The kernel's socket buffers are most of it where upstream speaks HTTP/1.1.
        assert!(held < if secure { 2 << 20 } else { 24 << 20 }, "{held} bytes were taken and not delivered");
        let mut other = conn.get(&origin.url(HOST, "/v1/x")).await;
        other.assert_ok("GET /v1/x");
        other.body.clear();
        let mut received = 0;
        while let Some(piece) = opened.piece().await {
            received += piece.unwrap().len() as u64;
        }
        assert_eq!(received, LENGTH);
    }
}

#[tokio::test]
async fn an_upload_that_nobody_reads_stops() {
    let (origin, gateway) = scene(Site::default().at("/v1/hang", Reply::hang())).await;
    let mut conn = gateway.intercepted_h2(&origin.authority(HOST)).await;
    let mut stream = conn.open(Request::post(origin.url(HOST, "/v1/hang")).body(()).unwrap(), false).await;
    let mut sent = 0;
    let piece = vec![b'x'; 64 * 1024];
    while sent < 64 << 20 {
        let send = stream.send(&piece);
        if tokio::time::timeout(std::time::Duration::from_millis(500), send).await.is_err() {
            break;
        }
        sent += piece.len();
    }
    assert!(sent < 2 << 20, "{sent} bytes were taken");
    conn.get(&origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
}

#[tokio::test]
async fn a_flood_of_resets_ends_its_connection_and_nothing_else() {
    let origin = Origin::http(Site::default().at("/v1/hang", Reply::hang())).await;
    let gateway = setup(&origin).start().await;
    let mut other = gateway.h2().await;
    other.get(&origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
    let authority = origin.authority(HOST);
    // Literal fields: `:method: GET`, `:scheme: http`, `:path: /v1/hang`, `:authority: …`.
    let mut block = vec![0x82, 0x86, 0x04, 8];
    block.extend_from_slice(b"/v1/hang");
    block.extend_from_slice(&[0x01, u8::try_from(authority.len()).unwrap()]);
    block.extend_from_slice(authority.as_bytes());
    let mut bytes = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat();
    for number in 0..5_000_u32 {
        bytes.extend(frame(1, 5, 2 * number + 1, &block));
        bytes.extend(frame(3, 0, 2 * number + 1, &8_u32.to_be_bytes()));
    }
    let mut attacker = gateway.open().await;
    // It may be cut off before it has said everything.
    let _ = attacker.try_send(&bytes).await;
    attacker.to_end().await;
    gateway.await_metric("exeat_requests_total", &[("entry", "forward"), ("reason", "flood")], 1.0).await;
    other.get(&origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
    drop((attacker, other));
    gateway.await_metric("exeat_connections_active", &[], 0.0).await;
}

#[tokio::test]
async fn more_streams_than_there_may_be_are_refused() {
    let origin = Origin::http(Site::default().at("/v1/hang", Reply::hang())).await;
    let gateway = setup(&origin).set("limits", "streams", "10").start().await;
    let block = {
        let authority = origin.authority(HOST);
        let mut block = vec![0x82, 0x86, 0x04, 8];
        block.extend_from_slice(b"/v1/hang");
        block.extend_from_slice(&[0x01, u8::try_from(authority.len()).unwrap()]);
        block.extend_from_slice(authority.as_bytes());
        block
    };
    let mut conn = gateway.open().await;
    conn.send([&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat()).await;
    for number in 0..11_u32 {
        conn.send(frame(1, 5, 2 * number + 1, &block)).await;
    }
    // RST_STREAM on the last stream, REFUSED_STREAM.
    let expected = frame(3, 0, 21, &7_u32.to_be_bytes());
    let mut seen = Vec::new();
    while !seen.windows(expected.len()).any(|window| window == expected) {
        seen.extend(conn.exact(1).await);
    }
    origin.await_heads(10).await;
    assert_eq!(origin.requests().len(), 10);
    gateway.await_metric("exeat_requests_total", &[("entry", "forward"), ("reason", "stream_limit")], 1.0).await;
}

#[tokio::test]
async fn a_header_section_that_never_ends_is_cut_off() {
    let gateway = Gateway::setup().unrestricted().set("limits", "header_timeout", "\"200ms\"").start().await;
    let preface = &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..];
    let settings = frame(4, 0, 0, &[]);
    for opening in [
        preface.to_vec(),
        [preface, &settings, &frame(1, 0, 1, &[0x82])].concat(),
        [preface, &settings, &frame(1, 4, 1, &[0x82, 0x86])[..10]].concat(),
    ] {
        let mut conn = gateway.open().await;
        conn.send(opening).await;
        conn.to_end().await;
    }
    gateway.await_metric("exeat_requests_total", &[("entry", "forward"), ("reason", "head_timeout")], 3.0).await;
    // One that has said who it is may wait with its request.
    let mut waiting = gateway.open().await;
    waiting.send([preface, &settings].concat()).await;
    let mut ended = gateway.open().await;
    ended.send(preface).await;
    ended.to_end().await;
    waiting.send(frame(6, 0, 0, &[7; 8])).await;
    let mut seen = Vec::new();
    let pong = frame(6, 1, 0, &[7; 8]);
    while !seen.windows(pong.len()).any(|window| window == pong) {
        seen.extend(waiting.exact(1).await);
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let (events, source) = Reply::events();
    let origin = Origin::http(Site::default().at("/v1/events", events)).await;
    let gateway = setup(&origin).set("limits", "idle_timeout", "\"400ms\"").start().await;
    let (mut busy, mut idle) = (gateway.h2().await, gateway.h2().await);
    let stream = busy.open(Request::get(origin.url(HOST, "/v1/events")).body(()).unwrap(), true).await;
    let mut stream = stream.opened().await.unwrap();
    idle.get(&origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
    within("the idle connection to end", idle.ended()).await;
    source.send("still here").await;
    assert_eq!(&stream.piece().await.unwrap().unwrap()[..], b"data: still here\n\n");
}

#[tokio::test]
async fn too_large_a_header_section_is_refused() {
    let origin = Origin::http(Site::default()).await;
    let gateway = setup(&origin).set("limits", "header_bytes", "4096").start().await;
    let mut conn = gateway.h2().await;
    let request = Request::get(origin.url(HOST, "/v1/x")).header("x-large", "x".repeat(5000)).body(()).unwrap();
    conn.send(request).await.assert_refused(431, "head_too_large");
    // Far above the limit the framing refuses by itself; that is taken down as well.
    let request = Request::get(origin.url(HOST, "/v1/x")).header("x-large", "x".repeat(12_000)).body(()).unwrap();
    assert_eq!(conn.send(request).await.status, 431);
    let labels = [("entry", "forward"), ("reason", "head_too_large")];
    gateway.await_metric("exeat_requests_total", &labels, 2.0).await;
    let mut request = Request::get(origin.url(HOST, "/v1/x"));
    for number in 0..129 {
        request = request.header("x", number);
    }
    let gateway = setup(&origin).start().await;
    gateway.h2().await.send(request.body(()).unwrap()).await.assert_refused(431, "head_too_large");
    assert!(origin.requests().is_empty());
}

#[tokio::test]
async fn a_shutdown_lets_streams_finish() {
    let gate = exeat_tests::origin::Gate::default();
    let origin = Origin::http(Site::default().at("/v1/held", Reply::text("held\n").after(&gate))).await;
    let mut gateway = setup(&origin).start().await;
    let mut conn = gateway.h2().await;
    let held = conn.open(Request::get(origin.url(HOST, "/v1/held")).body(()).unwrap(), true).await;
    origin.await_requests(1).await;
    gateway.signal(rustix::process::Signal::TERM);
    gateway.await_line("draining").await;
    gate.open();
    held.whole().await.unwrap().assert_ok("held");
    assert!(gateway.ended().await.success());
}

// --- Real programs ------------------------------------------------------------------------------------------------------

async fn grpc_calls(gateway: &Gateway, server: &peers::GrpcServer, ca: Option<&std::path::Path>) -> Value {
    let client = Cmd::new(peers::python()).arg(peers::script("grpc_client.py")).arg(server.authority(HOST)).args(ca);
    serde_json::from_str(&client.through(gateway).run().await.success()).unwrap()
}

fn grpc_answers() -> Value {
    json!({
        "unary": "echo hello",
        "sum": "5",
        "streamed": true,
        "chat": true,
        "large": 2_000_005,
        "fail": ["FAILED_PRECONDITION", "as asked"],
        "secret": "PERMISSION_DENIED",
    })
}

#[tokio::test]
async fn grpc_passes_through_an_intercepted_tunnel() {
    let ca = TestCa::new();
    let server = peers::GrpcServer::start(Some(&ca.leaf(&[HOST]))).await;
    let rule = format!("https://{}/test.Echo/", server.authority(HOST));
    let gateway = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[rule]).start().await;
    assert_eq!(grpc_calls(&gateway, &server, Some(gateway.ca())).await, grpc_answers());
}

#[tokio::test]
async fn grpc_without_tls_passes_through_an_inspected_tunnel() {
    let server = peers::GrpcServer::start(None).await;
    let rule = format!("http://{}/test.Echo/", server.authority(HOST));
    let gateway = Gateway::setup().names(&[HOST]).allow(&[rule]).start().await;
    assert_eq!(grpc_calls(&gateway, &server, None).await, grpc_answers());
}

#[tokio::test]
async fn curl_speaks_http2_in_tunnels() {
    let (origin, gateway) = scene(site()).await;
    let format = "\n%{http_code} %{http_version}";
    let get = |path: &str| curl(&gateway, &["--http2", "-w", format, &origin.url(HOST, path)]).run();
    assert_eq!(get("/v1/x").await.success(), "GET /v1/x\n\n200 2");
    assert!(get("/v2/x").await.success().ends_with("403 2"));
    let body = "0123456789abcdef".repeat(256 * 1024);
    let url = origin.url(HOST, "/v1/echo");
    let echoed = curl(&gateway, &["--http2", "--data-binary", "@-", &url]).input(body.clone()).run().await.success();
    assert_eq!(echoed.strip_suffix("\n200"), Some(body.as_str()));
    let clear = Origin::h2c(Site::default()).await;
    let gateway = setup(&clear).start().await;
    let args = ["--http2-prior-knowledge", "--proxytunnel", "-w", format, &clear.url(HOST, "/v1/x")];
    assert_eq!(curl(&gateway, &args).run().await.success(), "GET /v1/x\n\n200 2");
}

#[tokio::test]
async fn node_speaks_http2_in_a_tunnel() {
    let (origin, gateway) = scene(Site::default()).await;
    let node = NodeDir::default();
    let client = Cmd::new("node").arg(node.script("http2_client.mjs")).arg(origin.authority(HOST));
    let output = client.args(["/v1/a", "/v2/b", "/v1/c"]).through(&gateway).run().await.success();
    let answers: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((&answers[0]["status"], &answers[0]["text"]), (&json!(200), &json!("GET /v1/a\n")));
    assert_eq!((&answers[1]["status"], &answers[1]["reason"]), (&json!(403), &json!("not_allowed")));
    assert_eq!((&answers[2]["status"], &answers[2]["text"]), (&json!(200), &json!("GET /v1/c\n")));
}

#[tokio::test]
async fn nghttp_speaks_http2_to_the_proxy_port() {
    let origin = Origin::http(Site::default()).await;
    let gateway = setup(&origin).start().await;
    let authority = format!(":authority: {}", origin.authority(HOST));
    for (path, expected) in [("/v1/x", ":status: 200"), ("/v2/x", "exeat-reason: not_allowed")] {
        let url = format!("http://{}{path}", gateway.proxy());
        let output = Cmd::new("nghttp").args(["-v", "-H", &authority, &url]).run().await.success();
        assert!(output.contains(expected), "{output}");
    }
    assert_eq!(origin.requests().len(), 1);
}
