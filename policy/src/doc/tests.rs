use super::*;

fn read(text: &str, format: Format) -> Result<Node, Vec<Diagnostic>> {
    parse(&Source::new("file", text), format)
}

fn table(text: &str, format: Format) -> Vec<Entry> {
    match read(text, format) {
        Ok(Node { value: Value::Table(entries), .. }) => entries,
        other => panic!("{text}: {other:?}"),
    }
}

/// The one value of `{"a": TEXT}`, `a: TEXT` or `a = TEXT`.
fn value(text: &str, format: Format) -> Value {
    let text = match format {
        Format::Toml => format!("a = {text}"),
        Format::Yaml => format!("a: {text}"),
        Format::Json => format!("{{\"a\": {text}}}"),
    };
    table(&text, format).remove(0).node.value
}

fn refused(text: &str, format: Format) -> Vec<String> {
    let diagnostics = read(text, format).expect_err(text);
    diagnostics.iter().map(|found| format!("{} {}", found.code, found.message)).collect()
}

fn string(text: &str) -> Value {
    Value::String(text.to_owned())
}

#[test]
fn the_format_is_the_extensions() {
    for (name, format) in [
        ("agent.toml", Format::Toml),
        ("agent", Format::Toml),
        ("a.json.toml", Format::Toml),
        ("dir.yaml/agent", Format::Toml),
        ("agent.yaml", Format::Yaml),
        ("agent.YML", Format::Yaml),
        (".json", Format::Json),
        ("agent.Json", Format::Json),
    ] {
        assert_eq!(Format::of(name), format, "{name}");
    }
}

#[test]
fn one_structure_in_three_formats() {
    let toml = table("a = 1\n[b]\nc = [true, \"x\"]\nd = 1.5\n", Format::Toml);
    let yaml = table("a: 1\nb:\n  c: [true, x]\n  d: 1.5\n", Format::Yaml);
    let json = table(r#"{"a": 1, "b": {"c": [true, "x"], "d": 1.5}}"#, Format::Json);
    for entries in [toml, yaml, json] {
        assert_eq!(entries[0].node.value, Value::Integer(1));
        let Value::Table(inner) = &entries[1].node.value else { panic!() };
        let Value::Array(items) = &inner[0].node.value else { panic!() };
        assert_eq!(items[0].value, Value::Bool(true));
        assert_eq!(items[1].value, string("x"));
        assert_eq!(inner[1].node.value, Value::Float(1.5));
    }
}

#[test]
fn plain_yaml_scalars_resolve_by_the_core_schema() {
    for (text, expected) in [
        ("", Value::Null),
        ("~", Value::Null),
        ("Null", Value::Null),
        ("nULL", string("nULL")),
        ("true", Value::Bool(true)),
        ("FALSE", Value::Bool(false)),
        ("yes", string("yes")),
        ("on", string("on")),
        ("'true'", string("true")),
        ("\"1\"", string("1")),
        ("1", Value::Integer(1)),
        ("+12", Value::Integer(12)),
        ("-3", Value::Integer(-3)),
        ("0777", Value::Integer(777)),
        ("0o17", Value::Integer(15)),
        ("0xFf", Value::Integer(255)),
        ("0x", string("0x")),
        ("0o8", string("0o8")),
        ("-0x1", string("-0x1")),
        ("0b1", string("0b1")),
        ("1_000", string("1_000")),
        ("99999999999999999999", Value::Float(1e20)),
        ("1.", Value::Float(1.0)),
        (".5", Value::Float(0.5)),
        ("-1.5e3", Value::Float(-1500.0)),
        ("1e", string("1e")),
        (".", string(".")),
        ("+", string("+")),
        ("1.2.3", string("1.2.3")),
        ("-.inf", Value::Float(f64::NEG_INFINITY)),
        ("inf", string("inf")),
        ("2001-01-01", string("2001-01-01")),
        ("1:30", string("1:30")),
        ("|\n  x\n  y\n", string("x\ny\n")),
    ] {
        assert_eq!(value(text, Format::Yaml), expected, "{text}");
    }
    assert!(matches!(value(".NaN", Format::Yaml), Value::Float(number) if number.is_nan()));
}

#[test]
fn yaml_keys_are_strings() {
    assert_eq!(refused("1: a\n", Format::Yaml), ["E0004 the key `1` is an integer, not a string"]);
    assert_eq!(refused("null: a\n", Format::Yaml), ["E0004 the key `null` is null, not a string"]);
    assert_eq!(refused("? [a]\n: b\n", Format::Yaml), ["E0004 a key that is a list or a table"]);
    assert_eq!(table("'1': a\n\"<<\": b\n", Format::Yaml).len(), 2);
}

#[test]
fn json_is_strict() {
    assert_eq!(value(r#""\u00e9\n\/\ud83d\ude00""#, Format::Json), string("é\n/😀"));
    assert_eq!(value("-0", Format::Json), Value::Integer(0));
    assert_eq!(value("1.0", Format::Json), Value::Float(1.0));
    assert_eq!(value("9223372036854775808", Format::Json), Value::Float(9_223_372_036_854_775_808.0));
    for text in [
        "01",
        "1.",
        ".5",
        "+1",
        "0x1",
        "1e",
        "NaN",
        "Infinity",
        "1e999",
        "nul",
        "True",
        "'a'",
        "\"\t\"",
        "\"\\x\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"\\u12\"",
        "\"a",
        "[1,]",
        "[1 2]",
        "[,]",
        "[",
        "{1: 2}",
        "",
        "1 /* x */",
        "1 2",
    ] {
        let codes = refused(&format!("{{\"a\": {text}}}"), Format::Json);
        assert!(codes.iter().all(|code| code.starts_with("E0001")), "{text}: {codes:?}");
    }
    assert_eq!(refused("{} x", Format::Json), ["E0001 something stands behind the end of the document"]);
    assert_eq!(refused("", Format::Json), ["E0001 expected a value, found the end of the file"]);
}

#[test]
fn toml_values_and_numbers() {
    assert_eq!(value("0xff", Format::Toml), Value::Integer(255));
    assert_eq!(value("1979-05-27T07:32:00Z", Format::Toml), string("1979-05-27T07:32:00Z"));
    assert_eq!(value("'''\nx'''", Format::Toml), string("x"));
    assert_eq!(value("-9223372036854775808", Format::Toml), Value::Integer(i64::MIN));
    assert_eq!(refused("a = 9223372036854775808", Format::Toml), ["E0001 the number does not fit 64 bits"]);
}

#[test]
fn toml_tables_are_defined_once() {
    let twice = |key: &str, line: usize, column: usize| {
        format!("E0002 `{key}` is written twice; it stands at line {line}, column {column} already")
    };
    assert_eq!(refused("[a]\n[b]\n[a]\n", Format::Toml), [twice("a", 1, 2)]);
    assert_eq!(refused("[a]\nb.c = 1\n[a.b]\n", Format::Toml), [twice("b", 2, 1)]);
    assert_eq!(refused("[a.b]\n[a]\nb.c = 1\n", Format::Toml), [twice("b", 1, 4)]);
    assert_eq!(refused("[[a]]\n[a]\n", Format::Toml), [twice("a", 1, 3)]);
    assert_eq!(refused("[a]\n[[a]]\n", Format::Toml), [twice("a", 1, 2)]);
    assert_eq!(refused("a = { b = 1, b = 2 }\n", Format::Toml), [twice("b", 1, 7)]);
    assert_eq!(
        refused("a = { b = 1 }\na.c = 2\n[a.d]\n", Format::Toml),
        ["E0002 `a` is a table, closed at line 1: nothing can be added"; 2]
    );
    assert_eq!(table("[a.b]\nx = 1\n[a]\ny = 2\n[[c.d]]\n[c.d.e]\n[[c.d]]\n", Format::Toml).len(), 2);
}

#[test]
fn fields_are_read_as_types_and_the_rest_is_reported() {
    let text = r#"
text = "x"
yes = "true"
port = 70000
small = -1
level = "warm"
address = "localhost"
list = ["a", 1, "b"]
items = [{ n = 1 }, 2]
lisst = []
[section]
on = true
colour = 1
[servers.one]
n = 1
"#;
    let source = Source::new("file", text);
    let root = parse(&source, Format::Toml).unwrap();
    let problems = Problems::new(&source);
    let mut fields = Fields::root(&root, &problems).unwrap();
    assert_eq!(fields.string("text").unwrap().value, "x");
    assert!(fields.boolean("yes").is_none());
    assert!(fields.integer::<u16>("port", 1..=u16::MAX).is_none());
    assert!(fields.integer::<usize>("small", 0..=10).is_none());
    assert!(fields.word("level", &[("info", 1), ("warn", 2)]).is_none());
    assert!(fields.parsed("address", "write an address", str::parse::<std::net::IpAddr>).is_none());
    let list = fields.strings("list").unwrap();
    assert_eq!(list.value.iter().map(|item| item.value.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let numbers: Vec<_> = fields.list_of_tables("items").into_iter().map(|mut item| item.integer("n", 0..=9)).collect();
    assert_eq!(numbers.len(), 1);
    let mut section = fields.section("section");
    assert!(section.boolean("on").unwrap().value);
    section.finish();
    assert!(fields.section("missing").string("x").is_none());
    let mut servers = fields.tables("servers");
    let (name, server) = &mut servers[0];
    assert_eq!((name.value.as_str(), server.path()), ("one", "servers.one"));
    assert_eq!(server.integer::<u8>("n", 0..=9).unwrap().value, 1);
    assert!(fields.required("gone").is_none());
    fields.finish();

    let lines: Vec<_> = problems
        .into_vec()
        .iter()
        .map(|found| format!("{} {} {} ({})", found.start().line, found.code, found.message, found.help))
        .collect();
    assert_eq!(
        lines,
        [
            "1 E0005 the key `gone` is missing (add `gone`)",
            "3 E0004 `yes`: expected a boolean, found a string (write a boolean)",
            "4 E0006 `port` is 70000, outside 1 to 65535 (write a number from 1 to 65535)",
            "5 E0006 `small` is -1, outside 0 to 10 (write a number from 0 to 10)",
            "6 E0006 `level` does not take `warm` (did you mean `warn`? It takes `info`, `warn`)",
            "7 E0006 `address`: invalid IP address syntax (write an address)",
            "8 E0004 `list[1]`: expected a string, found an integer (write a string)",
            "9 E0004 `items[1]`: expected a table, found an integer (write a table)",
            "10 E0003 unknown key `lisst` (did you mean `list`?)",
            "13 E0003 unknown key `colour` in `section` (known keys are `on`)",
        ]
    );
}
