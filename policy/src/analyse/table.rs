//! All rules of some layers, asked which of them match a request.

use std::collections::{BTreeSet, HashMap};

use super::matching::{canonical, matches, views};
use crate::decision::{ListKind, Rule, RuleRef};
use crate::path;
use crate::pattern::{Pattern, Prefix};
use crate::policy::{Layer, Policy};
use crate::target::{Scheme, Target};

/// A rule with its pattern, and where it belongs. Its number is that of [`RuleRef::number`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'l> {
    pub(super) layer: usize,
    pub(super) list: ListKind,
    pub(super) index: usize,
    pub(super) pattern: &'l Pattern,
    pub(super) rule: &'l Rule,
}

/// Rules by what they name, so that finding those that match a request does not ask each of them.
#[derive(Debug)]
pub(super) struct Table<'l> {
    pub(super) entries: Vec<Entry<'l>>,
    by_host: HashMap<Box<str>, Vec<usize>>,
    by_domain: HashMap<Box<str>, Vec<usize>>,
    by_origin: HashMap<(Scheme, u16, Box<str>), Paths>,
}

/// The path rules of one origin.
#[derive(Debug, Default)]
struct Paths {
    by_path: HashMap<Box<[u8]>, Vec<usize>>,
    lengths: BTreeSet<usize>,
}

impl<'l> Table<'l> {
    /// The rules of layers, numbered as those of a policy built of them.
    pub(super) fn new(layers: &'l [Layer]) -> Self {
        let mut table =
            Self { entries: Vec::new(), by_host: HashMap::new(), by_domain: HashMap::new(), by_origin: HashMap::new() };
        for (layer, rules) in layers.iter().enumerate() {
            for (list, rules) in [(ListKind::Allowed, &rules.allowed), (ListKind::Blocked, &rules.blocked)] {
                for (index, (pattern, rule)) in rules.iter().enumerate() {
                    let number = table.entries.len();
                    table.entries.push(Entry { layer, list, index, pattern, rule });
                    table.add(number, list, pattern);
                }
            }
        }
        table
    }

    fn add(&mut self, number: usize, list: ListKind, pattern: &Pattern) {
        match pattern {
            Pattern::Host(host) => {
                for view in views(host) {
                    self.by_host.entry(view.as_str().into()).or_default().push(number);
                }
            }
            Pattern::Domain(host) => self.by_domain.entry(host.as_str().into()).or_default().push(number),
            Pattern::Prefix(prefix) => self.add_prefix(number, list, prefix),
        }
    }

    fn add_prefix(&mut self, number: usize, list: ListKind, prefix: &Prefix) {
        let written = prefix.path().as_bytes();
        let decoded = (list == ListKind::Blocked).then(|| path::decoded(written)).flatten();
        for view in views(prefix.host()) {
            let key = (prefix.scheme(), prefix.port(), Box::from(view.as_str()));
            let paths = self.by_origin.entry(key).or_default();
            for path in [Some(written), decoded.as_deref()].into_iter().flatten() {
                paths.by_path.entry(path.into()).or_default().push(number);
                paths.lengths.insert(path.len());
            }
        }
    }

    /// The numbers of all rules that match, in their order.
    pub(super) fn matching(&self, target: &Target) -> Vec<usize> {
        let mut found = BTreeSet::new();
        for view in views(target.host()) {
            found.extend(self.by_host.get(view.as_str()).into_iter().flatten());
            let key = (target.scheme(), target.port(), Box::from(view.as_str()));
            if let Some(paths) = self.by_origin.get(&key) {
                let (literal, others) = target.readings();
                for reading in std::iter::once(literal).chain(others.iter().map(|other| &**other)) {
                    let prefixes = paths.lengths.iter().map_while(|length| reading.get(..*length));
                    found.extend(prefixes.filter_map(|prefix| paths.by_path.get(prefix)).flatten());
                }
            }
        }
        if target.host().ip().is_none() {
            let mut suffix = Some(target.host().as_str());
            while let Some(name) = suffix {
                found.extend(self.by_domain.get(name).into_iter().flatten());
                suffix = name.split_once('.').map(|(_, rest)| rest);
            }
        }
        let matching =
            |number: &usize| self.entries.get(*number).is_some_and(|entry| matches(entry.list, entry.pattern, target));
        found.into_iter().filter(matching).collect()
    }
}

/// The layers of a policy, from its rules as they were written. A rule whose text is no pattern is left out; no policy
/// that was read from files has one.
#[must_use]
pub fn layers_of(policy: &Policy) -> Vec<Layer> {
    let mut layers: Vec<Layer> = policy.layers().map(|name| Layer { name: name.into(), ..Layer::default() }).collect();
    for RuleRef { layer_index, list, rule, .. } in policy.rules() {
        let (Ok(pattern), Some(layer)) = (Pattern::parse(&rule.pattern), layers.get_mut(layer_index)) else { continue };
        let to = match list {
            ListKind::Allowed => &mut layer.allowed,
            ListKind::Blocked => &mut layer.blocked,
        };
        to.push((pattern, rule.clone()));
    }
    layers
}

/// The same host in the form it is compared in, as text.
pub(super) fn key(host: &crate::host::Host) -> String {
    canonical(host).as_str().to_owned()
}
