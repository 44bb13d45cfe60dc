//! From layers of patterns to the index.

use super::index::{Extent, HostRule, Index, Origin, PathSet};
use super::prefixes::Key;
use super::{DefaultVerdict, Layer, LayerInfo, Policy, PolicyTooLarge, digest};
use crate::decision::ListKind;
use crate::host::Host;
use crate::path;
use crate::pattern::{Pattern, Prefix};
use crate::target::Scheme;

/// A rule with a path, on its way into the set of its origin, list and layer.
pub(super) struct PathRule {
    entry: u32,
    scheme: Scheme,
    port: u16,
    list: ListKind,
    layer: u16,
    path: Box<[u8]>,
    rule: u32,
}

impl PathRule {
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    pub(super) const fn list(&self) -> ListKind {
        self.list
    }

    const fn origin(&self) -> (u32, Scheme, u16) {
        (self.entry, self.scheme, self.port)
    }

    /// Blocked sets stand in front of allowed ones.
    fn set(&self) -> (bool, u16) {
        (self.list == ListKind::Allowed, self.layer)
    }
}

pub(super) fn build(layers: Vec<Layer>, default: DefaultVerdict) -> Result<Policy, PolicyTooLarge> {
    let digest = digest::digest(&layers, default);
    let mut builder = Builder::default();
    let total = layers.iter().map(|layer| layer.allowed.len() + layer.blocked.len()).sum();
    let mut rules = Vec::with_capacity(total);
    let mut infos = Vec::with_capacity(layers.len());
    let mut restricting = Vec::new();
    for (position, layer) in layers.into_iter().enumerate() {
        let position = u16::try_from(position).ok().filter(|at| *at < u16::MAX / 4).ok_or(PolicyTooLarge)?;
        if !layer.allowed.is_empty() {
            restricting.push(u32::from(position));
        }
        let allowed = rules.len();
        let blocked = allowed + layer.allowed.len();
        for (list, entries) in [(ListKind::Allowed, layer.allowed), (ListKind::Blocked, layer.blocked)] {
            for (pattern, rule) in entries {
                let number = u32::try_from(rules.len()).ok().ok_or(PolicyTooLarge)?;
                builder.add(pattern, position, list, number).ok_or(PolicyTooLarge)?;
                rules.push(rule);
            }
        }
        infos.push(LayerInfo { name: layer.name, allowed, blocked, end: rules.len() });
    }
    let Builder { mut index, host_rules, mut path_rules } = builder;
    add_host_rules(&mut index, host_rules).ok_or(PolicyTooLarge)?;
    path_rules.sort_by(|a, b| (a.origin(), a.set(), &a.path, a.rule).cmp(&(b.origin(), b.set(), &b.path, b.rule)));
    for rules in path_rules.chunk_by(|a, b| a.origin() == b.origin()) {
        add_origin(&mut index, rules).ok_or(PolicyTooLarge)?;
    }
    index.link();
    index.shrink();
    let mut policy = Policy { default, layers: infos, restricting, rules, index, digest };
    policy.measure_origins(&path_rules.chunk_by(|a, b| a.origin() == b.origin()).collect::<Vec<_>>());
    Ok(policy)
}

#[derive(Default)]
struct Builder {
    index: Index,
    host_rules: Vec<(u32, HostRule)>,
    path_rules: Vec<PathRule>,
}

impl Builder {
    fn add(&mut self, pattern: Pattern, layer: u16, list: ListKind, rule: u32) -> Option<()> {
        match pattern {
            Pattern::Host(host) => {
                let host_rule = HostRule { rule, layer, list, wildcard: false };
                for name in names(&host, list) {
                    let entry = self.index.intern(&name)?;
                    self.host_rules.push((entry, host_rule));
                }
            }
            Pattern::Domain(host) => {
                let entry = self.index.intern(host.as_str())?;
                self.host_rules.push((entry, HostRule { rule, layer, list, wildcard: true }));
            }
            Pattern::Prefix(prefix) => self.add_prefix(&prefix, layer, list, rule)?,
        }
        Some(())
    }

    fn add_prefix(&mut self, prefix: &Prefix, layer: u16, list: ListKind, rule: u32) -> Option<()> {
        let literal = prefix.path().as_bytes();
        // A block holds in any reading of its own path too; an allowance compares them when it is asked.
        let decoded = (list == ListKind::Blocked).then(|| path::decoded(literal)).flatten();
        for name in names(prefix.host(), list) {
            let entry = self.index.intern(&name)?;
            for path in [Some(literal), decoded.as_deref()].into_iter().flatten() {
                let (scheme, port) = (prefix.scheme(), prefix.port());
                self.path_rules.push(PathRule { entry, scheme, port, list, layer, path: path.into(), rule });
            }
        }
        Some(())
    }
}

/// The texts that a rule's host is indexed under: its own, in the IPv4 form if it is IPv4-mapped, and for a block
/// those of the addresses embedded in it.
fn names(host: &Host, list: ListKind) -> Vec<String> {
    let mapped = host.ip().is_some_and(|ip| ip.to_canonical() != ip);
    let own = (!mapped).then(|| host.as_str().to_owned());
    let embedded = host.embedded_ipv4().filter(|_| mapped || list == ListKind::Blocked);
    own.into_iter().chain(embedded.map(|ip| ip.to_string())).collect()
}

/// Stores the rules without a path, of each layer and list the first for each host.
fn add_host_rules(index: &mut Index, mut rules: Vec<(u32, HostRule)>) -> Option<()> {
    let kind = |(entry, rule): &(u32, HostRule)| (*entry, rule.list, rule.layer, rule.wildcard);
    rules.sort_by_key(|rule| (kind(rule), rule.1.rule));
    rules.dedup_by(|next, previous| kind(next) == kind(previous));
    for group in rules.chunk_by(|a, b| a.0 == b.0) {
        let (first, _) = group.first()?;
        let start = u32::try_from(index.host_rules.len()).ok()?;
        let entry = index.entries.get_mut(*first as usize)?;
        entry.rules = start;
        entry.rule_count = u16::try_from(group.len()).ok()?;
        entry.wildcards = group.iter().any(|(_, rule)| rule.wildcard);
        index.host_rules.extend(group.iter().map(|(_, rule)| *rule));
    }
    Some(())
}

/// Stores the path rules of one origin, which are sorted.
fn add_origin(index: &mut Index, rules: &[PathRule]) -> Option<()> {
    let sets = u32::try_from(index.sets.len()).ok()?;
    for rules in rules.chunk_by(|a, b| a.set() == b.set()) {
        let mut keys: Vec<Key<'_>> = rules.iter().map(|rule| Key { prefix: &rule.path, rule: rule.rule }).collect();
        keys.dedup_by(|next, previous| next.prefix == previous.prefix);
        let root = index.prefixes.add(&keys)?;
        let first = rules.first()?;
        let (layer, list) = (first.layer, first.list);
        let first = rules.iter().map(|rule| rule.rule).min()?;
        index.sets.push(PathSet { root, first, layer, list });
    }
    let (entry, scheme, port) = rules.first()?.origin();
    let set_count = u32::try_from(index.sets.len()).ok()? - sets;
    index.add_origin(Origin { entry, port, scheme, sets, set_count, extent: Extent::DefaultDeny })
}
