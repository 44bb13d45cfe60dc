use proptest::prelude::*;

use super::*;

#[test]
fn patterns_have_one_spelling() {
    for (text, canonical) in [
        ("example.com", "example.com"),
        (" Example.COM. ", "example.com"),
        ("localhost", "localhost"),
        ("a_b.example", "a_b.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("*.Bücher.example", "*.xn--bcher-kva.example"),
        ("*.com", "*.com"),
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1.", "192.0.2.1"),
        ("2001:DB8::1", "[2001:db8::1]"),
        ("[2001:db8:0::1]", "[2001:db8::1]"),
        ("https://EXAMPLE.com", "https://example.com/"),
        ("HTTP://example.com:80/A", "http://example.com/A"),
        ("https://example.com:8443/", "https://example.com:8443/"),
        ("http://[::1]:3000/x", "http://[::1]:3000/x"),
        ("https://example.com/**", "https://example.com/"),
        ("https://example.com/private/**", "https://example.com/private"),
        ("https://example.com/private//**", "https://example.com/private/"),
        ("https://example.com/a%2fb/%7e", "https://example.com/a%2Fb/~"),
        ("https://example.com/a%20b/ü", "https://example.com/a%20b/%C3%BC"),
        ("https://example.com/.well-known/", "https://example.com/.well-known/"),
    ] {
        let pattern: Pattern = text.parse().unwrap_or_else(|error: PatternError| panic!("{text}: {error}"));
        assert_eq!(pattern.to_string(), canonical, "{text}");
    }
}

/// What is no pattern, and a word of the suggestion.
const ERRORS: [(&str, &str); 66] = [
    ("", "remove the entry"),
    ("  ", "remove the entry"),
    ("*", "remove the list"),
    ("**", "remove the list"),
    ("*.", "remove the list"),
    ("*.*", "remove the list"),
    ("**.example.com", "`*.example.com`"),
    ("*example.com", "`*.example.com`"),
    ("*..example.com", "single dots"),
    ("*.*.example.com", "`*.example.com`"),
    ("api.*.com", "one by one"),
    ("example.*", "one by one"),
    ("*.127.0.0.1", "write `127.0.0.1`"),
    ("*.::1", "write `[::1]`"),
    ("*.[::1]", "write `[::1]`"),
    ("*.example.com/path", "`*.example.com`"),
    ("*.example.com:443", "`*.example.com`"),
    ("example.com:443", "`https://example.com/`"),
    ("example.com:80", "`http://example.com/`"),
    ("example.com:8443", "`https://example.com:8443/`"),
    ("example.com:", "write `example.com`"),
    ("[::1]:443", "`https://[::1]/`"),
    ("example.com/", "`https://example.com/`"),
    ("example.com/api?x#y", "`https://example.com/api`"),
    ("example.com?x", "`https://example.com/`"),
    ("//example.com/", "`https://example.com/`"),
    ("10.0.0.0/8", "list the addresses"),
    ("fd00::/8", "list the addresses"),
    ("10.0.0.1/example", "`https://10.0.0.1/example`"),
    ("exa mple.com", "one entry for each host"),
    ("a.com\tb.com", "one entry for each host"),
    ("a.com,b.com", "the host name alone"),
    ("user@example.com", "`example.com`"),
    ("!example.com", "the host name alone"),
    ("ex%61mple.com", "without percent-encoding"),
    ("[::1%25eth0]", "without a zone"),
    ("fe80::1%eth0", "without a zone"),
    ("[example.com]", "without a zone"),
    ("a..example.com", "single dots"),
    (".example.com", "single dots"),
    ("example.com..", "single dots"),
    ("010.0.0.1", "`8.0.0.1`"),
    ("127.1", "`127.0.0.1`"),
    ("300.0.0.1", "0 to 255"),
    ("xn--example-.org", "the host name alone"),
    ("https://", "`https://example.com/`"),
    ("https:///path", "`https://example.com/`"),
    ("https://user@h.example/", "`https://h.example/`"),
    ("https://h.example/?q=1", "`https://h.example/`"),
    ("https://h.example/#f", "`https://h.example/`"),
    ("https://h.example/a\\b", "`https://h.example/a`"),
    ("https://*.example.com/", "`*.example.com`"),
    ("https://*/", "one entry for each origin"),
    ("wss://example.com/", "`https://example.com/`"),
    ("ws://example.com/x", "`http://example.com/x`"),
    ("ftp://example.com/", "`https://example.com/`"),
    ("*://example.com/", "the host alone"),
    ("https://h.example:0/x", "`https://h.example/x`"),
    ("https://h.example:0443/", "`https://h.example/`"),
    ("https://h.example:/", "`https://h.example/`"),
    ("https://h.example:65536/", "`https://h.example/`"),
    ("https://h.example/a/**/b", "`https://h.example/a/`"),
    ("https://h.example/a/*", "`https://h.example/a/`"),
    ("https://h.example/a/../b", "`https://h.example/b`"),
    ("https://h.example/a;b/c", "`https://h.example/a`"),
    ("https://h.example/a//b/", "`https://h.example/a/b/`"),
];

#[test]
fn what_is_no_pattern_is_an_error_that_says_what_to_write() {
    for (text, suggestion) in ERRORS {
        let error = Pattern::parse(text).expect_err(text);
        assert!(error.help.contains(suggestion), "{text:?}: {error}; {}", error.help);
        assert!(error.message.starts_with("expected "), "{text:?}: {error}");
        assert!(error.message.contains("found"), "{text:?}: {error}");
    }
}

#[test]
fn escapes_that_servers_read_differently_are_errors() {
    for path in [
        "/a/%252e",
        "/a/..%2fb",
        "/a%3bb",
        "/a%2f/b",
        "/%2e%2e%2f",
        "/a%3fb",
        "/a%23",
        "/a%00",
        "/a%5cb",
        "/a%c0%afb",
        "/%e3%80%82%ef%bc%8f",
    ] {
        let error = Pattern::parse(&format!("https://h.example{path}")).expect_err(path);
        assert!(error.help.contains("`https://h.example/"), "{path}: {}", error.help);
    }
}

#[test]
fn suggestions_are_patterns_themselves() {
    let mut suggested = 0;
    for (text, _) in ERRORS {
        let error = Pattern::parse(text).expect_err(text);
        for (index, quoted) in error.help.split('`').enumerate() {
            if index % 2 == 1 && !matches!(quoted, "*." | "[guard] allow") {
                assert!(Pattern::parse(quoted).is_ok(), "{text:?} suggests {quoted:?}");
                suggested += 1;
            }
        }
    }
    assert!(suggested > 60, "{suggested}");
}

#[test]
fn wildcards_over_public_suffixes_are_told() {
    for (text, broad) in [
        ("*.com", true),
        ("*.co.uk", true),
        ("*.com.au", true),
        ("*.localhost", false),
        ("*.example.com", false),
        ("*.co.example", false),
        ("com", false),
        ("https://com/", false),
    ] {
        assert_eq!(Pattern::parse(text).unwrap().covers_public_suffix(), broad, "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_canonical_spelling_is_a_fixed_point(text in "(\\*\\.|https?://)?[a-z0-9.:\\[\\]ü-]{1,10}(/[a-z%2fF.;*-]{0,8}){0,3}") {
        if let Ok(pattern) = Pattern::parse(&text) {
            prop_assert_eq!(Pattern::parse(&pattern.to_string()).unwrap(), pattern);
        }
    }

    #[test]
    fn any_text_is_a_pattern_or_an_error_with_help(text in ".{0,30}") {
        if let Err(error) = Pattern::parse(&text) {
            prop_assert!(!error.message.is_empty() && !error.help.is_empty());
            prop_assert!(!error.message.chars().any(char::is_control) && !error.help.chars().any(char::is_control));
        }
    }
}
