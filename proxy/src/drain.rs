//! The signal that the gateway is going down: connections finish what they are at and take nothing new.

use tokio::sync::watch;

/// Starts the drain.
#[derive(Debug)]
pub(crate) struct Trigger(watch::Sender<bool>);

/// Sees the drain coming.
#[derive(Clone, Debug)]
pub(crate) struct Drain(watch::Receiver<bool>);

/// A trigger and what it triggers.
pub(crate) fn pair() -> (Trigger, Drain) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(sender), Drain(receiver))
}

impl Trigger {
    /// Begins the drain; beginning it twice is the same as once.
    pub(crate) fn begin(&self) {
        self.0.send_replace(true);
    }
}

impl Drain {
    /// Whether the drain has begun.
    pub(crate) fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the drain begins. A trigger that is gone counts as one that was pulled.
    pub(crate) async fn begun(&mut self) {
        let _ = self.0.wait_for(|&begun| begun).await;
    }
}
