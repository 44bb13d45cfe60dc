//! Byte relays: a TLS front for servers that only speak plain text, and a proxy with no policy at all.
//!
//! The plain proxy is the control of the client suites: a peer that does not reach its server through it is
//! misconfigured, so a refusal by the gateway would prove nothing.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::certs::Leaf;
use crate::wait::{Journal, within};
use crate::wire::{Io, Wire};

/// A task that ends when its owner goes.
#[derive(Debug)]
pub struct Task(JoinHandle<()>);

impl Task {
    /// Starts it.
    pub fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(future))
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn ended(mut self) {
        within("a task to end", &mut self.0).await.unwrap();
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Accepts on a free loopback port and hands each connection to `serve`.
pub(crate) async fn listen<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> (SocketAddr, Task)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let task = Task::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(serve(stream));
        }
    });
    (addr, task)
}

/// A listener that ends TLS and passes the bytes on to a plain server.
#[derive(Debug)]
pub struct TlsFront {
    addr: SocketAddr,
    _task: Task,
}

impl TlsFront {
    /// Shows `leaf` and forwards to `backend`.
    pub async fn start(leaf: &Leaf, backend: SocketAddr) -> Self {
        let acceptor = TlsAcceptor::from(leaf.server_config(&["http/1.1"]));
        let (addr, task) = listen(move |stream| {
            let acceptor = acceptor.clone();
            async move {
                let Ok(mut outside) = acceptor.accept(stream).await else { return };
                let Ok(mut inside) = TcpStream::connect(backend).await else { return };
                // Whichever side breaks off, the other is closed with it: that is all a front has to do.
                let _ = copy_bidirectional(&mut outside, &mut inside).await;
            }
        })
        .await;
        Self { addr, _task: task }
    }

    /// The port it listens on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.addr.port()
    }
}

/// A proxy that lets everything through, to the named port on 127.0.0.1 whatever the host.
#[derive(Debug)]
pub struct PlainProxy {
    addr: SocketAddr,
    targets: Journal<String>,
    _task: Task,
}

impl PlainProxy {
    /// Starts it.
    pub async fn start() -> Self {
        let targets = Journal::default();
        let seen = targets.clone();
        let (addr, task) = listen(move |stream| plain_proxy(stream, seen.clone())).await;
        Self { addr, targets, _task: task }
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The request lines it was sent.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.targets.all()
    }
}

async fn plain_proxy(stream: TcpStream, seen: Journal<String>) {
    let mut wire = Wire::new(stream);
    let Ok(Some(head)) = wire.head().await else { return };
    seen.push(head.start.clone());
    let mut words = head.start.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let authority = target.strip_prefix("http://").unwrap_or(target).split('/').next().unwrap_or_default();
    let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(80);
    let Ok(mut upstream) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let first = if method == "CONNECT" {
        wire.send("HTTP/1.1 200 OK\r\n\r\n").await.map(|()| Vec::new())
    } else {
        Ok(head.raw)
    };
    let (mut client, early) = wire.into_parts();
    let Ok(first) = first else { return };
    if upstream.write_all(&[first, early].concat()).await.is_ok() {
        let _ = copy_bidirectional(&mut client, &mut upstream).await;
    }
}

/// Ends TLS on a stream where there is an acceptor; also gives the server name and the protocol that ALPN chose.
pub(crate) async fn accept_tls(
    acceptor: Option<Arc<rustls::ServerConfig>>,
    stream: TcpStream,
) -> std::io::Result<(Box<dyn Io>, Option<String>, Option<String>)> {
    let Some(config) = acceptor else { return Ok((Box::new(stream), None, None)) };
    let tls = TlsAcceptor::from(config).accept(stream).await?;
    let sni = tls.get_ref().1.server_name().map(str::to_owned);
    let alpn = tls.get_ref().1.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
    Ok((Box::new(tls), sni, alpn))
}
