//! Proxy authentication: over HTTP and SOCKS5, in tunnels, after a reload, and under attack.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use exeat_tests::client::curl;
use exeat_tests::client::socks::{NO_AUTH, PASSWORD};
use exeat_tests::prelude::*;

const HOST: &str = "api.example.test";
/// The canary: it may be in no line of output and no metric.
const SECRET: &str = "correct-horse-battery";
const TOKEN: &str = "canary-token-1f";

fn setup() -> Setup {
    Gateway::setup().names(&[HOST]).allow(&[HOST]).user("alice", SECRET).user("bob", "other secret").token("ci", TOKEN)
}

fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{name}:{password}")))
}

/// The head of a GET with Proxy-Authorization, or without where it is empty.
fn get(url: &str, authorization: &str) -> String {
    let field = if authorization.is_empty() { "" } else { "\r\nProxy-Authorization: " };
    format!("GET {url} HTTP/1.1\r\nHost: x{field}{authorization}")
}

async fn count(gateway: &Gateway, entry: &str, reason: &str, value: f64) {
    gateway.await_metric("exeat_requests_total", &[("entry", entry), ("reason", reason)], value).await;
}

// --- HTTP ---------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_407_keeps_the_connection_for_the_second_try() {
    let origin = Origin::http(Site::default().at("/echo", Reply::echo())).await;
    let gateway = setup().start().await;
    let mut conn = gateway.open().await;
    let refused = conn.roundtrip(&get(&origin.url(HOST, "/x"), "")).await;
    refused.assert_refused(407, "proxy_auth");
    let challenges = refused.head.values("proxy-authenticate");
    assert_eq!(challenges, [r#"Basic realm="exeat""#, r#"Bearer realm="exeat""#]);
    assert!(refused.head.has("content-length") && !refused.head.lists("connection", "close"), "{refused:?}");
    let head = format!("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: 5", origin.url(HOST, "/echo"));
    conn.send(format!("{head}\r\n\r\nhello")).await;
    conn.response().await.assert_refused(407, "proxy_auth");
    conn.send(format!("{head}\r\nProxy-Authorization: {}\r\n\r\nhello", basic("alice", SECRET))).await;
    conn.response().await.assert_ok("hello");
    conn.roundtrip(&get(&origin.url(HOST, "/y"), &format!("Bearer {TOKEN}"))).await.assert_ok("GET /y");
    conn.roundtrip(&get(&origin.url(HOST, "/z"), "")).await.assert_refused(407, "proxy_auth");
    assert_eq!(origin.requests().len(), 2);
    assert!(origin.requests().iter().all(|request| !request.has("proxy-authorization")));
    count(&gateway, "forward", "proxy_auth", 3.0).await;
}

#[tokio::test]
async fn a_connect_is_refused_and_let_in_on_the_same_connection() {
    let ca = TestCa::new();
    let origin = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let gateway = setup().start().await;
    let mut conn = gateway.open().await;
    let authority = origin.authority(HOST);
    conn.connect(&authority).await.assert_refused(407, "proxy_auth");
    let head =
        format!("CONNECT {authority} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: {}", basic("bob", "other secret"));
    assert_eq!(conn.roundtrip(&head).await.status, 200);
    let mut tls = conn.tls(ca.roots(), HOST, &[]).await.expect("TLS with the origin");
    tls.get("/x", HOST).await.assert_ok("GET /x");
    count(&gateway, "connect", "proxy_auth", 1.0).await;
    count(&gateway, "connect", "allowed", 1.0).await;
}

#[tokio::test]
async fn nothing_is_judged_before_somebody_is_let_in() {
    let gateway = setup().start().await;
    let mut conn = gateway.open().await;
    for target in ["http://denied.test/", "http://user@denied.test/", "/metrics", "gopher://denied.test/"] {
        conn.roundtrip(&get(target, "")).await.assert_refused(407, "proxy_auth");
    }
    conn.roundtrip(&get("http://denied.test/", &basic("alice", SECRET))).await.assert_refused(403, "not_allowed");
}

#[tokio::test]
async fn credentials_that_are_not_exactly_right_are_wrong() {
    let (alice, ci) = (basic("alice", SECRET), format!("Bearer {TOKEN}"));
    let gateway = setup().start().await;
    let wrong = [
        basic("alice", "wrong"),
        basic("alice", "other secret"),
        basic("ci", TOKEN),
        format!("Bearer {SECRET}"),
        "Basic !".to_owned(),
        format!("{alice}\r\nProxy-Authorization: {alice}"),
        format!("{ci}x"),
        "Negotiate YII=".to_owned(),
    ];
    let mut conn = gateway.open().await;
    for authorization in &wrong {
        let refused = conn.roundtrip(&get("http://api.example.test/", authorization)).await;
        refused.assert_refused(407, "proxy_auth");
    }
    count(&gateway, "forward", "proxy_auth", 8.0).await;
}

#[tokio::test]
async fn too_many_wrong_credentials_are_not_looked_at_any_more() {
    let origin = Origin::http(Site::default()).await;
    let gateway = setup().start().await;
    let mut conn = gateway.open().await;
    let url = origin.url(HOST, "/");
    for _ in 0..10 {
        conn.roundtrip(&get(&url, "Bearer guess")).await.assert_refused(407, "proxy_auth");
    }
    // Neither here nor over another connection or protocol, nor with the right ones.
    for authorization in ["Bearer guess".to_owned(), basic("alice", SECRET)] {
        let limited = gateway.open().await.roundtrip(&get(&url, &authorization)).await;
        limited.assert_refused(429, "auth_limited");
        let wait: u64 = limited.value("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{wait}");
    }
    conn.roundtrip(&get(&url, "")).await.assert_refused(407, "proxy_auth");
    let mut socks = gateway.open().await;
    assert_eq!(socks.socks_greet(&[PASSWORD]).await, PASSWORD);
    assert_eq!(socks.socks_login("alice", SECRET).await, 1);
    count(&gateway, "forward", "auth_limited", 2.0).await;
    count(&gateway, "socks5", "auth_limited", 1.0).await;
    assert!(origin.requests().is_empty());
}

#[tokio::test]
async fn requests_without_credentials_take_no_tries() {
    let origin = Origin::http(Site::default()).await;
    let gateway = setup().start().await;
    let mut conn = gateway.open().await;
    for _ in 0..20 {
        conn.roundtrip(&get(&origin.url(HOST, "/"), "")).await.assert_refused(407, "proxy_auth");
    }
    conn.roundtrip(&get(&origin.url(HOST, "/"), &basic("alice", SECRET))).await.assert_ok("GET /");
}

// --- Tunnels ------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn inside_an_inspected_tunnel_nobody_is_asked_again_and_the_user_is_known() {
    let ca = TestCa::new();
    let origin = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let setup = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[origin.url(HOST, "/v1/")]).user("alice", SECRET);
    let gateway = setup.start().await;
    let mut conn = gateway.open().await;
    let authority = origin.authority(HOST);
    let head = format!("CONNECT {authority} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: {}", basic("alice", SECRET));
    assert_eq!(conn.roundtrip(&head).await.status, 200);
    let mut tls = conn.tls(gateway.roots(), HOST, &[]).await.expect("TLS with the interception CA");
    tls.get("/v1/x", HOST).await.assert_ok("GET /v1/x");
    tls.get("/v2/x", HOST).await.assert_refused(403, "not_allowed");
    let line = gateway.await_line("/v2/x").await;
    assert!(line.contains(r#""user":"alice""#) && line.contains(r#""client":"tcp 127.0.0.1:"#), "{line}");
    assert!(!origin.only_request().await.has("proxy-authorization"));
}

// --- SOCKS5 -------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn socks5_takes_the_same_users() {
    let echo = Echo::tcp().await;
    let gateway = setup().start().await;
    for offer in [&[NO_AUTH][..], &[1, 3]] {
        let mut conn = gateway.open().await;
        assert_eq!(conn.socks_greet(offer).await, 0xFF);
        assert!(conn.to_end().await.is_empty());
    }
    for (name, password) in [("alice", "wrong"), ("nobody", SECRET), ("ci", TOKEN), ("", "")] {
        let mut conn = gateway.open().await;
        assert_eq!(conn.socks_greet(&[NO_AUTH, PASSWORD]).await, PASSWORD);
        assert_eq!(conn.socks_login(name, password).await, 1, "{name}");
        assert!(conn.to_end().await.is_empty());
    }
    count(&gateway, "socks5", "proxy_auth", 6.0).await;
    let mut conn = gateway.open().await;
    assert_eq!(conn.socks_greet(&[NO_AUTH, PASSWORD]).await, PASSWORD);
    assert_eq!(conn.socks_login("alice", SECRET).await, 0);
    assert_eq!(conn.socks_connect(&echo.authority(HOST)).await, 0);
    conn.exchange(b"hello").await;
    let line = gateway.await_line(r#""entry":"socks5","method":"CONNECT""#).await;
    assert!(line.contains(r#""user":"alice""#), "{line}");
}

// --- Secrets ------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn no_secret_is_told() {
    let origin = Origin::http(Site::default()).await;
    let gateway = setup().env("EXEAT_LOG", "trace").start().await;
    let mut conn = gateway.open().await;
    let wrong = basic("alice", "nearly-right-7");
    let token = format!("Bearer {TOKEN}");
    for authorization in [&wrong, "Bearer nearly-right-7", &basic("alice", SECRET), &token] {
        let answer = conn.roundtrip(&get(&origin.url(HOST, "/"), authorization)).await;
        let said = format!("{:?} {}", answer.head.lines, answer.text());
        assert!(!said.contains("nearly-right") && !said.contains(SECRET) && !said.contains(TOKEN), "{said}");
    }
    let mut socks = gateway.open().await;
    socks.socks_greet(&[PASSWORD]).await;
    assert_eq!(socks.socks_login("alice", "nearly-right-7").await, 1);
    count(&gateway, "socks5", "proxy_auth", 1.0).await;
    let told = gateway.lines().join("\n") + &gateway.admin_get("/metrics").await.text();
    for secret in [SECRET, TOKEN, "nearly-right-7", &wrong[6..], &basic("alice", SECRET)[6..]] {
        assert!(!told.contains(secret), "{secret} is in the output");
    }
}

#[tokio::test]
async fn users_follow_a_reload_and_a_secret_that_cannot_be_read_keeps_the_old_ones() {
    let origin = Origin::http(Site::default()).await;
    let gateway = setup().start().await;
    let url = origin.url(HOST, "/");
    let mut conn = gateway.open().await;
    gateway.write("password-of-alice", "new secret\n");
    gateway.reload().await;
    conn.roundtrip(&get(&url, &basic("alice", SECRET))).await.assert_refused(407, "proxy_auth");
    conn.roundtrip(&get(&url, &basic("alice", "new secret"))).await.assert_ok("GET /");
    std::fs::remove_file(gateway.dir().join("password-of-bob")).unwrap();
    gateway.reload().await;
    gateway.await_metric("exeat_policy_reload_total", &[("result", "failure")], 1.0).await;
    gateway.await_line("[listen.auth] users.bob").await;
    conn.roundtrip(&get(&url, &basic("bob", "other secret"))).await.assert_ok("GET /");
    let config = std::fs::read_to_string(gateway.dir().join("exeat.toml")).unwrap();
    let open = config.split("[listen.auth").next().unwrap();
    gateway.write("exeat.toml", open);
    gateway.reload().await;
    conn.roundtrip(&get(&url, "")).await.assert_ok("GET /");
}

#[tokio::test]
async fn a_start_without_a_secret_or_without_anybody_fails() {
    let unset = Gateway::setup().set("listen.auth.users", "alice", r#"{ env = "EXEAT_NEVER_SET" }"#);
    let output = unset.try_start().await.expect_err("the secret is missing");
    assert!(output.stderr.contains("users.alice: the environment variable EXEAT_NEVER_SET"), "{output:#?}");
    let empty = Gateway::setup().user("alice", "\n").try_start().await.expect_err("the secret is empty");
    assert!(empty.stderr.contains("users.alice: the value is empty"), "{empty:#?}");
    let nobody = Gateway::setup().set("listen.auth", "users", "{}").try_start().await.expect_err("nobody may enter");
    assert!(nobody.stderr.contains("expected a user or a token"), "{nobody:#?}");
}

// --- Programs -----------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn curl_authenticates_in_every_way_it_knows() {
    let ca = TestCa::new();
    let secure = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let plain = Origin::http(Site::default()).await;
    let gateway = setup().trust(&ca).start().await;
    let proxy = gateway.proxy();
    let run = async |how: &[&str], url: &str| curl(&gateway, &[how, &[url]].concat()).run().await;
    let user = format!("alice:{SECRET}");
    let (in_url, socks) = (format!("http://{user}@{proxy}"), format!("socks5h://{user}@{proxy}"));
    let bearer = format!("Proxy-Authorization: Bearer {TOKEN}");
    for how in [
        &["-x", &in_url][..],
        &["--proxy-user", &user],
        &["--proxy-anyauth", "--proxy-user", &user],
        &["-x", &socks],
        &["--proxy-header", &bearer],
    ] {
        for url in [secure.url(HOST, "/x"), plain.url(HOST, "/x")] {
            assert_eq!(run(how, &url).await.success(), "GET /x\n\n200", "{how:?} {url}");
        }
    }
    assert!(run(&[], &plain.url(HOST, "/x")).await.success().ends_with("407"));
    let wrong = format!("socks5h://alice:wrong@{proxy}");
    assert_eq!(run(&["-x", &wrong], &plain.url(HOST, "/x")).await.code, Some(97));
}
