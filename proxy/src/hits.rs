//! How often each rule has decided, and when it last did.
//!
//! One table belongs to the rules of one policy, and a rule's number is its index there: counting is an addition to an
//! atomic, without a lock and without memory. A reload that leaves the rules as they are keeps the table; after any
//! other one every rule begins at zero, since numbers mean other rules then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use exeat_policy::{ListKind, Policy, RuleRef};

/// The counts of one policy's rules.
#[derive(Debug)]
pub(crate) struct RuleHits {
    counts: Box<[Hit]>,
    lists: Box<[List]>,
    since: SystemTime,
}

#[derive(Debug, Default)]
struct Hit {
    count: AtomicU64,
    /// Milliseconds since 1970; 0 for never.
    last: AtomicU64,
}

/// A list of a layer: whose rules those of some numbers are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct List {
    /// The layer's name.
    pub(crate) layer: Arc<str>,
    /// Which of its lists.
    pub(crate) kind: ListKind,
    /// The number of its first rule.
    pub(crate) first: usize,
    /// How many rules it has.
    pub(crate) len: usize,
}

impl RuleHits {
    /// A table for the rules of `policy`, all at zero.
    pub(crate) fn new(policy: &Policy) -> Self {
        Self {
            counts: (0..policy.rule_count()).map(|_| Hit::default()).collect(),
            lists: lists(policy).into(),
            since: at(millis_now()),
        }
    }

    /// Counts that a rule of this policy has decided.
    pub(crate) fn count(&self, rule: RuleRef<'_>) {
        if let Some(hit) = self.counts.get(rule.number) {
            hit.count.fetch_add(1, Ordering::Relaxed);
            hit.last.store(millis_now(), Ordering::Relaxed);
        }
    }

    /// How often the rule of a number has decided; 0 for a number that no rule has.
    pub(crate) fn of(&self, number: usize) -> u64 {
        self.counts.get(number).map_or(0, |hit| hit.count.load(Ordering::Relaxed))
    }

    /// When the rule of a number last decided.
    pub(crate) fn last(&self, number: usize) -> Option<SystemTime> {
        let last = self.counts.get(number)?.last.load(Ordering::Relaxed);
        (last > 0).then(|| at(last))
    }

    /// When counting began.
    pub(crate) const fn since(&self) -> SystemTime {
        self.since
    }

    /// The lists that have rules, in the order of their numbers.
    pub(crate) const fn lists(&self) -> &[List] {
        &self.lists
    }
}

fn lists(policy: &Policy) -> Vec<List> {
    let mut lists: Vec<List> = Vec::new();
    let mut layer = None;
    for rule in policy.rules() {
        match lists.last_mut() {
            Some(list) if layer == Some(rule.layer_index) && list.kind == rule.list => list.len += 1,
            _ => lists.push(List { layer: rule.layer.into(), kind: rule.list, first: rule.number, len: 1 }),
        }
        layer = Some(rule.layer_index);
    }
    lists
}

/// Whether the rules of two policies have the same numbers.
pub(crate) fn are_numbered_alike(one: &Policy, other: &Policy) -> bool {
    let same = |(one, other): (RuleRef<'_>, RuleRef<'_>)| {
        let place = |rule: &RuleRef<'_>| (rule.layer_index, rule.list, rule.index);
        one.layer == other.layer && place(&one) == place(&other) && one.rule.pattern == other.rule.pattern
    };
    one.rule_count() == other.rule_count() && one.rules().zip(other.rules()).all(same)
}

/// Milliseconds since 1970.
fn millis_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// The time so many milliseconds behind 1970.
fn at(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis)
}

#[cfg(test)]
pub(crate) mod tests {
    use exeat_policy::pattern::Pattern;
    use exeat_policy::policy::{DefaultVerdict, Layer};
    use exeat_policy::target::Target;
    use exeat_policy::{Rule, Verdict};

    use super::*;

    /// A policy of layers: name, allowed, blocked.
    pub(crate) fn policy(layers: &[(&str, &[&str], &[&str])]) -> Policy {
        let rules = |patterns: &[&str]| {
            let rule = |text: &&str| {
                let rule = Rule { pattern: (*text).into(), file: "agent.toml".into(), line: 1, column: 1 };
                (Pattern::parse(text).unwrap(), rule)
            };
            patterns.iter().map(rule).collect()
        };
        let layer = |(name, allowed, blocked): &(&str, &[&str], &[&str])| Layer {
            name: (*name).into(),
            allowed: rules(allowed),
            blocked: rules(blocked),
        };
        Policy::build(layers.iter().map(layer).collect(), DefaultVerdict::Deny).unwrap()
    }

    #[test]
    fn each_rule_is_counted_under_its_number() {
        let policy = policy(&[("org", &[], &["bad.test"]), ("agent", &["a.test", "*.test"], &[])]);
        let hits = RuleHits::new(&policy);
        let decide = |url: &str| policy.decide(&Target::parse(url).unwrap());
        for url in ["https://a.test/", "https://bad.test/", "https://a.test/x", "https://elsewhere.example/"] {
            if let Some(rule) = decide(url).rule {
                hits.count(rule);
            }
        }
        assert_eq!(decide("https://a.test/").verdict, Verdict::Allow);
        assert_eq!((0..4).map(|number| hits.of(number)).collect::<Vec<_>>(), [1, 2, 0, 0]);
        assert!(hits.last(1).unwrap() + Duration::from_millis(1) > hits.since());
        assert_eq!((hits.last(2), hits.last(9)), (None, None));
        let list = |layer: &str, kind, first, len| List { layer: layer.into(), kind, first, len };
        let expected = [list("org", ListKind::Blocked, 0, 1), list("agent", ListKind::Allowed, 1, 2)];
        assert_eq!(hits.lists(), expected);
    }

    #[test]
    fn layers_of_one_name_are_told_apart() {
        let hits = RuleHits::new(&policy(&[("a", &["x.test"], &[]), ("a", &["y.test"], &[])]));
        assert_eq!(hits.lists().iter().map(|list| list.first).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn the_order_of_rules_makes_a_difference_here() {
        let one = policy(&[("a", &["x.test", "y.test"], &[])]);
        assert!(are_numbered_alike(&one, &policy(&[("a", &["x.test", "y.test"], &[])])));
        for other in [
            policy(&[("a", &["y.test", "x.test"], &[])]),
            policy(&[("a", &["x.test"], &["y.test"])]),
            policy(&[("b", &["x.test", "y.test"], &[])]),
            policy(&[("a", &["x.test", "y.test", "z.test"], &[])]),
        ] {
            assert!(!are_numbered_alike(&one, &other));
        }
    }
}
