use std::net::{IpAddr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn parsed(text: &str) -> String {
    Host::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}")).as_str().to_owned()
}

#[test]
fn every_spelling_of_a_name_is_one_host() {
    let spellings = [
        "example.com",
        "EXAMPLE.com",
        "example.com.",
        "ex%61mple.com",
        "%45xample.com",
        "example。com",
        "ｅxample.com",
    ];
    for text in spellings {
        assert_eq!(parsed(text), "example.com", "{text}");
    }
    assert_eq!(parsed("exa\u{ad}mple.com"), "example.com");
    for text in
        ["bücher.example", "BÜCHER.example", "xn--bcher-kva.example", "b%C3%BCcher.example", "XN--BCHER-KVA.example."]
    {
        assert_eq!(parsed(text), "xn--bcher-kva.example", "{text}");
    }
    assert_eq!(parsed("a_b.example"), "a_b.example");
    assert_eq!(parsed("localhost"), "localhost");
}

#[test]
fn every_spelling_of_an_address_is_one_host() {
    let spellings = [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "0177.0.0.1",
        "0x7f000001",
        "0X7F.1",
        "2130706433",
        "127.0.0.1.",
        "１２７.1",
        "%31%32%37.1",
    ];
    for text in spellings {
        assert_eq!(parsed(text), "127.0.0.1", "{text}");
    }
    assert_eq!(parsed("0"), "0.0.0.0");
    for text in ["[::1]", "[0:0:0:0:0:0:0:1]", "[::0001]", "[::0.0.0.1]"] {
        let host = Host::parse(text).unwrap();
        assert_eq!((host.as_str(), host.to_string().as_str()), ("::1", "[::1]"), "{text}");
        assert_eq!(host.ip(), Some(IpAddr::V6(Ipv6Addr::LOCALHOST)));
    }
    assert_eq!(parsed("[::FFFF:1.2.3.4]"), "::ffff:102:304");
}

#[test]
fn what_no_resolver_serves_is_refused() {
    let long_label = format!("{}.example", "a".repeat(64));
    let long_name = vec!["a".repeat(49); 6].join(".");
    let cases = [
        ("", HostError::Empty),
        (".", HostError::Empty),
        ("\u{ad}", HostError::Empty),
        ("..", HostError::EmptyLabel),
        (".example.com", HostError::EmptyLabel),
        ("a..example.com", HostError::EmptyLabel),
        ("example.com..", HostError::EmptyLabel),
        ("127.0.0.1..", HostError::EmptyLabel),
        (&long_label, HostError::LabelTooLong),
        (&long_name, HostError::NameTooLong),
        ("a\0.example.com", HostError::Character('\0')),
        ("a\t.example.com", HostError::Character('\t')),
        ("a b.example.com", HostError::Character(' ')),
        ("a%00.example.com", HostError::Idna),
        ("a%0d%0a.example.com", HostError::Idna),
        ("a%2f.example.com", HostError::Idna),
        ("a%2561.example.com", HostError::Idna),
        ("a%ff.example.com", HostError::Idna),
        ("a/b", HostError::Character('/')),
        ("a@b", HostError::Character('@')),
        ("a:1", HostError::Character(':')),
        ("a*b.example", HostError::Character('*')),
        ("a,b.example", HostError::Character(',')),
        ("a;b.example", HostError::Character(';')),
        ("[evil.com]", HostError::Ipv6),
        ("[[evil.com]]", HostError::Ipv6),
        ("[::1", HostError::Ipv6),
        ("[::1]x", HostError::Ipv6),
        ("[fe80::1%25eth0]", HostError::Ipv6),
        ("[::1%25.example.com]", HostError::Ipv6),
        ("[127.0.0.1]", HostError::Ipv6),
        ("256.0.0.1", HostError::Ipv4),
        ("1.2.3.4.5", HostError::Ipv4),
        ("foo.0x1", HostError::Ipv4),
        ("foo.123", HostError::Ipv4),
        ("08.1.1.1", HostError::Ipv4),
        ("xn--example-.org", HostError::Idna),
        ("xn--a", HostError::Idna),
    ];
    for (text, error) in cases {
        assert_eq!(Host::parse(text), Err(error), "{text:?}");
    }
    assert!(Host::parse(&"a".repeat(63)).is_ok());
    let longest = [&"a".repeat(63), &"b".repeat(63), &"c".repeat(63), &"d".repeat(61)].map(String::as_str).join(".");
    assert_eq!(longest.len(), MAX_NAME);
    assert!(Host::parse(&format!("{longest}.")).is_ok());
}

#[test]
fn embedded_addresses_are_found_in_every_form() {
    let cases: [(&str, &[&str]); 18] = [
        ("::ffff:169.254.169.254", &["169.254.169.254"]),
        ("::127.0.0.1", &["127.0.0.1"]),
        ("::ffff:0:10.0.0.1", &["10.0.0.1"]),
        ("64:ff9b::10.0.0.1", &["10.0.0.1"]),
        ("64:ff9b:1::10.0.0.1", &["10.0.0.1"]),
        ("64:ff9b:1:a00:0:100::", &["10.0.0.1"]),
        ("64:ff9b:1:a:0:1::", &["10.0.0.1"]),
        ("64:ff9b:1:0:a:0:100:0", &["10.0.0.1", "1.0.0.0"]),
        ("64:ff9b:2::10.0.0.1", &[]),
        ("2002:7f00:1::", &["127.0.0.1"]),
        ("2001:0:7f00:1::", &["255.255.255.255", "127.0.0.1"]),
        ("2001:0:102:304:0:0:80ff:fffe", &["127.0.0.1", "1.2.3.4"]),
        ("2001:db8::5efe:10.0.0.1", &["10.0.0.1"]),
        ("fe80::200:5efe:10.0.0.1", &["10.0.0.1"]),
        ("2002:102:304::5efe:10.0.0.1", &["1.2.3.4", "10.0.0.1"]),
        ("::", &[]),
        ("::1", &[]),
        ("2001:db8::1", &[]),
    ];
    for (ip, expected) in cases {
        let host = Host::from_ip(IpAddr::V6(ip.parse().unwrap()));
        let found: Vec<String> = host.embedded_ipv4().map(|found| found.to_string()).collect();
        assert_eq!(found, expected, "{ip}");
    }
    assert_eq!(Host::parse("127.0.0.1").unwrap().embedded_ipv4().count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_canonical_form_is_a_fixed_point(text in "[a-zA-Z0-9._%ü。\u{ad}\\[\\]:*-]{0,24}") {
        if let Ok(host) = Host::parse(&text) {
            prop_assert_eq!(&Host::parse(&host.to_string()).unwrap(), &host);
            prop_assert_eq!(&Host::parse(&format!("{host}.").replace("].", "]")).unwrap(), &host);
        }
    }

    #[test]
    fn the_short_cut_agrees_with_the_standard(text in "([a-z0-9_-]{0,6}\\.){0,3}(xn--)?[a-z0-9_-]{0,6}\\.?") {
        let standard = url::Host::parse(&text).map_err(|_| ()).and_then(|host| Host::from_url(&host).map_err(|_| ()));
        prop_assert_eq!(Host::parse(&text).map_err(|_| ()), standard);
    }

    #[test]
    fn an_address_reads_back(bytes in any::<[u8; 16]>(), v4 in any::<[u8; 4]>()) {
        for ip in [IpAddr::from(bytes), IpAddr::from(v4)] {
            let host = Host::from_ip(ip);
            prop_assert_eq!(Host::parse(&host.to_string()).unwrap(), host);
        }
    }
}

#[test]
fn a_host_is_no_larger_than_a_reference_to_its_text() {
    assert_eq!(size_of::<Host>(), size_of::<&str>());
}
