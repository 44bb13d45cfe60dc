//! Sets of path prefixes, asked which of them a path begins with.
//!
//! Each set is a radix tree, and all trees of a policy share three arrays. Walking down a path costs its length,
//! whatever the size of the set, and passes every prefix in it on the way. The children of a node are neighbours and
//! their first bytes lie together in an array of their own, so that finding the next one touches one cache line.

use super::index::NONE;
use crate::path;

/// Trees of prefixes; each is named by its root.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    /// The texts of all labels.
    text: Vec<u8>,
    nodes: Vec<Node>,
    /// The first byte of each node's label.
    first_bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Where its label begins in the text.
    label: u32,
    length: u32,
    /// Its first child; the others follow.
    children: u32,
    child_count: u16,
    /// The first rule of the prefix that ends here, or [`NONE`].
    rule: u32,
}

/// A prefix and the first rule that has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key<'a> {
    pub(super) prefix: &'a [u8],
    pub(super) rule: u32,
}

impl Prefixes {
    /// Adds a set of at least one prefix and returns its root; none where there is no room. Keys are sorted and their
    /// prefixes distinct.
    pub(super) fn add(&mut self, keys: &[Key<'_>]) -> Option<u32> {
        let mut starts = Vec::with_capacity(keys.len());
        for key in keys {
            starts.push(u32::try_from(self.text.len()).ok()?);
            self.text.extend_from_slice(key.prefix);
        }
        u32::try_from(self.text.len()).ok()?;
        let root = self.push()?;
        // Nodes whose label and children are still to be set: the keys below each, and how many of their bytes
        // stand above it.
        let mut open = std::collections::VecDeque::from([(root, 0, keys.len(), 0)]);
        while let Some((node, from, to, depth)) = open.pop_front() {
            let (first, last) = (keys.get(from)?.prefix, keys.get(to.checked_sub(1)?)?.prefix);
            let shared = first.iter().zip(last).skip(depth).take_while(|(a, b)| a == b).count();
            let end = depth + shared;
            let rule = if first.len() == end { keys.get(from)?.rule } else { NONE };
            let below = keys.get(from + usize::from(rule != NONE)..to)?;
            let children = u32::try_from(self.nodes.len()).ok()?;
            let mut child_count = 0;
            let mut child_from = from + usize::from(rule != NONE);
            for group in below.chunk_by(|a, b| a.prefix.get(end) == b.prefix.get(end)) {
                let child = self.push()?;
                open.push_back((child, child_from, child_from + group.len(), end));
                child_from += group.len();
                child_count += 1;
            }
            let label = starts.get(from)? + u32::try_from(depth).ok()?;
            *self.nodes.get_mut(node as usize)? =
                Node { label, length: u32::try_from(shared).ok()?, children, child_count, rule };
            *self.first_bytes.get_mut(node as usize)? = first.get(depth).copied().unwrap_or_default();
        }
        Some(root)
    }

    fn push(&mut self) -> Option<u32> {
        let node = u32::try_from(self.nodes.len()).ok()?;
        self.nodes.push(Node { label: 0, length: 0, children: 0, child_count: 0, rule: NONE });
        self.first_bytes.push(0);
        Some(node)
    }

    /// Calls `visit` with the rule and the length of every prefix that `path` begins with, shortest first.
    fn walk(&self, root: u32, path: &[u8], mut visit: impl FnMut(u32, usize)) {
        let mut at = 0;
        let mut next = self.nodes.get(root as usize);
        while let Some(node) = next {
            let label = self.text.get(node.label as usize..node.label as usize + node.length as usize);
            let (Some(label), Some(rest)) = (label, path.get(at..)) else { return };
            if !rest.starts_with(label) {
                return;
            }
            at += label.len();
            if node.rule != NONE {
                visit(node.rule, at);
            }
            let Some(byte) = path.get(at) else { return };
            let children = node.children as usize;
            let first_bytes = self.first_bytes.get(children..children + usize::from(node.child_count));
            let child = first_bytes.unwrap_or_default().iter().position(|first| first == byte);
            next = child.and_then(|child| self.nodes.get(children + child));
        }
    }

    /// The first rule whose prefix `path` begins with, or [`NONE`].
    pub(super) fn first_prefix(&self, root: u32, path: &[u8]) -> u32 {
        let mut first = NONE;
        self.walk(root, path, |rule, _| first = first.min(rule));
        first
    }

    /// The first rule whose prefix a path lies within ([`path::is_within`]), or [`NONE`].
    pub(super) fn first_allowed_prefix(&self, root: u32, literal: &[u8], others: &[Box<[u8]>]) -> u32 {
        let mut first = NONE;
        self.walk(root, literal, |rule, length| {
            let prefix = literal.get(..length).filter(|_| rule < first);
            if prefix.is_some_and(|prefix| path::is_within(literal, others, prefix)) {
                first = rule;
            }
        });
        first
    }

    pub(super) fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.nodes.shrink_to_fit();
        self.first_bytes.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(prefixes: &[&str]) -> (Prefixes, u32) {
        let mut keys: Vec<Key<'_>> =
            prefixes.iter().zip(0..).map(|(prefix, rule)| Key { prefix: prefix.as_bytes(), rule }).collect();
        keys.sort();
        keys.dedup_by(|next, previous| next.prefix == previous.prefix);
        let mut trees = Prefixes::default();
        // A tree in front, so that offsets that are not relative to the root would show.
        trees.add(&[Key { prefix: b"/zzz", rule: 99 }]).unwrap();
        let root = trees.add(&keys).unwrap();
        (trees, root)
    }

    #[test]
    fn a_walk_passes_every_prefix_of_the_path() {
        let (trees, root) = tree(&["/v1", "/v1/users", "/v2", "/", "/v1/user", "/x/y/z", "/v1"]);
        let passed = |path: &str| {
            let mut passed = Vec::new();
            trees.walk(root, path.as_bytes(), |rule, length| passed.push((rule, length)));
            passed
        };
        assert_eq!(passed("/v1/users/7"), [(3, 1), (0, 3), (4, 8), (1, 9)]);
        assert_eq!(passed("/v1"), [(3, 1), (0, 3)]);
        assert_eq!(passed("/x/y"), [(3, 1)]);
        assert_eq!(passed("/x/y/z"), [(3, 1), (5, 6)]);
        assert_eq!(passed(""), []);
        assert_eq!(trees.first_prefix(root, b"/v1/users"), 0);
        assert_eq!(trees.first_prefix(root, b"/v2"), 2);
    }

    #[test]
    fn an_allowed_prefix_ends_on_a_border_of_every_reading() {
        let (trees, root) = tree(&["/v1", "/a%2Fb", "/v1/"]);
        let first = |literal: &str, others: &[&str]| {
            let others: Vec<Box<[u8]>> = others.iter().map(|other| other.as_bytes().into()).collect();
            trees.first_allowed_prefix(root, literal.as_bytes(), &others)
        };
        assert_eq!(first("/v1", &[]), 0);
        assert_eq!(first("/v10", &[]), NONE);
        assert_eq!(first("/v1/..;/x", &["/v1/../x", "/x"]), NONE);
        assert_eq!(first("/v1/x%20", &["/v1/x "]), 0);
        assert_eq!(first("/a%2Fb/c", &["/a/b/c"]), 1);
        assert_eq!(first("/a%2Fbc", &["/a/bc"]), NONE);
        assert_eq!(first("/a/b/c", &[]), NONE, "the literal reading is not the rule's");
    }
}
