use super::generate::{Lists, build, default, host, layers, lists, pattern, plain_url, url, urls_at};
use super::*;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

fn allows(policy: &Policy, url: &str) -> bool {
    policy.decide(&target(url)).verdict == Verdict::Allow
}

/// What can be seen of a scheme at an authority by trying.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    Every,
    Some,
    None,
}

fn seen<'a>(policy: &Policy, urls: impl Iterator<Item = &'a String>) -> Seen {
    let allowed: Vec<bool> = urls.map(|url| allows(policy, url)).collect();
    match (allowed.contains(&true), allowed.contains(&false)) {
        (true, false) => Seen::Every,
        (false, _) => Seen::None,
        (true, true) => Seen::Some,
    }
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn the_index_decides_as_asking_every_rule_does(layers in layers(true), default in default(), urls in prop::collection::vec(url(), 12)) {
        let policy = build(&layers, default);
        for url in urls {
            let target = target(&url);
            let decision = policy.decide(&target);
            let answer = (
                decision.verdict,
                decision.reason,
                decision.rule.map(|rule| rule.number),
                decision.layer.map(str::to_owned),
            );
            prop_assert_eq!(answer, reference::decide(&layers, default, &target), "{}", url);
            prop_assert_eq!(decision.rule.map(|rule| rule.layer), decision.rule.and(decision.layer));
        }
    }

    #[test]
    fn a_tunnel_is_what_trying_every_request_shows(layers in layers(true), default in default(), host in host(), port in 0usize..3) {
        let policy = build(&layers, default);
        let port = [":80", ":443", ":8443"][port];
        let urls = urls_at(host, port);
        let https = seen(&policy, urls.iter().filter(|url| url.starts_with("https:")));
        let http = seen(&policy, urls.iter().filter(|url| url.starts_with("http:")));
        let decision = tunnel(&policy, &format!("{host}{port}"));
        let expected = match (https, http) {
            (Seen::Every, Seen::Every) => AuthorityVerdict::Permit,
            (Seen::Every, Seen::None) => AuthorityVerdict::PermitTls,
            (Seen::None, Seen::None) => AuthorityVerdict::Deny,
            _ => AuthorityVerdict::Inspect,
        };
        // The exception that the contract makes: a block of the whole https origin denies the tunnel.
        let whole = decision.verdict == AuthorityVerdict::Deny && decision.rule.is_some_and(|rule| {
            rule.list == ListKind::Blocked && matches!(Pattern::parse(&rule.rule.pattern), Ok(Pattern::Prefix(prefix)) if prefix.is_whole_origin())
        });
        if whole {
            prop_assert_eq!(https, Seen::None);
        } else {
            prop_assert_eq!(decision.verdict, expected);
        }
        let reasons: &[Reason] = match decision.verdict {
            AuthorityVerdict::Deny => &[Reason::Blocked, Reason::NotAllowed, Reason::DefaultDeny],
            _ if policy.restricts() => &[Reason::Allowed],
            _ => &[Reason::DefaultAllow],
        };
        prop_assert!(reasons.contains(&decision.reason), "{:?}", decision);
        prop_assert_eq!(decision.reason == Reason::NotAllowed, decision.layer.is_some() && decision.rule.is_none());
    }

    #[test]
    fn a_block_wins_wherever_it_stands(
        mut layers in prop::collection::vec(lists(true), 1..4),
        default in default(),
        url in url(),
        at in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
    ) {
        let host = target(&url).host().to_string();
        let layer = at.index(layers.len());
        let place = place.index(layers[layer].1.len() + 1);
        layers[layer].1.insert(place, host);
        let policy = build(&layers, default);
        let decision = policy.decide(&target(&url));
        prop_assert_eq!((decision.verdict, decision.reason), (Verdict::Deny, Reason::Blocked));
    }

    #[test]
    fn a_layer_added_never_permits_more(
        base in layers(true),
        added in lists(true),
        at in any::<prop::sample::Index>(),
        default in default(),
        urls in prop::collection::vec(url(), 12),
        host in host(),
    ) {
        // Where nothing restricts and the default denies, the first allowed list opens something by design.
        let restricts = base.iter().any(|(allowed, _)| !allowed.is_empty());
        let default = if restricts || added.0.is_empty() { default } else { DefaultVerdict::Allow };
        let policy = build(&base, default);
        let mut more: Vec<Lists> = base.clone();
        more.insert(at.index(base.len() + 1), added);
        let narrower = build(&more, default);
        for url in &urls {
            prop_assert!(!allows(&narrower, url) || allows(&policy, url), "{}", url);
        }
        for port in [80, 443, 8443] {
            let authority = format!("{host}:{port}");
            let openness = |policy: &Policy| match tunnel(policy, &authority).verdict {
                AuthorityVerdict::Deny => 0,
                AuthorityVerdict::Inspect => 1,
                AuthorityVerdict::PermitTls => 2,
                AuthorityVerdict::Permit => 3,
            };
            // One step up is no opening: without its http part, a tunnel of which some was permitted may be one of
            // which all https is.
            let (before, after) = (openness(&policy), openness(&narrower));
            prop_assert!(after <= before || (before, after) == (1, 2), "{}: {} to {}", authority, before, after);
        }
    }

    #[test]
    fn order_within_a_list_changes_neither_verdicts_nor_digest(layers in layers(true), default in default(), urls in prop::collection::vec(url(), 12)) {
        let policy = build(&layers, default);
        let turned: Vec<Lists> = layers
            .iter()
            .map(|(allowed, blocked)| {
                let turn = |list: &[String]| list.iter().rev().chain(list.first()).cloned().collect();
                (turn(allowed), turn(blocked))
            })
            .collect();
        let other = build(&turned, default);
        prop_assert_eq!(policy.digest(), other.digest());
        for url in &urls {
            let (a, b) = (target(url), target(url));
            prop_assert_eq!(policy.decide(&a).reason, other.decide(&b).reason, "{}", url);
        }
    }

    #[test]
    fn no_spelling_of_a_denied_url_is_permitted(
        layers in layers(false),
        default in default(),
        (scheme, host, port, path) in plain_url(),
        choices in prop::collection::vec(any::<u8>(), 64),
    ) {
        let policy = build(&layers, default);
        let denied = format!("{scheme}://{host}{port}{path}");
        let decision = policy.decide(&target(&denied));
        let mut choices = choices.into_iter();
        let spelled = respell(scheme, host, port, path, &mut || choices.next().unwrap_or_default());
        let read = [Target::parse(&spelled), Target::parse_wire(&spelled)];
        prop_assert!(read[0].is_ok(), "{} {:?}", spelled, read[0]);
        for spelling in read.into_iter().flatten() {
            let again = policy.decide(&spelling);
            if decision.verdict == Verdict::Deny {
                prop_assert_eq!(again.verdict, Verdict::Deny, "{} as {}", denied, spelled);
            }
            if decision.reason == Reason::Blocked {
                prop_assert_eq!(again.reason, Reason::Blocked, "{} as {}", denied, spelled);
            }
        }
    }

    #[test]
    fn a_pattern_matches_what_it_says(text in pattern(true)) {
        let host = Pattern::parse(&text).unwrap();
        let url = match &host {
            Pattern::Prefix(prefix) => prefix.to_string(),
            other => format!("https://{}/", other.host()),
        };
        let lists = |allowed: bool| if allowed { (vec![text.clone()], vec![]) } else { (vec![], vec![text.clone()]) };
        prop_assert!(allows(&build(&[lists(true)], DefaultVerdict::Deny), &url));
        prop_assert!(!allows(&build(&[lists(false)], DefaultVerdict::Allow), &url));
    }
}

/// The same request in another spelling, as `choose` has it.
fn respell(scheme: &str, host: &str, port: &str, path: &str, choose: &mut impl FnMut() -> u8) -> String {
    let mut url = String::new();
    let cased = |text: &str, choose: &mut dyn FnMut() -> u8| -> String {
        text.chars().map(|c| if choose().is_multiple_of(3) { c.to_ascii_uppercase() } else { c }).collect()
    };
    url.push_str(&cased(scheme, choose));
    url.push_str("://");
    url.push_str(["", "", "", "user@", "user:pw@", "@"][usize::from(choose() % 6)]);
    url.push_str(&respell_host(host, choose));
    let implied = if scheme == "https" { ":443" } else { ":80" };
    url.push_str(match (port, choose() % 4) {
        ("", 0) => implied,
        ("", 1) => ":",
        (":8443", 0) => ":08443",
        (port, _) => port,
    });
    url.push_str(&respell_path(path, choose));
    url.push_str(["", "?", "?q=1", "?/../x"][usize::from(choose() % 4)]);
    if choose().is_multiple_of(8) {
        url.push_str("#/../y");
    }
    url
}

fn respell_host(host: &str, choose: &mut impl FnMut() -> u8) -> String {
    let address = host.trim_matches(['[', ']']);
    if let Ok(ip) = address.parse::<std::net::Ipv4Addr>() {
        let [a, b, c, d] = ip.octets();
        let number = u32::from(ip);
        return match choose() % 8 {
            0 => format!("{number}"),
            1 => format!("0x{number:x}"),
            2 => format!("0{number:o}"),
            3 => format!("0{a:o}.{b}.{c}.0x{d:X}"),
            4 => format!("{a}.{}", number & 0xff_ffff),
            5 => format!("{ip}."),
            6 => format!("[::ffff:{ip}]"),
            _ => format!("%3{a}.{b}.{c}.{d}"),
        };
    }
    if let Ok(ip) = address.parse::<std::net::Ipv6Addr>() {
        let full: Vec<String> = ip.segments().iter().map(|segment| format!("{segment:04X}")).collect();
        return match choose() % 3 {
            0 => format!("[{}]", full.join(":")),
            1 => format!("[{}]", ip.segments().map(|segment| format!("{segment:x}")).join(":")),
            _ => format!("[{ip}]"),
        };
    }
    let mut spelled = String::new();
    for c in host.chars() {
        match (c, choose() % 8) {
            ('.', 0) => spelled.push('。'),
            ('.', 1) => spelled.push_str("%2e"),
            ('.', _) => spelled.push('.'),
            (c, 0) => spelled.push_str(&format!("%{:02x}", u32::from(c))),
            (c, 1) => spelled.push(c.to_ascii_uppercase()),
            (c, 2) => spelled.push(char::from_u32(u32::from(c) + 0xfee0).unwrap()),
            (c, 3) => spelled.extend([c, '\u{ad}']),
            (c, _) => spelled.push(c),
        }
    }
    spelled.push_str(["", "", ".", "%2E"][usize::from(choose() % 4)]);
    spelled
}

fn respell_path(path: &str, choose: &mut impl FnMut() -> u8) -> String {
    if path == "/" {
        return ["", "/", "/.", "/x/..", "//", "\\"][usize::from(choose() % 6)].to_owned();
    }
    let mut spelled = String::new();
    for c in path.chars() {
        match (c, choose() % 12) {
            ('/', 0) => spelled.push_str("/./"),
            ('/', 1) => spelled.push_str("/x/../"),
            ('/', 2) => spelled.push_str("/%2E/"),
            ('/', 3) => spelled.push('\\'),
            ('/', 4) => spelled.push_str("//"),
            ('/', 5) => spelled.push_str("/x/..;/"),
            ('/', 6) => spelled.push_str("/%2e%2f"),
            ('/', 7) => spelled.push_str("/x%2f..%2F"),
            ('/', 8) => spelled.push_str("/;p=1/"),
            ('/', 9) => spelled.push_str("/.;p/"),
            ('/', 10) if !spelled.is_empty() => spelled.push_str(";p/"),
            ('/', _) => spelled.push('/'),
            (c, 0 | 1) => spelled.push_str(&format!("%{:02x}", u32::from(c))),
            (c, 2) => spelled.push_str(&format!("%25{:02X}", u32::from(c))),
            (c, _) => spelled.push(c),
        }
    }
    spelled.push_str(["", "", ";p", ";p=1"][usize::from(choose() % 4)]);
    spelled
}
