//! Waiting for conditions with a deadline.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// How long anything may take before a test gives up. Generous, since two cores may be busy with other tests.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// How long a program may take that starts an interpreter or a build of its own.
pub const PROGRAM_DEADLINE: Duration = Duration::from_secs(90);

/// How often a condition that nothing announces (a file, a counter in another process) is looked at again.
const POLL: Duration = Duration::from_millis(10);

/// Awaits `future`; panics with `what` when it has not come within [`DEADLINE`].
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    within_time(DEADLINE, what, future).await
}

/// Awaits `future`; panics with `what` when it has not come within `limit`.
pub async fn within_time<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(limit, future).await.unwrap_or_else(|_| panic!("timed out waiting for {what}"))
}

/// Asks `probe` again and again until it answers; panics with `what` when it has not within [`DEADLINE`]. For state of
/// other processes, which cannot tell us when it changes.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut probe: impl FnMut() -> F) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "timed out waiting for {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Reads a counter until it has not moved for fifty looks, and returns it: how far a stalled transfer has got.
pub async fn settled(mut read: impl FnMut() -> u64) -> u64 {
    let (mut last, mut still) = (read(), 0);
    let counter = async {
        while still < 50 {
            tokio::time::sleep(POLL).await;
            let now = read();
            still = if now == last { still + 1 } else { 0 };
            last = now;
        }
        last
    };
    within("a counter to settle", counter).await
}

/// A list that grows, with readers that wait for it to hold what they look for.
#[derive(Clone, Debug)]
pub struct Journal<T> {
    entries: Arc<Mutex<Vec<T>>>,
    changed: watch::Sender<u64>,
}

impl<T: Clone> Default for Journal<T> {
    fn default() -> Self {
        Self { entries: Arc::default(), changed: watch::Sender::new(0) }
    }
}

impl<T: Clone> Journal<T> {
    /// Appends an entry and returns its index.
    pub fn push(&self, entry: T) -> usize {
        let mut entries = self.entries.lock().unwrap();
        entries.push(entry);
        let index = entries.len() - 1;
        drop(entries);
        self.changed.send_modify(|count| *count += 1);
        index
    }

    /// Changes the entry at `index`.
    pub fn update(&self, index: usize, change: impl FnOnce(&mut T)) {
        change(&mut self.entries.lock().unwrap()[index]);
        self.changed.send_modify(|count| *count += 1);
    }

    /// A copy of all entries.
    #[must_use]
    pub fn all(&self) -> Vec<T> {
        self.entries.lock().unwrap().clone()
    }

    /// Waits until `condition` holds for the entries, and returns them.
    pub async fn when(&self, what: &str, condition: impl Fn(&[T]) -> bool) -> Vec<T> {
        self.when_within(DEADLINE, what, condition).await
    }

    /// As [`Journal::when`], with a limit of its own.
    pub async fn when_within(&self, limit: Duration, what: &str, condition: impl Fn(&[T]) -> bool) -> Vec<T> {
        let mut changes = self.changed.subscribe();
        let found = async {
            loop {
                changes.borrow_and_update();
                let entries = self.all();
                if condition(&entries) {
                    return entries;
                }
                changes.changed().await.expect("the journal lives as long as its reader");
            }
        };
        within_time(limit, what, found).await
    }
}
