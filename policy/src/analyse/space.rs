//! One request of each class of requests that some layers can tell apart.
//!
//! The classes form a tree of places: everywhere, domains below it, hosts below those, origins, and path prefixes.
//! Each place has a witness, a request that lies in it and in none of the places below it. A place exists if a rule
//! names it, so there are a few for each rule.
//!
//! A path prefix is two places, one in the other: paths that begin with its text, as blocked rules count, and those
//! that leave it on a segment border, as allowed ones do. A prefix that ends with `/` is one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use super::matching::views;
use super::table::key;
use crate::host::Host;
use crate::path;
use crate::pattern::{Pattern, Prefix};
use crate::policy::Layer;
use crate::target::{Authority, Scheme, Target};

/// A place in the tree. It displays as the pattern that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Every host.
    Everywhere,
    /// A domain and all below it.
    Domain(Host),
    /// A host, whatever scheme, port and path.
    Host(Host),
    /// An origin.
    Origin(Scheme, Authority),
    /// The paths of an origin below a prefix.
    Below(Scheme, Authority, Box<str>),
    /// The paths of an origin that begin with a text.
    BeginsWith(Scheme, Authority, Box<str>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everywhere => f.write_str("every other host"),
            Self::Domain(host) => write!(f, "*.{host}"),
            Self::Host(host) => write!(f, "{host}"),
            Self::Origin(scheme, authority) => write!(f, "{}/", OriginText(*scheme, authority)),
            Self::Below(scheme, authority, path) => write!(f, "{}{path}", OriginText(*scheme, authority)),
            Self::BeginsWith(scheme, authority, path) => write!(f, "{}{path}*", OriginText(*scheme, authority)),
        }
    }
}

struct OriginText<'a>(Scheme, &'a Authority);

impl fmt::Display for OriginText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(scheme, authority) = self;
        write!(f, "{scheme}://{}", scheme.short_authority(authority.host(), authority.port()))
    }
}

/// A node of the tree.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) children: Vec<usize>,
    /// A request that lies here and in no child; none where no such URL can be written.
    pub(super) witness: Option<Target>,
}

/// The tree; node 0 is everywhere.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) nodes: Vec<Node>,
}

/// What rules say about one host.
#[derive(Debug, Default)]
struct Named {
    /// Whether a rule covers its subdomains.
    domain: bool,
    origins: BTreeMap<(Scheme, u16), BTreeSet<String>>,
}

impl Space {
    /// The classes that the rules of all these layers tell apart.
    pub(super) fn new<'l>(layers: impl IntoIterator<Item = &'l Layer>) -> Self {
        let mut names: BTreeMap<String, (Host, Named)> = BTreeMap::new();
        for layer in layers {
            for (pattern, _) in layer.allowed.iter().chain(&layer.blocked) {
                for host in views(pattern.host()).chain([pattern.host().clone()]) {
                    let named = &mut names.entry(key(&host)).or_insert_with(|| (host, Named::default())).1;
                    match pattern {
                        Pattern::Host(_) => {}
                        Pattern::Domain(_) => named.domain = true,
                        Pattern::Prefix(prefix) => {
                            let paths = named.origins.entry((prefix.scheme(), prefix.port())).or_default();
                            paths.extend(paths_of(prefix));
                        }
                    }
                }
            }
        }
        share_views(&mut names);
        let mut space = Self { nodes: vec![Node::new(Place::Everywhere, elsewhere(&names))] };
        let mut domains: HashMap<&str, usize> = HashMap::new();
        for (name, (host, named)) in &names {
            if named.domain {
                let node = Node::new(Place::Domain(host.clone()), fresh_subdomain(host, &names));
                domains.insert(name, space.nodes.len());
                space.nodes.push(node);
            }
        }
        for (name, (host, named)) in &names {
            let own = domains.get(name.as_str()).copied();
            let parent = ancestor(name, &domains);
            if let Some(own) = own {
                space.link(parent, own);
            }
            space.host(own.unwrap_or(parent), host, named);
        }
        space
    }

    /// Every place with a witness.
    pub(super) fn witnesses(&self) -> impl Iterator<Item = &Target> {
        self.nodes.iter().filter_map(|node| node.witness.as_ref())
    }

    fn link(&mut self, parent: usize, child: usize) {
        if let Some(parent) = self.nodes.get_mut(parent) {
            parent.children.push(child);
        }
    }

    fn add(&mut self, parent: usize, place: Place, witness: Option<Target>) -> usize {
        let node = self.nodes.len();
        self.nodes.push(Node::new(place, witness));
        self.link(parent, node);
        node
    }

    fn host(&mut self, parent: usize, host: &Host, named: &Named) {
        let at = |scheme: Scheme, port| request(scheme, host, port, "/");
        let free = |(scheme, port): &(Scheme, u16)| !named.origins.contains_key(&(*scheme, *port));
        let origins = [(Scheme::Https, 443), (Scheme::Http, 80)].into_iter();
        let origins = origins.chain((8443..=u16::MAX).map(|port| (Scheme::Https, port)));
        let witness = origins.into_iter().find(free).and_then(|(scheme, port)| at(scheme, port));
        let node = self.add(parent, Place::Host(host.clone()), witness);
        for ((scheme, port), paths) in &named.origins {
            let authority = Authority::new(host.clone(), *port);
            let origin = self.add(node, Place::Origin(*scheme, authority.clone()), at(*scheme, *port));
            self.paths(origin, *scheme, &authority, paths);
        }
    }

    fn paths(&mut self, origin: usize, scheme: Scheme, authority: &Authority, paths: &BTreeSet<String>) {
        // The prefixes that the next path may lie in, each with the places on its border and of its text.
        let mut open: Vec<(&str, usize, usize)> = Vec::new();
        for path in paths.iter().map(String::as_str).filter(|path| *path != "/") {
            while open.last().is_some_and(|(prefix, ..)| !path.starts_with(prefix)) {
                open.pop();
            }
            let mut parent = match open.last() {
                None => origin,
                Some((prefix, below, _)) if path::is_within(path.as_bytes(), &[], prefix.as_bytes()) => *below,
                Some((.., begins)) => *begins,
            };
            let at = |path: &str| request(scheme, authority.host(), authority.port(), path);
            let mut begins = None;
            if !path.ends_with('/') {
                let beside = beside(path, paths);
                let place = Place::BeginsWith(scheme, authority.clone(), path.into());
                parent = self.add(parent, place, beside.and_then(|beside| at(&beside)));
                begins = Some(parent);
            }
            let below = self.add(parent, Place::Below(scheme, authority.clone(), path.into()), at(path));
            open.push((path, below, begins.unwrap_or(below)));
        }
    }
}

impl Node {
    const fn new(place: Place, witness: Option<Target>) -> Self {
        Self { place, children: Vec::new(), witness }
    }
}

/// Gives an address that embeds others the paths that rules name at those: a block of them holds there too.
fn share_views(names: &mut BTreeMap<String, (Host, Named)>) {
    let embedding: Vec<(String, Host)> = names
        .iter()
        .filter(|(_, (host, _))| host.embedded_ipv4().next().is_some())
        .map(|(name, (host, _))| (name.clone(), host.clone()))
        .collect();
    for (name, host) in embedding {
        for view in views(&host) {
            let Some((_, named)) = names.get(&key(&view)) else { continue };
            let origins = named.origins.clone();
            let Some((_, own)) = names.get_mut(&name) else { continue };
            for (origin, paths) in origins {
                own.origins.entry(origin).or_default().extend(paths);
            }
        }
    }
}

fn request(scheme: Scheme, host: &Host, port: u16, path: &str) -> Option<Target> {
    Target::from_parts(scheme, &Authority::new(host.clone(), port), path).ok()
}

/// The path of a rule, and its decoded form where that can be asked for.
fn paths_of(prefix: &Prefix) -> impl Iterator<Item = String> {
    let decoded = path::decoded(prefix.path().as_bytes()).and_then(|decoded| String::from_utf8(decoded).ok());
    let decoded = decoded.filter(|path| path.starts_with('/') && !path.contains(['?', '#']));
    let decoded = decoded.map(|path| path::literal(&path::normalise(&path)).into_owned());
    std::iter::once(prefix.path().to_owned()).chain(decoded)
}

/// A path that begins with `path` and goes on within its last segment, where no other path of the origin does.
fn beside(path: &str, paths: &BTreeSet<String>) -> Option<String> {
    let goes_on = |letter: char| format!("{path}{letter}");
    let taken = |candidate: &String| {
        let mut behind = paths.range(candidate.clone()..);
        behind.next().is_some_and(|next| next.starts_with(candidate.as_str()))
    };
    ('a'..='z').rev().chain('0'..='9').map(goes_on).find(|candidate| !taken(candidate))
}

/// The nearest domain above a name that has a place of its own.
fn ancestor(name: &str, domains: &HashMap<&str, usize>) -> usize {
    let mut rest = name;
    while let Some((_, suffix)) = rest.split_once('.') {
        if let Some(node) = domains.get(suffix) {
            return *node;
        }
        rest = suffix;
    }
    0
}

fn https(name: &str) -> Option<Target> {
    request(Scheme::Https, &Host::parse(name).ok()?, 443, "/")
}

/// A subdomain that no rule names.
fn fresh_subdomain(domain: &Host, names: &BTreeMap<String, (Host, Named)>) -> Option<Target> {
    let label = |number: usize| if number == 0 { "any".to_owned() } else { format!("any{number}") };
    let name = (0..=names.len()).map(|number| format!("{}.{domain}", label(number)));
    https(&name.into_iter().find(|name| !is_named(name, names))?)
}

/// A host that no rule names.
fn elsewhere(names: &BTreeMap<String, (Host, Named)>) -> Option<Target> {
    let label = |number: usize| if number == 0 { String::new() } else { number.to_string() };
    let name = (0..=names.len()).map(|number| format!("elsewhere{}.example", label(number)));
    let name = name.into_iter().find(|name| !is_named(name, names));
    let covered = |name: &str| is_covered(name, names);
    let other = (0..=names.len()).map(|number| format!("elsewhere{number}"));
    let other = || other.into_iter().find(|name| !is_named(name, names) && !covered(name));
    https(&name.filter(|name| !covered(name)).or_else(other)?)
}

/// Whether a name or one above it is named, or lies under a named one.
fn is_named(name: &str, names: &BTreeMap<String, (Host, Named)>) -> bool {
    names.contains_key(name)
}

fn is_covered(name: &str, names: &BTreeMap<String, (Host, Named)>) -> bool {
    let mut suffix = Some(name);
    while let Some(name) = suffix {
        if names.get(name).is_some_and(|(_, named)| named.domain) {
            return true;
        }
        suffix = name.split_once('.').map(|(_, rest)| rest);
    }
    false
}
