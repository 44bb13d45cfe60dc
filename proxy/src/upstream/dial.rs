//! Dialling: the one place that opens a connection, and only to a checked address.

use std::future::{Ready, ready};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use exeat_policy::Reason;
use exeat_policy::target::Scheme;
use http::Uri;
use hyper::client::conn::http1;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tower_service::Service;

use super::failure::Failure;
use super::pool::Sender;
use super::tls::ClientTls;
use crate::guard::CheckedAddr;
use crate::permit::Origin;

/// Connects to the first of `addresses` that accepts.
#[allow(clippy::disallowed_methods, reason = "this is the one place that dials, and it takes checked addresses only")]
pub(super) async fn connect(addresses: &[CheckedAddr]) -> Result<TcpStream, Failure> {
    let mut last = None;
    for address in addresses {
        match TcpStream::connect(address.get()).await {
            Ok(stream) => {
                // A socket that refuses the option still works, with more delay.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    let error = last.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into());
    Err(Failure::from_connect(&error))
}

/// Speaks TLS, where the origin wants it, and HTTP/1.1 on a fresh connection.
pub(super) async fn handshake(stream: TcpStream, origin: &Origin, tls: &ClientTls) -> Result<Sender, Failure> {
    let mut builder = http1::Builder::new();
    // The head of an answer has to fit; a body is streamed and does not count.
    builder.max_headers(256);
    match origin.scheme {
        Scheme::Http => {
            let (sender, connection) =
                builder.handshake(TokioIo::new(stream)).await.map_err(|e| Failure::from_hyper(&e))?;
            tokio::spawn(connection.with_upgrades());
            Ok(sender)
        }
        Scheme::Https => {
            let stream = secure(stream, origin, tls).await?;
            let (sender, connection) = builder.handshake(stream).await.map_err(|e| Failure::from_hyper(&e))?;
            tokio::spawn(connection.with_upgrades());
            Ok(sender)
        }
    }
}

type Secured = hyper_rustls::MaybeHttpsStream<TokioIo<TcpStream>>;

async fn secure(stream: TcpStream, origin: &Origin, tls: &ClientTls) -> Result<Secured, Failure> {
    let config = tls.config()?;
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
