//! What a connection passes before its protocol is spoken: a PROXY header where its source has to send one, and TLS
//! where the port has it.
//!
//! Both come at once or not at all: a client that is not through in time is closed. Neither failure has a protocol to
//! be answered in, so it is taken down and the connection closed.

use std::sync::Arc;

use bytes::{Buf as _, BytesMut};
use exeat_policy::Reason;
use rustls::ServerConfig;
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsAcceptor;

use super::http1::Bounds;
use super::stream::{Rewound, Stream};
use super::{proxy_protocol, tls};
use crate::audit::Entry;
use crate::client::{Address, Client};
use crate::gate::{Caller, Gate, Refusal, Subject};

/// A connection that is through.
pub(super) struct Entered {
    pub(super) client: Client,
    pub(super) stream: Stream,
    /// What was read from it already.
    pub(super) first: BytesMut,
}

/// Lets a connection in; none where it ended or was refused.
pub(super) async fn enter(
    gate: &Gate,
    tls: Option<Arc<ServerConfig>>,
    mut stream: Stream,
    address: Address,
    bounds: Bounds,
) -> Option<Entered> {
    let mut client = Client { address, user: None, account: None };
    let mut first = BytesMut::new();
    let deadline = Instant::now() + bounds.head_time;
    if comes_from_balancer(gate, &address) {
        match read_header(&mut stream, &mut first, deadline).await? {
            Ok(Some(named)) => client.address = named,
            Ok(None) => {}
            Err(refusal) => return refuse(gate, client, &refusal),
        }
    }
    let Some(config) = tls else { return Some(Entered { client, stream, first }) };
    // A connection that ends without a byte was somebody's test of the port.
    if first.is_empty() && matches!(timeout_at(deadline, stream.read_buf(&mut first)).await, Ok(Ok(0) | Err(_))) {
        return None;
    }
    let accepting = TlsAcceptor::from(config).accept(Rewound::new(first, stream));
    let refusal = match timeout_at(deadline, accepting).await {
        Ok(Ok(stream)) => {
            let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            client.user = certificate.and_then(tls::subject);
            return Some(Entered { client, stream: Stream::Tls(Box::new(stream)), first: BytesMut::new() });
        }
        Ok(Err(error)) => Refusal::new(Reason::ClientTls, error),
        Err(_) => Refusal::new(Reason::ClientTls, "the TLS handshake did not end in time"),
    };
    refuse(gate, client, &refusal)
}

fn comes_from_balancer(gate: &Gate, address: &Address) -> bool {
    match address {
        Address::Tcp(address) => {
            let sources = &gate.current.get().config.listen.proxy_protocol;
            sources.iter().any(|source| source.contains(address.ip()))
        }
        Address::Unix { .. } | Address::Inner(_) => false,
    }
}

/// Reads a PROXY header and takes it off; none if the connection ends before one byte of it.
async fn read_header(
    stream: &mut Stream,
    first: &mut BytesMut,
    deadline: Instant,
) -> Option<Result<Option<Address>, Refusal>> {
    let refused = |detail| Some(Err(Refusal::new(Reason::ProxyHeader, detail)));
    loop {
        match proxy_protocol::read(first) {
            Ok(Some(header)) => {
                first.advance(header.length);
                return Some(Ok(header.client.map(Address::Tcp)));
            }
            Ok(None) => {}
            Err(error) => return refused(error.0),
        }
        match timeout_at(deadline, stream.read_buf(first)).await {
            Ok(Ok(0) | Err(_)) if first.is_empty() => return None,
            Ok(Ok(0) | Err(_)) => return refused("the connection ended within the PROXY header"),
            Ok(Ok(_)) => {}
            Err(_) => return refused("the PROXY header did not arrive in time"),
        }
    }
}

fn refuse(gate: &Gate, client: Client, refusal: &Refusal) -> Option<Entered> {
    let caller = Caller { client, entry: Entry::Forward };
    gate.turned_away(&Subject::unjudged(&caller, &gate.current.get(), "", &""), refusal);
    None
}
