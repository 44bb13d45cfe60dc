//! Which session a client belongs to: by proxy credentials, by the name in its certificate, or by the user of this
//! machine that it runs as.
//!
//! Clients of a session's own listener need none of these. The credentials are the gateway's own making, of more
//! randomness than anybody can guess at, and are looked up by their digests: how long that takes depends on a digest and
//! a key that nobody outside knows.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use super::Gate;
use crate::auth::{Credentials, Proof};
use crate::client::{Address, Client};

/// What clients of one session show themselves by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// The proofs of its proxy credentials.
    pub(crate) proofs: Vec<Proof>,
    /// The name in its clients' certificates.
    pub(crate) certificate: Option<Arc<str>>,
    /// The user on the shared Unix socket.
    pub(crate) uid: Option<u32>,
}

/// The sessions by what their clients show.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    known: ArcSwap<Known>,
    /// One change at a time.
    changing: Mutex<()>,
    /// Whether there has been a session with proxy credentials. From then on credentials that are unknown are those of a
    /// session that has ended, and not of somebody who need not have shown any.
    used: AtomicBool,
}

#[derive(Clone, Debug, Default)]
struct Known {
    proofs: HashMap<Proof, Arc<Gate>>,
    certificates: HashMap<Arc<str>, Arc<Gate>>,
    users: HashMap<u32, Arc<Gate>>,
}

impl Directory {
    /// Whether proxy credentials have to be those of somebody, even where none are needed.
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Acquire)
    }

    /// The session that credentials are those of.
    pub(crate) fn by_credentials(&self, credentials: &Credentials) -> Option<Arc<Gate>> {
        self.known.load().proofs.get(credentials.proof()?).cloned()
    }

    /// The session that all of a connection belongs to. The name of `client` is that in its certificate.
    pub(crate) fn by_connection(&self, client: &Client) -> Option<Arc<Gate>> {
        let known = self.known.load();
        match client.address {
            Address::Unix { uid, .. } => known.users.get(&uid).cloned(),
            Address::Tcp(_) => known.certificates.get(client.user.as_ref()?).cloned(),
            Address::Inner(_) => None,
        }
    }

    /// What of `identity` is another session's already.
    pub(crate) fn taken(&self, identity: &Identity) -> Option<String> {
        let known = self.known.load();
        let certificate = identity.certificate.as_ref().filter(|name| known.certificates.contains_key(*name));
        let uid = identity.uid.filter(|uid| known.users.contains_key(uid));
        certificate
            .map(|name| format!("the client certificate of {name:?} belongs to another session"))
            .or_else(|| uid.map(|uid| format!("the user {uid} of the Unix socket belongs to another session")))
    }

    /// Lets clients that show `identity` in at `gate`.
    pub(crate) fn add(&self, identity: &Identity, gate: &Arc<Gate>) {
        let _one = self.changing();
        let mut known = Known::clone(&self.known.load());
        known.proofs.extend(identity.proofs.iter().map(|proof| (proof.clone(), Arc::clone(gate))));
        known.certificates.extend(identity.certificate.iter().map(|name| (Arc::clone(name), Arc::clone(gate))));
        known.users.extend(identity.uid.map(|uid| (uid, Arc::clone(gate))));
        if !identity.proofs.is_empty() {
            self.used.store(true, Ordering::Release);
        }
        self.known.store(Arc::new(known));
    }

    /// Lets nobody in any more who shows `identity`.
    pub(crate) fn remove(&self, identity: &Identity) {
        let _one = self.changing();
        let mut known = Known::clone(&self.known.load());
        for proof in &identity.proofs {
            known.proofs.remove(proof);
        }
        if let Some(name) = &identity.certificate {
            known.certificates.remove(name);
        }
        if let Some(uid) = &identity.uid {
            known.users.remove(uid);
        }
        self.known.store(Arc::new(known));
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
