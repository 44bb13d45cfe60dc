//! YAML 1.2: one document, the core schema, string keys.
//!
//! What makes one text mean several things, or a small file a large value, is refused: anchors, aliases, merge keys,
//! tags, further documents, keys that are not strings. Plain scalars resolve as the core schema says (YAML 1.2.2,
//! section 10.3.2), so `yes`, `on` and `0777` are what they look like: text, text and a decimal number.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};

use super::{Keys, MAX_DEPTH, Node, Slot, Value, bom, quoted, too_deep};
use crate::diag::{Code, Problems, Span};

pub(super) fn parse(problems: &Problems) -> Option<Node> {
    let text = problems.source().text();
    let body = text.get(bom(text)..).unwrap_or_default();
    let mut builder = Builder { problems, places: Places::new(text), open: Vec::new(), root: None, documents: 0 };
    let mut parser = Parser::new_from_str(body);
    while let Some(event) = parser.next_event() {
        match event {
            Ok((Event::StreamEnd, _)) => break,
            Ok((event, span)) => {
                let start = builder.places.offset(span.start);
                let end = builder.places.offset(span.end).max(start);
                if builder.event(event, Span::new(start, end)).is_err() {
                    return None;
                }
            }
            Err(error) => {
                let at = builder.places.offset(*error.marker());
                let help = "mend the YAML here; indentation and quotes are the usual causes";
                problems.report(Code::Syntax, Span::new(at, at), error.info(), help);
                return None;
            }
        }
    }
    Some(builder.root.unwrap_or(Node { value: Value::Null, span: Span::new(0, 0) }))
}

/// The document cannot be read on; the reason has been reported.
struct Lost;

/// A list or table that has not ended.
enum Open {
    Array { items: Vec<Node>, start: usize },
    Table { table: Keys<Node>, key: Option<(String, Span)>, start: usize },
}

struct Builder<'p> {
    problems: &'p Problems,
    places: Places<'p>,
    open: Vec<Open>,
    root: Option<Node>,
    documents: usize,
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Lost> {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    self.feature(span, "a second YAML document", "keep one document");
                    return Err(Lost);
                }
            }
            Event::Alias(_) => {
                self.feature(span, "a YAML alias", "write the value again");
                self.place(Value::Null, span);
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.properties(span, anchor, tag.is_some());
                let value = if style == ScalarStyle::Plain { resolve(&text) } else { Value::String(text.into()) };
                if matches!(self.open.last(), Some(Open::Table { key: None, .. })) {
                    self.key(value, style, span);
                } else {
                    self.place(value, span);
                }
            }
            Event::SequenceStart(anchor, tag) => {
                self.properties(span, anchor, tag.is_some());
                self.opens(span, Open::Array { items: Vec::new(), start: span.start })?;
            }
            Event::MappingStart(anchor, tag) => {
                self.properties(span, anchor, tag.is_some());
                self.opens(span, Open::Table { table: Keys::new(), key: None, start: span.start })?;
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::Array { items, start }) => self.place(Value::Array(items), self.closed(start, span)),
                Some(Open::Table { table, start, .. }) => {
                    self.place(table.into_table(|node| node), self.closed(start, span));
                }
                None => {}
            },
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn opens(&mut self, span: Span, open: Open) -> Result<(), Lost> {
        if self.open.len() == MAX_DEPTH {
            too_deep(self.problems, span);
            return Err(Lost);
        }
        if matches!(self.open.last(), Some(Open::Table { key: None, .. })) {
            let message = "a key that is a list or a table";
            self.problems.report(Code::WrongType, span, message, "write a string as key");
            return Err(Lost);
        }
        self.open.push(open);
        Ok(())
    }

    /// From `start` to the end of a list or table, without the white space behind a block.
    fn closed(&self, start: usize, end: Span) -> Span {
        let text = self.problems.source().text();
        let end = text.get(start..end.end).map_or(end.end, |inside| start + inside.trim_end().len());
        Span::new(start, end.max(start))
    }

    fn key(&mut self, value: Value, style: ScalarStyle, span: Span) {
        let name = match value {
            Value::String(name) => {
                if name == "<<" && style == ScalarStyle::Plain {
                    self.feature(span, "a YAML merge key", "write the merged keys out");
                }
                name
            }
            other => {
                let written = self.problems.source().text().get(span.start..span.end).unwrap_or_default();
                let message = format!("the key {} is {}, not a string", quoted(written), other.kind());
                self.problems.report(Code::WrongType, span, message, "put the key in quotes");
                written.to_owned()
            }
        };
        if let Some(Open::Table { key, .. }) = self.open.last_mut() {
            *key = Some((name, span));
        }
    }

    fn place(&mut self, value: Value, span: Span) {
        let node = Node { value, span };
        match self.open.last_mut() {
            Some(Open::Array { items, .. }) => items.push(node),
            Some(Open::Table { table, key, .. }) => match key.take() {
                Some((key, key_span)) => table.insert(self.problems, Slot { key, key_span, value: node }),
                // Only an alias comes here in a key's place, and it has been reported.
                None => *key = Some((String::new(), span)),
            },
            None => self.root = Some(node),
        }
    }

    fn properties(&self, span: Span, anchor: usize, tag: bool) {
        if anchor != 0 {
            self.feature(span, "a YAML anchor", "write the value out where it is needed");
        }
        if tag {
            self.feature(span, "a YAML tag", "remove the tag; quotes make a value a string");
        }
    }

    fn feature(&self, span: Span, what: &str, help: &str) {
        self.problems.report(Code::YamlFeature, span, format!("{what} is not read"), help);
    }
}

/// Turns the parser's lines and columns into byte offsets.
struct Places<'p> {
    text: &'p str,
    lines: Vec<usize>,
    /// A place found last: line, column and offset. Events come nearly in order, so the next one is not far behind.
    last: (usize, usize, usize),
}

impl<'p> Places<'p> {
    fn new(text: &'p str) -> Self {
        let bytes = text.as_bytes();
        let mut lines = vec![bom(text)];
        for at in memchr::memchr2_iter(b'\n', b'\r', bytes) {
            if bytes.get(at..at + 2) != Some(b"\r\n") {
                lines.push(at + 1);
            }
        }
        Self { text, lines, last: (0, 0, 0) }
    }

    fn offset(&mut self, marker: Marker) -> usize {
        let (line, column) = (marker.line(), marker.col());
        let Some(&start) = line.checked_sub(1).and_then(|index| self.lines.get(index)) else {
            return self.text.len();
        };
        let (from_column, from) = match self.last {
            (last, known, offset) if last == line && known <= column => (known, offset),
            _ => (0, start),
        };
        let rest = self.text.get(from..).unwrap_or_default();
        let more = rest.char_indices().nth(column - from_column).map_or(rest.len(), |(at, _)| at);
        self.last = (line, column, from + more);
        from + more
    }
}

/// A plain scalar by the core schema.
fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Value::Float(f64::NAN),
        _ => {}
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        return Value::Float(if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY });
    }
    let based = |prefix: &str, radix: u32| {
        let digits = text.strip_prefix(prefix).filter(|digits| !digits.is_empty())?;
        digits.chars().all(|digit| digit.is_digit(radix)).then(|| match i64::from_str_radix(digits, radix) {
            Ok(number) => Value::Integer(number),
            Err(_) => Value::Float(f64::INFINITY),
        })
    };
    if let Some(value) = based("0o", 8).or_else(|| based("0x", 16)) {
        return value;
    }
    if !unsigned.is_empty()
        && unsigned.bytes().all(|byte| byte.is_ascii_digit())
        && let Ok(number) = text.parse()
    {
        return Value::Integer(number);
    }
    if is_float(unsigned)
        && let Ok(number) = text.parse()
    {
        return Value::Float(number);
    }
    Value::String(text.to_owned())
}

/// `(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_float(unsigned: &str) -> bool {
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_holds = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty()) && exponent_holds
}
