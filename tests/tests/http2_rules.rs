//! The rules of HTTP/2, one by one: the table in `data/http2-rules.toml`, driven frame by frame by a Python peer through
//! every way in that speaks HTTP/2.
//!
//! Each case says which answer the RFC has for it. Beyond that a refusal has to be taken down once, with its reason, and
//! upstream has to see the requests that are none, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use exeat_tests::peers;
use exeat_tests::prelude::*;
use serde_json::{Value, json};

const CASES: &str = include_str!("../data/http2-rules.toml");
const HOST: &str = "api.example.test";
const PROXY: &str = "proxy.example.test";
const REASONS: [&str; 5] = ["bad_request", "flood", "head_too_large", "head_timeout", "stream_limit"];

/// Drives every case through one way in, and compares answers, records and requests.
async fn drive(mode: &str, gateway: &Gateway, origin: &Origin, ca: &Path) {
    let table: Value = toml::from_str(CASES).unwrap();
    let cases = table["case"].as_array().unwrap();
    assert!(cases.len() >= 140, "{} cases", cases.len());
    let scheme = origin.url(HOST, "").split_once(':').unwrap().0.to_owned();
    let driver = Cmd::new(peers::python()).arg(peers::script("http2_rules.py")).arg(mode);
    let driver = driver.arg(gateway.proxy().to_string()).arg(ca).arg(origin.authority(HOST)).arg(scheme);
    let output = driver.input(serde_json::to_vec(cases).unwrap()).run().await;
    let results = output.json_lines();
    assert_eq!(results.len(), cases.len(), "{output:?}");
    let wrong: Vec<String> = cases
        .iter()
        .zip(&results)
        .filter(|(_, result)| result["passed"] != json!(true))
        .map(|(case, result)| {
            format!("{} {}: expected {}, saw {}", case["section"], case["id"], case["expect"], result["seen"])
        })
        .collect();
    assert!(wrong.is_empty(), "{mode}: {} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));

    // Where more than one answer is right the records follow the answer; those cases say "any".
    let mut expected: BTreeMap<&str, f64> = REASONS.map(|reason| (reason, 0.0)).into();
    let mut spare = 0.0;
    for case in cases {
        match case["reason"].as_str() {
            Some("any") => spare += 1.0,
            Some(reason) => *expected.get_mut(reason).unwrap() += 1.0,
            None => {}
        }
    }
    let entry = if mode == "tunnel" { "intercept" } else { "forward" };
    let metrics = gateway.metrics().await;
    for (reason, count) in expected {
        let found = metrics.sum("exeat_requests_total", &[("entry", entry), ("reason", reason)]);
        assert!((count..=count + spare).contains(&found), "{mode}: {reason}: expected {count}, found {found}");
    }

    let asked: BTreeSet<String> = origin.requests().iter().map(|request| request.target.clone()).collect();
    for case in cases {
        let path = format!("/v1/{}", case["id"].as_str().unwrap());
        let expected = match &case["upstream"] {
            Value::Bool(expected) => *expected,
            Value::String(_) => continue,
            _ => false,
        };
        assert_eq!(asked.contains(&path), expected, "{mode}: upstream and {path}");
    }
    let panics: Vec<_> = gateway.lines().into_iter().filter(|line| line.contains("panicked")).collect();
    assert!(panics.is_empty(), "{panics:#?}");
}

#[tokio::test]
async fn with_prior_knowledge() {
    let origin = Origin::http(Site::default()).await;
    let gateway = Gateway::setup().names(&[HOST]).allow(&[origin.url(HOST, "/v1/")]).start().await;
    drive("plain", &gateway, &origin, gateway.ca()).await;
    gateway.await_metric("exeat_connections_active", &[], 0.0).await;
}

#[tokio::test]
async fn behind_alpn_on_a_tls_port() {
    let ca = TestCa::new();
    let origin = Origin::http(Site::default()).await;
    let setup = Gateway::setup().names(&[HOST]).allow(&[origin.url(HOST, "/v1/")]);
    let gateway = setup.listen_tls(&ca.leaf(&[PROXY])).start().await;
    drive("tls", &gateway, &origin, &ca.pem_path()).await;
    gateway.await_metric("exeat_connections_active", &[], 0.0).await;
}

#[tokio::test]
async fn inside_an_intercepted_tunnel() {
    let ca = TestCa::new();
    let origin = Origin::h2(Site::default(), &ca.leaf(&[HOST])).await;
    let setup = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[origin.url(HOST, "/v1/")]);
    let gateway = setup.start().await;
    drive("tunnel", &gateway, &origin, gateway.ca()).await;
    gateway.await_metric("exeat_connections_active", &[], 0.0).await;
}
