use super::*;

fn read(text: &str, format: Format) -> Result<Node, Vec<Diagnostic>> {
    parse(&Source::new("file", text), format)
}

#[test]
fn one_structure_in_three_formats() {
    let toml = read("a = 1\n[b]\nc = [true, \"x\"]\nd = 1.5\n", Format::Toml).unwrap();
    let yaml = read("a: 1\nb:\n  c: [true, x]\n  d: 1.5\n", Format::Yaml).unwrap();
    let json = read(r#"{"a": 1, "b": {"c": [true, "x"], "d": 1.5}}"#, Format::Json).unwrap();
    for node in [toml, yaml, json] {
        let Value::Table(entries) = &node.value else { panic!() };
        assert_eq!(entries[0].node.value, Value::Integer(1));
        let Value::Table(inner) = &entries[1].node.value else { panic!() };
        let Value::Array(items) = &inner[0].node.value else { panic!() };
        assert_eq!(items[0].value, Value::Bool(true));
        assert_eq!(items[1].value, Value::String("x".into()));
        assert_eq!(inner[1].node.value, Value::Float(1.5));
    }
}
