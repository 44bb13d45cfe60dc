//! Adding rules to a manifest in TOML, with everything else as it was: comments, order, spelling.

use anyhow::Context as _;
use toml_edit::{Array, DocumentMut, Item, RawString, Table, TableLike, Value};

/// Adds patterns to `network_access.allowed`, each with a remark that becomes a comment where the list is written over
/// several lines.
///
/// # Errors
/// The text is no TOML, or what stands at the place is no list.
pub(super) fn merge(text: &str, rules: &[(String, String)]) -> anyhow::Result<String> {
    if rules.is_empty() {
        return Ok(text.to_owned());
    }
    let mut document: DocumentMut = text.parse()?;
    if document.get("network_access").is_none() {
        document.insert("network_access", Item::Table(Table::new()));
    }
    let access = document.get_mut("network_access").and_then(Item::as_table_like_mut);
    let access: &mut dyn TableLike = access.context("network_access is no table")?;
    if access.get("allowed").is_none() {
        access.insert("allowed", Item::Value(Value::Array(Array::new())));
    }
    let allowed = access.get_mut("allowed").and_then(Item::as_array_mut).context("allowed is no list")?;
    add(allowed, rules);
    Ok(document.to_string())
}

/// A pattern as a TOML string.
pub(super) fn quoted(pattern: &str) -> String {
    Value::from(pattern).to_string()
}

fn add(list: &mut Array, rules: &[(String, String)]) {
    let raw = |text: Option<&RawString>| text.and_then(RawString::as_str).unwrap_or_default().to_owned();
    let written = |value: &Value| raw(value.decor().prefix());
    let several_lines = list.is_empty() || list.iter().any(|value| written(value).contains('\n'));
    if !several_lines {
        for (pattern, _) in rules {
            list.push(pattern.as_str());
        }
        return;
    }
    // What stands behind the last value, a comment perhaps, belongs to it and stays in front of what is added.
    let indents = list.iter().filter_map(|value| Some(written(value).rsplit_once('\n')?.1.to_owned()));
    let indent = indents.last();
    let indent = indent.unwrap_or_else(|| "  ".to_owned());
    let trailing = raw(Some(list.trailing()));
    let had_comma = list.trailing_comma();
    let last = list.len().checked_sub(1).and_then(|last| list.get_mut(last));
    let behind_last = match last {
        // With no comma behind the last value, its remark stands in its own suffix.
        Some(last) if !had_comma => {
            let suffix = raw(last.decor().suffix());
            last.decor_mut().set_suffix("");
            suffix + &trailing
        }
        _ => trailing,
    };
    let mut lead = behind_last.trim_end().to_owned();
    if !lead.is_empty() && !lead.starts_with(char::is_whitespace) {
        lead.insert(0, ' ');
    }
    for (pattern, remark) in rules {
        let mut value = Value::from(pattern.as_str());
        value.decor_mut().set_prefix(format!("{lead}\n{indent}# {remark}\n{indent}"));
        list.push_formatted(value);
        lead.clear();
    }
    list.set_trailing_comma(true);
    list.set_trailing("\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(text: &str, rules: &[&str]) -> String {
        let rules: Vec<(String, String)> = rules.iter().map(|rule| ((*rule).to_owned(), "seen".to_owned())).collect();
        merge(text, &rules).unwrap()
    }

    #[test]
    fn rules_are_added_and_the_rest_stays() {
        let cases = [
            (
                "name = \"a\" # who\n\n[network_access] # what\nallowed = [\n    # one\n    \"a.test\", # first\n    # end\n]\nblocked = []\n",
                "name = \"a\" # who\n\n[network_access] # what\nallowed = [\n    # one\n    \"a.test\", # first\n    # end\n    # seen\n    \"b.test\",\n]\nblocked = []\n",
            ),
            (
                "network_access = { allowed = ['a.test'], blocked = [] } # x\nname = \"a\"\n",
                "network_access = { allowed = ['a.test', \"b.test\"], blocked = [] } # x\nname = \"a\"\n",
            ),
            (
                "name = \"a\"\nnetwork_access.allowed = [\n\t\"a.test\" # last\n]\n",
                "name = \"a\"\nnetwork_access.allowed = [\n\t\"a.test\", # last\n\t# seen\n\t\"b.test\",\n]\n",
            ),
            (
                "name = \"a\"\n[network_access]\nallowed = []\n",
                "name = \"a\"\n[network_access]\nallowed = [\n  # seen\n  \"b.test\",\n]\n",
            ),
            (
                "name = \"a\"\n\n[model]\nprovider = \"x\"\n",
                "name = \"a\"\n\n[model]\nprovider = \"x\"\n\n[network_access]\nallowed = [\n  # seen\n  \"b.test\",\n]\n",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(merged(text, &["b.test"]), expected);
            assert_eq!(merged(text, &[]), text);
        }
    }

    #[test]
    fn what_is_no_list_is_an_error() {
        for text in ["network_access = 1\n", "network_access.allowed = 1\n", "= 1"] {
            assert!(merge(text, &[("b.test".into(), String::new())]).is_err(), "{text}");
        }
    }
}
