//! The files loaded anew: a whole new snapshot of every session, or the old ones and a word why.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use exeat_policy::diag::Diagnostic;
use serde::Serialize;

use super::build::{snapshot, within};
use super::{Sessions, State};
use crate::config::{Config, Mode};
use crate::hits;
use crate::load::{Base, LoadError};
use crate::metrics::Metrics;
use crate::snapshot::Snapshot;

/// What a reload put in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Reloaded {
    /// Counts the snapshots since start, from 1.
    pub(crate) generation: u64,
    /// The policy's.
    pub(crate) digest: String,
    /// How many sessions there are within it.
    pub(crate) sessions: usize,
}

/// Why nothing was put in force.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReloadError {
    /// The files cannot be read, or have errors.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A file that they name cannot be used.
    #[error("{0}")]
    File(String),
    /// A session does not go together with them.
    #[error("the session {name:?} cannot go on: {cause}")]
    Session {
        /// Its name.
        name: String,
        /// What is wrong.
        cause: LoadError,
    },
}

impl ReloadError {
    /// What is wrong in the files, at its places.
    pub(crate) fn diagnostics(&self) -> &[Diagnostic] {
        match self {
            Self::Load(LoadError::Invalid(diagnostics))
            | Self::Session { cause: LoadError::Invalid(diagnostics), .. } => diagnostics,
            Self::Load(LoadError::Unreadable { .. } | LoadError::TooLarge(_))
            | Self::Session { cause: LoadError::Unreadable { .. } | LoadError::TooLarge(_), .. }
            | Self::File(_) => &[],
        }
    }
}

impl Sessions {
    /// Loads the files anew: for the gateway and for every session within it, or for none. Takes as long as reading
    /// them does.
    ///
    /// # Errors
    /// Why what was in force stays in force.
    pub(crate) fn reload(&self) -> Result<Reloaded, ReloadError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.base.audit.reopen();
        let reloaded = self.try_reload(&mut state);
        drop(state);
        self.base.metrics.count_reload(reloaded.is_ok());
        match &reloaded {
            Ok(Reloaded { generation, digest, sessions }) => {
                tracing::info!(generation, digest, sessions, "reloaded");
            }
            Err(error) => {
                for diagnostic in error.diagnostics() {
                    tracing::error!(%diagnostic, help = diagnostic.help, "not reloaded");
                }
                let before = self.base.current.get();
                self.base.audit.policy_rejected(&before, &error.to_string());
                let generation = before.generation;
                tracing::error!(generation, %error, "not reloaded; the policy in force stays");
            }
        }
        reloaded
    }

    fn try_reload(&self, state: &mut State) -> Result<Reloaded, ReloadError> {
        let before = self.base.current.get();
        let files = Base::read(&self.files)?;
        let loaded = files.compile(None)?;
        let sources = Some(&**before.injector.sources());
        let next = snapshot(before.generation + 1, loaded, &self.own, sources, self.private);
        let mut next = next.map_err(ReloadError::File)?;
        // A port that speaks TLS goes on doing so, and a plain one stays plain.
        if before.listen_tls.is_none() || next.listen_tls.is_none() {
            next.listen_tls.clone_from(&before.listen_tls);
        }
        if hits::are_numbered_alike(&before.policy, &next.policy) {
            next.hits = Arc::clone(&before.hits);
        }
        let mut inner = Vec::new();
        for open in state.open.values() {
            let loaded = files
                .compile(Some(&open.inner))
                .map_err(|cause| ReloadError::Session { name: open.name.clone(), cause })?;
            inner.push((open, within(&next, loaded, &open.sources)));
        }
        warn_of_fixed(&before.config, &next.config);
        announce(&next, &self.base.metrics);
        let reloaded =
            Reloaded { generation: next.generation, digest: next.policy.digest().to_owned(), sessions: inner.len() };
        for (open, snapshot) in inner {
            open.gate.current.replace(snapshot);
            open.gate.upstream.clear();
            open.gate.audit.policy_loaded(&open.gate.current.get());
        }
        // Last, so that who waits for the generation finds the sessions in it.
        self.base.current.replace(next);
        self.base.upstream.clear();
        self.base.audit.policy_loaded(&self.base.current.get());
        state.files = files;
        Ok(reloaded)
    }

    /// The files that a reload reads, as far as they can be watched.
    pub(super) fn files(&self) -> Vec<std::path::PathBuf> {
        let snapshot = self.base.current.get();
        let Config { policy, listen, upstream, .. } = &snapshot.config;
        let manifests = if self.files.manifests.is_empty() { &policy.manifests } else { &self.files.manifests };
        let tls = listen.tls.iter().flat_map(|tls| [Some(&tls.cert), Some(&tls.key), tls.client_ca.as_ref()]).flatten();
        let accounts = listen.auth.users.values().chain(listen.auth.tokens.values());
        let accounts = accounts.filter_map(crate::config::SecretSource::file);
        let named = manifests.iter().chain(&self.files.config).chain(tls).chain(&upstream.ca).map(|path| &**path);
        named.chain(accounts.map(|path| &**path)).filter(|path| *path != Path::new("-")).map(Path::to_owned).collect()
    }
}

/// Warns of changes that a reload cannot carry out.
fn warn_of_fixed(before: &Config, after: &Config) {
    let (old, new) = (&before.limits, &after.limits);
    let fixed = [
        ("listen.proxy", before.listen.proxy == after.listen.proxy),
        ("listen.unix", before.listen.unix == after.listen.unix),
        ("listen.tls_cert", before.listen.tls.is_some() == after.listen.tls.is_some()),
        ("policy.watch", before.policy.watch == after.policy.watch),
        ("admin.listen", before.admin.listen == after.admin.listen),
        ("admin.token", before.admin.token == after.admin.token),
        ("admin.readiness_interval", before.admin.readiness_interval == after.admin.readiness_interval),
        ("mcp.listen", before.mcp.listen == after.mcp.listen),
        ("intercept.ca_cert", before.intercept.ca == after.intercept.ca),
        ("audit", before.audit == after.audit),
        ("limits.connections", old.connections == new.connections),
        ("limits.tunnels", old.tunnels == new.tunnels),
    ];
    for (key, _) in fixed.into_iter().filter(|(_, same)| !same) {
        tracing::warn!(key, "the change of this key takes effect at the next start");
    }
}

/// Shows a snapshot in the metrics and the log; gives what deserves a look in it.
pub(crate) fn announce(snapshot: &Snapshot, metrics: &Metrics) -> Vec<String> {
    let servers = snapshot.injector.iter().map(|injection| &*injection.server);
    metrics.show_policy(snapshot.generation, snapshot.policy.digest(), snapshot.mode(), servers);
    metrics.show_rules(&snapshot.hits);
    metrics.register_minted(snapshot.injector.sources().minted());
    let refused = snapshot.injector.problems().into_iter();
    let mut problems: Vec<String> =
        refused.map(|(server, error)| format!("requests to {server} will be refused: {error}")).collect();
    problems.extend(snapshot.injector.sources().warnings());
    if snapshot.mode() == Mode::Report {
        problems.push("denials by rules are reported and not enforced ([policy] mode = \"report\")".to_owned());
    }
    if let Some(next) = &snapshot.config.upstream.proxy {
        problems.push(format!("{next} resolves names itself: [guard] does not see the addresses behind them"));
    }
    for problem in &problems {
        tracing::warn!("{problem}");
    }
    problems
}
