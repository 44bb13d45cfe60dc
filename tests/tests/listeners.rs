//! The ways in beside a plain port: TLS, client certificates, a Unix socket, and the PROXY protocol.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use exeat_tests::client::curl;
use exeat_tests::client::socks::NO_AUTH;
use exeat_tests::prelude::*;
use tempfile::TempDir;

const HOST: &str = "api.example.test";
const PROXY: &str = "proxy.example.test";

fn setup() -> Setup {
    Gateway::setup().names(&[HOST]).allow(&[HOST])
}

async fn count(gateway: &Gateway, reason: &str, value: f64) {
    gateway.await_metric("exeat_requests_total", &[("entry", "forward"), ("reason", reason)], value).await;
}

/// A connection to a proxy port that speaks TLS.
async fn open_tls(gateway: &Gateway, ca: &TestCa) -> RawConn {
    gateway.open().await.tls(ca.roots(), PROXY, &["http/1.1"]).await.expect("TLS with the proxy port")
}

// --- TLS ----------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_tls_port_speaks_all_that_a_plain_one_does() {
    let ca = TestCa::new();
    let secure = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let (plain, echo) = (Origin::http(Site::default()).await, Echo::tcp().await);
    let gateway = setup().trust(&ca).listen_tls(&ca.leaf(&[PROXY])).start().await;
    gateway.await_line(&format!("https://{}", gateway.proxy())).await;
    let mut conn = open_tls(&gateway, &ca).await;
    assert_eq!(conn.alpn(), Some("http/1.1"));
    conn.get(&plain.url(HOST, "/x"), HOST).await.assert_ok("GET /x");
    conn.get("http://denied.test/", "denied.test").await.assert_refused(403, "not_allowed");
    assert_eq!(conn.connect(&secure.authority(HOST)).await.status, 200);
    let mut inside = conn.tls(ca.roots(), HOST, &[]).await.expect("TLS within TLS");
    inside.get("/y", HOST).await.assert_ok("GET /y");
    let mut conn = gateway.open().await.tls(ca.roots(), PROXY, &[]).await.expect("TLS with the proxy port");
    assert_eq!(conn.socks_greet(&[NO_AUTH]).await, NO_AUTH);
    assert_eq!(conn.socks_connect(&echo.authority(HOST)).await, 0);
    conn.exchange(&[7; 100_000]).await;
    conn.finish().await;
    assert!(conn.to_end().await.is_empty());
}

#[tokio::test]
async fn an_inspected_tunnel_works_over_tls() {
    let ca = TestCa::new();
    let origin = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let setup = Gateway::setup().names(&[HOST]).allow(&[origin.url(HOST, "/v1/")]);
    let gateway = setup.trust(&ca).listen_tls(&ca.leaf(&[PROXY])).start().await;
    let mut conn = open_tls(&gateway, &ca).await;
    assert_eq!(conn.connect(&origin.authority(HOST)).await.status, 200);
    let mut inside = conn.tls(gateway.roots(), HOST, &[]).await.expect("TLS with the interception CA");
    inside.get("/v1/x", HOST).await.assert_ok("GET /v1/x");
    inside.get("/v2/x", HOST).await.assert_refused(403, "not_allowed");
}

#[tokio::test]
async fn clients_that_do_not_speak_tls_are_closed_and_counted() {
    let ca = TestCa::new();
    let setup = setup().listen_tls(&ca.leaf(&[PROXY])).set("limits", "header_timeout", "\"300ms\"");
    let gateway = setup.start().await;
    let mut expected = 0.0;
    // What is no TLS at once, a handshake that stops in the middle, and one that never begins.
    let hello = exeat_tests::certs::client_hello(PROXY);
    for sent in [&b"GET http://api.example.test/ HTTP/1.1\r\n\r\n"[..], b"\x05\x01\x00", &hello[..40], b""] {
        let mut conn = gateway.open().await;
        conn.send(sent).await;
        let answer = conn.to_end().await;
        assert!(answer.is_empty() || answer[0] == 21, "an alert and nothing else: {answer:?}");
        expected += 1.0;
        count(&gateway, "client_tls", expected).await;
    }
    // Whoever closes without a byte has tested the port.
    gateway.open().await.finish().await;
    assert!(gateway.open().await.tls(TestCa::new().roots(), PROXY, &[]).await.is_err(), "the client trusts another CA");
    gateway.await_metric("exeat_connections_active", &[], 0.0).await;
    count(&gateway, "client_tls", expected + 1.0).await;
}

#[tokio::test]
async fn where_certificates_are_asked_for_nobody_enters_without_a_good_one() {
    let (ca, foreign) = (TestCa::new(), TestCa::new());
    let origin = Origin::http(Site::default()).await;
    let authorities = std::fs::read_to_string(ca.pem_path()).unwrap();
    let setup = setup().listen_tls(&ca.leaf(&[PROXY])).file("clients.pem", &authorities);
    let gateway = setup.set("listen", "client_ca", "\"clients.pem\"").start().await;
    gateway.await_line("client certificates required").await;
    let good = ca.client("agent-7.example.test").client_config(ca.roots());
    let mut conn = gateway.open().await.tls_with(good, PROXY).await.expect("TLS with a good certificate");
    conn.get(&origin.url(HOST, "/x"), HOST).await.assert_ok("GET /x");
    let line = gateway.await_line("/x").await;
    assert!(line.contains(r#""user":"agent-7.example.test""#), "{line}");

    let mut expected = 0.0;
    let none = exeat_tests::certs::client_config(ca.roots(), &[]);
    let others = [
        none,
        foreign.client("agent-7.example.test").client_config(ca.roots()),
        // For servers only, and out of date.
        ca.leaf(&["agent-7.example.test"]).client_config(ca.roots()),
        ca.expired(&["agent-7.example.test"]).client_config(ca.roots()),
        Leaf::self_signed(&["agent-7.example.test"]).client_config(ca.roots()),
    ];
    for config in others {
        // With TLS 1.3 the client is through before the server has looked at its certificate.
        if let Ok(mut conn) = gateway.open().await.tls_with(config, PROXY).await {
            let _ = conn.try_send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", origin.url(HOST, "/x"))).await;
            assert!(conn.to_end().await.is_empty());
        }
        expected += 1.0;
        count(&gateway, "client_tls", expected).await;
    }
    assert_eq!(origin.requests().len(), 1);
}

#[tokio::test]
async fn curl_uses_an_https_proxy_with_credentials_and_certificates() {
    let ca = TestCa::new();
    let secure = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let authorities = std::fs::read_to_string(ca.pem_path()).unwrap();
    let setup = setup().trust(&ca).listen_tls(&ca.leaf(&["127.0.0.1"])).file("clients.pem", &authorities);
    let setup = setup.set("listen", "client_ca", "\"clients.pem\"").user("alice", "secret");
    let client = ca.client("agent-7.example.test");
    let gateway = setup.file("client.pem", &client.cert_pem()).file("client.key", &client.key_pem()).start().await;
    let path = |name: &str| gateway.dir().join(name).to_str().unwrap().to_owned();
    let proxy = format!("https://alice:secret@{}", gateway.proxy());
    let (cert, key, roots) = (path("client.pem"), path("client.key"), path("clients.pem"));
    let with_roots = ["-x", &proxy, "--proxy-cacert", &roots, &secure.url(HOST, "/x")];
    let with_certificate = ["--proxy-cert", &cert, "--proxy-key", &key];
    let get = curl(&gateway, &[&with_certificate[..], &with_roots].concat()).run().await;
    assert_eq!(get.success(), "GET /x\n\n200");
    let line = gateway.await_line(r#""entry":"connect""#).await;
    assert!(line.contains(r#""user":"alice""#), "credentials say more than a certificate: {line}");
    curl(&gateway, &with_roots).run().await.failure();
    assert_eq!(secure.requests().len(), 1);
}

#[tokio::test]
async fn files_that_cannot_be_used_stop_the_start() {
    let ca = TestCa::new();
    let leaf = ca.leaf(&[PROXY]);
    for (setup, says) in [
        (setup().listen_tls(&leaf).file("proxy.pem", "no certificate"), "tls_cert"),
        (setup().listen_tls(&leaf).file("proxy.key", "no key"), "tls_key"),
        (setup().listen_tls(&leaf).file("proxy.key", &ca.leaf(&[PROXY]).key_pem()), "tls_cert"),
        (setup().listen_tls(&leaf).set("listen", "client_ca", "\"absent.pem\""), "client_ca"),
        (setup().set("listen", "tls_cert", "\"proxy.pem\""), "tls_key"),
        (setup().file("taken", "").set("listen", "unix", "\"taken\""), "taken: a file that is no socket"),
        (setup().set("listen", "unix", "\"absent/proxy.sock\""), "absent/proxy.sock"),
    ] {
        let output = setup.try_start().await.expect_err(says);
        assert_eq!(output.code, Some(2));
        assert!(output.stderr.contains(says), "{says} is not in:\n{}", output.stderr);
    }
}

// --- Unix socket --------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_unix_socket_is_its_owners_and_serves_what_the_port_serves() {
    let ca = TestCa::new();
    let secure = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let (plain, echo) = (Origin::http(Site::default()).await, Echo::tcp().await);
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("proxy.sock");
    // A socket that a gateway left behind when it was killed.
    drop(UnixListener::bind(&path).unwrap());
    let unix = format!("{:?}", path.to_str().unwrap());
    let mut gateway = setup().trust(&ca).set("listen", "unix", &unix).start().await;
    gateway.await_line(&format!("unix:{}", path.display())).await;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut conn = RawConn::open_unix(&path).await;
    conn.get(&plain.url(HOST, "/x"), HOST).await.assert_ok("GET /x");
    let line = gateway.await_line("/x").await;
    let pid = std::process::id();
    assert!(line.contains(r#""client":"unix uid="#) && line.contains(&format!(" pid={pid}\"")), "{line}");
    assert_eq!(conn.connect(&secure.authority(HOST)).await.status, 200);
    let mut inside = conn.tls(ca.roots(), HOST, &[]).await.expect("TLS with the origin");
    inside.get("/y", HOST).await.assert_ok("GET /y");
    let mut conn = RawConn::open_unix(&path).await;
    assert_eq!(conn.socks_greet(&[NO_AUTH]).await, NO_AUTH);
    assert_eq!(conn.socks_connect(&echo.authority(HOST)).await, 0);
    conn.exchange(b"hello").await;
    conn.finish().await;
    assert!(conn.to_end().await.is_empty());
    gateway.get(&plain.url(HOST, "/z")).await.assert_ok("GET /z");

    let second = setup().set("listen", "unix", &unix).try_start().await.expect_err("the socket is in use");
    assert!(second.stderr.contains("somebody listens there already"), "{second:#?}");
    RawConn::open_unix(&path).await.get(&plain.url(HOST, "/x"), HOST).await.assert_ok("GET /x");
    drop(inside);
    assert!(gateway.terminate().await.success());
    assert!(!path.exists(), "the socket goes with the gateway");
}

#[tokio::test]
async fn a_unix_socket_counts_among_the_connections_and_needs_credentials_too() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("proxy.sock");
    let setup = setup().set("listen", "unix", &format!("{:?}", path.to_str().unwrap()));
    let gateway = setup.set("limits", "connections", "1").user("alice", "secret").start().await;
    let mut conn = RawConn::open_unix(&path).await;
    conn.get("http://api.example.test/", HOST).await.assert_refused(407, "proxy_auth");
    RawConn::open_unix(&path).await.response().await.assert_refused(503, "connection_limit");
    gateway.open().await.response().await.assert_refused(503, "connection_limit");
}

#[tokio::test]
async fn what_listens_is_fixed_until_the_next_start() {
    let gateway = setup().start().await;
    let config = std::fs::read_to_string(gateway.dir().join("exeat.toml")).unwrap();
    gateway.write("exeat.toml", &format!("{config}[listen]\nunix = \"late.sock\"\n"));
    gateway.reload().await;
    gateway.await_line("listen.unix").await;
    assert!(!gateway.dir().join("late.sock").exists());
}

// --- PROXY protocol -----------------------------------------------------------------------------------------------------

/// A PROXY header of version 2 for 192.0.2.7:4660, with an extension behind the addresses.
fn v2() -> Vec<u8> {
    let addresses = [192, 0, 2, 7, 127, 0, 0, 1, 0x12, 0x34, 0x0C, 0x38];
    let extension = [4, 0, 2, 0, 0];
    let length = u16::try_from(addresses.len() + extension.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n\x21\x11", &length[..], &addresses, &extension].concat()
}

#[tokio::test]
async fn a_trusted_source_names_its_client() {
    let origin = Origin::http(Site::default()).await;
    let gateway = setup().set("listen", "proxy_protocol", r#"["127.0.0.1"]"#).start().await;
    let local = [&b"\r\n\r\n\0\r\nQUIT\n\x20\x00\0\0"[..]].concat();
    for (number, (header, client)) in [
        (b"PROXY TCP4 192.0.2.7 127.0.0.1 4660 3128\r\n".to_vec(), "tcp 192.0.2.7:4660\""),
        (b"PROXY TCP6 2001:db8::7 ::1 4660 3128\r\n".to_vec(), "tcp [2001:db8::7]:4660\""),
        (v2(), "tcp 192.0.2.7:4660\""),
        (b"PROXY UNKNOWN\r\n".to_vec(), "tcp 127.0.0.1:"),
        (local, "tcp 127.0.0.1:"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut conn = gateway.open().await;
        // In one piece with the request, and byte by byte.
        let path = format!("/number-{number}");
        let head = get(&origin.url(HOST, &path));
        conn.send([&header, head.as_bytes()].concat()).await;
        conn.response().await.assert_ok(&path);
        let line = gateway.await_line(&path).await;
        assert!(line.contains(&format!("\"client\":\"{client}")), "{line}");
        let mut conn = gateway.open().await;
        for byte in header {
            conn.send([byte]).await;
        }
        conn.get(&origin.url(HOST, "/x"), HOST).await.assert_ok("GET /x");
    }
    let mut conn = gateway.open().await;
    conn.send(b"PROXY TCP4 192.0.2.7 127.0.0.1 4660 3128\r\n").await;
    assert_eq!(conn.socks_greet(&[NO_AUTH]).await, NO_AUTH);
}

fn get(url: &str) -> String {
    format!("GET {url} HTTP/1.1\r\nHost: {HOST}\r\n\r\n")
}

#[tokio::test]
async fn from_a_trusted_source_a_header_has_to_come_in_time() {
    let setup = setup().set("listen", "proxy_protocol", r#"["127.0.0.0/8"]"#);
    let gateway = setup.set("limits", "header_timeout", "\"300ms\"").start().await;
    let long = format!("PROXY UNKNOWN {}", "x".repeat(200));
    let mut expected = 0.0;
    for sent in [
        get("http://api.example.test/").as_bytes(),
        b"\x05\x01\x00",
        b"PROXY TCP4 192.0.2.7\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
        long.as_bytes(),
        b"PROXY TCP4 ",
        b"",
    ] {
        let mut conn = gateway.open().await;
        conn.send(sent).await;
        assert!(conn.to_end().await.is_empty(), "{:?}", String::from_utf8_lossy(sent));
        expected += 1.0;
        count(&gateway, "proxy_header", expected).await;
    }
    gateway.await_metric("exeat_connections_active", &[], 0.0).await;
}

#[tokio::test]
async fn from_anybody_else_a_header_is_not_taken() {
    let origin = Origin::http(Site::default()).await;
    let gateway = setup().set("listen", "proxy_protocol", r#"["192.0.2.0/24"]"#).start().await;
    for header in [b"PROXY TCP4 192.0.2.7 127.0.0.1 4660 3128\r\n".to_vec(), v2()] {
        let mut conn = gateway.open().await;
        conn.send([&header, get(&origin.url(HOST, "/x")).as_bytes()].concat()).await;
        conn.response().await.assert_refused(400, "bad_request");
        assert!(conn.to_end().await.is_empty());
    }
    assert!(origin.requests().is_empty());
    gateway.get(&origin.url(HOST, "/y")).await.assert_ok("GET /y");
}

#[tokio::test]
async fn the_header_stands_before_tls_and_tries_are_counted_for_the_client_it_names() {
    let ca = TestCa::new();
    let origin = Origin::http(Site::default()).await;
    let setup = setup().listen_tls(&ca.leaf(&[PROXY])).set("listen", "proxy_protocol", r#"["127.0.0.1"]"#);
    let gateway = setup.user("alice", "secret").start().await;
    let open = async |client: &str| {
        let mut conn = gateway.open().await;
        conn.send(format!("PROXY TCP4 {client} 127.0.0.1 4660 3128\r\n")).await;
        conn.tls(ca.roots(), PROXY, &[]).await.expect("TLS behind the header")
    };
    let url = origin.url(HOST, "/x");
    let ask = |token: &str| format!("GET {url} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: {token}");
    let mut guesser = open("192.0.2.7").await;
    for _ in 0..10 {
        guesser.roundtrip(&ask("Bearer guess")).await.assert_refused(407, "proxy_auth");
    }
    guesser.roundtrip(&ask("Bearer guess")).await.assert_refused(429, "auth_limited");
    // alice:secret
    open("192.0.2.8").await.roundtrip(&ask("Basic YWxpY2U6c2VjcmV0")).await.assert_ok("GET /x");
}
