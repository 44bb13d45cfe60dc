//! The budget for frames that ask for nothing.

use tokio::time::Instant;

/// Frames without content that a client may send at once, how many more a second, and how many more for what flows.
const BUDGET: u64 = 2000;
const FRAMES_PER_SECOND: u64 = 20;
const BYTES_PER_FRAME: u64 = 512;

/// How many frames without content a client may still send.
#[derive(Debug)]
pub(super) struct Budget {
    left: u64,
    /// Bytes that have not earned a whole frame.
    bytes: u64,
    since: Instant,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: BUDGET, bytes: 0, since: Instant::now() }
    }
}

impl Budget {
    /// Traffic earns some.
    pub(super) fn earn(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.left = BUDGET.min(self.left + self.bytes / BYTES_PER_FRAME);
        self.bytes %= BYTES_PER_FRAME;
    }

    /// Takes the cost of some frames off; false where there is too little.
    pub(super) fn spend(&mut self, frames: u64) -> bool {
        if self.left < frames {
            let seconds = self.since.elapsed().as_secs();
            if seconds > 0 {
                self.since = Instant::now();
                self.left = BUDGET.min(self.left.saturating_add(seconds.saturating_mul(FRAMES_PER_SECOND)));
            }
        }
        match self.left.checked_sub(frames) {
            Some(left) => self.left = left,
            None => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn frames_that_ask_for_nothing_have_a_budget() {
        let mut budget = Budget::default();
        assert!(budget.spend(BUDGET) && !budget.spend(1));
        budget.earn(2 * BYTES_PER_FRAME);
        assert!(budget.spend(2) && !budget.spend(1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(budget.spend(FRAMES_PER_SECOND) && !budget.spend(1));
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!(budget.spend(BUDGET) && !budget.spend(1), "it does not grow beyond what it was");
    }
}
