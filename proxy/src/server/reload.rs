//! The files loaded anew: a whole new snapshot, or the old one and a word why.

use std::net::SocketAddr;
use std::sync::Arc;

use super::assemble::{inputs, snapshot};
use super::{Options, StartError};
use crate::config::{Config, Mode};
use crate::gate::Gate;
use crate::hits;
use crate::load;
use crate::metrics::Metrics;
use crate::snapshot::Snapshot;

/// Replaces the snapshot, or keeps it and says why.
pub(super) fn reload_files(gate: &Gate, options: &Options, own: &[SocketAddr]) {
    let before = gate.current.get();
    gate.audit.reopen();
    let next = load::load(&inputs(options)).map_err(StartError::from).and_then(|loaded| {
        let sources = Some(before.injector.sources());
        snapshot(before.generation + 1, loaded, own, sources, options.private)
    });
    match next {
        Ok(mut next) => {
            // A port that speaks TLS goes on doing so, and a plain one stays plain.
            if before.listen_tls.is_none() || next.listen_tls.is_none() {
                next.listen_tls.clone_from(&before.listen_tls);
            }
            if hits::are_numbered_alike(&before.policy, &next.policy) {
                next.hits = Arc::clone(&before.hits);
            }
            warn_of_fixed(&before.config, &next.config);
            announce(&next, &gate.metrics);
            let (generation, digest) = (next.generation, next.policy.digest().to_owned());
            gate.current.replace(next);
            gate.upstream.clear();
            gate.metrics.count_reload(true);
            gate.audit.policy_loaded(&gate.current.get());
            tracing::info!(generation, digest, "reloaded");
        }
        Err(error) => {
            gate.metrics.count_reload(false);
            gate.audit.policy_rejected(&before, &error.to_string());
            if let StartError::Invalid(diagnostics) = &error {
                for diagnostic in diagnostics {
                    tracing::error!(%diagnostic, help = diagnostic.help, "not reloaded");
                }
            }
            tracing::error!(generation = before.generation, %error, "not reloaded; the policy in force stays");
        }
    }
}

/// Warns of changes that a reload cannot carry out.
fn warn_of_fixed(before: &Config, after: &Config) {
    let (old, new) = (&before.limits, &after.limits);
    let fixed = [
        ("listen.proxy", before.listen.proxy == after.listen.proxy),
        ("listen.unix", before.listen.unix == after.listen.unix),
        ("listen.tls_cert", before.listen.tls.is_some() == after.listen.tls.is_some()),
        ("admin.listen", before.admin.listen == after.admin.listen),
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
pub(super) fn announce(snapshot: &Snapshot, metrics: &Metrics) -> Vec<String> {
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
