//! The pool: connections that wait for their next request.
//!
//! The key is the whole origin and the generation of the policy, so a connection never serves another host and never
//! outlives a change of policy.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::client::conn::http1::SendRequest;

use crate::listener::http1::RequestBody;
use crate::permit::Origin;

/// Sends requests on one connection.
pub(super) type Sender = SendRequest<RequestBody>;

/// The most connections that wait for one origin.
const MAX_IDLE_PER_ORIGIN: usize = 128;
/// The most connections that wait at all.
const MAX_IDLE: usize = 4096;

/// What a waiting connection is good for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    generation: u64,
    origin: Origin,
}

impl Key {
    pub(super) fn new(generation: u64, origin: &Origin) -> Self {
        Self { generation, origin: origin.clone() }
    }
}

#[derive(Debug)]
struct Idle {
    sender: Sender,
    since: Instant,
}

#[derive(Debug)]
pub(super) struct Pool {
    shelves: Mutex<Shelves>,
    idle: Duration,
}

#[derive(Debug, Default)]
struct Shelves {
    by_key: HashMap<Key, Vec<Idle>>,
    count: usize,
    newest: u64,
}

impl Pool {
    pub(super) fn new(idle: Duration) -> Self {
        Self { shelves: Mutex::default(), idle }
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the connection that was used last and is ready.
    pub(super) fn take(&self, key: &Key) -> Option<Sender> {
        let mut shelves = self.shelves();
        let Shelves { by_key, count, .. } = &mut *shelves;
        let shelf = by_key.get_mut(key)?;
        let before = shelf.len();
        let now = Instant::now();
        shelf.retain(|idle| !idle.sender.is_closed() && now.duration_since(idle.since) < self.idle);
        let found = shelf.iter().rposition(|idle| idle.sender.is_ready()).map(|at| shelf.remove(at).sender);
        *count -= before - shelf.len();
        if shelf.is_empty() {
            by_key.remove(key);
        }
        found
    }

    /// Puts a connection back.
    pub(super) fn put(&self, key: Key, sender: Sender) {
        if sender.is_closed() {
            return;
        }
        let mut shelves = self.shelves();
        shelves.newest = shelves.newest.max(key.generation);
        if shelves.count >= MAX_IDLE || key.generation < shelves.newest {
            return;
        }
        let shelf = shelves.by_key.entry(key).or_default();
        if shelf.len() < MAX_IDLE_PER_ORIGIN {
            shelf.push(Idle { sender, since: Instant::now() });
            shelves.count += 1;
        }
    }

    pub(super) fn clear(&self) {
        let mut shelves = self.shelves();
        shelves.by_key.clear();
        shelves.count = 0;
    }

    pub(super) fn reap(&self) {
        let mut shelves = self.shelves();
        let now = Instant::now();
        for shelf in shelves.by_key.values_mut() {
            shelf.retain(|idle| !idle.sender.is_closed() && now.duration_since(idle.since) < self.idle);
        }
        shelves.by_key.retain(|_, shelf| !shelf.is_empty());
        shelves.count = shelves.by_key.values().map(Vec::len).sum();
    }
}
