//! Forwarding: absolute-form requests over HTTP/1.1, their bodies both ways, and what must not pass.

use std::sync::atomic::Ordering;

use exeat_tests::origin::Gate;
use exeat_tests::prelude::*;
use exeat_tests::wait::settled;
use exeat_tests::ws;

const HOST: &str = "api.example.test";

/// More than the socket buffers of both connections hold at their largest, in bytes: what a gateway that passes on no
/// more than is read may still take.
const SOCKETS: u64 = 96 << 20;

/// A plain origin known as [`HOST`] and a gateway that allows it.
async fn scene(site: Site) -> (Origin, Gateway) {
    let origin = Origin::http(site).await;
    let gateway = Gateway::setup().names(&[HOST]).allow(&[HOST]).start().await;
    (origin, gateway)
}

/// The head of a GET for a path of the origin, without the empty line.
fn get(origin: &Origin, path: &str, fields: &str) -> String {
    format!("GET {} HTTP/1.1\r\nHost: {}{fields}", origin.url(HOST, path), origin.authority(HOST))
}

// --- Requests and answers -----------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_request_arrives_in_origin_form_at_the_host_of_its_target() {
    let (origin, gateway) = scene(Site::default()).await;
    let head = format!("GET {} HTTP/1.1\r\nHost: other.example.test\r\nX: 1\r\nX: 2", origin.url(HOST, "/p?q=1"));
    gateway.open().await.roundtrip(&head).await.assert_ok("GET /p?q=1");
    let request = origin.only_request().await;
    assert_eq!((request.target.as_str(), request.version.as_str()), ("/p?q=1", "HTTP/1.1"));
    assert_eq!(request.value("host"), Some(origin.authority(HOST)));
    assert_eq!(request.values("x"), ["1", "2"]);
}

#[tokio::test]
async fn every_method_passes_with_its_body() {
    let (origin, gateway) = scene(Site::default()).await;
    let digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let (sized, chunked) =
        ("Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n");
    for (method, rest, sum) in [
        ("GET", "\r\n", nothing),
        ("HEAD", "\r\n", nothing),
        ("DELETE", "\r\n", nothing),
        ("OPTIONS", "\r\n", nothing),
        ("POST", "Content-Length: 0\r\n\r\n", nothing),
        ("POST", sized, digest),
        ("PUT", chunked, digest),
        ("PATCH", sized, digest),
        ("REPORT", sized, digest),
    ] {
        let seen = origin.requests().len();
        let mut conn = gateway.open().await;
        conn.send(format!("{method} {} HTTP/1.1\r\nHost: x\r\n{rest}", origin.url(HOST, "/m"))).await;
        assert_eq!(conn.response_to(method).await.status, 200, "{method} {rest:?}");
        let request = origin.await_requests(seen + 1).await.pop().unwrap();
        assert_eq!((request.method.as_str(), request.body_sha256.as_str()), (method, sum), "{rest:?}");
    }
}

#[tokio::test]
async fn statuses_fields_and_bodies_come_back() {
    let redirect = "https://elsewhere.example.test/x";
    let site = Site::default()
        .at("/404", Reply::text("gone\n").with_status(404).header("X-Own", "a").header("x-own", "b"))
        .at("/204", Reply::status(204))
        .at("/304", Reply::status(304).header("ETag", "\"e\""))
        .at("/302", Reply::redirect(redirect))
        .at("/chunked", Reply::chunked(&["one,", "two"]))
        .at("/close", Reply::verbatim("HTTP/1.1 200 OK\r\n\r\nuntil the end"));
    let (origin, gateway) = scene(site).await;
    for (path, status, body) in [
        ("/404", 404, "gone\n"),
        ("/204", 204, ""),
        ("/304", 304, ""),
        ("/302", 302, ""),
        ("/chunked", 200, "one,two"),
        ("/close", 200, "until the end"),
    ] {
        let response = gateway.get(&origin.url(HOST, path)).await;
        assert_eq!((response.status, response.text().as_str()), (status, body), "{path}");
    }
    assert_eq!(gateway.get(&origin.url(HOST, "/404")).await.head.values("x-own"), ["a", "b"]);
    assert_eq!(gateway.get(&origin.url(HOST, "/302")).await.value("location").as_deref(), Some(redirect));
}

#[tokio::test]
async fn one_connection_carries_many_requests_and_upstream_connections_are_pooled() {
    let (origin, gateway) = scene(Site::default()).await;
    let mut conn = gateway.open().await;
    for path in ["/1", "/2", "/3"] {
        conn.roundtrip(&get(&origin, path, "")).await.assert_ok(path);
    }
    gateway.get(&origin.url(HOST, "/4")).await.assert_ok("/4");
    assert_eq!((origin.requests().len(), origin.connections()), (4, 1));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let (origin, gateway) = scene(Site::default()).await;
    let mut conn = gateway.open().await;
    let both = ["/1", "/2"].map(|path| get(&origin, path, "") + "\r\n\r\n").concat();
    conn.send(both).await;
    conn.response().await.assert_ok("/1");
    conn.response().await.assert_ok("/2");
}

#[tokio::test]
async fn a_connection_ends_when_the_client_says_so() {
    let (origin, gateway) = scene(Site::default().at("/c", Reply::chunked(&["a", "b"]))).await;
    for head in [get(&origin, "/c", "\r\nConnection: close"), format!("GET {} HTTP/1.0", origin.url(HOST, "/c"))] {
        let mut conn = gateway.open().await;
        assert_eq!(conn.roundtrip(&head).await.text(), "ab", "{head}");
        assert!(conn.to_end().await.is_empty());
    }
}

// --- Header fields ------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn hop_by_hop_fields_stay_on_their_side() {
    let reply = Reply::text("ok\n")
        .header("Connection", "X-Inner")
        .header("X-Inner", "1")
        .header("Keep-Alive", "timeout=9")
        .header("Proxy-Authenticate", "Basic")
        .header("Exeat-Reason", "forged");
    let (origin, gateway) = scene(Site::default().at("/", reply)).await;
    let fields = "\r\nConnection: keep-alive, X-Named\r\nX-Named: 1\r\nKeep-Alive: 5\r\nProxy-Connection: keep-alive\
                  \r\nProxy-Authorization: Basic eDp5\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nX-Kept: 1";
    let response = gateway.open().await.roundtrip(&get(&origin, "/", fields)).await;
    for name in ["x-inner", "keep-alive", "proxy-authenticate", "exeat-reason"] {
        assert!(!response.head.has(name), "{name} in {:?}", response.head.lines);
    }
    let request = origin.only_request().await;
    for name in ["x-named", "keep-alive", "proxy-connection", "proxy-authorization", "upgrade", "http2-settings"] {
        assert!(!request.has(name), "{name} in {:?}", request.head.lines);
    }
    assert_eq!(request.value("x-kept").as_deref(), Some("1"));
    assert!(!request.head.lists("connection", "x-named"));
}

#[tokio::test]
async fn via_is_added_both_ways_and_a_loop_is_refused() {
    let (origin, gateway) = scene(Site::default()).await;
    let response = gateway.open().await.roundtrip(&get(&origin, "/", "\r\nVia: 1.0 fred")).await;
    assert!(response.head.has("via"), "{:?}", response.head.lines);
    let via = origin.only_request().await.values("via").join(", ");
    assert!(via.starts_with("1.0 fred, 1.1 "), "{via}");
    let again = gateway.open().await.roundtrip(&get(&origin, "/", &format!("\r\nVia: {via}"))).await;
    again.assert_refused(403, "loop");
    assert_eq!(origin.requests().len(), 1);
}

// --- Streaming ----------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn both_directions_stream_at_once() {
    let (origin, gateway) = scene(Site::default().at("/", Reply::echo())).await;
    let mut conn = gateway.open().await;
    let head = format!("POST {} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", origin.url(HOST, "/"));
    conn.send(head + "3\r\nabc\r\n").await;
    let mut opened = conn.opened("POST").await;
    assert_eq!(conn.piece(&mut opened).await.unwrap(), b"abc");
    conn.send("2\r\nde\r\n").await;
    assert_eq!(conn.piece(&mut opened).await.unwrap(), b"de");
    conn.send("0\r\n\r\n").await;
    assert!(conn.rest(opened).await.unwrap().body.is_empty());
}

#[tokio::test]
async fn events_are_passed_on_one_by_one_and_a_client_that_leaves_is_noticed_upstream() {
    let (reply, source) = Reply::events();
    let (origin, gateway) = scene(Site::default().at("/events", reply)).await;
    let mut conn = gateway.open().await;
    conn.send(get(&origin, "/events", "") + "\r\n\r\n").await;
    source.send("first").await;
    let mut opened = conn.opened("GET").await;
    assert_eq!(conn.piece(&mut opened).await.unwrap(), b"data: first\n\n");
    source.send("second").await;
    assert_eq!(conn.piece(&mut opened).await.unwrap(), b"data: second\n\n");
    drop(conn);
    source.abandoned().await;
}

#[tokio::test]
async fn an_answer_is_taken_no_faster_than_the_client_reads() {
    let length = 256 << 20;
    let (reply, written) = Reply::flood(length);
    let (origin, gateway) = scene(Site::default().at("/", reply)).await;
    let mut conn = gateway.open().await;
    conn.send(get(&origin, "/", "") + "\r\n\r\n").await;
    let mut opened = conn.opened("GET").await;
    conn.piece(&mut opened).await.unwrap();
    let held = settled(|| written.load(Ordering::SeqCst)).await;
    assert!(held < SOCKETS, "{held} bytes were taken from upstream while the client read none");
}

#[tokio::test]
async fn a_body_is_taken_no_faster_than_upstream_reads() {
    let (origin, gateway) = scene(Site::default().at("/", Reply::hang())).await;
    let mut conn = gateway.open().await;
    let length = 256_u64 << 20;
    conn.send(format!("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n", origin.url(HOST, "/"))).await;
    origin.await_heads(1).await;
    let taken = conn.flood(length).await;
    assert!(taken < SOCKETS, "{taken} bytes were taken from the client while upstream read none");
}

#[tokio::test]
async fn interim_answers_pass() {
    let site = Site::default()
        .at("/hints", Reply::text("ok\n").interim("103 Early Hints", &["Link: </a.css>; rel=preload"]))
        .at("/upload", Reply::text("ok\n").interim("100 Continue", &[]));
    let (origin, gateway) = scene(site).await;
    let response = gateway.get(&origin.url(HOST, "/hints")).await;
    assert_eq!(response.interim[0].value("link").as_deref(), Some("</a.css>; rel=preload"));
    response.assert_ok("ok");

    let mut conn = gateway.open().await;
    let fields = "Host: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    conn.send(format!("PUT {} HTTP/1.1\r\n{fields}", origin.url(HOST, "/upload"))).await;
    assert!(conn.head().await.start.starts_with("HTTP/1.1 100"));
    conn.send("hello").await;
    conn.response().await.assert_ok("ok");
    assert_eq!(origin.await_requests(2).await[1].value("expect").as_deref(), Some("100-continue"));
}

#[tokio::test]
async fn a_refused_upload_is_refused_before_it_is_sent() {
    let (origin, gateway) = scene(Site::default()).await;
    let fields = "Host: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    let mut conn = gateway.open().await;
    conn.send(format!("PUT http://other.example.test/ HTTP/1.1\r\n{fields}")).await;
    let refusal = conn.response().await;
    refusal.assert_refused(403, "not_allowed");
    assert!(refusal.interim.is_empty());
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    let reply = Reply::chunked(&["body"]).header("Trailer", "X-Sum").trailer("X-Sum", "42");
    let (origin, gateway) = scene(Site::default().at("/", reply)).await;
    let mut conn = gateway.open().await;
    let fields = "Host: x\r\nTE: trailers\r\nConnection: TE\r\nTrailer: X-Up\r\nTransfer-Encoding: chunked\r\n\r\n";
    let body = "2\r\nhi\r\n0\r\nX-Up: 7\r\n\r\n";
    conn.send(format!("POST {} HTTP/1.1\r\n{fields}{body}", origin.url(HOST, "/"))).await;
    let response = conn.response().await;
    assert_eq!(response.trailers.join("").to_ascii_lowercase(), "x-sum: 42");
    let request = origin.only_request().await;
    assert_eq!(request.trailers.join("").to_ascii_lowercase(), "x-up: 7");
    assert!(request.head.lists("te", "trailers"));
}

// --- Upgrades -----------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_websocket_opens_and_echoes() {
    let (origin, gateway) = scene(Site::default().at("/ws", Reply::websocket())).await;
    let mut conn = gateway.open().await;
    conn.send(ws::handshake(&origin.url(HOST, "/ws"), HOST)).await;
    let opened = conn.opened("GET").await;
    let response = conn.rest(opened).await.unwrap();
    assert_eq!((response.status, response.value("sec-websocket-accept")), (101, Some(ws::accept(ws::SAMPLE_KEY))));
    assert_eq!(conn.websocket_echo("hello").await, "hello");
    assert_eq!(conn.websocket_echo("again").await, "again");
}

#[tokio::test]
async fn only_a_verified_101_opens_a_stream() {
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
    let site = Site::default()
        .at("/forged", Reply::verbatim(&format!("{switch}Sec-WebSocket-Accept: AAAA\r\n\r\n")))
        .at("/unasked", Reply::verbatim(&format!("{switch}\r\n")))
        .at("/declined", Reply::text("no\n"));
    let (origin, gateway) = scene(site).await;
    let mut conn = gateway.open().await;
    conn.send(ws::handshake(&origin.url(HOST, "/forged"), HOST)).await;
    conn.response().await.assert_refused(502, "upstream_protocol");
    gateway.get(&origin.url(HOST, "/unasked")).await.assert_refused(502, "upstream_protocol");

    // After an answer other than 101 the connection is plain HTTP: the next request on it is judged.
    let mut conn = gateway.open().await;
    let next = "GET http://other.example.test/ HTTP/1.1\r\nHost: other.example.test\r\n\r\n";
    conn.send(ws::handshake(&origin.url(HOST, "/declined"), HOST) + next).await;
    conn.response().await.assert_ok("no");
    conn.response().await.assert_refused(403, "not_allowed");
}

// --- Absolute-form https ------------------------------------------------------------------------------------------------

#[tokio::test]
async fn absolute_form_https_is_fetched_over_tls_and_judged_by_path() {
    let ca = TestCa::new();
    let origin = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let rule = origin.url(HOST, "/v1/");
    let gateway = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[&rule]).start().await;
    gateway.get(&origin.url(HOST, "/v1/users")).await.assert_ok("GET /v1/users");
    gateway.get(&origin.url(HOST, "/v2/users")).await.assert_refused(403, "not_allowed");
    assert_eq!(origin.only_request().await.sni.as_deref(), Some(HOST));
}

// --- Failures upstream --------------------------------------------------------------------------------------------------

#[tokio::test]
async fn what_fails_upstream_is_said() {
    let site = Site::default()
        .at("/vanish", Reply::vanish())
        .at("/garbage", Reply::verbatim("220 mail.example.test ESMTP\r\n\r\n"))
        .at("/two-lengths", Reply::verbatim("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"));
    let (origin, gateway) = scene(site).await;
    for path in ["/vanish", "/garbage", "/two-lengths"] {
        let refusal = gateway.get(&origin.url(HOST, path)).await;
        assert_eq!((refusal.status, refusal.reason().as_deref()), (502, Some("upstream_protocol")), "{path}");
    }
    let closed = Origin::http(Site::default()).await.url(HOST, "/");
    gateway.get(&closed).await.assert_refused(502, "connect_refused");
}

#[tokio::test]
async fn an_answer_that_breaks_off_does_not_look_complete() {
    let site = Site::default()
        .at("/length", Reply::reset("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"))
        .at("/chunked", Reply::reset("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"));
    let (origin, gateway) = scene(site).await;
    for path in ["/length", "/chunked"] {
        let mut conn = gateway.open().await;
        conn.send(get(&origin, path, "") + "\r\n\r\n").await;
        let bytes = String::from_utf8(conn.to_end().await).unwrap();
        assert!(!bytes.ends_with("0\r\n\r\n") && !bytes.contains("Content-Length: 4"), "{path}: {bytes}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_request_upstream() {
    let (origin, gateway) = scene(Site::default().at("/slow", Reply::text("late\n").after(&Gate::default()))).await;
    let mut conn = gateway.open().await;
    conn.send(get(&origin, "/slow", "") + "\r\n\r\n").await;
    origin.await_requests(1).await;
    drop(conn);
    gateway.await_metric("exeat_connections_active", &[], 0.0).await;
    assert_eq!(origin.requests().len(), 1);
}

// --- What is refused ----------------------------------------------------------------------------------------------------

#[tokio::test]
async fn ambiguous_or_malformed_requests_are_refused_and_nothing_is_sent() {
    let (origin, gateway) = scene(Site::default()).await;
    let url = origin.url(HOST, "/");
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "X: a\r\n folded\r\n",
        "X: a\nY: b\r\n",
        "X: a\0b\r\n",
        "X Y: a\r\n",
        "Host: other.example.test\r\n",
    ] {
        let mut conn = gateway.open().await;
        conn.send(format!("POST {url} HTTP/1.1\r\nHost: x\r\n{fields}\r\n0\r\n\r\n")).await;
        let response = conn.response().await;
        assert_eq!((response.status, response.reason().as_deref()), (400, Some("bad_request")), "{fields:?}");
        assert!(conn.to_end().await.is_empty(), "{fields:?}: the connection goes on");
    }
    for line in [
        format!("GET {url}\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\n\r\n"),
        format!("GET {url} HTTP/1.1 junk\r\nHost: x\r\n\r\n"),
        format!("GET {url} HTTP/3.0\r\nHost: x\r\n\r\n"),
        format!("GET {url}\x01 HTTP/1.1\r\nHost: x\r\n\r\n"),
    ] {
        let mut conn = gateway.open().await;
        conn.send(&line).await;
        let response = conn.response().await;
        assert_eq!((response.status, response.reason().as_deref()), (400, Some("bad_request")), "{line:?}");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn bad_chunks_never_reach_upstream_as_a_whole_request() {
    let (origin, gateway) = scene(Site::default()).await;
    for body in
        ["5x\r\nhello\r\n0\r\n\r\n", "fffffffffffffffff\r\nhello", "5\r\nhello0\r\n\r\n", "5\nhello\r\n0\r\n\r\n"]
    {
        let mut conn = gateway.open().await;
        let fields = "Host: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        conn.send(format!("POST {} HTTP/1.1\r\n{fields}{body}", origin.url(HOST, "/"))).await;
        conn.finish().await;
        conn.to_end().await;
    }
    assert!(origin.requests().iter().all(|request| !request.complete), "{:#?}", origin.requests());
}

#[tokio::test]
async fn targets_that_are_no_urls_of_the_network_are_refused() {
    let (origin, gateway) = scene(Site::default()).await;
    let authority = origin.authority(HOST);
    for (target, reason) in [
        ("/", "malformed"),
        ("/metrics", "malformed"),
        ("*", "malformed"),
        (&format!("http://user@{authority}/"), "malformed"),
        (&format!("http://user:pw@{authority}/"), "malformed"),
        ("http:///", "malformed"),
        ("http://a..b/", "malformed"),
        ("http://[::1%25eth0]/", "malformed"),
        ("http://a.test:0/", "malformed"),
        ("http://a.test:65536/", "malformed"),
        (&format!("ftp://{authority}/"), "unsupported_scheme"),
        ("file:///etc/passwd", "unsupported_scheme"),
        ("gopher://a.test/", "unsupported_scheme"),
    ] {
        let response = gateway.open().await.get(target, HOST).await;
        assert_eq!((response.status, response.reason().as_deref()), (400, Some(reason)), "{target}");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn the_path_goes_upstream_as_it_was_judged() {
    let (origin, gateway) = scene(Site::default()).await;
    for path in ["/a%2Fb", "/a;x=1/b", "/a//b", "/a?x=%2e%2e&y=/../", "/%E2%82%AC", "/~a-b_c.d"] {
        let seen = origin.requests().len();
        gateway.get(&origin.url(HOST, path)).await.assert_ok("GET");
        assert_eq!(origin.await_requests(seen + 1).await[seen].target, path);
    }
}

// --- Limits -------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn heads_are_bounded_in_size_and_time() {
    let origin = Origin::http(Site::default()).await;
    let gateway = Gateway::setup().names(&[HOST]).allow(&[HOST]);
    let gateway =
        gateway.set("limits", "header_bytes", "8192").set("limits", "header_timeout", r#""1s""#).start().await;
    let flood = get(&origin, "/", &format!("\r\nX: {}", "x".repeat(9000)));
    gateway.open().await.roundtrip(&flood).await.assert_refused(431, "head_too_large");
    let mut conn = gateway.open().await;
    conn.send(get(&origin, "/", "") + "\r\nX: ").await;
    conn.response().await.assert_refused(408, "head_timeout");
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn connections_are_counted_and_capped() {
    let origin = Origin::http(Site::default()).await;
    let gateway = Gateway::setup().names(&[HOST]).allow(&[HOST]).set("limits", "connections", "2").start().await;
    let (mut first, mut second) = (gateway.open().await, gateway.open().await);
    first.roundtrip(&get(&origin, "/1", "")).await.assert_ok("/1");
    second.roundtrip(&get(&origin, "/2", "")).await.assert_ok("/2");
    gateway.open().await.response().await.assert_refused(503, "connection_limit");
    drop(first);
    gateway.await_metric("exeat_connections_active", &[], 1.0).await;
    gateway.get(&origin.url(HOST, "/3")).await.assert_ok("/3");
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let gateway = Gateway::setup().allow(&[HOST]).set("limits", "idle_timeout", r#""1s""#).start().await;
    assert!(gateway.open().await.to_end().await.is_empty());
}
