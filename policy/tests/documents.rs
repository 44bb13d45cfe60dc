//! The readers of documents against independent ones, and against arbitrary text.
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use exeat_policy::Manifest;
use exeat_policy::diag::{Code, Diagnostic, Source, has_errors};
use exeat_policy::doc::{self, Entry, Format, MAX_BYTES, MAX_DEPTH, Node, Value};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn read(text: &str, format: Format) -> Result<Node, Vec<Diagnostic>> {
    doc::parse(&Source::new("file", text), format)
}

/// A tree without places, as JSON, keys in any order.
fn plain(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Integer(number) => (*number).into(),
        Value::Float(number) => (*number).into(),
        Value::String(text) => text.clone().into(),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Table(entries) => {
            let pair = |entry: &Entry| (entry.key.clone(), plain(&entry.node));
            serde_json::Value::Object(entries.iter().map(pair).collect())
        }
    }
}

fn from_toml(value: toml::Value) -> serde_json::Value {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(value) => value.into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(items) => items.into_iter().map(from_toml).collect(),
        toml::Value::Table(table) => {
            serde_json::Value::Object(table.into_iter().map(|(key, value)| (key, from_toml(value))).collect())
        }
    }
}

fn spans_hold(node: &Node, text: &str) {
    assert!(text.get(node.span.start..node.span.end).is_some(), "{:?}", node.span);
    match &node.value {
        Value::Array(items) => items.iter().for_each(|item| spans_hold(item, text)),
        Value::Table(entries) => {
            for entry in entries {
                let key = text.get(entry.key_span.start..entry.key_span.end).expect("a key's place is in the text");
                if key.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                    assert_eq!(key, entry.key);
                }
                spans_hold(&entry.node, text);
            }
        }
        Value::String(value) if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            assert!(text[node.span.start..node.span.end].contains(value.as_str()), "{value:?}");
        }
        _ => {}
    }
}

/// Reads without panic, says why it refuses, and puts everything inside the text.
fn survives(text: &str, format: Format) {
    let (manifest, diagnostics) = Manifest::read(&Source::new("file", text), format);
    assert_eq!(manifest.is_none(), has_errors(&diagnostics));
    match read(text, format) {
        Ok(node) => {
            assert!(matches!(node.span.end, end if end <= text.len()));
            spans_hold(&node, text);
        }
        Err(diagnostics) => {
            assert!(!diagnostics.is_empty());
            for diagnostic in diagnostics {
                assert!(diagnostic.start() <= diagnostic.end());
                assert!(!diagnostic.message.is_empty() && !diagnostic.help.is_empty(), "{diagnostic}");
            }
        }
    }
}

const FORMATS: [Format; 3] = [Format::Toml, Format::Yaml, Format::Json];

fn pieces(list: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(list), 0..most).prop_map(|pieces| pieces.concat())
}

const TOML: &[&str] = &[
    "[a]\n",
    "[b]\n",
    "[a.b]\n",
    "[a.b.c]\n",
    "[[a]]\n",
    "[[a.b]]\n",
    "[[b]]\n",
    "[c]\n",
    "[a.c]\n",
    "a = 1\n",
    "b = 2.5\n",
    "c = \"x\"\n",
    "a.b = 1\n",
    "a.b.c = true\n",
    "b.c = [1, 2]\n",
    "b.a = 'x'\n",
    "c = {a = 1, b.c = 2}\n",
    "a = {b = {c = 1}, b.d = 2}\n",
    "b = [{a = 1}, {a = 2, a = 3}]\n",
    "c.d = 1979-05-27T07:32:00Z\n",
    "d = 0xff\n",
    "\"a\".b = 1\n",
    "e = +1_000\n",
    "f = inf\n",
    "# ü\n",
    "a = \n",
    "= 1\n",
    "[a\n",
    "]\n",
    "g = [1,\n2,\n]\n",
    "h = 99999999999999999999\n",
    "i = 2020-99-99\n",
    "x = }\n",
];

const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"a\"",
    "\"b\"",
    "\"\\u00e9\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud800\"",
    "\"\\x\"",
    "1",
    "-7",
    "01",
    "1.5",
    "1.",
    "1e5",
    "-",
    "1e999",
    "+1",
    "0x1",
    "true",
    "null",
    "nul",
    " ",
    "\n",
    "\t",
    "'a'",
    "//x\n",
    "/**/",
    "\"ü\"",
    "\"\u{1}\"",
    "{\"a\":1}",
    "[1,2]",
    "\"k\":",
    "18446744073709551616",
];

const YAML: &[&str] = &[
    "a: 1\n",
    "b:\n",
    "  c: x\n",
    "  - 1\n",
    "- 2\n",
    "? x\n",
    ": y\n",
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "---\n",
    "...\n",
    "{a: 1, b: [2]}",
    "[",
    "]",
    "{",
    "}",
    ",",
    "|\n",
    ">\n",
    "  text\n",
    "\"q\"",
    "'s'",
    "# ü\n",
    "é: ü\n",
    "\t",
    "\r\n",
    "%YAML 1.2\n",
    "~",
    "0x1f",
    ".inf",
];

fn json_value() -> impl Strategy<Value = serde_json::Value> {
    let text = "[a-z]{0,4}|[ -~é漢😀]{0,6}";
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i32>().prop_map(Into::into),
        (-1e9..1e9f64).prop_map(|number| (number + 0.5).into()),
        text.prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 24, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            proptest::collection::btree_map(text, inner, 0..20)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(7), ..ProptestConfig::with_cases(5_000) })]

    #[test]
    fn toml_agrees_with_the_toml_crate(text in pieces(TOML, 12)) {
        let theirs = text.parse::<toml::Table>();
        let ours = read(&text, Format::Toml);
        prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?} {:?}", ours, theirs);
        if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
            prop_assert_eq!(plain(&ours), from_toml(toml::Value::Table(theirs)));
        }
        survives(&text, Format::Toml);
    }

    #[test]
    fn json_agrees_with_serde_json(text in pieces(JSON, 12)) {
        let theirs = serde_json::from_str::<serde_json::Value>(&text);
        match read(&text, Format::Json) {
            Ok(node) => prop_assert_eq!(plain(&node), theirs.unwrap()),
            Err(diagnostics) if diagnostics.iter().all(|diagnostic| diagnostic.code == Code::DuplicateKey) => {}
            Err(_) => prop_assert!(theirs.is_err()),
        }
        survives(&text, Format::Json);
    }

    #[test]
    fn json_with_one_byte_changed_agrees_with_serde_json(value in json_value(), at in any::<usize>(), byte in 0u8..128) {
        let text = serde_json::json!({"root": value, "other": [1.5, "x"]}).to_string();
        prop_assert_eq!(plain(&read(&text, Format::Json).unwrap()), serde_json::from_str::<serde_json::Value>(&text).unwrap());
        let mut bytes = text.into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        let Ok(text) = String::from_utf8(bytes) else { return Ok(()) };
        let theirs = serde_json::from_str::<serde_json::Value>(&text);
        match read(&text, Format::Json) {
            Ok(node) => prop_assert_eq!(plain(&node), theirs.unwrap()),
            Err(diagnostics) if diagnostics.iter().all(|diagnostic| diagnostic.code == Code::DuplicateKey) => {}
            Err(diagnostics) => prop_assert!(theirs.is_err(), "{diagnostics:?}"),
        }
        survives(&text, Format::Json);
        survives(&text, Format::Yaml);
    }

    #[test]
    fn json_is_yaml(value in json_value()) {
        let text = serde_json::json!({"root": value, "other": [1.5, "x"]}).to_string();
        prop_assert_eq!(plain(&read(&text, Format::Yaml).unwrap()), plain(&read(&text, Format::Json).unwrap()));
    }

    #[test]
    fn yaml_made_of_its_pieces_is_read_or_refused(text in pieces(YAML, 14)) {
        survives(&text, Format::Yaml);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,40}|[\\x00-\\x7f]{0,60}|(?s).{0,40}") {
        for format in FORMATS {
            survives(&text, format);
        }
    }
}

fn codes(result: Result<Node, Vec<Diagnostic>>) -> Vec<Code> {
    result.map_or_else(|list| list.iter().map(|diagnostic| diagnostic.code).collect(), |_| Vec::new())
}

/// `depth` tables or lists, one in another, the root among them.
fn nested(depth: usize, format: Format) -> String {
    let lists = depth - 1;
    match format {
        Format::Toml => format!("a = {}{}", "[".repeat(lists), "]".repeat(lists)),
        Format::Yaml => format!("a: {}{}", "[".repeat(lists), "]".repeat(lists)),
        Format::Json => format!("{{\"a\": {}{}}}", "[".repeat(lists), "]".repeat(lists)),
    }
}

#[test]
fn nesting_is_bounded_in_every_format() {
    for format in FORMATS {
        assert_eq!(codes(read(&nested(MAX_DEPTH, format), format)), [], "{format:?}");
        assert_eq!(codes(read(&nested(MAX_DEPTH + 1, format), format)), [Code::TooDeep], "{format:?}");
        let codes = codes(read(&nested(500_000, format), format));
        assert!(matches!(codes[..], [Code::TooDeep | Code::Syntax, ..]), "{format:?}: {codes:?}");
    }
}

#[test]
fn toml_paths_are_bounded_too() {
    let path = |depth: usize| vec!["a"; depth].join(".");
    assert_eq!(codes(read(&format!("{} = 1", path(MAX_DEPTH)), Format::Toml)), []);
    assert_eq!(codes(read(&format!("{} = 1", path(MAX_DEPTH + 1)), Format::Toml)), [Code::TooDeep]);
    assert_eq!(codes(read(&format!("[{}]", path(MAX_DEPTH - 1)), Format::Toml)), []);
    assert_eq!(codes(read(&format!("[{}]", path(MAX_DEPTH)), Format::Toml)), [Code::TooDeep]);
    assert_eq!(codes(read(&format!("[[{}]]", path(MAX_DEPTH - 1)), Format::Toml)), [Code::TooDeep]);
    for text in [
        format!("{} = 1", path(1_000_000)),
        format!("[{}]", path(1_000_000)),
        format!("a = {}", "{a.b = ".repeat(400_000)),
    ] {
        assert!(codes(read(&text, Format::Toml)).contains(&Code::TooDeep));
    }
}

#[test]
fn yaml_nested_by_indentation_is_bounded() {
    let text: String = (0..500).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert_eq!(codes(read(&text, Format::Yaml)), [Code::TooDeep]);
    assert_eq!(codes(read(&"- ".repeat(500_000), Format::Yaml)), [Code::TooDeep]);
    assert_eq!(codes(read(&"? ".repeat(500_000), Format::Yaml)), [Code::WrongType]);
}

#[test]
fn a_large_file_is_refused_before_it_is_read() {
    let text = format!("# {}", "x".repeat(MAX_BYTES));
    for format in FORMATS {
        assert_eq!(codes(read(&text, format)), [Code::TooLarge], "{format:?}");
    }
}

#[test]
fn yaml_aliases_do_not_expand() {
    let mut text = String::from("a0: &a0 [x]\n");
    for level in 1..60 {
        let before = level - 1;
        text += &format!("a{level}: &a{level} [*a{before}, *a{before}]\n");
    }
    let codes = codes(read(&text, Format::Yaml));
    assert_eq!(codes.len(), 60 + 2 * 59);
    assert!(codes.iter().all(|&code| code == Code::YamlFeature));
}
