//! An event, in the words of `config/schemas/event.v1.schema.json`.
//!
//! What is here is the part that says what happened. In front of it the [`journal`](super::journal) puts what every
//! event has: schema, version, `event_id`, `session_id`, `sequence`, `timestamp` and `monotonic_offset_ms`.

use std::fmt;
use std::net::SocketAddr;

use exeat_policy::Reason;
use exeat_policy::host::Host;
use exeat_policy::target::{Authority, Target};
use http::HeaderName;
use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Serialize, Serializer};

use super::{Entry, EventId, Outcome, Record};
use crate::client::Address;
use crate::snapshot::Snapshot;
use crate::tunnel::Kind as TunnelKind;
use crate::view::RuleView;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// A session began: the first event of each.
    SessionStarted,
    /// A policy came into force.
    PolicyLoaded,
    /// Files could not be loaded; the policy that was in force stays.
    PolicyRejected,
    /// A request, a tunnel or a name was judged.
    Decision,
    /// A request that a decision let out is over.
    RequestCompleted,
    /// A tunnel that a decision let out is over.
    TunnelClosed,
    /// Events are missing before this one.
    Gap,
    /// A session is over: its last event.
    SessionEnded,
}

/// How an event is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Provenance {
    /// From what was on the wire.
    WireObserved,
    /// From the gateway's own state.
    Derived,
}

/// What an event cannot say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limitation {
    /// Which requests go through the tunnel is not seen.
    TunnelContentNotObserved,
    /// What was asked for could not be read, so it is text.
    TargetNotRead,
}

/// One event; what does not apply is left out.
#[derive(Debug, Serialize)]
pub(crate) struct Event<'a> {
    pub(crate) kind: Kind,
    /// The program, when it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gateway: Option<&'static str>,
    /// The decision that this is the end of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decision_id: Option<EventIdOf<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) entry: Option<Entry>,
    /// The method as sent.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<AskedFor<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) verdict: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "word")]
    pub(crate) reason: Option<Reason>,
    /// The rule that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rule: Option<RuleView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<PolicyView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<&'a str>,
    /// The names of the fields that were put on.
    #[serde(skip_serializing_if = "<[_]>::is_empty", serialize_with = "names")]
    pub(crate) injected: &'a [HeaderName],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) addresses: Option<Addresses>,
    /// Who the client has shown itself to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<&'a str>,
    /// What kind of tunnel.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "tunnel")]
    pub(crate) tunnel: Option<TunnelKind>,
    /// The status of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    /// Why it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) duration_ms: Option<u64>,
    /// How many events are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dropped: Option<u64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) detail: &'a str,
    pub(crate) provenance: Provenance,
    pub(crate) limitations: &'static [Limitation],
}

impl Event<'_> {
    /// One that says nothing but what it is, and comes from the gateway's own state.
    pub(super) const fn of(kind: Kind) -> Self {
        Self {
            kind,
            gateway: None,
            decision_id: None,
            entry: None,
            method: "",
            target: None,
            verdict: None,
            reason: None,
            rule: None,
            policy: None,
            server: None,
            injected: &[],
            addresses: None,
            user: None,
            tunnel: None,
            status: None,
            cause: None,
            bytes: None,
            duration_ms: None,
            dropped: None,
            detail: "",
            provenance: Provenance::Derived,
            limitations: &[],
        }
    }
}

impl<'a> From<&Record<'a>> for Event<'a> {
    fn from(record: &Record<'a>) -> Self {
        Self {
            entry: Some(record.entry),
            method: record.method,
            target: Some(record.target),
            verdict: Some(record.outcome),
            reason: Some(record.reason),
            rule: record.rule.map(RuleView::from),
            policy: Some(record.policy),
            server: record.server,
            injected: record.injected,
            addresses: Some(Addresses { client: record.client.address, upstream: record.upstream }),
            user: record.client.user.as_deref(),
            tunnel: record.tunnel,
            detail: record.detail,
            provenance: Provenance::WireObserved,
            limitations: match (record.target, record.tunnel) {
                (AskedFor::Shown(_), _) => &[Limitation::TargetNotRead],
                (_, Some(TunnelKind::Blind | TunnelKind::Upgraded)) => &[Limitation::TunnelContentNotObserved],
                (_, Some(TunnelKind::Inspected) | None) => &[],
            },
            ..Self::of(Kind::Decision)
        }
    }
}

/// What a client asked for, as records show it: never the text of a query, since queries carry secrets.
#[derive(Clone, Copy)]
pub(crate) enum AskedFor<'a> {
    /// A request.
    Url(&'a Target),
    /// A tunnel.
    Authority(&'a Authority),
    /// The addresses of a name.
    Name(&'a Host),
    /// What could not be read, in the form that may be shown.
    Shown(&'a (dyn fmt::Display + Sync)),
}

impl fmt::Debug for AskedFor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As the log shows it: a URL with the length of its query, `HOST:PORT`, or a name.
impl fmt::Display for AskedFor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = match self {
            Self::Url(target) => *target,
            Self::Authority(authority) => return authority.fmt(f),
            Self::Name(host) => return host.fmt(f),
            Self::Shown(text) => return text.fmt(f),
        };
        write!(f, "{}://{}", target.scheme(), target.host())?;
        if target.port() != target.scheme().default_port() {
            write!(f, ":{}", target.port())?;
        }
        f.write_str(target.path())?;
        match target.query() {
            Some(query) => write!(f, "?({} bytes)", query.len()),
            None => Ok(()),
        }
    }
}

impl Serialize for AskedFor<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::Url(target) => {
                map.serialize_entry("scheme", target.scheme().as_str())?;
                map.serialize_entry("host", target.host().as_str())?;
                map.serialize_entry("port", &target.port())?;
                map.serialize_entry("path", target.path())?;
                if let Some(query) = target.query() {
                    map.serialize_entry("query_bytes", &query.len())?;
                }
            }
            Self::Authority(authority) => {
                map.serialize_entry("host", authority.host().as_str())?;
                map.serialize_entry("port", &authority.port())?;
            }
            Self::Name(host) => map.serialize_entry("host", host.as_str())?,
            Self::Shown(text) => map.serialize_entry("shown", &Text(text))?,
        }
        map.end()
    }
}

/// The policy that something was decided by.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PolicyView<'a> {
    pub(crate) digest: &'a str,
    pub(crate) generation: u64,
    pub(crate) mode: &'static str,
}

impl<'a> PolicyView<'a> {
    pub(crate) fn of(snapshot: &'a Snapshot) -> Self {
        Self { digest: snapshot.policy.digest(), generation: snapshot.generation, mode: snapshot.mode().as_str() }
    }
}

/// The two ends of what happened.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Addresses {
    #[serde(serialize_with = "shown")]
    pub(crate) client: Address,
    /// Where the connection leads: to the server, or to the next proxy.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "shown_if")]
    pub(crate) upstream: Option<SocketAddr>,
}

/// Bytes of bodies, or of a tunnel.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Bytes {
    /// To the server.
    pub(crate) up: u64,
    /// To the client.
    pub(crate) down: u64,
}

/// The id of an event of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventIdOf<'a> {
    /// The session.
    pub(crate) session: &'a str,
    /// The event in it.
    pub(crate) event: EventId,
}

impl Serialize for EventIdOf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}-{}", self.session, self.event.0))
    }
}

struct Text<'a>(&'a (dyn fmt::Display + Sync));

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self.0)
    }
}

fn shown<S: Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn shown_if<S: Serializer>(value: &Option<impl fmt::Display>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

fn word<S: Serializer>(reason: &Option<Reason>, serializer: S) -> Result<S::Ok, S::Error> {
    reason.map(Reason::as_str).serialize(serializer)
}

fn tunnel<S: Serializer>(kind: &Option<TunnelKind>, serializer: S) -> Result<S::Ok, S::Error> {
    kind.map(TunnelKind::as_str).serialize(serializer)
}

fn names<S: Serializer>(names: &&[HeaderName], serializer: S) -> Result<S::Ok, S::Error> {
    let mut list = serializer.serialize_seq(Some(names.len()))?;
    for name in *names {
        list.serialize_element(name.as_str())?;
    }
    list.end()
}
