//! The scripted server, and HTTP/1.1.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ring::digest::{Context, SHA256};
use rustls::ServerConfig;
use tokio::net::TcpStream;

use super::h2;
use super::record::{Request, hex};
use super::reply::{Body, Reply};
use crate::bulk;
use crate::certs::Leaf;
use crate::relay::{Task, accept_tls, listen};
use crate::wait::Journal;
use crate::wire::{self, Framing, Wire, chunk, last_chunk};
use crate::ws;

/// Which path is answered how. A path that is not listed is answered 200 with its method and target as text.
#[derive(Clone, Debug, Default)]
pub struct Site {
    routes: Vec<(String, Reply)>,
}

impl Site {
    /// Answers `path`, without a query, with `reply`; a path that ends in `*` stands for all that begin so. The first
    /// entry that matches answers.
    #[must_use]
    pub fn at(mut self, path: &str, reply: Reply) -> Self {
        self.routes.push((path.to_owned(), reply));
        self
    }

    pub(super) fn reply(&self, request: &Request) -> Reply {
        let matches = |route: &str| match route.strip_suffix('*') {
            Some(prefix) => request.path().starts_with(prefix),
            None => request.path() == route,
        };
        let route = self.routes.iter().find(|(route, _)| matches(route));
        route.map_or_else(
            || Reply::text(&format!("{} {}\n", request.method, request.target)),
            |(_, reply)| reply.clone(),
        )
    }
}

/// An HTTP server on loopback that records what it receives.
#[derive(Debug)]
pub struct Origin {
    addr: SocketAddr,
    scheme: &'static str,
    log: Log,
    _task: Task,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    pub(super) requests: Journal<Request>,
    connections: Journal<()>,
    pub(super) failures: Journal<String>,
}

impl Origin {
    /// A plain server.
    pub async fn http(site: Site) -> Self {
        Self::start("http", site, None).await
    }

    /// A server over TLS that shows `leaf`.
    pub async fn https(site: Site, leaf: &Leaf) -> Self {
        Self::start("https", site, Some(leaf.server_config(&["http/1.1"]))).await
    }

    /// A plain server that speaks HTTP/2 by prior knowledge.
    pub async fn h2c(site: Site) -> Self {
        Self::start_with("http", site, None, true).await
    }

    /// A server over TLS that shows `leaf` and speaks HTTP/2 or HTTP/1.1, HTTP/2 where the client offers it.
    pub async fn h2(site: Site, leaf: &Leaf) -> Self {
        Self::start("https", site, Some(leaf.server_config(&["h2", "http/1.1"]))).await
    }

    async fn start(scheme: &'static str, site: Site, tls: Option<Arc<ServerConfig>>) -> Self {
        Self::start_with(scheme, site, tls, false).await
    }

    async fn start_with(scheme: &'static str, site: Site, tls: Option<Arc<ServerConfig>>, h2c: bool) -> Self {
        let log = Log::default();
        let site = Arc::new(site);
        let kept = log.clone();
        let (addr, task) = listen(move |stream| {
            let (site, log, tls) = (Arc::clone(&site), kept.clone(), tls.clone());
            async move {
                if let Err(error) = serve(stream, tls, h2c, &site, &log).await {
                    log.failures.push(error.to_string());
                }
            }
        })
        .await;
        Self { addr, scheme, log, _task: task }
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
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

    /// `scheme://host:port/path`, for a name that leads here.
    #[must_use]
    pub fn url(&self, host: &str, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.authority(host))
    }

    /// Every request so far, finished or not, in the order of their heads.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.log.requests.all()
    }

    /// How many connections were accepted.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.log.connections.all().len()
    }

    /// What went wrong on connections: broken TLS handshakes, messages cut short.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        self.log.failures.all()
    }

    /// Waits until `count` requests have arrived whole, and returns all of them.
    pub async fn await_requests(&self, count: usize) -> Vec<Request> {
        let enough = |all: &[Request]| all.iter().filter(|request| request.complete).count() >= count;
        self.log.requests.when(&format!("{count} requests at the origin"), enough).await
    }

    /// Waits until the heads of `count` requests have arrived, and returns the requests.
    pub async fn await_heads(&self, count: usize) -> Vec<Request> {
        self.log.requests.when(&format!("{count} request heads at the origin"), |all| all.len() >= count).await
    }

    /// Waits for the one request of the test and returns it; panics if there are more.
    pub async fn only_request(&self) -> Request {
        let mut requests = self.await_requests(1).await;
        assert_eq!(requests.len(), 1, "{requests:#?}");
        requests.remove(0)
    }

    /// Waits until `count` connections have failed, and returns why.
    pub async fn await_failures(&self, count: usize) -> Vec<String> {
        self.log.failures.when("a failed connection at the origin", |all| all.len() >= count).await
    }
}

/// One connection, as the functions below share it.
struct Connection<'a> {
    wire: Wire,
    socket: OwnedFd,
    index: usize,
    log: &'a Log,
}

async fn serve(
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    h2c: bool,
    site: &Arc<Site>,
    log: &Log,
) -> io::Result<()> {
    let index = log.connections.push(());
    let socket = stream.as_fd().try_clone_to_owned()?;
    let (io, sni, alpn) = accept_tls(tls, stream).await?;
    if h2c || alpn.as_deref() == Some("h2") {
        return h2::serve(io, index, sni, site, log).await;
    }
    let mut connection = Connection { wire: Wire::new(io), socket, index, log };
    while let Some(head) = connection.wire.head().await? {
        let request = Request::new(connection.index, sni.clone(), head);
        let reply = site.reply(&request);
        let keep = !request.head.lists("connection", "close") && request.version == "HTTP/1.1";
        if !connection.answer(request, reply).await? || !keep {
            break;
        }
    }
    connection.wire.finish().await
}

impl Connection<'_> {
    /// Answers one request; false when the connection is over.
    async fn answer(&mut self, request: Request, reply: Reply) -> io::Result<bool> {
        let entry = self.log.requests.push(request.clone());
        for interim in &reply.interim {
            self.wire.send(interim).await?;
        }
        match reply.body {
            Body::Hang => std::future::pending().await,
            Body::Echo => {
                self.wire.send(reply.head(&request.method)).await?;
                self.body(&request, entry, true).await?;
                self.wire.send(last_chunk(&reply.trailers)).await?;
                return Ok(true);
            }
            _ => self.body(&request, entry, false).await?,
        }
        if let Some(gate) = &reply.gate {
            gate.pass().await;
        }
        let reply = match &reply.body {
            Body::Computed(compute) => compute(self.log.requests.all().swap_remove(entry)).await,
            _ => reply,
        };
        self.respond(&request, &reply).await
    }

    /// Reads the request's body into the log, and gives it back in chunks if asked.
    async fn body(&mut self, request: &Request, entry: usize, echo: bool) -> io::Result<()> {
        let mut body = wire::Body::new(Framing::of_request(&request.head));
        let mut digest = Context::new(&SHA256);
        while let Some(piece) = body.next(&mut self.wire).await? {
            digest.update(&piece);
            self.log.requests.update(entry, |request| request.append(&piece));
            if echo {
                self.wire.send(chunk(&piece)).await?;
            }
        }
        self.log.requests.update(entry, |request| {
            request.body_sha256 = hex(&digest.finish());
            request.trailers = body.trailers;
            request.complete = true;
        });
        Ok(())
    }

    async fn respond(&mut self, request: &Request, reply: &Reply) -> io::Result<bool> {
        match &reply.body {
            Body::Chunked(pieces) if request.method != "HEAD" => {
                self.wire.send(reply.head(&request.method)).await?;
                for piece in pieces {
                    self.wire.send(chunk(piece)).await?;
                }
                self.wire.send(last_chunk(&reply.trailers)).await?;
            }
            Body::Events(events) => {
                self.wire.send(reply.head(&request.method)).await?;
                self.events(&mut *events.lock().await).await?;
            }
            Body::Flood(length, written) => {
                self.wire.send(reply.head(&request.method)).await?;
                self.flood(*length, written).await?;
            }
            Body::WebSocket => return self.websocket(request).await,
            Body::Verbatim(bytes) => {
                self.wire.send(bytes).await?;
                return Ok(false);
            }
            Body::Reset(bytes) => {
                self.wire.send(bytes).await?;
                rustix::net::sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO))?;
                return Err(io::Error::other("reset, as scripted"));
            }
            Body::Vanish => return Ok(false),
            _ => self.wire.send(reply.whole(&request.method)).await?,
        }
        Ok(true)
    }

    /// Sends events until the source is dropped; notices a client that leaves in between.
    async fn events(&mut self, events: &mut tokio::sync::mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.wire.send(chunk(&event)).await?,
                    None => return self.wire.send(last_chunk(&[])).await,
                },
                _ = self.wire.wait_for_end() => {
                    events.close();
                    return Err(io::Error::other("the client left the event stream"));
                }
            }
        }
    }

    async fn flood(&mut self, length: u64, written: &AtomicU64) -> io::Result<()> {
        let mut content = bulk::Content::default();
        let mut left = length;
        while left > 0 {
            let count = bulk::PIECE.min(usize::try_from(left).unwrap());
            self.wire.send(&content.more()[..count]).await?;
            written.fetch_add(count as u64, Ordering::SeqCst);
            left -= count as u64;
        }
        Ok(())
    }

    async fn websocket(&mut self, request: &Request) -> io::Result<bool> {
        let wants = request.head.lists("connection", "upgrade") && request.head.lists("upgrade", "websocket");
        let Some(key) = request.value("sec-websocket-key").filter(|_| wants) else {
            let answer = Reply::text("a WebSocket handshake was expected\n").with_status(400);
            self.wire.send(answer.whole(&request.method)).await?;
            return Ok(true);
        };
        let accept = ws::accept(&key);
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        self.wire.send(head).await?;
        ws::echo(&mut self.wire).await?;
        Ok(false)
    }
}
