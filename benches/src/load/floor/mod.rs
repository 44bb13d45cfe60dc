//! Floors: relays that judge nothing, write nothing down, and know no policy. What a gateway costs beyond them is the
//! price of what it does; below them it cannot get by doing less.
//!
//! Each runs as a process of its own, with one thread.

mod hosts;
mod relay;
mod splice;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

use anyhow::Context as _;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

/// Which relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Bytes, to and from a fixed origin, from the first one on.
    Raw,
    /// Bytes behind a CONNECT, copied.
    Copy,
    /// Bytes behind a CONNECT, moved by the kernel with splice(2).
    Splice,
    /// Bytes behind a CONNECT, between a TLS server and a pool of TLS connections to the origin.
    Tls,
    /// As [`Tls`](Self::Tls), for hosts that nobody knows beforehand, whose certificates at the origin are verified.
    Hosts,
}

/// Runs a relay until the process is ended. `ca` has the authority of the origin's certificates, for who verifies them.
pub(crate) fn run(kind: Kind, listen: SocketAddr, origin: SocketAddr, ca: Option<&Path>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(listen).await?;
        match kind {
            Kind::Raw => relay::serve(&listener, origin, false).await,
            Kind::Copy => relay::serve(&listener, origin, true).await,
            Kind::Splice => splice::serve(&listener, origin).await,
            Kind::Tls => tls::serve(&listener, origin).await,
            Kind::Hosts => hosts::serve(&listener, origin, ca.context("the authority is missing")?).await,
        }
    })
}

/// Serves each client in a task of this thread, with what all of them share.
async fn serve_local<S: 'static>(
    listener: &TcpListener,
    shared: S,
    serve: impl AsyncFn(&S, TcpStream) -> anyhow::Result<()> + Copy + 'static,
) -> anyhow::Result<()> {
    let shared = Rc::new(shared);
    let accepting = async {
        loop {
            let (client, _) = listener.accept().await?;
            let shared = Rc::clone(&shared);
            // A connection that breaks is the peers' affair.
            tokio::task::spawn_local(async move { drop(serve(&shared, client).await) });
        }
    };
    LocalSet::new().run_until(accepting).await
}

/// Reads a CONNECT to its end, and gives it as it came.
async fn read_connect(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(512);
    loop {
        if client.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if head.ends_with(b"\r\n\r\n") {
            return Ok(head);
        }
    }
}

async fn accept_connect(client: &mut TcpStream) -> io::Result<()> {
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await
}

#[allow(clippy::disallowed_methods, reason = "a floor is what dialling costs without any check")]
async fn dial(origin: SocketAddr) -> io::Result<TcpStream> {
    let upstream = TcpStream::connect(origin).await?;
    upstream.set_nodelay(true)?;
    Ok(upstream)
}
