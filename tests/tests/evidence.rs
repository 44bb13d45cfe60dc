//! Readiness: what the gateway says of the manifest's servers, and what it asks them to find out.

use std::path::Path;

use exeat_tests::gateway::exeat;
use exeat_tests::peers::McpServer;
use exeat_tests::prelude::*;
use serde_json::{Value, json};

const HOST: &str = "mcp.example.test";
const SECRET: &str = "Bearer canary-5ecret";
const BOUND: &[(&str, &str)] = &[("Authorization", "${DOCS_AUTHORIZATION}")];
const CHECKS: [&str; 10] =
    ["declared", "policy", "credential", "resolve", "connect", "tls", "handshake", "protocol", "authorised", "tools"];

/// Has the gateway check everything now; gives the evidence.
async fn check(gateway: &Gateway) -> Value {
    let mut conn = RawConn::open(gateway.admin()).await;
    let head = format!("POST /v1/evidence HTTP/1.1\r\nHost: {}\r\nContent-Length: 0", gateway.admin());
    let response = conn.roundtrip(&head).await;
    assert_eq!(response.status, 200, "{}", response.text());
    let evidence = response.json();
    let problems: Vec<String> = schema().iter_errors(&evidence).map(|problem| problem.to_string()).collect();
    assert!(problems.is_empty(), "{problems:?}");
    evidence
}

/// The published schema.
fn schema() -> jsonschema::Validator {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/schemas/evidence.v1.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    jsonschema::options().should_validate_formats(true).build(&schema).unwrap()
}

/// The statuses of a server's checks, in order, in short: P F E I and `-`.
fn marks(evidence: &Value, server: &str) -> String {
    let servers = evidence["servers"].as_array().unwrap();
    let server = servers.iter().find(|found| found["server"] == server).unwrap();
    let checks = server["checks"].as_array().unwrap();
    assert_eq!(checks.iter().map(|check| check["check"].as_str().unwrap()).collect::<Vec<_>>(), CHECKS);
    let mark = |check: &Value| match check["status"].as_str().unwrap() {
        "passed" => 'P',
        "failed" => 'F',
        "error" => 'E',
        "inconclusive" => 'I',
        "not_run" => '-',
        other => panic!("{other}"),
    };
    checks.iter().map(mark).collect()
}

fn capability<'e>(evidence: &'e Value, name: &str) -> &'e Value {
    let capabilities = evidence["readiness"]["capabilities"].as_array().unwrap();
    capabilities.iter().find(|capability| capability["name"] == name).unwrap()
}

fn setup(ca: &TestCa, url: &str) -> Setup {
    Gateway::setup().names(&[HOST]).trust(ca).allow(&[url]).mcp_server("docs", url, BOUND)
}

#[tokio::test]
async fn real_servers_of_all_eras_are_ready_with_the_credential_and_unavailable_with_another() {
    let ca = TestCa::new();
    let leaf = ca.leaf(&[HOST]);
    for (server, revision, tools) in [
        (McpServer::python(&leaf, SECRET).await, "2025-11-25", 1),
        (McpServer::modern(&leaf, SECRET).await, "2026-07-28", 1),
        (McpServer::everything(&leaf, SECRET).await, "2025-11-25", 13),
    ] {
        let url = server.url(HOST);
        let gateway = setup(&ca, &url).bind("DOCS_AUTHORIZATION", SECRET).start().await;
        let evidence = check(&gateway).await;
        assert_eq!(marks(&evidence, "docs"), "PPPPPPPPPP", "{evidence:#}");
        let found = capability(&evidence, "mcp:docs");
        assert_eq!((&found["status"], &found["protocol_version"]), (&"ready".into(), &revision.into()));
        assert!(found["detected_version"].is_string(), "{found}");
        assert!(evidence["servers"][0]["tools"].as_u64().unwrap() >= tools, "{evidence:#}");
        assert_eq!((&evidence["readiness"]["ready"], &evidence["completeness"]), (&true.into(), &"complete".into()));
        let others = server.authorizations().into_iter().filter(|fields| fields != &[SECRET]);
        let others: Vec<_> = others.collect();
        assert!(!others.is_empty() && others.iter().all(|fields| fields[0].starts_with("Bearer exeat-probe-")));
        let metrics = gateway.metrics().await;
        let status = |status| metrics.sum("exeat_capability_status", &[("capability", "mcp:docs"), ("status", status)]);
        assert_eq!((status("ready"), status("unavailable"), metrics.sum("exeat_readiness", &[])), (1.0, 0.0, 1.0));
        assert_eq!(metrics.sum("exeat_protocol_info", &[("server", "docs"), ("revision", revision)]), 1.0);
        assert!(metrics.sum("exeat_readiness_check_timestamp_seconds", &[("server", "docs")]) > 1.7e9);

        let wrong = setup(&ca, &url).bind("DOCS_AUTHORIZATION", "Bearer wr0ng").start().await;
        let evidence = check(&wrong).await;
        let marks = marks(&evidence, "docs");
        assert_eq!(marks, "PPPPPPI-F-", "{evidence:#}");
        assert_eq!(capability(&evidence, "mcp:docs")["reason"], "credential_rejected");
        assert_eq!(evidence["readiness"]["ready"], false);
        let metrics = wrong.metrics().await;
        let failed = &[("server", "docs"), ("check", "authorised"), ("status", "failed")];
        assert_eq!(metrics.sum("exeat_readiness_check", failed), 1.0);
    }
}

/// A server that answers the first messages of both eras, and says who may do so.
fn site(authorised: impl Fn(&str) -> bool + Send + Sync + Clone + 'static) -> Site {
    Site::default().at(
        "/mcp",
        Reply::computed(move |request| {
            let allowed = authorised(&request.value("authorization").unwrap_or_default());
            async move {
                if !allowed {
                    return Reply::status(401);
                }
                let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
                let result = match message["method"].as_str().unwrap_or_default() {
                    "server/discover" => json!({ "supportedVersions": ["2026-07-28"] }),
                    "tools/list" => json!({ "tools": [{ "name": "search" }, { "name": "fetch" }] }),
                    _ => return Reply::status(404),
                };
                Reply::json(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
            }
        }),
    )
}

#[tokio::test]
async fn checks_stop_where_the_way_ends_and_the_rest_is_not_run() {
    let ca = TestCa::new();
    let origin = Origin::https(site(|_| true), &ca.leaf(&[HOST])).await;
    let url = origin.url(HOST, "/mcp");
    let bound = |setup: Setup| setup.bind("DOCS_AUTHORIZATION", SECRET);
    let base = || Gateway::setup().names(&[HOST]).trust(&ca).mcp_server("docs", &url, BOUND);
    let closed = Origin::http(Site::default()).await.url(HOST, "/mcp").replace("http:", "https:");
    let plain = Origin::http(Site::default()).await;
    for (gateway, expected, reason) in [
        (base().allow(&["other.test"]), "PF--------", "not_allowed"),
        (base().block(&[HOST]), "PF--------", "blocked"),
        (base().allow(&[HOST]), "PPF-------", "credential_unavailable"),
        (bound(base().allow(&[HOST])).set("guard", "allow", "[]"), "PPPF------", "guard_address"),
        (
            bound(Gateway::setup().names(&[HOST]).allow(&[HOST]).mcp_server("docs", &closed, BOUND)),
            "PPPPF-----",
            "connect_refused",
        ),
        (
            bound(Gateway::setup().names(&[HOST]).allow(&[HOST]).mcp_server("docs", &url, BOUND)),
            "PPPPPF----",
            "upstream_tls",
        ),
        (
            bound(Gateway::setup().names(&[HOST]).allow(&[HOST]).mcp_server("docs", &plain.url(HOST, "/mcp"), &[])),
            "PPPPP-F---",
            "not_mcp",
        ),
        (bound(base().allow(&[HOST])), "PPPPPPPPIP", "any_credential"),
    ] {
        let gateway = gateway.start().await;
        let evidence = check(&gateway).await;
        assert_eq!(marks(&evidence, "docs"), expected, "{evidence:#}");
        assert_eq!(capability(&evidence, "mcp:docs")["reason"], reason, "{evidence:#}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed_and_nothing_secret_is_said() {
    let ca = TestCa::new();
    let elsewhere = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let moved = Site::default().at("/mcp", Reply::redirect(&elsewhere.url(HOST, "/?code=canary")));
    let origin = Origin::https(moved, &ca.leaf(&[HOST])).await;
    let url = format!("{}?key=canary", origin.url(HOST, "/mcp"));
    let gateway = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[HOST]).mcp_server("docs", &url, BOUND);
    let gateway = gateway.bind("DOCS_AUTHORIZATION", SECRET).start().await;
    let evidence = check(&gateway).await;
    assert_eq!(marks(&evidence, "docs"), "PPPPPPF---");
    assert_eq!(capability(&evidence, "mcp:docs")["reason"], "redirected");
    assert!(elsewhere.requests().is_empty());
    assert!(!evidence.to_string().contains("canary"), "{evidence:#}");
}

#[tokio::test]
async fn evidence_is_of_the_policy_in_force() {
    let ca = TestCa::new();
    let origin = Origin::https(site(|authorization| authorization == SECRET), &ca.leaf(&[HOST])).await;
    let url = origin.url(HOST, "/mcp");
    let gateway = setup(&ca, &url).bind("DOCS_AUTHORIZATION", SECRET).start().await;
    let before = check(&gateway).await;
    assert_eq!(marks(&before, "docs"), "PPPPPPPPPP");
    assert_eq!(before["policy"]["generation"], 1);
    gateway.write("agent.toml", &format!("name = \"a\"\n[mcpServers.docs]\ntype = \"http\"\nurl = {url:?}\n"));
    gateway.reload().await;
    let evidence = gateway.admin_get("/v1/evidence").await.json();
    assert_eq!(marks(&evidence, "docs"), "----------", "what was found under another policy is not shown");
    assert_eq!(
        (&evidence["policy"]["generation"], &evidence["readiness"]["reason"]),
        (&2.into(), &"not_checked".into())
    );
    assert_ne!(evidence["policy"]["digest"], before["policy"]["digest"]);
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("exeat_capability_status", &[("status", "unknown")]), 1.0);
    let evidence = check(&gateway).await;
    assert_eq!(capability(&evidence, "mcp:docs")["reason"], "credential_required");
}

#[tokio::test]
async fn servers_are_checked_at_start_and_again_on_reload() {
    let ca = TestCa::new();
    let origin = Origin::https(site(|authorization| authorization == SECRET), &ca.leaf(&[HOST])).await;
    let setup = setup(&ca, &origin.url(HOST, "/mcp")).set("admin", "readiness_interval", "\"1h\"");
    let gateway = setup.bind("DOCS_AUTHORIZATION", SECRET).start().await;
    gateway.await_metric("exeat_readiness", &[], 1.0).await;
    let seen = origin.requests().len();
    gateway.reload().await;
    origin.await_requests(seen + 3).await;
    let sent: Vec<String> = origin.requests().iter().map(|request| request.value("mcp-method").unwrap()).collect();
    assert_eq!(sent, ["server/discover", "server/discover", "tools/list"].repeat(2));
}

#[tokio::test]
async fn capabilities_of_the_manifest_are_never_silently_ready() {
    let text = "name = \"a\"\ncapabilities = [\"web_fetch\", \"calculator\"]\n[network_access]\nallowed = [\"a.test\"]\n\
                [mcpServers.local]\ntype = \"stdio\"\ncommand = \"server\"\n";
    let gateway = Gateway::setup().manifest("agent.toml", text).start().await;
    let evidence = check(&gateway).await;
    assert_eq!(marks(&evidence, "local"), "F---------");
    for (name, status, reason) in [
        ("mcp:local", "unsupported", "stdio"),
        ("calculator", "unsupported", "unknown_to_the_gateway"),
        ("web_fetch", "degraded", "restricted by network_access"),
    ] {
        let found = capability(&evidence, name);
        assert_eq!(found["status"], status, "{found}");
        assert!(found["reason"].as_str().unwrap().starts_with(reason), "{found}");
    }
    assert_eq!((&evidence["completeness"], &evidence["confinement"]), (&"partial".into(), &"advisory".into()));
    let limitations = evidence["limitations"].to_string();
    assert!(limitations.contains("mcp:local") && limitations.contains("calculator"), "{limitations}");
}

#[tokio::test]
async fn a_page_of_another_origin_starts_no_check() {
    let gateway = Gateway::setup().allow(&["a.test"]).start().await;
    let mut conn = RawConn::open(gateway.admin()).await;
    let head = format!(
        "POST /v1/evidence HTTP/1.1\r\nHost: {}\r\nOrigin: https://evil.test\r\nContent-Length: 0",
        gateway.admin()
    );
    conn.roundtrip(&head).await.assert_refused(403, "method_refused");
}

#[tokio::test]
async fn the_command_probes_and_its_exit_code_says_whether_all_is_well() {
    let ca = TestCa::new();
    let origin = Origin::https(site(|authorization| authorization == SECRET), &ca.leaf(&[HOST])).await;
    let gateway = setup(&ca, &origin.url(HOST, "/mcp")).bind_file("DOCS_AUTHORIZATION", SECRET).start().await;
    let dir = gateway.dir();
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let (config, manifest, state) = (path("exeat.toml"), path("agent.toml"), path("state"));
    let arguments = ["ready", "-c", &config, "-m", &manifest, "--state-dir", &state];
    let table = exeat(&arguments).run().await.success();
    assert!(table.starts_with("ready       mcp:docs  ✓✓✓✓✓✓✓✓✓✓  2026-07-28  2 tools\n"), "{table}");
    let evidence: Value = serde_json::from_str(&exeat(&arguments).arg("--json").run().await.success()).unwrap();
    assert_eq!(marks(&evidence, "docs"), "PPPPPPPPPP");
    assert!(!evidence.to_string().contains("5ecret"));
    std::fs::write(dir.join("DOCS_AUTHORIZATION"), "Bearer wr0ng").unwrap();
    let output = exeat(&arguments).run().await;
    assert_eq!(output.code, Some(1));
    assert!(output.stdout.contains("authorised failed: credential_rejected"), "{}", output.stdout);
}
