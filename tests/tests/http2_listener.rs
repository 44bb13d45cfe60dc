//! HTTP/2 on every way in: a TLS port and a plain one, with credentials, as tunnels, and by clients of other makers.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use exeat_tests::client::H2Stream;
use exeat_tests::peers::{self, NodeDir};
use exeat_tests::prelude::*;
use exeat_tests::wait::settled;
use http::{HeaderMap, Request, StatusCode};
use rustix::net::sockopt::set_socket_linger;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const HOST: &str = "api.example.test";
const PROXY: &str = "proxy.example.test";

fn setup() -> Setup {
    Gateway::setup().names(&[HOST]).allow(&[HOST])
}

/// A connection of HTTP/2 to a proxy port that speaks TLS.
async fn open_tls(gateway: &Gateway, ca: &TestCa) -> H2Conn {
    let conn = gateway.open().await.tls(ca.roots(), PROXY, &["h2", "http/1.1"]).await.expect("TLS with the proxy port");
    assert_eq!(conn.alpn(), Some("h2"));
    conn.h2().await
}

// --- TLS and credentials ------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_tls_port_speaks_http2_where_the_client_offers_it() {
    let ca = TestCa::new();
    let secure = Origin::h2(Site::default(), &ca.leaf(&[HOST])).await;
    let plain = Origin::http(Site::default()).await;
    let setup = Gateway::setup().names(&[HOST]).allow(&[plain.url(HOST, "/"), secure.url(HOST, "/v1/")]);
    let gateway = setup.trust(&ca).listen_tls(&ca.leaf(&[PROXY])).start().await;
    let mut conn = open_tls(&gateway, &ca).await;
    conn.get(&plain.url(HOST, "/x")).await.assert_ok("GET /x");
    conn.get(&secure.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
    conn.get("http://denied.test/").await.assert_refused(403, "not_allowed");
    let tunnel = conn.connect(&secure.authority(HOST)).await.unwrap();
    let mut inner = tunnel.tls(gateway.roots(), HOST, &["h2"]).await.unwrap().h2().await;
    inner.get(&secure.url(HOST, "/v1/y")).await.assert_ok("GET /v1/y");
    inner.get(&secure.url(HOST, "/v2/y")).await.assert_refused(403, "not_allowed");
    // The preface tells, not ALPN alone: a client that was given HTTP/1.1 is served it.
    let conn = gateway.open().await.tls(ca.roots(), PROXY, &["http/1.1"]).await.unwrap();
    assert_eq!(conn.alpn(), Some("http/1.1"));
    let versions: Vec<String> = secure.requests().into_iter().map(|request| request.version).collect();
    assert_eq!(versions, ["HTTP/2", "HTTP/2"]);
}

#[tokio::test]
async fn a_certificate_names_the_client_of_a_stream() {
    let ca = TestCa::new();
    let origin = Origin::http(Site::default()).await;
    let authorities = std::fs::read_to_string(ca.pem_path()).unwrap();
    let setup = setup().listen_tls(&ca.leaf(&[PROXY])).file("clients.pem", &authorities);
    let gateway = setup.set("listen", "client_ca", "\"clients.pem\"").start().await;
    let mut config = ca.client("agent-7.example.test").client_config(ca.roots());
    config.alpn_protocols = vec![b"h2".to_vec()];
    let mut conn = gateway.open().await.tls_with(config, PROXY).await.unwrap().h2().await;
    conn.get(&origin.url(HOST, "/x")).await.assert_ok("GET /x");
    let line = gateway.await_line("/x").await;
    assert!(line.contains(r#""user":"agent-7.example.test""#), "{line}");
}

#[tokio::test]
async fn each_stream_shows_its_credentials_and_a_407_ends_only_its_own() {
    const SECRET: &str = "correct-horse-battery";
    let origin = Origin::http(Site::default().at("/echo", Reply::echo())).await;
    let echo = Echo::tcp().await;
    let gateway = setup().user("alice", SECRET).start().await;
    let good = format!("Basic {}", BASE64.encode(format!("alice:{SECRET}")));
    let request = |url: &str, authorization: Option<&str>| {
        let request = Request::get(url);
        let request =
            authorization.iter().fold(request, |request, value| request.header("proxy-authorization", *value));
        request.body(()).unwrap()
    };
    let mut conn = gateway.h2().await;
    let refused = conn.get(&origin.url(HOST, "/x")).await;
    refused.assert_refused(407, "proxy_auth");
    assert_eq!(refused.head.values("proxy-authenticate"), [r#"Basic realm="exeat""#]);
    conn.send(request(&origin.url(HOST, "/x"), Some("Basic YWxpY2U6d3Jvbmc="))).await.assert_refused(407, "proxy_auth");
    // An upload that nobody wants is not waited for.
    conn.post(&origin.url(HOST, "/echo"), &[b'x'; 100_000]).await.assert_refused(407, "proxy_auth");
    conn.send(request(&origin.url(HOST, "/y"), Some(&good))).await.assert_ok("GET /y");
    conn.connect(&echo.authority(HOST)).await.err().unwrap().assert_refused(407, "proxy_auth");
    let connect = Request::connect(echo.authority(HOST)).header("proxy-authorization", &good).body(()).unwrap();
    let opened = conn.open(connect, false).await.opened().await.unwrap();
    assert_eq!(opened.response.status, 200);
    assert_eq!(origin.requests().len(), 1);
    assert!(!origin.requests()[0].has("proxy-authorization"));
    let line = gateway.await_line("/y").await;
    assert!(line.contains(r#""user":"alice""#), "{line}");
    assert!(gateway.lines().iter().all(|line| !line.contains(SECRET) && !line.contains(&good)));
    gateway.await_metric("exeat_requests_total", &[("entry", "forward"), ("reason", "proxy_auth")], 3.0).await;
    gateway.await_metric("exeat_requests_total", &[("entry", "connect"), ("reason", "proxy_auth")], 1.0).await;
}

// --- Tunnels that break off ---------------------------------------------------------------------------------------------

/// A tunnel over a stream to a socket of the test's own.
async fn tunnel_to_socket(gateway: &Gateway, conn: &mut H2Conn) -> (H2Stream, h2::RecvStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = format!("{HOST}:{}", listener.local_addr().unwrap().port());
    let mut stream = conn.open(Request::connect(authority).body(()).unwrap(), false).await;
    let (mut upstream, _) = within("the gateway to dial", listener.accept()).await.unwrap();
    let head = within("the answer to a CONNECT", &mut stream.response).await.unwrap();
    let mut incoming = head.into_body();
    stream.send(b"up").await.unwrap();
    let mut two = [0; 2];
    within("the client's bytes", upstream.read_exact(&mut two)).await.unwrap();
    upstream.write_all(b"down").await.unwrap();
    let down = within("upstream's bytes", incoming.data()).await.unwrap().unwrap();
    assert_eq!((&two[..], &down[..]), (&b"up"[..], &b"down"[..]));
    gateway.await_metric("exeat_tunnels_active", &[], 1.0).await;
    (stream, incoming, upstream)
}

#[tokio::test]
async fn a_tunnel_that_the_client_resets_is_reset_upstream() {
    let gateway = setup().start().await;
    let mut conn = gateway.h2().await;
    for reason in [h2::Reason::CANCEL, h2::Reason::NO_ERROR, h2::Reason::INTERNAL_ERROR] {
        let (mut stream, _incoming, mut upstream) = tunnel_to_socket(&gateway, &mut conn).await;
        stream.body.send_reset(reason);
        let error = within("the end of the tunnel", upstream.read_u8()).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{reason:?} is no clean end");
        gateway.await_metric("exeat_tunnels_active", &[], 0.0).await;
    }
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "error")], 3.0).await;
}

#[tokio::test]
async fn a_tunnel_whose_connection_breaks_is_reset_upstream() {
    let gateway = setup().start().await;
    let mut conn = gateway.h2().await;
    let (stream, incoming, mut upstream) = tunnel_to_socket(&gateway, &mut conn).await;
    drop((stream, incoming, conn));
    let error = within("the end of the tunnel", upstream.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    gateway.await_metric("exeat_tunnels_active", &[], 0.0).await;
    gateway.await_metric("exeat_connections_active", &[], 0.0).await;
}

#[tokio::test]
async fn a_tunnel_that_upstream_resets_ends_its_stream_with_an_error() {
    let gateway = setup().start().await;
    let mut conn = gateway.h2().await;
    let (_stream, mut incoming, upstream) = tunnel_to_socket(&gateway, &mut conn).await;
    set_socket_linger(&upstream, Some(Duration::ZERO)).unwrap();
    drop(upstream);
    let error = within("the end of the tunnel", incoming.data()).await.unwrap().unwrap_err();
    assert_eq!(error.reason(), Some(h2::Reason::CONNECT_ERROR));
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "error")], 1.0).await;
    // The connection has no part in it.
    conn.get("http://denied.test/").await.assert_refused(403, "not_allowed");
}

#[tokio::test]
async fn each_direction_of_a_tunnel_ends_by_itself() {
    let gateway = setup().start().await;
    let mut conn = gateway.h2().await;
    let (mut stream, mut incoming, mut upstream) = tunnel_to_socket(&gateway, &mut conn).await;
    stream.finish();
    assert_eq!(within("the client's end", upstream.read(&mut [0; 1])).await.unwrap(), 0);
    upstream.write_all(b"still here").await.unwrap();
    let data = within("upstream's bytes", incoming.data()).await.unwrap().unwrap();
    assert_eq!(&data[..], b"still here");
    drop(upstream);
    while let Some(data) = within("upstream's end", incoming.data()).await {
        assert!(data.unwrap().is_empty());
    }
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "closed")], 1.0).await;
}

#[tokio::test]
async fn a_tunnel_that_nobody_reads_stops_and_holds_little() {
    let gateway = setup().start().await;
    let mut conn = gateway.h2().await;
    let (mut stream, _incoming, mut upstream) = tunnel_to_socket(&gateway, &mut conn).await;
    // Down: the client's window is closed, so upstream cannot write on.
    let piece = vec![b'x'; 64 * 1024];
    let mut written = 0;
    while written < 64 << 20 {
        match tokio::time::timeout(Duration::from_millis(500), upstream.write(&piece)).await {
            Ok(count) => written += count.unwrap(),
            Err(_) => break,
        }
    }
    assert!(written < 24 << 20, "{written} bytes were taken and not delivered");
    // Up: upstream does not read, so the window is not opened again.
    let mut sent = 0;
    while sent < 64 << 20 && tokio::time::timeout(Duration::from_millis(500), stream.send(&piece)).await.is_ok() {
        sent += piece.len();
    }
    assert!(sent < 24 << 20, "{sent} bytes were taken");
}

// --- Interim answers ----------------------------------------------------------------------------------------------------

/// The interim answers to a request, and the final one.
async fn interims(mut stream: H2Stream) -> (Vec<(StatusCode, HeaderMap)>, Response) {
    let mut ahead = Vec::new();
    while let Some(interim) = within("an interim answer", poll_fn(|cx| stream.response.poll_informational(cx))).await {
        let (parts, ()) = interim.unwrap().into_parts();
        ahead.push((parts.status, parts.headers));
    }
    (ahead, stream.whole().await.unwrap())
}

#[tokio::test]
async fn interim_answers_pass_between_all_versions() {
    let ca = TestCa::new();
    let leaf = ca.leaf(&[HOST]);
    let hints = Reply::text("done\n").interim("103 Early Hints", &["Link: </a>", "Exeat-Reason: blocked"]);
    let site = || Site::default().at("/hints", hints.clone());
    for origin in [Origin::h2(site(), &leaf).await, Origin::https(site(), &leaf).await] {
        let setup = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[origin.url(HOST, "/hints")]);
        let gateway = setup.start().await;
        let mut two = gateway.intercepted_h2(&origin.authority(HOST)).await;
        let stream = two.open(Request::get(origin.url(HOST, "/hints")).body(()).unwrap(), true).await;
        let (ahead, last) = interims(stream).await;
        last.assert_ok("done");
        assert_eq!(ahead.len(), 1);
        assert_eq!(
            (ahead[0].0, &ahead[0].1["link"], ahead[0].1.len()),
            (StatusCode::EARLY_HINTS, &"</a>".parse().unwrap(), 1)
        );
        let mut one = gateway.intercepted(&origin.authority(HOST)).await;
        let response = one.get("/hints", &origin.authority(HOST)).await;
        response.assert_ok("done");
        assert_eq!(response.interim.len(), 1);
        assert_eq!(response.interim[0].lines, ["link: </a>"]);
    }
}

#[tokio::test]
async fn a_client_that_waits_for_a_100_gets_one_of_upstream_or_of_the_gateway() {
    let ca = TestCa::new();
    let leaf = ca.leaf(&[HOST]);
    let site = || Site::default().at("/echo", Reply::text("got it\n"));
    let eager = Site::default().at("/echo", Reply::text("got it\n").interim("100 Continue", &[]));
    for origin in [Origin::h2(site(), &leaf).await, Origin::https(site(), &leaf).await, Origin::h2(eager, &leaf).await]
    {
        let setup = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[origin.url(HOST, "/echo")]);
        let gateway = setup.start().await;
        let mut two = gateway.intercepted_h2(&origin.authority(HOST)).await;
        let request = Request::post(origin.url(HOST, "/echo")).header("expect", "100-continue").body(()).unwrap();
        let mut stream = two.open(request, false).await;
        let interim = within("a 100", poll_fn(|cx| stream.response.poll_informational(cx))).await.unwrap().unwrap();
        assert_eq!(interim.status(), StatusCode::CONTINUE);
        stream.send(b"body").await.unwrap();
        stream.finish();
        let (ahead, last) = interims(stream).await;
        assert!(ahead.is_empty(), "one 100 and no second: {ahead:?}");
        last.assert_ok("got it");
        assert_eq!(origin.only_request().await.body, b"body");
    }
}

// --- Bounds -------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn answers_that_nobody_reads_take_bounded_memory() {
    const STREAMS: usize = 30;
    let ca = TestCa::new();
    let (flood, written) = Reply::flood(64 << 20);
    let origin = Origin::h2(Site::default().at("/flood", flood), &ca.leaf(&[HOST])).await;
    let gateway = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[origin.url(HOST, "/")]).start().await;
    let mut conn = gateway.h2().await;
    let before = gateway.memory();
    let mut held = Vec::new();
    for _ in 0..STREAMS {
        let stream = conn.open(Request::get(origin.url(HOST, "/flood")).body(()).unwrap(), true).await;
        held.push(stream.opened().await.unwrap());
    }
    let taken = settled(|| written.load(Ordering::SeqCst)).await;
    let grown = gateway.memory().saturating_sub(before);
    assert!(taken < 40 << 20, "{taken} bytes of upstream's were taken");
    assert!(grown < 64 << 20, "{grown} bytes are held for {STREAMS} streams");
    conn.get("http://denied.test/").await.assert_refused(403, "not_allowed");
}

#[tokio::test]
async fn trailers_that_stand_for_an_injected_field_are_withheld() {
    let ca = TestCa::new();
    let origin = Origin::h2(Site::default(), &ca.leaf(&[HOST])).await;
    let setup = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[origin.url(HOST, "/")]).bind("KEY", "canary");
    let gateway = setup.inject(&origin.url(HOST, "/"), &[("X-Api-Key", "${KEY}")]).start().await;
    let mut conn = gateway.h2().await;
    let mut stream = conn.open(Request::post(origin.url(HOST, "/x")).body(()).unwrap(), false).await;
    stream.send(b"body").await.unwrap();
    let trailers = [("x-api-key", "mine"), ("x_api_key", "mine"), ("content-length", "9"), ("x-sum", "1")];
    let trailers = trailers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    stream.body.send_trailers(HeaderMap::from_iter(trailers)).unwrap();
    stream.whole().await.unwrap().assert_ok("POST /x");
    let request = origin.only_request().await;
    assert_eq!(request.trailers, ["x-sum: 1"]);
    assert_eq!(request.values("x-api-key"), ["canary"]);
}

// --- Clients of other makers --------------------------------------------------------------------------------------------

#[tokio::test]
async fn grpc_clients_share_what_is_upstream() {
    let ca = TestCa::new();
    let server = peers::GrpcServer::start(Some(&ca.leaf(&[HOST]))).await;
    let rule = format!("https://{}/test.Echo/", server.authority(HOST));
    let gateway = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[rule]).start().await;
    let client = || Cmd::new(peers::python()).arg(peers::script("grpc_client.py")).arg(server.authority(HOST));
    let runs = [0; 3].map(|_| client().arg(gateway.ca()).through(&gateway).run());
    let [first, second, third] = runs;
    let (first, second, third) = tokio::join!(first, second, third);
    for output in [first, second, third] {
        let answers: Value = serde_json::from_str(&output.success()).unwrap();
        assert_eq!((&answers["unary"], &answers["chat"]), (&json!("echo hello"), &json!(true)));
    }
}

#[tokio::test]
async fn node_speaks_http2_to_a_tls_port() {
    let ca = TestCa::new();
    let plain = Origin::http(Site::default()).await;
    let secure = Origin::h2(Site::default(), &ca.leaf(&[HOST])).await;
    let setup = Gateway::setup().names(&[HOST]).allow(&[plain.url(HOST, "/v1/"), secure.url(HOST, "/v1/")]);
    let gateway = setup.trust(&ca).listen_tls(&ca.leaf(&[PROXY])).start().await;
    let node = NodeDir::default();
    let client = Cmd::new("node").arg(node.script("http2_proxy.mjs")).arg(gateway.proxy().to_string()).arg(PROXY);
    let client = client.arg(ca.pem_path()).arg(gateway.ca()).arg(plain.authority(HOST)).arg(secure.authority(HOST));
    let answers: Value = serde_json::from_str(&client.run().await.success()).unwrap();
    assert_eq!(
        answers,
        json!({
            "forward": [200, "GET /v1/a\n"],
            "denied": [403, "not_allowed"],
            "tunnel": 200,
            "inside": [200, "GET /v1/b\n"],
            "insideDenied": [403, "not_allowed"],
            "refusedTunnel": [403, "not_allowed"],
        })
    );
}

#[tokio::test]
async fn nghttp_speaks_http2_to_a_tls_port() {
    let ca = TestCa::new();
    let origin = Origin::http(Site::default()).await;
    let setup = Gateway::setup().names(&[HOST]).allow(&[origin.url(HOST, "/v1/")]);
    let gateway = setup.listen_tls(&ca.leaf(&[PROXY])).start().await;
    let authority = format!(":authority: {}", origin.authority(HOST));
    // It names the scheme of its connection, so the target is https; what is asked for has no TLS.
    let url = format!("https://{}/v1/x", gateway.proxy());
    let output = Cmd::new("nghttp").args(["-v", "-y", "-H", &authority, "-H", ":scheme: http", &url]).run().await;
    let output = output.success();
    assert!(output.contains("The negotiated protocol: h2") && output.contains(":status: 200"), "{output}");
}

#[tokio::test]
async fn the_python_stack_finds_no_fault_with_answers() {
    let ca = TestCa::new();
    let trailers = Reply::chunked(&["a", "b"]).trailer("X-Sum", "2");
    let (flood, _) = Reply::flood(8 << 20);
    let site = || {
        let site = Site::default().at("/v1/trailers", trailers.clone()).at("/v1/flood", flood.clone());
        site.at("/v1/echo", Reply::echo()).at("/v1/empty", Reply::status(204)).at("/v1/same", Reply::status(304))
    };
    let expected = json!({
        "/v1/x": [200, 10, []],
        "/v1/trailers": [200, 2, ["x-sum: 2"]],
        "/v1/flood": [200, 8 << 20, []],
        "/v1/echo": [200, 300_000, []],
        "/v1/empty": [204, 0, []],
        "/v1/same": [304, 0, []],
        "/v2/x": [403, -1, []],
    });
    let plain = Origin::http(site()).await;
    let secure = Origin::h2(site(), &ca.leaf(&[HOST])).await;
    let allowed = [plain.url(HOST, "/v1/"), secure.url(HOST, "/v1/")];
    let setup = || Gateway::setup().names(&[HOST]).trust(&ca).allow(&allowed);
    let (open, closed) = (setup().start().await, setup().listen_tls(&ca.leaf(&[PROXY])).start().await);
    for (mode, gateway, trusted, origin) in [
        ("plain", &open, ca.pem_path(), &plain),
        ("tls", &closed, ca.pem_path(), &plain),
        ("tunnel", &open, open.ca().to_owned(), &secure),
    ] {
        let scheme = if mode == "tunnel" { "https" } else { "http" };
        let client = Cmd::new(peers::python()).arg(peers::script("http2_client.py")).arg(mode);
        let client = client.arg(gateway.proxy().to_string()).arg(trusted).arg(origin.authority(HOST)).arg(scheme);
        let answers: Value = serde_json::from_str(&client.run().await.success()).unwrap();
        assert_eq!(answers, expected, "{mode}");
    }
}
