//! A bar on the terminal for long inputs.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often the bar moves.
const STEP: Duration = Duration::from_millis(100);
/// The columns of the bar.
const WIDTH: u64 = 30;

/// How far a command is. Where the standard error is no terminal, nothing is shown.
pub(super) struct Progress {
    /// All bytes of the files; none where a file does not say how many it has.
    total: Option<u64>,
    /// The bytes of files that were read to their ends.
    before: u64,
    position: Arc<AtomicU64>,
    shown: Option<Instant>,
    drawn: bool,
}

impl Progress {
    /// A bar that ends at `total` bytes.
    pub(super) fn new(total: Option<u64>) -> Self {
        let shown = io::stderr().is_terminal().then(Instant::now);
        Self { total, before: 0, position: Arc::default(), shown, drawn: false }
    }

    /// The next file begins, and counts what is read of it there.
    pub(super) fn file(&mut self, position: Arc<AtomicU64>) {
        self.before += self.position.load(Ordering::Relaxed);
        self.position = position;
    }

    /// Moves the bar if it is time.
    pub(super) fn step(&mut self, records: u64) {
        let Some(shown) = self.shown.filter(|shown| shown.elapsed() >= STEP) else { return };
        let done = self.before + self.position.load(Ordering::Relaxed);
        // A terminal that is gone is no failure.
        let _ = write!(io::stderr(), "\r{}\x1b[K", bar(done, self.total, records));
        self.shown = Some(shown + shown.elapsed());
        self.drawn = true;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn bar(done: u64, total: Option<u64>, records: u64) -> String {
    let mebibytes = done / (1024 * 1024);
    match total.filter(|total| *total > 0) {
        None => format!("{records} requests, {mebibytes} MiB"),
        Some(total) => {
            let share = |of: u64| u64::try_from(u128::from(done.min(total)) * u128::from(of) / u128::from(total));
            let filled = usize::try_from(share(WIDTH).unwrap_or(WIDTH)).unwrap_or_default();
            let percent = share(100).unwrap_or(100);
            let width = usize::try_from(WIDTH).unwrap_or_default();
            format!("[{:<width$}] {percent:>3} %  {records} requests", "#".repeat(filled))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_and_never_overflows() {
        assert_eq!(bar(0, Some(100), 0), format!("[{}]   0 %  0 requests", " ".repeat(30)));
        assert_eq!(bar(50, Some(100), 7), format!("[{}{}]  50 %  7 requests", "#".repeat(15), " ".repeat(15)));
        assert_eq!(bar(u64::MAX, Some(100), 7), format!("[{}] 100 %  7 requests", "#".repeat(30)));
        assert_eq!(bar(3 << 20, None, 7), "7 requests, 3 MiB");
        assert_eq!(bar(3 << 20, Some(0), 7), "7 requests, 3 MiB");
    }
}
