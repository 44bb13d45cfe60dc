//! Patterns, paths and targets.

use std::sync::Arc;

use exeat_policy::host::Host;
use exeat_policy::pattern::Pattern;
use exeat_policy::target::{Authority, Scheme, Target};
use exeat_policy::{DefaultVerdict, Layer, Policy, Rule, Verdict};

/// A policy of one layer.
fn policy(allowed: &[&Pattern], blocked: &[&Pattern], default: DefaultVerdict) -> Policy {
    let rule = |pattern: &&Pattern| {
        let rule = Rule { pattern: pattern.to_string().into(), file: Arc::from("f"), line: 1, column: 1 };
        ((*pattern).clone(), rule)
    };
    let [allowed, blocked] = [allowed, blocked].map(|list| list.iter().map(rule).collect());
    Policy::build(vec![Layer { name: Arc::from("l"), allowed, blocked }], default).unwrap()
}

fn allows(policy: &Policy, target: &Target) -> bool {
    policy.decide(target).verdict == Verdict::Allow
}

/// A pattern reads as it is printed, and matches what it says and not its neighbour.
pub fn pattern(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(pattern) = Pattern::parse(text) else { return };
    let spelled = pattern.to_string();
    assert_eq!(Pattern::parse(&spelled).as_ref(), Ok(&pattern), "{text:?} is printed as {spelled:?}");
    let only = policy(&[&pattern], &[], DefaultVerdict::Deny);
    let never = policy(&[], &[&pattern], DefaultVerdict::Allow);
    let judge = |url: &str, matches: bool| {
        // A neighbour may be too long for a name.
        let Ok(target) = Target::parse(url) else { return };
        assert_eq!(allows(&only, &target), matches, "{spelled:?} allows {url:?}");
        assert_eq!(!allows(&never, &target), matches, "{spelled:?} blocks {url:?}");
    };
    let host = pattern.host();
    let named = host.ip().is_none();
    match &pattern {
        Pattern::Host(_) => {
            judge(&format!("http://{host}/a"), true);
            judge(&format!("https://{host}:8443/a/b"), true);
            if named {
                judge(&format!("http://a.{host}/"), false);
            }
        }
        Pattern::Domain(_) => {
            judge(&format!("http://{host}/a"), true);
            judge(&format!("https://a.b.{host}:8443/a/b"), true);
        }
        Pattern::Prefix(prefix) => {
            judge(&spelled, true);
            let other = if prefix.scheme() == Scheme::Http { "https" } else { "http" };
            judge(&format!("{other}://{host}:{}{}", prefix.port(), prefix.path()), false);
            if named {
                judge(&spelled.replacen("://", "://a.", 1), false);
            }
        }
    }
    if named {
        judge(&format!("http://x{host}/"), Host::parse(&format!("x{host}")).is_ok_and(|other| other == *host));
    }
}

/// What a server may do to a path, written another way than the product's own.
fn step(path: &[u8], which: u8) -> Vec<u8> {
    let split = |path: &[u8]| path.split(|&byte| byte == b'/').map(<[u8]>::to_vec).collect::<Vec<_>>();
    match which % 5 {
        0 => {
            let (mut out, mut at) = (Vec::new(), 0);
            while at < path.len() {
                let digits = path.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
                let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
                match digits.filter(|_| path[at] == b'%') {
                    Some(digits) => {
                        out.push(u8::from_str_radix(digits, 16).unwrap());
                        at += 3;
                    }
                    None => {
                        out.push(path[at]);
                        at += 1;
                    }
                }
            }
            out
        }
        1 => path.iter().map(|&byte| if byte == b'\\' { b'/' } else { byte }).collect(),
        2 => split(path)
            .into_iter()
            .map(|segment| segment.split(|&byte| byte == b';').next().unwrap().to_vec())
            .collect::<Vec<_>>()
            .join(&b'/'),
        3 => {
            let mut segments = split(path);
            let last = segments.len() - 1;
            let mut at = 0;
            // An empty segment at either end is a slash at either end.
            segments.retain(|segment| {
                at += 1;
                at == 1 || at == last + 1 || !segment.is_empty()
            });
            segments.join(&b'/')
        }
        _ => {
            let mut kept: Vec<Vec<u8>> = Vec::new();
            let segments = split(path.strip_prefix(b"/").unwrap_or(path));
            let last = segments.len() - 1;
            for (at, segment) in segments.into_iter().enumerate() {
                match segment.as_slice() {
                    b"." | b".." => {
                        if segment == b".." {
                            kept.pop();
                        }
                        if at == last {
                            kept.push(Vec::new());
                        }
                    }
                    _ => kept.push(segment),
                }
            }
            [b"/".as_slice(), &kept.join(&b'/')].concat()
        }
    }
}

/// Three lines: the path of a rule, the path of a request, and what servers do to it.
///
/// Whatever they do, what an allowed path becomes is within the rule, and what a path that is not blocked becomes does
/// not begin as the rule does.
pub fn path(data: &[u8]) {
    let mut lines = data.splitn(3, |&byte| byte == b'\n');
    let mut text = || lines.next().and_then(|line| std::str::from_utf8(line).ok()).unwrap_or_default();
    let (rule, asked) = (text(), text());
    let steps = lines.next().unwrap_or_default();
    if !rule.starts_with('/') {
        return;
    }
    let Ok(pattern) = Pattern::parse(&format!("https://a.test{rule}")) else { return };
    let Pattern::Prefix(prefix) = &pattern else { return };
    let authority = Authority::parse("a.test:443").unwrap();
    let Ok(target) = Target::from_parts(Scheme::Https, &authority, asked) else { return };
    let allowed = allows(&policy(&[&pattern], &[], DefaultVerdict::Deny), &target);
    let unblocked = allows(&policy(&[], &[&pattern], DefaultVerdict::Allow), &target);
    assert!(!(allowed && unblocked), "{rule:?} allows {asked:?} and does not block it");
    let sent = target.path_and_query();
    assert!(sent.starts_with('/') && sent.bytes().all(|byte| byte.is_ascii_graphic()), "{asked:?} is sent as {sent:?}");
    let mut reading = target.literal_path().as_bytes().to_vec();
    // A rule's path is in its literal spelling, which keeps the escapes that mean something; a reading that is decoded
    // is compared with what the rule is decoded.
    let mut spellings = vec![prefix.path().as_bytes().to_vec()];
    while spellings.len() < 4 {
        let next = step(spellings.last().unwrap(), 0);
        if spellings.contains(&next) {
            break;
        }
        spellings.push(next);
    }
    for which in std::iter::once(None).chain(steps.iter().take(12).map(Some)) {
        reading = which.map_or(reading.clone(), |which| step(&reading, *which));
        let shown = String::from_utf8_lossy(&reading);
        if allowed {
            let within = spellings.iter().any(|rule| {
                let rule = rule.strip_suffix(b"/").unwrap_or(rule);
                reading.starts_with(rule) && matches!(reading.get(rule.len()), None | Some(b'/'))
            });
            assert!(within, "{rule:?} allows {asked:?}, which becomes {shown:?}");
        }
        if unblocked {
            assert!(!reading.starts_with(&spellings[0]), "{rule:?} does not block {asked:?}, which becomes {shown:?}");
        }
    }
}

/// A target is sent as what it was judged as: reading it once more gives the same, and permits no less.
pub fn target(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let rules = ["https://a.test/acme/", "http://a.test/acme/", "*.wild.test", "10.0.0.1"].map(Pattern::parse);
    let blocks = ["https://a.test/acme/secret", "blocked.wild.test"].map(Pattern::parse);
    let [rules, blocks] = [rules.each_ref().as_slice(), blocks.each_ref().as_slice()]
        .map(|list| list.iter().map(|pattern| pattern.as_ref().unwrap()).collect::<Vec<_>>());
    let policy = policy(&rules, &blocks, DefaultVerdict::Deny);
    let wire = Target::parse_wire(text);
    for target in [&wire, &Target::parse(text)].into_iter().flatten() {
        let printed = target.to_string();
        let again =
            Target::parse_wire(&printed).unwrap_or_else(|error| panic!("{text:?} is sent as {printed:?}: {error}"));
        assert_eq!((again.scheme(), again.authority()), (target.scheme(), target.authority()), "{text:?}");
        assert_eq!(again.path_and_query(), target.path_and_query(), "{text:?}");
        assert!(!allows(&policy, target) || allows(&policy, &again), "{text:?} is permitted, and not as {printed:?}");
        let host = target.host().to_string();
        assert_eq!(Host::parse(&host).as_ref(), Ok(target.host()), "{text:?}");
    }
    if let (Ok(wire), Ok(lenient)) = (&wire, Target::parse(text)) {
        assert_eq!(wire.authority(), lenient.authority(), "{text:?} has two hosts");
        // A query is not judged, and goes out as it came in.
        assert_eq!(wire.path(), lenient.path(), "{text:?} has two paths");
        assert_eq!(allows(&policy, wire), allows(&policy, &lenient), "{text:?} has two verdicts");
    }
    assert!(wire.is_err() || Target::parse(text).is_ok(), "{text:?} is readable on the wire alone");
}
