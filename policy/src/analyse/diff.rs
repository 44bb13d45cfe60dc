//! What a change of rules opens and what it closes.
//!
//! [`diff`] compares two policies and reports places, each as a pattern with a witness: a request that one of them
//! permits and the other does not. Both decisions about it are part of the report, so a reader can check it with
//! `exeat check`. Policies that differ anywhere differ at a witness.

use std::collections::BTreeSet;

use super::space::{Place, Space};
use super::table::layers_of;
use crate::decision::{AuthorityVerdict, Decision, Verdict};
use crate::policy::Policy;
use crate::target::{Authority, Target};

/// Which way a place changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Change {
    /// Denied before, permitted now.
    Opened,
    /// Permitted before, denied now.
    Closed,
}

impl Change {
    /// `"opened"` or `"closed"`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Closed => "closed",
        }
    }
}

/// A place that changed.
#[derive(Clone, Debug)]
pub struct Difference<'p> {
    /// Which way.
    pub change: Change,
    /// The place as a pattern of `network_access`; `https://host/path*` for every path that begins with the text, and
    /// `every other host` for those that no rule names.
    pub pattern: String,
    /// Places within it that did not change the same way, as patterns.
    pub except: Vec<String>,
    /// A request in it.
    pub witness: Target,
    /// What the old policy decides about the witness.
    pub old: Decision<'p>,
    /// What the new policy decides about it.
    pub new: Decision<'p>,
}

/// An authority whose tunnels were blind and will be inspected, or the other way round. What is permitted there may be
/// the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelChange {
    /// The authority.
    pub authority: Authority,
    /// What became of its tunnels before.
    pub old: AuthorityVerdict,
    /// What becomes of them now.
    pub new: AuthorityVerdict,
}

/// What there is to say about a change.
#[derive(Clone, Debug, Default)]
pub struct Diff<'p> {
    /// The places that changed, in the order of their hosts; none where both policies permit the same.
    pub differences: Vec<Difference<'p>>,
    /// The tunnels that change between blind and inspected.
    pub tunnels: Vec<TunnelChange>,
}

impl Diff<'_> {
    /// Whether something changed that way.
    #[must_use]
    pub fn has(&self, change: Change) -> bool {
        self.differences.iter().any(|difference| difference.change == change)
    }
}

/// Compares two policies.
#[must_use]
pub fn diff<'p>(old: &'p Policy, new: &'p Policy) -> Diff<'p> {
    let layers = (layers_of(old), layers_of(new));
    let space = Space::new(layers.0.iter().chain(&layers.1));
    let changes: Vec<Option<Change>> =
        space.nodes.iter().map(|node| node.witness.as_ref().and_then(|witness| change(old, new, witness))).collect();
    let mut uniform = vec![None; space.nodes.len()];
    uniform_below(&space, &changes, 0, &mut uniform);
    let mut found = Finder { old, new, space: &space, changes: &changes, uniform: &uniform, differences: Vec::new() };
    found.visit(0);
    Diff { differences: found.differences, tunnels: tunnels(old, new, &space) }
}

fn change(old: &Policy, new: &Policy, witness: &Target) -> Option<Change> {
    match (old.decide(witness).verdict, new.decide(witness).verdict) {
        (Verdict::Deny, Verdict::Allow) => Some(Change::Opened),
        (Verdict::Allow, Verdict::Deny) => Some(Change::Closed),
        _ => None,
    }
}

/// For each node, the change that it and everything below it share.
fn uniform_below(space: &Space, changes: &[Option<Change>], at: usize, uniform: &mut [Option<Change>]) {
    // Children stand behind their parents except domains, which are made first; a list of nodes in an order in which
    // every child follows its parent gives the leaves first when it is read backwards.
    let mut order = vec![at];
    let mut next = 0;
    while let Some(node) = order.get(next).and_then(|node| space.nodes.get(*node)) {
        order.extend(&node.children);
        next += 1;
    }
    for number in order.into_iter().rev() {
        let Some(node) = space.nodes.get(number) else { continue };
        let own = changes.get(number).copied().flatten();
        // A place without a witness of its own is what its children are.
        let own = match (own, &node.witness, node.children.first()) {
            (None, None, Some(child)) => uniform.get(*child).copied().flatten(),
            (own, ..) => own,
        };
        let alike = node.children.iter().all(|child| uniform.get(*child).copied().flatten() == own);
        if let Some(slot) = uniform.get_mut(number) {
            *slot = own.filter(|_| alike);
        }
    }
}

struct Finder<'p, 's> {
    old: &'p Policy,
    new: &'p Policy,
    space: &'s Space,
    changes: &'s [Option<Change>],
    uniform: &'s [Option<Change>],
    differences: Vec<Difference<'p>>,
}

impl Finder<'_, '_> {
    fn visit(&mut self, root: usize) {
        let mut open = vec![root];
        while let Some(number) = open.pop() {
            let Some(node) = self.space.nodes.get(number) else { continue };
            let own = self.changes.get(number).copied().flatten();
            let alike = |child: &usize| own.is_some() && self.uniform.get(*child).copied().flatten() == own;
            let others: Vec<usize> = node.children.iter().copied().filter(|child| !alike(child)).collect();
            if let (Some(change), Some(witness)) = (own, &node.witness) {
                let except = others.iter().filter_map(|other| self.space.nodes.get(*other));
                self.differences.push(Difference {
                    change,
                    pattern: node.place.to_string(),
                    except: except.map(|node| node.place.to_string()).collect(),
                    witness: witness.clone(),
                    old: self.old.decide(witness),
                    new: self.new.decide(witness),
                });
            }
            open.extend(others.into_iter().rev());
        }
    }
}

/// The authorities of the tree whose tunnels change between blind and inspected.
fn tunnels(old: &Policy, new: &Policy, space: &Space) -> Vec<TunnelChange> {
    let mut seen = BTreeSet::new();
    let mut changes = Vec::new();
    for node in &space.nodes {
        if matches!(node.place, Place::Below(..) | Place::BeginsWith(..)) {
            continue;
        }
        let Some(authority) = node.witness.as_ref().map(Target::authority) else { continue };
        if !seen.insert(authority.to_string()) {
            continue;
        }
        let (before, now) = (old.decide_authority(authority).verdict, new.decide_authority(authority).verdict);
        let is_open = |verdict| verdict != AuthorityVerdict::Deny;
        if is_open(before) && is_open(now) && before.as_str() != now.as_str() {
            changes.push(TunnelChange { authority: authority.clone(), old: before, new: now });
        }
    }
    changes
}
