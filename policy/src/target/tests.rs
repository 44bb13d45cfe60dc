use proptest::prelude::*;

use super::*;
use crate::host::HostError;
use crate::pattern::Pattern;
use crate::reason::Reason;

type Reader = fn(&str) -> Result<Target, TargetError>;

const READERS: [Reader; 2] = [Target::parse, Target::parse_wire];

#[test]
fn both_readers_read_the_usual_forms() {
    for (url, display, path, query) in [
        ("https://example.com", "https://example.com/", "/", None),
        ("HTTPS://EXAMPLE.com:443/a?b=c", "https://example.com/a?b=c", "/a", Some("b=c")),
        ("https://example.com:8443/", "https://example.com:8443/", "/", None),
        ("http://example.com:080/", "http://example.com/", "/", None),
        ("http://example.com:/", "http://example.com/", "/", None),
        ("https://example.com?q", "https://example.com/?q", "/", Some("q")),
        ("https://example.com/?", "https://example.com/?", "/", Some("")),
        ("https://example.com./x", "https://example.com/x", "/x", None),
        ("https://ex%61mple.com/x", "https://example.com/x", "/x", None),
        ("https://example.com/a/../b/%2e%2e/c", "https://example.com/c", "/c", None),
        ("https://example.com/a\\b", "https://example.com/a/b", "/a/b", None),
        ("https://example.com/a?x=/../y", "https://example.com/a?x=/../y", "/a", Some("x=/../y")),
        ("http://[::1]:3000/x", "http://[::1]:3000/x", "/x", None),
        ("http://0x7f.1/", "http://127.0.0.1/", "/", None),
        ("wss://example.com/live", "https://example.com/live", "/live", None),
        ("ws://example.com/live", "http://example.com/live", "/live", None),
        ("https://example.com/a%2fb%zz|^", "https://example.com/a%2fb%zz|^", "/a%2fb%zz|^", None),
    ] {
        for read in READERS {
            let target = read(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(target.to_string(), display, "{url}");
            assert_eq!((target.path(), target.query()), (path, query), "{url}");
            assert_eq!(target.is_websocket(), url.starts_with("ws"), "{url}");
            assert!(!target.had_userinfo() && !target.had_fragment());
        }
    }
}

#[test]
fn both_readers_refuse_what_has_no_meaning() {
    let malformed = [
        "",
        "not-a-url",
        "/path",
        "//example.com/",
        "https://",
        "https:///",
        "https://:443/",
        "https://?x",
        "https://example.com:0/",
        "https://example.com:65536/",
        "https://example.com:+443/",
        "https://example.com:4 43/",
        "https://example.com:443x/",
        "https://a..example.com/",
        "https://.example.com/",
        "https://example.com../",
        "https://[example.com]/",
        "https://[[example.com]]/",
        "https://[fe80::1%25eth0]/",
        "https://[::1%25.example.com]/",
        "https://[::1/",
        "https://[::1]x/",
        "https://1.2.3.4.5/",
        "https://exa mple.com/",
        "https://example.com/a\nb",
        "https://example.com/a\0b",
        "https://example.com\r\n/",
        "https://attacker.test\0.example.com/",
        "https://attacker.test%00.example.com/",
        "https://xn--example-.org/",
    ];
    for url in malformed {
        for read in READERS {
            let error = read(url).unwrap_err();
            assert_eq!(error.reason(), Reason::Malformed, "{url:?}: {error}");
        }
    }
    for url in [
        "ftp://example.com/x",
        "data:text/plain,evil.com",
        "urn:x:y",
        "gopher://h/",
        "file:///etc/passwd",
        "blob:https://h/",
    ] {
        for read in READERS {
            assert_eq!(read(url).unwrap_err().reason(), Reason::UnsupportedScheme, "{url}");
        }
    }
    let escaped_over_and_over = format!("https://h.example/%{}2e", "25".repeat(100));
    for read in READERS {
        assert_eq!(read(&escaped_over_and_over), Err(TargetError::TooManyReadings));
    }
}

#[test]
fn people_are_read_leniently_and_the_wire_is_not() {
    for (url, display, wire) in [
        ("https://user:pw@example.com/x", "https://example.com/x", TargetError::Userinfo),
        ("https://api.example.com@evil.test/", "https://evil.test/", TargetError::Userinfo),
        ("https://api.example.com:443@evil.test", "https://evil.test/", TargetError::Userinfo),
        ("https://@example.com/", "https://example.com/", TargetError::Userinfo),
        ("https://example.com/x#y", "https://example.com/x", TargetError::Fragment),
        ("https://example.com#@evil.test/", "https://example.com/", TargetError::Fragment),
        ("https://example.com/a b", "https://example.com/a%20b", TargetError::Character(' ')),
        ("https://bücher.example/ü?ü", "https://xn--bcher-kva.example/%C3%BC?%C3%BC", TargetError::Character('ü')),
        (" https://example.com/ ", "https://example.com/", TargetError::Character(' ')),
        ("https:example.com/x", "https://example.com/x", TargetError::NotAbsolute("\"https:example.com/x\"".into())),
        (
            "https:\\\\example.com\\x",
            "https://example.com/x",
            TargetError::NotAbsolute("\"https:\\\\\\\\example.com\\\\x\"".into()),
        ),
        ("https:///example.com/x", "https://example.com/x", TargetError::Host(HostError::Empty)),
    ] {
        let target = Target::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(target.to_string(), display, "{url}");
        assert_eq!(target.had_userinfo(), wire == TargetError::Userinfo, "{url}");
        assert_eq!(target.had_fragment(), wire == TargetError::Fragment, "{url}");
        assert_eq!(Target::parse_wire(url), Err(wire), "{url}");
    }
}

#[test]
fn a_backslash_ends_the_authority() {
    for read in READERS {
        let target = read("https://example.com\\@evil.test/").unwrap();
        assert_eq!(target.to_string(), "https://example.com/@evil.test/");
        assert!(!target.had_userinfo());
    }
}

#[test]
fn errors_say_what_was_found_and_are_short_and_escaped() {
    let long = format!("\u{1b}[31m{}", "x".repeat(500));
    let error = Target::parse_wire(&long.replace('\u{1b}', "")).unwrap_err().to_string();
    assert!(error.len() < 200 && error.ends_with('…'), "{error}");
    let error = Target::parse(&long).unwrap_err().to_string();
    assert!(!error.contains('\u{1b}'), "{error}");
    let error = Target::parse("https://h.example:99999/").unwrap_err().to_string();
    assert!(error.contains("\"99999\""), "{error}");
    let error = Authority::parse("h.example").unwrap_err().to_string();
    assert!(error.contains("\"h.example\""), "{error}");
}

#[test]
fn authorities_are_strict() {
    for (text, display) in [
        ("example.com:443", "example.com:443"),
        ("EXAMPLE.com.:1", "example.com:1"),
        ("[::1]:65535", "[::1]:65535"),
        ("0x7f.1:80", "127.0.0.1:80"),
        ("bücher.example:443", "xn--bcher-kva.example:443"),
    ] {
        let authority: Authority = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(authority.to_string(), display, "{text}");
    }
    for text in [
        "",
        ":443",
        "example.com",
        "example.com:",
        "example.com:0",
        "example.com:0443",
        "example.com:+443",
        "example.com:-1",
        "example.com:65536",
        "example.com:443:443",
        "example.com: 443",
        "example.com:443/",
        "example.com/:443",
        "user@example.com:443",
        "[example.com]:443",
        "[[example.com]]:443",
        "[::1]",
        "[::1:443",
        "::1:443",
        "[fe80::1%25eth0]:443",
        "a..b:443",
        "a\0b:443",
        "a b:443",
        "https://example.com:443",
    ] {
        assert_eq!(Authority::parse(text).unwrap_err().reason(), Reason::Malformed, "{text:?}");
    }
}

#[test]
fn a_tunnels_requests_take_their_origin_from_it() {
    let authority = Authority::parse("example.com:8443").unwrap();
    let target = Target::from_parts(Scheme::Https, &authority, "/a/../b?c").unwrap();
    assert_eq!(target.to_string(), "https://example.com:8443/b?c");
    assert_eq!(target.authority(), &authority);
    assert_eq!(target.path_and_query(), "/b?c");
    for text in ["", "*", "https://evil.test/", "a", "?x", "/a#b", "/a b", "/ü", "/a\r\nb"] {
        assert!(Target::from_parts(Scheme::Https, &authority, text).is_err(), "{text:?}");
    }
    let target = Target::from_parts(Scheme::Https, &authority, "//evil.test/x").unwrap();
    assert_eq!((target.host().as_str(), target.path()), ("example.com", "//evil.test/x"));
}

#[test]
fn a_target_is_within_a_prefix_if_every_reading_is() {
    let Ok(Pattern::Prefix(prefix)) = Pattern::parse("https://h.example/mcp") else { panic!("a prefix") };
    for (url, within) in [
        ("https://h.example/mcp", true),
        ("https://h.example/mcp/x?y", true),
        ("https://h.example/%6dcp", true),
        ("https://h.example/mcp2", false),
        ("https://h.example/mcp/..%2fadmin", false),
        ("https://h.example:8443/mcp", false),
        ("http://h.example/mcp", false),
        ("https://other.example/mcp", false),
    ] {
        assert_eq!(Target::parse(url).unwrap().is_within(&prefix), within, "{url}");
    }
    assert!(Target::parse("http://other.example/mcp").unwrap().has_path_within(&prefix));
    assert!(!Target::parse("http://other.example/").unwrap().has_path_within(&prefix));
}

#[test]
fn the_literal_path_is_one_spelling() {
    assert_eq!(Target::parse("https://h.example/%7eu/a%2fb").unwrap().literal_path(), "/~u/a%2Fb");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The two readers split URLs by themselves; the url crate is the measure for both.
    #[test]
    fn readers_agree_with_the_url_standard(
        scheme in "(https?|wss?)",
        authority in "[a-z.%0-9:@\\[\\]-]{1,12}",
        rest in "([/\\\\?][a-z./%;@~-]{0,8}){0,3}",
    ) {
        let text = format!("{scheme}://{authority}{rest}");
        let standard = url::Url::parse(&text).ok();
        if let Ok(target) = Target::parse(&text) {
            let url = standard.as_ref().unwrap();
            prop_assert_eq!(target.path(), url.path());
            prop_assert_eq!(target.query(), url.query());
            let host = url.host_str().unwrap();
            prop_assert_eq!(target.host().to_string(), host.strip_suffix('.').unwrap_or(host));
            prop_assert_eq!(target.port(), url.port_or_known_default().unwrap());
            prop_assert_eq!(target.had_userinfo(), authority.contains('@'));
        }
        match (Target::parse_wire(&text), Target::parse(&text)) {
            (Ok(wire), lenient) => prop_assert_eq!(Ok(wire), lenient),
            (Err(TargetError::Userinfo), Ok(lenient)) => prop_assert!(lenient.had_userinfo()),
            (Err(TargetError::Host(HostError::Empty) | TargetError::NotAbsolute(_)), _) => {}
            (Err(error), lenient) => prop_assert!(lenient.is_err(), "{:?}", error),
        }
    }

    #[test]
    fn what_is_sent_reads_back_as_the_same_request(path in "/([a-z%;./\\\\25eEfF-]{0,10}/?){0,3}", query in "(\\?[a-z&=/.%]{0,6})?") {
        let authority = Authority::parse("h.example:443").unwrap();
        if let Ok(target) = Target::from_parts(Scheme::Https, &authority, &format!("{path}{query}")) {
            let again = Target::from_parts(Scheme::Https, &authority, target.path_and_query()).unwrap();
            prop_assert_eq!(again.path_and_query(), target.path_and_query());
            prop_assert_eq!(again.literal_path(), target.literal_path());
            prop_assert_eq!(&Target::parse(&target.to_string()).unwrap(), &again);
        }
    }
}

#[test]
fn a_target_may_be_within_a_path_if_one_reading_is() {
    for (path, within, exact) in [
        ("/mcp", true, true),
        ("/mcp/", true, true),
        ("/MCP?x", true, true),
        ("/mcp/x", true, false),
        ("/x/..%2fmcp", true, true),
        ("/%256Dcp/x", true, false),
        ("//mcp", true, true),
        ("/mcp;v=1/x", true, false),
        ("/mcp%2Fx", true, false),
        ("/mcpx", false, false),
        ("/", false, false),
        ("/x/mcp", false, false),
    ] {
        let target = Target::parse(&format!("https://a.example{path}")).unwrap();
        for prefix in ["/mcp", "/mcp/"] {
            assert_eq!((target.may_be_within(prefix), target.may_be(prefix)), (within, exact), "{path} {prefix}");
        }
        assert!(target.may_be_within("/"));
    }
}
