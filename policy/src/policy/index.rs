//! The index: from a host, scheme and port to the few rules that can concern them.
//!
//! Every host that a rule names is an entry of one hash table. A request's host is looked up whole, then label by
//! label from the left until an entry is found; entries link to their nearest ancestor that has wildcard rules, so
//! the rest is following links. No look-up is made for suffixes with more labels than any rule has. An origin, that
//! is an entry with scheme and port, is found in a second table and has one set of path prefixes for each layer and
//! list. So the cost of a decision depends on the labels of the host, the bytes of the path and the layers, and not
//! on the number of rules.
//!
//! The tables are filled while a policy is built and only read after that; a request cannot degrade them, and their
//! hash is seeded at random against whoever writes rules.

use std::hash::BuildHasher as _;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::prefixes::Prefixes;
use crate::decision::ListKind;
use crate::host::{Host, embedded_ipv4};
use crate::target::Scheme;

/// No rule, no entry.
pub(super) const NONE: u32 = u32::MAX;

/// How many embedded addresses of a host are looked up at most.
const VIEWS: usize = 5;

/// The compiled form of all layers.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The canonical texts of all entries' hosts, one behind the other.
    pub(super) names: String,
    pub(super) entries: Vec<Entry>,
    by_name: HashTable<u32>,
    pub(super) host_rules: Vec<HostRule>,
    pub(super) origins: Vec<Origin>,
    by_origin: HashTable<u32>,
    pub(super) sets: Vec<PathSet>,
    pub(super) prefixes: Prefixes,
    /// The labels of the longest name, counted.
    most_labels: usize,
    hasher: RandomState,
}

/// A host that rules name.
#[derive(Debug)]
pub(super) struct Entry {
    /// Where its text begins in [`Index::names`].
    name: u32,
    /// The nearest entry above it in the tree of names that has wildcard rules.
    pub(super) parent: u32,
    /// Its rules in [`Index::host_rules`].
    pub(super) rules: u32,
    pub(super) rule_count: u16,
    /// The length of its text: at most 253.
    length: u8,
    pub(super) wildcards: bool,
    pub(super) origins: bool,
}

/// The first rule of one layer and list that names a host whatever the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostRule {
    pub(super) rule: u32,
    pub(super) layer: u16,
    pub(super) list: ListKind,
    /// Whether it covers subdomains.
    pub(super) wildcard: bool,
}

/// A scheme and port of a host that rules name.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) entry: u32,
    pub(super) port: u16,
    pub(super) scheme: Scheme,
    /// Its sets in [`Index::sets`].
    pub(super) sets: u32,
    pub(super) set_count: u32,
    pub(super) extent: Extent,
}

/// The path prefixes of one layer and list at one origin.
#[derive(Debug)]
pub(super) struct PathSet {
    /// Its root in [`Index::prefixes`].
    pub(super) root: u32,
    /// The first rule in it.
    pub(super) first: u32,
    pub(super) layer: u16,
    pub(super) list: ListKind,
}

/// How many of an origin's requests are permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Every one, by this rule of the innermost restricting layer, or [`NONE`] by default.
    Every(u32),
    /// Some, since this rule speaks of paths.
    Some(u32),
    /// None, since this rule blocks the host, or what is left of the allowances.
    Blocked(u32),
    /// None, since this rule blocks the whole origin.
    BlockedOrigin(u32),
    /// None, since this layer allows nothing there.
    NotAllowed(u32),
    /// None, by default.
    DefaultDeny,
}

/// The entries that concern a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// The entry of the host itself.
    pub(super) own: u32,
    /// The nearest entry above it, from which on wildcard rules count.
    above: u32,
    /// The entries of embedded addresses.
    views: [u32; VIEWS],
}

impl Found {
    /// The entries of addresses embedded in the host.
    pub(super) fn views(&self) -> impl Iterator<Item = u32> + Clone + use<> {
        self.views.into_iter().filter(|view| *view != NONE)
    }
}

impl Index {
    /// The entries that concern a host.
    pub(super) fn find(&self, host: &Host) -> Found {
        let mut found = Found { own: NONE, above: NONE, views: [NONE; VIEWS] };
        match host.ip() {
            None => self.find_name(host.as_str(), &mut found),
            Some(IpAddr::V4(_)) => found.own = self.entry_of(host.as_str()),
            Some(IpAddr::V6(ip)) => {
                found.own = match ip.to_ipv4_mapped() {
                    Some(ip) => self.entry_of_ipv4(ip),
                    None => self.entry_of(host.as_str()),
                };
                for (view, ip) in found.views.iter_mut().zip(embedded_ipv4(ip)) {
                    *view = self.entry_of_ipv4(ip);
                }
            }
        }
        found
    }

    fn find_name(&self, name: &str, found: &mut Found) {
        let mut labels = 1 + name.bytes().filter(|byte| *byte == b'.').count();
        let mut suffix = name;
        loop {
            if labels <= self.most_labels {
                let entry = self.entry_of(suffix);
                if let Some(known) = self.entries.get(entry as usize) {
                    if suffix.len() == name.len() {
                        found.own = entry;
                        found.above = known.parent;
                    } else {
                        found.above = entry;
                    }
                    return;
                }
            }
            let Some((_, rest)) = suffix.split_once('.') else { return };
            suffix = rest;
            labels -= 1;
        }
    }

    fn entry_of(&self, name: &str) -> u32 {
        let hash = self.hash_name(name);
        self.by_name.find(hash, |entry| self.name(*entry) == name).copied().unwrap_or(NONE)
    }

    fn entry_of_ipv4(&self, ip: Ipv4Addr) -> u32 {
        let mut buffer = [0; 15];
        let mut unused = buffer.as_mut_slice();
        if write!(unused, "{ip}").is_err() {
            return NONE;
        }
        let left = unused.len();
        let text = buffer.get(..buffer.len() - left).and_then(|text| std::str::from_utf8(text).ok());
        text.map_or(NONE, |text| self.entry_of(text))
    }

    /// The text of an entry's host.
    pub(super) fn name(&self, entry: u32) -> &str {
        let Some(entry) = self.entries.get(entry as usize) else { return "" };
        let start = entry.name as usize;
        self.names.get(start..start + usize::from(entry.length)).unwrap_or_default()
    }

    fn hash_name(&self, name: &str) -> u64 {
        self.hasher.hash_one(name.as_bytes())
    }

    fn hash_origin(&self, entry: u32, scheme: Scheme, port: u16) -> u64 {
        self.hasher.hash_one((entry, scheme as u8, port))
    }

    /// The origin of an entry at a scheme and port.
    pub(super) fn origin(&self, entry: u32, scheme: Scheme, port: u16) -> Option<&Origin> {
        if !self.entries.get(entry as usize)?.origins {
            return None;
        }
        let hash = self.hash_origin(entry, scheme, port);
        let is_it = |at: &u32| {
            let origin = self.origins.get(*at as usize);
            origin.is_some_and(|origin| origin.entry == entry && origin.scheme == scheme && origin.port == port)
        };
        self.by_origin.find(hash, is_it).and_then(|at| self.origins.get(*at as usize))
    }

    /// The path sets of an origin: the blocked ones first, each list's from the outermost layer in.
    pub(super) fn sets(&self, origin: &Origin) -> &[PathSet] {
        let start = origin.sets as usize;
        self.sets.get(start..start + origin.set_count as usize).unwrap_or_default()
    }

    /// The allowed prefixes of a layer at an origin.
    pub(super) fn allowed_set(&self, origin: &Origin, layer: u32) -> Option<&PathSet> {
        let mut sets = self.sets(origin).iter();
        sets.find(|set| set.list == ListKind::Allowed && u32::from(set.layer) == layer)
    }

    fn rules_of(&self, entry: u32) -> &[HostRule] {
        let Some(entry) = self.entries.get(entry as usize) else { return &[] };
        let start = entry.rules as usize;
        self.host_rules.get(start..start + usize::from(entry.rule_count)).unwrap_or_default()
    }

    /// Every rule that names the host whatever the path, without those for embedded addresses.
    fn host_rules(&self, found: &Found) -> impl Iterator<Item = &HostRule> {
        let own = self.rules_of(found.own).iter();
        let ancestors = std::iter::successors(Some(found.above), |entry| {
            self.entries.get(*entry as usize).map(|entry| entry.parent)
        });
        let ancestors = ancestors.take_while(|entry| *entry != NONE);
        own.chain(ancestors.flat_map(|entry| self.rules_of(entry).iter().filter(|rule| rule.wildcard)))
    }

    /// The first rule that blocks the host whatever the path, or [`NONE`].
    pub(super) fn blocking_host(&self, found: &Found) -> u32 {
        let views = found.views().flat_map(|view| self.rules_of(view));
        let rules = self.host_rules(found).chain(views).filter(|rule| rule.list == ListKind::Blocked);
        rules.map(|rule| rule.rule).min().unwrap_or(NONE)
    }

    /// The first rule of `layer` that allows the host whatever the path, or [`NONE`].
    pub(super) fn allowing_host(&self, found: &Found, layer: u32) -> u32 {
        let rules = self.host_rules(found);
        let rules = rules.filter(|rule| rule.list == ListKind::Allowed && u32::from(rule.layer) == layer);
        rules.map(|rule| rule.rule).min().unwrap_or(NONE)
    }

    /// The entry of a host's text, made if it is new; none where there is no room.
    pub(super) fn intern(&mut self, name: &str) -> Option<u32> {
        let known = self.entry_of(name);
        if known != NONE {
            return Some(known);
        }
        let entry = u32::try_from(self.entries.len()).ok().filter(|entry| *entry != NONE)?;
        let start = u32::try_from(self.names.len()).ok()?;
        let length = u8::try_from(name.len()).ok()?;
        self.names.push_str(name);
        self.most_labels = self.most_labels.max(1 + name.bytes().filter(|byte| *byte == b'.').count());
        let new =
            Entry { name: start, parent: NONE, rules: 0, rule_count: 0, length, wildcards: false, origins: false };
        self.entries.push(new);
        let Self { by_name, hasher, names, entries, .. } = self;
        let text = |entry: u32| {
            let entry = entries.get(entry as usize)?;
            names.as_bytes().get(entry.name as usize..entry.name as usize + usize::from(entry.length))
        };
        let hash = hasher.hash_one(name.as_bytes());
        by_name.insert_unique(hash, entry, |entry| hasher.hash_one(text(*entry).unwrap_or_default()));
        Some(entry)
    }

    /// Links every entry to its nearest ancestor with wildcard rules.
    pub(super) fn link(&mut self) {
        for entry in 0..self.entries.len() {
            let Ok(entry) = u32::try_from(entry) else { return };
            let parent = self.ancestor_of(self.name(entry));
            if let Some(entry) = self.entries.get_mut(entry as usize) {
                entry.parent = parent;
            }
        }
    }

    fn ancestor_of(&self, name: &str) -> u32 {
        if name.contains(':') {
            return NONE;
        }
        let mut suffix = name;
        while let Some((_, rest)) = suffix.split_once('.') {
            suffix = rest;
            let entry = self.entry_of(suffix);
            if self.entries.get(entry as usize).is_some_and(|entry| entry.wildcards) {
                return entry;
            }
        }
        NONE
    }

    /// Adds an origin to the table; it has to be new.
    pub(super) fn add_origin(&mut self, origin: Origin) -> Option<()> {
        let at = u32::try_from(self.origins.len()).ok()?;
        if let Some(entry) = self.entries.get_mut(origin.entry as usize) {
            entry.origins = true;
        }
        let hash = self.hash_origin(origin.entry, origin.scheme, origin.port);
        self.origins.push(origin);
        let Self { by_origin, hasher, origins, .. } = self;
        by_origin.insert_unique(hash, at, |at| {
            origins.get(*at as usize).map_or(0, |o| hasher.hash_one((o.entry, o.scheme as u8, o.port)))
        });
        Some(())
    }

    /// What [`Index::find`] finds for the host of an entry.
    pub(super) fn found_of(&self, entry: u32) -> Found {
        let mut found = Found { own: entry, above: NONE, views: [NONE; VIEWS] };
        if let Some(known) = self.entries.get(entry as usize) {
            found.above = known.parent;
        }
        if let Ok(ip) = self.name(entry).parse() {
            for (view, ip) in found.views.iter_mut().zip(embedded_ipv4(ip)) {
                *view = self.entry_of_ipv4(ip);
            }
        }
        found
    }

    /// Gives back what growing left unused.
    pub(super) fn shrink(&mut self) {
        self.names.shrink_to_fit();
        self.entries.shrink_to_fit();
        self.host_rules.shrink_to_fit();
        self.origins.shrink_to_fit();
        self.sets.shrink_to_fit();
        self.prefixes.shrink();
    }
}
