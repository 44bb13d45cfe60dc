//! Waiting for no longer than a while, over and over.
//!
//! A timer that is set for every wait and cancelled at its end costs more than most waits are worth. This one is left
//! to run: where it goes off and the wait that it was set for is over, it is set anew for the one under way.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// A bound on each of many waits, which come one after the other.
#[derive(Debug)]
pub(crate) struct Patience {
    limit: Duration,
    /// Never set for later than the wait under way lasts.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    /// Waits of `limit` at most.
    pub(crate) const fn new(limit: Duration) -> Self {
        Self { limit, timer: None }
    }

    /// How long each wait may last.
    pub(crate) const fn limit(&self) -> Duration {
        self.limit
    }

    /// When a wait that begins now is to end.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.limit
    }

    /// Ready when `deadline` has come; it is one of [`Patience::deadline`], and none was asked about that is later.
    pub(crate) fn poll_over(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
    }

    /// Waits for `done`; none if that takes too long.
    pub(crate) async fn wait<T>(&mut self, done: impl Future<Output = T>) -> Option<T> {
        let mut done = pin!(done);
        let mut deadline = None;
        poll_fn(|cx| {
            if let Poll::Ready(done) = done.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            let deadline = *deadline.get_or_insert_with(|| self.deadline());
            self.poll_over(deadline, cx).map(|()| None)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::{advance, sleep};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn each_wait_has_the_whole_limit() {
        let mut patience = Patience::new(LIMIT);
        assert_eq!(patience.wait(ready(1)).await, Some(1));
        for _ in 0..5 {
            let done = sleep(Duration::from_secs(59));
            assert_eq!(patience.wait(done).await, Some(()));
        }
        let began = Instant::now();
        assert_eq!(patience.wait(pending::<()>()).await, None);
        assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs());
        advance(LIMIT * 3).await;
        let began = Instant::now();
        assert_eq!(patience.wait(pending::<()>()).await, None);
        assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs());
    }
}
