//! The end of what a decision let out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use exeat_policy::Reason;

use super::event::{Addresses, Bytes, Event, EventIdOf, Kind, Provenance};
use super::{Audit, Entry, EventId, Record};
use crate::client::Address;
use crate::tunnel::{Cause, Kind as TunnelKind};

/// A request or a tunnel that is under way. When it is dropped, its end is taken down.
#[derive(Debug)]
pub(crate) struct Ending {
    audit: Audit,
    decision: Option<EventId>,
    entry: Entry,
    client: Address,
    tunnel: Option<TunnelKind>,
    began: Instant,
    /// Where the connection leads.
    pub(crate) upstream: Option<SocketAddr>,
    /// Bytes from the client, counted as they go by.
    pub(crate) up: Arc<AtomicU64>,
    /// Bytes to the client.
    pub(crate) down: u64,
    /// The status of the answer.
    pub(crate) status: Option<u16>,
    reason: Option<Reason>,
    cause: &'static str,
}

impl Ending {
    /// What began with a decision.
    pub(super) fn new(audit: &Audit, record: &Record<'_>, decision: Option<EventId>, began: Instant) -> Self {
        Self {
            audit: audit.clone(),
            decision,
            entry: record.entry,
            client: record.client.address,
            tunnel: record.tunnel,
            began,
            upstream: record.upstream,
            up: Arc::default(),
            down: 0,
            status: None,
            reason: None,
            cause: "broken_off",
        }
    }

    /// It became no tunnel after all.
    pub(crate) const fn no_tunnel(&mut self) {
        self.tunnel = None;
    }

    /// The answer has been read to its end.
    pub(crate) const fn completed(&mut self) {
        self.cause = "completed";
    }

    /// It could not be served.
    pub(crate) const fn failed(&mut self, reason: Reason) {
        (self.cause, self.reason) = ("failed", Some(reason));
    }

    /// The tunnel is over.
    pub(crate) fn closed(mut self, cause: Cause, up: u64, down: u64) {
        self.cause = cause.as_str();
        self.down = down;
        self.up.store(up, Ordering::Relaxed);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let now = Instant::now();
        let decision_id = self.decision.map(|event| EventIdOf { session: self.audit.0.sequence.id(), event });
        // What goes through an inspected tunnel belongs to the requests in it.
        let own = self.tunnel != Some(TunnelKind::Inspected);
        let event = Event {
            decision_id,
            entry: Some(self.entry),
            addresses: Some(Addresses { client: self.client, upstream: self.upstream }),
            tunnel: self.tunnel,
            status: self.status,
            reason: self.reason,
            cause: Some(self.cause),
            bytes: own.then(|| Bytes { up: self.up.load(Ordering::Relaxed), down: self.down }),
            duration_ms: Some(u64::try_from(now.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX)),
            provenance: Provenance::WireObserved,
            ..Event::of(if self.tunnel.is_some() { Kind::TunnelClosed } else { Kind::RequestCompleted })
        };
        self.audit.note_end(&event, now);
    }
}
