//! The words that say which way a request came in and what became of it.

use exeat_policy::Reason;
use serde::Serialize;

/// Which way a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Entry {
    /// A request for the proxy itself: absolute-form, or one it could not read.
    Forward,
    /// A CONNECT.
    Connect,
    /// A request inside an inspected tunnel.
    Intercept,
    /// A SOCKS5 request.
    Socks5,
    /// A request to the local endpoint of an MCP server.
    Mcp,
    /// A connection that was caught inside a session.
    Caught,
    /// A name that was asked for inside a session.
    Dns,
}

impl Entry {
    /// Every entry, in the order of the enum.
    pub(crate) const ALL: [Self; 7] =
        [Self::Forward, Self::Connect, Self::Intercept, Self::Socks5, Self::Mcp, Self::Caught, Self::Dns];

    /// The word in metrics and events.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Connect => "connect",
            Self::Intercept => "intercept",
            Self::Socks5 => "socks5",
            Self::Mcp => "mcp",
            Self::Caught => "caught",
            Self::Dns => "dns",
        }
    }

    /// Position in [`Entry::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// It went out.
    Allow,
    /// It went out although policy denies it, since the gateway only reports.
    Report,
    /// It was refused.
    Deny,
    /// It was permitted, but could not be served.
    Error,
}

impl Outcome {
    /// The outcome that goes with a reason of what is judged and enforced; each reason has one.
    pub(crate) const fn of(reason: Reason) -> Self {
        match reason {
            Reason::Allowed | Reason::DefaultAllow => Self::Allow,
            Reason::ConnectionLimit
            | Reason::TunnelLimit
            | Reason::Draining
            | Reason::DnsNotFound
            | Reason::DnsFailed
            | Reason::ConnectRefused
            | Reason::ConnectTimeout
            | Reason::ConnectFailed
            | Reason::UpstreamTls
            | Reason::UpstreamProtocol
            | Reason::UpstreamEncoded
            | Reason::UpstreamTimeout
            | Reason::UpstreamProxy
            | Reason::AuditUnavailable
            | Reason::Internal => Self::Error,
            _ => Self::Deny,
        }
    }

    /// The outcome of what went out for a reason.
    pub(crate) const fn let_out(reason: Reason) -> Self {
        match Self::of(reason) {
            Self::Allow => Self::Allow,
            Self::Report | Self::Deny | Self::Error => Self::Report,
        }
    }

    /// The word in metrics and events.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Error => "error",
        }
    }
}
