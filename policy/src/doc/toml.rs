//! TOML 1.1, on the `toml_parser` crate's tokens and events.
//!
//! The parser yields keys and values one after another; which table they belong to, and whether a table may be opened
//! or extended there, is decided here, so that a key written twice is reported with both of its places and no path of
//! keys can nest deeper than [`MAX_DEPTH`].

use std::borrow::Cow;

use toml_datetime::Datetime;
use toml_parser::decoder::ScalarKind;
use toml_parser::parser::{Event, EventKind, RecursionGuard, ValidateWhitespace, parse_document};
use toml_parser::{ErrorSink, Expected, ParseError, Source};

use super::{Keys, MAX_DEPTH, Node, Slot, Value, bom, duplicate, quoted, too_deep};
use crate::diag::{Code, Problems, Span};

/// Where the tokenizer's parser stops following brackets: behind [`MAX_DEPTH`], so that this module reports first.
const GUARD: u32 = 80;

pub(super) fn parse(problems: &Problems) -> Option<Node> {
    let text = problems.source().text();
    let offset = bom(text);
    let source = Source::new(text.get(offset..).unwrap_or_default());
    let tokens = source.lex().into_vec();
    let mut events = Vec::with_capacity(tokens.len());
    let mut errors = Errors::default();
    let mut checked = ValidateWhitespace::new(&mut events, source);
    parse_document(&tokens, &mut RecursionGuard::new(&mut checked, GUARD), &mut errors);

    let root = Table { span: Span::new(offset, offset), kind: Kind::Header, depth: 1, keys: Keys::new() };
    let mut builder = Builder { problems, source, offset, events: &events, errors, tables: vec![root] };
    let read = builder.document();
    let end = if read.is_err() { builder.place().start } else { usize::MAX };
    for error in std::mem::take(&mut builder.errors).0 {
        builder.report(&error, end);
    }
    read.ok().map(|()| builder.take(ROOT))
}

/// The parser's errors, as many as are listed.
#[derive(Default)]
struct Errors(Vec<ParseError>);

impl ErrorSink for Errors {
    fn report_error(&mut self, error: ParseError) {
        if self.0.len() <= Problems::MOST {
            self.0.push(error);
        }
    }
}

/// The document nests too deep to be read on; that has been reported.
struct Lost;

/// How a table came to be, which says who may add to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// By a header or as an inline table: defined.
    Header,
    /// As a parent in a header: may still be defined.
    Implicit,
    /// By a dotted key: other dotted keys add to it.
    Dotted,
}

struct Table {
    span: Span,
    kind: Kind,
    depth: usize,
    keys: Keys<Item>,
}

enum Item {
    /// Closed: nothing adds to it.
    Value(Node),
    /// A position in [`Builder::tables`].
    Table(usize),
    /// The tables of `[[key]]` headers.
    Tables(Vec<usize>, Span),
}

const ROOT: usize = 0;

type Key = (String, Span);

struct Builder<'p> {
    problems: &'p Problems,
    source: Source<'p>,
    offset: usize,
    /// What is still to be read.
    events: &'p [Event],
    errors: Errors,
    tables: Vec<Table>,
}

impl<'p> Builder<'p> {
    fn document(&mut self) -> Result<(), Lost> {
        let mut current = Some(ROOT);
        while let Some(event) = self.next() {
            match event.kind() {
                EventKind::StdTableOpen | EventKind::ArrayTableOpen => current = self.header(event)?,
                EventKind::SimpleKey => {
                    let path = self.key(event);
                    self.skip_blank();
                    if self.peek() != Some(EventKind::KeyValSep) {
                        continue;
                    }
                    self.next();
                    self.skip_blank();
                    let (depth, known) = current.map_or((1, false), |table| (self.depth(table), true));
                    let value = self.value(depth + path.len())?;
                    if let (true, Some(table), Some(value)) = (known, current, value) {
                        self.insert(table, path, value)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads a header and gives the table it opens; none when it may not be opened.
    fn header(&mut self, open: &Event) -> Result<Option<usize>, Lost> {
        let mut path = Vec::new();
        let mut span = self.span(open);
        while let Some(kind) = self.peek() {
            match kind {
                EventKind::SimpleKey => {
                    if let Some(event) = self.next() {
                        path = self.key(event);
                    }
                }
                EventKind::StdTableClose | EventKind::ArrayTableClose => {
                    span.end = self.next().map_or(span.end, |event| self.span(event).end);
                    break;
                }
                EventKind::Newline => break,
                _ => {
                    self.next();
                }
            }
        }
        let Some((key, key_span)) = path.pop() else { return Ok(None) };
        let Some(parent) = self.descend(ROOT, path, Kind::Implicit)? else { return Ok(None) };
        if open.kind() == EventKind::ArrayTableOpen {
            self.open_array_table(parent, (key, key_span), span)
        } else {
            self.open_table(parent, (key, key_span), span)
        }
    }

    fn open_table(&mut self, parent: usize, (key, key_span): Key, span: Span) -> Result<Option<usize>, Lost> {
        let Some(found) = self.slot(parent, &key) else {
            return self.add_table(parent, (key, key_span), span, Kind::Header).map(Some);
        };
        let first = found.key_span;
        if let Item::Table(index) = found.value
            && let Some(table) = self.tables.get_mut(index)
            && table.kind == Kind::Implicit
        {
            (table.kind, table.span) = (Kind::Header, span);
            return Ok(Some(index));
        }
        duplicate(self.problems, &key, key_span, first);
        Ok(None)
    }

    fn open_array_table(&mut self, parent: usize, (key, key_span): Key, span: Span) -> Result<Option<usize>, Lost> {
        let depth = self.depth(parent) + 2;
        if depth > MAX_DEPTH {
            too_deep(self.problems, span);
            return Err(Lost);
        }
        let new = self.tables.len();
        match self.slot(parent, &key) {
            None => self.put(parent, Slot { key, key_span, value: Item::Tables(vec![new], span) }),
            Some(Slot { value: Item::Tables(items, _), .. }) => items.push(new),
            Some(found) => {
                let first = found.key_span;
                duplicate(self.problems, &key, key_span, first);
                return Ok(None);
            }
        }
        self.tables.push(Table { span, kind: Kind::Header, depth, keys: Keys::new() });
        Ok(Some(new))
    }

    /// Follows the keys of `path` down from a table, and makes the tables that are missing.
    fn descend(&mut self, from: usize, path: Vec<Key>, made: Kind) -> Result<Option<usize>, Lost> {
        let mut table = from;
        for (key, key_span) in path {
            let Some(found) = self.slot(table, &key) else {
                table = self.add_table(table, (key, key_span), key_span, made)?;
                continue;
            };
            let first = found.key_span;
            let next = match &found.value {
                Item::Table(index) => *index,
                Item::Tables(items, _) if made == Kind::Implicit => items.last().copied().unwrap_or(table),
                Item::Tables(..) => {
                    duplicate(self.problems, &key, key_span, first);
                    return Ok(None);
                }
                Item::Value(node) => {
                    let (kind, at) = (node.value.kind(), self.problems.source().position(first.start));
                    let key = quoted(&key);
                    let message = format!("{key} is {kind}, closed at line {}: nothing can be added", at.line);
                    self.problems.report(Code::DuplicateKey, key_span, message, "write the keys in one place");
                    return Ok(None);
                }
            };
            if made == Kind::Dotted
                && let Some(table) = self.tables.get_mut(next)
            {
                if table.kind == Kind::Header {
                    duplicate(self.problems, &key, key_span, first);
                    return Ok(None);
                }
                table.kind = Kind::Dotted;
            }
            table = next;
        }
        Ok(Some(table))
    }

    /// Puts a value at the end of a dotted path.
    fn insert(&mut self, table: usize, mut path: Vec<Key>, value: Node) -> Result<(), Lost> {
        let Some((key, key_span)) = path.pop() else { return Ok(()) };
        if let Some(parent) = self.descend(table, path, Kind::Dotted)? {
            self.put(parent, Slot { key, key_span, value: Item::Value(value) });
        }
        Ok(())
    }

    fn add_table(&mut self, parent: usize, (key, key_span): Key, span: Span, kind: Kind) -> Result<usize, Lost> {
        let depth = self.depth(parent) + 1;
        if depth > MAX_DEPTH {
            too_deep(self.problems, key_span);
            return Err(Lost);
        }
        let index = self.tables.len();
        self.tables.push(Table { span, kind, depth, keys: Keys::new() });
        self.put(parent, Slot { key, key_span, value: Item::Table(index) });
        Ok(index)
    }

    /// Reads a value, if one stands here; `depth` is that of a list or table that begins here.
    fn value(&mut self, depth: usize) -> Result<Option<Node>, Lost> {
        let opens = matches!(self.peek(), Some(EventKind::ArrayOpen | EventKind::InlineTableOpen));
        if opens && depth > MAX_DEPTH {
            too_deep(self.problems, self.place());
            return Err(Lost);
        }
        match self.peek() {
            Some(EventKind::Scalar) => Ok(self.next().map(|event| self.scalar(event))),
            Some(EventKind::ArrayOpen) => self.array(depth).map(Some),
            Some(EventKind::InlineTableOpen) => self.inline_table(depth).map(Some),
            _ => Ok(None),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Node, Lost> {
        let mut span = self.place();
        self.next();
        let mut items = Vec::new();
        while let Some(kind) = self.peek() {
            span.end = self.place().end;
            if let Some(item) = self.value(depth + 1)? {
                span.end = item.span.end;
                items.push(item);
                continue;
            }
            self.next();
            if kind == EventKind::ArrayClose {
                break;
            }
        }
        Ok(Node { value: Value::Array(items), span })
    }

    fn inline_table(&mut self, depth: usize) -> Result<Node, Lost> {
        let mut span = self.place();
        self.next();
        let index = self.tables.len();
        self.tables.push(Table { span, kind: Kind::Header, depth, keys: Keys::new() });
        while let Some(kind) = self.peek() {
            span.end = self.place().end;
            let Some(event) = self.next() else { break };
            match kind {
                EventKind::InlineTableClose => break,
                EventKind::SimpleKey => {
                    let path = self.key(event);
                    self.skip_blank();
                    if self.peek() != Some(EventKind::KeyValSep) {
                        continue;
                    }
                    self.next();
                    self.skip_blank();
                    if let Some(value) = self.value(depth + path.len())? {
                        self.insert(index, path, value)?;
                    }
                }
                _ => {}
            }
        }
        let mut node = self.take(index);
        self.tables.truncate(index);
        node.span = span;
        Ok(node)
    }

    fn scalar(&mut self, event: &Event) -> Node {
        let span = self.span(event);
        let mut text = Cow::Borrowed("");
        let kind = match self.source.get(event) {
            Some(raw) => raw.decode_scalar(&mut text, &mut self.errors),
            None => ScalarKind::String,
        };
        let value = match kind {
            ScalarKind::String => Value::String(text.into_owned()),
            ScalarKind::Boolean(value) => Value::Bool(value),
            ScalarKind::Float => Value::Float(text.parse().unwrap_or(f64::NAN)),
            ScalarKind::Integer(radix) => match i64::from_str_radix(&text, radix.value()) {
                Ok(number) => Value::Integer(number),
                Err(_) => {
                    self.error(event, "the number does not fit 64 bits");
                    Value::Integer(0)
                }
            },
            ScalarKind::DateTime => {
                if let Err(error) = text.parse::<Datetime>() {
                    self.error(event, error.to_string());
                }
                Value::String(text.into_owned())
            }
        };
        Node { value, span }
    }

    /// Reads a dotted key whose first part is `first`.
    fn key(&mut self, first: &Event) -> Vec<Key> {
        let mut path = vec![self.simple_key(first)];
        loop {
            let rest = self.events;
            self.skip_blank();
            if self.peek() != Some(EventKind::KeySep) {
                self.events = rest;
                return path;
            }
            self.next();
            self.skip_blank();
            if self.peek() == Some(EventKind::SimpleKey)
                && let Some(event) = self.next()
            {
                path.push(self.simple_key(event));
            }
        }
    }

    fn simple_key(&mut self, event: &Event) -> Key {
        let mut key = Cow::Borrowed("");
        if let Some(raw) = self.source.get(event) {
            raw.decode_key(&mut key, &mut self.errors);
        }
        (key.into_owned(), self.span(event))
    }

    fn next(&mut self) -> Option<&'p Event> {
        let (first, rest) = self.events.split_first()?;
        self.events = rest;
        Some(first)
    }

    fn peek(&self) -> Option<EventKind> {
        self.events.first().map(Event::kind)
    }

    fn skip_blank(&mut self) {
        while self.peek() == Some(EventKind::Whitespace) {
            self.next();
        }
    }

    fn span(&self, event: &Event) -> Span {
        Span::new(event.span().start() + self.offset, event.span().end() + self.offset)
    }

    /// Where the next event stands; the end of the text behind the last one.
    fn place(&self) -> Span {
        let end = self.source.input().len() + self.offset;
        self.events.first().map_or(Span::new(end, end), |event| self.span(event))
    }

    fn depth(&self, table: usize) -> usize {
        self.tables.get(table).map_or(1, |table| table.depth)
    }

    fn slot(&mut self, table: usize, key: &str) -> Option<&mut Slot<Item>> {
        let keys = &mut self.tables.get_mut(table)?.keys;
        let at = keys.find(key)?;
        keys.slots.get_mut(at)
    }

    fn put(&mut self, table: usize, slot: Slot<Item>) {
        // The parser makes up an empty key where one is missing, and reports that.
        if slot.key_span.start < slot.key_span.end
            && let Some(table) = self.tables.get_mut(table)
        {
            table.keys.insert(self.problems, slot);
        }
    }

    /// Takes a finished table out, with all below it.
    fn take(&mut self, table: usize) -> Node {
        let Some(table) = self.tables.get_mut(table) else {
            return Node { value: Value::Null, span: Span::default() };
        };
        let (span, keys) = (table.span, std::mem::replace(&mut table.keys, Keys::new()));
        let value = keys.into_table(|item| match item {
            Item::Value(node) => node,
            Item::Table(index) => self.take(index),
            Item::Tables(items, span) => {
                let items = items.into_iter().map(|index| self.take(index)).collect();
                Node { value: Value::Array(items), span }
            }
        });
        Node { value, span }
    }

    fn error(&mut self, event: &Event, message: impl Into<Cow<'static, str>>) {
        self.errors.report_error(ParseError::new(message).with_unexpected(event.span()));
    }

    /// Reports an error of the parser, unless it stands behind `end`, where reading stopped.
    fn report(&self, error: &ParseError, end: usize) {
        let at = error.unexpected().or(error.context()).unwrap_or_default();
        let span = Span::new(at.start() + self.offset, at.end() + self.offset);
        if span.start >= end {
            return;
        }
        let help = match error.expected() {
            Some(expected) if !expected.is_empty() => format!("expected {}", expectation(expected)),
            _ => "mend the TOML here".to_owned(),
        };
        self.problems.report(Code::Syntax, span, error.description(), help);
    }
}

fn expectation(expected: &[Expected]) -> String {
    let word = |expected: &Expected| match expected {
        Expected::Literal("\n") => "the end of the line".to_owned(),
        Expected::Literal(text) => quoted(text),
        Expected::Description(text) => (*text).to_owned(),
        _ => "something else".to_owned(),
    };
    expected.iter().map(word).collect::<Vec<_>>().join(" or ")
}
