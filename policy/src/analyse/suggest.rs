//! The smallest readable `network_access` that permits what was seen.
//!
//! [`Observations`] takes requests in, in bounded memory, and [`Observations::suggest`] writes rules for them: a rule
//! for each origin that was used; a path prefix where the paths seen at an origin lie under few prefixes and repeat;
//! the whole host where it was used in more ways than two, or by a tunnel that need not be TLS; and, on request, one
//! wildcard for the hosts of a domain. Each rule says what was seen and what it would permit beside that. The rules are
//! then held against what was taken in, by the decision function: a suggestion that does not permit all of it is not
//! made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::decision::{AuthorityVerdict, ListKind, Rule, Verdict};
use crate::host::Host;
use crate::pattern::{Pattern, Prefix};
use crate::policy::{DefaultVerdict, Layer, Policy};
use crate::suffix;
use crate::target::{Authority, Scheme, Target};

/// How far rules go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Detail {
    /// Origins, and prefixes where paths repeat.
    #[default]
    Auto,
    /// Whole hosts.
    Host,
    /// Origins.
    Origin,
    /// Prefixes wherever the paths seen share one.
    Path,
}

/// How to write the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    /// How far they go.
    pub detail: Detail,
    /// Whether hosts of one registrable domain become one wildcard for it.
    pub wildcards: bool,
}

/// One rule that would permit some of what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuggestedRule {
    /// The rule.
    pub pattern: Pattern,
    /// How many requests and tunnels it is for.
    pub seen: u64,
    /// What was seen, in one line.
    pub saw: String,
    /// What it would permit beside that, in one line.
    pub also: String,
}

/// Rules for what was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suggestion {
    /// The rules, in the order of their hosts.
    pub rules: Vec<SuggestedRule>,
    /// What no allowed rule could permit: a blocked rule of the policy at hand stands against it. A URL or authority,
    /// and the rule.
    pub blocked: Vec<(String, Rule)>,
    /// How many hosts were left out because more were seen than are kept.
    pub hosts_left_out: u64,
    /// How many of the rules' own observations are denied all the same; none, unless a rule could not be written.
    pub denied: Vec<String>,
}

/// What was seen, by host. It holds at most [`Observations::MOST_HOSTS`] hosts, and of each origin at most
/// [`Observations::MOST_PATHS`] paths; of an origin with more, it only knows that there were many.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    hosts: BTreeMap<Box<str>, Seen>,
    left_out: BTreeSet<u64>,
    left_out_more: u64,
}

/// What was seen of one host.
#[derive(Clone, Debug)]
struct Seen {
    host: Host,
    origins: BTreeMap<(Scheme, u16), Requests>,
    tunnels: BTreeMap<u16, u64>,
}

/// The requests to one origin.
#[derive(Clone, Debug, Default)]
struct Requests {
    count: u64,
    /// The distinct paths with how often each was seen; none once there were too many.
    paths: Option<BTreeMap<Box<str>, u64>>,
}

impl Observations {
    /// How many hosts are kept.
    pub const MOST_HOSTS: usize = 20_000;
    /// How many paths of an origin are kept.
    pub const MOST_PATHS: usize = 500;

    /// Takes a request in.
    pub fn request(&mut self, target: &Target) {
        let Some(seen) = self.seen(target.host()) else { return };
        let origin = seen.origins.entry((target.scheme(), target.port()));
        let origin = origin.or_insert_with(|| Requests { count: 0, paths: Some(BTreeMap::new()) });
        origin.count += 1;
        if let Some(paths) = &mut origin.paths {
            *paths.entry(target.path().into()).or_default() += 1;
            if paths.len() > Self::MOST_PATHS {
                origin.paths = None;
            }
        }
    }

    /// Takes a tunnel in, of which nothing but its authority is known.
    pub fn tunnel(&mut self, authority: &Authority) {
        if let Some(seen) = self.seen(authority.host()) {
            *seen.tunnels.entry(authority.port()).or_default() += 1;
        }
    }

    /// Takes over what other observations hold.
    pub fn merge(&mut self, other: Self) {
        for (_, seen) in other.hosts {
            let Some(own) = self.seen(&seen.host) else { continue };
            for (port, count) in seen.tunnels {
                *own.tunnels.entry(port).or_default() += count;
            }
            for (origin, requests) in seen.origins {
                match own.origins.entry(origin) {
                    std::collections::btree_map::Entry::Vacant(slot) => {
                        slot.insert(requests);
                    }
                    std::collections::btree_map::Entry::Occupied(mut slot) => slot.get_mut().merge(requests),
                }
            }
        }
        self.left_out_more += other.left_out_more;
        for host in other.left_out {
            self.leave_out(host);
        }
    }

    fn seen(&mut self, host: &Host) -> Option<&mut Seen> {
        if !self.hosts.contains_key(host.as_str()) && self.hosts.len() >= Self::MOST_HOSTS {
            self.leave_out(foldhash_of(host.as_str()));
            return None;
        }
        let new = || Seen { host: host.clone(), origins: BTreeMap::new(), tunnels: BTreeMap::new() };
        Some(self.hosts.entry(host.as_str().into()).or_insert_with(new))
    }

    /// Counts a host once, as long as there is room to remember it.
    fn leave_out(&mut self, hash: u64) {
        if self.left_out.len() < Self::MOST_HOSTS {
            self.left_out.insert(hash);
        } else if !self.left_out.contains(&hash) {
            self.left_out_more += 1;
        }
    }

    /// Whether nothing was seen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Rules for what was seen. With a policy, for that of it which the policy denies for want of a rule.
    #[must_use]
    pub fn suggest(&self, options: Options, beside: Option<&Policy>) -> Suggestion {
        let mut suggestion = Suggestion {
            hosts_left_out: u64::try_from(self.left_out.len()).unwrap_or(u64::MAX).saturating_add(self.left_out_more),
            ..Suggestion::default()
        };
        let mut wanted = Vec::new();
        for seen in self.hosts.values() {
            let seen = match beside {
                None => Some(seen.clone()),
                Some(policy) => seen.denied_by(policy, &mut suggestion.blocked),
            };
            wanted.extend(seen);
        }
        let mut groups: Vec<(Option<Host>, Vec<&Seen>)> = Vec::new();
        if options.wildcards {
            let mut domains: BTreeMap<&str, Vec<&Seen>> = BTreeMap::new();
            for seen in &wanted {
                let domain = suffix::registrable_domain(&seen.host).unwrap_or(seen.host.as_str());
                domains.entry(domain).or_default().push(seen);
            }
            for (domain, hosts) in domains {
                let host = (hosts.len() > 1).then(|| Host::parse(domain).ok()).flatten();
                match host {
                    Some(host) => groups.push((Some(host), hosts)),
                    None => groups.extend(hosts.into_iter().map(|seen| (None, vec![seen]))),
                }
            }
        } else {
            groups.extend(wanted.iter().map(|seen| (None, vec![seen])));
        }
        for (domain, hosts) in groups {
            match domain {
                Some(domain) => suggestion.rules.push(wildcard(domain, &hosts)),
                None => hosts.iter().for_each(|seen| suggestion.rules.extend(seen.rules(options.detail))),
            }
        }
        suggestion.denied = wanted.iter().flat_map(|seen| seen.denied(&suggestion.rules)).collect();
        suggestion
    }
}

fn foldhash_of(text: &str) -> u64 {
    use std::hash::BuildHasher as _;
    foldhash::fast::FixedState::default().hash_one(text)
}

impl Requests {
    fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.paths = match (self.paths.take(), other.paths) {
            (Some(mut paths), Some(others)) => {
                for (path, count) in others {
                    *paths.entry(path).or_default() += count;
                }
                (paths.len() <= Observations::MOST_PATHS).then_some(paths)
            }
            _ => None,
        };
    }

    /// The paths kept, or one that stands for all.
    fn some_paths(&self) -> Vec<&str> {
        match &self.paths {
            Some(paths) => paths.keys().map(|path| &**path).collect(),
            None => vec!["/"],
        }
    }
}

impl Seen {
    fn targets(&self) -> impl Iterator<Item = ((Scheme, u16), Target)> {
        self.origins.iter().flat_map(|(&(scheme, port), requests)| {
            let authority = Authority::new(self.host.clone(), port);
            let paths = requests.some_paths();
            paths
                .into_iter()
                .filter_map(move |path| Target::from_parts(scheme, &authority, path).ok())
                .map(move |target| ((scheme, port), target))
        })
    }

    /// What of it a policy denies for want of a rule.
    fn denied_by(&self, policy: &Policy, blocked: &mut Vec<(String, Rule)>) -> Option<Self> {
        let mut denied = Self { host: self.host.clone(), origins: BTreeMap::new(), tunnels: BTreeMap::new() };
        for (origin, target) in self.targets() {
            let decision = policy.decide(&target);
            if decision.verdict == Verdict::Allow {
                continue;
            }
            if let Some(rule) = decision.rule.filter(|rule| rule.list == ListKind::Blocked) {
                blocked.push((target.to_string(), rule.rule.clone()));
                continue;
            }
            let Some(requests) = self.origins.get(&origin) else { continue };
            let known = requests.paths.as_ref().and_then(|paths| paths.get_key_value(target.path()));
            let kept = denied
                .origins
                .entry(origin)
                .or_insert_with(|| Requests { count: 0, paths: requests.paths.is_some().then(BTreeMap::new) });
            match (known, &mut kept.paths) {
                (Some((path, count)), Some(paths)) => {
                    kept.count += count;
                    paths.insert(path.clone(), *count);
                }
                _ => kept.count = requests.count,
            }
        }
        for (&port, &count) in &self.tunnels {
            let authority = Authority::new(self.host.clone(), port);
            let decision = policy.decide_authority(&authority);
            if decision.verdict != AuthorityVerdict::Deny {
                continue;
            }
            match decision.rule.filter(|rule| rule.list == ListKind::Blocked) {
                Some(rule) => blocked.push((authority.to_string(), rule.rule.clone())),
                None => {
                    denied.tunnels.insert(port, count);
                }
            }
        }
        (!denied.origins.is_empty() || !denied.tunnels.is_empty()).then_some(denied)
    }

    fn rules(&self, detail: Detail) -> Vec<SuggestedRule> {
        // What a tunnel to a port other than that of https carries is not known to be TLS.
        let odd_tunnel =
            self.tunnels.keys().any(|port| *port != 443 && !self.origins.contains_key(&(Scheme::Https, *port)));
        let mut origins: BTreeSet<(Scheme, u16)> = self.origins.keys().copied().collect();
        origins.extend(self.tunnels.keys().map(|port| (Scheme::Https, *port)));
        if detail == Detail::Host || odd_tunnel || origins.len() > 2 {
            return vec![self.whole_host()];
        }
        origins.into_iter().flat_map(|(scheme, port)| self.origin_rules(scheme, port, detail)).collect()
    }

    fn count(&self) -> u64 {
        self.origins.values().map(|requests| requests.count).sum::<u64>() + self.tunnels.values().sum::<u64>()
    }

    fn saw(&self) -> String {
        let requests = self.origins.iter().map(|((scheme, port), requests)| {
            let paths = requests.paths.as_ref().map_or("many".to_owned(), |paths| paths.len().to_string());
            let plural = if paths == "1" { "path" } else { "paths" };
            format!("{scheme} on port {port}, {paths} {plural}")
        });
        let tunnels = self.tunnels.keys().map(|port| format!("tunnels to port {port}"));
        requests.chain(tunnels).collect::<Vec<_>>().join("; ")
    }

    fn whole_host(&self) -> SuggestedRule {
        SuggestedRule {
            pattern: Pattern::Host(self.host.clone()),
            seen: self.count(),
            saw: self.saw(),
            also: format!("every scheme, port and path of {}", self.host),
        }
    }

    fn origin_rules(&self, scheme: Scheme, port: u16, detail: Detail) -> Vec<SuggestedRule> {
        let tunnels = if scheme == Scheme::Https { self.tunnels.get(&port).copied().unwrap_or(0) } else { 0 };
        let requests = self.origins.get(&(scheme, port));
        let prefixes = requests.and_then(|requests| prefixes(requests, detail)).unwrap_or_default();
        let whole = || {
            let Some(pattern) = self.prefix(scheme, port, "/") else { return self.whole_host() };
            let count = requests.map_or(0, |requests| requests.count) + tunnels;
            let paths =
                requests.map(|requests| requests.paths.as_ref().map_or("many".into(), |paths| paths.len().to_string()));
            let saw = match paths {
                Some(paths) if paths == "1" => "1 path".to_owned(),
                Some(paths) => format!("{paths} paths"),
                None => "tunnels only, whose paths are not known".to_owned(),
            };
            let also = format!("every other path of {}", Pattern::Prefix(pattern.clone()));
            SuggestedRule { pattern: Pattern::Prefix(pattern), seen: count, saw, also }
        };
        let rules: Option<Vec<SuggestedRule>> = prefixes
            .iter()
            .map(|(path, paths, count)| {
                let pattern = self.prefix(scheme, port, path)?;
                let also = format!("whatever else lies below {}; needs interception", pattern.path());
                let saw = if *paths == 1 { "1 path".to_owned() } else { format!("{paths} paths") };
                Some(SuggestedRule { pattern: Pattern::Prefix(pattern), seen: *count, saw, also })
            })
            .collect();
        match rules.filter(|rules| !rules.is_empty() && self.all_within(scheme, port, rules)) {
            Some(rules) => rules,
            None => vec![whole()],
        }
    }

    fn prefix(&self, scheme: Scheme, port: u16, path: &str) -> Option<Prefix> {
        match Pattern::parse(&format!("{scheme}://{}:{port}{path}", self.host)) {
            Ok(Pattern::Prefix(prefix)) => Some(prefix),
            _ => None,
        }
    }

    /// Whether every path seen lies within one of the rules, in all of its readings.
    fn all_within(&self, scheme: Scheme, port: u16, rules: &[SuggestedRule]) -> bool {
        let within = |target: &Target| {
            rules.iter().any(|rule| matches!(&rule.pattern, Pattern::Prefix(prefix) if target.is_within(prefix)))
        };
        self.targets().filter(|(origin, _)| *origin == (scheme, port)).all(|(_, target)| within(&target))
    }

    /// What of it rules deny.
    fn denied(&self, rules: &[SuggestedRule]) -> Vec<String> {
        let own = rules.iter().filter(|rule| match &rule.pattern {
            Pattern::Domain(domain) => self.host.as_str().ends_with(domain.as_str()),
            pattern => *pattern.host() == self.host,
        });
        let rule =
            |pattern: &Pattern| Rule { pattern: pattern.to_string().into(), file: Arc::from(""), line: 1, column: 1 };
        let allowed = own.map(|own| (own.pattern.clone(), rule(&own.pattern))).collect();
        let layer = Layer { name: Arc::from("agent"), allowed, blocked: Vec::new() };
        let Ok(policy) = Policy::build(vec![layer], DefaultVerdict::Deny) else { return vec![self.host.to_string()] };
        let requests = self.targets().map(|(_, target)| target);
        let requests = requests.filter(|target| policy.decide(target).verdict == Verdict::Deny);
        let tunnels = self.tunnels.keys().map(|port| Authority::new(self.host.clone(), *port));
        let tunnels = tunnels.filter(|tunnel| policy.decide_authority(tunnel).verdict == AuthorityVerdict::Deny);
        requests.map(|target| target.to_string()).chain(tunnels.map(|tunnel| tunnel.to_string())).collect()
    }
}

/// The most prefixes that stand for an origin.
const MOST_PREFIXES: usize = 3;

/// Prefixes that the paths seen lie under, each with how many paths and requests it is for; none where the whole origin
/// is the better rule.
fn prefixes(requests: &Requests, detail: Detail) -> Option<Vec<(String, usize, u64)>> {
    if !matches!(detail, Detail::Auto | Detail::Path) {
        return None;
    }
    let paths = requests.paths.as_ref()?;
    let mut groups: BTreeMap<&str, Vec<(&str, u64)>> = BTreeMap::new();
    for (path, count) in paths {
        groups.entry(first_segment(path)).or_default().push((path, *count));
    }
    let repeated = |group: &Vec<(&str, u64)>| group.iter().map(|(_, count)| count).sum::<u64>() > 1;
    let fits = groups.len() <= MOST_PREFIXES && !groups.contains_key("/") && groups.values().all(repeated);
    if !fits && detail == Detail::Auto || groups.contains_key("/") {
        return None;
    }
    let prefix = |group: Vec<(&str, u64)>| {
        let count = group.iter().map(|(_, count)| count).sum();
        (common(group.iter().map(|(path, _)| *path)), group.len(), count)
    };
    Some(groups.into_values().map(prefix).collect())
}

/// A path's first segment, with the slashes around it.
fn first_segment(path: &str) -> &str {
    let end = path.get(1..).and_then(|rest| rest.find('/')).map_or(path.len(), |end| end + 2);
    let first = path.get(..end).unwrap_or(path);
    first.strip_suffix('/').filter(|first| !first.is_empty()).unwrap_or(first)
}

/// The longest prefix of all paths that ends on a segment border: the path itself if there is but one, or else a
/// folder.
fn common<'a>(paths: impl Iterator<Item = &'a str> + Clone) -> String {
    let Some(first) = paths.clone().next() else { return "/".to_owned() };
    let shared = |length, path: &str| first.bytes().zip(path.bytes()).take(length).take_while(|(a, b)| a == b).count();
    let length = paths.clone().fold(first.len(), shared);
    let on_border = |path: &str| path.get(length..).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let shared = first.get(..length).unwrap_or("/");
    if paths.clone().all(on_border) {
        return shared.to_owned();
    }
    shared.rfind('/').and_then(|slash| first.get(..=slash)).unwrap_or("/").to_owned()
}

fn wildcard(domain: Host, hosts: &[&Seen]) -> SuggestedRule {
    let names: Vec<&str> = hosts.iter().take(5).map(|seen| seen.host.as_str()).collect();
    let more = if hosts.len() > names.len() { ", …" } else { "" };
    SuggestedRule {
        seen: hosts.iter().map(|seen| seen.count()).sum(),
        saw: format!("{} hosts: {}{more}", hosts.len(), names.join(", ")),
        also: format!("{domain} and every other name below it; every scheme, port and path"),
        pattern: Pattern::Domain(domain),
    }
}
