//! The typed reader and the published JSON Schema, held against each other.
//!
//! Manifests are made from a fixed seed, and each is changed in one place. For every one of them the reader's verdict
//! in the matters the schema speaks of has to be the schema's. What the reader refuses beyond the schema is listed in
//! [`BEYOND`], code by code; what it accepts beyond the schema is the older spellings, which are rewritten before the
//! schema is asked. The verdict has to be the same in JSON, YAML and TOML.
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod generate;
mod spell;

use exeat_policy::diag::{Code, Severity, Source};
use exeat_policy::doc::Format;
use exeat_policy::manifest::Manifest;
use generate::{Random, everything, manifest, mutations, older, places};
use jsonschema::Validator;
use serde_json::{Map, Value, json};

const SCHEMA: &str = include_str!("../../../config/schemas/agent.v1.schema.json");

/// The codes by which the reader says what the schema says.
const WITHIN: &[Code] = &[
    Code::UnknownKey,
    Code::WrongType,
    Code::MissingKey,
    Code::BadValue,
    Code::AgentName,
    Code::InstructionsTwice,
    Code::TooManyItems,
];

/// The codes by which the reader refuses what the schema lets pass.
const BEYOND: &[Code] = &[
    Code::TwoSpellings,
    Code::Pattern,
    Code::Placeholder,
    Code::LiteralCredential,
    Code::ServerIncomplete,
    Code::ServerUrl,
    Code::CatalogReference,
    Code::CatalogConflict,
    Code::HeaderName,
    Code::HeaderValue,
    Code::HeaderTwice,
    Code::CapabilityName,
    Code::CapabilityTwice,
];

fn schema() -> Validator {
    let schema: Value = serde_json::from_str(SCHEMA).expect("the schema is JSON");
    jsonschema::draft4::new(&schema).expect("the schema is a schema")
}

/// The error codes a text gets, sorted; a manifest comes with them exactly when there are none.
fn errors(text: String, format: Format) -> Vec<&'static str> {
    let (manifest, diagnostics) = Manifest::read(&Source::new("agent", text), format);
    let errors = diagnostics.iter().filter(|diagnostic| diagnostic.severity() == Severity::Error);
    let mut codes: Vec<_> = errors
        .map(|diagnostic| {
            let code = diagnostic.code;
            assert!(WITHIN.contains(&code) || BEYOND.contains(&code), "{diagnostic}");
            code.as_str()
        })
        .collect();
    assert_eq!(manifest.is_some(), codes.is_empty());
    codes.sort_unstable();
    codes
}

/// The manifest in today's spelling; a key that is written in both spellings keeps the newer one.
fn today(manifest: &Value) -> Value {
    fn rename(map: &mut Map<String, Value>, key: &str) {
        if let Some(value) = map.remove(older(key)) {
            map.entry(key).or_insert(value);
        }
    }
    let mut manifest = manifest.clone();
    let Value::Object(map) = &mut manifest else { return manifest };
    rename(map, "instructions");
    rename(map, "mcpServers");
    for server in map.get_mut("mcpServers").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        let Value::Object(server) = server else { continue };
        rename(server, "actsAs");
        let mode = server.get("protocol_mode").and_then(Value::as_str);
        if matches!(mode, Some("legacy" | "stable" | "rc")) {
            server["protocol_mode"] = "auto".into();
        }
    }
    manifest
}

/// Counts of what was compared, so that the test shows it saw every kind.
#[derive(Debug, Default)]
struct Tally {
    manifests: usize,
    accepted: usize,
    refused: usize,
    beyond: usize,
    as_toml: usize,
}

impl Tally {
    fn compare(&mut self, schema: &Validator, manifest: &Value) {
        let codes = errors(spell::json(manifest), Format::Json);
        let within = codes.iter().any(|code| WITHIN.iter().any(|within| within.as_str() == *code));
        let accepted = schema.is_valid(&today(manifest));
        assert_eq!(accepted, !within, "schema accepts: {accepted}, reader: {codes:?}\n{manifest:#}");
        assert_eq!(errors(spell::yaml(manifest), Format::Yaml), codes, "{}", spell::yaml(manifest));
        if let Some(toml) = spell::toml(manifest) {
            assert_eq!(errors(toml.clone(), Format::Toml), codes, "{toml}");
            self.as_toml += 1;
        }
        self.manifests += 1;
        match (accepted, codes.is_empty()) {
            (true, true) => self.accepted += 1,
            (true, false) => self.beyond += 1,
            (false, _) => self.refused += 1,
        }
    }
}

#[test]
fn every_change_of_one_place_gets_the_same_verdict() {
    let (schema, full, mut tally) = (schema(), everything(), Tally::default());
    assert!(schema.is_valid(&full) && errors(spell::json(&full), Format::Json).is_empty());
    for path in places(&full) {
        for mutant in mutations(&full, &path) {
            tally.compare(&schema, &mutant);
        }
    }
    assert!(
        tally.manifests > 3000
            && tally.as_toml > 2500
            && tally.accepted > 500
            && tally.refused > 2000
            && tally.beyond > 40,
        "{tally:?}"
    );
}

#[test]
fn generated_manifests_get_the_same_verdict() {
    let (schema, mut random, mut tally) = (schema(), Random(20_260_101), Tally::default());
    for _ in 0..600 {
        let valid = manifest(&mut random);
        assert!(schema.is_valid(&valid), "{valid:#}");
        assert!(errors(spell::json(&valid), Format::Json).is_empty(), "{valid:#}");
        tally.compare(&schema, &valid);
        for _ in 0..6 {
            let path = random.pick(&places(&valid)).clone();
            let mutants = mutations(&valid, &path);
            tally.compare(&schema, random.pick(&mutants));
        }
    }
    assert!(tally.manifests == 4200 && tally.accepted > 1000 && tally.refused > 1000, "{tally:?}");
    assert!(tally.beyond > 20 && tally.as_toml > 1000, "{tally:?}");
}

#[test]
fn each_rule_beyond_the_schema_refuses_what_the_schema_accepts() {
    let server = |server: Value| json!({"name": "a", "mcpServers": {"s": server}});
    let headers = |headers: Value| server(json!({"url": "https://x.test/", "headers": headers}));
    let cases = [
        (Code::TwoSpellings, json!({"name": "a", "instructions": "", "system_prompt": ""})),
        (Code::Pattern, json!({"name": "a", "network_access": {"allowed": ["exa mple"]}})),
        (Code::Placeholder, headers(json!({"X-A": "Bearer ${A}"}))),
        (Code::LiteralCredential, headers(json!({"Authorization": "x"}))),
        (Code::ServerIncomplete, server(json!({}))),
        (Code::ServerUrl, server(json!({"url": "ftp://x.test/"}))),
        (Code::CatalogReference, server(json!({"use": "linear"}))),
        (Code::CatalogConflict, server(json!({"use": "catalog:linear", "type": "http"}))),
        (Code::HeaderName, headers(json!({"Host": "x.test"}))),
        (Code::HeaderValue, headers(json!({"X-A": "a\r\nb"}))),
        (Code::HeaderTwice, headers(json!({"X-A": "1", "x-a": "1"}))),
        (Code::CapabilityName, json!({"name": "a", "capabilities": ["mcp:linear"]})),
        (Code::CapabilityTwice, json!({"name": "a", "capabilities": ["x", "x"]})),
    ];
    let schema = schema();
    for (code, manifest) in cases {
        assert!(schema.is_valid(&today(&manifest)), "{code}");
        assert_eq!(errors(spell::json(&manifest), Format::Json), [code.as_str()], "{manifest}");
        assert!(BEYOND.contains(&code));
    }
}
