//! Names that more than one party shares: public suffixes, and hosts where anybody can publish.
//!
//! A wildcard is a statement about everybody who owns a name below it. Below `example.com` that is one party; below
//! `co.uk` or `github.io` it is whoever registers next. The public suffix list tells the two apart, and its two
//! divisions tell registries (`co.uk`) from hosting providers (`github.io`). The list is that of the `psl` crate,
//! compiled in; what it does not know is taken for nobody's.
//!
//! Some providers give out paths and not names: whoever may reach `storage.googleapis.com` reaches every bucket there,
//! an attacker's among them. No list of those is published; [`shared_host`] has the ones that agents meet most.

use psl::{List, Psl as _, Type};

use crate::host::Host;

/// Who gives out the names below a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SuffixKind {
    /// A registry: anybody can register there.
    Registry,
    /// A provider: any of its customers gets a name there.
    Hosting,
}

/// Whether `host` is a public suffix, so that the names below it belong to different parties, and of which kind; none
/// for addresses and for names of one party.
#[must_use]
pub fn suffix_kind(host: &Host) -> Option<SuffixKind> {
    if host.ip().is_some() {
        return None;
    }
    let name = host.as_str();
    let suffix = List.suffix(name.as_bytes())?;
    match suffix.typ() {
        Some(Type::Icann) if suffix.as_bytes() == name.as_bytes() => Some(SuffixKind::Registry),
        Some(Type::Private) if suffix.as_bytes() == name.as_bytes() => Some(SuffixKind::Hosting),
        _ => None,
    }
}

/// The registrable domain that `host` lies in: one label more than its public suffix; none for addresses, for public
/// suffixes, and for names below a suffix that the list does not know.
#[must_use]
pub fn registrable_domain(host: &Host) -> Option<&str> {
    if host.ip().is_some() {
        return None;
    }
    let name = host.as_str();
    let domain = List.domain(name.as_bytes())?;
    domain.suffix().is_known().then(|| std::str::from_utf8(domain.as_bytes()).ok()).flatten()
}

/// Hosts whose paths belong to different parties, with what a path there begins with.
const SHARED_HOSTS: &[(&str, &str)] = &[
    ("api.telegram.org", "a bot's token"),
    ("cdn.jsdelivr.net", "a package or repository of anybody"),
    ("codeload.github.com", "an owner's name"),
    ("discord.com", "a webhook of anybody"),
    ("docs.google.com", "a document of anybody"),
    ("drive.google.com", "a file of anybody"),
    ("gist.github.com", "a user's name"),
    ("gist.githubusercontent.com", "a user's name"),
    ("hooks.slack.com", "a workspace's webhook"),
    ("httpbin.org", "an echo of what is sent"),
    ("objects.githubusercontent.com", "a file of anybody"),
    ("pastebin.com", "a note of anybody"),
    ("raw.githubusercontent.com", "an owner's name"),
    ("s3.amazonaws.com", "a bucket of anybody"),
    ("storage.googleapis.com", "a bucket of anybody"),
    ("transfer.sh", "a file of anybody"),
    ("unpkg.com", "a package of anybody"),
    ("webhook.site", "an inbox of anybody"),
];

/// What a path begins with at a host where anybody can publish or receive; none where the host is no such one that is
/// known.
#[must_use]
pub fn shared_host(host: &Host) -> Option<&'static str> {
    SHARED_HOSTS.iter().find(|(name, _)| *name == host.as_str()).map(|(_, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        Host::parse(text).unwrap()
    }

    #[test]
    fn registries_and_providers_are_told_apart() {
        for (name, kind) in [
            ("com", Some(SuffixKind::Registry)),
            ("co.uk", Some(SuffixKind::Registry)),
            ("github.io", Some(SuffixKind::Hosting)),
            ("s3.amazonaws.com", Some(SuffixKind::Hosting)),
            ("example.com", None),
            ("acme.github.io", None),
            ("internal", None),
            ("localhost", None),
            ("com.internal", None),
            ("192.0.2.1", None),
            ("2001:db8::1", None),
        ] {
            let host = name.parse().map_or_else(|_| host(name), Host::from_ip);
            assert_eq!(suffix_kind(&host), kind, "{name}");
        }
    }

    #[test]
    fn a_registrable_domain_has_one_label_more_than_its_suffix() {
        for (name, domain) in [
            ("a.b.example.co.uk", Some("example.co.uk")),
            ("example.com", Some("example.com")),
            ("x.acme.github.io", Some("acme.github.io")),
            ("co.uk", None),
            ("a.b.internal", None),
            ("192.0.2.1", None),
        ] {
            assert_eq!(registrable_domain(&host(name)), domain, "{name}");
        }
    }

    #[test]
    fn shared_hosts_are_canonical_sorted_and_known() {
        assert!(SHARED_HOSTS.is_sorted());
        for (name, _) in SHARED_HOSTS {
            assert!(shared_host(&host(name)).is_some(), "{name}");
        }
        assert_eq!(shared_host(&host("example.com")), None);
    }
}
