//! What every request body goes through on its way, whatever version of HTTP it came in.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use http_body::Frame;
use tokio::time::{Sleep, sleep};

use super::http1::chunked::is_forbidden_trailer;
use crate::quota::Meter;

/// How a body gets on.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    reads: AtomicU64,
    waits: AtomicBool,
}

impl Progress {
    /// A number that changes when something of the body arrives.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Acquire)
    }

    /// Whether the body waits for its client, who has a time limit for it, and not for upstream to take it.
    pub(crate) fn waits(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }
}

/// The fault of a body that is more than its session may send.
pub(crate) const USED_UP: &str = "the session has used up its bytes";

/// What a client did wrong in a body; the error of a request body wraps it.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BodyFault(pub(crate) &'static str);

/// A body under way: counted, its trailers cleaned, and its client given up when nothing comes.
#[derive(Debug)]
pub(crate) struct Transit {
    pub(super) meter: Option<Meter>,
    pub(super) withheld: Vec<HeaderName>,
    pub(super) progress: Arc<Progress>,
    /// How long the client may send nothing, and until when it may now.
    patience: Duration,
    stall: Option<Pin<Box<Sleep>>>,
}

impl Transit {
    /// A client that sends nothing for `patience` while its body is waited for has given up.
    pub(crate) fn new(patience: Duration) -> Self {
        Self { meter: None, withheld: Vec::new(), progress: Arc::default(), patience, stall: None }
    }

    /// Takes note of what came of waiting for the client.
    ///
    /// # Errors
    /// It has waited too long.
    pub(crate) fn arrived<T>(&mut self, arrived: Poll<T>, cx: &mut Context<'_>) -> Poll<Result<T, BodyFault>> {
        self.progress.waits.store(arrived.is_pending(), Ordering::Relaxed);
        let Poll::Ready(arrived) = arrived else {
            let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(self.patience)));
            ready!(stall.as_mut().poll(cx));
            // Whoever waits for upstream hears of this next, and is not to give up upstream at the same moment.
            self.progress.reads.fetch_add(1, Ordering::Release);
            self.ended();
            return Poll::Ready(Err(BodyFault("the body stopped arriving")));
        };
        self.stall = None;
        self.progress.reads.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Ok(arrived))
    }

    /// Nothing more is waited for.
    pub(crate) fn ended(&self) {
        self.progress.waits.store(false, Ordering::Release);
    }

    /// Counts a frame, and cleans it if it is one of trailers.
    ///
    /// # Errors
    /// The session has used up its bytes.
    pub(crate) fn pass(&self, frame: &mut Frame<Bytes>) -> Result<(), BodyFault> {
        if let (Some(meter), Some(data)) = (&self.meter, frame.data_ref())
            && !meter.count(data.len())
        {
            return Err(BodyFault(USED_UP));
        }
        if let Some(trailers) = frame.trailers_mut() {
            clean_trailers(trailers, &self.withheld);
        }
        Ok(())
    }
}

/// Removes what has no place among trailers, and the fields that could be taken for one of `names`.
pub(crate) fn clean_trailers(trailers: &mut HeaderMap, names: &[HeaderName]) {
    let unfit = |name: &&HeaderName| is_forbidden_trailer(name) || names.iter().any(|other| are_alike(name, other));
    for name in trailers.keys().filter(unfit).cloned().collect::<Vec<_>>() {
        trailers.remove(name);
    }
}

/// Whether two names are one to servers that hand fields to programs as variables, where `-` becomes `_` (RFC 3875
/// section 4.1.18).
pub(crate) fn are_alike(one: &HeaderName, other: &HeaderName) -> bool {
    let folded = |byte: u8| if byte == b'_' { b'-' } else { byte };
    one.as_str().bytes().map(folded).eq(other.as_str().bytes().map(folded))
}
