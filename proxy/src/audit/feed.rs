//! The latest events, for whoever looks in, and those to come, for whoever listens.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::broadcast;

/// How many events are held.
const HELD: usize = 1024;
/// How many events a listener may be behind before it misses some.
const BEHIND: usize = 1024;

/// Holds the latest events as lines, each a JSON object with a line end, and hands on new ones.
#[derive(Debug)]
pub(crate) struct Feed {
    latest: Mutex<Latest>,
    live: broadcast::Sender<Bytes>,
}

/// The latest lines, one behind the other.
#[derive(Debug, Default)]
struct Latest {
    bytes: VecDeque<u8>,
    lengths: VecDeque<usize>,
}

impl Default for Feed {
    fn default() -> Self {
        let (live, _) = broadcast::channel(BEHIND);
        Self { latest: Mutex::default(), live }
    }
}

impl Feed {
    /// Takes a line in.
    pub(super) fn push(&self, line: &[u8]) {
        let mut latest = self.latest();
        if latest.lengths.len() == HELD
            && let Some(length) = latest.lengths.pop_front()
        {
            latest.bytes.drain(..length);
        }
        latest.bytes.extend(line);
        latest.lengths.push_back(line.len());
        // Under the lock, so that who begins to listen misses nothing and hears nothing twice.
        if self.live.receiver_count() > 0 {
            let _ = self.live.send(Bytes::copy_from_slice(line));
        }
    }

    /// The latest lines, the oldest first, and all that follow them. A listener that falls behind is told how many it
    /// has missed ([`broadcast::error::RecvError::Lagged`]).
    pub(crate) fn follow(&self) -> (Vec<Bytes>, broadcast::Receiver<Bytes>) {
        let mut latest = self.latest();
        let Latest { bytes, lengths } = &mut *latest;
        let mut all = Bytes::copy_from_slice(bytes.make_contiguous());
        (lengths.iter().map(|length| all.split_to(*length)).collect(), self.live.subscribe())
    }

    /// Whether somebody listens.
    pub(super) fn has_listeners(&self) -> bool {
        self.live.receiver_count() > 0
    }

    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_listens_gets_the_latest_and_then_each_once() {
        let feed = Feed::default();
        for number in 0..HELD + 2 {
            feed.push(number.to_string().as_bytes());
        }
        let (latest, mut live) = feed.follow();
        assert_eq!((latest.len(), &latest[0][..], &latest[HELD - 1][..]), (HELD, &b"2"[..], &b"1025"[..]));
        feed.push(b"next");
        assert_eq!(&live.recv().await.unwrap()[..], b"next");
        assert!(live.is_empty());
        let (latest, _) = feed.follow();
        assert_eq!(latest.last().unwrap(), "next");
    }
}
