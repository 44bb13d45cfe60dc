//! HTTP/2: on the proxy port, inside tunnels, and upstream, in every combination with HTTP/1.1.

use exeat_tests::client::{RawConn, curl};
use exeat_tests::peers::{self, NodeDir};
use exeat_tests::prelude::*;
use http::Request;
use serde_json::{Value, json};

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
