use proptest::prelude::*;

use super::AddressClass::*;
use super::*;

/// First and last address of every range, and the class around it, embeddings apart: before, inside, after.
const BORDERS: [(&str, &str, [AddressClass; 3]); 53] = [
    ("0.0.0.0", "0.255.255.255", [Unspecified, Unspecified, Global]),
    ("10.0.0.0", "10.255.255.255", [Global, Private, Global]),
    ("100.64.0.0", "100.127.255.255", [Global, Cgnat, Global]),
    ("100.100.100.200", "100.100.100.200", [Cgnat, Metadata, Cgnat]),
    ("127.0.0.0", "127.255.255.255", [Global, Loopback, Global]),
    ("168.63.129.16", "168.63.129.16", [Global, Metadata, Global]),
    ("169.254.0.0", "169.254.0.22", [Global, LinkLocal, Metadata]),
    ("169.254.0.24", "169.254.42.41", [Metadata, LinkLocal, Metadata]),
    ("169.254.42.43", "169.254.169.253", [Metadata, LinkLocal, Metadata]),
    ("169.254.169.255", "169.254.170.1", [Metadata, LinkLocal, Metadata]),
    ("169.254.170.3", "169.254.170.22", [Metadata, LinkLocal, Metadata]),
    ("169.254.170.24", "169.254.255.255", [Metadata, LinkLocal, Global]),
    ("172.16.0.0", "172.31.255.255", [Global, Private, Global]),
    ("192.0.0.0", "192.0.0.191", [Global, Reserved, Metadata]),
    ("192.0.0.193", "192.0.0.255", [Metadata, Reserved, Global]),
    ("192.0.2.0", "192.0.2.255", [Global, Documentation, Global]),
    ("192.31.196.0", "192.31.196.255", [Global, Global, Global]),
    ("192.52.193.0", "192.52.193.255", [Global, Global, Global]),
    ("192.88.99.0", "192.88.99.255", [Global, Reserved, Global]),
    ("192.168.0.0", "192.168.255.255", [Global, Private, Global]),
    ("192.175.48.0", "192.175.48.255", [Global, Global, Global]),
    ("198.18.0.0", "198.19.255.255", [Global, Benchmarking, Global]),
    ("198.51.100.0", "198.51.100.255", [Global, Documentation, Global]),
    ("203.0.113.0", "203.0.113.255", [Global, Documentation, Global]),
    ("224.0.0.0", "239.255.255.255", [Global, Multicast, Reserved]),
    ("240.0.0.0", "255.255.255.254", [Multicast, Reserved, Broadcast]),
    ("::", "::", [Unspecified, Unspecified, Loopback]),
    ("::1", "::1", [Unspecified, Loopback, Reserved]),
    ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", [Reserved, Reserved, Reserved]),
    ("100::", "100::ffff:ffff:ffff:ffff", [Reserved, Reserved, Reserved]),
    ("100:0:0:1::", "100::1:ffff:ffff:ffff:ffff", [Reserved, Reserved, Reserved]),
    ("2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", [Global, Global, Reserved]),
    ("2001:1::1", "2001:1::1", [Reserved, Reserved, Reserved]),
    ("2001:1::2", "2001:1::3", [Reserved, Reserved, Reserved]),
    ("2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff", [Reserved, Benchmarking, Reserved]),
    ("2001:3::", "2001:3:ffff:ffff:ffff:ffff:ffff:ffff", [Reserved, Global, Reserved]),
    ("2001:4:112::", "2001:4:112:ffff:ffff:ffff:ffff:ffff", [Reserved, Global, Reserved]),
    ("2001:10::", "2001:1f:ffff:ffff:ffff:ffff:ffff:ffff", [Reserved, Reserved, Reserved]),
    ("2001:20::", "2001:2f:ffff:ffff:ffff:ffff:ffff:ffff", [Reserved, Reserved, Reserved]),
    ("2001:30::", "2001:3f:ffff:ffff:ffff:ffff:ffff:ffff", [Reserved, Reserved, Reserved]),
    ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", [Global, Global, Global]),
    ("2001:40::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", [Reserved, Reserved, Global]),
    ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", [Global, Documentation, Global]),
    ("2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff", [Global, Global, Global]),
    ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", [Global, Documentation, Global]),
    ("2003::", "2003:ffff:ffff:ffff:ffff:ffff:ffff:ffff", [Global, Global, Global]),
    ("3fff:1000::", "3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", [Documentation, Global, Reserved]),
    ("5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", [Reserved, Reserved, Reserved]),
    ("fc00::", "fcff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", [Reserved, UniqueLocal, UniqueLocal]),
    ("fd00:ec2::255", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", [Metadata, UniqueLocal, Reserved]),
    ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", [Reserved, LinkLocal, SiteLocal]),
    ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", [LinkLocal, SiteLocal, Multicast]),
    ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", [SiteLocal, Multicast, Multicast]),
];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The neighbour of an address, or itself at the end of the family.
fn neighbour(ip: IpAddr, by: i8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits().saturating_add_signed(by.into())).into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits().saturating_add_signed(by.into())).into(),
    }
}

fn own_class(ip: IpAddr) -> AddressClass {
    match ip {
        IpAddr::V4(ip) => classify_v4(ip),
        IpAddr::V6(ip) => classify_v6(ip),
    }
}

#[test]
fn every_range_has_its_class_up_to_its_borders() {
    for (first, last, [before, inside, after]) in BORDERS {
        let (first, last) = (ip(first), ip(last));
        assert_eq!(own_class(neighbour(first, -1)), before, "before {first}");
        assert_eq!(own_class(first), inside, "{first}");
        assert_eq!(own_class(last), inside, "{last}");
        assert_eq!(own_class(neighbour(last, 1)), after, "behind {last}");
    }
    for (text, class) in [
        ("255.255.255.255", Broadcast),
        ("1.0.0.0", Global),
        ("93.184.216.34", Global),
        ("2606:4700::1111", Global),
        ("4000::1", Reserved),
    ] {
        assert_eq!(classify(ip(text)), class, "{text}");
    }
}

#[test]
fn every_row_of_the_table_is_tested_at_its_borders() {
    let tested: Vec<IpAddr> = BORDERS
        .iter()
        .flat_map(|(first, last, _)| [ip(first), ip(last), neighbour(ip(first), -1), neighbour(ip(last), 1)])
        .collect();
    for row in &table::V4 {
        for bits in [row.first, row.last] {
            let border = IpAddr::from(Ipv4Addr::from_bits(u32::try_from(bits).unwrap()));
            assert!(tested.contains(&border), "{border}");
        }
    }
    for row in table::V6.iter().filter(|row| row.class != Global) {
        for border in [row.first, row.last].map(|bits| IpAddr::from(Ipv6Addr::from_bits(bits))) {
            assert!(tested.contains(&border), "{border}");
        }
    }
}

#[test]
fn an_embedding_is_the_worst_of_what_it_is() {
    for (text, class) in [
        ("::ffff:127.0.0.1", Loopback),
        ("::ffff:169.254.169.254", Metadata),
        ("::ffff:93.184.216.34", Global),
        ("::ffff:10.0.0.1", Private),
        ("::127.0.0.1", Loopback),
        ("::93.184.216.34", Reserved),
        ("::ffff:0:127.0.0.1", Loopback),
        ("::ffff:0:93.184.216.34", Reserved),
        ("64:ff9b::7f00:1", Loopback),
        ("64:ff9b::169.254.169.254", Metadata),
        ("64:ff9b::93.184.216.34", Global),
        ("64:ff9b:1::a9fe:a9fe", Metadata),
        ("64:ff9b:1:a9fe:a9:fe00::", Metadata),
        ("64:ff9b:1::10.0.0.1", Private),
        ("64:ff9b:1::93.184.216.34", Reserved),
        ("2002:7f00:1::1", Loopback),
        ("2002:a9fe:a9fe::", Metadata),
        ("2002:5db8:d822::1", Global),
        ("2001:0:5db8:d822::f5ff:fffe", Private),
        ("2001:0:7f00:1::a247:27dd", Loopback),
        ("2001:0:5db8:d822::a247:27dd", Global),
        ("2606:4700::5efe:10.0.0.1", Private),
        ("2606:4700::200:5efe:127.0.0.1", Loopback),
        ("2606:4700::5efe:93.184.216.34", Global),
        ("fe80::5efe:93.184.216.34", LinkLocal),
    ] {
        assert_eq!(classify(ip(text)), class, "{text}");
    }
}

#[test]
fn invalid_and_all_below_it_are_no_names() {
    for (name, expected) in [
        ("invalid", true),
        ("a.b.invalid", true),
        ("A.Invalid.", true),
        ("invalid.example", false),
        ("xinvalid", false),
    ] {
        assert_eq!(is_invalid_name(&Host::parse(name).unwrap()), expected, "{name}");
    }
    assert!(!is_invalid_name(&Host::parse("192.0.2.1").unwrap()));
}

#[test]
fn metadata_services_are_known_by_address_and_name() {
    for text in [
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "100.100.100.200",
        "168.63.129.16",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fe80::a9fe:a9fe",
    ] {
        assert_eq!(classify(ip(text)), Metadata, "{text}");
    }
    for (name, known) in [
        ("metadata.google.internal", true),
        ("METADATA.google.internal.", true),
        ("metadata", true),
        ("metadata.goog", true),
        ("metadata.example.com", false),
        ("google.internal", false),
        ("169.254.169.254", false),
    ] {
        assert_eq!(is_metadata_name(&Host::parse(name).unwrap()), known, "{name}");
    }
}

#[test]
fn a_grant_opens_what_it_names_and_nothing_beside_it() {
    let cases: [(&[&str], &[&str], &[&str]); 12] = [
        (&[], &["93.184.216.34", "64:ff9b::93.184.216.34"], &["127.0.0.1", "10.0.0.1", "::1", "fd00::1"]),
        (
            &["private"],
            &["10.0.0.1", "172.16.0.1", "192.168.1.1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1"],
            &["127.0.0.1", "169.254.0.1", "100.64.0.1", "fd00::1", "::1", "64:ff9b:1::10.0.0.1", "::10.0.0.1"],
        ),
        (
            &["loopback"],
            &["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"],
            &["0.0.0.0", "10.0.0.1", "::127.0.0.1"],
        ),
        (&["127.0.0.0/8"], &["127.0.0.1", "::ffff:127.0.0.1", "2002:7f00:1::"], &["::1", "0.0.0.0", "10.0.0.1"]),
        (&["127.0.0.1"], &["127.0.0.1"], &["127.0.0.2", "::1"]),
        (&["::1"], &["::1"], &["127.0.0.1", "::2"]),
        (&["link-local"], &["169.254.0.1", "fe80::1"], &["169.254.169.254", "169.254.170.2", "fe80::a9fe:a9fe"]),
        (&["169.254.0.0/16"], &["169.254.0.1"], &["169.254.169.254", "fe80::1"]),
        (&["100.64.0.0/10"], &["100.64.0.1", "100.127.255.255"], &["100.100.100.200"]),
        (&["fd00::/8"], &["fd00::1"], &["fc00::1", "fd00:ec2::254"]),
        (&["unique-local"], &["fd00::1", "fc00::1"], &["fd00:ec2::254", "fec0::1", "fd00::5efe:10.0.0.1"]),
        (&["64:ff9b:1::/48", "private"], &["64:ff9b:1::10.0.0.1"], &["64:ff9b:1::127.0.0.1", "64:ff9b:1::a9fe:a9fe"]),
    ];
    for (entries, open, closed) in cases {
        let grants = Grants::parse(entries).unwrap();
        assert_eq!(grants.is_empty(), entries.is_empty());
        for text in open {
            assert!(grants.permits(ip(text)), "{entries:?} should open {text}");
        }
        for text in closed {
            assert!(!grants.permits(ip(text)), "{entries:?} should not open {text}");
        }
    }
}

#[test]
fn ranges_end_at_their_borders() {
    let grants = Grants::parse(&["10.1.0.0/16", "192.168.7.128/25", "fd12::/16"]).unwrap();
    for (text, open) in [
        ("10.0.255.255", false),
        ("10.1.0.0", true),
        ("10.1.255.255", true),
        ("10.2.0.0", false),
        ("192.168.7.127", false),
        ("192.168.7.128", true),
        ("192.168.7.255", true),
        ("192.168.8.0", false),
        ("fd11:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false),
        ("fd12::", true),
        ("fd12:ffff:ffff:ffff:ffff:ffff:ffff:ffff", true),
        ("fd13::", false),
    ] {
        assert_eq!(grants.permits(ip(text)), open, "{text}");
    }
}

#[test]
fn an_entry_that_grants_nothing_is_an_error() {
    type Check = fn(&GrantError) -> bool;
    let unreadable: Check = |error| matches!(error, GrantError::Unreadable(_));
    let too_wide: Check = |error| matches!(error, GrantError::TooWide(_));
    let global: Check = |error| matches!(error, GrantError::Global(_));
    let metadata: Check = |error| *error == GrantError::Metadata;
    let host_bits: Check = |error| matches!(error, GrantError::HostBits { .. });
    let mapped: Check = |error| matches!(error, GrantError::Mapped(_));
    let cases: [(&str, Check); 34] = [
        ("", unreadable),
        ("localhost", unreadable),
        ("Private", unreadable),
        ("127.1", unreadable),
        ("10.0.0.0/", unreadable),
        ("10.0.0.0/33", unreadable),
        ("10.0.0.0/+8", unreadable),
        ("10.0.0.0/8/8", unreadable),
        ("10.0.0.0/256", unreadable),
        ("[::1]", unreadable),
        ("fe80::1%eth0", unreadable),
        ("fd00::/129", unreadable),
        ("0.0.0.0/0", too_wide),
        ("::/0", too_wide),
        ("10.0.0.0/7", too_wide),
        ("96.0.0.0/3", too_wide),
        ("192.0.0.0/16", too_wide),
        ("fe00::/8", too_wide),
        ("fe80::/9", too_wide),
        ("2000::/3", too_wide),
        ("::/96", too_wide),
        ("global", global),
        ("8.8.8.8", global),
        ("8.8.8.0/24", global),
        ("64:ff9b::/96", global),
        ("2606:4700::/32", global),
        ("metadata", metadata),
        ("169.254.169.254", metadata),
        ("169.254.169.254/32", metadata),
        ("fd00:ec2::254", metadata),
        ("10.0.0.1/8", host_bits),
        ("fd00::1/8", host_bits),
        ("::ffff:10.0.0.1", mapped),
        ("::ffff:0:0/96", mapped),
    ];
    for (entry, check) in cases {
        let error = Grants::parse(&[entry]).unwrap_err();
        assert!(check(&error), "{entry}: {error:?}");
    }
    let mut grants = Grants::default();
    grants.add("private").unwrap();
    assert!(grants.add("nonsense").is_err());
    assert_eq!(grants, Grants::parse(&["private"]).unwrap());
    let error = Grants::parse(&["10.0.0.1/8"]).unwrap_err().to_string();
    assert!(error.contains("`10.0.0.0/8`"), "{error}");
    let error = Grants::parse(&["lan"]).unwrap_err().to_string();
    assert!(error.contains("`private`") && !error.contains("metadata") && !error.contains("global"), "{error}");
    for entry in ["240.0.0.0/4", "2001::/23", "fc00::/7", "224.0.0.0/4", "4000::/16", "0.0.0.0", "255.255.255.255"] {
        assert!(Grants::parse(&[entry]).is_ok(), "{entry}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_grants_open_metadata(bytes in any::<[u8; 4]>(), length in 0u8..=32, embedding in 0usize..5) {
        let mut grants = Grants::default();
        for class in AddressClass::ALL {
            let _ = grants.add(class.as_str());
        }
        let _ = grants.add(&format!("{}/{length}", Ipv4Addr::from(bytes)));
        for service in table::METADATA_V4 {
            let [a, b, c, d] = service.octets().map(u16::from);
            let (high, low) = (a << 8 | b, c << 8 | d);
            let embedded = [
                [0, 0, 0, 0, 0, 0xffff, high, low],
                [0, 0, 0, 0, 0, 0, high, low],
                [0x64, 0xff9b, 0, 0, 0, 0, high, low],
                [0x2002, high, low, 0, 0, 0, 0, 1],
                [0x2001, 0, 0x808, 0x808, 0, 0, !high, !low],
            ];
            prop_assert!(!grants.permits(service.into()));
            prop_assert!(!grants.permits(IpAddr::from(embedded[embedding])));
        }
    }

    #[test]
    fn without_grants_exactly_global_addresses_are_open(bits in any::<u128>(), v4 in any::<u32>()) {
        for ip in [IpAddr::from(bits.to_be_bytes()), IpAddr::from(v4.to_be_bytes())] {
            prop_assert_eq!(Grants::default().permits(ip), classify(ip) == Global);
        }
    }
}
