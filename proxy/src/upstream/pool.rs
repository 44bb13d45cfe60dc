//! The pool: connections that wait for their next request, or have room for one more.
//!
//! The key is the whole origin and the generation of the policy, so a connection never serves another host and never
//! outlives a change of policy. A connection of HTTP/1.1 waits here while it is not in use; one of HTTP/2 stays here
//! as long as it lives, and requests share it.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use tokio::sync::watch;

use super::http1::Connection;
use super::shared::{Place, Shared};
use super::{Protocol, Speaks};
use crate::permit::Origin;

/// The most connections that wait for one origin.
const MAX_IDLE_PER_ORIGIN: usize = 128;
/// The most shared connections to one origin.
const MAX_SHARED_PER_ORIGIN: usize = 32;
/// The most connections that wait at all.
const MAX_IDLE: usize = 4096;

/// Sends the next request on a connection.
#[derive(Debug)]
pub(super) enum Sender {
    /// A connection of its own.
    Http1(Box<Connection>),
    /// A place on a shared one.
    Http2 { shared: Shared, place: Place },
}

impl Sender {
    pub(super) const fn protocol(&self) -> Protocol {
        match self {
            Self::Http1(_) => Protocol::Http1,
            Self::Http2 { .. } => Protocol::Http2,
        }
    }

    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Http1(connection) => connection.peer(),
            Self::Http2 { shared, .. } => shared.peer(),
        }
    }
}

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
    connection: Box<Connection>,
    since: Instant,
}

impl Idle {
    fn is_good(&mut self, time: Duration) -> bool {
        self.since.elapsed() < time && self.connection.is_quiet()
    }
}

#[derive(Debug)]
pub(super) struct Pool {
    shelves: Mutex<Shelves>,
    idle: Duration,
}

#[derive(Debug, Default)]
struct Shelf {
    idle: Vec<Idle>,
    shared: Vec<Shared>,
}

impl Shelf {
    const fn len(&self) -> usize {
        self.idle.len() + self.shared.len()
    }

    fn reap(&mut self, time: Duration) {
        self.idle.retain_mut(|idle| idle.is_good(time));
        self.shared.retain(|shared| !shared.is_closed() && !shared.is_idle_for(time));
    }
}

#[derive(Debug, Default)]
struct Shelves {
    /// Asked twice for each request. Its keys are origins that policy permits, and few.
    by_key: HashMap<Key, Shelf, RandomState>,
    count: usize,
    newest: u64,
    /// Where a connection is being made that others may be able to share.
    leading: HashMap<Key, watch::Receiver<()>>,
    /// Where the last one could not be shared, so that nobody waits for the next.
    unshared: HashSet<Key>,
}

/// Whether somebody else is already connecting.
pub(super) enum Turn {
    /// Nobody is; the guard tells the others when it is dropped.
    First(Leader),
    /// Somebody is; the receiver ends when they are done.
    After(watch::Receiver<()>),
    /// It does not matter.
    Free,
}

/// Others wait for this connection.
#[derive(Debug)]
pub(super) struct Leader {
    pool: Arc<Pool>,
    key: Key,
    _done: watch::Sender<()>,
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.pool.shelves().leading.remove(&self.key);
    }
}

impl Pool {
    pub(super) fn new(idle: Duration) -> Self {
        Self { shelves: Mutex::default(), idle }
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes room on a shared connection, or else the connection that was used last and is still good. What cannot be
    /// sent again is given one that is so for sure.
    pub(super) fn take(&self, key: &Key, speaks: Speaks, once: bool) -> Option<Sender> {
        let mut shelves = self.shelves();
        let Shelves { by_key, count, .. } = &mut *shelves;
        let shelf = by_key.get_mut(key)?;
        let before = shelf.len();
        let claim = |shared: &Shared| Some(Sender::Http2 { shared: shared.clone(), place: shared.claim()? });
        let mut found = if speaks == Speaks::Http1 { None } else { shelf.shared.iter().find_map(claim) };
        while found.is_none() && speaks != Speaks::Http2 {
            let Some(mut idle) = shelf.idle.pop() else { break };
            if idle.is_good(self.idle) && (!once || idle.connection.is_surely_quiet()) {
                found = Some(Sender::Http1(idle.connection));
            }
        }
        *count -= before - shelf.len();
        found
    }

    /// Puts a connection back.
    pub(super) fn put(&self, key: Key, connection: Box<Connection>) {
        let mut shelves = self.shelves();
        if let Some(shelf) = shelves.shelf(key)
            && shelf.idle.len() < MAX_IDLE_PER_ORIGIN
        {
            shelf.idle.push(Idle { connection, since: Instant::now() });
            shelves.count += 1;
        }
    }

    /// Lets others share a connection.
    pub(super) fn share(&self, key: Key, shared: Shared) {
        let mut shelves = self.shelves();
        shelves.unshared.remove(&key);
        if let Some(shelf) = shelves.shelf(key)
            && shelf.shared.len() < MAX_SHARED_PER_ORIGIN
        {
            shelf.shared.push(shared);
            shelves.count += 1;
        }
    }

    /// Notes that connections to an origin cannot be shared.
    pub(super) fn note_unshared(&self, key: Key) {
        let mut shelves = self.shelves();
        if shelves.unshared.len() >= MAX_IDLE {
            shelves.unshared.clear();
        }
        shelves.unshared.insert(key);
    }

    /// Asks whether to connect or to wait for a connection that is being made and that can perhaps be shared.
    pub(super) fn turn(self: &Arc<Self>, key: &Key, speaks: Speaks) -> Turn {
        let mut shelves = self.shelves();
        if speaks == Speaks::Http1 || shelves.unshared.contains(key) {
            return Turn::Free;
        }
        if let Some(done) = shelves.leading.get(key) {
            return Turn::After(done.clone());
        }
        let (sender, receiver) = watch::channel(());
        shelves.leading.insert(key.clone(), receiver);
        Turn::First(Leader { pool: Arc::clone(self), key: key.clone(), _done: sender })
    }

    pub(super) fn clear(&self) {
        let mut shelves = self.shelves();
        shelves.by_key.clear();
        shelves.unshared.clear();
        shelves.count = 0;
    }

    pub(super) fn reap(&self) {
        let mut shelves = self.shelves();
        for shelf in shelves.by_key.values_mut() {
            shelf.reap(self.idle);
        }
        shelves.by_key.retain(|_, shelf| shelf.len() > 0);
        shelves.count = shelves.by_key.values().map(Shelf::len).sum();
    }
}

impl Shelves {
    /// The shelf for a connection that comes in; none if there is no room for it or its policy is no longer in force.
    fn shelf(&mut self, key: Key) -> Option<&mut Shelf> {
        self.newest = self.newest.max(key.generation);
        if self.count >= MAX_IDLE || key.generation < self.newest {
            return None;
        }
        Some(self.by_key.entry(key).or_default())
    }
}
