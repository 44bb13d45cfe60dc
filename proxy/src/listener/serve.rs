//! What serves the connections of a listener: in a task of its own, until the gateway shuts down or the session ends that
//! the listener belongs to.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::endpoint::Endpoints;
use super::{Listener, accept, proxy};
use crate::gate::Gate;

/// Serves a proxy port or the Unix socket beside it.
pub(crate) fn proxy(listener: Listener, secure: bool, gate: Arc<Gate>, connections: Arc<Semaphore>) -> JoinHandle<()> {
    let (drain, mut ended) = (gate.drain.clone(), gate.session.ended());
    // What a TLS client could not read is not said to it.
    let full = if secure { Vec::new } else { proxy::full_answer };
    tokio::spawn(async move {
        let keepalive = || gate.keepalive();
        let serving = accept(listener, connections, full, keepalive, drain, |stream, address, slot| {
            proxy::connection(Arc::clone(&gate), secure, stream, address, slot)
        });
        tokio::select! {
            () = serving => {}
            () = ended.begun() => {}
        }
    })
}

/// Serves the local endpoints of MCP servers.
pub(crate) fn endpoints(listener: TcpListener, gate: &Arc<Gate>, connections: Arc<Semaphore>) -> JoinHandle<()> {
    let (listener, drain, mut ended) = (Listener::Tcp(listener), gate.drain.clone(), gate.session.ended());
    let (gate, endpoints) = (Arc::clone(gate), Arc::new(Endpoints::new(Arc::clone(gate))));
    tokio::spawn(async move {
        let keepalive = || gate.keepalive();
        let serving = accept(listener, connections, proxy::full_answer, keepalive, drain, |stream, address, slot| {
            Arc::clone(&endpoints).connection(stream, address, slot)
        });
        tokio::select! {
            () = serving => {}
            () = ended.begun() => {}
        }
    })
}
