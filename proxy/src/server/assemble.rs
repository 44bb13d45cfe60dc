//! A gate put together from files: at start, at a reload, and for checks that need no listener.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;

use super::{Options, StartError};
use crate::audit::{Audit, Journal};
use crate::auth::Limiter;
use crate::client::Address;
use crate::drain;
use crate::evidence::report::Evidence;
use crate::evidence::{Board, Enter, MustDeny};
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
    let metrics = Metrics::new()?;
    // The file of events belongs to the gateway that serves.
    let journal = Journal::fleeting(Arc::clone(&metrics));
    let snapshot = snapshot(1, loaded, &OwnListeners::default(), None, false).map_err(StartError::File)?;
    let (gate, _trigger) = assemble(snapshot, metrics, ca, None, journal)?;
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
    journal: Journal,
) -> Result<(Arc<Gate>, drain::Trigger), StartError> {
    let (trigger, drain) = drain::pair();
    let (tunnels, log) = (snapshot.config.limits.tunnels, snapshot.config.audit.log);
    let session = Session::base();
    let audit = Audit::new(Arc::clone(&metrics), tally, Arc::new(journal), session.id().as_str(), log);
    let gate = Gate {
        session,
        current: Current::new(snapshot),
        upstream: Upstream::new(POOL_IDLE),
        audit,
        metrics,
        leaves: Arc::new(Leaves::new(ca)?),
        wrong_credentials: Arc::new(Limiter::new(Instant::now())),
        board: Board::default(),
        directory: Arc::default(),
        must_deny: MustDeny::default(),
        pseudonym: Arc::new(Pseudonym::new(unique())),
        tunnel_slots: Arc::new(Semaphore::new(tunnels)),
        drain,
    };
    Ok((Arc::new(gate), trigger))
}

/// How the gateway's own messages come in: as a client's connection, which has a place of its own.
pub(super) fn inner_way_in(gate: &Arc<Gate>) -> Enter {
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
