//! Every case of `tests/data/policy-cases.jsonl` through the library.

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on says so")]

use std::sync::Arc;

use exeat_policy::{Authority, DefaultVerdict, Layer, Pattern, Policy, Rule, Target};
use serde_json::Value;

const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/policy-cases.jsonl");

fn layers(case: &Value) -> Vec<Layer> {
    let rules = |layer: &Value, list: &str| -> Vec<(Pattern, Rule)> {
        let patterns = layer[list].as_array().expect("a list of patterns");
        let rule = |(line, pattern): (u32, &Value)| {
            let pattern = pattern.as_str().expect("a pattern");
            let rule = Rule { pattern: pattern.into(), file: "case".into(), line, column: 1 };
            (Pattern::parse(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}")), rule)
        };
        (1..).zip(patterns).map(rule).collect()
    };
    let layers = case["layers"].as_array().expect("layers");
    let layer = |(index, layer): (usize, &Value)| Layer {
        name: Arc::from(format!("layer {index}")),
        allowed: rules(layer, "allowed"),
        blocked: rules(layer, "blocked"),
    };
    layers.iter().enumerate().map(layer).collect()
}

/// The verdict of one case, and what else is to be seen of it.
fn verdict(case: &Value) -> (&'static str, String) {
    if let Some(pattern) = case["pattern"].as_str() {
        return match Pattern::parse(pattern) {
            Ok(pattern) => ("ok", pattern.to_string()),
            Err(error) => ("error", format!("{error}; {}", error.help)),
        };
    }
    let policy = Policy::build(layers(case), DefaultVerdict::Allow).expect("a small policy");
    if let Some(url) = case["url"].as_str() {
        return match Target::parse(url) {
            Ok(target) => {
                let decision = policy.decide(&target);
                (decision.verdict.as_str(), format!("{decision:?}"))
            }
            Err(error) => ("deny", error.to_string()),
        };
    }
    let authority = case["authority"].as_str().expect("a pattern, url or authority");
    match Authority::parse(authority) {
        Ok(authority) => {
            let decision = policy.decide_authority(&authority);
            (decision.verdict.as_str(), format!("{decision:?}"))
        }
        Err(error) => ("deny", error.to_string()),
    }
}

#[test]
fn every_case_has_its_verdict() {
    let text = std::fs::read_to_string(CASES).expect("the cases");
    let cases: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a case")).collect();
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let (verdict, details) = verdict(case);
            (case["expect"] != verdict).then(|| format!("{case}\n  {verdict}: {details}"))
        })
        .collect();
    assert!(failures.is_empty(), "{} of {} cases fail:\n{}", failures.len(), cases.len(), failures.join("\n"));
    assert!(cases.len() >= 127, "only {} cases are left", cases.len());
}
