//! The same decisions by the shortest way: every rule is asked in turn. No index, no tree, no short cuts.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::*;
use crate::host::Host;
use crate::pattern::Prefix;

/// Verdict, reason, number of the rule, layer.
pub(super) type Answer = (Verdict, Reason, Option<usize>, Option<String>);

pub(super) fn decide(layers: &[generate::Lists], default: DefaultVerdict, target: &Target) -> Answer {
    let names = || ('a'..).map(|name| name.to_string());
    let mut number = 0;
    let mut blocking = None;
    let mut allowing: Vec<Option<usize>> = Vec::new();
    for (name, (allowed, blocked)) in names().zip(layers) {
        let allows = allowed.iter().position(|text| matches(text, target, false)).map(|index| number + index);
        number += allowed.len();
        let blocks = blocked.iter().position(|text| matches(text, target, true)).map(|index| number + index);
        number += blocked.len();
        blocking = blocking.or(blocks.map(|number| (number, name)));
        allowing.push(allows);
    }
    if let Some((number, layer)) = blocking {
        return (Verdict::Deny, Reason::Blocked, Some(number), Some(layer));
    }
    let mut last = None;
    for ((name, (allowed, _)), allows) in names().zip(layers).zip(allowing) {
        match allows {
            _ if allowed.is_empty() => {}
            None => return (Verdict::Deny, Reason::NotAllowed, None, Some(name)),
            Some(number) => last = Some((number, name)),
        }
    }
    match (last, default) {
        (Some((number, name)), _) => (Verdict::Allow, Reason::Allowed, Some(number), Some(name)),
        (None, DefaultVerdict::Allow) => (Verdict::Allow, Reason::DefaultAllow, None, None),
        (None, DefaultVerdict::Deny) => (Verdict::Deny, Reason::DefaultDeny, None, None),
    }
}

fn matches(text: &str, target: &Target, blocks: bool) -> bool {
    let same = |host: &Host| match blocks {
        true => !addresses(host).is_disjoint(&addresses(target.host())),
        false => canonical(host) == canonical(target.host()),
    };
    match Pattern::parse(text).unwrap() {
        Pattern::Host(host) => same(&host),
        Pattern::Domain(host) => {
            let name = format!(".{}", target.host().as_str());
            target.host().ip().is_none() && name.ends_with(&format!(".{}", host.as_str()))
        }
        Pattern::Prefix(prefix) => {
            let origin = same(prefix.host()) && prefix.port() == target.port() && prefix.scheme() == target.scheme();
            origin && if blocks { holds_somewhere(&prefix, target) } else { holds_everywhere(&prefix, target) }
        }
    }
}

fn canonical(host: &Host) -> String {
    host.ip().map_or_else(|| host.as_str().to_owned(), |ip| ip.to_canonical().to_string())
}

/// Everything that a host counts as.
fn addresses(host: &Host) -> BTreeSet<String> {
    let embedded = host.embedded_ipv4().map(|ip| IpAddr::from(ip).to_string());
    embedded.chain([canonical(host)]).collect()
}

fn readings(target: &Target) -> Vec<String> {
    let (literal, others) = target.readings();
    let latin1 = |bytes: &[u8]| bytes.iter().copied().map(char::from).collect();
    std::iter::once(latin1(literal)).chain(others.iter().map(|other| latin1(other))).collect()
}

/// The path of a rule as it is, and with its escapes decoded.
fn forms(prefix: &Prefix) -> [String; 2] {
    let mut decoded = String::new();
    let mut rest = prefix.path();
    while let Some((before, escape)) = rest.split_once('%') {
        decoded.push_str(before);
        decoded.push(char::from(u8::from_str_radix(&escape[..2], 16).unwrap()));
        rest = &escape[2..];
    }
    decoded.push_str(rest);
    [prefix.path().to_owned(), decoded]
}

fn holds_somewhere(prefix: &Prefix, target: &Target) -> bool {
    let readings = readings(target);
    forms(prefix).iter().any(|form| readings.iter().any(|reading| reading.starts_with(form.as_str())))
}

fn holds_everywhere(prefix: &Prefix, target: &Target) -> bool {
    let on_border = |reading: &str, form: &str| {
        reading.strip_prefix(form).is_some_and(|rest| form.ends_with('/') || rest.is_empty() || rest.starts_with('/'))
    };
    let [written, decoded] = forms(prefix);
    let readings = readings(target);
    on_border(&readings[0], &written)
        && readings[1..].iter().all(|reading| on_border(reading, &written) || on_border(reading, &decoded))
}
