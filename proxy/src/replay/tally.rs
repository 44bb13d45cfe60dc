//! What a policy makes of recorded traffic, counted and grouped.

use std::collections::{BTreeMap, HashMap};

use exeat_policy::target::{Authority, Target};
use exeat_policy::{AuthorityVerdict, Policy, RuleRef, Verdict};

use super::{Reading, Record};
use crate::judge::Asked;

/// The most groups that are kept apart; what comes behind is counted together.
const MOST_GROUPS: usize = 20_000;
/// The examples of a group.
const MOST_EXAMPLES: usize = 3;
/// The longest example, in characters.
const LONGEST_EXAMPLE: usize = 200;

/// What a policy makes of a request or a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum State {
    /// It is let out.
    Permitted,
    /// The tunnel would be opened, and what the requests in it ask for decides.
    Inspected,
    /// It is refused.
    Denied,
}

impl State {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Permitted => "permitted",
            Self::Inspected => "inspected",
            Self::Denied => "denied",
        }
    }
}

/// What changed for a request or a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Changed {
    /// Denied before, and let out or inspected now.
    NewlyAllowed,
    /// Let out or inspected before, and denied now.
    NewlyDenied,
    /// A blind tunnel before, and opened now.
    NewlyInspected,
    /// An opened tunnel before, and blind now.
    NoLongerInspected,
}

impl Changed {
    pub(crate) const ALL: [Self; 4] =
        [Self::NewlyAllowed, Self::NewlyDenied, Self::NewlyInspected, Self::NoLongerInspected];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::NewlyAllowed => "newly_allowed",
            Self::NewlyDenied => "newly_denied",
            Self::NewlyInspected => "newly_inspected",
            Self::NoLongerInspected => "no_longer_inspected",
        }
    }
}

/// What the new policy is compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Baseline<'p> {
    /// What the record says.
    Recorded,
    /// Another policy.
    Policy(&'p Policy),
}

/// What a group has in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) changed: Option<Changed>,
    pub(crate) state: State,
    pub(crate) host: Box<str>,
    /// The number of the deciding rule in the new policy; none where none decided.
    pub(crate) rule: Option<usize>,
    /// The reason.
    pub(crate) reason: &'static str,
}

/// Requests that are alike.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) count: u64,
    pub(crate) examples: Vec<Box<str>>,
}

/// The count.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Requests and tunnels that were judged.
    pub(crate) records: u64,
    /// Tunnels among them.
    pub(crate) tunnels: u64,
    /// Records that a baseline was known for.
    pub(crate) compared: u64,
    /// Lines about other matters.
    pub(crate) others: u64,
    /// Lines that are nothing known.
    pub(crate) unreadable: u64,
    /// Records whose URL cannot be read, which are denied.
    pub(crate) malformed: u64,
    pub(crate) states: BTreeMap<State, u64>,
    pub(crate) changes: BTreeMap<Changed, u64>,
    pub(crate) groups: HashMap<Key, Group>,
    /// Records in groups that were not kept.
    pub(crate) ungrouped: u64,
}

impl Tally {
    /// Counts a reading.
    pub(crate) fn add(&mut self, reading: Reading, new: &Policy, baseline: Baseline<'_>) {
        let record = match reading {
            Reading::Record(record) => record,
            Reading::Other => return self.others += 1,
            Reading::Unreadable => return self.unreadable += 1,
        };
        self.records += 1;
        let Record { asked, recorded } = record;
        let read = Asked::read(&asked);
        let (state, rule, reason, host) = match &read {
            Ok(Asked::Url(target)) => {
                let decision = new.decide(target);
                (of_request(new, target), decision.rule, decision.reason.as_str(), target.host().as_str())
            }
            Ok(Asked::Authority(authority)) => {
                self.tunnels += 1;
                let decision = new.decide_authority(authority);
                (of_tunnel(new, authority), decision.rule, decision.reason.as_str(), authority.host().as_str())
            }
            Err(error) => {
                self.malformed += 1;
                (State::Denied, None, error.reason().as_str(), "")
            }
        };
        let changed = match (baseline, &read) {
            (Baseline::Policy(old), Ok(Asked::Url(target))) => Some(between(of_request(old, target), state)),
            (Baseline::Policy(old), Ok(Asked::Authority(authority))) => Some(between(of_tunnel(old, authority), state)),
            (Baseline::Policy(_), Err(_)) => Some(None),
            // A record does not say whether the tunnel was opened.
            (Baseline::Recorded, _) => recorded.map(|let_out| match (let_out, state) {
                (true, State::Denied) => Some(Changed::NewlyDenied),
                (false, State::Permitted | State::Inspected) => Some(Changed::NewlyAllowed),
                _ => None,
            }),
        };
        self.compared += u64::from(changed.is_some());
        let changed = changed.flatten();
        *self.states.entry(state).or_default() += 1;
        if let Some(changed) = changed {
            *self.changes.entry(changed).or_default() += 1;
        }
        let key = Key { changed, state, host: host.into(), rule: rule.map(|rule: RuleRef<'_>| rule.number), reason };
        self.group(key, 1, std::iter::once(asked.as_str()));
    }

    fn group<'e>(&mut self, key: Key, count: u64, examples: impl Iterator<Item = &'e str>) {
        if self.groups.len() >= MOST_GROUPS && !self.groups.contains_key(&key) {
            self.ungrouped += count;
            return;
        }
        let group = self.groups.entry(key).or_default();
        group.count += count;
        for example in examples {
            if group.examples.len() >= MOST_EXAMPLES {
                return;
            }
            let example = shortened(example);
            if !group.examples.contains(&example) {
                group.examples.push(example);
            }
        }
    }

    /// Adds another count of the same policies.
    pub(crate) fn merge(&mut self, other: Self) {
        self.records += other.records;
        self.tunnels += other.tunnels;
        self.compared += other.compared;
        self.others += other.others;
        self.unreadable += other.unreadable;
        self.malformed += other.malformed;
        self.ungrouped += other.ungrouped;
        for (state, count) in other.states {
            *self.states.entry(state).or_default() += count;
        }
        for (changed, count) in other.changes {
            *self.changes.entry(changed).or_default() += count;
        }
        for (key, group) in other.groups {
            self.group(key, group.count, group.examples.iter().map(|example| &**example));
        }
    }

    /// How many records have that state.
    pub(crate) fn count(&self, state: State) -> u64 {
        self.states.get(&state).copied().unwrap_or(0)
    }

    /// How many records changed that way.
    pub(crate) fn changed(&self, changed: Changed) -> u64 {
        self.changes.get(&changed).copied().unwrap_or(0)
    }

    /// The groups, the largest first, those of one size by their keys.
    pub(crate) fn sorted(&self) -> Vec<(&Key, &Group)> {
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by(|(a, left), (b, right)| right.count.cmp(&left.count).then_with(|| a.cmp(b)));
        groups
    }
}

fn of_request(policy: &Policy, target: &Target) -> State {
    match policy.decide(target).verdict {
        Verdict::Allow => State::Permitted,
        Verdict::Deny => State::Denied,
    }
}

fn of_tunnel(policy: &Policy, authority: &Authority) -> State {
    match policy.decide_authority(authority).verdict {
        AuthorityVerdict::Permit | AuthorityVerdict::PermitTls => State::Permitted,
        AuthorityVerdict::Inspect => State::Inspected,
        AuthorityVerdict::Deny => State::Denied,
    }
}

fn between(old: State, new: State) -> Option<Changed> {
    use State::{Denied, Inspected, Permitted};
    match (old, new) {
        (Denied, Permitted | Inspected) => Some(Changed::NewlyAllowed),
        (Permitted | Inspected, Denied) => Some(Changed::NewlyDenied),
        (Permitted, Inspected) => Some(Changed::NewlyInspected),
        (Inspected, Permitted) => Some(Changed::NoLongerInspected),
        _ => None,
    }
}

/// An example without its query, which may hold secrets, and cut short.
fn shortened(example: &str) -> Box<str> {
    let without_query = example.split(['?', '#']).next().unwrap_or_default();
    let without_user = match without_query.split_once("://").map(|(scheme, rest)| (scheme, rest.split_once('@'))) {
        Some((scheme, Some((user, rest)))) if !user.contains('/') => format!("{scheme}://{rest}"),
        _ => without_query.to_owned(),
    };
    let mut characters = without_user.chars();
    let short: String = characters.by_ref().take(LONGEST_EXAMPLE).collect();
    if characters.next().is_some() { format!("{short}…").into() } else { short.into() }
}

#[cfg(test)]
mod tests {
    use exeat_policy::policy::Layer;
    use exeat_policy::{DefaultVerdict, Pattern, Rule};

    use super::*;

    fn policy(allowed: &[&str]) -> Policy {
        let rule = |text: &&str| {
            let rule = Rule { pattern: (*text).into(), file: "agent.toml".into(), line: 1, column: 1 };
            (Pattern::parse(text).unwrap(), rule)
        };
        let layer = Layer { name: "agent".into(), allowed: allowed.iter().map(rule).collect(), blocked: Vec::new() };
        Policy::build(vec![layer], DefaultVerdict::Allow).unwrap()
    }

    fn record(asked: &str, recorded: Option<bool>) -> Reading {
        Reading::Record(Record { asked: asked.to_owned(), recorded })
    }

    #[test]
    fn what_changes_is_told_against_the_record_and_against_a_policy() {
        let new = policy(&["a.test", "https://b.test/x/"]);
        let old = policy(&["b.test", "c.test"]);
        let cases = [
            ("https://a.test/", Some(false), Some(Changed::NewlyAllowed), Some(Changed::NewlyAllowed)),
            ("https://a.test/", Some(true), None, Some(Changed::NewlyAllowed)),
            ("https://c.test/", Some(true), Some(Changed::NewlyDenied), Some(Changed::NewlyDenied)),
            ("https://c.test/", None, None, Some(Changed::NewlyDenied)),
            ("b.test:443", Some(true), None, Some(Changed::NewlyInspected)),
            ("b.test:443", Some(false), Some(Changed::NewlyAllowed), Some(Changed::NewlyInspected)),
            ("not a url", Some(true), Some(Changed::NewlyDenied), None),
        ];
        for (asked, recorded, by_record, by_policy) in cases {
            for (baseline, expected) in [(Baseline::Recorded, by_record), (Baseline::Policy(&old), by_policy)] {
                let mut tally = Tally::default();
                tally.add(record(asked, recorded), &new, baseline);
                let found = tally.groups.keys().next().and_then(|key| key.changed);
                assert_eq!(found, expected, "{asked} {recorded:?} {baseline:?}");
            }
        }
    }

    #[test]
    fn tallies_of_parts_make_that_of_the_whole() {
        let new = policy(&["a.test"]);
        let asked = ["https://a.test/1", "https://a.test/2?secret", "https://b.test/", "a.test:443"];
        let mut whole = Tally::default();
        let mut parts = Tally::default();
        for asked in asked {
            whole.add(record(asked, None), &new, Baseline::Recorded);
            let mut part = Tally::default();
            part.add(record(asked, None), &new, Baseline::Recorded);
            parts.merge(part);
        }
        assert_eq!((whole.records, whole.tunnels, whole.count(State::Denied)), (4, 1, 1));
        assert_eq!((parts.records, parts.tunnels, parts.count(State::Denied)), (4, 1, 1));
        let groups =
            |tally: &Tally| tally.sorted().iter().map(|(key, group)| ((*key).clone(), group.count)).collect::<Vec<_>>();
        assert_eq!(groups(&whole), groups(&parts));
        assert!(
            whole.sorted().iter().all(|(_, group)| group.examples.iter().all(|example| !example.contains("secret")))
        );
    }

    #[test]
    fn groups_are_bounded_and_nothing_is_lost_from_the_counts() {
        let new = policy(&["a.test"]);
        let mut tally = Tally::default();
        for number in 0..MOST_GROUPS + 5 {
            tally.add(record(&format!("https://h{number}.test/"), None), &new, Baseline::Recorded);
        }
        assert_eq!((tally.groups.len(), tally.ungrouped), (MOST_GROUPS, 5));
        assert_eq!(tally.count(State::Denied), MOST_GROUPS as u64 + 5);
    }
}
