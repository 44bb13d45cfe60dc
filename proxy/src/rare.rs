//! Waiting for what hardly ever happens, beside what happens all the time.
//!
//! A task that waits for several things asks about each of them whenever it is woken, and most of them have nothing new
//! to say. What is wrapped here is asked only when it has woken somebody itself.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// A future that is polled only when it has woken its task.
pub(crate) struct Rare<F> {
    future: Pin<Box<F>>,
    bell: Arc<Bell>,
    waker: Waker,
}

struct Bell {
    rung: AtomicBool,
    task: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl<F> Rare<F> {
    /// Wraps `future`, which is polled once to begin with.
    pub(crate) fn new(future: F) -> Self {
        let bell = Arc::new(Bell { rung: AtomicBool::new(true), task: AtomicWaker::new() });
        let waker = Waker::from(Arc::clone(&bell));
        Self { future: Box::pin(future), bell, waker }
    }
}

impl<F: Future> Future for Rare<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // In this order: whoever rings in between wakes the task.
        self.bell.task.register(cx.waker());
        if !self.bell.rung.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let Self { future, waker, .. } = &mut *self;
        future.as_mut().poll(&mut Context::from_waker(waker))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn it_is_asked_when_it_has_something_to_say() {
        let (asked, news) = (AtomicUsize::new(0), Notify::new());
        let mut twice = std::pin::pin!(async {
            news.notified().await;
            news.notified().await;
        });
        let mut rare = Rare::new(poll_fn(|cx| {
            asked.fetch_add(1, Ordering::Relaxed);
            twice.as_mut().poll(cx)
        }));
        let asked = || asked.load(Ordering::Relaxed);
        for _ in 0..10 {
            assert!(futures_util::poll!(&mut rare).is_pending());
        }
        assert_eq!(asked(), 1);
        news.notify_one();
        assert!(futures_util::poll!(&mut rare).is_pending());
        assert!(futures_util::poll!(&mut rare).is_pending());
        assert_eq!(asked(), 2);
        let (_, ()) = tokio::join!(async { news.notify_one() }, rare);
        assert_eq!(asked(), 3);
    }
}
