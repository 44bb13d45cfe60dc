//! The TLS relay: a TLS server with one certificate, TLS to the origin, plain bytes between the two.
//!
//! Connections to the origin are kept for the next client, as a gateway keeps them, which a relay of bytes may do
//! where every answer was taken whole before the client went.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use exeat_tests::certs::{Leaf, unchecked_client_config};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, server};

use super::{accept_connect, dial, read_connect, serve_local};
use crate::load::peer::HOST;

/// As much as one TLS record holds.
const RECORD: usize = 16 * 1024;

struct Relay {
    origin: SocketAddr,
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    pool: RefCell<Vec<TlsStream<TcpStream>>>,
}

pub(super) async fn serve(listener: &TcpListener, origin: SocketAddr) -> anyhow::Result<()> {
    let relay = Relay {
        origin,
        acceptor: Leaf::self_signed(&[HOST]).server_config(&[]).into(),
        connector: Arc::new(unchecked_client_config()).into(),
        pool: RefCell::default(),
    };
    serve_local(listener, relay, Relay::client).await
}

impl Relay {
    async fn client(&self, mut client: TcpStream) -> anyhow::Result<()> {
        client.set_nodelay(true)?;
        read_connect(&mut client).await?;
        accept_connect(&mut client).await?;
        let mut client = self.acceptor.accept(client).await?;
        let pooled = self.pool.borrow_mut().pop();
        let mut upstream = match pooled {
            Some(upstream) => upstream,
            None => {
                let name = ServerName::try_from(HOST)?;
                self.connector.connect(name, dial(self.origin).await?).await?
            }
        };
        if relay(&mut client, &mut upstream).await? {
            self.pool.borrow_mut().push(upstream);
        }
        Ok(client.shutdown().await?)
    }
}

/// Relays until one side ends, and says whether that was the client.
pub(super) async fn relay(
    client: &mut server::TlsStream<TcpStream>,
    upstream: &mut TlsStream<TcpStream>,
) -> io::Result<bool> {
    let (mut request, mut answer) = (Vec::with_capacity(RECORD), Vec::with_capacity(RECORD));
    loop {
        tokio::select! {
            read = client.read_buf(&mut request) => {
                if read? == 0 {
                    return Ok(true);
                }
                upstream.write_all(&request).await?;
                upstream.flush().await?;
                request.clear();
            }
            read = upstream.read_buf(&mut answer) => {
                if read? == 0 {
                    return Ok(false);
                }
                client.write_all(&answer).await?;
                client.flush().await?;
                answer.clear();
            }
        }
    }
}
