//! One structure written as JSON, YAML or TOML.

use serde_json::{Map, Value};

/// JSON, indented.
pub(crate) fn json(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("a value can be written")
}

/// YAML in block style, where it can be; text in double quotes.
pub(crate) fn yaml(value: &Value) -> String {
    fn block(value: &Value, indent: usize, out: &mut String) {
        let pad = " ".repeat(indent);
        match value {
            Value::Object(map) if !map.is_empty() => {
                for (key, value) in map {
                    let key = if is_bare(key) { key.clone() } else { quoted(key) };
                    *out += &format!("\n{pad}{key}:");
                    block(value, indent + 2, out);
                }
            }
            Value::Array(items) if !items.is_empty() => {
                for item in items {
                    *out += &format!("\n{pad}-");
                    block(item, indent + 2, out);
                }
            }
            Value::String(text) => *out += &format!(" {}", quoted(text)),
            other => *out += &format!(" {other}"),
        }
    }
    let mut out = String::new();
    block(value, 0, &mut out);
    out + "\n"
}

/// TOML with a header for each table; none when it has a value that TOML has not.
pub(crate) fn toml(value: &Value) -> Option<String> {
    fn section(map: &Map<String, Value>, path: &str, out: &mut String) -> Option<()> {
        for (key, value) in map.iter().filter(|(_, value)| !value.is_object()) {
            *out += &format!("{} = {}\n", toml_key(key), inline(value)?);
        }
        for (key, value) in map {
            if let Value::Object(map) = value {
                let dot = if path.is_empty() { "" } else { "." };
                let path = format!("{path}{dot}{}", toml_key(key));
                *out += &format!("[{path}]\n");
                section(map, &path, out)?;
            }
        }
        Some(())
    }
    fn inline(value: &Value) -> Option<String> {
        Some(match value {
            Value::Null => return None,
            Value::Number(number) if number.is_u64() && number.as_i64().is_none() => return None,
            Value::String(text) => quoted(text),
            Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Option<Vec<_>>>()?.join(", ")),
            Value::Object(map) => {
                let pair = |(key, value): (&String, &Value)| Some(format!("{} = {}", toml_key(key), inline(value)?));
                format!("{{ {} }}", map.iter().map(pair).collect::<Option<Vec<_>>>()?.join(", "))
            }
            other => other.to_string(),
        })
    }
    let mut out = String::new();
    section(value.as_object()?, "", &mut out)?;
    Some(out)
}

fn toml_key(key: &str) -> String {
    if is_bare(key) { key.to_owned() } else { quoted(key) }
}

fn is_bare(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_') && key != "true"
}

/// A string of JSON is one of YAML and of TOML too.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
