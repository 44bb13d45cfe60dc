//! What moves on a connection: when it last did, and what it waits for.
//!
//! A connection on which nothing moves is closed after a while, but only if the gateway waits for the client: because
//! it has no request, or because the client does not take an answer. Where an answer is still to come from upstream the
//! client has no part in the silence.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::frames::Fault;

/// Faults that wait to be taken down.
const MAX_FAULTS: usize = 256;
/// Streams that are remembered as not accepted: those that a client resets at once are not.
const MAX_UNACCEPTED: usize = 2048;

/// The activity of one connection.
#[derive(Debug)]
pub(super) struct Activity {
    began: Instant,
    /// When something moved last, in milliseconds since it began.
    moved: AtomicU64,
    /// When the header section began that is still arriving, in the same unit and plus one; 0 for none.
    arriving: AtomicU64,
    /// Streams under way.
    busy: AtomicUsize,
    /// Streams whose client has not taken what it was given.
    untaken: AtomicUsize,
    /// Streams that the client has opened and that were neither accepted nor answered.
    unaccepted: Mutex<HashSet<u32>>,
    faults: Mutex<Vec<Fault>>,
    has_faults: Notify,
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            moved: AtomicU64::new(0),
            // The client's settings are still to come.
            arriving: AtomicU64::new(1),
            busy: AtomicUsize::new(0),
            untaken: AtomicUsize::new(0),
            unaccepted: Mutex::default(),
            faults: Mutex::default(),
            has_faults: Notify::new(),
        }
    }
}

impl Activity {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn touch(&self) {
        self.moved.store(self.now(), Ordering::Relaxed);
    }

    fn is_past(&self, moment: u64, time: Duration) -> bool {
        u128::from(self.now().saturating_sub(moment)) >= time.as_millis()
    }

    /// A stream begins.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        self.touch();
        Busy { activity: Arc::clone(self), untaken: AtomicBool::new(false) }
    }

    fn faults(&self) -> MutexGuard<'_, Vec<Fault>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client opens a stream.
    pub(super) fn opened(&self, stream: u32) {
        let mut unaccepted = self.unaccepted.lock().unwrap_or_else(PoisonError::into_inner);
        if unaccepted.len() < MAX_UNACCEPTED {
            unaccepted.insert(stream);
        }
    }

    /// A stream was accepted or answered; tells whether it had been neither.
    pub(super) fn settle(&self, stream: u32) -> bool {
        self.unaccepted.lock().unwrap_or_else(PoisonError::into_inner).remove(&stream)
    }

    /// Something was seen that has to be answered for.
    pub(super) fn note(&self, fault: Fault) {
        let mut faults = self.faults();
        if faults.len() < MAX_FAULTS {
            faults.push(fault);
        }
        drop(faults);
        self.has_faults.notify_one();
    }

    /// The next fault.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(super) async fn fault(&self) -> Fault {
        loop {
            let fault = self.faults().pop();
            if let Some(fault) = fault {
                return fault;
            }
            self.has_faults.notified().await;
        }
    }

    /// The faults that nobody has asked for yet.
    pub(super) fn rest(&self) -> Vec<Fault> {
        std::mem::take(&mut *self.faults())
    }

    /// A header section begins to arrive.
    pub(super) fn section_begins(&self) {
        self.arriving.store(self.now() + 1, Ordering::Relaxed);
    }

    /// A header section has arrived.
    pub(super) fn section_ends(&self) {
        self.arriving.store(0, Ordering::Relaxed);
    }

    /// Whether a header section takes longer than `time` to arrive.
    pub(super) fn is_slow(&self, time: Duration) -> bool {
        match self.arriving.load(Ordering::Relaxed) {
            0 => false,
            since => self.is_past(since - 1, time),
        }
    }

    /// Whether nothing has moved for `time`, and the gateway waits for the client.
    pub(super) fn is_idle(&self, time: Duration) -> bool {
        let waits_for_client = self.busy.load(Ordering::Relaxed) == 0 || self.untaken.load(Ordering::Relaxed) > 0;
        waits_for_client && self.is_past(self.moved.load(Ordering::Relaxed), time)
    }
}

/// A stream that is under way.
#[derive(Debug)]
pub(super) struct Busy {
    activity: Arc<Activity>,
    untaken: AtomicBool,
}

impl Busy {
    /// The stream's client does not take what it is given, or does again.
    pub(super) fn set_untaken(&self, untaken: bool) {
        match (self.untaken.swap(untaken, Ordering::Relaxed), untaken) {
            (false, true) => drop(self.activity.untaken.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.activity.untaken.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
        self.activity.touch();
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.set_untaken(false);
        self.activity.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_when_it_waits_for_the_client() {
        let activity = Arc::new(Activity::default());
        let past = || tokio::time::advance(TIME);
        past().await;
        assert!(activity.is_idle(TIME), "no request came");
        let busy = activity.begin();
        assert!(!activity.is_idle(TIME));
        past().await;
        assert!(!activity.is_idle(TIME), "upstream is to answer");
        busy.set_untaken(true);
        past().await;
        assert!(activity.is_idle(TIME), "the client does not read");
        drop(busy);
        assert!(!activity.is_idle(TIME), "a stream ended just now");
        past().await;
        assert!(activity.is_idle(TIME));
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_section_is_slow_after_its_time() {
        let activity = Activity::default();
        tokio::time::advance(TIME).await;
        assert!(activity.is_slow(TIME), "no settings came");
        activity.section_ends();
        assert!(!activity.is_slow(TIME));
        activity.section_begins();
        tokio::time::advance(TIME / 2).await;
        assert!(!activity.is_slow(TIME));
        tokio::time::advance(TIME / 2).await;
        assert!(activity.is_slow(TIME));
    }
}
