//! Tunnels: bytes between a client and an upstream that the gateway does not read, but for the first ones.

mod direction;
pub(crate) mod hello;
pub(crate) mod relay;
#[cfg_attr(not(target_os = "linux"), path = "no_splice.rs")]
mod splice;

use exeat_policy::host::Host;

use crate::config::SniCheck;
use hello::{Opening, Sniffer};
use relay::Check;

/// What a tunnel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its bytes are relayed unread.
    Blind,
    /// Each request in it is judged.
    Inspected,
    /// A connection that was upgraded, such as to WebSocket.
    Upgraded,
}

impl Kind {
    /// Every kind, in the order of the enum.
    pub(crate) const ALL: [Self; 3] = [Self::Blind, Self::Inspected, Self::Upgraded];

    /// The word in metrics and events.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Blind => "blind",
            Self::Inspected => "inspected",
            Self::Upgraded => "upgraded",
        }
    }
}

/// Why a tunnel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Both sides were done.
    Closed,
    /// One side failed.
    Error,
    /// Nothing moved for the idle time.
    Idle,
    /// It had lasted as long as a tunnel may.
    Lifetime,
    /// The TLS server name was not the CONNECT host.
    SniMismatch,
    /// It was permitted for TLS only and opened with something else.
    NotTls,
    /// A reload narrowed the policy.
    PolicyChanged,
    /// A reload removed the credentials it was opened with, or its session has ended.
    Revoked,
    /// Its session has used up its bytes.
    Quota,
    /// The gateway shut down.
    Drained,
}

impl Cause {
    /// Every cause, in the order of the enum.
    pub(crate) const ALL: [Self; 10] = [
        Self::Closed,
        Self::Error,
        Self::Idle,
        Self::Lifetime,
        Self::SniMismatch,
        Self::NotTls,
        Self::PolicyChanged,
        Self::Revoked,
        Self::Quota,
        Self::Drained,
    ];

    /// The word in metrics and events.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Error => "error",
            Self::Idle => "idle",
            Self::Lifetime => "lifetime",
            Self::SniMismatch => "sni_mismatch",
            Self::NotTls => "not_tls",
            Self::PolicyChanged => "policy_changed",
            Self::Revoked => "revoked",
            Self::Quota => "session_quota",
            Self::Drained => "drained",
        }
    }
}

/// Whether a TLS server name is the host of the tunnel.
///
/// A client that connects to an address sends no name (RFC 6066 section 3), so its absence is right there.
pub(crate) fn names_host(server_name: Option<&str>, host: &Host, check: SniCheck) -> bool {
    match (check, server_name) {
        (SniCheck::Off, _) | (SniCheck::Match, None) => true,
        (SniCheck::Require, None) => host.ip().is_some(),
        (_, Some(name)) => Host::parse(name).is_ok_and(|name| name == *host),
    }
}

/// The check of a blind tunnel's first bytes.
#[derive(Debug)]
pub(crate) struct NameCheck {
    /// The CONNECT host.
    pub(crate) host: Host,
    /// What is asked of the server name.
    pub(crate) sni: SniCheck,
    /// Whether the tunnel is permitted for TLS only.
    pub(crate) tls_only: bool,
    sniffer: Sniffer,
}

impl NameCheck {
    /// A check that has seen nothing yet.
    pub(crate) fn new(host: Host, sni: SniCheck, tls_only: bool) -> Self {
        Self { host, sni, tls_only, sniffer: Sniffer::default() }
    }
}

impl Check for NameCheck {
    fn check(&mut self, first: &[u8]) -> Option<Result<(), Cause>> {
        Some(match self.sniffer.sniff(first) {
            Opening::Partial => return None,
            // What the rule permits is https to this host, so the name is asked for whatever the config says.
            Opening::Hello(name) if self.tls_only => named(names_host(name.as_deref(), &self.host, SniCheck::Require)),
            Opening::Hello(name) => named(names_host(name.as_deref(), &self.host, self.sni)),
            Opening::Broken | Opening::Other if self.tls_only => Err(Cause::NotTls),
            Opening::Broken if self.sni != SniCheck::Off => Err(Cause::SniMismatch),
            Opening::Broken | Opening::Other => Ok(()),
        })
    }

    fn holds_upstream(&self) -> bool {
        self.tls_only
    }
}

const fn named(right: bool) -> Result<(), Cause> {
    if right { Ok(()) } else { Err(Cause::SniMismatch) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_names_are_compared_as_hosts() {
        let host = Host::parse("api.example.test").unwrap();
        for (name, check, expected) in [
            (Some("api.example.test"), SniCheck::Require, true),
            (Some("API.Example.test."), SniCheck::Require, true),
            (Some("other.test"), SniCheck::Require, false),
            (Some("other.test"), SniCheck::Match, false),
            (Some("a b"), SniCheck::Match, false),
            (None, SniCheck::Require, false),
            (None, SniCheck::Match, true),
            (Some("other.test"), SniCheck::Off, true),
        ] {
            assert_eq!(names_host(name, &host, check), expected, "{name:?} {check:?}");
        }
        assert!(names_host(None, &Host::parse("127.0.0.1").unwrap(), SniCheck::Require));
    }
}
