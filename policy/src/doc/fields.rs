//! Reading one table key by key.
//!
//! Each getter names a key, reads it as a type and reports what does not fit; it returns `None` both for a key that is
//! not written and for one that was reported. Whoever reads a table asks for every key it knows and then calls
//! [`Fields::finish`], which reports the keys that nobody asked for.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::suggest::{nearest, quoted};
use super::{Entry, Node, Spanned, Value};
use crate::diag::{Code, Problems, Span};

/// The reader of one table.
#[derive(Debug)]
#[must_use = "call finish() so that unknown keys are reported"]
pub struct Fields<'d> {
    problems: &'d Problems,
    path: String,
    span: Span,
    entries: &'d [Entry],
    taken: Vec<bool>,
    known: Vec<&'static str>,
}

impl<'d> Fields<'d> {
    /// Reads the document's root; `None`, reported, when it is not a table.
    pub fn root(node: &'d Node, problems: &'d Problems) -> Option<Self> {
        Field { problems, path: String::new(), key_span: node.span, node }.fields()
    }

    /// Where the table stands; for a table whose keys are spread over a file, its header or first key.
    #[must_use]
    pub const fn span(&self) -> Span {
        self.span
    }

    /// The dotted path of the table, empty for the root.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Where reports go.
    #[must_use]
    pub const fn problems(&self) -> &'d Problems {
        self.problems
    }

    /// Reports something about the table as a whole.
    pub fn report(&self, code: Code, message: impl Into<String>, help: impl Into<String>) {
        self.problems.report(code, self.span, message, help);
    }

    /// Whether a key is written, without taking it.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    /// Takes a key as it stands.
    pub fn take(&mut self, key: &'static str) -> Option<Field<'d>> {
        self.known.push(key);
        self.take_unlisted(key)
    }

    /// Takes a key that has an older spelling; both at once are reported, and the first spelling is used.
    pub fn take_either(&mut self, key: &'static str, alias: &'static str) -> Option<Field<'d>> {
        let canonical = self.take(key);
        let older = self.take_unlisted(alias);
        if let (Some(_), Some(older)) = (&canonical, &older) {
            let message = format!("`{alias}` is another spelling of `{key}`, and both are written");
            self.problems.report(Code::TwoSpellings, older.key_span, message, format!("keep `{key}` only"));
        }
        canonical.or(older)
    }

    /// Takes a key for which `null` means the same as not writing it.
    pub fn nullable(&mut self, key: &'static str) -> Option<Field<'d>> {
        self.take(key)?.non_null()
    }

    /// Takes a key that has to be there; its absence is reported at the table.
    pub fn required(&mut self, key: &'static str) -> Option<Field<'d>> {
        let field = self.take(key);
        if field.is_none() {
            let place = if self.path.is_empty() { String::new() } else { format!(" of {}", quoted(&self.path)) };
            self.report(Code::MissingKey, format!("the key `{key}`{place} is missing"), format!("add `{key}`"));
        }
        field
    }

    /// Takes a key that has a meaning but no reader: it is not unknown, and it is not suggested for another.
    pub fn take_reserved(&mut self, key: &str) -> Option<Field<'d>> {
        self.take_unlisted(key)
    }

    fn take_unlisted(&mut self, key: &str) -> Option<Field<'d>> {
        let index = self.entries.iter().position(|entry| entry.key == key)?;
        if let Some(taken) = self.taken.get_mut(index) {
            *taken = true;
        }
        self.entries.get(index).map(|entry| self.field(entry))
    }

    fn field(&self, entry: &'d Entry) -> Field<'d> {
        let path = join(&self.path, &entry.key);
        Field { problems: self.problems, path, key_span: entry.key_span, node: &entry.node }
    }

    /// A string.
    pub fn string(&mut self, key: &'static str) -> Option<Spanned<String>> {
        self.take(key)?.string()
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, key: &'static str) -> Option<Spanned<bool>> {
        self.take(key)?.boolean()
    }

    /// A whole number within `range`.
    pub fn integer<T>(&mut self, key: &'static str, range: RangeInclusive<T>) -> Option<Spanned<T>>
    where
        T: TryFrom<i64> + PartialOrd + Display,
    {
        self.take(key)?.integer(range)
    }

    /// A list of strings.
    pub fn strings(&mut self, key: &'static str) -> Option<Spanned<Vec<Spanned<String>>>> {
        self.take(key)?.strings()
    }

    /// One of a list of words.
    pub fn word<T: Clone>(&mut self, key: &'static str, words: &[(&'static str, T)]) -> Option<Spanned<T>> {
        self.take(key)?.word(words)
    }

    /// A string that `parse` turns into a value; what `parse` refuses is reported with its text, and `help` beside it.
    pub fn parsed<T, E: Display>(
        &mut self,
        key: &'static str,
        help: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<Spanned<T>> {
        self.take(key)?.parsed(help, parse)
    }

    /// A table inside this one.
    pub fn table(&mut self, key: &'static str) -> Option<Fields<'d>> {
        self.take(key)?.fields()
    }

    /// A table inside this one; one that is not written, or was reported, reads as empty, so that defaults apply.
    pub fn section(&mut self, key: &'static str) -> Fields<'d> {
        let path = join(&self.path, key);
        let (problems, span) = (self.problems, self.span);
        self.table(key).unwrap_or(Fields { problems, path, span, entries: &[], taken: Vec::new(), known: Vec::new() })
    }

    /// A table whose keys are names and whose values are tables.
    pub fn tables(&mut self, key: &'static str) -> Vec<(Spanned<String>, Fields<'d>)> {
        let Some(fields) = self.table(key) else { return Vec::new() };
        fields.rest().filter_map(|(name, field)| Some((name, field.fields()?))).collect()
    }

    /// A list of tables, such as TOML's `[[key]]`.
    pub fn list_of_tables(&mut self, key: &'static str) -> Vec<Fields<'d>> {
        let Some(field) = self.take(key) else { return Vec::new() };
        field.items().into_iter().flatten().filter_map(Field::fields).collect()
    }

    /// Takes every key with a table that was not taken, for tables whose own keys stand beside names.
    pub fn take_tables(&mut self) -> Vec<(Spanned<String>, Field<'d>)> {
        let mut tables = Vec::new();
        for (entry, taken) in self.entries.iter().zip(&mut self.taken) {
            if !*taken && matches!(entry.node.value, Value::Table(_)) {
                *taken = true;
                tables.push(entry);
            }
        }
        tables.into_iter().map(|entry| (Spanned::new(entry.key.clone(), entry.key_span), self.field(entry))).collect()
    }

    /// The keys that were not taken, each with its value: for tables whose keys are names.
    pub fn rest(self) -> impl Iterator<Item = (Spanned<String>, Field<'d>)> {
        let entries = self.entries.iter().zip(self.taken.clone()).filter(|(_, taken)| !taken);
        entries.map(move |(entry, _)| (Spanned::new(entry.key.clone(), entry.key_span), self.field(entry)))
    }

    /// Ends the reading: each key that was not taken is reported as unknown, with the nearest known one suggested.
    pub fn finish(self) {
        for (entry, _) in self.entries.iter().zip(&self.taken).filter(|(_, taken)| !**taken) {
            if self.problems.is_full() {
                return;
            }
            let place = if self.path.is_empty() { String::new() } else { format!(" in {}", quoted(&self.path)) };
            let message = format!("unknown key {}{place}", quoted(&entry.key));
            let help = match nearest(&entry.key, self.known.iter().copied()) {
                Some(known) => format!("did you mean `{known}`?"),
                None if self.known.is_empty() => "no keys are known here".to_owned(),
                None => format!("known keys are {}", listed(self.known.iter().copied())),
            };
            self.problems.report(Code::UnknownKey, entry.key_span, message, help);
        }
    }
}

/// One value on its way to a type, with its key for messages.
#[derive(Clone, Debug)]
pub struct Field<'d> {
    problems: &'d Problems,
    path: String,
    key_span: Span,
    node: &'d Node,
}

impl<'d> Field<'d> {
    /// Where the key stands; for an item of a list, where the item stands.
    #[must_use]
    pub const fn key_span(&self) -> Span {
        self.key_span
    }

    /// Where the value stands.
    #[must_use]
    pub const fn span(&self) -> Span {
        self.node.span
    }

    /// The value as it is in the document.
    #[must_use]
    pub const fn node(&self) -> &'d Node {
        self.node
    }

    /// Where reports go.
    #[must_use]
    pub const fn problems(&self) -> &'d Problems {
        self.problems
    }

    /// The dotted path of the key.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Reports something about the value.
    pub fn report(&self, code: Code, message: impl Into<String>, help: impl Into<String>) {
        self.problems.report(code, self.node.span, message, help);
    }

    /// Reports that the value is not what the key takes; `expected` with its article, as in `"a string"`.
    pub fn wrong_type(&self, expected: &str) {
        let found = self.node.value.kind();
        let message = match self.path.as_str() {
            "" => format!("expected {expected}, found {found}"),
            path => format!("{}: expected {expected}, found {found}", quoted(path)),
        };
        self.report(Code::WrongType, message, format!("write {expected}"));
    }

    /// The field, unless its value is `null`: for keys where `null` means "not written".
    #[must_use]
    pub fn non_null(self) -> Option<Self> {
        (self.node.value != Value::Null).then_some(self)
    }

    /// A string.
    pub fn string(self) -> Option<Spanned<String>> {
        self.str().map(|text| text.map(str::to_owned))
    }

    /// A string, borrowed from the document.
    pub fn str(&self) -> Option<Spanned<&'d str>> {
        match &self.node.value {
            Value::String(text) => Some(Spanned::new(text.as_str(), self.node.span)),
            _ => {
                self.wrong_type("a string");
                None
            }
        }
    }

    /// `true` or `false`.
    pub fn boolean(self) -> Option<Spanned<bool>> {
        match self.node.value {
            Value::Bool(value) => Some(Spanned::new(value, self.node.span)),
            _ => {
                self.wrong_type("a boolean");
                None
            }
        }
    }

    /// A whole number within `range`.
    pub fn integer<T>(self, range: RangeInclusive<T>) -> Option<Spanned<T>>
    where
        T: TryFrom<i64> + PartialOrd + Display,
    {
        let Value::Integer(number) = self.node.value else {
            self.wrong_type("an integer");
            return None;
        };
        match T::try_from(number) {
            Ok(value) if range.contains(&value) => Some(Spanned::new(value, self.node.span)),
            _ => {
                let (low, high) = (range.start(), range.end());
                let message = format!("{} is {number}, outside {low} to {high}", quoted(&self.path));
                self.report(Code::BadValue, message, format!("write a number from {low} to {high}"));
                None
            }
        }
    }

    /// The items of a list, each a field of its own.
    pub fn items(self) -> Option<impl Iterator<Item = Field<'d>>> {
        let Value::Array(items) = &self.node.value else {
            self.wrong_type("an array");
            return None;
        };
        Some(items.iter().enumerate().map(move |(index, node)| Field {
            problems: self.problems,
            path: format!("{}[{index}]", self.path),
            key_span: node.span,
            node,
        }))
    }

    /// A list of strings; items of other types are reported and left out.
    pub fn strings(self) -> Option<Spanned<Vec<Spanned<String>>>> {
        let Value::Array(items) = &self.node.value else {
            self.wrong_type("an array of strings");
            return None;
        };
        let mut strings = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            if let Value::String(text) = &item.value {
                strings.push(Spanned::new(text.clone(), item.span));
            } else {
                let path = format!("{}[{index}]", self.path);
                Field { problems: self.problems, path, key_span: item.span, node: item }.wrong_type("a string");
            }
        }
        Some(Spanned::new(strings, self.node.span))
    }

    /// One of a list of words.
    pub fn word<T: Clone>(self, words: &[(&'static str, T)]) -> Option<Spanned<T>> {
        let text = self.str()?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text.value) {
            return Some(Spanned::new(value.clone(), text.span));
        }
        let known = || words.iter().map(|(word, _)| *word);
        let list = listed(known());
        let help = match nearest(text.value, known()) {
            Some(word) => format!("did you mean `{word}`? It takes {list}"),
            None => format!("write one of {list}"),
        };
        let message = format!("{} does not take {}", quoted(&self.path), quoted(text.value));
        self.report(Code::BadValue, message, help);
        None
    }

    /// A string that `parse` turns into a value; what `parse` refuses is reported with its text, and `help` beside it.
    pub fn parsed<T, E: Display>(self, help: &str, parse: impl FnOnce(&str) -> Result<T, E>) -> Option<Spanned<T>> {
        let text = self.str()?;
        match parse(text.value) {
            Ok(value) => Some(Spanned::new(value, text.span)),
            Err(error) => {
                self.report(Code::BadValue, format!("{}: {error}", quoted(&self.path)), help);
                None
            }
        }
    }

    /// A table that is kept as it stands, because its shape belongs to somebody else.
    pub fn opaque_table(self) -> Option<Node> {
        if matches!(self.node.value, Value::Table(_)) {
            return Some(self.node.clone());
        }
        self.wrong_type("a table");
        None
    }

    /// A table.
    pub fn fields(self) -> Option<Fields<'d>> {
        let Value::Table(entries) = &self.node.value else {
            self.wrong_type("a table");
            return None;
        };
        let taken = vec![false; entries.len()];
        let Self { problems, path, node, .. } = self;
        Some(Fields { problems, path, span: node.span, entries, taken, known: Vec::new() })
    }
}

/// A key appended to a dotted path, quoted when it is not a bare key.
fn join(path: &str, key: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let quote = if !key.is_empty() && key.bytes().all(bare) { "" } else { "\"" };
    let dot = if path.is_empty() { "" } else { "." };
    format!("{path}{dot}{quote}{key}{quote}")
}

/// Words in backquotes, separated by commas.
fn listed<'k>(words: impl Iterator<Item = &'k str>) -> String {
    words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
