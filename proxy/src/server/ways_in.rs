//! Where connections come in: the listeners of a gateway, bound or taken over, and what serves them.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::StartError;
use crate::gate::Gate;
use crate::listener::dns::{self, NameServer};
use crate::listener::names::Names;
use crate::listener::unix::UnixSocket;
use crate::listener::{self, Listener, caught};

/// The ways in of a session, which come from inside of it.
#[derive(Debug)]
pub(crate) struct Inside {
    /// The proxy port.
    pub(crate) proxy: std::net::TcpListener,
    /// The local endpoints of MCP servers.
    pub(crate) mcp: Option<std::net::TcpListener>,
    /// The name server, over UDP and TCP.
    pub(crate) dns: (std::net::UdpSocket, std::net::TcpListener),
    /// Where connections to any address are caught.
    pub(crate) caught: Vec<std::net::TcpListener>,
    /// Whether addresses of IPv6 lead there too.
    pub(crate) ipv6: bool,
}

/// The same, served by a gateway.
#[derive(Debug)]
pub(super) struct Catching {
    dns: (UdpSocket, TcpListener),
    caught: Vec<TcpListener>,
    ports: Arc<[u16]>,
    ipv6: bool,
}

/// Serves what is caught inside a session, and its names.
pub(super) fn catch(catching: Catching, gate: &Arc<Gate>, connections: &Arc<Semaphore>) -> Vec<JoinHandle<()>> {
    let Catching { dns: (udp, tcp), caught, ports, ipv6 } = catching;
    let names = Arc::new(Names::default());
    let server = Arc::new(NameServer { gate: Arc::clone(gate), names: Arc::clone(&names), ports, ipv6 });
    let mut tasks = vec![
        tokio::spawn(dns::serve_udp(Arc::clone(&server), udp, gate.drain.clone())),
        tokio::spawn(dns::serve_tcp(server, tcp, gate.drain.clone())),
    ];
    tasks.extend(caught.into_iter().map(|listener| {
        let (gate, names) = (Arc::clone(gate), Arc::clone(&names));
        let (listener, connections) = (Listener::Tcp(listener), Arc::clone(connections));
        tokio::spawn(async move {
            let (drain, keepalive) = (gate.drain.clone(), || gate.keepalive());
            let serve = |stream, address, slot| {
                caught::connection(Arc::clone(&gate), Arc::clone(&names), stream, address, slot)
            };
            listener::accept(listener, connections, Vec::new, keepalive, drain, serve).await;
        })
    }));
    tasks
}

/// Makes the sockets of a session this runtime's.
pub(super) fn take_over(inside: Inside) -> io::Result<(TcpListener, Option<TcpListener>, Option<Catching>)> {
    let listener = |listener: std::net::TcpListener| {
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    };
    let (udp, tcp) = inside.dns;
    udp.set_nonblocking(true)?;
    let caught: Vec<TcpListener> = inside.caught.into_iter().map(listener).collect::<io::Result<_>>()?;
    let ports = caught.iter().map(|listener| listener.local_addr().map(|address| address.port()));
    let ports = ports.collect::<io::Result<_>>()?;
    let catching = Catching { dns: (UdpSocket::from_std(udp)?, listener(tcp)?), caught, ports, ipv6: inside.ipv6 };
    Ok((listener(inside.proxy)?, inside.mcp.map(listener).transpose()?, Some(catching)))
}

pub(super) async fn bind(address: SocketAddr, flag: &'static str) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, flag, cause: source })
}

pub(super) fn bind_unix(path: &Path) -> Result<UnixSocket, StartError> {
    UnixSocket::bind(path).map_err(|cause| StartError::ListenUnix { path: path.to_owned(), cause })
}

pub(super) fn local(listener: &TcpListener, address: SocketAddr, flag: &'static str) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|source| StartError::Listen { address, flag, cause: source })
}
