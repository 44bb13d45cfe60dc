use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::decision::{AuthorityDecision, AuthorityVerdict};
use crate::target::Authority;

pub(crate) mod generate;
mod properties;
mod reference;

/// Rules of one list, at lines counted from 1.
fn rules(patterns: &[&str]) -> Vec<(Pattern, Rule)> {
    let rule = |(line, text): (u32, &&str)| {
        let pattern = Pattern::parse(text).unwrap_or_else(|error| panic!("{text}: {error}; {}", error.help));
        (pattern, Rule { pattern: (*text).into(), file: "agent.toml".into(), line, column: 5 })
    };
    (1..).zip(patterns).map(rule).collect()
}

/// Layers named a, b, c… from the outermost in.
fn policy(layers: &[(&[&str], &[&str])], default: DefaultVerdict) -> Policy {
    let layer = |(name, (allowed, blocked)): (char, &(&[&str], &[&str]))| Layer {
        name: Arc::from(name.to_string()),
        allowed: rules(allowed),
        blocked: rules(blocked),
    };
    Policy::build(('a'..).zip(layers).map(layer).collect(), default).unwrap()
}

fn target(url: &str) -> Target {
    Target::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn decide<'p>(policy: &'p Policy, url: &str) -> (Verdict, Reason, Option<&'p str>, Option<&'p str>) {
    let decision = policy.decide(&target(url));
    (decision.verdict, decision.reason, decision.rule.map(|rule| &*rule.rule.pattern), decision.layer)
}

fn tunnel<'p>(policy: &'p Policy, authority: &str) -> AuthorityDecision<'p> {
    policy.decide_authority(&Authority::parse(authority).unwrap())
}

#[test]
fn a_decision_names_the_first_rule_of_the_deciding_layer() {
    let policy = policy(
        &[
            (&["*.example.com", "example.com"], &["https://api.example.com/x", "bad.example.com"]),
            (&[], &["bad.example.com", "https://api.example.com/"]),
            (&["other.example", "https://example.com/a", "example.com", "https://example.com/"], &[]),
        ],
        DefaultVerdict::Allow,
    );
    assert_eq!(
        decide(&policy, "https://example.com/a/b"),
        (Verdict::Allow, Reason::Allowed, Some("https://example.com/a"), Some("c"))
    );
    assert_eq!(
        decide(&policy, "https://example.com/b"),
        (Verdict::Allow, Reason::Allowed, Some("example.com"), Some("c"))
    );
    assert_eq!(
        decide(&policy, "https://bad.example.com/"),
        (Verdict::Deny, Reason::Blocked, Some("bad.example.com"), Some("a"))
    );
    assert_eq!(
        decide(&policy, "https://api.example.com/y"),
        (Verdict::Deny, Reason::Blocked, Some("https://api.example.com/"), Some("b"))
    );
    assert_eq!(
        decide(&policy, "https://api.example.com/xyz"),
        (Verdict::Deny, Reason::Blocked, Some("https://api.example.com/x"), Some("a"))
    );
    assert_eq!(decide(&policy, "https://else.test/"), (Verdict::Deny, Reason::NotAllowed, None, Some("a")));
    assert_eq!(decide(&policy, "https://sub.example.com/"), (Verdict::Deny, Reason::NotAllowed, None, Some("c")));
}

#[test]
fn rules_are_numbered_layer_by_layer() {
    let policy =
        policy(&[(&["a.test", "b.test"], &["c.test"]), (&[], &[]), (&["d.test"], &["e.test"])], DefaultVerdict::Deny);
    let all: Vec<_> = policy
        .rules()
        .map(|rule| (rule.number, rule.layer, rule.layer_index, rule.list.as_str(), rule.index, &*rule.rule.pattern))
        .collect();
    assert_eq!(
        all,
        [
            (0, "a", 0, "allowed", 0, "a.test"),
            (1, "a", 0, "allowed", 1, "b.test"),
            (2, "a", 0, "blocked", 0, "c.test"),
            (3, "c", 2, "allowed", 0, "d.test"),
            (4, "c", 2, "blocked", 0, "e.test"),
        ]
    );
    assert_eq!(policy.rule_count(), 5);
    assert_eq!(policy.layers().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(policy.rule(5).is_none() && policy.restricts());
    assert_eq!(policy.default_verdict(), DefaultVerdict::Deny);
}

#[test]
fn the_default_decides_only_where_no_layer_restricts() {
    for (default, verdict, reason) in [
        (DefaultVerdict::Allow, Verdict::Allow, Reason::DefaultAllow),
        (DefaultVerdict::Deny, Verdict::Deny, Reason::DefaultDeny),
    ] {
        let open = policy(&[(&[], &["evil.test"])], default);
        assert!(!open.restricts());
        assert_eq!(decide(&open, "https://good.test/"), (verdict, reason, None, None));
        assert_eq!(decide(&open, "https://evil.test/").1, Reason::Blocked);
        assert_eq!(decide(&policy(&[], default), "https://good.test/"), (verdict, reason, None, None));
        let closed = policy(&[(&["good.test"], &[])], default);
        assert_eq!(decide(&closed, "https://good.test/").0, Verdict::Allow);
        assert_eq!(decide(&closed, "https://other.test/").1, Reason::NotAllowed);
    }
}

#[test]
fn an_embedded_address_is_blocked_with_the_address_that_embeds_it() {
    let blocks_v4 = policy(&[(&[], &["10.0.0.1", "https://10.0.0.2/x"])], DefaultVerdict::Allow);
    for host in ["10.0.0.1", "[::ffff:10.0.0.1]", "[::10.0.0.1]", "[64:ff9b::10.0.0.1]", "[2002:a00:1::1]"] {
        assert_eq!(decide(&blocks_v4, &format!("http://{host}/")).1, Reason::Blocked, "{host}");
        assert_eq!(tunnel(&blocks_v4, &format!("{host}:443")).verdict, AuthorityVerdict::Deny, "{host}");
    }
    for host in ["10.0.0.2", "[::ffff:10.0.0.2]", "[64:ff9b::10.0.0.2]"] {
        assert_eq!(decide(&blocks_v4, &format!("https://{host}/xy")).1, Reason::Blocked, "{host}");
        assert_eq!(decide(&blocks_v4, &format!("https://{host}/y")).0, Verdict::Allow, "{host}");
        assert_eq!(tunnel(&blocks_v4, &format!("{host}:443")).verdict, AuthorityVerdict::Inspect, "{host}");
        assert_eq!(tunnel(&blocks_v4, &format!("{host}:80")).verdict, AuthorityVerdict::Permit, "{host}");
    }
    let blocks_v6 = policy(&[(&[], &["64:ff9b::10.0.0.1", "http://[::ffff:10.0.0.2]/"])], DefaultVerdict::Allow);
    for url in ["http://[64:ff9b::10.0.0.1]/", "http://10.0.0.1/", "http://[::ffff:10.0.0.1]/", "http://10.0.0.2/"] {
        assert_eq!(decide(&blocks_v6, url).1, Reason::Blocked, "{url}");
    }
    let allows_v4 = policy(&[(&["10.0.0.1", "http://[::ffff:10.0.0.2]/"], &[])], DefaultVerdict::Allow);
    for (host, verdict) in [
        ("10.0.0.1", Verdict::Allow),
        ("10.0.0.2", Verdict::Allow),
        ("[::ffff:10.0.0.1]", Verdict::Allow),
        ("[::ffff:10.0.0.2]", Verdict::Allow),
        ("[64:ff9b::10.0.0.1]", Verdict::Deny),
        ("[2002:a00:1::1]", Verdict::Deny),
    ] {
        assert_eq!(decide(&allows_v4, &format!("http://{host}/")).0, verdict, "{host}");
    }
    let allows_v6 = policy(&[(&["64:ff9b::10.0.0.1"], &[])], DefaultVerdict::Allow);
    assert_eq!(decide(&allows_v6, "http://[64:ff9b::10.0.0.1]/").0, Verdict::Allow);
    assert_eq!(decide(&allows_v6, "http://10.0.0.1/").0, Verdict::Deny);
}

#[test]
fn an_escaped_rule_holds_in_its_own_readings() {
    let allows = policy(&[(&["https://git.test/projects/acme%2Fapp/"], &[])], DefaultVerdict::Allow);
    for (path, verdict) in [
        ("/projects/acme%2fapp/issues", Verdict::Allow),
        ("/projects/acme%2Fapp/a%20b", Verdict::Allow),
        ("/projects/acme/app/issues", Verdict::Deny),
        ("/projects/acme%252Fapp/issues", Verdict::Deny),
        ("/projects/acme%2Fapp/..%2fother", Verdict::Deny),
    ] {
        assert_eq!(decide(&allows, &format!("https://git.test{path}")).0, verdict, "{path}");
    }
    let blocks = policy(&[(&[], &["https://git.test/projects/acme%2Fapp/"])], DefaultVerdict::Allow);
    for (path, verdict) in [
        ("/projects/acme%2fapp/issues", Verdict::Deny),
        ("/projects/acme/app/issues", Verdict::Deny),
        ("/projects/acme%252Fapp/issues", Verdict::Deny),
        ("/projects/acme/other/", Verdict::Allow),
    ] {
        assert_eq!(decide(&blocks, &format!("https://git.test{path}")).0, verdict, "{path}");
    }
}

/// A policy, an authority, and what becomes of a tunnel to it, with the rule or the layer that the answer names.
type TunnelCase =
    (&'static [(&'static [&'static str], &'static [&'static str])], &'static str, AuthorityVerdict, &'static str);

#[test]
fn tunnels_are_measured_exactly() {
    use AuthorityVerdict::{Deny, Inspect, Permit, PermitTls};
    let cases: &[TunnelCase] = &[
        (&[], "h.test:443", Permit, ""),
        (&[(&["h.test"], &[])], "h.test:443", Permit, "h.test"),
        (&[(&["*.test"], &[])], "h.test:22", Permit, "*.test"),
        (&[(&["https://h.test/"], &[])], "h.test:443", PermitTls, "https://h.test/"),
        (&[(&["https://h.test/v1/", "https://h.test/"], &[])], "h.test:443", PermitTls, "https://h.test/"),
        (&[(&["https://h.test/"], &[])], "h.test:80", Deny, "a"),
        (&[(&["http://h.test/"], &[])], "h.test:80", Inspect, "http://h.test/"),
        (&[(&["https://h.test/v1/"], &[])], "h.test:443", Inspect, "https://h.test/v1/"),
        (&[(&["https://h.test/v1/"], &[])], "h.test:8443", Deny, "a"),
        (&[(&["http://h.test/v1/"], &[])], "h.test:80", Inspect, "http://h.test/v1/"),
        (&[(&["https://h.test/", "http://h.test:443/x"], &[])], "h.test:443", Inspect, "http://h.test:443/x"),
        (&[(&["https://h.test:80/", "http://h.test/"], &[])], "h.test:80", Permit, "https://h.test:80/"),
        (&[(&[], &["h.test"])], "h.test:443", Deny, "h.test"),
        (&[(&[], &["https://h.test/"])], "h.test:443", Deny, "https://h.test/"),
        (&[(&["http://h.test:443/x"], &["https://h.test/"])], "h.test:443", Deny, "https://h.test/"),
        (&[(&[], &["https://h.test/"])], "h.test:80", Permit, ""),
        (&[(&[], &["http://h.test/"])], "h.test:80", PermitTls, ""),
        (&[(&[], &["http://h.test/x"])], "h.test:80", Inspect, "http://h.test/x"),
        (&[(&[], &["https://h.test/x"])], "h.test:443", Inspect, "https://h.test/x"),
        (&[(&["h.test"], &["https://h.test/x"])], "h.test:443", Inspect, "https://h.test/x"),
        (&[(&["https://h.test/"], &["https://h.test/x"])], "h.test:443", Inspect, "https://h.test/x"),
        (&[(&["https://h.test/"], &["http://h.test:443/x"])], "h.test:443", PermitTls, "https://h.test/"),
        (&[(&["https://h.test/admin/x/"], &["https://h.test/admin/"])], "h.test:443", Deny, "https://h.test/admin/"),
        (&[(&["https://h.test/admin"], &["https://h.test/admin/"])], "h.test:443", Inspect, "https://h.test/admin/"),
        (&[(&["https://h.test/a%2Fb/"], &["https://h.test/a/"])], "h.test:443", Deny, "https://h.test/a/"),
        (&[(&["https://h.test/a/"], &[]), (&["https://h.test/b/"], &[])], "h.test:443", Deny, "b"),
        (&[(&["https://h.test/a/"], &[]), (&["https://h.test/a/b"], &[])], "h.test:443", Inspect, "https://h.test/a/"),
        (&[(&["https://h.test/a/b"], &[]), (&["https://h.test/a"], &[])], "h.test:443", Inspect, "https://h.test/a/b"),
        (&[(&["https://h.test/a"], &[]), (&["https://h.test/ab"], &[])], "h.test:443", Deny, "b"),
        (&[(&["https://h.test/a/"], &[]), (&["h.test"], &[])], "h.test:443", Inspect, "https://h.test/a/"),
        (&[(&["https://h.test/"], &[]), (&["h.test"], &[])], "h.test:443", PermitTls, "h.test"),
        (&[(&["https://h.test/"], &[]), (&["https://h.test/"], &[])], "h.test:443", PermitTls, "https://h.test/"),
        (&[(&["https://h.test/"], &[]), (&["other.test"], &[])], "h.test:443", Deny, "b"),
        (&[(&["https://h.test/"], &[]), (&["http://h.test:443/"], &[])], "h.test:443", Deny, "b"),
    ];
    for (layers, authority, verdict, deciding) in cases {
        let policy = policy(layers, DefaultVerdict::Allow);
        let decision = tunnel(&policy, authority);
        assert_eq!(decision.verdict, *verdict, "{layers:?} {authority}");
        let named = decision.rule.map(|rule| &*rule.rule.pattern).or(decision.layer).unwrap_or_default();
        assert_eq!(named, *deciding, "{layers:?} {authority}");
    }
    let denied = policy(&[], DefaultVerdict::Deny);
    assert_eq!(tunnel(&denied, "h.test:443").reason, Reason::DefaultDeny);
    let blocked = policy(&[(&[], &["https://h.test/x"])], DefaultVerdict::Deny);
    assert_eq!(tunnel(&blocked, "h.test:443").reason, Reason::DefaultDeny);
}

#[test]
fn the_digest_is_of_what_the_layers_say() {
    let digest = |layers: &[(&[&str], &[&str])], default| policy(layers, default).digest().to_owned();
    let first = digest(&[(&["a.test", "https://b.test/x/"], &["c.test"])], DefaultVerdict::Allow);
    assert!(first.starts_with("sha256:") && first.len() == 71, "{first}");
    for same in [
        digest(&[(&["https://b.test/x/", "a.test"], &["c.test"])], DefaultVerdict::Allow),
        digest(&[(&["A.test.", "a.test", "https://b.test:443/x/"], &["C.TEST"])], DefaultVerdict::Allow),
    ] {
        assert_eq!(same, first);
    }
    for other in [
        digest(&[(&["a.test", "https://b.test/x/"], &["c.test"])], DefaultVerdict::Deny),
        digest(&[(&["a.test", "https://b.test/x"], &["c.test"])], DefaultVerdict::Allow),
        digest(&[(&["a.test", "https://b.test/x/", "c.test"], &[])], DefaultVerdict::Allow),
        digest(&[(&["a.test", "https://b.test/x/"], &[]), (&[], &["c.test"])], DefaultVerdict::Allow),
        digest(&[(&[], &["a.test", "https://b.test/x/"]), (&["c.test"], &[])], DefaultVerdict::Allow),
        digest(&[(&["a.test", "https://b.test/x/"], &["c.test"]), (&[], &[])], DefaultVerdict::Allow),
        digest(&[], DefaultVerdict::Allow),
    ] {
        assert_ne!(other, first);
    }
    let names = ["a", "a\nallowed x.test", ""].map(|name| {
        let layer = Layer { name: name.into(), allowed: rules(&["a.test"]), blocked: Vec::new() };
        Policy::build(vec![layer], DefaultVerdict::Allow).unwrap().digest().to_owned()
    });
    assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2]);
}

#[test]
fn deep_names_and_many_ports_are_found() {
    let deep = ["a"; 60].join(".");
    let patterns: Vec<String> = (1..=2000)
        .map(|port| format!("https://h.test:{port}/{port}"))
        .chain([format!("*.{deep}.test"), "*.test".to_owned()])
        .collect();
    let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    let policy = policy(&[(&patterns, &[])], DefaultVerdict::Allow);
    for port in [1, 443, 1999, 2000] {
        assert_eq!(
            decide(&policy, &format!("https://h.test:{port}/{port}")).2,
            Some(&*format!("https://h.test:{port}/{port}"))
        );
    }
    assert_eq!(decide(&policy, &format!("https://x.{deep}.test/")).2, Some(&*format!("*.{deep}.test")));
    assert_eq!(decide(&policy, &format!("https://{deep}.x.test/")).2, Some("*.test"));
    assert_eq!(decide(&policy, "https://test/").2, Some("*.test"));
    assert_eq!(decide(&policy, "https://nottest/").1, Reason::NotAllowed);
}
