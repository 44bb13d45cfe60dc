//! The commands that need no network: `check` and `lint`, in human and machine form, and their exit codes.

use std::fmt::Write as _;

use exeat_tests::client::Output;
use exeat_tests::gateway::{exeat, exeat_in};
use exeat_tests::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

const CASES: &str = include_str!("../data/policy-cases.jsonl");

fn cases(kind: &str) -> impl Iterator<Item = Value> {
    let all = CASES.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(move |case| case.get(kind).is_some())
}

/// A manifest whose `network_access` is the given layer.
fn manifest(layer: &Value) -> String {
    let list = |name: &str| layer[name].as_array().map_or_else(|| "[]".into(), |list| json!(list).to_string());
    format!("name = \"case\"\n[network_access]\nallowed = {}\nblocked = {}\n", list("allowed"), list("blocked"))
}

/// `exeat check --json --no-guard` of one input under layers, outermost first.
async fn check(layers: &[Value], input: &str) -> (Option<i32>, Vec<Value>) {
    let files: Vec<(String, String)> =
        layers.iter().enumerate().map(|(index, layer)| (format!("m{index}.toml"), manifest(layer))).collect();
    let borrowed: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let mut args = vec!["check", "--json", "--no-guard"];
    borrowed.iter().for_each(|(name, _)| args.extend(["-m", name]));
    args.extend(["--", input]);
    let output = exeat_in(&borrowed, &args, "").await;
    (output.code, output.json_lines())
}

// --- Cases --------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn every_policy_case_is_judged_as_expected() {
    let mut wrong = String::new();
    let mut count = 0;
    for case in cases("url").chain(cases("authority")) {
        let input = case["url"].as_str().or(case["authority"].as_str()).unwrap();
        let (code, lines) = check(case["layers"].as_array().unwrap(), input).await;
        let verdict = lines.first().map_or(Value::Null, |line| line["verdict"].clone());
        let expected = i32::from(case["expect"] == "deny");
        if lines.len() != 1 || verdict != case["expect"] || code != Some(expected) {
            writeln!(
                wrong,
                "{}: expected {}, exit {expected}; got {verdict}, exit {code:?}",
                case["id"], case["expect"]
            )
            .unwrap();
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(count, 102);
}

#[tokio::test]
async fn every_pattern_case_is_linted_as_expected() {
    let mut wrong = String::new();
    let mut count = 0;
    for case in cases("pattern") {
        let text = manifest(&json!({ "allowed": [case["pattern"]] }));
        let output = exeat_in(&[("m.toml", &text)], &["lint", "--format", "json", "m.toml"], "").await;
        let errors: Vec<Value> = output.json_lines().into_iter().filter(|line| line["severity"] == "error").collect();
        let refused = case["expect"] == "error";
        let placed = errors.iter().all(|error| error["line"] == 3 && !error["help"].as_str().unwrap().is_empty());
        if errors.is_empty() == refused || output.code != Some(i32::from(refused)) || !placed {
            writeln!(wrong, "{} {}: {output:#?}", case["id"], case["pattern"]).unwrap();
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(count, 25);
}

// --- check --------------------------------------------------------------------------------------------------------------

const AGENT: &str = r#"name = "agent"

[network_access]
allowed = [
    "https://api.example.test/v1/",
    "*.docs.test",
]
blocked = ["secret.docs.test"]

[mcpServers.docs]
type = "http"
url = "https://mcp.docs.test/mcp"
headers = { Authorization = "${DOCS_AUTHORIZATION}" }
"#;

/// `exeat check` under [`AGENT`].
async fn check_agent(args: &[&str], input: &str) -> Output {
    exeat_in(&[("agent.toml", AGENT)], &[&["check", "-m", "agent.toml"], args].concat(), input).await
}

#[tokio::test]
async fn a_verdict_names_its_rule_and_place() {
    let output =
        check_agent(&["--json", "--no-guard", "https://api.example.test/v1/x", "https://secret.docs.test/"], "");
    let output = output.await;
    assert_eq!(output.code, Some(1));
    let lines = output.json_lines();
    let keys: Vec<&str> = lines[0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["input", "method", "verdict", "reason", "rule", "inject"]);
    assert_eq!((&lines[0]["verdict"], &lines[0]["reason"]), (&json!("allow"), &json!("allowed")));
    let places: Vec<[&Value; 5]> =
        lines.iter().map(|line| ["list", "pattern", "file", "line", "column"].map(|key| &line["rule"][key])).collect();
    let (allowed, blocked) = (json!("allowed"), json!("blocked"));
    let (prefix, secret) = (json!("https://api.example.test/v1/"), json!("secret.docs.test"));
    let file = json!("agent.toml");
    assert_eq!(places[0], [&allowed, &prefix, &file, &json!(5), &json!(5)]);
    assert_eq!(places[1], [&blocked, &secret, &file, &json!(8), &json!(12)]);
}

#[tokio::test]
async fn a_verdict_names_the_fields_that_would_be_put_on() {
    let urls = ["https://mcp.docs.test/mcp", "https://mcp.docs.test/other", "mcp.docs.test:443"];
    let lines = check_agent(&[&["--json", "--no-guard"], &urls[..]].concat(), "").await.json_lines();
    let names = |line: &Value| line["inject"].to_string().to_ascii_lowercase();
    assert_eq!(names(&lines[0]), r#"["authorization"]"#);
    assert_eq!(names(&lines[1]), "[]");
    assert_eq!(lines[2]["verdict"], "inspect", "a bound host is never a blind tunnel");
}

#[tokio::test]
async fn inputs_come_from_standard_input_too_and_a_bad_one_is_a_line() {
    let input = "https://api.example.test/v1/a\nnot a url\n\nhttps://www.docs.test/\napi.example.test:443\n";
    let output = check_agent(&["--json", "--no-guard", "-"], input).await;
    assert_eq!(output.code, Some(1));
    let verdicts: Vec<(Value, Value)> =
        output.json_lines().iter().map(|line| (line["verdict"].clone(), line["reason"].clone())).collect();
    let expected = [("allow", "allowed"), ("deny", "malformed"), ("allow", "allowed"), ("inspect", "allowed")];
    assert_eq!(verdicts, expected.map(|(verdict, reason)| (json!(verdict), json!(reason))));
}

#[tokio::test]
async fn the_guard_judges_literal_addresses_unless_told_not_to() {
    for (args, verdict, reason) in [
        (&["--json", "http://127.0.0.1/"][..], "deny", "guard_address"),
        (&["--json", "http://169.254.169.254/"], "deny", "guard_metadata"),
        (&["--json", "--no-guard", "http://127.0.0.1/"], "allow", "default_allow"),
    ] {
        let output = exeat_in(&[("m.toml", "name = \"m\"\n")], &[&["check", "-m", "m.toml"], args].concat(), "").await;
        let line = &output.json_lines()[0];
        assert_eq!((&line["verdict"], &line["reason"]), (&json!(verdict), &json!(reason)), "{args:?}");
    }
}

#[tokio::test]
async fn exit_codes_tell_allowed_denied_and_unusable_apart() {
    for (args, code) in [
        (&["https://api.example.test/v1/x"][..], 0),
        (&["--method", "POST", "https://api.example.test/v1/x"], 0),
        (&["https://www.docs.test/", "https://api.example.test/v1/x"], 0),
        (&["api.example.test:443"], 0),
        (&["https://www.docs.test/", "https://outside.test/"], 1),
        (&["outside.test:443"], 1),
        (&["not a url"], 1),
        (&["-m", "absent.toml", "https://www.docs.test/"], 2),
        (&["--no-such-flag"], 2),
        (&[], 2),
    ] {
        let output = check_agent(&[&["--no-guard"], args].concat(), "").await;
        assert_eq!(output.code, Some(code), "{args:?}: {output:#?}");
    }
    let broken = exeat_in(&[("m.toml", "name = ")], &["check", "-m", "m.toml", "https://a.test/"], "").await;
    assert_eq!(broken.code, Some(2));
    assert!(broken.stderr.contains("m.toml:1:"), "{broken:#?}");
}

#[tokio::test]
async fn people_get_a_line_with_verdict_rule_and_place() {
    let output = check_agent(&["--no-guard", "https://secret.docs.test/", "https://outside.test/"], "").await;
    let lines: Vec<&str> = output.stdout.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.iter().any(|line| line.contains("deny") && line.contains("agent.toml:8:12")), "{output:#?}");
    assert!(lines.iter().any(|line| line.contains("deny") && line.contains("https://outside.test/")), "{output:#?}");
    assert!(!output.stdout.contains('\u{1b}'), "colour where no terminal reads it");
}

#[tokio::test]
async fn the_gateway_judges_as_the_dry_run_does() {
    let origin = Origin::http(Site::default()).await;
    let authority = origin.authority("api.example.test");
    let text = format!(
        "name = \"agent\"\n[network_access]\nallowed = [\"http://{authority}/v1/\", \"*.docs.test\"]\n\
         blocked = [\"secret.docs.test\", \"http://{authority}/v1/private\"]\n"
    );
    let gateway = Gateway::setup().names(&["api.example.test", "www.docs.test"]).manifest("m.toml", &text);
    let gateway = gateway.start().await;
    let urls: Vec<String> =
        ["/v1/x", "/v1/private", "/v1/privateer", "/v1/..%2fx", "/v1/x/../y", "/v2", "/v1/%70rivate"]
            .iter()
            .map(|path| format!("http://{authority}{path}"))
            .chain(["http://secret.docs.test/".into(), "http://outside.test/".into(), "ftp://www.docs.test/".into()])
            .collect();
    let args: Vec<&str> =
        ["check", "--json", "--no-guard", "-m", "m.toml"].into_iter().chain(urls.iter().map(String::as_str)).collect();
    let lines = exeat_in(&[("m.toml", &text)], &args, "").await.json_lines();
    for (url, line) in urls.iter().zip(lines) {
        let answer = gateway.get(url).await;
        let verdict = if answer.status == 200 { "allow" } else { "deny" };
        assert_eq!(line["verdict"], verdict, "{url}");
        if verdict == "deny" {
            assert_eq!(line["reason"].as_str(), answer.reason().as_deref(), "{url}");
        }
    }
}

// --- lint ---------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn all_problems_of_a_file_are_reported_with_place_code_and_cure() {
    let text = "name = \"Agent\"\nnetwork_acess = {}\n\n[mcpServers.docs]\nurl = \"https://u@docs.test/mcp\"\n\
                headers = { Authorization = \"Bearer literal\" }\n";
    for format in [&["--format", "json"][..], &["--json"]] {
        let output = exeat_in(&[("m.toml", text)], &[&["lint"], format, &["m.toml"]].concat(), "").await;
        assert_eq!(output.code, Some(1), "{output:#?}");
        let found = output.json_lines();
        for line in [1, 2, 5, 6] {
            assert!(found.iter().any(|problem| problem["line"] == line), "line {line}: {found:#?}");
        }
        for problem in &found {
            let keys: Vec<&str> = problem.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(
                keys,
                ["code", "severity", "message", "file", "line", "column", "end_line", "end_column", "help"]
            );
            assert_eq!(problem["file"], "m.toml");
            assert!(problem["code"].as_str().unwrap().starts_with(['E', 'W']));
        }
        assert!(found.iter().any(|problem| problem["help"].as_str().unwrap().contains("network_access")), "{found:#?}");
        assert!(!output.stdout.contains("literal"), "a literal credential is not repeated");
    }
}

#[tokio::test]
async fn people_see_the_line_itself() {
    let text = "name = \"agent\"\n[network_access]\nallowed = [\"api.*.com\"]\n";
    let output = exeat_in(&[("m.toml", text)], &["lint", "m.toml"], "").await;
    let said = output.failure();
    for part in ["m.toml:3:12", "allowed = [\"api.*.com\"]", "error"] {
        assert!(said.contains(part), "{part} is not in:\n{said}");
    }
}

#[tokio::test]
async fn all_three_formats_are_read() {
    let toml = "name = \"agent\"\n[network_access]\nallowed = [\"a.test\"]\n";
    let yaml = "name: agent\nnetwork_access:\n  allowed:\n    - a.test\n";
    let json = r#"{ "name": "agent", "network_access": { "allowed": ["a.test"] } }"#;
    for (name, text) in [("m.toml", toml), ("m.yaml", yaml), ("m.yml", yaml), ("m.json", json)] {
        assert_eq!(exeat_in(&[(name, text)], &["lint", name], "").await.code, Some(0), "{name}");
        let url = ["check", "--no-guard", "-m", name, "https://a.test/"];
        assert_eq!(exeat_in(&[(name, text)], &url, "").await.code, Some(0), "{name}");
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_exit_2() {
    assert_eq!(exeat_in(&[], &["lint", "absent.toml"], "").await.code, Some(2));
    assert_eq!(exeat_in(&[], &["lint"], "").await.code, Some(2));
}

// --- ca and env ---------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn the_ca_is_exported_for_clients() {
    let dir = TempDir::new().unwrap();
    let gateway = Gateway::setup().state_dir(dir.path()).start().await;
    let export = exeat(&["ca", "--state-dir"]).arg(dir.path()).arg("export").run().await.success();
    assert_eq!(export, std::fs::read_to_string(gateway.ca()).unwrap());
    let bundle = exeat(&["ca", "--state-dir"]).arg(dir.path()).arg("bundle").run().await.success();
    assert!(bundle.contains(export.trim()));
    assert!(!(export + &bundle).contains("PRIVATE KEY"));
}

#[tokio::test]
async fn the_variables_of_env_make_curl_use_the_gateway() {
    let ca = TestCa::new();
    let (state, host) = (TempDir::new().unwrap(), "api.example.test");
    let origin = Origin::https(Site::default(), &ca.leaf(&[host])).await;
    let setup = Gateway::setup().names(&[host]).trust(&ca).allow(&[origin.url(host, "/v1/")]);
    let gateway = setup.state_dir(state.path()).start().await;
    let proxy = format!("http://{}", gateway.proxy());
    let env = exeat(&["env", "--shell", "sh", "--proxy", &proxy, "--state-dir"]).arg(state.path()).run().await;
    let script = format!("{}\ncurl -sS -o /dev/null -w '%{{http_code}}' {}", env.success(), origin.url(host, "/v1/x"));
    assert_eq!(Cmd::new("sh").args(["-c", &script]).run().await.success(), "200");
    origin.only_request().await;
}

#[tokio::test]
async fn the_variables_name_a_port_that_speaks_tls_by_https() {
    let state = tempfile::TempDir::new().unwrap();
    let leaf = TestCa::new().leaf(&["proxy.example.test"]);
    for (config, url) in [
        ("[listen]\nproxy = \"0.0.0.0:3443\"\ntls_cert = \"c.pem\"\ntls_key = \"k.pem\"\n", "https://127.0.0.1:3443"),
        ("[listen]\nproxy = \"0.0.0.0:3443\"\n", "http://127.0.0.1:3443"),
    ] {
        for (name, text) in [("exeat.toml", config), ("c.pem", &leaf.cert_pem()), ("k.pem", &leaf.key_pem())] {
            std::fs::write(state.path().join(name), text).unwrap();
        }
        let env = exeat(&["env", "--shell", "json", "-c", "exeat.toml", "--state-dir", "state"]).dir(state.path());
        let variables: serde_json::Value = serde_json::from_str(&env.run().await.success()).unwrap();
        for name in ["HTTPS_PROXY", "http_proxy", "ALL_PROXY"] {
            assert_eq!(variables[name], url);
        }
    }
}
