//! What was decided, told once: one counter step, one event and one log line a decision, with the same reason.
//!
//! An [`Event`] is what machines keep: a line of JSON of a published schema, numbered without a gap in its session. The
//! [`Journal`] numbers events, writes them to their file and passes them on; its [`Feed`] holds the latest, for whoever
//! looks in or listens. What is let out goes only when its event is written ([`Audit::permit`]), and has an [`Ending`].
//! The log line is for people.

mod clock;
mod ending;
mod event;
mod feed;
mod file;
mod journal;
mod json;
pub(crate) mod log;
mod sync;
mod words;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use exeat_policy::{Reason, RuleRef};
use http::HeaderName;

pub(crate) use ending::Ending;
pub(crate) use event::{AskedFor, Event, PolicyView};
pub(crate) use feed::Feed;
use journal::{EventId, Need, Sequence, Written};
pub(crate) use journal::{Journal, JournalError};
pub(crate) use words::{Entry, Outcome};

use crate::client::Client;
use crate::metrics::Metrics;
use crate::snapshot::Snapshot;
use crate::tally::Tally;
use crate::tunnel::Kind as TunnelKind;

/// One decision.
pub(crate) struct Record<'a> {
    /// Which way the request came in.
    pub(crate) entry: Entry,
    /// Who asked.
    pub(crate) client: &'a Client,
    /// The method as sent.
    pub(crate) method: &'a str,
    /// What was asked for.
    pub(crate) target: AskedFor<'a>,
    /// What became of it.
    pub(crate) outcome: Outcome,
    /// Why.
    pub(crate) reason: Reason,
    /// The rule that decided.
    pub(crate) rule: Option<RuleRef<'a>>,
    /// The policy.
    pub(crate) policy: PolicyView<'a>,
    /// The MCP server or injected prefix that the request belongs to.
    pub(crate) server: Option<&'a str>,
    /// The names of the fields that were put on it.
    pub(crate) injected: &'a [HeaderName],
    /// The address at the other end of the connection that it goes out by.
    pub(crate) upstream: Option<SocketAddr>,
    /// What it opens, if it is a tunnel that is opened.
    pub(crate) tunnel: Option<TunnelKind>,
    /// What else there is to say, for people with access to the log.
    pub(crate) detail: &'a str,
}

/// Takes decisions down.
#[derive(Clone, Debug)]
pub(crate) struct Audit(Arc<Desk>);

#[derive(Debug)]
struct Desk {
    metrics: Arc<Metrics>,
    tally: Option<Arc<Tally>>,
    journal: Arc<Journal>,
    /// The events of the session.
    sequence: Sequence,
    /// Whether decisions are logged.
    log: bool,
}

/// A request may not go out, since its event is not where it has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unrecorded {
    /// The event could not be written: nothing of the decision has been taken down.
    NotWritten,
    /// The event could not be synced: the decision has been taken down.
    NotSynced,
}

impl Audit {
    /// The audit of the session called `session`, which begins. It counts in `metrics`, adds up in `tally` where that is
    /// wanted, and logs what it takes down if `log` says so.
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        tally: Option<Arc<Tally>>,
        journal: Arc<Journal>,
        session: &str,
        log: bool,
    ) -> Self {
        let audit = Self(Arc::new(Desk { metrics, tally, journal, sequence: Sequence::begin(session), log }));
        let gateway = concat!("exeat/", env!("CARGO_PKG_VERSION"));
        audit.note(&Event { gateway: Some(gateway), ..Event::of(event::Kind::SessionStarted) });
        audit
    }

    /// The audit of another session, which begins. Its events go where these do, and what it decides is counted there too.
    pub(crate) fn of_session(&self, session: &str) -> Self {
        let Desk { metrics, tally, journal, log, .. } = &*self.0;
        Self::new(Arc::clone(metrics), tally.clone(), Arc::clone(journal), session, *log)
    }

    /// The latest events, and those to come.
    pub(crate) fn feed(&self) -> &Feed {
        self.0.journal.feed()
    }

    /// Takes down a decision after which nothing goes out, or which comes too late for anything to depend on it.
    pub(crate) fn record(&self, record: &Record<'_>) {
        self.note(&Event::from(record));
        self.count(record);
    }

    /// Takes down a decision to let something out, which may happen if this succeeds. Where the end of it is wanted, that
    /// is taken down when what is returned is dropped.
    ///
    /// # Errors
    /// The event is not where it has to be, and nothing may go out.
    ///
    /// # Cancel safety
    /// When the future is dropped, the decision may have been taken down and may not.
    pub(crate) async fn permit(&self, record: &Record<'_>) -> Result<Option<Box<Ending>>, Unrecorded> {
        let Desk { journal, sequence, .. } = &*self.0;
        let now = Instant::now();
        let decision = match journal.write(sequence, &Event::from(record), Need::Before, now) {
            Written::Refused => return Err(Unrecorded::NotWritten),
            Written::Kept(id) => Some(id),
            Written::Missing => None,
            Written::Syncing(id, synced) => {
                self.count(record);
                // The one who syncs ends only with the gateway.
                if !synced.await.unwrap_or(false) {
                    return Err(Unrecorded::NotSynced);
                }
                return Ok(Some(Box::new(Ending::new(self, record, Some(id), now))));
            }
        };
        self.count(record);
        Ok(journal.wants_ends().then(|| Box::new(Ending::new(self, record, decision, now))))
    }

    fn count(&self, record: &Record<'_>) {
        let Desk { metrics, tally, log: logs, .. } = &*self.0;
        metrics.count_decision(record.entry, record.outcome, record.reason);
        let rule = record.rule.map(|rule| log::Place(rule.rule));
        if let Some(tally) = tally {
            tally.add(record, rule.as_ref().map(ToString::to_string));
        }
        if *logs {
            log::write(record, rule.as_ref());
        }
    }

    /// Takes down that a policy is in force.
    pub(crate) fn policy_loaded(&self, snapshot: &Snapshot) {
        let policy = Some(PolicyView::of(snapshot));
        self.note(&Event { policy, ..Event::of(event::Kind::PolicyLoaded) });
    }

    /// Takes down that files could not be loaded and the policy that was in force still is.
    pub(crate) fn policy_rejected(&self, still: &Snapshot, why: &str) {
        let event = Event::of(event::Kind::PolicyRejected);
        self.note(&Event { policy: Some(PolicyView::of(still)), detail: why, ..event });
    }

    /// Takes down that the session is over.
    pub(crate) fn ended(&self) {
        self.note(&Event::of(event::Kind::SessionEnded));
    }

    /// Has the file of events opened anew if it was renamed or removed.
    pub(crate) fn reopen(&self) {
        self.0.journal.reopen();
    }

    /// Has what may be written later written soon, for as long as it is polled.
    pub(crate) async fn keep_up(self) {
        self.0.journal.keep_up().await;
    }

    fn note(&self, event: &Event<'_>) {
        self.0.journal.write(&self.0.sequence, event, Need::After, Instant::now());
    }

    fn note_end(&self, event: &Event<'_>, now: Instant) {
        self.0.journal.write(&self.0.sequence, event, Need::Later, now);
    }
}

#[cfg(test)]
mod tests;
