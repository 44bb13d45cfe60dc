//! The config that ships, which is also the manual: it says what the reader does.

use std::collections::BTreeSet;

use exeat_policy::guard::{AddressClass, Grants};

use super::*;

const SHIPPED: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../config/exeat.toml"));

/// The shipped config with its examples in force: lines that begin with `#` and no space.
pub(super) fn with_examples() -> String {
    let line = |line: &'static str| match line.strip_prefix('#') {
        Some(example) if !example.is_empty() && !example.starts_with(' ') => example,
        _ => line,
    };
    SHIPPED.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_shipped_config_is_the_default() {
    assert_eq!(format!("{:?}", good(SHIPPED)), format!("{:?}", Config::default()));
}

#[test]
fn its_examples_load() {
    let config = good(&with_examples());
    assert_eq!(config.bindings.len(), 5);
    assert!(config.intercept.ca.is_some());
    assert_eq!(config.catalog["linear"].auth_mode, Some(AuthMode::OAuth));
    assert_eq!(config.inject.len(), 1);
    assert!(!config.mcp.servers["linear"].tools.permits("delete_issue"));
    assert!(config.listen.unix.is_some() && config.listen.tls.is_some_and(|tls| tls.client_ca.is_some()));
    assert_eq!((config.listen.auth.users.len(), config.listen.auth.tokens.len()), (1, 1));
}

/// Every section and key that the reader knows, as `section.key`, taken from what it says about a key that it does not.
pub(super) fn known_keys() -> BTreeSet<String> {
    const NONE: &str = "this-is-no-key-of-any-table";
    let known = |text: &str| -> Vec<String> {
        let (_, problems) = Config::read(&Source::new("exeat.toml", text));
        let list = problems.iter().find_map(|problem| problem.help.strip_prefix("known keys are "));
        list.unwrap_or_default().split(", ").map(|key| key.trim_matches('`').to_owned()).collect()
    };
    let mut keys = BTreeSet::new();
    for section in known(&format!("{NONE} = 1")) {
        let text = match section.as_str() {
            "bindings" => format!("bindings.A = {{ command = [\"A\"], {NONE} = 1 }}"),
            "catalog" => format!("catalog.linear = {{ url = \"https://a.example/\", {NONE} = 1 }}"),
            "inject" => {
                format!("inject = [{{ url = \"https://a.example/\", headers = {{ X = \"1\" }}, {NONE} = 1 }}]")
            }
            _ => format!("{section}.{NONE} = 1"),
        };
        keys.extend(known(&text).into_iter().map(|key| format!("{section}.{key}")));
    }
    let server = known(&format!("mcp.linear = {{ {NONE} = 1 }}"));
    keys.extend(server.into_iter().map(|key| format!("mcp.{key}")));
    let auth = known(&format!("listen.auth = {{ users = {{ a = {{ env = \"A\" }} }}, {NONE} = 1 }}"));
    keys.extend(auth.into_iter().map(|key| format!("listen.auth.{key}")));
    for grant in ["client_credentials", "refresh_token"] {
        let oauth = known(&format!("[bindings.A.oauth]\ngrant = \"{grant}\"\n{NONE} = 1"));
        keys.extend(oauth.into_iter().map(|key| format!("bindings.oauth.{key}")));
    }
    keys
}

/// Every key that a text writes, as `section.key`; in a binding and an entry of the catalog, the name is left out.
/// `[listen.auth]` is a section in a section, and so is the `oauth` of a binding.
fn written_keys(text: &str) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let mut section = "";
    for line in text.lines() {
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_matches(['[', ']']);
            section = match header {
                "listen.auth" => header,
                _ if header.ends_with(".oauth") => "bindings.oauth",
                _ => header.split('.').next().unwrap(),
            };
            keys.extend((section == "bindings.oauth").then(|| "bindings.oauth".to_owned()));
            keys.extend((section == header && header.contains('.')).then(|| header.to_owned()));
        } else if let Some((key, value)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            if section == "bindings" {
                let words = value.split([' ', ',']).collect::<Vec<_>>();
                let names = words.windows(2).filter(|pair| pair[1] == "=").map(|pair| format!("bindings.{}", pair[0]));
                keys.extend(names);
            } else {
                keys.insert(format!("{section}.{key}"));
            }
        }
    }
    keys
}

#[test]
fn it_lists_every_class_that_can_be_granted() {
    for class in AddressClass::ALL {
        let grantable = Grants::default().add(class.as_str()).is_ok();
        assert_eq!(SHIPPED.contains(&format!("\"{class}\"")), grantable, "{class}");
    }
}

#[test]
fn it_writes_every_key_that_is_known() {
    let known = known_keys();
    assert!(known.len() > 20 && known.contains("listen.proxy") && known.contains("catalog.auth_mode"), "{known:?}");
    assert_eq!(written_keys(&with_examples()), known);
}
