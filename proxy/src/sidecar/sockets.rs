//! The listening sockets of a session, opened inside its network namespace and served from outside of it.
//!
//! A socket belongs to the network namespace it was made in, whoever holds its descriptor. So the gateway accepts inside
//! while it dials outside, and nothing joins the two but the gateway.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::Plan;

/// Where DNS is served (RFC 1035 section 4.2).
const DNS: u16 = 53;

/// All of them.
#[derive(Debug)]
pub(crate) struct Sockets {
    /// The proxy port.
    pub(crate) proxy: TcpListener,
    /// The local endpoints of MCP servers.
    pub(crate) mcp: Option<TcpListener>,
    /// The name server, over UDP, at every address.
    pub(crate) dns_udp: UdpSocket,
    /// The name server, over TCP, at every address.
    pub(crate) dns_tcp: TcpListener,
    /// The caught ports, at every address.
    pub(crate) caught: Vec<TcpListener>,
    /// Whether addresses of IPv6 lead here too.
    pub(crate) ipv6: bool,
}

impl Sockets {
    /// Opens them in the network namespace of the calling thread.
    pub(super) fn open(plan: &Plan, ipv6: bool) -> Result<Self, String> {
        let (proxy, mcp) = (plan.proxy, plan.mcp);
        let failed = |what: &str, port: u16| {
            let what = what.to_owned();
            move |error: io::Error| format!("cannot listen on {what} {port} inside: {error}")
        };
        let everywhere = |port| -> SocketAddr {
            // A socket of IPv6 takes connections of both families unless the system says otherwise, which the default
            // of a new namespace does not.
            if ipv6 { (Ipv6Addr::UNSPECIFIED, port).into() } else { (Ipv4Addr::UNSPECIFIED, port).into() }
        };
        let inside = |what, port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed(what, port));
        let caught = plan.catch.iter().filter(|port| ![proxy, DNS, mcp.unwrap_or(proxy)].contains(port));
        Ok(Self {
            proxy: inside("the proxy port", proxy)?,
            mcp: mcp.map(|port| inside("the port of MCP endpoints", port)).transpose()?,
            // A client that asks any address for a name is answered from that address: its own source address is the
            // one it asked, since every address is local, and so is the one that the answer goes out from.
            dns_udp: UdpSocket::bind(everywhere(DNS)).map_err(failed("UDP port", DNS))?,
            dns_tcp: TcpListener::bind(everywhere(DNS)).map_err(failed("port", DNS))?,
            caught: caught
                .map(|port| TcpListener::bind(everywhere(*port)).map_err(failed("port", *port)))
                .collect::<Result<_, _>>()?,
            ipv6,
        })
    }

    /// Their descriptors, in the order in which they are passed.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let fixed = [self.proxy.as_fd(), self.dns_udp.as_fd(), self.dns_tcp.as_fd()];
        fixed.into_iter().chain(self.mcp.iter().map(AsFd::as_fd)).chain(self.caught.iter().map(AsFd::as_fd)).collect()
    }

    /// Takes descriptors over that were passed in that order; none if some are missing.
    pub(super) fn from_descriptors(descriptors: Vec<OwnedFd>, mcp: bool, ipv6: bool) -> Option<Self> {
        let mut descriptors = descriptors.into_iter();
        Some(Self {
            proxy: descriptors.next()?.into(),
            dns_udp: descriptors.next()?.into(),
            dns_tcp: descriptors.next()?.into(),
            mcp: if mcp { Some(descriptors.next()?.into()) } else { None },
            caught: descriptors.map(TcpListener::from).collect(),
            ipv6,
        })
    }
}
