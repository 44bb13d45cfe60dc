//! A document as a tree in which every key and value knows its place, whatever format spelled it.
//!
//! TOML, YAML and JSON are read into the same [`Node`]s, so that everything behind this module is written once. A
//! [`Fields`] takes the keys of one table and, at the end, reports those that nobody asked for.
//!
//! ```
//! use exeat_policy::diag::{Problems, Source};
//! use exeat_policy::doc::{self, Fields, Format};
//!
//! let source = Source::new("exeat.toml", "[listen]\nport = 3128\ntls = true\n");
//! let root = doc::parse(&source, Format::of("exeat.toml")).unwrap();
//! let problems = Problems::new(&source);
//! let mut fields = Fields::root(&root, &problems).unwrap();
//! let mut listen = fields.section("listen");
//! let port = listen.integer("port", 0..=u16::MAX).map_or(8080, |port| port.value);
//! let tls = listen.boolean("tls").is_some_and(|tls| tls.value);
//! listen.finish();
//! assert!(port == 3128 && tls);
//! fields.finish();
//! assert!(problems.into_vec().is_empty());
//! ```
//!
//! All three readers are bounded: a file of more than [`MAX_BYTES`] and values nested deeper than [`MAX_DEPTH`] are
//! refused, and nothing in a file can make it grow (YAML's aliases are refused).

use std::collections::HashMap;
use std::sync::Arc;

use crate::diag::{Code, Diagnostic, Problems, Source, Span};

mod fields;
mod json;
mod suggest;
mod toml;
mod yaml;

pub use fields::{Field, Fields};
pub use suggest::{nearest, quoted};

/// The largest file that is read, in bytes.
pub const MAX_BYTES: usize = 8 << 20;

/// How deep tables and lists may nest; the root table is at depth 1.
pub const MAX_DEPTH: usize = 64;

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

impl Value {
    /// What kind of value it is, for messages: `"a string"`, `"an integer"` and so on.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a float",
            Self::String(_) => "a string",
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
        }
    }
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

/// Something read from a file together with its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spanned<T> {
    /// What was read.
    pub value: T,
    /// Where it stands.
    pub span: Span,
}

impl<T> Spanned<T> {
    /// `value`, found at `span`.
    #[must_use]
    pub const fn new(value: T, span: Span) -> Self {
        Self { value, span }
    }

    /// The same place with another value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Spanned<U> {
        Spanned { value: change(self.value), span: self.span }
    }

    /// The value alone.
    pub fn into_value(self) -> T {
        self.value
    }
}

/// How a document is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// TOML 1.1.
    Toml,
    /// YAML 1.2 with the core schema, without anchors, aliases, merge keys and tags.
    Yaml,
    /// JSON (RFC 8259), without duplicate keys.
    Json,
}

impl Format {
    /// The format that a file's name says: `.yaml` and `.yml` are YAML, `.json` is JSON, anything else TOML.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        if extension.eq_ignore_ascii_case("yaml") || extension.eq_ignore_ascii_case("yml") {
            Self::Yaml
        } else if extension.eq_ignore_ascii_case("json") {
            Self::Json
        } else {
            Self::Toml
        }
    }

    /// The format's name for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Toml => "TOML",
            Self::Yaml => "YAML",
            Self::Json => "JSON",
        }
    }
}

/// Reads a whole document; its root is a table.
///
/// A UTF-8 byte order mark at the start is skipped. Spans count from the start of the source, mark included.
///
/// # Errors
///
/// Everything that is wrong with the document's form, in the order of the file: at least one error-level diagnostic.
pub fn parse(source: &Arc<Source>, format: Format) -> Result<Node, Vec<Diagnostic>> {
    let text = source.text();
    let problems = Problems::new(source);
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes, and at most {MAX_BYTES} are read", text.len());
        problems.report(Code::TooLarge, Span::new(0, 0), message, "split long lists over several layers");
        return Err(problems.into_vec());
    }
    let root = match format {
        Format::Toml => toml::parse(&problems),
        Format::Yaml => yaml::parse(&problems),
        Format::Json => json::parse(&problems),
    };
    match root {
        Some(root) if !problems.has_errors() => Ok(root),
        _ => Err(problems.into_vec()),
    }
}

/// How long the byte order mark at the start of `text` is: 3 or 0.
fn bom(text: &str) -> usize {
    if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 }
}

fn too_deep(problems: &Problems, span: Span) {
    let message = format!("values are nested more than {MAX_DEPTH} deep");
    problems.report(Code::TooDeep, span, message, "flatten the structure");
}

fn duplicate(problems: &Problems, key: &str, span: Span, first: Span) {
    let at = problems.source().position(first.start);
    let key = quoted(key);
    let message = format!("{key} is written twice; it stands at line {}, column {} already", at.line, at.column);
    problems.report(Code::DuplicateKey, span, message, "keep one of the two");
}

/// The keys of one table while it is built; finds a key written before in constant time.
#[derive(Debug)]
struct Keys<T> {
    slots: Vec<Slot<T>>,
    index: HashMap<String, usize>,
}

/// A key, its place and what it leads to.
#[derive(Debug)]
struct Slot<T> {
    key: String,
    key_span: Span,
    value: T,
}

impl<T> Keys<T> {
    /// Tables up to this many keys are searched from front to back.
    const SMALL: usize = 16;

    fn new() -> Self {
        Self { slots: Vec::new(), index: HashMap::new() }
    }

    fn find(&self, key: &str) -> Option<usize> {
        if self.slots.len() <= Self::SMALL {
            self.slots.iter().position(|slot| slot.key == key)
        } else {
            self.index.get(key).copied()
        }
    }

    /// Adds a key; one that is there already is reported and left as it is.
    fn insert(&mut self, problems: &Problems, slot: Slot<T>) {
        if let Some(first) = self.find(&slot.key).and_then(|at| self.slots.get(at)) {
            duplicate(problems, &slot.key, slot.key_span, first.key_span);
            return;
        }
        let count = self.slots.len() + 1;
        if count == Self::SMALL + 1 {
            self.index = self.slots.iter().enumerate().map(|(at, slot)| (slot.key.clone(), at)).collect();
        }
        if count > Self::SMALL {
            self.index.insert(slot.key.clone(), count - 1);
        }
        self.slots.push(slot);
    }

    /// The finished table, each value turned into a node.
    fn into_table(self, mut node: impl FnMut(T) -> Node) -> Value {
        let entry = |slot: Slot<T>| Entry { key: slot.key, key_span: slot.key_span, node: node(slot.value) };
        Value::Table(self.slots.into_iter().map(entry).collect())
    }
}

#[cfg(test)]
mod tests;
