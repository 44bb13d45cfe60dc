//! The proxy port and the Unix socket beside it: absolute-form requests and CONNECT over HTTP/1.1 and HTTP/2, and
//! SOCKS5.

use std::sync::Arc;

use bytes::BytesMut;
use exeat_policy::Reason;
use exeat_policy::target::{Authority, Target};
use http::{Method, Response};
use tokio::io::AsyncReadExt as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::detect::{self, Protocol};
use super::entrance::{self, Entered};
use super::http1::{self, Bounds, Exchange, Head, HeadError, Reply, ResponseBody, Service, Switched};
use super::http2;
use super::redact::Shown;
use super::socks;
use super::stream::Stream;
use crate::audit::{Ending, Entry};
use crate::auth::Credentials;
use crate::client::{Address, Client};
use crate::drain::Drain;
use crate::gate::{Admitted, Blind, Caller, Gate, Inspect, Refusal, Subject, Switch, Unauthenticated, UpgradedTunnel};
use crate::intercept::{self, Ended};
use crate::keepalive;
use crate::tunnel::relay::{self, Outcome, relay};
use crate::tunnel::{Cause, NameCheck};

/// Serves one client connection to its end, over TLS where it is to be `secure`. `slot` is its place among the
/// connections.
pub(crate) async fn connection(
    gate: Arc<Gate>,
    secure: bool,
    stream: Stream,
    address: Address,
    slot: OwnedSemaphorePermit,
) {
    gate.metrics.connections_active.inc();
    let bounds = bounds(&gate);
    let snapshot = gate.current.get();
    if let Stream::Tcp(socket) = &stream {
        keepalive::set(socket, snapshot.config.limits.tcp_keepalive);
    }
    let tls = snapshot.listen_tls.clone().filter(|_| secure);
    drop(snapshot);
    let mut drain = gate.drain.clone();
    let detected = tokio::select! {
        detected = async {
            let mut entered = entrance::enter(&gate, tls, stream, address, bounds).await?;
            let protocol = detect(&mut entered.stream, &mut entered.first, bounds).await?;
            Some((protocol, entered))
        } => detected,
        () = drain.begun() => None,
    };
    let switched = match detected {
        None => None,
        Some((protocol, Entered { client, stream, first })) => match protocol {
            Protocol::Socks4 => {
                socks::refuse_socks4(&gate, client, stream, first, bounds).await;
                None
            }
            Protocol::Socks5 => socks::serve(&gate, client, stream, first, bounds).await,
            Protocol::Http1 => {
                let service = Forward { gate: Arc::clone(&gate), client, admitted: Admitted::default() };
                tokio::select! {
                    switched = http1::serve(stream, first, &service, bounds, &mut drain) => switched,
                    () = service.admitted.revoked() => None,
                }
            }
            Protocol::Http2 => {
                Box::pin(streams(&gate, client, stream, first, bounds, &mut drain)).await;
                None
            }
        },
    };
    if let Some(Switched { stream, buffered, switch }) = switched {
        // A tunnel may last for days. It gets a task of its own, so that what serving HTTP took is given back.
        tokio::spawn(tunnel(gate, stream, buffered, switch, Some(slot)));
    } else {
        gate.metrics.connections_active.dec();
    }
}

/// Finds out what the client speaks. A client may wait with its first byte, but not with the next ones.
async fn detect(stream: &mut Stream, first: &mut BytesMut, bounds: Bounds) -> Option<Protocol> {
    if first.is_empty() && timeout(bounds.idle, stream.read_buf(first)).await.ok()?.ok()? == 0 {
        return None;
    }
    timeout(bounds.head_time, detect::read_protocol(stream, first)).await.ok().flatten()
}

/// The limits in force for a new connection.
pub(crate) fn bounds(gate: &Gate) -> Bounds {
    Bounds::of(&gate.current.get().config.limits)
}

/// The limits in force for a new tunnel.
fn tunnel_bounds(gate: &Gate) -> relay::Bounds {
    let limits = &gate.current.get().config.limits;
    relay::Bounds { idle: limits.idle, lifetime: limits.tunnel_lifetime }
}

/// Serves an HTTP/2 connection, each of whose streams can become a tunnel.
async fn streams(gate: &Arc<Gate>, client: Client, stream: Stream, first: BytesMut, bounds: Bounds, drain: &mut Drain) {
    let service = Arc::new(Forward { gate: Arc::clone(gate), client, admitted: Admitted::default() });
    let gate = Arc::clone(gate);
    let switched =
        move |Switched { stream, buffered, switch }| tunnel(Arc::clone(&gate), stream, buffered, switch, None);
    tokio::select! {
        () = http2::serve(stream, first, Arc::clone(&service), bounds, drain, switched) => {}
        () = service.admitted.revoked() => {}
    }
}

/// Serves a tunnel to its end, over a connection whose place is `slot` or over a stream of one. Most tunnels are blind
/// and idle, so what the other kinds need is kept out of the task.
pub(super) async fn tunnel(
    gate: Arc<Gate>,
    stream: Stream,
    buffered: BytesMut,
    switch: Switch,
    slot: Option<OwnedSemaphorePermit>,
) {
    gate.metrics.tunnels_active.inc();
    let cause = match switch {
        Switch::Blind(blind) => blind_tunnel(&gate, stream, buffered, *blind).await,
        Switch::Upgraded(upgraded) => Box::pin(upgraded_tunnel(&gate, stream, buffered, *upgraded)).await,
        Switch::Inspect(inspect) => {
            let Inspect { authority, client, slot, ending } = *inspect;
            let cause = Box::pin(inspected_tunnel(&gate, client, authority, stream, buffered)).await;
            drop(slot);
            if let Some(ending) = ending {
                ending.closed(cause, 0, 0);
            }
            cause
        }
    };
    gate.metrics.tunnels_active.dec();
    gate.metrics.count_closed(cause);
    if slot.is_some() {
        gate.metrics.connections_active.dec();
    }
}

async fn blind_tunnel(gate: &Gate, mut client: Stream, first: BytesMut, blind: Blind) -> Cause {
    let Blind { authority, mut upstream, check, account, slot, ending } = blind;
    let bounds = tunnel_bounds(gate);
    let address = upstream.peer_addr().ok().map(|address| address.ip());
    let stop = gate.blind_tunnel_ends(&authority, address, account.as_deref());
    let outcome = relay(&mut client, &mut upstream, first, Some(check), bounds, stop).await;
    note_end(gate, &authority, outcome, ending);
    drop(slot);
    outcome.cause
}

async fn upgraded_tunnel(gate: &Gate, mut client: Stream, first: BytesMut, upgraded: UpgradedTunnel) -> Cause {
    let UpgradedTunnel { target, mut upstream, account, slot, ending } = upgraded;
    let bounds = tunnel_bounds(gate);
    let stop = gate.upgraded_ends(&target, upstream.peer(), account.as_deref());
    let outcome = relay(&mut client, &mut upstream, first, None::<NameCheck>, bounds, stop).await;
    note_end(gate, target.authority(), outcome, ending);
    drop(slot);
    outcome.cause
}

/// An inspected tunnel, and the WebSocket that a request in it may become.
async fn inspected_tunnel(
    gate: &Arc<Gate>,
    client: Client,
    authority: Authority,
    stream: Stream,
    first: BytesMut,
) -> Cause {
    let account = client.account.clone();
    let caller = Caller { client, entry: Entry::Intercept };
    let ended = tokio::select! {
        ended = intercept::serve(gate, caller, authority.clone(), stream, first, bounds(gate)) => ended,
        () = gate.revoked(account.as_deref()) => Ended::With(Cause::Revoked),
    };
    match ended {
        Ended::With(cause) => {
            match cause {
                Cause::NotTls => {
                    tracing::warn!(%authority, cause = cause.as_str(), "tunnel closed: it opened with neither TLS nor HTTP");
                }
                Cause::Revoked => {
                    tracing::warn!(%authority, cause = cause.as_str(), "tunnel closed by the gateway");
                }
                _ => {}
            }
            cause
        }
        Ended::Switched(Switched { stream, buffered, switch: Switch::Upgraded(upgraded) }) => {
            upgraded_tunnel(gate, stream, buffered, *upgraded).await
        }
        // A CONNECT inside a tunnel is refused, so nothing else can come out of one.
        Ended::Switched(_) => Cause::Error,
    }
}

fn note_end(gate: &Gate, authority: &Authority, Outcome { up, down, cause }: Outcome, ending: Option<Box<Ending>>) {
    if let Some(ending) = ending {
        ending.closed(cause, up, down);
    }
    gate.metrics.bytes_up.inc_by(up);
    gate.metrics.bytes_down.inc_by(down);
    match cause {
        Cause::SniMismatch | Cause::NotTls | Cause::PolicyChanged | Cause::Revoked => {
            tracing::warn!(%authority, cause = cause.as_str(), up, down, "tunnel closed by the gateway");
        }
        _ => tracing::debug!(%authority, cause = cause.as_str(), up, down, "tunnel ended"),
    }
}

/// Forwards requests of one client.
#[derive(Debug)]
struct Forward {
    gate: Arc<Gate>,
    client: Client,
    /// Whose credentials came on this connection.
    admitted: Admitted,
}

impl Service for Forward {
    type Switch = Switch;

    async fn call(&self, exchange: Exchange) -> Reply<Switch> {
        let entry = if exchange.head.method == Method::CONNECT { Entry::Connect } else { Entry::Forward };
        let mut caller = Caller { client: self.client.clone(), entry };
        let presented = || Credentials::in_fields(&exchange.head.headers);
        if let Err(denied) = self.gate.authenticate(&mut caller.client, presented) {
            let Unauthenticated { refusal, fields } = *denied;
            let Head { method, target, .. } = &exchange.head;
            let mut response = self.refused(&caller, method.as_str(), target, refusal);
            response.headers_mut().extend(fields);
            return Reply::Response(response);
        }
        if let Some(account) = &caller.client.account {
            self.admitted.note(&self.gate, Some(account));
        }
        let refusal = match entry {
            Entry::Connect => match authority(&exchange.head) {
                Ok(authority) => return self.gate.tunnel(caller, authority).await,
                Err(refusal) => refusal,
            },
            _ => match target(&exchange.head) {
                Ok(target) => return self.gate.request(caller, target, exchange).await,
                Err(refusal) => refusal,
            },
        };
        let Head { method, target, .. } = &exchange.head;
        Reply::Response(self.refused(&caller, method.as_str(), target, refusal))
    }

    fn refuse(&self, error: &HeadError) -> Response<ResponseBody> {
        let caller = Caller { client: self.client.clone(), entry: Entry::Forward };
        self.refused(&caller, "", "", Refusal::new(error.reason, error.detail))
    }
}

impl Forward {
    fn refused(&self, caller: &Caller, method: &str, target: &str, refusal: Refusal) -> Response<ResponseBody> {
        let snapshot = self.gate.current.get();
        let shown = Shown(target);
        let subject = Subject::unjudged(caller, &snapshot, method, &shown);
        self.gate.refused(&subject, refusal)
    }
}

fn authority(head: &Head) -> Result<Authority, Refusal> {
    if head.framing != http1::head::Framing::None {
        return Err(Refusal::new(Reason::BadRequest, "a CONNECT has no body"));
    }
    Authority::parse(&head.target).map_err(Refusal::from)
}

fn target(head: &Head) -> Result<Target, Refusal> {
    if head.target.starts_with('/') || head.target == "*" {
        let detail = "this is a forward proxy: set it as the HTTP proxy of a client, which then sends the whole URL";
        return Err(Refusal::new(Reason::Malformed, detail));
    }
    Target::parse_wire(&head.target).map_err(Refusal::from)
}

/// The answer for a connection that finds no place.
pub(crate) fn full_answer() -> Vec<u8> {
    let problem = crate::respond::Problem::new(Reason::ConnectionLimit);
    http1::plain_answer(problem.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of what a function of a tunnel's kind returns.
    fn size<F>(_: impl Fn(Arc<Gate>, Stream, BytesMut, Switch, Option<OwnedSemaphorePermit>) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_tunnel_takes_little_memory() {
        assert!(size(tunnel) <= 2560, "{} bytes", size(tunnel));
    }
}
