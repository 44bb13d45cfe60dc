//! Who was let in over one connection, and when that is over.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::select_all;
use tokio::sync::Notify;

use super::Gate;
use crate::auth::Account;

/// Whoever was let in over one connection. What is under way for them ends with the connection.
#[derive(Debug, Default)]
pub(crate) struct Admitted {
    seen: Mutex<Vec<Seen>>,
    more: Notify,
}

#[derive(Clone, Debug)]
struct Seen {
    gate: Arc<Gate>,
    account: Option<Arc<Account>>,
}

impl Admitted {
    /// Takes note that somebody was let in: by the credentials of `account`, or as one of the session that `gate` is for.
    /// Who needed neither is let in for good.
    pub(crate) fn note(&self, gate: &Arc<Gate>, account: Option<&Arc<Account>>) {
        if account.is_none() && gate.session.is_base() {
            return;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.iter().any(|seen| Arc::ptr_eq(&seen.gate, gate) && seen.account.as_ref() == account) {
            return;
        }
        seen.push(Seen { gate: Arc::clone(gate), account: account.cloned() });
        self.more.notify_one();
    }

    /// Resolves when somebody who was let in would not be any more. Who is noted while a new snapshot comes into force
    /// is asked about under that one.
    pub(crate) async fn revoked(&self) {
        loop {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let over = async {
                if seen.is_empty() {
                    return std::future::pending().await;
                }
                select_all(seen.iter().map(|seen| Box::pin(seen.gate.revoked(seen.account.as_deref())))).await;
            };
            tokio::select! {
                () = over => return,
                () = self.more.notified() => {}
            }
        }
    }
}
