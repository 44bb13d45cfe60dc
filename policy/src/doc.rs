//! A document as a tree in which every key and value knows its place, whatever format spelled it.
//!
//! TOML, YAML and JSON are read into the same [`Node`]s, so that everything behind this module is written once. A
//! [`Fields`] takes the keys of one table and, at the end, reports those that nobody asked for.

use crate::diag::Span;

/// A value and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Its place in the source.
    pub span: Span,
}

/// What a node holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// YAML's and JSON's `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number that fits 64 bits.
    Integer(i64),
    /// Any other number.
    Float(f64),
    /// Text; TOML's dates and times are text too.
    String(String),
    /// A list.
    Array(Vec<Node>),
    /// A table, in the order written, without duplicate keys.
    Table(Vec<Entry>),
}

/// One key of a table with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key, unquoted.
    pub key: String,
    /// Where the key stands.
    pub key_span: Span,
    /// The value.
    pub node: Node,
}
