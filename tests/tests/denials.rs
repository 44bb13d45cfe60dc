//! What a refused client is told.

use exeat_tests::prelude::*;
use serde_json::{Value, json};

const MANIFEST: &str = r#"name = "agent"

[network_access]
allowed = [
    "*.example.test",
]
blocked = ["https://api.example.test/admin/"]
"#;

async fn gateway() -> Gateway {
    Gateway::setup().names(&["api.example.test"]).manifest("agent.toml", MANIFEST).start().await
}

/// The digest of the policy in force.
async fn digest(gateway: &Gateway) -> Value {
    gateway.readyz().await.json()["policy"]["digest"].clone()
}

#[tokio::test]
async fn a_refusal_says_what_was_asked_and_which_rule_refused_it() {
    let gateway = gateway().await;
    let problem = gateway.get("https://api.example.test/admin/users").await.assert_refused(403, "blocked");
    assert_eq!(problem["url"], "https://api.example.test/admin/users");
    assert_eq!(problem["rule"]["pattern"], "https://api.example.test/admin/");
    assert_eq!(problem["rule"]["list"], "blocked");
    assert_eq!((&problem["rule"]["line"], &problem["rule"]["column"]), (&json!(7), &json!(12)));
    assert!(problem["rule"]["file"].as_str().unwrap().ends_with("agent.toml"));
    assert_eq!(problem["layer"], problem["rule"]["layer"]);
    assert_eq!(problem["policy"]["digest"], digest(&gateway).await);
    assert!(problem["change"].as_str().unwrap().contains("https://api.example.test/admin/"), "{problem:#}");
}

#[tokio::test]
async fn a_refusal_for_want_of_a_rule_names_the_layer_and_the_list() {
    let gateway = gateway().await;
    let problem = gateway.get("http://outside.test/x?token=t0p").await.assert_refused(403, "not_allowed");
    assert_eq!(problem["rule"], Value::Null);
    assert!(problem["layer"].is_string(), "{problem:#}");
    let change = problem["change"].as_str().unwrap();
    assert!(change.contains("network_access.allowed") && change.contains("outside.test"), "{change}");
    assert!(!change.contains("t0p"), "a query is nobody's rule: {change}");
    assert!(problem["type"].is_string() && problem["title"].is_string() && problem["detail"].is_string());
}

#[tokio::test]
async fn a_refused_connect_is_told_the_same() {
    let gateway = gateway().await;
    let problem = gateway.connect("outside.test:443").await.1.assert_refused(403, "not_allowed");
    assert_eq!(problem["url"], "outside.test:443");
    assert_eq!(problem["policy"]["digest"], digest(&gateway).await);
}

#[tokio::test]
async fn the_layer_that_lacks_a_rule_is_named() {
    let outer = "name = \"outer\"\n[network_access]\nallowed = [\"*.example.test\"]\n";
    let inner = "name = \"inner\"\n[network_access]\nallowed = [\"api.example.test\", \"other.test\"]\n";
    let gateway = Gateway::setup().manifest("outer.toml", outer).manifest("inner.toml", inner).start().await;
    let by_outer = gateway.get("http://other.test/").await.assert_refused(403, "not_allowed");
    let by_inner = gateway.get("http://www.example.test/").await.assert_refused(403, "not_allowed");
    assert_ne!(by_outer["layer"], by_inner["layer"]);
}

#[tokio::test]
async fn a_default_deny_says_so() {
    let setup = Gateway::setup().set("policy", "default", "\"deny\"").unrestricted();
    let problem = setup.start().await.get("http://api.example.test/").await.assert_refused(403, "default_deny");
    assert!(problem["change"].is_string(), "{problem:#}");
}

#[tokio::test]
async fn a_refusal_leaves_the_connection_usable() {
    let origin = Origin::http(Site::default()).await;
    let gateway = gateway().await;
    let mut conn = gateway.open().await;
    conn.get("http://outside.test/", "outside.test").await.assert_refused(403, "not_allowed");
    let head = "POST http://outside.test/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello";
    conn.send(head).await;
    conn.response().await.assert_refused(403, "not_allowed");
    let refused = conn.roundtrip("HEAD http://outside.test/ HTTP/1.1\r\nHost: outside.test").await;
    assert_eq!((refused.status, refused.reason().as_deref()), (403, Some("not_allowed")));
    conn.get(&origin.url("api.example.test", "/"), "x").await.assert_ok("GET /");
}

#[tokio::test]
async fn every_refusal_is_logged_and_counted_once() {
    let gateway = gateway().await;
    gateway.get("http://outside.test/secret-path?q=hidden").await.assert_refused(403, "not_allowed");
    gateway.await_metric("exeat_requests_total", &[("verdict", "deny")], 1.0).await;
    let line = gateway.await_line("not_allowed").await;
    assert!(line.contains("outside.test") && !line.contains("hidden"), "{line}");
    let parsed: Value = serde_json::from_str(&line).expect("JSON lines where no terminal reads them");
    assert!(parsed.is_object());
    assert_eq!(gateway.lines().iter().filter(|line| line.contains("not_allowed")).count(), 1);
}
