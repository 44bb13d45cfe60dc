//! Real MCP clients and servers: the call passes with the manifest's header put on by the gateway, which the client
//! never sees, and fails where the credential is not bound.

use exeat_tests::peers::{McpClient, McpServer, NodeDir};
use exeat_tests::prelude::*;
use serde_json::Value;

const HOST: &str = "mcp.example.test";
const AUTHORIZATION: &str = "Bearer s3cret-of-the-gateway";

fn setup(ca: &TestCa, url: &str) -> Setup {
    let headers = [("Authorization", "${PEER_AUTHORIZATION}")];
    Gateway::setup().names(&[HOST]).trust(ca).allow(&[url]).mcp_server("peer", url, &headers)
}

/// Has every client list the tools of `server` and call one with the credential bound, in turn at the server's URL through
/// the proxy and at the local endpoint, and checks what it got. `turn` is the way of the first.
async fn call_bound(ca: &TestCa, server: &McpServer, arguments: &str, expected: &str, turn: usize) {
    let url = server.url(HOST);
    let gateway = setup(ca, &url).endpoints().bind("PEER_AUTHORIZATION", AUTHORIZATION).start().await;
    let node = NodeDir::default();
    for (at, client) in McpClient::ALL.into_iter().enumerate() {
        let command = client.command(&node);
        let command = match (turn + at) % 2 {
            0 => command.args([&url, "echo", arguments]).through(&gateway),
            _ => command.args([gateway.endpoint("peer"), "echo", arguments]),
        };
        let output = command.run().await.success();
        let answer: Value = serde_json::from_str(&output).unwrap();
        assert_eq!(answer["text"], expected, "{client:?}");
        assert!(answer["tools"].as_array().unwrap().iter().any(|tool| tool == "echo"), "{client:?}: {answer}");
        assert!(!output.contains("s3cret"), "{client:?}");
    }
    let carried = server.authorizations();
    assert!(!carried.is_empty() && carried.iter().all(|fields| fields == &[AUTHORIZATION]), "{carried:?}");
    let injected =
        gateway.metrics().await.sum("exeat_injections_total", &[("server", "peer"), ("outcome", "injected")]);
    // Each opens or discovers, lists and calls.
    assert!(injected >= 3.0 * McpClient::ALL.len() as f64, "{injected}");
}

#[tokio::test]
async fn calls_to_a_python_server_carry_the_bound_header() {
    let ca = TestCa::new();
    let server = McpServer::python(&ca.leaf(&[HOST]), AUTHORIZATION).await;
    call_bound(&ca, &server, r#"{"text":"hi"}"#, "echo: hi", 0).await;
}

#[tokio::test]
async fn calls_to_a_fastmcp_server_carry_the_bound_header() {
    let ca = TestCa::new();
    let server = McpServer::modern(&ca.leaf(&[HOST]), AUTHORIZATION).await;
    call_bound(&ca, &server, r#"{"text":"hi"}"#, "echo: hi", 1).await;
}

#[tokio::test]
async fn calls_to_a_python_server_of_both_eras_carry_the_bound_header() {
    let ca = TestCa::new();
    let server = McpServer::python_2(&ca.leaf(&[HOST]), AUTHORIZATION).await;
    call_bound(&ca, &server, r#"{"text":"hi"}"#, "echo: hi", 0).await;
}

#[tokio::test]
async fn calls_to_a_node_server_of_both_eras_carry_the_bound_header() {
    let ca = TestCa::new();
    let server = McpServer::node_2(&ca.leaf(&[HOST]), AUTHORIZATION).await;
    call_bound(&ca, &server, r#"{"text":"hi"}"#, "echo: hi", 1).await;
}

#[tokio::test]
async fn calls_to_a_node_server_carry_the_bound_header() {
    let ca = TestCa::new();
    let server = McpServer::everything(&ca.leaf(&[HOST]), AUTHORIZATION).await;
    call_bound(&ca, &server, r#"{"message":"hi"}"#, "Echo: hi", 0).await;
}

#[tokio::test]
async fn without_the_binding_nothing_reaches_the_server() {
    let ca = TestCa::new();
    let server = McpServer::python(&ca.leaf(&[HOST]), AUTHORIZATION).await;
    let url = server.url(HOST);
    let gateway = setup(&ca, &url).start().await;
    let node = NodeDir::default();
    for client in McpClient::ALL {
        let command = client.command(&node).args([&url, "echo", r#"{"text":"hi"}"#]);
        command.through(&gateway).run().await.failure();
    }
    assert!(server.authorizations().is_empty(), "{:?}", server.authorizations());
    let metrics = gateway.metrics().await;
    assert!(metrics.sum("exeat_requests_total", &[("reason", "credential_unbound")]) >= McpClient::ALL.len() as f64);
}

#[tokio::test]
async fn a_client_cannot_bring_its_own_credential() {
    let ca = TestCa::new();
    let server = McpServer::python(&ca.leaf(&[HOST]), AUTHORIZATION).await;
    let url = server.url(HOST);
    let gateway = setup(&ca, &url).bind("PEER_AUTHORIZATION", AUTHORIZATION).start().await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    let curl =
        Cmd::new("curl").args(["-sS", "-H", "Authorization: Bearer mine", "-H", "Content-Type: application/json"]);
    let curl = curl.args(["-H", "Accept: application/json, text/event-stream", "-d", body, &url]);
    assert!(curl.through(&gateway).run().await.success().contains("serverInfo"));
    assert_eq!(server.authorizations(), [[AUTHORIZATION]]);
}

#[tokio::test]
async fn two_sessions_with_one_server_call_it_each_by_its_own_credential() {
    let ca = TestCa::new();
    let server = McpServer::python(&ca.leaf(&[HOST]), AUTHORIZATION).await;
    let url = server.url(HOST);
    let gateway = setup(&ca, &url).server_keys("actsAs = \"user\"").endpoints().start().await;
    let session = async |value: &str| {
        let identity = serde_json::json!({ "listen": "127.0.0.1:0", "mcp": "127.0.0.1:0" });
        let bindings = serde_json::json!({ "PEER_AUTHORIZATION": { "value": value } });
        gateway.session(serde_json::json!({ "identity": identity, "bindings": bindings })).await
    };
    let (right, wrong) = (session(AUTHORIZATION).await, session("Bearer s3cret-of-another").await);
    let node = NodeDir::default();
    let clients = [McpClient::Python, McpClient::Node];
    for kind in clients {
        for (session, called) in [(&right, true), (&wrong, false), (&right, true)] {
            let proxy = session["addresses"]["proxy"].as_str().unwrap();
            let endpoint = session["addresses"]["mcp"]["peer"].as_str().unwrap();
            let arguments = ["echo", r#"{"text":"hi"}"#];
            // By its proxy at the server's own URL, and by its endpoint without one.
            let proxied = kind.command(&node).arg(&url).args(arguments).proxied(proxy, &gateway.bundle());
            let direct = kind.command(&node).arg(endpoint).args(arguments);
            let (proxied, direct) = tokio::join!(proxied.run(), direct.run());
            for output in [proxied, direct] {
                match called {
                    true => assert!(output.success().contains("echo: hi"), "{kind:?}"),
                    false => assert!(!output.failure().contains("s3cret"), "{kind:?}"),
                }
            }
        }
    }
    let carried = server.authorizations();
    let of = |value: &str| carried.iter().filter(|fields| *fields == &[value]).count();
    assert_eq!(of(AUTHORIZATION) + of("Bearer s3cret-of-another"), carried.len(), "{carried:?}");
    assert!(of("Bearer s3cret-of-another") >= 2 * clients.len(), "{carried:?}");
    assert!(!gateway.lines().concat().contains("s3cret"));
}
