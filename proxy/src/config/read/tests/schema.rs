//! The published schema of the config, held against the reader: an editor that knows it neither marks what loads nor
//! misses a key that does not.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::shipped::{known_keys, with_examples};
use super::*;

const SCHEMA: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../config/schemas/exeat.v1.schema.json"));

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

fn validator() -> jsonschema::Validator {
    jsonschema::draft7::new(&schema()).unwrap()
}

/// Whether the reader takes a config, given as JSON.
fn is_read(config: &Value) -> bool {
    let keys = config.as_object().unwrap().iter().map(|(key, value)| format!("{key} = {}\n", toml_of(value)));
    let text: String = keys.collect();
    Config::read(&Source::new("exeat.toml", text)).0.is_some()
}

/// A value as TOML on one line. A string is written alike in both.
fn toml_of(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(toml_of).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| format!("{key:?} = {}", toml_of(value)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// Every key of the schema with its own schema: `section.key`, or `key` for a section that is one table of names.
fn keys() -> Vec<(Vec<String>, Value)> {
    let mut keys = Vec::new();
    for (section, of) in schema()["properties"].as_object().unwrap() {
        match of["properties"].as_object() {
            None => keys.push((vec![section.clone()], of.clone())),
            Some(properties) => {
                let key = |(key, of): (&String, &Value)| (vec![section.clone(), key.clone()], of.clone());
                keys.extend(properties.iter().map(key));
            }
        }
    }
    keys
}

/// A config with one key.
fn config(path: &[String], value: Value) -> Value {
    path.iter().rev().fold(value, |value, key| Value::Object(Map::from_iter([(key.clone(), value)])))
}

#[test]
fn the_shipped_config_and_its_examples_keep_to_it() {
    let config: Value = toml::from_str(&with_examples()).unwrap();
    let errors: Vec<String> = validator().iter_errors(&config).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn it_knows_the_keys_that_the_reader_knows() {
    let schema = schema();
    let mut listed = BTreeSet::new();
    let mut list = |prefix: &str, of: &Value| {
        listed.extend(of["properties"].as_object().unwrap().keys().map(|key| format!("{prefix}.{key}")));
    };
    for (section, of) in schema["properties"].as_object().unwrap() {
        match section.as_str() {
            "bindings" => list(section, &schema["definitions"]["binding"]),
            "catalog" => list(section, &of["additionalProperties"]),
            "inject" => list(section, &of["items"]),
            "mcp" => [of, &of["additionalProperties"]].into_iter().for_each(|of| list(section, of)),
            _ => list(section, of),
        }
    }
    list("listen.auth", &schema["properties"]["listen"]["properties"]["auth"]);
    list("bindings.oauth", &schema["definitions"]["oauth"]);
    let known = known_keys();
    let missing: Vec<_> = known.difference(&listed).collect();
    let unknown: Vec<_> = listed.difference(&known).filter(|key| *key != "listen.auth").collect();
    assert!(missing.is_empty() && unknown.is_empty(), "missing in the schema: {missing:?}; not read: {unknown:?}");
}

#[test]
fn both_take_its_examples() {
    let validator = validator();
    for (path, of) in keys() {
        for example in of["examples"].as_array().into_iter().flatten() {
            let config = config(&path, example.clone());
            assert!(validator.is_valid(&config), "the schema refuses its own example {config}");
            assert!(is_read(&config), "the reader refuses the schema's example {config}");
        }
    }
}

#[test]
fn what_the_schema_refuses_the_reader_refuses() {
    let validator = validator();
    let values = [
        json!(true),
        json!(-1),
        json!(0),
        json!(1.5),
        json!(70_000),
        json!(2_000_000),
        json!(""),
        json!("odd"),
        json!("10"),
        json!("10 s"),
        json!([]),
        json!([1]),
        json!([""]),
        json!({}),
        json!({ "odd": 1 }),
        json!([{ "url": "https://a.test/" }]),
        json!([{ "url": "https://a.test/", "headers": {} }]),
        json!({ "A": { "env": "A", "file": "a" } }),
        json!({ "A": {} }),
        json!({ "A": { "env": "A", "odd": 1 } }),
        json!({ "a b": { "env": "A" } }),
        json!({ "a": { "url": "ftp://a.test/" } }),
        json!({ "a": { "auth_mode": "none" } }),
    ];
    let mut refused = 0;
    for (path, _) in keys() {
        for value in &values {
            let config = config(&path, value.clone());
            if !validator.is_valid(&config) {
                refused += 1;
                assert!(!is_read(&config), "the schema refuses {config}, and the reader takes it");
            }
        }
    }
    assert!(refused > 300, "{refused}");
}

#[test]
fn neither_takes_an_unknown_key() {
    let validator = validator();
    for section in schema()["properties"].as_object().unwrap().keys() {
        let config = match section.as_str() {
            "inject" => json!({ "inject": [{ "url": "https://a.test/", "headers": { "X": "1" }, "odd": 1 }] }),
            "catalog" => json!({ "catalog": { "a": { "url": "https://a.test/", "odd": 1 } } }),
            "bindings" => json!({ "bindings": { "A": { "env": "A", "odd": 1 } } }),
            _ => json!({ section: { "odd": 1 } }),
        };
        assert!(!validator.is_valid(&config) && !is_read(&config), "{config}");
    }
    let config = json!({ "odd": {} });
    assert!(!validator.is_valid(&config) && !is_read(&config));
}
