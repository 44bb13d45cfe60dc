//! The walk through the layers for one request: what each of them says, and by which rules.
//!
//! A decision names the one rule that made it. Whoever wants to change the decision needs the rest: the rules that
//! would still block it, and every layer that lacks an allowance.

use super::table::{Table, layers_of};
use crate::decision::{ListKind, Rule};
use crate::policy::{Layer, Policy};
use crate::target::Target;

/// What a layer says about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Says {
    /// A blocked rule of it matches.
    Blocks,
    /// An allowed rule of it matches, and no blocked one.
    Allows,
    /// It has an allowed list, and nothing in it matches.
    Lacks,
    /// It has no allowed list, and nothing that blocks.
    Nothing,
}

impl Says {
    /// `"blocks"`, `"allows"`, `"lacks"` or `"nothing"`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Allows => "allows",
            Self::Lacks => "lacks",
            Self::Nothing => "nothing",
        }
    }
}

/// One layer's part in a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The layer's name.
    pub layer: String,
    /// What it says.
    pub says: Says,
    /// Every blocked rule of it that matches, in their order.
    pub blocked: Vec<Rule>,
    /// Every allowed rule of it that matches, in their order.
    pub allowed: Vec<Rule>,
    /// How many rules it has: allowed, blocked.
    pub rules: (usize, usize),
}

/// The layers of a policy, ready to be walked.
#[derive(Debug)]
pub struct Walk {
    layers: Vec<Layer>,
}

impl Walk {
    /// Takes the layers of a policy.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        Self { layers: layers_of(policy) }
    }

    /// What each layer says about the target, outermost first.
    #[must_use]
    pub fn steps(&self, target: &Target) -> Vec<Step> {
        let table = Table::new(&self.layers);
        let matching = table.matching(target);
        let matching = matching.iter().filter_map(|number| table.entries.get(*number));
        let rules = |layer: usize, list: ListKind| -> Vec<Rule> {
            let of = matching.clone().filter(|entry| entry.layer == layer && entry.list == list);
            of.map(|entry| entry.rule.clone()).collect()
        };
        let step = |(number, layer): (usize, &Layer)| {
            let (blocked, allowed) = (rules(number, ListKind::Blocked), rules(number, ListKind::Allowed));
            let says = match (blocked.is_empty(), allowed.is_empty(), layer.allowed.is_empty()) {
                (false, ..) => Says::Blocks,
                (true, false, _) => Says::Allows,
                (true, true, false) => Says::Lacks,
                (true, true, true) => Says::Nothing,
            };
            let count = (layer.allowed.len(), layer.blocked.len());
            Step { layer: layer.name.to_string(), says, blocked, allowed, rules: count }
        };
        self.layers.iter().enumerate().map(step).collect()
    }
}
