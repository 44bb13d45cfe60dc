//! What moves on a connection: when it last did, and what it waits for.
//!
//! A connection on which nothing moves is closed after a while, but only if the gateway waits for the client: because
//! it has no request, or because the client does not take an answer. Where an answer is still to come from upstream the
//! client has no part in the silence.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use crate::listener::http1::ResponseBody;
use crate::listener::transit::clean_trailers;

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
        Busy(Arc::clone(self))
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
pub(super) struct Busy(Arc<Activity>);

impl Clone for Busy {
    fn clone(&self) -> Self {
        self.0.begin()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
        self.0.touch();
    }
}

/// An answer on its way to the client.
#[derive(Debug)]
pub(super) struct Outbound {
    body: ResponseBody,
    busy: Busy,
    untaken: bool,
}

impl Outbound {
    pub(super) const fn new(body: ResponseBody, busy: Busy) -> Self {
        Self { body, busy, untaken: false }
    }

    fn set_untaken(&mut self, untaken: bool) {
        let streams = &self.busy.0.untaken;
        match (self.untaken, untaken) {
            (false, true) => drop(streams.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(streams.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
        self.untaken = untaken;
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        self.set_untaken(false);
    }
}

impl Body for Outbound {
    type Data = Bytes;
    type Error = hyper::Error;

    // Asked for the next frame when the client has taken the last one, as far as its window goes.
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        self.set_untaken(false);
        let mut frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            clean_trailers(trailers, &[]);
        }
        self.busy.0.touch();
        self.set_untaken(matches!(frame, Some(Ok(_))));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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
        let mut body = Outbound::new(ResponseBody::Empty, busy);
        body.set_untaken(true);
        assert!(activity.is_idle(TIME), "the client does not read");
        drop(body);
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
