//! How long an answer is waited for.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use crate::listener::transit::Progress;
use crate::patience::Patience;

/// A wait for an answer: for as long as the request's body is under way, and then for a limit.
#[derive(Debug)]
pub(crate) struct Wait {
    limit: Duration,
    progress: Option<Arc<Progress>>,
    /// The end of the wait as it looks now, and how much of the body had been read when that was set.
    end: Option<(Instant, Option<u64>)>,
}

impl Wait {
    /// A wait of `limit` for the answer to a request whose body, if there is one, gets on as `progress` tells.
    pub(crate) const fn new(limit: Duration, progress: Option<Arc<Progress>>) -> Self {
        Self { limit, progress, end: None }
    }

    pub(super) const fn limit(&self) -> Duration {
        self.limit
    }

    /// Ready when the wait is over.
    pub(super) fn poll_over(&mut self, patience: &mut Patience, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let reads = || self.progress.as_deref().map(Progress::reads);
            let (deadline, before) = *self.end.get_or_insert_with(|| (patience.deadline(), reads()));
            ready!(patience.poll_over(deadline, cx));
            // In this order: a body that stops being waited for has moved by then.
            if !self.progress.as_deref().is_some_and(Progress::waits) && reads() == before {
                return Poll::Ready(());
            }
            self.end = None;
        }
    }

    /// Waits for `answer`; none if that takes too long.
    pub(super) async fn wait<T>(&mut self, answer: impl Future<Output = T>) -> Option<T> {
        let mut answer = pin!(answer);
        let mut patience = Patience::new(self.limit);
        poll_fn(|cx| match answer.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => self.poll_over(&mut patience, cx).map(|()| None),
        })
        .await
    }
}
