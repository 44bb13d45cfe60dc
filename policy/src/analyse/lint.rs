//! What is odd about rules that are each well formed: they contradict, repeat or miss each other, or let out more than
//! their author may have meant.
//!
//! Which rules can be reached is measured and not guessed: an allowed rule is reachable if some request that it matches
//! is permitted, a blocked rule is of use if some request that it matches would be permitted without it. So a rule that
//! is reported as unreachable, covered or idle can be removed, and no decision changes but in its reason, as long as its
//! list does not become empty by that: an empty `allowed` restricts nothing.

use std::net::IpAddr;

use super::matching::covers;
use super::space::Space;
use super::table::{Entry, Table};
use crate::decision::{AuthorityVerdict, ListKind, Rule, Verdict};
use crate::diag::{Code, Diagnostic, Span};
use crate::doc::quoted;
use crate::guard::{self, AddressClass, Grants};
use crate::host::Host;
use crate::manifest::Manifest;
use crate::pattern::{Pattern, Prefix};
use crate::policy::{DefaultVerdict, Layer, Policy, PolicyTooLarge};
use crate::suffix::{self, SuffixKind};
use crate::target::{Authority, Scheme, Target};

/// What the gateway's config says, as far as rules depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Gateway<'g> {
    /// `[guard] allow`.
    pub grants: &'g Grants,
    /// `[intercept] enabled`.
    pub intercepts: bool,
    /// `[policy] default`.
    pub default: DefaultVerdict,
}

/// What is odd about the rules of these manifests, which are the layers of one policy, outermost first; each with the
/// name of its layer. The gateway is that of the config, where there is one.
///
/// # Errors
///
/// [`PolicyTooLarge`] where the rules are more than a policy holds.
pub fn lint(manifests: &[(&str, &Manifest)], gateway: Option<Gateway<'_>>) -> Result<Vec<Diagnostic>, PolicyTooLarge> {
    let layers: Vec<Layer> = manifests.iter().map(|(name, manifest)| manifest.layer(*name)).collect();
    let default = gateway.map_or(DefaultVerdict::Allow, |gateway| gateway.default);
    let policy = Policy::build(layers.clone(), default)?;
    let table = Table::new(&layers);
    let reach = Reach::measure(&layers, &table, &policy, default)?;
    let mut linter = Linter { manifests, gateway, table: &table, policy: &policy, reach: &reach, found: Vec::new() };
    for number in 0..table.entries.len() {
        linter.rule(number);
    }
    Ok(linter.found)
}

/// Which rules do something.
struct Reach {
    /// For an allowed rule, whether some request that it matches is permitted; for a blocked one, whether some request
    /// that it matches would be permitted if nothing were blocked.
    used: Vec<bool>,
}

impl Reach {
    fn measure(
        layers: &[Layer],
        table: &Table<'_>,
        policy: &Policy,
        default: DefaultVerdict,
    ) -> Result<Self, PolicyTooLarge> {
        let open = layers.iter().map(|layer| Layer { blocked: Vec::new(), ..layer.clone() }).collect();
        let open = Policy::build(open, default)?;
        let mut used = vec![false; table.entries.len()];
        for witness in Space::new(layers).witnesses() {
            if open.decide(witness).verdict == Verdict::Deny {
                continue;
            }
            let permitted = policy.decide(witness).verdict == Verdict::Allow;
            for number in table.matching(witness) {
                let is_blocked = table.entries.get(number).is_some_and(|entry| entry.list == ListKind::Blocked);
                if let Some(used) = used.get_mut(number) {
                    *used |= permitted || is_blocked;
                }
            }
        }
        Ok(Self { used })
    }

    fn is_used(&self, number: usize) -> bool {
        self.used.get(number).copied().unwrap_or(true)
    }
}

struct Linter<'a> {
    manifests: &'a [(&'a str, &'a Manifest)],
    gateway: Option<Gateway<'a>>,
    table: &'a Table<'a>,
    policy: &'a Policy,
    reach: &'a Reach,
    found: Vec<Diagnostic>,
}

impl<'a> Linter<'a> {
    fn rule(&mut self, number: usize) {
        let Some(entry) = self.table.entries.get(number).copied() else { return };
        let covering = self.covering(number, &entry);
        match entry.list {
            ListKind::Allowed if !self.reach.is_used(number) => self.unreachable(&entry),
            ListKind::Blocked if covering.is_none() && !self.reach.is_used(number) => self.idle(&entry),
            _ => {
                if let Some(covering) = covering {
                    self.covered(&entry, &covering);
                }
            }
        }
        if entry.list == ListKind::Allowed {
            self.shared(&entry);
            self.plain_http(&entry);
            self.address(&entry);
        }
        if let Pattern::Prefix(prefix) = entry.pattern {
            self.prefix(&entry, prefix);
        }
    }

    fn report(&mut self, entry: &Entry<'_>, code: Code, message: String, help: impl Into<String>) {
        let Some((_, manifest)) = self.manifests.get(entry.layer) else { return };
        let list = manifest.network_access.as_ref().map(|access| access.list(entry.list));
        let span = list.and_then(|list| list.get(entry.index)).map_or(Span::default(), |rule| rule.written.span);
        self.found.push(Diagnostic::new(code, &manifest.source, span, message, help));
    }

    /// A rule that makes this one superfluous: of the same layer and list, or for a block of any layer. Of rules that
    /// cover each other the first one stays.
    fn covering(&self, number: usize, entry: &Entry<'_>) -> Option<Entry<'a>> {
        let table = self.table;
        let matching = table.matching(&representative(entry.pattern)?);
        let others = matching.into_iter().filter(|other| *other != number);
        let others = others.filter_map(|other| Some((other, *table.entries.get(other)?)));
        let mut others = others.filter(|(_, other)| {
            other.list == entry.list && (other.layer == entry.layer || entry.list == ListKind::Blocked)
        });
        let covering = others.find(|(other, rule)| {
            covers(entry.list, rule.pattern, entry.pattern)
                && (*other < number || !covers(entry.list, entry.pattern, rule.pattern))
        });
        covering.map(|(_, rule)| rule)
    }

    fn covered(&mut self, entry: &Entry<'_>, covering: &Entry<'_>) {
        if covering.pattern == entry.pattern && covering.layer == entry.layer {
            // The reader has said that it is written twice.
            return;
        }
        let message = format!("{} is {} by {} already", written(entry), entry.list, place(covering));
        self.report(entry, Code::Covered, message, "remove it, or narrow the other one");
    }

    fn unreachable(&mut self, entry: &Entry<'_>) {
        let decision = representative(entry.pattern).map(|target| self.policy.decide(&target));
        let Some(decision) = decision else { return };
        let (message, help) = match (decision.rule, decision.layer) {
            (Some(rule), _) if rule.list == ListKind::Blocked => {
                let same = self.table.entries.get(rule.number);
                if same.is_some_and(|other| other.pattern == entry.pattern && other.layer == entry.layer) {
                    // The reader has said that it is allowed and blocked.
                    return;
                }
                let what = format!("nothing of {} is let out: {} blocks it", written(entry), rule_place(rule.rule));
                (what, "remove it, or narrow what blocks it")
            }
            (_, Some(layer)) if layer != self.layer(entry) => {
                let what = format!("nothing of {} is let out: the layer {layer:?} does not allow it", written(entry));
                (what, "remove it, or have the other layer allow it")
            }
            _ => {
                let what = format!(
                    "nothing of {} is let out: blocked rules and other layers leave none of it",
                    written(entry)
                );
                (what, "remove it, or narrow what is in its way")
            }
        };
        self.report(entry, Code::Unreachable, message, help);
    }

    fn layer(&self, entry: &Entry<'_>) -> &str {
        self.manifests.get(entry.layer).map_or("", |(name, _)| name)
    }

    fn idle(&mut self, entry: &Entry<'_>) {
        let message = format!("{} blocks what no allowed rule lets out anyway", written(entry));
        let help = "remove it, or see whether it is spelled as the allowed rules are";
        self.report(entry, Code::IdleBlock, message, help);
    }

    fn shared(&mut self, entry: &Entry<'_>) {
        match entry.pattern {
            Pattern::Domain(host) if suffix::suffix_kind(host) == Some(SuffixKind::Hosting) => {
                let message = format!("{} covers the names of every customer of a provider", written(entry));
                let help = format!("write the names that are needed, such as `acme.{host}`");
                self.report(entry, Code::SharedHosting, message, help);
            }
            Pattern::Host(host) => self.shared_host(entry, host),
            Pattern::Prefix(prefix) if prefix.is_whole_origin() => self.shared_host(entry, prefix.host()),
            _ => {}
        }
    }

    fn shared_host(&mut self, entry: &Entry<'_>, host: &Host) {
        if let Some(what) = suffix::shared_host(host) {
            let message = format!("{} is a host that many parties share: its paths begin with {what}", written(entry));
            let help = format!("write the paths that are needed, such as `https://{host}/acme/`");
            self.report(entry, Code::SharedHosting, message, help);
        }
    }

    fn plain_http(&mut self, entry: &Entry<'_>) {
        let Pattern::Prefix(prefix) = entry.pattern else { return };
        if prefix.scheme() == Scheme::Http && !is_loopback(prefix.host()) {
            let message = format!("{} lets requests out that anybody on the way can read and change", written(entry));
            let help = format!("write `https://{}{}` if the server speaks TLS", prefix.host(), prefix.path());
            self.report(entry, Code::PlainHttp, message, help);
        }
    }

    fn address(&mut self, entry: &Entry<'_>) {
        let host = entry.pattern.host();
        let class = host.ip().map_or(AddressClass::Global, guard::classify);
        if guard::is_metadata_name(host) || class == AddressClass::Metadata {
            let message =
                format!("{} names a metadata service, which the guard refuses whatever a rule says", written(entry));
            self.report(entry, Code::MetadataRule, message, "remove it");
            return;
        }
        let Some(ip) = host.ip().filter(|_| class != AddressClass::Global) else { return };
        let help = format!("grant it in the gateway's config, as `[guard] allow = [\"{ip}\"]`, or remove the rule");
        match self.gateway {
            Some(gateway) if gateway.grants.permits(ip) => {}
            Some(_) => {
                let message = format!("{} is a {class} address, which [guard] allow does not grant", written(entry));
                self.report(entry, Code::NotGranted, message, help);
            }
            None => {
                let message =
                    format!("{} is a {class} address, which the guard refuses unless it is granted", written(entry));
                self.report(entry, Code::SpecialAddress, message, help);
            }
        }
    }

    fn prefix(&mut self, entry: &Entry<'_>, prefix: &Prefix) {
        let path = prefix.path();
        if !path.ends_with('/') {
            let message = match entry.list {
                ListKind::Allowed => format!("{} allows `{path}` itself and what lies below `{path}/`", written(entry)),
                ListKind::Blocked => {
                    format!("{} blocks every path that begins with `{path}`, such as `{path}s`", written(entry))
                }
            };
            let help = format!("write `{path}/` if only what lies below it is meant");
            self.report(entry, Code::OpenPrefix, message, help);
        }
        if prefix.scheme() != Scheme::Https || prefix.is_whole_origin() {
            return;
        }
        let authority = Authority::new(prefix.host().clone(), prefix.port());
        if self.policy.decide_authority(&authority).verdict != AuthorityVerdict::Inspect {
            return;
        }
        match self.gateway {
            Some(gateway) if !gateway.intercepts => {
                let message =
                    format!("{} needs tunnels to {authority} to be opened, and interception is off", written(entry));
                let help = "set `[intercept] enabled = true`, or write a rule for the whole host or origin";
                self.report(entry, Code::InterceptionOff, message, help);
            }
            _ => {
                let message =
                    format!("{} has tunnels to {authority} opened, which clients have to trust", written(entry));
                let help = "give clients the gateway's CA (`exeat env`), or write a rule for the whole host or origin";
                self.report(entry, Code::NeedsInterception, message, help);
            }
        }
    }
}

fn written(entry: &Entry<'_>) -> String {
    quoted(&entry.rule.pattern)
}

fn place(entry: &Entry<'_>) -> String {
    rule_place(entry.rule)
}

fn rule_place(Rule { pattern, file, line, .. }: &Rule) -> String {
    format!("{} at {file}:{line}", quoted(pattern))
}

fn is_loopback(host: &Host) -> bool {
    match host.ip().map(|ip| ip.to_canonical()) {
        Some(IpAddr::V4(ip)) => ip.is_loopback(),
        Some(IpAddr::V6(ip)) => ip.is_loopback(),
        None => host.as_str() == "localhost" || host.as_str().ends_with(".localhost"),
    }
}

/// A request that a rule of this pattern matches.
fn representative(pattern: &Pattern) -> Option<Target> {
    let (scheme, port, path) = match pattern {
        Pattern::Prefix(prefix) => (prefix.scheme(), prefix.port(), prefix.path()),
        Pattern::Host(_) | Pattern::Domain(_) => (Scheme::Https, 443, "/"),
    };
    Target::from_parts(scheme, &Authority::new(pattern.host().clone(), port), path).ok()
}
