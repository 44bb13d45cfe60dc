use proptest::prelude::*;
use url::Url;

use super::*;

fn readings(raw: &str) -> Vec<String> {
    match of(raw).unwrap() {
        Readings::Plain => vec![raw.to_owned()],
        Readings::Several(all) => all.iter().map(|reading| String::from_utf8_lossy(reading).into_owned()).collect(),
    }
}

fn of(raw: &str) -> Result<Readings, TooManyReadings> {
    Readings::of(raw, &normalise(raw))
}

#[test]
fn the_path_sent_is_that_of_the_url_standard() {
    let cases = [
        ("", "/"),
        ("/", "/"),
        ("/a/b", "/a/b"),
        ("/a/../b", "/b"),
        ("/a/%2E%2e/b", "/b"),
        ("/a/.%2e/b", "/b"),
        ("/a/./b/.", "/a/b/"),
        ("/a/..", "/"),
        ("/a/b/..", "/a/"),
        ("/../..", "/"),
        ("/a//b", "/a//b"),
        ("/a//../b", "/a/b"),
        ("\\a\\..\\b", "/b"),
        ("/a b\"<>`{}", "/a%20b%22%3C%3E%60%7B%7D"),
        ("/ü", "/%C3%BC"),
        ("/%zz%", "/%zz%"),
        ("/a;b", "/a;b"),
        ("/...", "/..."),
        ("/c:/../x", "/x"),
        ("/.well-known/x", "/.well-known/x"),
    ];
    for (raw, sent) in cases {
        assert_eq!(normalise(raw), sent, "{raw}");
    }
}

#[test]
fn the_literal_reading_has_one_spelling() {
    for (sent, reading) in [
        ("/%7euser/%2d", "/~user/-"),
        ("/a%2fb%C3%bc", "/a%2Fb%C3%BC"),
        ("/100%", "/100%25"),
        ("/%zz", "/%25zz"),
        ("/%%32%65", "/%252e"),
        ("/%2", "/%252"),
        ("/%252e", "/%252e"),
    ] {
        assert_eq!(literal(sent), reading, "{sent}");
    }
}

#[test]
fn readings_are_all_that_servers_could_make_of_a_path() {
    assert_eq!(readings("/v1/users"), ["/v1/users"]);
    assert_eq!(readings("/a%20b"), ["/a%20b", "/a b"]);
    assert_eq!(readings("/v1/..%2fadmin"), ["/v1/..%2Fadmin", "/admin", "/v1/../admin"]);
    assert_eq!(readings("/v1//../x"), ["/v1/x", "/x"]);
    assert_eq!(readings("/x/../v1"), ["/v1"]);
    assert_eq!(readings("/v1/..;/admin"), ["/v1/..;/admin", "/admin", "/v1/../admin"]);
    for raw in [
        "/v1/%252e%252e/admin",
        "/v1/%25252e%25252e/admin",
        "/v1/%5c..%5cadmin",
        "/v1/..%5cadmin",
        "/v1//..//admin",
        "/v1/%2f../../admin",
        "/v1/;/../admin",
        "/v1/a/..;x/..;y/admin",
        "/v1/..%3b/admin",
        "/v1/..%253bx/admin",
        "/v1/%c0%ae%c0%ae/admin",
        "/v1/%e0%80%ae./admin",
        "/v1/..%c0%afadmin",
        "/v1/%ef%bc%8e%ef%bc%8e/admin",
        "/v1/..%ef%bc%8fadmin",
        "/v1/%u002e%u002e/admin",
        "/v1/%%32%65%%32%65/admin",
        "/%61dmin",
        "//admin",
        "/;x/admin",
        "/.;/admin",
        "/%2e%2fadmin",
        "\\admin",
    ] {
        assert!(readings(raw).iter().any(|reading| reading == "/admin"), "{raw}: {:?}", readings(raw));
    }
    // Parameters dropped before the decoding makes new ones: only then are the later `..;` names and no dots.
    let mixed = readings("/v1/..;/admin/..%3b/..%3b/v1/x");
    assert!(mixed.contains(&"/admin/..;/..;/v1/x".to_owned()), "{mixed:?}");
    // Dots that only the end of a C string, or the query of the next hop, uncovers.
    for raw in ["/v1/..%00x", "/v1/..%3fx", "/v1/..%23"] {
        assert!(readings(raw).contains(&"/".to_owned()), "{raw}");
    }
}

#[test]
fn a_path_with_too_many_readings_cannot_be_read() {
    let escaped_over_and_over = format!("/%{}2e", "25".repeat(MAX_READINGS));
    assert_eq!(of(&escaped_over_and_over), Err(TooManyReadings));
    let long = format!("/a;b%2f{}", "x".repeat(MAX_READING_BYTES));
    assert_eq!(of(&long), Err(TooManyReadings));
    let long_with_two = format!("/a%2f{}", "x".repeat(MAX_READING_BYTES));
    assert!(of(&long_with_two).is_ok());
}

#[test]
fn borders_are_slashes_and_ends() {
    for (path, prefix, holds) in [
        ("/v1", "/v1", true),
        ("/v1/x", "/v1", true),
        ("/v10", "/v1", false),
        ("/v1;x", "/v1", false),
        ("/v1/x", "/v1/", true),
        ("/v1", "/v1/", false),
        ("/x", "/", true),
        ("/a/b", "/a%2Fb", false),
    ] {
        assert_eq!(is_within(path.as_bytes(), &[], prefix.as_bytes()), holds, "{path} {prefix}");
        let expected = holds || prefix.contains('%');
        assert_eq!(has_decoded_prefix_on_border(path.as_bytes(), prefix.as_bytes()), expected, "{path} {prefix}");
    }
    assert!(!has_decoded_prefix_on_border(b"/a/bc", b"/a%2Fb"));
    assert!(!has_decoded_prefix_on_border(b"/a/", b"/a%2Fb"));
}

/// Paths made of the pieces that readings are about.
fn tricky() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a", "v1", "/", "/", "\\", ".", "..", "%2e", "%2E.", "%2f", "%5c", ";", ";x=1", "%3b", "%25", "%", "%zz", "32",
        "65", "%c0%ae", "%00", "%20", " ", "ü", "\"", "//", "/./", "/../", "%252e", "%252f", "%u002e", "||", "^", "~",
        "%7e", "@", "::", "*", "+", "．",
    ]);
    prop::collection::vec(piece, 0..10).prop_map(|pieces| format!("/{}", pieces.concat()))
}

/// The servers' reading as the contract words it: decoded to the fixed point, `\` turned, parameters dropped, slashes
/// merged, dots resolved; written apart from the product's code.
fn servers_reading(sent: &str) -> Vec<u8> {
    let mut bytes = sent.as_bytes().to_vec();
    while let Some(at) =
        bytes.windows(3).position(|w| w[0] == b'%' && w[1].is_ascii_hexdigit() && w[2].is_ascii_hexdigit())
    {
        let digits = std::str::from_utf8(&bytes[at + 1..at + 3]).unwrap();
        let byte = u8::from_str_radix(digits, 16).unwrap();
        bytes.splice(at..at + 3, [byte]);
    }
    let mut segments: Vec<&[u8]> = Vec::new();
    let mut open = true;
    for segment in bytes.split(|byte| matches!(byte, b'/' | b'\\')) {
        let name = segment.split(|byte| *byte == b';').next().unwrap();
        open = matches!(name, b"" | b"." | b"..");
        match name {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            _ => segments.push(name),
        }
    }
    let mut reading: Vec<u8> = segments.iter().flat_map(|segment| [b"/", *segment].concat()).collect();
    if open {
        reading.push(b'/');
    }
    reading
}

// No segment looks like a drive letter: the url crate keeps one in front of `..`, as the standard does for files only.
proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn paths_agree_with_the_url_crate(raw in tricky()) {
        prop_assume!(!raw.contains('?') && !raw.contains('#'));
        let url = Url::parse(&format!("https://h.example{raw}?")).unwrap();
        let sent = normalise(&raw);
        prop_assert_eq!(&*sent, url.path());
    }

    #[test]
    fn canonical_paths_are_fixed_points(raw in tricky()) {
        let sent = normalise(&raw);
        prop_assert_eq!(&normalise(&sent), &sent);
        let reading = literal(&sent);
        prop_assert_eq!(&literal(&reading), &reading);
        prop_assert_eq!(&normalise(&reading), &reading, "the literal reading holds no dot segments");
    }

    #[test]
    fn plain_paths_have_one_reading(raw in "/[a-z./%;_~@-]{0,12}") {
        if is_plain(&raw) {
            prop_assert_eq!(&*normalise(&raw), raw.as_str());
            prop_assert_eq!(&*literal(&raw), raw.as_str());
            prop_assert!(STEPS.iter().all(|step| step(raw.as_bytes()).is_none()));
        }
    }

    #[test]
    fn the_servers_reading_of_the_contract_is_among_the_readings(raw in tricky()) {
        for wanted in [servers_reading(&normalise(&raw)), servers_reading(&raw)] {
            match of(&raw) {
                Ok(Readings::Plain) => prop_assert_eq!(wanted, raw.as_bytes()),
                Ok(Readings::Several(all)) => prop_assert!(all.iter().any(|reading| **reading == *wanted), "{:?}", wanted),
                Err(TooManyReadings) => {}
            }
        }
    }

    #[test]
    fn readings_are_closed(raw in tricky()) {
        if let Ok(Readings::Several(all)) = of(&raw) {
            for made in all.iter().flat_map(|reading| STEPS.iter().filter_map(|step| step(reading))) {
                prop_assert!(all.iter().any(|known| **known == *made));
            }
        }
    }
}
