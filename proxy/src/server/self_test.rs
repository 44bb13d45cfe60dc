//! The ways in of this gateway, tried with what none of them may let out: before anything is served, and again under
//! each new policy.

use std::sync::Arc;

use bytes::BytesMut;
use exeat_policy::target::Authority;
use tokio::sync::Semaphore;

use super::assemble::inner_way_in;
use crate::audit::Entry;
use crate::client::{Address, Client};
use crate::evidence::Enter;
use crate::evidence::must_deny::{NAME, Ways};
use crate::gate::{Caller, Gate};
use crate::intercept;
use crate::listener::endpoint::Endpoints;
use crate::listener::proxy;
use crate::listener::stream::Stream;

/// The ways in that there are; `endpoints` says whether the local endpoints of MCP servers are served.
pub(super) fn ways(gate: &Arc<Gate>, endpoints: bool) -> Ways {
    let intercepts = gate.current.get().config.intercept.enabled;
    Ways {
        proxy: inner_way_in(gate),
        inspected: intercepts.then(|| inspected(gate)).flatten(),
        endpoints: endpoints.then(|| local(gate)),
    }
}

/// Tries them, and shows in the metrics what came of it.
pub(super) async fn run(gate: &Gate, ways: &Ways) {
    gate.must_deny.test(ways, &gate.metrics).await;
    let ready = gate.must_deny.objection().is_none() && !gate.drain.has_begun();
    gate.metrics.ready.set(i64::from(ready));
}

/// Tries them again whenever another policy comes into force.
pub(super) async fn keep(gate: Arc<Gate>, ways: Ways) {
    let mut generation = gate.current.watch();
    let mut drain = gate.drain.clone();
    loop {
        tokio::select! {
            changed = generation.changed() => {
                if changed.is_err() {
                    return;
                }
                run(&gate, &ways).await;
            }
            () = drain.begun() => return,
        }
    }
}

/// The inside of an inspected tunnel to the name. No policy has to lead there.
fn inspected(gate: &Arc<Gate>) -> Option<Enter> {
    let authority = Authority::parse(&format!("{NAME}:80")).ok()?;
    let gate = Arc::clone(gate);
    Some(Arc::new(move |stream, purpose| {
        let (gate, authority) = (Arc::clone(&gate), authority.clone());
        let client = Client { address: Address::Inner(purpose), user: None, account: None };
        tokio::spawn(async move {
            let caller = Caller { client, entry: Entry::Intercept };
            let bounds = proxy::bounds(&gate);
            intercept::serve(&gate, caller, authority, Stream::Inner(stream), BytesMut::new(), bounds).await
        });
    }))
}

fn local(gate: &Arc<Gate>) -> Enter {
    let endpoints = Arc::new(Endpoints::new(Arc::clone(gate)));
    Arc::new(move |stream, purpose| {
        let place = Arc::new(Semaphore::new(1));
        if let Ok(slot) = place.try_acquire_owned() {
            let endpoints = Arc::clone(&endpoints);
            tokio::spawn(endpoints.connection(Stream::Inner(stream), Address::Inner(purpose), slot));
        }
    })
}
