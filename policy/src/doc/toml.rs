//! TOML 1.1, by the `toml` crate.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Entry, Node, Value, bom};
use crate::diag::{Code, Problems, Span};

pub(super) fn parse(problems: &Problems) -> Option<Node> {
    let text = problems.source().text();
    let offset = bom(text);
    let (table, errors) = DeTable::parse_recoverable(text.get(offset..).unwrap_or_default());
    for error in errors {
        let at = error.span().map_or(Span::new(offset, offset), |at| Span::new(at.start + offset, at.end + offset));
        let code = if error.message() == "duplicate key" { Code::DuplicateKey } else { Code::Syntax };
        problems.report(code, at, error.message(), "mend the TOML here");
    }
    let value = Value::Table(entries(table.into_inner(), offset));
    Some(Node { value, span: Span::new(offset, offset) })
}

fn entries(table: DeTable<'_>, offset: usize) -> Vec<Entry> {
    let mut entries: Vec<_> = table
        .into_iter()
        .map(|(key, value)| {
            let key_span = Span::new(key.span().start + offset, key.span().end + offset);
            Entry { key: key.into_inner().into_owned(), key_span, node: node(value, offset) }
        })
        .collect();
    entries.sort_by_key(|entry| entry.key_span);
    entries
}

fn node(value: Spanned<DeValue<'_>>, offset: usize) -> Node {
    let span = Span::new(value.span().start + offset, value.span().end + offset);
    let value = match value.into_inner() {
        DeValue::String(text) => Value::String(text.into_owned()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or(Value::Float(f64::INFINITY), Value::Integer)
        }
        DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(value) => Value::Bool(value),
        DeValue::Datetime(time) => Value::String(time.to_string()),
        DeValue::Array(items) => Value::Array(items.into_iter().map(|item| node(item, offset)).collect()),
        DeValue::Table(table) => Value::Table(entries(table, offset)),
    };
    Node { value, span }
}
