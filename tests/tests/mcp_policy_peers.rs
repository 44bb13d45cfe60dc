//! Real MCP clients and servers under a policy: what clients show of it, and that nothing else changes.

use exeat_tests::peers::{self, McpClient, McpServer, NodeDir};
use exeat_tests::prelude::*;
use serde_json::{Value, json};

const HOST: &str = "mcp.example.test";
/// Nothing is forbidden, and everything is judged.
const ALL_TOOLS: &str = r#"{ allow = ["*"] }"#;
const ANY_QUESTION: &str = "elicitation_policy = \"url_and_form\"";

/// A gateway in front of a server with these keys in the manifest and these tools in the config.
async fn gateway(ca: &TestCa, server: &McpServer, keys: &str, tools: &str) -> Gateway {
    let url = server.url(HOST);
    let setup = Gateway::setup().names(&[HOST]).trust(ca).allow(&[&url]).endpoints();
    let setup = setup.mcp_server("peer", &url, &[]).server_keys(keys);
    let setup = if tools.is_empty() { setup } else { setup.set("mcp.peer", "tools", tools) };
    setup.start().await
}

/// A call through the proxy, at the server's URL, and one at the local endpoint without any proxy.
async fn both_ways(
    gateway: &Gateway,
    server: &McpServer,
    client: McpClient,
    args: [&str; 2],
) -> [exeat_tests::client::Output; 2] {
    let node = NodeDir::default();
    let through = client.command(&node).arg(server.url(HOST)).args(args).through(gateway).run().await;
    let local = client.command(&node).arg(gateway.endpoint("peer")).args(args).run().await;
    [through, local]
}

#[tokio::test]
async fn clients_see_the_tools_they_may_call_and_are_told_of_the_others() {
    let ca = TestCa::new();
    let server = McpServer::everything(&ca.leaf(&[HOST]), "").await;
    let gateway = gateway(&ca, &server, "", r#"{ allow = ["echo", "get-*"], deny = ["get-env"] }"#).await;
    let node = NodeDir::default();
    for client in McpClient::ALL {
        for output in both_ways(&gateway, &server, client, ["echo", r#"{"message":"hi"}"#]).await {
            let answer: Value = serde_json::from_str(&output.success()).unwrap();
            assert_eq!(answer["text"], "Echo: hi", "{client:?}");
            let tools: Vec<_> = answer["tools"].as_array().unwrap().iter().map(|tool| tool.as_str().unwrap()).collect();
            assert!(tools.contains(&"echo") && tools.contains(&"get-sum"), "{client:?}: {tools:?}");
            assert!(!tools.contains(&"get-env") && !tools.iter().any(|tool| tool.starts_with("trigger")), "{tools:?}");
        }
        let refused = client.command(&node).args([gateway.endpoint("peer"), "get-env", "{}"]).run().await;
        assert!(refused.failure().contains("the tool \"get-env\" may not be called"), "{client:?}");
    }
}

#[tokio::test]
async fn a_tool_of_a_server_of_both_eras_is_refused_in_either() {
    let ca = TestCa::new();
    let server = McpServer::modern(&ca.leaf(&[HOST]), "").await;
    let gateway = gateway(&ca, &server, "", r#"{ deny = ["echo"] }"#).await;
    for client in McpClient::ALL {
        for output in both_ways(&gateway, &server, client, ["echo", r#"{"text":"hi"}"#]).await {
            assert!(output.failure().contains("the tool \"echo\" may not be called"), "{client:?}");
        }
    }
}

#[tokio::test]
async fn pins_to_sessions_steer_clients_to_one_or_tell_them_of_it() {
    let ca = TestCa::new();
    let server = McpServer::modern(&ca.leaf(&[HOST]), "").await;
    let node = NodeDir::default();
    for pin in ["2025-03-26", "2025-06-18"] {
        let gateway = gateway(&ca, &server, &format!("protocol_mode = {pin:?}"), "").await;
        for client in McpClient::ALL {
            let call = client.command(&node).args([gateway.endpoint("peer"), "echo", r#"{"text":"hi"}"#]);
            let output = call.run().await;
            if client == McpClient::RustAuto {
                // It falls back where it is told that the server is of old, not where it is told of which.
                assert!(output.failure().contains("no compatible protocol version"), "{pin}");
            } else {
                assert!(output.success().contains("echo: hi"), "{client:?} {pin}");
            }
        }
    }
}

#[tokio::test]
async fn a_pin_to_the_stateless_era_tells_the_clients_that_need_a_session() {
    let ca = TestCa::new();
    let server = McpServer::python_2(&ca.leaf(&[HOST]), "").await;
    let gateway = gateway(&ca, &server, "protocol_mode = \"2026-07-28\"", "").await;
    for client in McpClient::ALL {
        for output in both_ways(&gateway, &server, client, ["echo", r#"{"text":"hi"}"#]).await {
            if client.needs_session() {
                output.failure();
            } else {
                assert!(output.success().contains("echo: hi"), "{client:?}");
            }
        }
    }
    let turned_away = 2.0 * McpClient::ALL.iter().filter(|client| client.needs_session()).count() as f64;
    let metrics = gateway.metrics().await;
    assert!(metrics.sum("exeat_requests_total", &[("reason", "mcp_protocol")]) >= turned_away);
}

/// Has clients with a user call a tool that asks a question, where questions are not permitted and where they are.
async fn ask(ca: &TestCa, server: &McpServer, tool: &str, clients: impl Fn(McpClient) -> bool) {
    let node = NodeDir::default();
    for (keys, asked) in [("", 0), (ANY_QUESTION, 1)] {
        let gateway = gateway(ca, server, keys, "").await;
        for client in McpClient::ALL.into_iter().filter(|client| clients(*client)) {
            let command = client.with_user(&node).args([gateway.endpoint("peer"), tool, "{}"]);
            let output = command.run().await;
            if asked == 1 {
                let answer: Value = serde_json::from_str(&output.success()).unwrap();
                assert_eq!(answer["asked"].as_array().unwrap().len(), 1, "{client:?} {keys}: {answer}");
                assert!(answer["text"].as_str().unwrap().contains("Ann"), "{client:?} {keys}: {answer}");
            } else {
                // Some servers list the tool to those alone that declare what it needs; who knows its name calls it
                // anyway. The client says of that what it likes, but the user has not been asked.
                let asked = serde_json::from_str(&output.stdout).map(|answer: Value| answer["asked"].clone());
                assert!(asked.is_ok_and(|asked| asked == json!([])) || output.code != Some(0), "{client:?} {output:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_user_is_asked_what_policy_permits_in_a_session() {
    let ca = TestCa::new();
    let server = McpServer::everything(&ca.leaf(&[HOST]), "").await;
    ask(&ca, &server, "trigger-elicitation-request", McpClient::needs_session).await;
}

#[tokio::test]
async fn a_user_is_asked_what_policy_permits_in_either_era() {
    let ca = TestCa::new();
    let server = McpServer::python_2(&ca.leaf(&[HOST]), "").await;
    ask(&ca, &server, "greet", |_| true).await;
}

#[tokio::test]
async fn a_user_is_asked_what_policy_permits_without_a_session() {
    let ca = TestCa::new();
    let server = McpServer::node_2(&ca.leaf(&[HOST]), "").await;
    ask(&ca, &server, "greet", |client| !client.needs_session()).await;
}

#[tokio::test]
async fn a_server_that_asks_undeclared_is_answered_and_goes_on() {
    let ca = TestCa::new();
    let server = McpServer::conformance(&ca.leaf(&[HOST])).await;
    let gateway = gateway(&ca, &server, "", "").await;
    let call = Cmd::new(peers::python()).arg(peers::script("mcp_client.py"));
    let output = call.args([gateway.endpoint("peer"), "test_elicitation", r#"{"message":"who?"}"#]).run().await;
    assert!(output.success().contains("action=cancel"));
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("exeat_requests_total", &[("reason", "mcp_elicitation")]), 1.0);
}

/// The scenarios of the public suite with how many checks passed and failed in each, by line of its summary.
async fn conformance(node: &NodeDir, url: &str, revision: &str, proxy: Option<&Gateway>) -> Vec<String> {
    let suite = peers::node_modules().join(".bin/conformance");
    let command = Cmd::new("node").arg("--import").arg(node.script("use_proxy.mjs")).arg(suite);
    let command = command.args(["server", "--url", url, "--requirements", revision, "--timeout", "20000"]);
    let command = proxy.into_iter().fold(command, Cmd::through);
    let output = command.dir(node.script("").as_path()).run().await.stdout;
    let (_, summary) = output.split_once("=== SUMMARY ===").unwrap_or_else(|| panic!("no summary: {output}"));
    let lines = summary.lines().filter(|line| line.contains(" passed, ") && !line.starts_with("Total"));
    lines.map(str::to_owned).collect()
}

/// Runs the suite against a server by itself, through the proxy, and against its local endpoint; everything is judged and
/// nothing forbidden. One scenario differs by design: a foreign Host is turned away whatever the server thinks of it. And
/// one asks by a library of its own that knows of no proxy, so that it has nobody to ask there.
async fn same_conformance(ca: &TestCa, server: &McpServer, revision: &str, least: usize) {
    let gateway = gateway(ca, server, ANY_QUESTION, ALL_TOOLS).await;
    let node = NodeDir::default();
    let of_host = |line: &String| line.contains("dns-rebinding");
    let goes_around = |line: &String| line.contains("http-header-validation");
    let direct = conformance(&node, &server.direct_url(), revision, None).await;
    let through = conformance(&node, &server.url(HOST), revision, Some(&gateway)).await;
    let local = conformance(&node, gateway.endpoint("peer"), revision, None).await;
    let without = |lines: &[String]| lines.iter().filter(|line| !of_host(line)).cloned().collect::<Vec<_>>();
    assert_eq!(without(&local), without(&direct), "{revision}, at the local endpoint");
    let [mut through, mut asked] = [without(&through), without(&direct)];
    through.retain(|line| !goes_around(line));
    asked.retain(|line| !goes_around(line));
    assert_eq!(through, asked, "{revision}, through the proxy");
    assert!(gateway.metrics().await.sum("exeat_requests_total", &[("entry", "intercept")]) >= least as f64);
    assert!(direct.iter().filter(|line| line.contains(" 0 failed")).count() >= least, "{direct:#?}");
    assert!(local.iter().filter(|line| of_host(line)).all(|line| line.contains(" 0 failed")), "{local:#?}");
}

#[tokio::test]
async fn the_conformance_suite_of_the_session_era_sees_no_gateway() {
    let ca = TestCa::new();
    let server = McpServer::conformance(&ca.leaf(&[HOST])).await;
    same_conformance(&ca, &server, "2025-11-25", 28).await;
}

#[tokio::test]
async fn the_conformance_suite_sees_no_gateway_before_a_node_server() {
    let ca = TestCa::new();
    let server = McpServer::everything(&ca.leaf(&[HOST]), "").await;
    same_conformance(&ca, &server, "2025-11-25", 10).await;
}

#[tokio::test]
async fn the_conformance_suite_of_the_stateless_era_sees_no_gateway() {
    let ca = TestCa::new();
    let server = McpServer::modern(&ca.leaf(&[HOST]), "").await;
    same_conformance(&ca, &server, "2026-07-28", 3).await;
}

#[tokio::test]
async fn the_conformance_suite_of_the_stateless_era_sees_no_gateway_before_a_node_server() {
    let ca = TestCa::new();
    let server = McpServer::node_2(&ca.leaf(&[HOST]), "").await;
    same_conformance(&ca, &server, "2026-07-28", 3).await;
}
