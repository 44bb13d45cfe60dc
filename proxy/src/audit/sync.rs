//! Syncing the file of events: one thread syncs for all who wait.
//!
//! While it syncs, others write and begin to wait; the next sync is for all of them. So the number of syncs is bounded
//! by what the disk can do and not by the number of requests.

use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use tokio::sync::oneshot;

/// Whether what was written has been synced; without an answer it has not.
pub(super) type Synced = oneshot::Receiver<bool>;

/// What is to be synced next.
#[derive(Debug, Default)]
struct Due {
    file: Option<Arc<File>>,
    waiting: Vec<oneshot::Sender<bool>>,
    over: bool,
}

/// The thread's end of what is due and the writers'.
#[derive(Debug, Default)]
struct Desk {
    due: Mutex<Due>,
    news: Condvar,
}

/// Syncs in a thread of its own, which ends with it.
#[derive(Debug)]
pub(super) struct Syncer(Arc<Desk>);

impl Syncer {
    /// Starts the thread. `failed` hears of each sync that fails.
    ///
    /// # Errors
    /// The system starts no thread.
    pub(super) fn start(failed: impl Fn(io::Error) + Send + 'static) -> io::Result<Self> {
        let desk = Arc::new(Desk::default());
        let own = Arc::clone(&desk);
        std::thread::Builder::new().name("exeat-events".to_owned()).spawn(move || work(&own, failed))?;
        Ok(Self(desk))
    }

    /// Has what was written to `file` synced, and nobody wait.
    pub(super) fn due(&self, file: Arc<File>) {
        self.ask(file, None);
    }

    /// Has what was written to `file` synced. A file that takes its place has to be synced before: what was written
    /// there is synced then.
    pub(super) fn wait(&self, file: Arc<File>) -> Synced {
        let (tell, told) = oneshot::channel();
        self.ask(file, Some(tell));
        told
    }

    fn ask(&self, file: Arc<File>, who: Option<oneshot::Sender<bool>>) {
        let mut due = self.0.due.lock().unwrap_or_else(PoisonError::into_inner);
        due.file = Some(file);
        due.waiting.extend(who);
        drop(due);
        self.0.news.notify_one();
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.0.due.lock().unwrap_or_else(PoisonError::into_inner).over = true;
        self.0.news.notify_one();
    }
}

fn work(desk: &Desk, failed: impl Fn(io::Error)) {
    loop {
        let mut due = desk.due.lock().unwrap_or_else(PoisonError::into_inner);
        while due.file.is_none() && !due.over {
            due = desk.news.wait(due).unwrap_or_else(PoisonError::into_inner);
        }
        let Some(file) = due.file.take() else { return };
        let waiting = std::mem::take(&mut due.waiting);
        drop(due);
        let synced = file.sync_data().map_err(&failed).is_ok();
        for who in waiting {
            // Who no longer waits has left.
            let _ = who.send(synced);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn all_who_wait_are_told_and_a_failure_is_one_for_all() {
        let failures = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&failures);
        let syncer = Syncer::start(move |_: io::Error| {
            seen.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
        let file = Arc::new(tempfile::tempfile().unwrap());
        let waiting: Vec<_> = (0..32).map(|_| syncer.wait(Arc::clone(&file))).collect();
        for synced in waiting {
            assert!(synced.blocking_recv().unwrap());
        }
        assert_eq!(failures.load(Ordering::Relaxed), 0);
        // A socket cannot be synced.
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let socket = Arc::new(File::from(std::os::fd::OwnedFd::from(socket)));
        assert!(!syncer.wait(socket).blocking_recv().unwrap());
        assert_eq!(failures.load(Ordering::Relaxed), 1);
        let last = syncer.wait(file);
        drop(syncer);
        assert!(last.blocking_recv().unwrap());
    }
}
