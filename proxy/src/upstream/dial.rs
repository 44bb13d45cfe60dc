//! Dialling: the one place that opens a connection, and only to a checked address.

use std::future::{Ready, ready};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use exeat_policy::Reason;
use exeat_policy::target::Scheme;
use http::Uri;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, MaybeHttpsStream};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tower_service::Service;

use super::Speaks;
use super::failure::Failure;
use super::race::{interleaved, race};
use super::raw::Io;
use super::shared::{self, Shared};
use super::tls::ClientTls;
use crate::guard::CheckedAddr;
use crate::permit::Origin;

/// Connects to the first of `addresses` that accepts.
pub(super) async fn connect(addresses: &[CheckedAddr]) -> Result<TcpStream, Failure> {
    if let [address] = addresses {
        return attempt(*address).await.map_err(|error| Failure::from_connect(&error));
    }
    let errors = match race(interleaved(addresses), attempt).await {
        Ok(stream) => return Ok(stream),
        Err(errors) => errors,
    };
    // A server that refused says more than a network that could not be reached.
    let failures = errors.iter().map(Failure::from_connect);
    let failure = failures.min_by_key(|failure| failure.reason == Reason::ConnectFailed);
    Err(failure.unwrap_or_else(Failure::no_addresses))
}

#[allow(clippy::disallowed_methods, reason = "this is the one place that dials, and it takes checked addresses only")]
async fn attempt(address: CheckedAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address.get()).await?;
    // A socket that refuses the option still works, with more delay.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// A connection that has carried nothing yet.
pub(super) enum Fresh {
    /// It speaks HTTP/1.1.
    Http1(Io),
    /// It speaks HTTP/2.
    Http2(Shared),
}

/// Speaks TLS, where the origin wants it, and HTTP on a fresh connection.
pub(super) async fn handshake(
    stream: TcpStream,
    origin: &Origin,
    tls: &ClientTls,
    speaks: Speaks,
) -> Result<Fresh, Failure> {
    let peer = stream.peer_addr().ok();
    match origin.scheme {
        Scheme::Http if speaks == Speaks::Http2 => {
            Shared::handshake(MaybeHttpsStream::Http(TokioIo::new(stream)), peer).await.map(Fresh::Http2)
        }
        Scheme::Http => Ok(Fresh::Http1(Io::Plain(stream))),
        Scheme::Https => {
            let stream = secure(stream, origin, tls, speaks).await?;
            match chose_http2(&stream) {
                true => Shared::handshake(stream, peer).await.map(Fresh::Http2),
                false => Ok(Fresh::Http1(Io::Secured(Box::new(TokioIo::new(stream))))),
            }
        }
    }
}

fn chose_http2(stream: &shared::Io) -> bool {
    match stream {
        MaybeHttpsStream::Http(_) => false,
        MaybeHttpsStream::Https(tls) => tls.inner().get_ref().1.alpn_protocol() == Some(b"h2"),
    }
}

pub(super) async fn secure(
    stream: TcpStream,
    origin: &Origin,
    tls: &ClientTls,
    speaks: Speaks,
) -> Result<shared::Io, Failure> {
    let config = tls.config(speaks)?;
    let name = match origin.host.ip() {
        Some(ip) => ServerName::from(ip),
        None => ServerName::try_from(origin.host.as_str().to_owned()).map_err(|error| {
            Failure::new(Reason::UpstreamTls, "the host is no name that a certificate can have", error)
        })?,
    };
    let mut connector =
        HttpsConnector::new(Dialled(Some(stream)), config, true, Arc::new(FixedServerNameResolver::new(name)));
    connector.call(Uri::from_static("https://upstream")).await.map_err(|error| Failure::from_tls(&*error))
}

/// Hands the TLS connector the connection that was dialled for it.
struct Dialled(Option<TcpStream>);

impl Service<Uri> for Dialled {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        ready(self.0.take().map(TokioIo::new).ok_or_else(|| io::ErrorKind::NotConnected.into()))
    }
}
