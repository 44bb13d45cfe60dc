use proptest::prelude::*;
use serde_json::Value as Tree;

use super::*;

fn faults(text: &str) -> Option<Fault> {
    parse(text.as_bytes()).err()
}

#[test]
fn the_grammar_is_that_of_the_standard() {
    for text in [
        "null",
        " true ",
        "-0.5e+10",
        "1E400",
        "\"\\u00e9\\n\\/\"",
        "[]",
        "[ 1 , [ ] , {} ]",
        "{\"a\":{\"a\":1},\"b\":[{\"a\":1},{\"a\":2}]}",
        "\"\\ud800\"",
        "\t\r\n{ \"\" : \"\" }\n",
    ] {
        assert_eq!(faults(text), None, "{text}");
    }
    for text in [
        "",
        " ",
        "{",
        "[1",
        "[1,]",
        "{\"a\":1,}",
        "{\"a\"}",
        "{a:1}",
        "{'a':1}",
        "[1 2]",
        "01",
        "1.",
        ".5",
        "+1",
        "-",
        "1e",
        "NaN",
        "-Infinity",
        "tru",
        "nul",
        "\"",
        "\"\n\"",
        "\"\t\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\u12\"",
        "// x\n1",
        "[1/* x */]",
        "{,}",
        "\u{b}1",
        "\u{a0}1",
        "]",
        "{\"a\":}",
        "\\u0031",
    ] {
        let fault = faults(text);
        assert!(matches!(fault, Some(Fault::Syntax(_) | Fault::Trailing(_))), "{text:?}: {fault:?}");
    }
}

#[test]
fn one_value_in_plain_utf8_is_taken() {
    assert_eq!(parse(b"\"\xff\"").err(), Some(Fault::NotUtf8(1)));
    assert_eq!(parse(b"\"\xed\xa0\x80\"").err(), Some(Fault::NotUtf8(1)));
    assert_eq!(faults("\u{feff}{}"), Some(Fault::ByteOrderMark));
    assert_eq!(faults("{}{}"), Some(Fault::Trailing(2)));
    assert_eq!(faults("{} x"), Some(Fault::Trailing(3)));
    assert_eq!(faults("1\0"), Some(Fault::Trailing(1)));
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert_eq!(faults(&nested(MAX_DEPTH)), None);
    assert_eq!(faults(&nested(MAX_DEPTH + 1)), Some(Fault::TooDeep));
    assert_eq!(faults(&"{\"a\":".repeat(1_000_000)), Some(Fault::TooDeep));
}

#[test]
fn a_key_is_there_once_however_it_is_written() {
    for text in [
        r#"{"method":1,"method":2}"#,
        r#"{"method":1,"\u006dethod":2}"#,
        r#"{"a/b":1,"a\/b":2}"#,
        r#"{"é":1,"\u00E9":2}"#,
        r#"{"😀":1,"\ud83d\uDE00":2}"#,
        r#"[{"x":{"a":1,"b":2,"c":3,"a":4}}]"#,
        r#"{"":1,"":2}"#,
    ] {
        assert!(matches!(faults(text), Some(Fault::DuplicateKey(_))), "{text}");
    }
    assert_eq!(faults(r#"{"a":1,"A":2,"b":{"a":1}}"#), None);
    assert!(matches!(faults(r#"{"\ud800":1}"#), Some(Fault::LoneSurrogate(2))));
    assert!(matches!(faults(r#"{"\udc00\ud800":1}"#), Some(Fault::LoneSurrogate(2))));
}

#[test]
fn members_are_found_where_they_stand() {
    let text = r#" { "a" : [1, "x,}]" , {"b":2}] ,"\u006b\n":"\"" , "n":-1.50e3} "#;
    let object = parse(text.as_bytes()).unwrap().object().unwrap();
    let members: Vec<_> = object.members().map(|member| (member.key.into_owned(), member.value.raw())).collect();
    assert_eq!(
        members,
        [("a".to_owned(), r#"[1, "x,}]" , {"b":2}]"#), ("k\n".to_owned(), r#""\"""#), ("n".to_owned(), "-1.50e3")]
    );
    let items: Vec<_> = object.get("a").unwrap().unwrap().items().unwrap().map(|item| item.raw()).collect();
    assert_eq!(items, ["1", r#""x,}]""#, r#"{"b":2}"#]);
    assert_eq!(object.get("n").unwrap().unwrap().integer(), Some(-1500));
    assert_eq!(object.string("k\n").unwrap().unwrap(), "\"");
    assert_eq!(object.string("n"), Ok(None));
}

#[test]
fn a_key_in_another_case_is_refused_where_it_is_asked_for() {
    for text in [r#"{"Method":1}"#, r#"{"method":1,"METHOD":2}"#, r#"{"\u004dethod":1}"#] {
        let object = parse(text.as_bytes()).unwrap().object().unwrap();
        assert!(matches!(object.get("method"), Err(Fault::OtherSpelling { expected: "method", .. })), "{text}");
        assert!(object.get("id").unwrap().is_none());
    }
    let folded = parse("{\"param\u{17f}\":1,\"to\u{212a}en\":2}".as_bytes()).unwrap().object().unwrap();
    assert!(folded.get("params").is_err() && folded.get("token").is_err());
}

#[test]
fn what_no_client_takes_for_a_message_is_told() {
    for bytes in [&b"{"[..], b" \t\n[", b"\xef\xbb\xbf{}", b"\x0b\x00{", "\u{a0}\u{feff}\u{2028}[1]".as_bytes()] {
        assert!(may_be_message(bytes), "{bytes:?}");
    }
    assert!(may_be_message(&[b' '; 5000]));
    for bytes in [&b""[..], b"  ", b"hello {", b"grant_type=x", b"\"{\"", b"<html>", b"1"] {
        assert!(!may_be_message(bytes), "{bytes:?}");
    }
}

#[test]
fn removing_takes_one_comma_with_each() {
    let text = r#"{"a":1, "b":2 ,"c":3,"d":4}"#;
    for (removed, expected) in [
        ("", text),
        ("a", r#"{"b":2 ,"c":3,"d":4}"#),
        ("ab", r#"{"c":3,"d":4}"#),
        ("b", r#"{"a":1 ,"c":3,"d":4}"#),
        ("d", r#"{"a":1, "b":2 ,"c":3}"#),
        ("bc", r#"{"a":1,"d":4}"#),
        ("ad", r#"{"b":2 ,"c":3}"#),
        ("abcd", "{}"),
    ] {
        let object = parse(text.as_bytes()).unwrap().object().unwrap();
        let mut edits = Edits::default();
        let kept =
            edits.remove(object.members(), |member| member.span.clone(), |member| removed.contains(&*member.key));
        assert_eq!(String::from_utf8(edits.apply(text.as_bytes())).unwrap(), expected, "{removed}");
        assert_eq!(kept, 4 - removed.len());
    }
}

#[test]
fn a_change_inside_of_another_is_lost_in_it() {
    let mut edits = Edits::default();
    edits.replace(2..3, "y");
    edits.replace(1..4, "X");
    edits.replace(5..5, "!");
    assert_eq!(edits.apply(b"abcdef"), b"aXe!f");
}

/// JSON as text, in odd spellings, with what it means.
fn documents() -> impl Strategy<Value = (String, Tree)> {
    let space = || prop::sample::select(vec!["", " ", "\n", "\t \r\n"]);
    let string = "[a-c\"\\\\/é\u{2028}😀\n]{0,4}";
    let leaf = prop_oneof![
        Just(("null".to_owned(), Tree::Null)),
        any::<bool>().prop_map(|b| (b.to_string(), b.into())),
        any::<i64>().prop_map(|n| (n.to_string(), n.into())),
        string.prop_map(|s| (spelt(&s), s.into())),
    ];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        let array = (prop::collection::vec(inner.clone(), 0..5), space()).prop_map(|(items, space)| {
            let (texts, trees): (Vec<_>, Vec<_>) = items.into_iter().unzip();
            (format!("[{space}{}{space}]", texts.join(&format!("{space},{space}"))), Tree::Array(trees))
        });
        let object = (prop::collection::vec((string, inner), 0..5), space()).prop_map(|(members, space)| {
            let mut tree = serde_json::Map::new();
            let mut texts = Vec::new();
            for (key, (text, value)) in members {
                if !tree.contains_key(&key) {
                    texts.push(format!("{}{space}:{space}{text}", spelt(&key)));
                    tree.insert(key, value);
                }
            }
            (format!("{{{space}{}{space}}}", texts.join(",")), Tree::Object(tree))
        });
        prop_oneof![array, object]
    })
}

/// A string with every other character escaped.
fn spelt(text: &str) -> String {
    let mut spelt = "\"".to_owned();
    for (index, character) in text.chars().enumerate() {
        if index % 2 == 0 || "\"\\\n".contains(character) {
            let mut units = [0; 2];
            character.encode_utf16(&mut units).iter().for_each(|unit| spelt += &format!("\\u{unit:04x}"));
        } else {
            spelt.push(character);
        }
    }
    spelt + "\""
}

fn tree_of(value: Value<'_>) -> Tree {
    match value.kind() {
        Kind::Object => Tree::Object(
            value.object().unwrap().members().map(|member| (member.key.into_owned(), tree_of(member.value))).collect(),
        ),
        Kind::Array => value.items().unwrap().map(tree_of).collect(),
        Kind::String => value.string().unwrap().unwrap().into_owned().into(),
        _ => serde_json::from_str(value.raw()).unwrap(),
    }
}

proptest! {
    #[test]
    fn a_document_means_what_others_read_in_it((text, tree) in documents()) {
        let value = parse(text.as_bytes()).unwrap();
        prop_assert_eq!(tree_of(value), tree);
        prop_assert_eq!(value.raw(), text.trim());
    }

    #[test]
    fn what_is_taken_others_take_too(text in "[\\[\\]{}:, \"\\\\a0-9.eEtrufalsn+-]{0,24}") {
        if parse(text.as_bytes()).is_ok() && !text.contains("\\u") {
            // Numbers beyond those of a machine are good JSON that some readers refuse.
            let others = serde_json::from_str::<serde::de::IgnoredAny>(&text);
            prop_assert!(others.is_ok() || others.unwrap_err().to_string().contains("number out of range"), "{}", text);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(value) = parse(&bytes) {
            prop_assert!(value.span().end <= bytes.len());
        }
    }

    #[test]
    fn members_that_stay_stay_as_they_are((text, _) in documents(), which in any::<u8>()) {
        if let Some(object) = parse(text.as_bytes()).unwrap().object() {
            let all: Vec<_> = object.members().collect();
            let goes = |index: usize| which >> (index % 8) & 1 == 1;
            let mut edits = Edits::default();
            edits.remove(all.iter().enumerate(), |(_, member)| member.span.clone(), |(index, _)| goes(*index));
            let changed = edits.apply(text.as_bytes());
            let left: Vec<_> = parse(&changed).unwrap().object().unwrap().members().collect();
            let left: Vec<_> = left.iter().map(|member| (&member.key, member.value.raw())).collect();
            let kept = all.iter().enumerate().filter(|(index, _)| !goes(*index));
            let kept: Vec<_> = kept.map(|(_, member)| (&member.key, member.value.raw())).collect();
            prop_assert_eq!(left, kept);
        }
    }
}
