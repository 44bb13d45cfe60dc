//! What a session asked for, added up while it runs: the material of its summary.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use exeat_policy::Reason;
use serde::Serialize;

use crate::audit::{Outcome, Record};

/// How many different things are told apart; the rest is only counted.
const MAX_LINES: usize = 1_000;

/// Adds decisions up.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Sums>);

/// Decisions, added up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    /// What was asked for and became of it, with how often.
    lines: BTreeMap<(Outcome, Subject, Reason), u64>,
    /// Requests that carried credentials, by server.
    pub(crate) servers: BTreeMap<String, u64>,
    /// How many decisions found no line.
    pub(crate) untold: u64,
}

/// What was asked for: for a permitted request its origin, for another the whole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    method: String,
    target: String,
    rule: Option<String>,
}

/// One line of a summary.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// The method; empty where methods were not told apart.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) method: String,
    /// An origin, an authority, a name or a URL without its query.
    pub(crate) target: String,
    /// Why.
    pub(crate) reason: &'static str,
    /// The rule that decided, with its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rule: Option<String>,
    /// How often.
    pub(crate) count: u64,
    /// What to add to `network_access.allowed` for it to be permitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allow: Option<String>,
}

impl Tally {
    /// Adds a decision; `rule` is the deciding one with its place.
    pub(crate) fn add(&self, record: &Record<'_>, rule: Option<String>) {
        let target = record.target.to_string();
        let subject = match record.outcome {
            Outcome::Allow => Subject { method: String::new(), target: origin(&target).to_owned(), rule: None },
            Outcome::Report | Outcome::Deny | Outcome::Error => {
                Subject { method: record.method.to_owned(), target: without_query(&target).to_owned(), rule }
            }
        };
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !record.injected.is_empty()
            && let Some(server) = record.server
        {
            *sums.servers.entry(server.to_owned()).or_default() += 1;
        }
        let key = (record.outcome, subject, record.reason);
        if sums.lines.len() < MAX_LINES || sums.lines.contains_key(&key) {
            *sums.lines.entry(key).or_default() += 1;
        } else {
            sums.untold += 1;
        }
    }

    /// What there is so far.
    pub(crate) fn sums(&self) -> Sums {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Sums {
    /// The lines of one outcome, the most frequent first.
    pub(crate) fn of(&self, outcome: Outcome) -> Vec<Line> {
        let mut lines: Vec<Line> = self
            .lines
            .iter()
            .filter(|((found, ..), _)| *found == outcome)
            .map(|((_, Subject { method, target, rule }, reason), count)| Line {
                method: method.clone(),
                target: target.clone(),
                reason: reason.as_str(),
                rule: rule.clone(),
                count: *count,
                allow: (*reason == Reason::NotAllowed).then(|| host(target).to_owned()),
            })
            .collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.count));
        lines
    }
}

/// Scheme and authority of a URL; an authority or a name as it is.
fn origin(target: &str) -> &str {
    let authority = target.find("://").map_or(0, |at| at + 3);
    let end = target.get(authority..).and_then(|rest| rest.find('/'));
    end.and_then(|end| target.get(..authority + end)).unwrap_or(target)
}

/// The log ends a URL with the length of its query.
fn without_query(target: &str) -> &str {
    target.split('?').next().unwrap_or(target)
}

/// The host of a URL or an authority, as a rule writes it.
fn host(target: &str) -> &str {
    let authority = origin(without_query(target)).split("://").last().unwrap_or(target);
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_shortened_to_their_origin_and_host() {
        for (target, expected) in [
            ("https://a.test/x/y?(3 bytes)", ("https://a.test", "a.test")),
            ("http://a.test:8080/", ("http://a.test:8080", "a.test")),
            ("a.test:443", ("a.test:443", "a.test")),
            ("a.test", ("a.test", "a.test")),
            ("[2001:db8::1]:443", ("[2001:db8::1]:443", "2001:db8::1")),
            ("", ("", "")),
        ] {
            assert_eq!((origin(target), host(target)), expected);
        }
    }
}
