//! `capabilities`: names a host looks up, with settings it judges itself.

use std::collections::HashMap;

use crate::diag::{Code, Span};
use crate::doc::{Field, Fields, Node, Spanned, Value, quoted};

/// One capability the agent asks for.
#[derive(Clone, Debug)]
pub struct Capability {
    /// 1 to 128 of `A-Z`, `a-z`, `0-9`, `_`, `.`, `:` and `-`, beginning with a letter or `_`.
    pub name: Spanned<String>,
    /// `config`, a table whose shape belongs to the capability.
    pub config: Option<Node>,
}

pub(super) fn read(field: Field<'_>) -> Vec<Capability> {
    let mut seen: HashMap<String, Span> = HashMap::new();
    let mut capabilities = Vec::new();
    for item in field.items().into_iter().flatten() {
        let problems = item.problems();
        let Some(capability) = one(item) else { continue };
        let Spanned { value: name, span } = &capability.name;
        if let Some(first) = seen.insert(name.clone(), *span) {
            let line = problems.source().position(first.start).line;
            let message = format!("the capability {} stands on line {line} already", quoted(name));
            problems.report(Code::CapabilityTwice, *span, message, "keep one of the two");
        }
        capabilities.push(capability);
    }
    capabilities
}

fn one(item: Field<'_>) -> Option<Capability> {
    match item.node().value {
        Value::String(_) => Some(Capability { name: name(item)?, config: None }),
        Value::Table(_) => reference(item.fields()?),
        _ => {
            item.wrong_type("a name or a table with `ref`");
            None
        }
    }
}

fn reference(mut fields: Fields<'_>) -> Option<Capability> {
    let name = fields.required("ref").and_then(name);
    let config = fields.take("config").and_then(Field::opaque_table);
    fields.finish();
    Some(Capability { name: name?, config })
}

fn name(field: Field<'_>) -> Option<Spanned<String>> {
    let name = field.clone().string()?;
    let text = name.value.as_str();
    let (message, help) = match text.split_once(':') {
        Some((prefix @ ("mcp" | "skill"), rest)) => (
            format!("{} names a thing of its own kind, not a capability", quoted(text)),
            match prefix {
                "mcp" => format!("describe the server {} under `mcpServers`", quoted(rest)),
                _ => "list the skill's folder in `skills`".to_owned(),
            },
        ),
        _ if is_name(text) => return Some(name),
        _ => (
            format!("{} is not a capability's name", quoted(text)),
            "write 1 to 128 of A-Z a-z 0-9 _ . : -, first a letter or _".to_owned(),
        ),
    };
    field.report(Code::CapabilityName, message, help);
    None
}

fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'-');
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && text.len() <= 128 && text.bytes().all(inner)
}
