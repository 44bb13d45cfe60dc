//! Policy work without a network: lint, test, replay, diff, suggest, and that all of it says what the gateway does.

use std::collections::BTreeSet;
use std::path::Path;

use exeat_tests::gateway::{exeat, exeat_in, write_files};
use exeat_tests::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

const CODES: &str = include_str!("../../docs/codes.md");

/// A manifest with these lists.
fn manifest(allowed: &[&str], blocked: &[&str]) -> String {
    format!("name = \"case\"\n[network_access]\nallowed = {allowed:?}\nblocked = {blocked:?}\n")
}

// --- The gateway and the dry run ------------------------------------------------------------------------------------------

/// What a gateway says about its decisions, one line each.
fn decisions(gateway: &Gateway) -> Vec<Value> {
    let lines = gateway.lines();
    lines
        .iter()
        .filter(|line| line.contains("\"exeat::decision\""))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn gateway_and_dry_run_give_one_verdict_reason_and_rule() {
    let origin = Origin::http(Site::default()).await;
    let authority = origin.authority("api.example.test");
    let outer = manifest(&["*.example.test", "*.docs.test"], &["secret.docs.test"]);
    let inner = manifest(
        &[&format!("http://{authority}/v1/"), "open.example.test", "*.docs.test", "127.0.0.1"],
        &[&format!("http://{authority}/v1/private")],
    );
    let names = ["api.example.test", "open.example.test", "www.docs.test", "secret.docs.test", "other.test"];
    let gateway = Gateway::setup().names(&names).manifest("outer.toml", &outer).manifest("inner.toml", &inner);
    let gateway = gateway.start().await;

    let port = authority.rsplit_once(':').unwrap().1;
    let paths = [
        "/v1/x",
        "/v1/",
        "/v1",
        "/v10/",
        "/v1/private",
        "/v1/privateer",
        "/v1/%70rivate/x",
        "/v1/..%2fv2",
        "/v1/x/../y",
        "/v1/..;/v2",
        "/v1//x",
        "/V1/x",
        "/",
        "/v1/x?query",
    ];
    let urls = paths.iter().map(|path| format!("http://{authority}{path}"));
    let hosts = ["open.example.test", "www.docs.test", "secret.docs.test", "other.test", "OPEN.Example.TEST."];
    let urls: Vec<String> = urls.chain(hosts.iter().map(|host| format!("http://{host}:{port}/any"))).collect();
    let tunnels: Vec<String> = ["api.example.test", "open.example.test", "secret.docs.test", "other.test"]
        .iter()
        .map(|host| format!("{host}:{port}"))
        .collect();
    for url in &urls {
        gateway.get(url).await;
    }
    for tunnel in &tunnels {
        gateway.connect(tunnel).await;
    }
    let last = "http://other.test/the-last";
    gateway.get(last).await;
    gateway.await_line(last).await;

    let asked: Vec<&str> = urls.iter().chain(&tunnels).map(String::as_str).chain([last]).collect();
    let layers = ["-c", "exeat.toml", "-m", "outer.toml", "-m", "inner.toml"];
    let check = exeat(&["check", "--json"]).args(layers).args(["--"]).args(&asked).dir(gateway.dir()).run().await;
    let said = check.json_lines();
    let done = decisions(&gateway);
    assert_eq!((done.len(), said.len()), (asked.len(), asked.len()));
    for ((asked, done), said) in asked.iter().zip(&done).zip(&said) {
        let is_denied = said["verdict"] == "deny";
        assert_eq!(done["verdict"] == "deny", is_denied, "{asked}: {done} {said}");
        assert_eq!(done["reason"], said["reason"], "{asked}: {done} {said}");
        let rule = said["rule"].as_object().map(|rule| {
            let text = |key: &str| rule[key].as_str().unwrap().to_owned();
            format!("{} ({}:{}:{})", text("pattern"), text("file"), rule["line"], rule["column"])
        });
        assert_eq!(done["rule"].as_str(), rule.as_deref(), "{asked}: {done} {said}");
    }
    assert!(
        said.iter().any(|line| line["verdict"] == "inspect") && said.iter().any(|line| line["verdict"] == "permit")
    );

    // What the gateway wrote down, judged again by what it judged by, is as it was.
    let log: String = gateway.lines().iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(gateway.dir().join("gateway.log"), log).unwrap();
    let replay = exeat(&["replay", "--json", "--fail-on", "newly-allowed,newly-denied"]).args(layers);
    let replay = replay.arg("gateway.log").dir(gateway.dir()).run().await;
    assert_eq!(replay.code, Some(0), "{replay:#?}");
    let report = &replay.json_lines()[0];
    assert_eq!(report["records"], json!(asked.len()));
    assert_eq!(report["compared"], json!(asked.len()));
}

// --- check --------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn the_walk_through_the_layers_is_shown() {
    let files = [
        ("outer.toml", manifest(&["*.example.test"], &["x.example.test"])),
        ("inner.toml", manifest(&["api.example.test"], &[])),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let args = ["check", "--explain", "-m", "outer.toml", "-m", "inner.toml"];
    let output = exeat_in(&files, &[&args[..], &["https://x.example.test/"]].concat(), "").await;
    let shown = output.stdout;
    for part in [
        "harness: blocks it",
        "blocked \"x.example.test\" at outer.toml:4:12",
        "allowed \"*.example.test\" at outer.toml:3:12",
        "agent: does not allow it: none of 1 allowed rules matches",
        "a tunnel there is denied",
    ] {
        assert!(shown.contains(part), "{part} is not in:\n{shown}");
    }
    let output =
        exeat_in(&files, &[&args[..], &["--json", "https://api.example.test/", "10.0.0.1:443"]].concat(), "").await;
    let lines = output.json_lines();
    let says: Vec<&str> =
        lines[0]["layers"].as_array().unwrap().iter().map(|step| step["says"].as_str().unwrap()).collect();
    assert_eq!((says, &lines[0]["tunnel"]), (vec!["allows", "allows"], &json!("permit")));
    assert_eq!((&lines[1]["layers"], &lines[1]["address"]), (&json!([]), &json!("private")));
}

#[tokio::test]
async fn many_inputs_keep_their_order() {
    let text = manifest(&["*.even.test"], &[]);
    let url =
        |number: u32| format!("https://h{number}.{}.test/", if number.is_multiple_of(2) { "even" } else { "odd" });
    let input: String = (0..50_000).map(|number| url(number) + "\n").collect();
    let output = exeat_in(&[("m.toml", &text)], &["check", "-m", "m.toml", "-"], &input).await;
    assert_eq!(output.code, Some(1));
    let mut lines = output.stdout.lines();
    for number in 0..50_000_u32 {
        let line = lines.next().unwrap_or_else(|| panic!("{number} has no line"));
        let verdict = if number.is_multiple_of(2) { "allow   " } else { "deny    " };
        assert!(line.starts_with(&(verdict.to_owned() + &url(number))), "{number}: {line}");
    }
    assert_eq!(lines.next(), None);
}

// --- lint ---------------------------------------------------------------------------------------------------------------

/// The fenced blocks of a section: what stands behind the fence, and what is in the block.
fn blocks(section: &str) -> Vec<(&str, &str)> {
    section
        .split("\n```")
        .skip(1)
        .step_by(2)
        .map(|block| block.split_once('\n').expect("a fence ends its line"))
        .collect()
}

#[tokio::test]
async fn every_code_is_found_in_its_example() {
    let mut without = BTreeSet::new();
    for section in CODES.split("\n## ").skip(1) {
        let code = section.split(':').next().unwrap();
        let blocks = blocks(section);
        if blocks.is_empty() {
            without.insert(code);
            continue;
        }
        let dir = TempDir::new().unwrap();
        write_files(
            dir.path(),
            &[("agent.toml", "name = \"reader\"\n[network_access]\nallowed = [\"example.com\"]\n")],
        );
        let named: Vec<(&str, &str)> =
            blocks.iter().filter_map(|(info, body)| Some((info.split_once(' ')?.1, *body))).collect();
        write_files(dir.path(), &named);
        let has = |name: &str| named.iter().any(|(known, _)| *known == name);
        let command = blocks.iter().find(|(info, _)| *info == "sh").map(|(_, body)| body.trim());
        let args: Vec<&str> = match command {
            Some(command) => command.split(' ').skip(1).collect(),
            None if has("cases.toml") => vec!["test", "cases.toml"],
            None => {
                let config = if has("exeat.toml") && named.len() > 1 { &["-c", "exeat.toml"][..] } else { &[] };
                let files =
                    named.iter().map(|(name, _)| *name).filter(|name| config.is_empty() || *name != "exeat.toml");
                ["lint", "--notes"].into_iter().chain(config.iter().copied()).chain(files).collect()
            }
        };
        let output = exeat(&args).dir(dir.path()).run().await;
        let said = format!("{}{}", output.stdout, output.stderr);
        assert!(said.contains(&format!("[{code}]")), "{code} is not found in its example by {args:?}:\n{said}");
        let kind = if code.starts_with('E') { 1 } else { 0 };
        assert!(output.code == Some(kind) || args[0] == "test", "{code}: {output:#?}");
    }
    // Those whose example would be too large.
    assert_eq!(without, BTreeSet::from(["E0008", "E0009", "E0011", "E0104"]));
}

#[tokio::test]
async fn the_codes_without_an_example_are_found_too() {
    let large = format!("name = \"a\" # {}\n", "x".repeat(64 << 20));
    let deep = format!("name = \"a\"\nenvironments = {}{}\n", "[".repeat(2000), "]".repeat(2000));
    let many: String = (0..1100).map(|number| format!("key{number} = 1\n")).collect();
    let files = format!("name = \"a\"\nfiles = [{}]\n", "\"a\", ".repeat(101));
    for (code, name, text) in [
        ("E0008", "agent.toml", large),
        ("E0009", "agent.toml", deep),
        ("E0011", "agent.toml", many),
        ("E0104", "agent.toml", files),
    ] {
        let output = exeat_in(&[(name, &text)], &["lint", "--json", name], "").await;
        let found = output.json_lines();
        assert!(found.iter().any(|problem| problem["code"] == code), "{code}: {:?}", found.first());
    }
}

#[tokio::test]
async fn codes_are_explained() {
    let shown = exeat_in(&[], &["lint", "--explain", "w0201"], "").await.success();
    assert!(shown.starts_with("W0201: ") && shown.contains("network_access"), "{shown}");
    assert_eq!(exeat_in(&[], &["lint", "--explain", "E9999"], "").await.code, Some(2));
}

#[tokio::test]
async fn lint_speaks_to_pipelines() {
    let text = manifest(&["http://a.test/", "a b"], &[]);
    let files = [("m.toml", text.as_str())];
    let sarif = exeat_in(&files, &["lint", "--format", "sarif", "m.toml"], "").await;
    assert_eq!(sarif.code, Some(1));
    let sarif: Value = serde_json::from_str(&sarif.stdout).unwrap();
    let result = &sarif["runs"][0]["results"][0];
    assert_eq!((&sarif["version"], &result["ruleId"]), (&json!("2.1.0"), &json!("E0101")));
    let region = &result["locations"][0]["physicalLocation"]["region"];
    assert_eq!((&region["startLine"], &region["startColumn"]), (&json!(3), &json!(30)));
    let github = exeat_in(&files, &["lint", "--format", "github", "m.toml"], "").await.stdout;
    assert!(github.starts_with("::error file=m.toml,line=3,endLine=3,col=30,endColumn=35,title=E0101::"), "{github}");

    let text = manifest(&["http://a.test/"], &[]);
    let files = [("m.toml", text.as_str())];
    assert_eq!(exeat_in(&files, &["lint", "m.toml"], "").await.code, Some(0));
    assert_eq!(exeat_in(&files, &["lint", "--strict", "m.toml"], "").await.code, Some(1));
}

#[tokio::test]
async fn the_shipped_manifests_are_clean() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config");
    for name in [
        "agent.toml",
        "exeat.toml",
        "examples/coding.agent.toml",
        "examples/research.agent.toml",
        "examples/support.agent.toml",
    ] {
        let output = exeat(&["lint", "--strict"]).arg(config.join(name)).run().await;
        assert_eq!((output.code, output.stdout.as_str()), (Some(0), ""), "{name}");
    }
    let cases = exeat(&["test"]).arg(config.join("examples/cases.toml")).run().await;
    assert_eq!(cases.code, Some(0), "{cases:#?}");
}

// --- test ---------------------------------------------------------------------------------------------------------------

const CASES: &str = r#"manifests = ["m.toml"]

[[case]]
name = "the API"
url = "https://api.test/v1/x"
expect = "allow"
reason = "allowed"
rule = "https://api.test/v1/"
layer = "agent"

[[case]]
authority = "api.test:443"
expect = "inspect"

[[case]]
url = "https://api.test/v1/x"
session = { allowed = ["docs.test"] }
expect = "deny"
reason = "not_allowed"
layer = "session"

[[case]]
url = "http://169.254.169.254/"
expect = "deny"
reason = "not_allowed"
"#;

#[tokio::test]
async fn expectations_are_tests() {
    let text = manifest(&["https://api.test/v1/"], &[]);
    let files = [("m.toml", text.as_str()), ("cases.toml", CASES)];
    let output = exeat_in(&files, &["test", "cases.toml"], "").await;
    assert_eq!((output.code, output.stdout.lines().last()), (Some(0), Some("4 passed, 0 failed")), "{output:#?}");

    let wrong =
        CASES.replace("reason = \"allowed\"", "reason = \"default_allow\"").replace("\"inspect\"", "\"permit\"");
    let files = [("m.toml", text.as_str()), ("cases.toml", wrong.as_str())];
    let output = exeat_in(&files, &["test", "--format", "json", "cases.toml"], "").await;
    assert_eq!(output.code, Some(1));
    let lines = output.json_lines();
    let passed: Vec<bool> = lines.iter().map(|line| line["passed"].as_bool().unwrap()).collect();
    assert_eq!(passed, [false, false, true, true]);
    assert_eq!(lines[0]["failures"][0], "expected the reason default_allow, got allowed");
    assert_eq!((&lines[1]["line"], &lines[1]["name"]), (&json!(11), &json!("api.test:443")));
    let junit = exeat_in(&files, &["test", "--format", "junit", "cases.toml"], "").await.stdout;
    assert!(junit.contains("<testsuites name=\"exeat\" tests=\"4\" failures=\"2\">"), "{junit}");

    // The command line's manifests go before the file's.
    let other = manifest(&["docs.test"], &[]);
    let files = [("m.toml", text.as_str()), ("other.toml", other.as_str()), ("cases.toml", CASES)];
    assert_eq!(exeat_in(&files, &["test", "-m", "other.toml", "cases.toml"], "").await.code, Some(1));
    assert_eq!(exeat_in(&files, &["test", "absent.toml"], "").await.code, Some(2));
}

#[tokio::test]
async fn the_documented_cases_hold() {
    let page = include_str!("../../docs/dry-run.md");
    let (_, cases) = blocks(page).into_iter().find(|(info, _)| *info == "toml cases.toml").unwrap();
    let text = manifest(&["https://api.example.com/v1/"], &[]);
    let output = exeat_in(&[("agent.toml", &text), ("cases.toml", cases)], &["test", "cases.toml"], "").await;
    assert_eq!((output.code, output.stdout.lines().last()), (Some(0), Some("3 passed, 0 failed")), "{output:#?}");
}

// --- replay -------------------------------------------------------------------------------------------------------------

const SQUID: &str = "\
1286536308.779    180 192.0.2.7 TCP_MISS/200 411 GET http://a.test/x?secret - HIER_DIRECT/192.0.2.1 text/html
1286536309.001      0 192.0.2.7 TCP_DENIED/403 3900 CONNECT b.test:443 - HIER_NONE/- text/html
1286536309.500    180 192.0.2.7 TCP_TUNNEL/200 411 CONNECT c.test:443 - HIER_DIRECT/192.0.2.1 -
not a line of any log
";

#[tokio::test]
async fn recorded_traffic_is_judged_and_compared() {
    let (old, new) = (manifest(&["a.test", "c.test"], &[]), manifest(&["a.test", "b.test"], &[]));
    let files = [("old.toml", old.as_str()), ("new.toml", new.as_str()), ("access.log", SQUID)];
    let report = exeat_in(&files, &["replay", "--json", "-m", "new.toml", "access.log"], "").await;
    assert_eq!(report.code, Some(1), "something is denied");
    let found = &report.json_lines()[0];
    let counts = |keys: &[&str]| keys.iter().map(|key| found[key].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(counts(&["records", "tunnels", "unreadable_lines", "permitted", "denied"]), [3, 2, 1, 2, 1]);
    assert_eq!(counts(&["newly_allowed", "newly_denied"]), [1, 1]);
    assert!(!report.stdout.contains("secret"), "queries are left out");

    for (fail_on, code) in [("newly-allowed", 1), ("newly-denied", 1), ("newly-inspected", 0), ("unreadable", 1)] {
        let args = ["replay", "-m", "new.toml", "--fail-on", fail_on, "access.log"];
        assert_eq!(exeat_in(&files, &args, "").await.code, Some(code), "{fail_on}");
    }

    // Against the other manifest, what was recorded plays no part.
    let args = ["replay", "-m", "new.toml", "--against", "old.toml", "--fail-on", "newly-allowed", "-"];
    let shown = exeat_in(&files, &args, SQUID).await;
    assert_eq!(shown.code, Some(1));
    for part in ["newly allowed", "b.test:443", "newly denied", "c.test:443", "a recorded tunnel has no path"] {
        assert!(shown.stdout.contains(part), "{part} is not in:\n{}", shown.stdout);
    }
    let args = ["replay", "-m", "old.toml", "--against", "old.toml", "--fail-on", "newly-allowed,newly-denied", "-"];
    assert_eq!(exeat_in(&files, &args, SQUID).await.code, Some(0));
    assert_eq!(exeat_in(&files, &["replay", "-m", "new.toml", "absent.log"], "").await.code, Some(2));
}

// --- diff ---------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_change_is_shown_with_witnesses_that_check_confirms() {
    let old = manifest(&["https://api.test/v1/", "gone.test"], &[]);
    let new = manifest(&["https://api.test/", "*.docs.test"], &["https://api.test/v1/admin"]);
    let files = [("old.toml", old.as_str()), ("new.toml", new.as_str())];
    let output = exeat_in(&files, &["diff", "--format", "json", "old.toml", "new.toml"], "").await;
    assert_eq!(output.code, Some(1));
    let found = &output.json_lines()[0];
    let differences = found["differences"].as_array().unwrap();
    let told: BTreeSet<(&str, &str)> =
        differences.iter().map(|one| (one["change"].as_str().unwrap(), one["pattern"].as_str().unwrap())).collect();
    let expected = [
        ("opened", "*.docs.test"),
        ("opened", "https://api.test/"),
        ("closed", "gone.test"),
        ("closed", "https://api.test/v1/admin*"),
    ];
    assert_eq!(told, BTreeSet::from(expected));
    for difference in differences {
        let witness = difference["witness"].as_str().unwrap();
        for (manifest, side) in [("old.toml", "old"), ("new.toml", "new")] {
            let check = exeat_in(&files, &["check", "--json", "-m", manifest, witness], "").await;
            assert_eq!(check.json_lines()[0]["verdict"], difference[side]["verdict"], "{witness} {manifest}");
        }
    }

    for (fail_on, code) in [("opened", 1), ("closed", 1), ("any", 1), ("none", 0)] {
        let args = ["diff", "--fail-on", fail_on, "old.toml", "new.toml"];
        assert_eq!(exeat_in(&files, &args, "").await.code, Some(code), "{fail_on}");
    }
    let same = exeat_in(&files, &["diff", "old.toml", "old.toml"], "").await;
    assert_eq!((same.code, same.stdout.as_str()), (Some(0), "both permit the same\n"));
    let markdown = exeat_in(&files, &["diff", "--format", "markdown", "old.toml", "new.toml"], "").await.stdout;
    assert!(markdown.contains("| **opened** | `*.docs.test` | `https://any.docs.test/` |"), "{markdown}");

    // An outer layer that does not allow it keeps it closed.
    let outer = manifest(&["api.test", "gone.test"], &[]);
    let files = [("old.toml", old.as_str()), ("new.toml", new.as_str()), ("outer.toml", outer.as_str())];
    let output = exeat_in(&files, &["diff", "-m", "outer.toml", "old.toml", "new.toml"], "").await;
    assert!(!output.stdout.contains("docs.test") && output.stdout.contains("gone.test"), "{output:#?}");
}

// --- suggest ------------------------------------------------------------------------------------------------------------

const SEEN: &str = "\
https://api.test/v1/items/1
https://api.test/v1/items/2?page=3
https://docs.test/
https://docs.test/guide/
mirror.test:443
ssh.test:22
https://a.cdn.example.com/x
https://b.cdn.example.com/y
";

#[tokio::test]
async fn what_is_suggested_permits_what_was_seen_and_says_what_else() {
    let output = exeat_in(&[("seen.txt", SEEN)], &["suggest", "seen.txt"], "").await;
    let suggested = output.success();
    for rule in [
        "  \"https://api.test/v1/items/\",",
        "  \"https://docs.test/\",",
        "  \"https://mirror.test/\",",
        "  \"ssh.test\",",
        "  \"https://a.cdn.example.com/\",",
    ] {
        assert!(suggested.contains(rule), "{rule} is not in:\n{suggested}");
    }
    assert!(suggested.contains("would also permit every scheme, port and path of ssh.test"), "{suggested}");
    let text = format!("name = \"agent\"\n{suggested}");
    let files = [("seen.txt", SEEN), ("agent.toml", text.as_str())];
    assert_eq!(exeat_in(&files, &["lint", "agent.toml"], "").await.code, Some(0));
    let replayed =
        exeat_in(&files, &["replay", "-m", "agent.toml", "--fail-on", "denied,unreadable", "seen.txt"], "").await;
    assert_eq!(replayed.code, Some(0), "{replayed:#?}");

    let wild = exeat_in(&files, &["suggest", "--json", "--wildcards", "-"], SEEN).await;
    let rules = wild.json_lines()[0]["rules"].as_array().unwrap().clone();
    assert!(rules.iter().any(|rule| rule["pattern"] == "*.example.com"), "{rules:#?}");
}

#[tokio::test]
async fn a_manifest_keeps_its_comments_and_order_when_rules_are_added() {
    let before = "# The agent.\nname = \"agent\"\n\n[network_access]\nallowed = [\n  \"docs.test\", # reading\n]\n\n[model]\nprovider = \"x\"\nmodel = \"y\"\n";
    let dir = TempDir::new().unwrap();
    write_files(dir.path(), &[("agent.toml", before), ("seen.txt", SEEN)]);
    let shown = exeat(&["suggest", "--merge", "agent.toml", "seen.txt"]).dir(dir.path()).run().await.success();
    assert_eq!(std::fs::read_to_string(dir.path().join("agent.toml")).unwrap(), before, "nothing is written unasked");
    exeat(&["suggest", "--merge", "agent.toml", "--write", "seen.txt"]).dir(dir.path()).run().await.success();
    let after = std::fs::read_to_string(dir.path().join("agent.toml")).unwrap();
    assert_eq!(after, shown);
    let (head, rest) = before.split_once("]\n\n[model]").unwrap();
    assert!(after.starts_with(head) && after.ends_with(&format!("]\n\n[model]{rest}")), "{after}");
    assert!(!after.contains("https://docs.test/"), "what is permitted already is not added");
    let replay = ["replay", "-m", "agent.toml", "--fail-on", "denied", "seen.txt"];
    assert_eq!(exeat(&replay).dir(dir.path()).run().await.code, Some(0));
    let again = exeat(&["suggest", "--merge", "agent.toml", "seen.txt"]).dir(dir.path()).run().await.success();
    assert_eq!(again, after);
}

#[tokio::test]
async fn what_a_block_stands_against_is_said() {
    let text = manifest(&["docs.test"], &["api.test"]);
    let files = [("agent.toml", text.as_str()), ("seen.txt", SEEN)];
    let output = exeat_in(&files, &["suggest", "--merge", "agent.toml", "seen.txt"], "").await;
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains("stays blocked: https://api.test/v1/items/1 by \"api.test\""), "{output:#?}");
}
