//! Events keep to the published schema, and say nothing that is not for them.

use exeat_policy::host::Host;
use exeat_policy::target::{Authority, Target};
use exeat_policy::{ListKind, Rule, RuleRef};
use serde_json::{Value, json};

use super::event::Kind;
use super::*;
use crate::client::Address;

const POLICY: PolicyView<'static> = PolicyView {
    digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    generation: 3,
    mode: "enforce",
};

/// The line of an event, which has to keep to the schema.
fn line(event: &Event<'_>) -> Value {
    let journal = Journal::fleeting(Metrics::new().unwrap());
    journal.write(&Sequence::begin("a"), event, Need::After, Instant::now());
    let (lines, _) = journal.feed().follow();
    let text = std::str::from_utf8(&lines[0]).unwrap();
    assert_eq!(text.find('\n'), Some(text.len() - 1));
    let line: Value = serde_json::from_str(text).unwrap();
    let schema = serde_json::from_str(include_str!("../../../config/schemas/event.v1.schema.json")).unwrap();
    let schema = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
    let errors: Vec<String> = schema.iter_errors(&line).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{line}: {errors:?}");
    // Every member is one that the schema describes.
    let described: Value = serde_json::from_str(include_str!("../../../config/schemas/event.v1.schema.json")).unwrap();
    for name in line.as_object().unwrap().keys() {
        assert!(described["properties"].get(name).is_some(), "{name} is not described");
    }
    line
}

fn client() -> Client {
    Client { address: Address::Tcp("192.0.2.7:1234".parse().unwrap()), user: Some("agent".into()), account: None }
}

fn record<'a>(client: &'a Client, target: AskedFor<'a>) -> Record<'a> {
    Record {
        entry: Entry::Forward,
        client,
        method: "GET",
        target,
        outcome: Outcome::Allow,
        reason: Reason::Allowed,
        rule: None,
        policy: POLICY,
        server: None,
        injected: &[],
        upstream: None,
        tunnel: None,
        detail: "",
    }
}

#[test]
fn a_decision_has_all_that_is_known_of_it() {
    let client = client();
    let target = Target::parse("https://api.test:8443/a%20b?token=s3cret").unwrap();
    let rule = Rule { pattern: "*.test".into(), file: "a \"b\".toml".into(), line: 2, column: 5 };
    let rule = RuleRef { layer: "agent", layer_index: 0, list: ListKind::Allowed, index: 0, number: 0, rule: &rule };
    let injected = [http::header::AUTHORIZATION];
    let record = Record {
        rule: Some(rule),
        server: Some("docs"),
        injected: &injected,
        upstream: Some("[2001:db8::1]:8443".parse().unwrap()),
        detail: "in detail\n\"so\"",
        ..record(&client, AskedFor::Url(&target))
    };
    let line = line(&Event::from(&record));
    for (member, expected) in [
        ("kind", json!("decision")),
        ("entry", json!("forward")),
        ("method", json!("GET")),
        ("verdict", json!("allow")),
        ("reason", json!("allowed")),
        ("target", json!({ "scheme": "https", "host": "api.test", "port": 8443, "path": "/a%20b", "query_bytes": 12 })),
        (
            "rule",
            json!({ "layer": "agent", "list": "allowed", "pattern": "*.test", "file": "a \"b\".toml", "line": 2, "column": 5 }),
        ),
        ("policy", json!({ "digest": POLICY.digest, "generation": 3, "mode": "enforce" })),
        ("server", json!("docs")),
        ("injected", json!(["authorization"])),
        ("addresses", json!({ "client": "tcp 192.0.2.7:1234", "upstream": "[2001:db8::1]:8443" })),
        ("user", json!("agent")),
        ("detail", json!("in detail\n\"so\"")),
        ("provenance", json!("wire_observed")),
        ("limitations", json!([])),
    ] {
        assert_eq!(line[member], expected, "{member}");
    }
    assert!(!line.to_string().contains("s3cret"));
}

#[test]
fn what_was_asked_for_is_shown_for_what_it_is() {
    let client = client();
    let authority = Authority::parse("[2001:db8::1]:443").unwrap();
    let (name, text) = (Host::parse("a.test").unwrap(), "…@a\"b");
    for (asked, expected, limitations) in [
        (
            AskedFor::Authority(&authority),
            json!({ "host": "2001:db8::1", "port": 443 }),
            json!(["tunnel_content_not_observed"]),
        ),
        (AskedFor::Name(&name), json!({ "host": "a.test" }), json!([])),
        (AskedFor::Shown(&text), json!({ "shown": "…@a\"b" }), json!(["target_not_read"])),
    ] {
        let tunnel = matches!(asked, AskedFor::Authority(_)).then_some(TunnelKind::Blind);
        let line = line(&Event::from(&Record { tunnel, ..record(&client, asked) }));
        assert_eq!((&line["target"], &line["limitations"]), (&expected, &limitations));
    }
}

#[test]
fn what_concerns_the_gateway_itself_says_little() {
    for kind in [Kind::SessionStarted, Kind::PolicyLoaded, Kind::PolicyRejected, Kind::SessionEnded] {
        let line = line(&Event { policy: Some(POLICY), ..Event::of(kind) });
        assert_eq!((line["provenance"].as_str(), line["sequence"].as_u64()), (Some("derived"), Some(1)));
    }
}
