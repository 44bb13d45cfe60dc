//! Connections to upstream servers: resolved, checked, dialled, pooled.
//!
//! The way out has one door. [`Upstream::connect`] and [`Upstream::dial`] take a [`Permit`], ask for the name's
//! addresses, have the guard check every one, and dial one of those that were checked. A connection that was used and
//! is still good waits in the pool for the next request to the same origin; one of HTTP/2 serves many at once.

mod body;
mod dial;
mod failure;
mod fetch;
mod http1;
mod next;
mod pool;
mod race;
mod raw;
mod resolve;
mod shared;
mod tls;
mod wait;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use exeat_policy::host::Host;
use exeat_policy::target::Authority;
use http::{Request, Response};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) use body::{BodyError, UpstreamBody};
use body::{Source, Streamed};
use dial::Fresh;
pub(crate) use failure::{Failure, Fate};
pub(crate) use fetch::{Bounds, Message, fetch};
use http1::Connection;
pub(crate) use next::NextProxy;
use pool::{Pool, Sender, Turn};
pub(crate) use raw::Raw;
pub(crate) use resolve::Resolver;
use shared::Answer;
pub(crate) use tls::ClientTls;
pub(crate) use wait::Wait;

use crate::guard::{CheckedAddr, Guard};
use crate::keepalive;
use crate::listener::http1::{Interim, RequestBody};
use crate::permit::Permit;

/// All connections to upstream servers of one gateway.
#[derive(Debug)]
pub(crate) struct Upstream {
    pool: Arc<Pool>,
}

/// What a connection is made under; it comes from the snapshot that the request is judged by.
#[derive(Debug)]
pub(crate) struct Route {
    /// The generation of the snapshot. Connections are not shared across generations.
    pub(crate) generation: u64,
    /// Checks addresses.
    pub(crate) guard: Guard,
    /// Finds addresses.
    pub(crate) resolver: Arc<Resolver>,
    /// The proxy that connections go through.
    pub(crate) next_proxy: Option<Arc<NextProxy>>,
    /// Verifies certificates.
    pub(crate) tls: ClientTls,
    /// For resolving, connecting and the TLS handshake together.
    pub(crate) connect_time: Duration,
    /// After how much silence the other end is asked for a sign of life.
    pub(crate) keepalive: Option<Duration>,
}

/// What a new connection may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// HTTP/1.1 alone.
    Http1,
    /// HTTP/2 over TLS where the server chooses it, HTTP/1.1 where it does not.
    Negotiated,
    /// HTTP/2 in clear text, by prior knowledge (RFC 9113 section 3.3).
    Http2,
}

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// A connection that is ready for one request.
#[derive(Debug)]
pub(crate) struct Lease {
    sender: Sender,
    reused: bool,
}

impl Upstream {
    /// A pool that keeps unused connections for `idle`.
    pub(crate) fn new(idle: Duration) -> Self {
        Self { pool: Arc::new(Pool::new(idle)) }
    }

    /// Gets a connection for one request, of which there is only this `once` if it cannot be sent again: a pooled one,
    /// or a new one. While a connection is being made that may turn
    /// out to be one for many requests, the others wait for it, once.
    pub(crate) async fn connect(
        &self,
        route: &Route,
        permit: &Permit,
        speaks: Speaks,
        once: bool,
    ) -> Result<Lease, Failure> {
        let key = pool::Key::new(route.generation, permit.origin());
        if let Some(lease) = self.reuse(&key, speaks, once) {
            return Ok(lease);
        }
        let _leader = match self.pool.turn(&key, speaks) {
            Turn::First(leader) => Some(leader),
            Turn::After(mut done) => {
                // The sender sends nothing: its end is the news.
                let _ = done.changed().await;
                if let Some(lease) = self.reuse(&key, speaks, once) {
                    return Ok(lease);
                }
                None
            }
            Turn::Free => None,
        };
        // Large, and only now and then what a request needs.
        Box::pin(self.connect_anew(route, permit, speaks)).await
    }

    fn reuse(&self, key: &pool::Key, speaks: Speaks, once: bool) -> Option<Lease> {
        Some(Lease { sender: self.pool.take(key, speaks, once)?, reused: true })
    }

    /// Makes a new connection for one request.
    pub(crate) async fn connect_anew(&self, route: &Route, permit: &Permit, speaks: Speaks) -> Result<Lease, Failure> {
        let key = pool::Key::new(route.generation, permit.origin());
        let fresh = timeout(route.connect_time, async {
            let stream = dial(route, permit).await?;
            dial::handshake(stream, permit.origin(), &route.tls, speaks).await
        })
        .await
        .map_err(|_| Failure::connect_timeout())??;
        let sender = match fresh {
            Fresh::Http1(io) => {
                if speaks == Speaks::Negotiated {
                    self.pool.note_unshared(key.clone());
                }
                Sender::Http1(Connection::new(io, key, Arc::clone(&self.pool)))
            }
            Fresh::Http2(shared) => {
                let place = shared.claim().ok_or_else(|| Failure::protocol("it takes no requests"))?;
                self.pool.share(key, shared.clone());
                Sender::Http2 { shared, place }
            }
        };
        Ok(Lease { sender, reused: false })
    }

    /// Dials for a tunnel.
    pub(crate) async fn dial(&self, route: &Route, permit: &Permit) -> Result<TcpStream, Failure> {
        timeout(route.connect_time, dial(route, permit)).await.map_err(|_| Failure::connect_timeout())?
    }

    /// Drops all connections that wait for a request.
    pub(crate) fn clear(&self) {
        self.pool.clear();
    }

    /// Drops the connections that have waited too long.
    pub(crate) fn reap(&self) {
        self.pool.reap();
    }
}

async fn dial(route: &Route, permit: &Permit) -> Result<TcpStream, Failure> {
    let stream = reach(route, permit).await?;
    keepalive::set(&stream, route.keepalive);
    Ok(stream)
}

async fn reach(route: &Route, permit: &Permit) -> Result<TcpStream, Failure> {
    let origin = permit.origin();
    if let Some(next) = &route.next_proxy {
        let known = route.resolver.known(&origin.host);
        if next.leads_to(&origin.host, known.as_deref()) {
            return next.open(route, origin, known.as_deref()).await;
        }
    }
    let addresses = route.resolve(&origin.host).await?;
    let checked = route.check(&origin.host, &addresses, origin.port)?;
    dial::connect(&checked).await
}

impl Route {
    /// The same way out for another session, by TLS sessions of its own.
    pub(crate) fn apart(&self) -> Self {
        Self {
            generation: self.generation,
            guard: self.guard.clone(),
            resolver: Arc::clone(&self.resolver),
            next_proxy: self.next_proxy.clone(),
            tls: self.tls.apart(),
            connect_time: self.connect_time,
            keepalive: self.keepalive,
        }
    }

    /// Finds the addresses of a host. The bound is a little less than that of the whole connection, so that what took
    /// too long is told.
    async fn resolve(&self, host: &Host) -> Result<Vec<IpAddr>, Failure> {
        let bound = self.connect_time.mul_f32(0.9);
        timeout(bound, self.resolver.lookup(host)).await.unwrap_or_else(|_| Err(Failure::resolve_timeout()))
    }

    /// Whether a tunnel that was opened earlier, and whose other end is at `address`, would not be refused for an
    /// address now.
    pub(crate) fn still_reaches(&self, authority: &Authority, address: IpAddr) -> bool {
        let (host, port) = (authority.host(), authority.port());
        let known = self.resolver.known(host);
        let next = self.next_proxy.as_ref().filter(|next| next.leads_to(host, known.as_deref()));
        match next {
            Some(next) => {
                next.still_serves(&self.guard, address) && self.guard.check(&known.unwrap_or_default(), port).is_ok()
            }
            None => self.guard.check(&[address], port).is_ok(),
        }
    }

    /// Has the guard check all addresses of a host.
    fn check(&self, host: &Host, addresses: &[IpAddr], port: u16) -> Result<Vec<CheckedAddr>, Failure> {
        let checked = self.guard.check(addresses, port);
        checked.map_err(|(reason, address)| Failure::refused_address(reason, host, address))
    }
}

/// A request that got no answer.
pub(crate) struct Unsent {
    /// Why.
    pub(crate) failure: Failure,
    /// How far it got.
    pub(crate) fate: Fate,
    /// The request, if nothing of it was sent or it changes nothing and has no body.
    pub(crate) request: Option<Box<Request<RequestBody>>>,
}

impl Unsent {
    /// It was sent, and there was no answer in time.
    fn timeout() -> Self {
        Self { failure: Failure::upstream_timeout(), fate: Fate::Reset, request: None }
    }

    fn of(error: &h2::Error) -> Self {
        Self { failure: Failure::from_exchange(error), fate: Fate::of(error), request: None }
    }

    /// Nothing of it was sent.
    fn whole(error: &h2::Error, request: Request<RequestBody>) -> Self {
        Self { request: Some(Box::new(request)), fate: Fate::Unprocessed, ..Self::of(error) }
    }
}

impl Lease {
    /// Whether the connection has served a request before. Such a connection may be closing at the other end.
    pub(crate) const fn is_reused(&self) -> bool {
        self.reused
    }

    /// Where the connection leads: to the server, or to the next proxy.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.sender.peer()
    }

    /// What the connection speaks.
    pub(crate) const fn protocol(&self) -> Protocol {
        self.sender.protocol()
    }

    /// Sends a request and waits for the head of its answer, for as long as `wait` says. Interim answers before it go to
    /// `interim`.
    pub(crate) async fn send(
        self,
        request: Request<RequestBody>,
        interim: Option<&Interim>,
        mut wait: Wait,
    ) -> Result<Response<UpstreamBody>, Unsent> {
        let peer = self.peer();
        match self.sender {
            Sender::Http1(connection) => {
                let response = connection.send(request, interim, wait).await?;
                Ok(response.map(|incoming| UpstreamBody::new(Source::Http1(Box::new(incoming)), peer)))
            }
            Sender::Http2 { shared, place } => {
                let answer = wait.wait(shared.send(request, interim)).await;
                let Answer { response, upload } = answer.ok_or_else(Unsent::timeout)??;
                let (parts, incoming) = response.into_parts();
                let streamed = Streamed::new(incoming, &parts.headers, upload, place);
                Ok(Response::from_parts(parts, UpstreamBody::new(Source::Http2(Box::new(streamed)), peer)))
            }
        }
    }
}
