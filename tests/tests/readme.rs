//! The documents at the root: their files load, their examples say what the commands say, and what they name exists.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use exeat_tests::gateway::{binary, exeat};
use exeat_tests::prelude::*;
use tempfile::TempDir;

const README: &str = include_str!("../../README.md");
const ARCHITECTURE: &str = include_str!("../../ARCHITECTURE.md");
const CONTRIBUTING: &str = include_str!("../../CONTRIBUTING.md");
const CHANGELOG: &str = include_str!("../../CHANGELOG.md");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The fenced blocks of a document: what stands behind the fence, and what is in the block.
fn blocks(document: &str) -> Vec<(&str, &str)> {
    let mut blocks = Vec::new();
    let mut rest = document;
    while let Some((_, behind)) = rest.split_once("\n```") {
        let (info, body) = behind.split_once('\n').expect("a fence ends its line");
        let end = if body.starts_with("```") { 0 } else { body.find("\n```").expect("a block is closed") + 1 };
        blocks.push((info, &body[..end]));
        rest = &body[end + 3..];
    }
    blocks
}

/// The commands of a console block, each with what it prints. A line that ends in `\` goes on.
fn commands(block: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    let mut goes_on = false;
    for line in block.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (_, Some((command, _))) if goes_on => *command += line,
            (Some(command), _) => commands.push((command.to_owned(), String::new())),
            (None, Some((_, output))) => *output += &format!("{line}\n"),
            (None, None) => panic!("a console block begins with a command: {line}"),
        }
        goes_on = line.ends_with('\\');
        if goes_on && let Some((command, _)) = commands.last_mut() {
            command.pop();
        }
    }
    commands
}

fn needs_no_network(command: &str) -> bool {
    command.starts_with("exeat check ") || command.starts_with("exeat lint ")
}

#[tokio::test]
async fn examples_print_what_the_readme_says() {
    let dir = TempDir::new().unwrap();
    let bin = TempDir::new().unwrap();
    std::os::unix::fs::symlink(binary(), bin.path().join("exeat")).unwrap();
    let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").unwrap());
    let mut run = 0;
    for (info, body) in blocks(README) {
        if let Some(name) = info.strip_prefix("toml ") {
            std::fs::write(dir.path().join(name), body).unwrap();
        }
        let commands = if info == "console" { commands(body) } else { Vec::new() };
        for (command, expected) in commands.into_iter().filter(|(command, _)| needs_no_network(command)) {
            let output = Cmd::new("sh").args(["-c", &command]).dir(dir.path()).env("PATH", &path).run().await;
            assert_eq!(output.stdout, expected, "{command}\n{}", output.stderr);
            run += 1;
        }
    }
    assert!(run >= 6, "only {run} examples were run");
}

#[tokio::test]
async fn every_file_of_the_readme_is_clean_but_the_one_that_shows_problems() {
    let dir = TempDir::new().unwrap();
    let files = blocks(README).into_iter().filter_map(|(info, body)| Some((info.strip_prefix("toml ")?, body)));
    for (name, body) in files.filter(|(name, _)| *name != "typo.toml") {
        std::fs::write(dir.path().join(name), body).unwrap();
        let output = exeat(&["lint", name]).dir(dir.path()).run().await;
        assert_eq!((output.code, output.stdout.as_str()), (Some(0), ""), "{name}");
    }
}

#[tokio::test]
async fn every_command_is_listed() {
    let help = exeat(&["--help"]).run().await.success();
    let (_, list) = help.split_once("Commands:\n").expect("the help lists commands");
    let names = list.lines().map_while(|line| line.trim().split(' ').next().filter(|name| !name.is_empty()));
    let names: Vec<&str> = names.filter(|name| *name != "help").collect();
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        assert!(README.contains(&format!("| `exeat {name} ")), "{name}");
    }
}

/// The words between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[tokio::test]
async fn every_metric_and_reason_is_listed_and_no_other() {
    let gateway = Gateway::setup()
        .allow(&["https://docs.example.test/mcp"])
        .mcp_server("docs", "https://docs.example.test/mcp", &[("Authorization", "${DOCS}")])
        .bind("DOCS", "Bearer secret")
        .set("bindings", "MINTED", "{ command = [\"true\"] }")
        .start()
        .await;
    let text = gateway.admin_get("/metrics").await.text();
    let served: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let listed: BTreeSet<&str> = quoted(README).filter(|word| word.starts_with("exeat_")).collect();
    assert_eq!(listed, served);
    let reasons: BTreeSet<&str> =
        text.lines().filter_map(|line| line.split_once("reason=\"")?.1.split('"').next()).collect();
    let (_, table) = README.split_once("### Reasons").expect("a section about reasons");
    let (table, _) = table.split_once("### Metrics").expect("the section behind it");
    let rows = table.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    assert_eq!(rows.flat_map(quoted).collect::<BTreeSet<_>>(), reasons);
}

#[test]
fn links_lead_somewhere() {
    for (name, document) in [
        ("README.md", README),
        ("ARCHITECTURE.md", ARCHITECTURE),
        ("CONTRIBUTING.md", CONTRIBUTING),
        ("CHANGELOG.md", CHANGELOG),
    ] {
        for link in document.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap();
            let inside = !link.contains("://") && !path.is_empty();
            assert!(!inside || root().join(path).exists(), "{name}: {link}");
        }
    }
}

/// All Rust sources below a folder, one behind the other.
fn sources(dir: &Path, text: &mut String) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            *text += &std::fs::read_to_string(path).unwrap();
        }
    }
}

#[test]
fn every_test_that_is_named_exists() {
    let mut text = String::new();
    ["policy", "proxy", "tests"].iter().for_each(|crate_| sources(&root().join(crate_), &mut text));
    let is_test = |word: &&str| {
        word.matches('_').count() >= 3 && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    let named: Vec<&str> = quoted(ARCHITECTURE).chain(quoted(CONTRIBUTING)).filter(is_test).collect();
    assert!(named.len() >= 10, "{named:?}");
    for name in named {
        assert!(text.contains(&format!("fn {name}(")), "{name}");
    }
}
