//! A snapshot: everything that manifests and config decide, loaded together and replaced together.
//!
//! A request is judged, resolved, injected and dialled under one snapshot. A reload builds a whole new one or leaves
//! the old one in place.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use exeat_policy::Policy;
use exeat_policy::target::Target;
use rustls::ServerConfig;
use tokio::sync::watch;

use crate::auth::Accounts;
use crate::config::{Config, Mode};
use crate::credentials::Injector;
use crate::evidence::ServerSpec;
use crate::hits::RuleHits;
use crate::mcp::policy::Policies;
use crate::upstream::Route;

/// One loaded state of manifests and config.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Counts the snapshots since start, from 1.
    pub(crate) generation: u64,
    /// What may be reached.
    pub(crate) policy: Policy,
    /// How often its rules have decided.
    pub(crate) hits: Arc<RuleHits>,
    /// What the way out is made under.
    pub(crate) route: Arc<Route>,
    /// What is put on requests.
    pub(crate) injector: Injector,
    /// What MCP servers are held to.
    pub(crate) mcp: Policies,
    /// Where the local endpoints lead, by the name of the server.
    pub(crate) endpoints: BTreeMap<String, Target>,
    /// Who may use the gateway.
    pub(crate) accounts: Accounts,
    /// The servers that the manifests declare.
    pub(crate) servers: Vec<ServerSpec>,
    /// The capabilities that the manifests name.
    pub(crate) capabilities: Vec<String>,
    /// TLS on the proxy port; none where it is plain.
    pub(crate) listen_tls: Option<Arc<ServerConfig>>,
    /// The config it was built from.
    pub(crate) config: Config,
}

impl Snapshot {
    /// Whether denials by rules are enforced.
    pub(crate) const fn mode(&self) -> Mode {
        self.config.policy.mode
    }
}

/// The snapshot in force, and the news of the next.
#[derive(Debug)]
pub(crate) struct Current {
    snapshot: ArcSwap<Snapshot>,
    generation: watch::Sender<u64>,
}

impl Current {
    /// Starts with `first`.
    pub(crate) fn new(first: Snapshot) -> Self {
        let (generation, _) = watch::channel(first.generation);
        Self { snapshot: ArcSwap::from_pointee(first), generation }
    }

    /// The snapshot in force now.
    pub(crate) fn get(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Puts `next` in force.
    pub(crate) fn replace(&self, next: Snapshot) {
        let generation = next.generation;
        self.snapshot.store(Arc::new(next));
        self.generation.send_replace(generation);
    }

    /// Has everybody who watches look again.
    pub(crate) fn look_again(&self) {
        self.generation.send_modify(|_| {});
    }

    /// Hears of every replacement from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }
}
