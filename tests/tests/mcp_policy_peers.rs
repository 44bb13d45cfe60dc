//! Real MCP clients and servers under a policy: what clients show of it, and that nothing else changes.

use exeat_tests::peers::{self, McpServer, NodeDir};
use exeat_tests::prelude::*;
use serde_json::Value;

const HOST: &str = "mcp.example.test";
const CLIENTS: [&str; 3] = ["python", "fastmcp", "node"];
/// Nothing is forbidden, and everything is judged.
const ALL_TOOLS: &str = r#"{ allow = ["*"] }"#;
const ANY_QUESTION: &str = "elicitation_policy = \"url_and_form\"";

fn client(name: &str, node: &NodeDir) -> Cmd {
    match name {
        "python" => Cmd::new(peers::python()).arg(peers::script("mcp_client.py")),
        "fastmcp" => Cmd::new(peers::modern_python()).arg(peers::script("fastmcp_client.py")),
        _ => node.command("mcp_client.mjs"),
    }
}

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
    name: &str,
    args: [&str; 2],
) -> [exeat_tests::client::Output; 2] {
    let node = NodeDir::default();
    let through = client(name, &node).arg(server.url(HOST)).args(args).through(gateway).run().await;
    let local = client(name, &node).arg(gateway.endpoint("peer")).args(args).run().await;
    [through, local]
}

#[tokio::test]
async fn clients_see_the_tools_they_may_call_and_are_told_of_the_others() {
    let ca = TestCa::new();
    let server = McpServer::everything(&ca.leaf(&[HOST]), "").await;
    let gateway = gateway(&ca, &server, "", r#"{ allow = ["echo", "get-*"], deny = ["get-env"] }"#).await;
    for name in CLIENTS {
        for output in both_ways(&gateway, &server, name, ["echo", r#"{"message":"hi"}"#]).await {
            let answer: Value = serde_json::from_str(&output.success()).unwrap();
            assert_eq!(answer["text"], "Echo: hi", "{name}");
            let tools: Vec<_> = answer["tools"].as_array().unwrap().iter().map(|tool| tool.as_str().unwrap()).collect();
            assert!(tools.contains(&"echo") && tools.contains(&"get-sum"), "{name}: {tools:?}");
            assert!(!tools.contains(&"get-env") && !tools.iter().any(|tool| tool.starts_with("trigger")), "{tools:?}");
        }
        for output in both_ways(&gateway, &server, name, ["get-env", "{}"]).await {
            assert!(output.failure().contains("the tool \"get-env\" may not be called"), "{name}");
        }
    }
}

#[tokio::test]
async fn a_tool_of_a_server_of_both_eras_is_refused_in_either() {
    let ca = TestCa::new();
    let server = McpServer::modern(&ca.leaf(&[HOST]), "").await;
    let gateway = gateway(&ca, &server, "", r#"{ deny = ["echo"] }"#).await;
    for name in CLIENTS {
        for output in both_ways(&gateway, &server, name, ["echo", r#"{"text":"hi"}"#]).await {
            assert!(output.failure().contains("the tool \"echo\" may not be called"), "{name}");
        }
    }
}

#[tokio::test]
async fn pins_steer_clients_to_the_other_era_or_tell_them_of_it() {
    let ca = TestCa::new();
    let server = McpServer::modern(&ca.leaf(&[HOST]), "").await;
    let hi = ["echo", r#"{"text":"hi"}"#];
    for pin in ["2025-03-26", "2025-06-18"] {
        let gateway = gateway(&ca, &server, &format!("protocol_mode = {pin:?}"), "").await;
        for name in CLIENTS {
            for output in both_ways(&gateway, &server, name, hi).await {
                assert!(output.success().contains("echo: hi"), "{name} {pin}");
            }
        }
    }
    let gateway = gateway(&ca, &server, "protocol_mode = \"2026-07-28\"", "").await;
    for output in both_ways(&gateway, &server, "fastmcp", hi).await {
        assert!(output.success().contains("echo: hi"));
    }
    for name in ["python", "node"] {
        for output in both_ways(&gateway, &server, name, hi).await {
            output.failure();
        }
    }
    let metrics = gateway.metrics().await;
    assert!(metrics.sum("exeat_requests_total", &[("reason", "mcp_protocol")]) >= 4.0);
}

#[tokio::test]
async fn a_user_is_asked_what_policy_permits() {
    let ca = TestCa::new();
    let server = McpServer::everything(&ca.leaf(&[HOST]), "").await;
    for (keys, asked) in [("", 0), ("elicitation_policy = \"none\"", 0), (ANY_QUESTION, 1)] {
        let gateway = gateway(&ca, &server, keys, "").await;
        let command = Cmd::new(peers::python()).arg(peers::script("mcp_elicit.py"));
        let output = command.args([gateway.endpoint("peer"), "trigger-elicitation-request"]).run().await;
        if asked == 1 {
            let answer: Value = serde_json::from_str(&output.success()).unwrap();
            assert_eq!(answer["asked"].as_array().unwrap().len(), 1, "{keys}: {answer}");
        } else {
            // The server lists the tool to those alone that declare what it needs; who knows its name calls it anyway.
            assert!(!output.stdout.contains("\"asked\": [\""), "{keys}: {output:?}");
        }
    }
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
async fn conformance(node: &NodeDir, url: &str, revision: &str) -> Vec<String> {
    let suite = peers::node_modules().join(".bin/conformance");
    let command = Cmd::new("node").arg(suite).args(["server", "--url", url, "--requirements", revision]);
    let output = command.args(["--timeout", "20000"]).dir(node.script("").as_path()).run().await.stdout;
    let (_, summary) = output.split_once("=== SUMMARY ===").unwrap_or_else(|| panic!("no summary: {output}"));
    let lines = summary.lines().filter(|line| line.contains(" passed, ") && !line.starts_with("Total"));
    lines.map(str::to_owned).collect()
}

/// Runs the suite against a server and against its local endpoint, where everything is judged and nothing forbidden.
/// One scenario differs by design: a foreign Host is turned away whatever the server thinks of it.
async fn same_conformance(ca: &TestCa, server: &McpServer, revision: &str, least: usize) {
    let gateway = gateway(ca, server, ANY_QUESTION, ALL_TOOLS).await;
    let node = NodeDir::default();
    let of_host = |line: &String| line.contains("dns-rebinding");
    let direct = conformance(&node, &server.direct_url(), revision).await;
    let local = conformance(&node, gateway.endpoint("peer"), revision).await;
    let without = |lines: &[String]| lines.iter().filter(|line| !of_host(line)).cloned().collect::<Vec<_>>();
    assert_eq!(without(&local), without(&direct), "{revision}");
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
