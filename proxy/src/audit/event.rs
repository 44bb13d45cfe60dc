//! An event, in the words of `config/schemas/event.v1.schema.json`.
//!
//! What is here is the part that says what happened. In front of it the [`journal`](super::journal) puts what every
//! event has: schema, version, `event_id`, `session_id`, `sequence`, `timestamp` and `monotonic_offset_ms`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use exeat_policy::Reason;
use exeat_policy::host::Host;
use exeat_policy::target::{Authority, Target};
use http::HeaderName;

use super::json::{Object, decimal, escape, escape_shown, name, socket};
use super::{Entry, EventId, Outcome, Record};
use crate::client::Address;
use crate::snapshot::Snapshot;
use crate::tunnel::Kind as TunnelKind;
use crate::view::RuleView;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Kind {
    /// The word in events.
    const fn as_str(self) -> &'static str {
        match self {
            Self::SessionStarted => "session_started",
            Self::PolicyLoaded => "policy_loaded",
            Self::PolicyRejected => "policy_rejected",
            Self::Decision => "decision",
            Self::RequestCompleted => "request_completed",
            Self::TunnelClosed => "tunnel_closed",
            Self::Gap => "gap",
            Self::SessionEnded => "session_ended",
        }
    }
}

/// How an event is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provenance {
    /// From what was on the wire.
    WireObserved,
    /// From the gateway's own state.
    Derived,
}

impl Provenance {
    /// The word in events.
    const fn as_str(self) -> &'static str {
        match self {
            Self::WireObserved => "wire_observed",
            Self::Derived => "derived",
        }
    }
}

/// What an event cannot say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limitation {
    /// Which requests go through the tunnel is not seen.
    TunnelContentNotObserved,
    /// What was asked for could not be read, so it is text.
    TargetNotRead,
}

impl Limitation {
    /// The word in events.
    const fn as_str(self) -> &'static str {
        match self {
            Self::TunnelContentNotObserved => "tunnel_content_not_observed",
            Self::TargetNotRead => "target_not_read",
        }
    }
}

/// One event; what does not apply is left out.
#[derive(Debug)]
pub(crate) struct Event<'a> {
    pub(crate) kind: Kind,
    /// The program, when it starts.
    pub(crate) gateway: Option<&'static str>,
    /// The decision that this is the end of.
    pub(crate) decision_id: Option<EventIdOf<'a>>,
    pub(crate) entry: Option<Entry>,
    /// The method as sent.
    pub(crate) method: &'a str,
    pub(crate) target: Option<AskedFor<'a>>,
    pub(crate) verdict: Option<Outcome>,
    pub(crate) reason: Option<Reason>,
    /// The rule that decided.
    pub(crate) rule: Option<RuleView<'a>>,
    pub(crate) policy: Option<PolicyView<'a>>,
    pub(crate) server: Option<&'a str>,
    /// The names of the fields that were put on.
    pub(crate) injected: &'a [HeaderName],
    pub(crate) addresses: Option<Addresses>,
    /// Who the client has shown itself to be.
    pub(crate) user: Option<&'a str>,
    /// What kind of tunnel.
    pub(crate) tunnel: Option<TunnelKind>,
    /// The status of the answer.
    pub(crate) status: Option<u16>,
    /// Why it ended.
    pub(crate) cause: Option<&'static str>,
    pub(crate) bytes: Option<Bytes>,
    pub(crate) duration_ms: Option<u64>,
    /// How many events are missing.
    pub(crate) dropped: Option<u64>,
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

impl Event<'_> {
    /// Writes it as an object, in place of whatever `out` held.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        let mut object = Object::begin(out);
        object.plain(name!("kind"), self.kind.as_str());
        object.text_if(name!("gateway"), self.gateway);
        if let Some(decision) = self.decision_id {
            object.quoted(name!("decision_id"), |out| {
                escape(out, decision.session);
                out.push(b'-');
                decimal(out, decision.event.0);
            });
        }
        object.plain_if(name!("entry"), self.entry.map(Entry::as_str));
        object.text_if(name!("method"), (!self.method.is_empty()).then_some(self.method));
        if let Some(target) = self.target {
            object.object(name!("target"), |object| target.write(object));
        }
        object.plain_if(name!("verdict"), self.verdict.map(Outcome::as_str));
        object.plain_if(name!("reason"), self.reason.map(Reason::as_str));
        if let Some(RuleView { layer, list, pattern, file, line, column }) = self.rule {
            object.object(name!("rule"), |object| {
                object.text(name!("layer"), layer);
                object.plain(name!("list"), list);
                object.text(name!("pattern"), pattern);
                object.text(name!("file"), file);
                object.number(name!("line"), line.into());
                object.number(name!("column"), column.into());
            });
        }
        if let Some(PolicyView { digest, generation, mode }) = self.policy {
            object.object(name!("policy"), |object| {
                object.plain(name!("digest"), digest);
                object.number(name!("generation"), generation);
                object.plain(name!("mode"), mode);
            });
        }
        object.text_if(name!("server"), self.server);
        if !self.injected.is_empty() {
            object.list(name!("injected"), self.injected.iter().map(HeaderName::as_str));
        }
        if let Some(Addresses { client, upstream }) = self.addresses {
            object.object(name!("addresses"), |object| {
                object.quoted(name!("client"), |out| show_client(out, client));
                if let Some(upstream) = upstream {
                    object.quoted(name!("upstream"), |out| socket(out, upstream));
                }
            });
        }
        object.text_if(name!("user"), self.user);
        object.plain_if(name!("tunnel"), self.tunnel.map(TunnelKind::as_str));
        object.number_if(name!("status"), self.status.map(u64::from));
        object.plain_if(name!("cause"), self.cause);
        if let Some(Bytes { up, down }) = self.bytes {
            object.object(name!("bytes"), |object| {
                object.number(name!("up"), up);
                object.number(name!("down"), down);
            });
        }
        object.number_if(name!("duration_ms"), self.duration_ms);
        object.number_if(name!("dropped"), self.dropped);
        object.text_if(name!("detail"), (!self.detail.is_empty()).then_some(self.detail));
        object.plain(name!("provenance"), self.provenance.as_str());
        object.list(name!("limitations"), self.limitations.iter().map(|limitation| limitation.as_str()));
        object.end();
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
        write!(f, "{}://{}{}", target.scheme(), target.short_authority(), target.path())?;
        match target.query() {
            Some(query) => write!(f, "?({} bytes)", query.len()),
            None => Ok(()),
        }
    }
}

impl AskedFor<'_> {
    /// Writes it as [`Display`](fmt::Display) shows it, between quotes.
    pub(super) fn show(self, out: &mut Vec<u8>) {
        let Self::Url(target) = self else { return escape_shown(out, self) };
        let scheme = target.scheme();
        escape(out, scheme.as_str());
        out.extend_from_slice(b"://");
        match target.host().ip() {
            Some(IpAddr::V6(_)) => escape_shown(out, target.host()),
            Some(IpAddr::V4(_)) | None => escape(out, target.host().as_str()),
        }
        if target.port() != scheme.default_port() {
            out.push(b':');
            decimal(out, target.port().into());
        }
        escape(out, target.path());
        if let Some(query) = target.query() {
            out.extend_from_slice(b"?(");
            decimal(out, query.len() as u64);
            out.extend_from_slice(b" bytes)");
        }
    }

    fn write(self, object: &mut Object<'_>) {
        match self {
            Self::Url(target) => {
                object.plain(name!("scheme"), target.scheme().as_str());
                object.text(name!("host"), target.host().as_str());
                object.number(name!("port"), target.port().into());
                object.text(name!("path"), target.path());
                object.number_if(name!("query_bytes"), target.query().map(|query| query.len() as u64));
            }
            Self::Authority(authority) => {
                object.text(name!("host"), authority.host().as_str());
                object.number(name!("port"), authority.port().into());
            }
            Self::Name(host) => object.text(name!("host"), host.as_str()),
            Self::Shown(text) => object.shown(name!("shown"), text),
        }
    }
}

/// The policy that something was decided by.
#[derive(Clone, Copy, Debug)]
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
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) client: Address,
    /// Where the connection leads: to the server, or to the next proxy.
    pub(crate) upstream: Option<SocketAddr>,
}

/// Bytes of bodies, or of a tunnel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes {
    /// To the server.
    pub(crate) up: u64,
    /// To the client.
    pub(crate) down: u64,
}

/// Writes where a client is, as [`Address`] shows it.
pub(super) fn show_client(out: &mut Vec<u8>, client: Address) {
    match client {
        Address::Tcp(address) => {
            out.extend_from_slice(b"tcp ");
            socket(out, address);
        }
        Address::Unix { .. } | Address::Inner(_) => escape_shown(out, client),
    }
}

/// The id of an event of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventIdOf<'a> {
    /// The session.
    pub(crate) session: &'a str,
    /// The event in it.
    pub(crate) event: EventId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_and_by_whom_is_written_as_it_is_shown() {
        let written = |fill: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            fill(&mut out);
            String::from_utf8(out).unwrap()
        };
        for url in ["http://a.test/", "https://a.test:8443/x/y?z=1", "http://[2001:db8::1]:81/", "https://1.2.3.4/"] {
            let target = Target::parse(url).unwrap();
            let asked = AskedFor::Url(&target);
            assert_eq!(written(&|out| asked.show(out)), asked.to_string());
        }
        let authority = Authority::parse("[2001:db8::1]:443").unwrap();
        let (host, quoted) = ("a.test".parse().unwrap(), "\"a\\\n\"");
        for asked in [AskedFor::Authority(&authority), AskedFor::Name(&host)] {
            assert_eq!(written(&|out| asked.show(out)), asked.to_string());
        }
        assert_eq!(written(&|out| AskedFor::Shown(&quoted).show(out)), r#"\"a\\\n\""#);
        for client in [
            Address::Tcp("127.0.0.1:1".parse().unwrap()),
            Address::Tcp("[::1]:65535".parse().unwrap()),
            Address::Unix { uid: 7, pid: Some(9) },
            Address::Unix { uid: 7, pid: None },
        ] {
            assert_eq!(written(&|out| show_client(out, client)), client.to_string());
        }
    }
}
