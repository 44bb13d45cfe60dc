//! What was decided, told once: one counter step and one log line a decision, with the same reason.

use std::fmt;
use std::sync::Arc;

use exeat_policy::{Reason, RuleRef};
use http::HeaderName;

use crate::client::Client;
use crate::metrics::Metrics;
use crate::tally::Tally;

/// Which way a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// What became of a request, as its reason says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It went out.
    Allow,
    /// It was refused.
    Deny,
    /// It was permitted, but could not be served.
    Error,
}

impl Outcome {
    /// The outcome that goes with a reason; each reason has one.
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
            | Reason::Internal => Self::Error,
            _ => Self::Deny,
        }
    }

    /// The word in metrics and events.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Error => "error",
        }
    }
}

/// One decision.
pub(crate) struct Record<'a> {
    /// Which way the request came in.
    pub(crate) entry: Entry,
    /// Who asked.
    pub(crate) client: &'a Client,
    /// The method as sent.
    pub(crate) method: &'a str,
    /// What was asked for: a URL without its query, or an authority.
    pub(crate) target: &'a (dyn fmt::Display + Sync),
    /// Why.
    pub(crate) reason: Reason,
    /// The rule that decided.
    pub(crate) rule: Option<RuleRef<'a>>,
    /// The generation of the policy.
    pub(crate) generation: u64,
    /// The MCP server or injected prefix that the request belongs to.
    pub(crate) server: Option<&'a str>,
    /// The names of the fields that were put on it.
    pub(crate) injected: &'a [HeaderName],
    /// What else there is to say, for people with access to the log.
    pub(crate) detail: &'a str,
}

/// Takes decisions down.
#[derive(Clone, Debug)]
pub(crate) struct Audit {
    metrics: Arc<Metrics>,
    tally: Option<Arc<Tally>>,
}

impl Audit {
    /// An audit that counts in `metrics` and, for a session, adds up in `tally`.
    pub(crate) const fn new(metrics: Arc<Metrics>, tally: Option<Arc<Tally>>) -> Self {
        Self { metrics, tally }
    }

    /// Takes one decision down.
    pub(crate) fn record(&self, record: &Record<'_>) {
        self.metrics.count_decision(record.entry, record.reason);
        let rule = record.rule.map(|rule| Place(rule.rule));
        if let Some(tally) = &self.tally {
            tally.add(record, rule.as_ref().map(ToString::to_string));
        }
        let injected: Vec<&str> = record.injected.iter().map(HeaderName::as_str).collect();
        let injected = (!injected.is_empty()).then(|| injected.join(", "));
        let detail = (!record.detail.is_empty()).then_some(record.detail);
        tracing::info!(
            target: "exeat::decision",
            verdict = Outcome::of(record.reason).as_str(),
            reason = record.reason.as_str(),
            entry = record.entry.as_str(),
            method = record.method,
            url = %record.target,
            rule = rule.as_ref().map(tracing::field::display),
            server = record.server,
            injected,
            client = %record.client.address,
            user = record.client.user.as_deref(),
            generation = record.generation,
            detail,
        );
    }
}

/// A rule with its place, as `PATTERN (FILE:LINE:COLUMN)`.
struct Place<'a>(&'a exeat_policy::Rule);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exeat_policy::Rule { pattern, file, line, column } = self.0;
        write!(f, "{pattern} ({file}:{line}:{column})")
    }
}
