//! Servers that do not speak HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::net::TcpStream;

use crate::certs::Leaf;
use crate::relay::{Task, accept_tls, listen};
use crate::wait::Journal;
use crate::wire::Wire;

/// What an SMTP server says before its client does.
pub const BANNER: &str = "220 mail.example.test ESMTP\r\n";

/// A TCP server that gives back every byte, and ends its own side when the client has ended its side.
#[derive(Debug)]
pub struct Echo {
    addr: SocketAddr,
    connections: Journal<()>,
    ended: Journal<u64>,
    _task: Task,
}

impl Echo {
    /// Plain bytes.
    pub async fn tcp() -> Self {
        Self::start("", None).await
    }

    /// Bytes over TLS.
    pub async fn tls(leaf: &Leaf) -> Self {
        Self::start("", Some(leaf.server_config(&[]))).await
    }

    /// Plain bytes, after [`BANNER`].
    pub async fn banner() -> Self {
        Self::start(BANNER, None).await
    }

    async fn start(banner: &'static str, tls: Option<Arc<ServerConfig>>) -> Self {
        let (connections, ended) = (Journal::default(), Journal::default());
        let (began, over) = (connections.clone(), ended.clone());
        let (addr, task) = listen(move |stream| {
            let (tls, began, over) = (tls.clone(), began.clone(), over.clone());
            async move {
                began.push(());
                let count = echo(stream, tls, banner).await.unwrap_or(0);
                over.push(count);
            }
        })
        .await;
        Self { addr, connections, ended, _task: task }
    }

    /// The port it listens on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.addr.port()
    }

    /// `host:port`, for a name that leads here.
    #[must_use]
    pub fn authority(&self, host: &str) -> String {
        format!("{host}:{}", self.port())
    }

    /// How many connections were accepted.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.all().len()
    }

    /// Waits until `count` connections have ended, and returns how many bytes each gave back.
    pub async fn await_ended(&self, count: usize) -> Vec<u64> {
        self.ended.when("connections of the echo server to end", |all| all.len() >= count).await
    }
}

async fn echo(stream: TcpStream, tls: Option<Arc<ServerConfig>>, banner: &str) -> io::Result<u64> {
    let (io, ..) = accept_tls(tls, stream).await?;
    let mut wire = Wire::new(io);
    wire.send(banner).await?;
    let mut count = 0;
    loop {
        let bytes = wire.some().await?;
        if bytes.is_empty() {
            wire.finish().await?;
            return Ok(count);
        }
        count += bytes.len() as u64;
        wire.send(bytes).await?;
    }
}
