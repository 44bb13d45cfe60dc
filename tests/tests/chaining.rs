//! The next proxy: what goes through it, what does not, and what is still checked.

use exeat_tests::prelude::*;
use exeat_tests::relay::PlainProxy;
use exeat_tests::socks_server::{SocksRequest, SocksServer};

const HOST: &str = "api.example.test";
const NEAR: &str = "near.example.test";

/// A gateway that goes out through a proxy, asks a name server that knows nothing, and grants no special address.
async fn through(next: impl std::fmt::Display, dns: &Dns) -> Setup {
    let servers = format!("[{:?}]", dns.addr().to_string());
    let setup = Gateway::setup().unrestricted().set("guard", "allow", "[]").set("dns", "servers", &servers);
    setup.set("upstream", "proxy", &format!("\"{next}\""))
}

fn target(origin: &Origin) -> String {
    format!("CONNECT {} HTTP/1.1", origin.authority(HOST))
}

#[tokio::test]
async fn every_kind_of_traffic_goes_through_with_its_name_unresolved() {
    let (ca, dns, next) = (TestCa::new(), Dns::start().await, PlainProxy::start().await);
    let plain = Origin::http(Site::default()).await;
    let tls = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let inspected = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let rules = [plain.authority(HOST), tls.authority(HOST)].map(|authority| format!("http://{authority}/"));
    let gateway = through(format!("http://{}", next.addr()), &dns)
        .await
        .trust(&ca)
        .allow(&[format!("https://{}/", tls.authority(HOST)), inspected.url(HOST, "/v1/")])
        .allow(&rules)
        .start()
        .await;
    gateway.get(&plain.url(HOST, "/a")).await.assert_ok("GET /a");
    gateway.get(&tls.url(HOST, "/b")).await.assert_ok("GET /b");
    let tunnel = gateway.tunnel(&tls.authority(HOST)).await;
    let mut blind = tunnel.tls(ca.roots(), HOST, &["http/1.1"]).await.expect("TLS with the origin itself");
    blind.get("/c", HOST).await.assert_ok("GET /c");
    let mut opened = gateway.intercepted(&inspected.authority(HOST)).await;
    opened.get("/v1/d", HOST).await.assert_ok("GET /v1/d");
    opened.get("/v2/d", HOST).await.assert_refused(403, "not_allowed");
    gateway.reload().await;
    blind.get("/e", HOST).await.assert_ok("GET /e");
    assert_eq!(next.requests(), [target(&plain), target(&tls), target(&tls), target(&inspected)]);
    assert!(dns.queries().is_empty(), "{:?}", dns.queries());
    gateway.await_line(&format!("through http://{}", next.addr())).await;
    gateway.await_line("does not see the addresses").await;
}

#[tokio::test]
async fn socks5_is_passed_the_name_and_the_credentials() {
    let (dns, origin) = (Dns::start().await, Origin::http(Site::default()).await);
    for credentials in [None, Some("user:pass:word")] {
        let next = SocksServer::start(0, credentials).await;
        let mut setup = through(format!("socks5h://{}", next.addr()), &dns).await;
        if let Some(credentials) = credentials {
            setup = setup.set("upstream", "proxy_authorization", "{ env = \"NEXT\" }").secret_env("NEXT", credentials);
        }
        let gateway = setup.start().await;
        gateway.get(&origin.url(HOST, "/a")).await.assert_ok("GET /a");
        let mut tunnel = gateway.tunnel(&origin.authority(HOST)).await;
        tunnel.get("/b", HOST).await.assert_ok("GET /b");
        let request = SocksRequest { target: origin.authority(HOST), credentials: credentials.map(str::to_owned) };
        assert_eq!(next.requests(), [request.clone(), request]);
    }
    assert!(dns.queries().is_empty(), "{:?}", dns.queries());
}

#[tokio::test]
async fn http_credentials_come_from_the_binding_and_never_from_the_client() {
    let dns = Dns::start().await;
    for (secret, field) in [("user:pass", "Basic dXNlcjpwYXNz"), ("Bearer t0ken", "Bearer t0ken")] {
        let next = Origin::http(Site::default().at("*", Reply::status(403))).await;
        let setup = through(format!("http://{}", next.addr()), &dns).await.file("next", secret);
        let setup = setup.set("upstream", "proxy_authorization", "{ file = \"@DIR@/next\" }");
        let gateway = setup.start().await;
        let mut conn = gateway.open().await;
        let head = format!("GET http://{HOST}/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic bWluZQ==");
        conn.roundtrip(&head).await.assert_refused(502, "upstream_proxy");
        let request = next.only_request().await;
        assert_eq!((request.method.as_str(), request.target.as_str()), ("CONNECT", "api.example.test:80"));
        assert_eq!(request.values("proxy-authorization"), [field]);
        assert!(gateway.lines().iter().all(|line| !line.contains(secret) && !line.contains(field)));
    }
}

#[tokio::test]
async fn without_its_credentials_nothing_is_sent() {
    let dns = Dns::start().await;
    let next = Origin::http(Site::default()).await;
    let setup = through(format!("http://{}", next.addr()), &dns).await;
    let gateway = setup.set("upstream", "proxy_authorization", "{ env = \"NOT_SET\" }").start().await;
    let refusal = gateway.get(&format!("http://{HOST}/")).await;
    assert_eq!((refusal.status, refusal.reason().as_deref()), (403, Some("credential_unavailable")));
    assert!(next.requests().is_empty());
}

#[tokio::test]
async fn what_can_be_checked_is_checked() {
    let (dns, next) = (Dns::start().await, PlainProxy::start().await);
    let gateway = through(format!("http://{}", next.addr()), &dns).await.host("fixed.example.test", "10.0.0.7");
    let gateway = gateway.block(&["blocked.example.test"]).start().await;
    for (host, reason) in [
        ("10.0.0.1", "guard_address"),
        ("[fd00::1]", "guard_address"),
        ("fixed.example.test", "guard_address"),
        ("169.254.169.254", "guard_metadata"),
        ("metadata.google.internal", "guard_metadata"),
        ("blocked.example.test", "blocked"),
    ] {
        gateway.get(&format!("http://{host}/")).await.assert_refused(403, reason);
        gateway.connect(&format!("{host}:443")).await.1.assert_refused(403, reason);
    }
    gateway.get(&format!("http://{HOST}:25/")).await.assert_refused(403, "guard_port");
    // The grant of the next proxy's address is not one for its clients.
    gateway.get(&format!("http://{}/", next.addr())).await.assert_refused(403, "guard_address");
    assert!(next.requests().is_empty() && dns.queries().is_empty());
}

#[tokio::test]
async fn fixed_names_and_literals_are_passed_on_as_the_checked_address() {
    let (dns, origin) = (Dns::start().await, Origin::http(Site::default()).await);
    let (http, socks) = (PlainProxy::start().await, SocksServer::start(0, None).await);
    for next in [format!("http://{}", http.addr()), format!("socks5h://{}", socks.addr())] {
        let gateway = through(next, &dns).await.set("guard", "allow", r#"["10.0.0.0/8", "fd00::/8"]"#);
        let gateway = gateway.host(HOST, "10.0.0.7").start().await;
        for host in [HOST, "10.0.0.7", "[fd00::7]"] {
            gateway.get(&origin.url(host, "/")).await.assert_ok("GET /");
        }
    }
    let expected = ["10.0.0.7", "10.0.0.7", "[fd00::7]"].map(|host| origin.authority(host));
    assert_eq!(http.requests(), expected.clone().map(|target| format!("CONNECT {target} HTTP/1.1")));
    assert_eq!(socks.requests().into_iter().map(|request| request.target).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn exceptions_and_this_machine_are_reached_directly() {
    let (dns, next) = (Dns::start().await, PlainProxy::start().await);
    let origin = Origin::http(Site::default()).await;
    dns.set(NEAR, Answer::addresses(&["127.0.0.1"]));
    dns.set("a.lan.test", Answer::addresses(&["127.0.0.1"]));
    dns.set("b.lan.test", Answer::addresses(&["10.0.0.1"]));
    let gateway = through(format!("http://{}", next.addr()), &dns).await.host("here.test", "127.0.0.1");
    let gateway = gateway.set("guard", "allow", r#"["127.0.0.1/32"]"#);
    let gateway = gateway.set("upstream", "no_proxy", &format!("[{NEAR:?}, \"*.lan.test\"]")).start().await;
    for host in [NEAR, "a.lan.test", "here.test", "127.0.0.1"] {
        gateway.get(&origin.url(host, "/")).await.assert_ok("GET /");
    }
    gateway.get("http://b.lan.test/").await.assert_refused(403, "guard_address");
    assert!(next.requests().is_empty(), "{:?}", next.requests());
    gateway.get(&origin.url("far.lan.test.example.test", "/")).await.assert_ok("GET /");
    assert_eq!(next.requests().len(), 1);
}

#[tokio::test]
async fn a_next_proxy_that_does_not_open_is_told_apart_from_the_server() {
    let dns = Dns::start().await;
    let closed = Origin::http(Site::default()).await.addr();
    let answers = [
        ("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", "407"),
        ("HTTP/1.1 503 Busy\r\n\r\n", "503"),
        ("SSH-2.0-x\r\n\r\n", "HTTP"),
        ("", "closed"),
    ];
    let mut cases = vec![(format!("http://{closed}"), "refused"), (format!("socks5h://{closed}"), "refused")];
    let mut servers = Vec::new();
    for (answer, says) in answers {
        let server = Origin::http(Site::default().at("*", Reply::verbatim(answer))).await;
        cases.push((format!("http://{}", server.addr()), says));
        servers.push(server);
    }
    let (rules, wants) = (SocksServer::start(2, None).await, SocksServer::start(0, Some("user:pass")).await);
    cases.push((format!("socks5h://{}", rules.addr()), "rules"));
    cases.push((format!("socks5h://{}", wants.addr()), "credentials"));
    for (next, says) in cases {
        let gateway = through(&next, &dns).await.start().await;
        let problem = gateway.get(&format!("http://{HOST}/")).await.assert_refused(502, "upstream_proxy");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(says), "{next}: {says} is not in {detail:?}");
        gateway.connect(&format!("{HOST}:443")).await.1.assert_refused(502, "upstream_proxy");
        gateway.await_metric("exeat_requests_total", &[("reason", "upstream_proxy")], 2.0).await;
    }
}

#[tokio::test]
async fn what_comes_with_the_answer_belongs_to_the_tunnel() {
    let dns = Dns::start().await;
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let long = format!("X-Long: {}\r\n", "x".repeat(3000));
    let answer = format!("{interim}HTTP/1.1 200 OK\r\n{long}Content-Length: 5\r\n\r\n220 ready\r\n");
    let next = Origin::http(Site::default().at("*", Reply::verbatim(&answer))).await;
    let gateway = through(format!("http://{}", next.addr()), &dns).await.start().await;
    let mut tunnel = gateway.tunnel(&format!("{HOST}:25000")).await;
    assert_eq!(tunnel.to_end().await, b"220 ready\r\n");
}

#[tokio::test]
async fn the_gateway_is_not_its_own_next_proxy() {
    let dns = Dns::start().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = taken.local_addr().unwrap();
    drop(taken);
    let gateway = through(format!("http://{admin}"), &dns).await.admin(admin).start().await;
    gateway.get(&format!("http://{HOST}/")).await.assert_refused(403, "guard_self");
}
