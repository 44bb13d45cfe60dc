//! Which requests a rule matches, asked of one rule at a time.
//!
//! The index answers for all rules at once and names the first; analysis wants every one. The tests of the index hold
//! a reading of their own against it; those of this module hold this one against the index.

use std::net::IpAddr;

use crate::decision::ListKind;
use crate::host::Host;
use crate::path;
use crate::pattern::{Pattern, Prefix};
use crate::target::Target;

/// Whether a rule of that list matches the target.
pub(super) fn matches(list: ListKind, pattern: &Pattern, target: &Target) -> bool {
    match pattern {
        Pattern::Host(host) => is_same(list, host, target.host()),
        Pattern::Domain(domain) => is_under(target.host(), domain),
        Pattern::Prefix(prefix) => {
            prefix.port() == target.port()
                && prefix.scheme() == target.scheme()
                && is_same(list, prefix.host(), target.host())
                && match list {
                    ListKind::Allowed => target.has_path_within(prefix),
                    ListKind::Blocked => blocks_path(prefix, target),
                }
        }
    }
}

/// Whether every request that `inner` matches is matched by `outer` too, both being rules of that list. Where it says
/// no, it may still be so.
pub(super) fn covers(list: ListKind, outer: &Pattern, inner: &Pattern) -> bool {
    match (outer, inner) {
        (Pattern::Host(outer), Pattern::Host(inner)) => names_all(list, outer, inner),
        (Pattern::Host(outer), Pattern::Prefix(inner)) => names_all(list, outer, inner.host()),
        (Pattern::Domain(outer), inner) => is_under(inner.host(), outer),
        (Pattern::Prefix(outer), Pattern::Prefix(inner)) => {
            outer.scheme() == inner.scheme()
                && outer.port() == inner.port()
                && names_all(list, outer.host(), inner.host())
                && match list {
                    ListKind::Allowed => path::is_within(inner.path().as_bytes(), &[], outer.path().as_bytes()),
                    ListKind::Blocked => inner.path().starts_with(outer.path()),
                }
        }
        _ => false,
    }
}

/// The host in the form it is compared in: an IPv4-mapped address as the IPv4 one.
pub(super) fn canonical(host: &Host) -> Host {
    match host.ip() {
        Some(ip) if ip.to_canonical() != ip => Host::from_ip(ip.to_canonical()),
        _ => host.clone(),
    }
}

/// Everything that a host counts as: itself, and the addresses embedded in it.
pub(super) fn views(host: &Host) -> impl Iterator<Item = Host> {
    let embedded = host.embedded_ipv4().map(|ip| Host::from_ip(IpAddr::V4(ip)));
    std::iter::once(canonical(host)).chain(embedded)
}

fn is_same(list: ListKind, rule: &Host, asked: &Host) -> bool {
    match list {
        ListKind::Allowed => rule == asked || canonical(rule) == canonical(asked),
        ListKind::Blocked => rule == asked || views(rule).any(|view| views(asked).any(|asked| view == asked)),
    }
}

/// Whether a rule for `outer` names every host that one for `inner` names.
fn names_all(list: ListKind, outer: &Host, inner: &Host) -> bool {
    match list {
        ListKind::Allowed => canonical(outer) == canonical(inner),
        ListKind::Blocked => views(inner).all(|inner| views(outer).any(|outer| outer == inner)),
    }
}

fn is_under(host: &Host, domain: &Host) -> bool {
    let behind = host.as_str().strip_suffix(domain.as_str());
    host.ip().is_none() && behind.is_some_and(|behind| behind.is_empty() || behind.ends_with('.'))
}

fn blocks_path(prefix: &Prefix, target: &Target) -> bool {
    let (literal, others) = target.readings();
    let written = prefix.path().as_bytes();
    let decoded = path::decoded(written);
    let mut readings = std::iter::once(literal).chain(others.iter().map(|other| &**other));
    readings.any(|reading| {
        reading.starts_with(written) || decoded.as_deref().is_some_and(|decoded| reading.starts_with(decoded))
    })
}
