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
use crate::rare::Rare;
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
    let tls = snapshot.listen_tls.clone().filter(|_| secure);
    drop(snapshot);
    let mut drain = gate.drain.clone();
    let mut ended = gate.session.ended();
    let detected = tokio::select! {
        detected = async {
            let mut entered = entrance::enter(&gate, tls, stream, address, bounds).await?;
            let protocol = detect(&mut entered.stream, &mut entered.first, bounds).await?;
            Some((protocol, entered))
        } => detected,
        () = drain.begun() => None,
        () = ended.begun() => None,
    };
    let switched = match detected {
        None => None,
        Some((protocol, entered)) => {
            let gate = gate.of_connection(&entered.client);
            let mut ended = gate.session.ended();
            tokio::select! {
                biased;
                () = Rare::new(ended.begun()) => None,
                switched = speak(&gate, protocol, entered, bounds, &mut drain) => switched,
            }
        }
    };
    if let Some(Switched { stream, buffered, switch }) = switched {
        // A tunnel may last for days. It gets a task of its own, so that what serving HTTP took is given back.
        tokio::spawn(Box::pin(tunnel(stream, buffered, switch, Some(slot))));
    } else {
        gate.metrics.connections_active.dec();
    }
}

/// Speaks a protocol with a client until it is done, or until something else begins.
async fn speak(
    gate: &Arc<Gate>,
    protocol: Protocol,
    Entered { client, stream, first }: Entered,
    bounds: Bounds,
    drain: &mut Drain,
) -> Option<Switched<Switch>> {
    match protocol {
        Protocol::Socks4 => {
            socks::refuse_socks4(gate, client, stream, first, bounds).await;
            None
        }
        Protocol::Socks5 => socks::serve(gate, client, stream, first, bounds).await,
        Protocol::Http1 => {
            let service = Forward { gate: Arc::clone(gate), client, admitted: Admitted::default() };
            tokio::select! {
                biased;
                () = Rare::new(service.admitted.revoked()) => None,
                switched = http1::serve(stream, first, &service, bounds, drain) => switched,
            }
        }
        Protocol::Http2 => {
            Box::pin(streams(gate, client, stream, first, bounds, drain)).await;
            None
        }
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
    let switched = |Switched { stream, buffered, switch }| tunnel(stream, buffered, switch, None);
    tokio::select! {
        biased;
        () = Rare::new(service.admitted.revoked()) => {}
        () = http2::serve(stream, first, Arc::clone(&service), bounds, drain, switched) => {}
    }
}

/// Serves a tunnel to its end, over a connection whose place is `slot` or over a stream of one. Most tunnels are blind
/// and idle, so what the other kinds need is kept out of the task.
pub(super) async fn tunnel(stream: Stream, buffered: BytesMut, switch: Switch, slot: Option<OwnedSemaphorePermit>) {
    let metrics = Arc::clone(&switch.gate().metrics);
    metrics.tunnels_active.inc();
    let cause = match switch {
        Switch::Blind(blind) => blind_tunnel(stream, buffered, *blind).await,
        Switch::Upgraded(upgraded) => Box::pin(upgraded_tunnel(stream, buffered, *upgraded)).await,
        Switch::Inspect(mut inspect) => {
            let ending = inspect.ending.take();
            let cause = Box::pin(inspected_tunnel(stream, buffered, *inspect)).await;
            if let Some(ending) = ending {
                ending.closed(cause, 0, 0);
            }
            cause
        }
    };
    metrics.tunnels_active.dec();
    metrics.count_closed(cause);
    if slot.is_some() {
        metrics.connections_active.dec();
    }
}

async fn blind_tunnel(mut client: Stream, first: BytesMut, blind: Blind) -> Cause {
    let Blind { gate, authority, mut upstream, peer, check, account, slot, ending } = blind;
    let bounds = tunnel_bounds(&gate);
    let stop = gate.blind_tunnel_ends(&authority, peer.map(|peer| peer.ip()), account.as_deref());
    let quota = gate.session.quota().map(|quota| &**quota);
    let outcome = relay(&mut client, &mut upstream, first, Some(check), bounds, quota, stop).await;
    note_end(&gate, &authority, outcome, ending);
    drop(slot);
    outcome.cause
}

async fn upgraded_tunnel(mut client: Stream, first: BytesMut, upgraded: UpgradedTunnel) -> Cause {
    let UpgradedTunnel { gate, target, mut upstream, account, slot, ending } = upgraded;
    let bounds = tunnel_bounds(&gate);
    let stop = gate.upgraded_ends(&target, upstream.peer(), account.as_deref());
    let quota = gate.session.quota().map(|quota| &**quota);
    let outcome = relay(&mut client, &mut upstream, first, None::<NameCheck>, bounds, quota, stop).await;
    note_end(&gate, target.authority(), outcome, ending);
    drop(slot);
    outcome.cause
}

/// An inspected tunnel, and the WebSocket that a request in it may become.
async fn inspected_tunnel(stream: Stream, first: BytesMut, inspect: Inspect) -> Cause {
    let Inspect { gate, authority, client, slot: _slot, ending: _ } = inspect;
    let account = client.account.clone();
    let caller = Caller { client, entry: Entry::Intercept };
    let ended = tokio::select! {
        biased;
        () = Rare::new(gate.revoked(account.as_deref())) => Ended::With(Cause::Revoked),
        ended = intercept::serve(&gate, caller, authority.clone(), stream, first, bounds(&gate)) => ended,
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
            upgraded_tunnel(stream, buffered, *upgraded).await
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
        Cause::SniMismatch | Cause::NotTls | Cause::PolicyChanged | Cause::Revoked | Cause::Quota => {
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
        let gate = match self.gate.authenticate(&mut caller.client, presented) {
            Ok(gate) => gate,
            Err(denied) => {
                let Unauthenticated { refusal, fields } = *denied;
                let Head { method, target, .. } = &exchange.head;
                let mut response = refused(&self.gate, &caller, method.as_str(), target, refusal);
                response.headers_mut().extend(fields);
                return Reply::Response(response);
            }
        };
        self.admitted.note(&gate, caller.client.account.as_ref());
        let refusal = match entry {
            Entry::Connect => match authority(&exchange.head) {
                Ok(authority) => return gate.tunnel(caller, authority).await,
                Err(refusal) => refusal,
            },
            _ => match target(&exchange.head) {
                Ok(target) => return gate.request(caller, target, exchange).await,
                Err(refusal) => refusal,
            },
        };
        let Head { method, target, .. } = &exchange.head;
        Reply::Response(refused(&gate, &caller, method.as_str(), target, refusal))
    }

    fn refuse(&self, error: &HeadError) -> Response<ResponseBody> {
        let caller = Caller { client: self.client.clone(), entry: Entry::Forward };
        refused(&self.gate, &caller, "", "", Refusal::new(error.reason, error.detail))
    }
}

fn refused(gate: &Gate, caller: &Caller, method: &str, target: &str, refusal: Refusal) -> Response<ResponseBody> {
    let snapshot = gate.current.get();
    let shown = Shown(target);
    let subject = Subject::unjudged(caller, &snapshot, method, &shown);
    gate.refused(&subject, refusal)
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
    fn size<F>(_: impl Fn(Stream, BytesMut, Switch, Option<OwnedSemaphorePermit>) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_tunnel_takes_little_memory() {
        assert!(size(tunnel) <= 2560, "{} bytes", size(tunnel));
    }
}
