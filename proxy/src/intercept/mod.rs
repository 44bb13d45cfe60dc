//! Inspected tunnels: the gateway speaks for the host of the CONNECT, and judges every request.
//!
//! What the client opens with decides how: TLS is terminated with a leaf certificate for the host, clear text is read
//! as HTTP, and anything else closes the tunnel. Either way the requests are for the host and port of the CONNECT, in
//! HTTP/1.1 or HTTP/2 as the client chose by ALPN or by the preface it sent, and go through the gate one by one;
//! nothing is dialled before one is permitted.

mod ca;
mod leaf;
mod service;

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use exeat_policy::target::{Authority, Scheme};
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

pub(crate) use ca::{Ca, CaError};
pub(crate) use leaf::Leaves;
use service::Inspected;

use crate::config::SniCheck;
use crate::gate::{Caller, Gate, Switch};
use crate::listener::detect::{self, Protocol};
use crate::listener::http1::{self, Bounds, Switched};
use crate::listener::http2;
use crate::listener::stream::{Rewound, Stream};
use crate::tunnel::hello::{Opening, Sniffer};
use crate::tunnel::{Cause, names_host};

/// What came out of an inspected tunnel.
pub(crate) enum Ended {
    /// It is over.
    With(Cause),
    /// A request in it became a connection of its own.
    Switched(Switched<Switch>),
}

/// Serves an inspected tunnel to `authority`. `first` was read from the client already.
pub(crate) async fn serve(
    gate: &Arc<Gate>,
    caller: Caller,
    authority: Authority,
    mut stream: Stream,
    mut first: BytesMut,
    bounds: Bounds,
) -> Ended {
    let opening = match timeout(bounds.head_time, read_opening(&mut stream, &mut first)).await {
        Ok(Some(opening)) => opening,
        Ok(None) => return Ended::With(Cause::Closed),
        Err(_) => return Ended::With(Cause::Idle),
    };
    let mut service =
        Inspected { gate: Arc::clone(gate), caller, authority, scheme: Scheme::Https, misdirected: false };
    let (stream, buffered, protocol) = match opening {
        Opening::Hello(name) => {
            service.misdirected = !names_host(name.as_deref(), service.authority.host(), SniCheck::Match);
            match terminate(gate, &service.authority, Rewound::new(first, stream), bounds.head_time).await {
                Some((stream, protocol)) => (stream, BytesMut::new(), protocol),
                None => return Ended::With(Cause::Error),
            }
        }
        Opening::Other if first.first().is_some_and(u8::is_ascii_alphabetic) => {
            service.scheme = Scheme::Http;
            match timeout(bounds.head_time, detect::read_protocol(&mut stream, &mut first)).await {
                Ok(Some(protocol)) => (stream, first, protocol),
                Ok(None) => return Ended::With(Cause::Closed),
                Err(_) => return Ended::With(Cause::Idle),
            }
        }
        Opening::Other | Opening::Broken | Opening::Partial => return Ended::With(Cause::NotTls),
    };
    let mut drain = gate.drain.clone();
    if protocol == Protocol::Http2 {
        // No stream can turn into something else, since a CONNECT inside a tunnel is refused.
        let nothing = |_| std::future::ready(());
        Box::pin(http2::serve(stream, buffered, Arc::new(service), bounds, &mut drain, nothing)).await;
        return Ended::With(Cause::Closed);
    }
    match http1::serve(stream, buffered, &service, bounds, &mut drain).await {
        Some(switched) => Ended::Switched(switched),
        None => Ended::With(Cause::Closed),
    }
}

/// Reads until the first bytes can be told; none if the client ends before.
pub(crate) async fn read_opening(stream: &mut Stream, first: &mut BytesMut) -> Option<Opening> {
    let mut sniffer = Sniffer::default();
    loop {
        match sniffer.sniff(first) {
            Opening::Partial => {}
            opening => return Some(opening),
        }
        if stream.read_buf(first).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

/// Terminates TLS with the leaf certificate of the host; gives the stream and what the client speaks on it.
async fn terminate(gate: &Gate, authority: &Authority, stream: Rewound, time: Duration) -> Option<(Stream, Protocol)> {
    let host = authority.host();
    let config = match gate.leaves.config(host) {
        Ok(config) => config,
        Err(error) => {
            tracing::error!(%host, %error, "no certificate for the host");
            return None;
        }
    };
    match timeout(time, TlsAcceptor::from(config).accept(stream)).await {
        Ok(Ok(stream)) => {
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let protocol = if http2 { Protocol::Http2 } else { Protocol::Http1 };
            Some((Stream::Tls(Box::new(stream)), protocol))
        }
        Ok(Err(error)) => {
            // Most often a client that has not been told of the CA.
            tracing::warn!(
                %host,
                %error,
                "the client did not complete TLS; does it trust the gateway's CA? `exeat env` prints the settings"
            );
            None
        }
        Err(_) => None,
    }
}
