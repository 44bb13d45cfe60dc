//! What comes with the commands: schemas, completions, manual pages, hooks and actions.

use std::path::Path;

use exeat_tests::gateway::{exeat, exeat_in, write_files};
use exeat_tests::prelude::*;
use serde_json::Value;
use tempfile::TempDir;

// --- schema, completions, man -------------------------------------------------------------------------------------------

#[tokio::test]
async fn schemas_are_printed_as_they_ship() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/schemas");
    for (of, file) in [("manifest", "agent.v1"), ("config", "exeat.v1"), ("event", "event.v1")] {
        let printed = exeat_in(&[], &["schema", of], "").await.success();
        assert_eq!(printed, std::fs::read_to_string(config.join(format!("{file}.schema.json"))).unwrap());
        serde_json::from_str::<Value>(&printed).unwrap();
    }
}

/// The commands that the help lists.
async fn commands() -> Vec<String> {
    let help = exeat_in(&[], &["--help"], "").await.success();
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let names = list.lines().map_while(|line| line.trim().split(' ').next().filter(|name| !name.is_empty()));
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[tokio::test]
async fn every_command_has_a_page_and_completions() {
    let commands = commands().await;
    assert!(commands.len() >= 12, "{commands:?}");
    let dir = TempDir::new().unwrap();
    exeat(&["man", "--out", "pages"]).dir(dir.path()).run().await.success();
    let whole = exeat_in(&[], &["man"], "").await.success();
    for command in &commands {
        let page = exeat_in(&[], &["man", command], "").await.success();
        assert!(page.contains(".SH NAME") && page.contains(&format!("exeat\\-{command}")), "{command}: {page}");
        let file = dir.path().join(format!("pages/exeat-{command}.1"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), page, "{command}");
        assert!(whole.contains(&format!("exeat\\-{command}(1)")), "{command}");
        let long = exeat_in(&[], &[command.as_str(), "--help"], "").await.success();
        let options = long.split_whitespace().filter(|word| word.starts_with("--"));
        for option in options.map(|word| word.trim_end_matches([',', '.', ':', ')', ';'])) {
            let name = option.split(['=', '<', '[']).next().unwrap().replace('-', "\\-");
            assert!(page.contains(&name) || option == "--", "{command}: {option}");
        }
    }
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = exeat_in(&[], &["completions", shell], "").await.success();
        for word in commands.iter().map(String::as_str).chain(["fail-on", "explain"]) {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let bash = exeat_in(&[], &["completions", "bash"], "").await.success();
    write_files(dir.path(), &[("exeat.bash", &bash)]);
    let script =
        "source exeat.bash; COMP_WORDS=(exeat repl); COMP_CWORD=1; _exeat exeat repl exeat; echo ${COMPREPLY[@]}";
    let completed = Cmd::new("bash").args(["-c", script]).dir(dir.path()).run().await.success();
    assert_eq!(completed.trim(), "replay");
}

// --- hooks --------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn the_definitions_of_hooks_and_actions_name_commands_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let commands = commands().await;
    for (path, least) in
        [(".pre-commit-hooks.yaml", 2), (".github/actions/lint/action.yml", 1), (".github/actions/test/action.yml", 1)]
    {
        let text = std::fs::read_to_string(root.join(path)).unwrap();
        // The reader of manifests says whether it is YAML; that it is no manifest is as it should be. A list at the
        // root is put under a key.
        let indented: String = text.lines().map(|line| format!("  {line}\n")).collect();
        let output =
            exeat_in(&[("x.yaml", &format!("name: x\nenvironments:\n{indented}"))], &["lint", "--json", "x.yaml"], "")
                .await;
        assert!(output.json_lines().iter().all(|problem| problem["severity"] != "error"), "{path}: {output:#?}");
        let named: Vec<&str> = text
            .match_indices("exeat ")
            .filter_map(|(at, _)| text[at + "exeat ".len()..].split([' ', '\n', '"']).next())
            .filter(|word| {
                word.bytes().all(|byte| byte.is_ascii_lowercase()) && commands.iter().any(|name| name == word)
            })
            .collect();
        assert!(named.len() >= least, "{path}: {named:?}");
    }
}
