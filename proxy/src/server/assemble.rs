//! A gate put together from files: at start, at a reload, and for checks that need no listener.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;

use super::{Options, StartError};
use crate::audit::Audit;
use crate::auth::Limiter;
use crate::client::Address;
use crate::drain;
use crate::evidence::report::Evidence;
use crate::evidence::{Board, Enter};
use crate::gate::{Gate, Pseudonym, Session};
use crate::guard::OwnListeners;
use crate::intercept::{Ca, Leaves};
use crate::listener::proxy;
use crate::listener::stream::Stream;
use crate::load::{self, Inputs};
use crate::metrics::Metrics;
use crate::sessions::{POOL_IDLE, snapshot};
use crate::snapshot::{Current, Snapshot};
use crate::tally::Tally;
use crate::upstream::Upstream;

/// Checks the readiness of the manifests' servers once, without listening anywhere.
///
/// # Errors
/// Whatever keeps a file from being loaded.
pub(crate) async fn check_readiness(options: &Options) -> Result<Evidence, StartError> {
    let loaded = load::load(&inputs(options))?;
    let ca = match &loaded.config.intercept.ca {
        Some(files) => Ca::load(&files.cert, &files.key)?,
        None => Ca::open(&options.state_dir)?,
    };
    let snapshot = snapshot(1, loaded, &OwnListeners::default(), None, false).map_err(StartError::File)?;
    let (gate, _trigger) = assemble(snapshot, Metrics::new()?, ca, None)?;
    let keeping = {
        let gate = Arc::clone(&gate);
        async move { gate.board.keep(&gate.current, &gate.metrics, &inner_way_in(&gate), gate.drain.clone(), None).await }
    };
    tokio::select! {
        () = keeping => {}
        () = gate.board.check_now() => {}
    }
    Ok(gate.board.evidence(&gate.current.get()))
}

/// Puts a gate together.
pub(super) fn assemble(
    snapshot: Snapshot,
    metrics: Arc<Metrics>,
    ca: Ca,
    tally: Option<Arc<Tally>>,
) -> Result<(Arc<Gate>, drain::Trigger), StartError> {
    let (trigger, drain) = drain::pair();
    let tunnels = snapshot.config.limits.tunnels;
    let gate = Gate {
        session: Session::base(),
        current: Current::new(snapshot),
        upstream: Upstream::new(POOL_IDLE),
        audit: Audit::new(Arc::clone(&metrics), tally),
        metrics,
        leaves: Arc::new(Leaves::new(ca)?),
        wrong_credentials: Arc::new(Limiter::new(Instant::now())),
        board: Board::default(),
        directory: Arc::default(),
        pseudonym: Arc::new(Pseudonym::new(unique())),
        tunnel_slots: Arc::new(Semaphore::new(tunnels)),
        drain,
    };
    Ok((Arc::new(gate), trigger))
}

/// How the gateway's own messages come in: as a client's connection, which has a place of its own.
fn inner_way_in(gate: &Arc<Gate>) -> Enter {
    let gate = Arc::clone(gate);
    Arc::new(move |stream, purpose| {
        let place = Arc::new(Semaphore::new(1));
        if let Ok(slot) = place.try_acquire_owned() {
            let (stream, address) = (Stream::Inner(stream), Address::Inner(purpose));
            tokio::spawn(proxy::connection(Arc::clone(&gate), false, stream, address, slot));
        }
    })
}

pub(super) async fn keep_evidence(gate: Arc<Gate>) {
    let enter = inner_way_in(&gate);
    let interval = gate.current.get().config.admin.readiness_interval;
    gate.board.keep(&gate.current, &gate.metrics, &enter, gate.drain.clone(), interval).await;
}

pub(super) fn inputs(options: &Options) -> Inputs {
    Inputs {
        config: options.config.clone(),
        manifests: options.manifests.clone(),
        overrides: options.overrides.clone(),
    }
}

/// A number that no other gateway has: what its name in Via fields ends in.
fn unique() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id())
}
