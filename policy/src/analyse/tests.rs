use proptest::prelude::*;

use super::diff::{Change, diff};
use super::explain::{Says, Walk};
use super::lint::lint;
use super::matching::{covers, matches};
use super::suggest::{Detail, Observations, Options, Suggestion};
use crate::decision::{AuthorityVerdict, ListKind, Verdict};
use crate::diag::{Code, Diagnostic, Source};
use crate::doc::Format;
use crate::manifest::Manifest;
use crate::pattern::Pattern;
use crate::policy::tests::generate::{self, Lists};
use crate::policy::{DefaultVerdict, Layer, Policy};
use crate::reason::Reason;
use crate::target::{Authority, Target};

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

fn target(url: &str) -> Target {
    Target::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn policy(allowed: &[&str], blocked: &[&str]) -> Policy {
    let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    generate::build(&[(owned(allowed), owned(blocked))], DefaultVerdict::Allow)
}

fn manifest(name: &str, (allowed, blocked): &Lists) -> Manifest {
    let list = |list: &[String]| list.iter().map(|text| format!("  {text:?},\n")).collect::<String>();
    let text = format!(
        "name = \"case\"\n[network_access]\nallowed = [\n{}]\nblocked = [\n{}]\n",
        list(allowed),
        list(blocked)
    );
    let (manifest, problems) = Manifest::read(&Source::new(name, text), Format::Toml);
    manifest.unwrap_or_else(|| panic!("{problems:?}"))
}

fn lint_layers(layers: &[Lists]) -> Vec<Diagnostic> {
    let names: Vec<String> = ('a'..).take(layers.len()).map(String::from).collect();
    let manifests: Vec<Manifest> = names.iter().zip(layers).map(|(name, lists)| manifest(name, lists)).collect();
    let layers: Vec<(&str, &Manifest)> = names.iter().map(String::as_str).zip(&manifests).collect();
    lint(&layers, None).unwrap()
}

/// The codes of what is found in one layer, each with the rule it is about.
fn findings(allowed: &[&str], blocked: &[&str]) -> Vec<(Code, String)> {
    let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let found = lint_layers(&[(owned(allowed), owned(blocked))]);
    found.iter().map(|one| (one.code, rule_of(one))).collect()
}

fn rule_of(diagnostic: &Diagnostic) -> String {
    let text = &diagnostic.source.text()[diagnostic.span.start..diagnostic.span.end];
    text.trim_matches('"').to_owned()
}

// --- diff ---------------------------------------------------------------------------------------------------------------

/// What a change opens (`+`) and closes (`-`), with what is left out.
fn changes(old: &Policy, new: &Policy) -> Vec<String> {
    let show = |difference: super::diff::Difference<'_>| {
        let sign = if difference.change == Change::Opened { '+' } else { '-' };
        let except = if difference.except.is_empty() { "" } else { " but " };
        format!("{sign} {}{except}{}", difference.pattern, difference.except.join(", "))
    };
    diff(old, new).differences.into_iter().map(show).collect()
}

#[test]
fn a_change_is_told_as_places() {
    type Lists<'a> = (&'a [&'a str], &'a [&'a str]);
    let cases: [(Lists<'_>, Lists<'_>, &[&str]); 13] = [
        ((&["a.test"], &[]), (&["a.test", "b.test"], &[]), &["+ b.test"]),
        ((&["a.test", "b.test"], &[]), (&["a.test"], &[]), &["- b.test"]),
        ((&["a.test"], &[]), (&["*.a.test"], &[]), &["+ *.a.test but a.test"]),
        ((&["a.test"], &[]), (&["*.a.test"], &["x.a.test"]), &["+ *.a.test but a.test, x.a.test"]),
        ((&["https://a.test/x/"], &[]), (&["https://a.test/"], &[]), &["+ https://a.test/ but https://a.test/x/"]),
        ((&["https://a.test/"], &[]), (&["a.test"], &[]), &["+ a.test but https://a.test/"]),
        ((&["https://a.test/x"], &[]), (&["https://a.test/x/"], &[]), &["- https://a.test/x but https://a.test/x/"]),
        ((&["a.test"], &[]), (&["a.test"], &["https://a.test/x"]), &["- https://a.test/x*"]),
        ((&[], &[]), (&["a.test"], &[]), &["- every other host but a.test"]),
        ((&["a.test"], &[]), (&[], &[]), &["+ every other host but a.test"]),
        ((&["a.test"], &[]), (&["a.test", "b.a.test"], &["c.test"]), &["+ b.a.test"]),
        ((&["a.test"], &["a.test"]), (&["a.test"], &[]), &["+ a.test"]),
        ((&["*.a.test"], &[]), (&["*.b.a.test", "a.test"], &[]), &["- *.a.test but a.test, *.b.a.test"]),
    ];
    for (old, new, expected) in cases {
        assert_eq!(changes(&policy(old.0, old.1), &policy(new.0, new.1)), expected, "{old:?} {new:?}");
    }
}

#[test]
fn a_block_of_an_address_closes_what_embeds_it() {
    let old = policy(&["[64:ff9b::1.2.3.4]"], &[]);
    let new = policy(&["[64:ff9b::1.2.3.4]"], &["1.2.3.4"]);
    assert_eq!(changes(&old, &new), ["- [64:ff9b::102:304]"]);
}

#[test]
fn tunnels_that_change_kind_are_told() {
    let (old, new) = (policy(&["https://a.test/"], &[]), policy(&["https://a.test/x/"], &[]));
    let changes = diff(&old, &new);
    let [tunnel] = changes.tunnels.as_slice() else { panic!("{:?}", changes.tunnels) };
    assert_eq!(tunnel.authority.to_string(), "a.test:443");
    assert_eq!((tunnel.old, tunnel.new), (AuthorityVerdict::PermitTls, AuthorityVerdict::Inspect));
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn a_policy_does_not_differ_from_itself(layers in generate::layers(true), default in generate::default()) {
        let policy = generate::build(&layers, default);
        let same = diff(&policy, &policy);
        prop_assert!(same.differences.is_empty() && same.tunnels.is_empty());
    }

    #[test]
    fn every_witness_differs_and_every_difference_has_one(
        old in generate::layers(true),
        new in generate::layers(true),
        default in generate::default(),
        urls in prop::collection::vec(generate::url(), 12),
    ) {
        let (old, new) = (generate::build(&old, default), generate::build(&new, default));
        let found = diff(&old, &new);
        for difference in &found.differences {
            // The witness is a URL like any other: read again, it is judged the same.
            let witness = target(&difference.witness.to_string());
            let verdicts = (old.decide(&witness).verdict, new.decide(&witness).verdict);
            let expected = match difference.change {
                Change::Opened => (Verdict::Deny, Verdict::Allow),
                Change::Closed => (Verdict::Allow, Verdict::Deny),
            };
            prop_assert_eq!(verdicts, expected, "{}", witness);
        }
        for url in urls {
            let target = target(&url);
            let change = match (old.decide(&target).verdict, new.decide(&target).verdict) {
                (Verdict::Deny, Verdict::Allow) => Change::Opened,
                (Verdict::Allow, Verdict::Deny) => Change::Closed,
                _ => continue,
            };
            prop_assert!(found.has(change), "{} {:?}", url, change);
        }
    }

    // --- matching and explain -------------------------------------------------------------------------------------------

    #[test]
    fn the_walk_says_what_the_decision_says(
        layers in generate::layers(true),
        default in generate::default(),
        urls in prop::collection::vec(generate::url(), 8),
    ) {
        let policy = generate::build(&layers, default);
        let walk = Walk::new(&policy);
        for url in urls {
            let target = target(&url);
            let decision = policy.decide(&target);
            let steps = walk.steps(&target);
            prop_assert_eq!(steps.len(), layers.len());
            let first_blocked = steps.iter().find_map(|step| step.blocked.first());
            let lacking = steps.iter().find(|step| step.rules.0 > 0 && step.allowed.is_empty());
            match decision.reason {
                Reason::Blocked => prop_assert_eq!(first_blocked, decision.rule.map(|rule| rule.rule)),
                Reason::NotAllowed => {
                    prop_assert!(first_blocked.is_none());
                    prop_assert_eq!(lacking.map(|step| step.layer.as_str()), decision.layer);
                }
                Reason::Allowed => {
                    prop_assert!(first_blocked.is_none() && lacking.is_none());
                    let last = steps.iter().rev().find(|step| step.says == Says::Allows);
                    prop_assert_eq!(last.and_then(|step| step.allowed.first()), decision.rule.map(|rule| rule.rule));
                }
                _ => prop_assert!(steps.iter().all(|step| step.says == Says::Nothing)),
            }
        }
    }

    #[test]
    fn a_rule_matches_whatever_a_rule_that_it_covers_matches(
        outer in generate::pattern(true),
        inner in generate::pattern(true),
        list in prop::sample::select(vec![ListKind::Allowed, ListKind::Blocked]),
        urls in prop::collection::vec(generate::url(), 20),
    ) {
        let (outer, inner) = (Pattern::parse(&outer).unwrap(), Pattern::parse(&inner).unwrap());
        if covers(list, &outer, &inner) {
            for url in urls {
                let target = target(&url);
                prop_assert!(!matches(list, &inner, &target) || matches(list, &outer, &target), "{}", url);
            }
        }
    }

    // --- lint -----------------------------------------------------------------------------------------------------------

    #[test]
    fn rules_that_do_nothing_can_go(
        layers in generate::layers(true),
        urls in prop::collection::vec(generate::url(), 30),
    ) {
        let mut left = layers.clone();
        for problem in lint_layers(&layers) {
            if !matches!(problem.code, Code::Unreachable | Code::Covered | Code::IdleBlock) {
                continue;
            }
            let layer = usize::from(problem.source.name().as_bytes()[0] - b'a');
            let line = usize::try_from(problem.start().line).unwrap() - 4;
            let allowed = layers[layer].0.len();
            // Rules are crossed out first, so that those behind keep their lines.
            match line.checked_sub(allowed + 2) {
                None => left[layer].0[line].clear(),
                Some(line) => left[layer].1[line].clear(),
            }
        }
        for ((allowed, blocked), (before, _)) in left.iter_mut().zip(&layers) {
            allowed.retain(|rule| !rule.is_empty());
            blocked.retain(|rule| !rule.is_empty());
            // An empty list would restrict nothing.
            if allowed.is_empty() {
                allowed.extend(before.first().cloned());
            }
        }
        let (before, after) = (
            generate::build(&layers, DefaultVerdict::Allow),
            generate::build(&left, DefaultVerdict::Allow),
        );
        for url in urls {
            let target = target(&url);
            prop_assert_eq!(before.decide(&target).verdict, after.decide(&target).verdict, "{} {:?}", url, left);
        }
        let same = diff(&before, &after);
        prop_assert!(same.differences.is_empty(), "{:?}", same.differences);
    }

    // --- suggest --------------------------------------------------------------------------------------------------------

    #[test]
    fn what_is_suggested_permits_what_was_seen(
        urls in prop::collection::vec(generate::url(), 0..30),
        tunnels in prop::collection::vec((generate::host(), prop::sample::select(vec![80u16, 443, 22])), 0..5),
        detail in prop::sample::select(vec![Detail::Auto, Detail::Host, Detail::Origin, Detail::Path]),
        wildcards in any::<bool>(),
        beside in generate::lists(true),
    ) {
        let mut seen = Observations::default();
        let targets: Vec<Target> = urls.iter().map(|url| target(url)).collect();
        let tunnels: Vec<Authority> =
            tunnels.iter().map(|(host, port)| Authority::parse(&format!("{host}:{port}")).unwrap()).collect();
        targets.iter().for_each(|target| seen.request(target));
        tunnels.iter().for_each(|authority| seen.tunnel(authority));
        let options = Options { detail, wildcards };
        let suggestion = seen.suggest(options, None);
        prop_assert!(suggestion.denied.is_empty(), "{:?}", suggestion);
        let rules: Vec<String> = suggestion.rules.iter().map(|rule| rule.pattern.to_string()).collect();
        let alone = generate::build(&[(rules, Vec::new())], DefaultVerdict::Deny);
        for target in &targets {
            prop_assert_eq!(alone.decide(target).verdict, Verdict::Allow, "{}", target);
        }
        for tunnel in &tunnels {
            prop_assert_ne!(alone.decide_authority(tunnel).verdict, AuthorityVerdict::Deny, "{}", tunnel);
        }

        // Beside rules that are there already, it is enough but for what those block.
        let existing = generate::build(std::slice::from_ref(&beside), DefaultVerdict::Allow);
        let added = seen.suggest(options, Some(&existing));
        let mut more = beside;
        if existing.restricts() {
            more.0.extend(added.rules.iter().map(|rule| rule.pattern.to_string()));
        }
        let merged = generate::build(std::slice::from_ref(&more), DefaultVerdict::Allow);
        for target in &targets {
            let decision = merged.decide(target);
            prop_assert!(decision.verdict == Verdict::Allow || decision.reason == Reason::Blocked, "{}", target);
        }
    }
}

#[test]
fn odd_rules_are_told() {
    use Code::{
        Covered, IdleBlock, MetadataRule, NeedsInterception, OpenPrefix, PlainHttp, SharedHosting, SpecialAddress,
        Unreachable,
    };
    type Case<'a> = (&'a [&'a str], &'a [&'a str], &'a [(Code, &'a str)]);
    let cases: [Case<'_>; 16] = [
        (&["a.test", "*.a.test"], &[], &[(Covered, "a.test")]),
        (
            &["*.a.test", "*.b.a.test", "https://c.a.test/x/"],
            &[],
            &[(Covered, "*.b.a.test"), (Covered, "https://c.a.test/x/")],
        ),
        (&["a.test", "b.test"], &["*.test"], &[(Unreachable, "a.test"), (Unreachable, "b.test")]),
        (&["a.test", "b.test"], &["c.test"], &[(IdleBlock, "c.test")]),
        (&["*.test"], &["*.a.test", "b.a.test"], &[(Covered, "b.a.test")]),
        (&[], &["a.test"], &[]),
        (
            &["*.github.io", "raw.githubusercontent.com"],
            &[],
            &[(SharedHosting, "*.github.io"), (SharedHosting, "raw.githubusercontent.com")],
        ),
        (&["https://storage.googleapis.com/"], &[], &[(SharedHosting, "https://storage.googleapis.com/")]),
        (&["http://a.test/"], &[], &[(PlainHttp, "http://a.test/")]),
        (&["http://localhost:8080/", "http://127.0.0.1/"], &[], &[(SpecialAddress, "http://127.0.0.1/")]),
        (
            &["169.254.169.254", "metadata.google.internal"],
            &[],
            &[(MetadataRule, "169.254.169.254"), (MetadataRule, "metadata.google.internal")],
        ),
        (&["10.0.0.1"], &[], &[(SpecialAddress, "10.0.0.1")]),
        (&["https://a.test/x/"], &[], &[(NeedsInterception, "https://a.test/x/")]),
        (
            &["a.test"],
            &["https://a.test/x"],
            &[(OpenPrefix, "https://a.test/x"), (NeedsInterception, "https://a.test/x")],
        ),
        (&["https://a.test/x"], &[], &[(OpenPrefix, "https://a.test/x"), (NeedsInterception, "https://a.test/x")]),
        (&["1.2.3.4", "[::ffff:1.2.3.4]"], &[], &[(Covered, "[::ffff:1.2.3.4]")]),
    ];
    for (allowed, blocked, expected) in cases {
        let expected: Vec<(Code, String)> = expected.iter().map(|(code, rule)| (*code, (*rule).to_owned())).collect();
        assert_eq!(findings(allowed, blocked), expected, "{allowed:?} {blocked:?}");
    }
}

#[test]
fn a_rule_that_an_outer_layer_leaves_nothing_of_is_unreachable() {
    let lists = |allowed: &[&str]| (allowed.iter().map(|text| (*text).to_owned()).collect(), Vec::new());
    let found = lint_layers(&[lists(&["*.a.test"]), lists(&["x.a.test", "b.test"])]);
    let [only] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((only.code, rule_of(only).as_str()), (Code::Unreachable, "b.test"));
    assert!(only.message.contains("the layer \"a\""), "{}", only.message);
}

// --- suggest ------------------------------------------------------------------------------------------------------------

fn suggest(seen: &[&str], options: Options) -> Suggestion {
    let mut observations = Observations::default();
    for seen in seen {
        match Target::parse(seen) {
            Ok(target) if seen.contains("://") => observations.request(&target),
            _ => observations.tunnel(&Authority::parse(seen).unwrap()),
        }
    }
    observations.suggest(options, None)
}

#[test]
fn rules_are_as_narrow_as_what_repeats() {
    let auto = Options::default();
    let path = Options { detail: Detail::Path, ..auto };
    let host = Options { detail: Detail::Host, ..auto };
    let wild = Options { wildcards: true, ..auto };
    let cases: [(&[&str], Options, &[&str]); 12] = [
        (&["https://a.test/x/1", "https://a.test/x/2"], auto, &["https://a.test/x/"]),
        (&["https://a.test/mcp", "https://a.test/mcp"], auto, &["https://a.test/mcp"]),
        (&["https://a.test/v1", "https://a.test/v1/x"], auto, &["https://a.test/v1"]),
        (&["https://a.test/x/1"], auto, &["https://a.test/"]),
        (&["https://a.test/x/1"], path, &["https://a.test/x/1"]),
        (&["https://a.test/x/1", "https://a.test/x/2"], host, &["a.test"]),
        (&["https://a.test/", "https://a.test/x/2"], auto, &["https://a.test/"]),
        (&["a.test:443"], auto, &["https://a.test/"]),
        (&["a.test:22"], auto, &["a.test"]),
        (&["https://a.test/", "http://a.test/"], auto, &["http://a.test/", "https://a.test/"]),
        (&["https://a.example.com/", "https://b.example.com/"], wild, &["*.example.com"]),
        (&["https://a.github.io/", "https://b.github.io/"], wild, &["https://a.github.io/", "https://b.github.io/"]),
    ];
    for (seen, options, expected) in cases {
        let suggestion = suggest(seen, options);
        let rules: Vec<String> = suggestion.rules.iter().map(|rule| rule.pattern.to_string()).collect();
        assert_eq!(rules, expected, "{seen:?}");
    }
}

#[test]
fn memory_stays_bounded_and_what_is_left_out_is_counted() {
    let mut seen = Observations::default();
    for number in 0..Observations::MOST_HOSTS + 10 {
        seen.request(&target(&format!("https://h{number}.test/")));
    }
    seen.request(&target(&format!("https://h{}.test/", Observations::MOST_HOSTS)));
    assert_eq!(seen.suggest(Options::default(), None).hosts_left_out, 10);
    let mut seen = Observations::default();
    for number in 0..=Observations::MOST_PATHS {
        seen.request(&target(&format!("https://a.test/x/{number}")));
    }
    let suggestion = seen.suggest(Options::default(), None);
    assert_eq!(suggestion.rules[0].pattern.to_string(), "https://a.test/");
}

#[test]
fn layers_are_read_back_from_a_policy() {
    let layer = |layers: Vec<Layer>| Policy::build(layers, DefaultVerdict::Allow).unwrap();
    let policy = policy(&["a.test", "*.b.test"], &["https://a.test/x"]);
    assert_eq!(layer(super::table::layers_of(&policy)).digest(), policy.digest());
}
