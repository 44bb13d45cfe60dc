//! Policies: the layers of rules in force, compiled, and the two questions they answer.
//!
//! [`Policy::decide`] judges one request and [`Policy::decide_authority`] a tunnel before its first byte. Both are
//! total and pure: no I/O, no clock, no allocation, no error.
//!
//! A request is permitted if no layer blocks it and every layer with a non-empty `allowed` list allows it; where no
//! layer has one, the gateway's default decides. Blocked wins over allowed, whatever the layer and however long the
//! rule. The reason and the rule of a decision are fixed by order: layers from the outermost in, blocks before
//! allowances, rules in the order of their list.
//!
//! **Addresses.** An IPv6 host that embeds IPv4 addresses ([`crate::host::embedded_ipv4`]) counts as each of them,
//! and a rule for such a host likewise: a block of one denies the others. An allowance is narrower: the IPv4-mapped
//! form of an address, which the operating system takes for the address itself, is allowed by a rule for it, but
//! every other embedding has to be named, since what answers there is a translator or another machine.

use std::sync::Arc;

mod authority;
mod build;
mod digest;
mod index;
mod prefixes;

use index::{Found, Index, NONE, Origin};

use crate::decision::{Decision, ListKind, Rule, RuleRef, Verdict};
use crate::pattern::Pattern;
use crate::reason::Reason;
use crate::target::Target;

/// What is permitted where no layer restricts: `policy.default` of the gateway's config.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DefaultVerdict {
    /// Everything that no layer blocks, as the manifest's own rule says.
    #[default]
    Allow,
    /// Nothing.
    Deny,
}

impl DefaultVerdict {
    /// `"allow"` or `"deny"`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// The rules of one layer, each with the place it stands at.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    /// The name that decisions give: `organisation`, `harness`, `agent`, `session`, or a file's.
    pub name: Arc<str>,
    /// `network_access.allowed`; empty restricts nothing.
    pub allowed: Vec<(Pattern, Rule)>,
    /// `network_access.blocked`.
    pub blocked: Vec<(Pattern, Rule)>,
}

/// More rules than a policy can number: 2³² of them, or as many bytes of names and paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected fewer than 2^32 rules and bytes of rules, found more")]
pub struct PolicyTooLarge;

/// The rules in force, compiled.
#[derive(Debug)]
pub struct Policy {
    default: DefaultVerdict,
    layers: Vec<LayerInfo>,
    /// Positions in `layers` of those with a non-empty `allowed`, outermost first.
    restricting: Vec<u32>,
    /// Every rule, by number: layer by layer, `allowed` before `blocked`.
    rules: Vec<Rule>,
    index: Index,
    digest: String,
}

#[derive(Debug)]
struct LayerInfo {
    name: Arc<str>,
    /// The number of its first allowed rule.
    allowed: usize,
    /// The number of its first blocked rule.
    blocked: usize,
    /// The number behind its last rule.
    end: usize,
}

impl Policy {
    /// Compiles layers, outermost first.
    ///
    /// # Errors
    ///
    /// [`PolicyTooLarge`] where rules or their text cannot be numbered in 32 bits.
    pub fn build(layers: Vec<Layer>, default: DefaultVerdict) -> Result<Self, PolicyTooLarge> {
        build::build(layers, default)
    }

    /// Whether any layer has a non-empty `allowed` list. If none has, the default decides about everything that is
    /// not blocked.
    #[must_use]
    pub fn restricts(&self) -> bool {
        !self.restricting.is_empty()
    }

    /// What is permitted where no layer restricts.
    #[must_use]
    pub const fn default_verdict(&self) -> DefaultVerdict {
        self.default
    }

    /// `sha256:` and 64 hexadecimal digits over what the layers say: their names and order, the default, and each
    /// list's patterns in canonical spelling. Order and repetition within a list, places, and ways of writing a
    /// pattern do not change it. Policies of equal digest give equal verdicts.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The layers' names, outermost first.
    pub fn layers(&self) -> impl ExactSizeIterator<Item = &str> {
        self.layers.iter().map(|layer| &*layer.name)
    }

    /// How many rules there are; their numbers are below it.
    #[must_use]
    pub fn rule_count(&self) -> usize {
        self.rules.len()
    }

    /// Every rule in the order of its number: layer by layer, `allowed` before `blocked`, as listed.
    pub fn rules(&self) -> impl Iterator<Item = RuleRef<'_>> {
        (0..self.rules.len()).filter_map(|number| self.rule(number))
    }

    /// The rule of a number.
    #[must_use]
    pub fn rule(&self, number: usize) -> Option<RuleRef<'_>> {
        let rule = self.rules.get(number)?;
        let layer_index = self.layers.partition_point(|layer| layer.end <= number);
        let layer = self.layers.get(layer_index)?;
        let (list, first) = match number < layer.blocked {
            true => (ListKind::Allowed, layer.allowed),
            false => (ListKind::Blocked, layer.blocked),
        };
        Some(RuleRef { layer: &layer.name, layer_index, list, index: number - first, number, rule })
    }

    /// Whether `target` may be requested.
    #[must_use]
    pub fn decide(&self, target: &Target) -> Decision<'_> {
        let found = self.index.find(target.host());
        let origin = self.index.origin(found.own, target.scheme(), target.port());
        if let Some(rule) = self.blocking(&found, origin, target) {
            return self.decision(Verdict::Deny, Reason::Blocked, Some(rule));
        }
        let mut allowing = None;
        for &layer in &self.restricting {
            allowing = self.allowing(layer, &found, origin, target);
            if allowing.is_none() {
                let layer = self.layer_name(layer);
                return Decision { verdict: Verdict::Deny, reason: Reason::NotAllowed, rule: None, layer };
            }
        }
        match (allowing, self.default) {
            (Some(rule), _) => self.decision(Verdict::Allow, Reason::Allowed, Some(rule)),
            (None, DefaultVerdict::Allow) => self.decision(Verdict::Allow, Reason::DefaultAllow, None),
            (None, DefaultVerdict::Deny) => self.decision(Verdict::Deny, Reason::DefaultDeny, None),
        }
    }

    fn decision(&self, verdict: Verdict, reason: Reason, rule: Option<u32>) -> Decision<'_> {
        let rule = rule.and_then(|rule| self.rule(rule as usize));
        Decision { verdict, reason, rule, layer: rule.map(|rule| rule.layer) }
    }

    fn layer_name(&self, layer: u32) -> Option<&str> {
        self.layers.get(layer as usize).map(|layer| &*layer.name)
    }

    /// The first rule that blocks the target: numbers grow from the outermost layer in.
    fn blocking(&self, found: &Found, origin: Option<&Origin>, target: &Target) -> Option<u32> {
        let mut first = self.index.blocking_host(found);
        let mut ask = |origin: &Origin| {
            let (literal, others) = target.readings();
            for set in self.index.sets(origin).iter().filter(|set| set.list == ListKind::Blocked) {
                for reading in std::iter::once(literal).chain(others.iter().map(|reading| &**reading)) {
                    first = first.min(self.index.prefixes.first_prefix(set.root, reading));
                }
            }
        };
        if let Some(origin) = origin {
            ask(origin);
        }
        for view in found.views() {
            if let Some(origin) = self.index.origin(view, target.scheme(), target.port()) {
                ask(origin);
            }
        }
        (first != NONE).then_some(first)
    }

    /// The first rule of `layer` that allows the target.
    fn allowing(&self, layer: u32, found: &Found, origin: Option<&Origin>, target: &Target) -> Option<u32> {
        let mut first = self.index.allowing_host(found, layer);
        if let Some(set) = origin.and_then(|origin| self.index.allowed_set(origin, layer)) {
            let (literal, others) = target.readings();
            first = first.min(self.index.prefixes.first_allowed_prefix(set.root, literal, others));
        }
        (first != NONE).then_some(first)
    }
}

#[cfg(test)]
pub(crate) mod tests;
