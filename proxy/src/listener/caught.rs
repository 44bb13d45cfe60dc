//! Connections that were caught: made inside a session to whatever address, by a client that knows of no proxy.
//!
//! Where one was meant to go is its own local address. If the name server of the session gave that address out, it stands
//! for a name; else it is an address literal, and on the ports of HTTP the client may name its host itself, in the TLS
//! server name or in Host. That name is then what is judged and what is dialled, so it need not be true: whoever names
//! a permitted host reaches that host and no other.
//!
//! Port 80 is served as a proxy serves requests in absolute form, one by one; everything else is a tunnel, as if it had
//! been asked for with CONNECT.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use exeat_policy::Reason;
use exeat_policy::host::Host;
use exeat_policy::target::{Authority, Scheme, Target};
use http::{Method, Response, header};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::detect::{self, Protocol};
use super::http1::{self, Exchange, Head, HeadError, Reply, ResponseBody, Service, Switched};
use super::names::{Meaning, Names};
use super::proxy::{bounds, tunnel};
use super::redact::Shown;
use super::stream::Stream;
use crate::audit::Entry;
use crate::client::{Address, Client};
use crate::gate::{Caller, Gate, Refusal, Subject, Switch};
use crate::intercept::read_opening;
use crate::tunnel::hello::Opening;

/// A TLS alert, fatal, `access_denied` (RFC 8446 section 6.2): what a client of TLS makes a message of.
const ACCESS_DENIED: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 49];
const HTTP: u16 = 80;
const HTTPS: u16 = 443;

/// Serves a caught connection to its end. `slot` is its place among the connections.
pub(crate) async fn connection(
    gate: Arc<Gate>,
    names: Arc<Names>,
    stream: Stream,
    address: Address,
    slot: OwnedSemaphorePermit,
) {
    gate.metrics.connections_active.inc();
    let mut drain = gate.drain.clone();
    let client = Client { address, user: None, account: None };
    let switched = tokio::select! {
        switched = serve(&gate, &names, client, stream) => switched,
        () = drain.begun() => None,
    };
    if let Some(Switched { stream, buffered, switch }) = switched {
        tokio::spawn(Box::pin(tunnel(stream, buffered, switch, Some(slot))));
    } else {
        gate.metrics.connections_active.dec();
    }
}

async fn serve(gate: &Arc<Gate>, names: &Names, client: Client, mut stream: Stream) -> Option<Switched<Switch>> {
    let Stream::Tcp(socket) = &stream else { return None };
    let meant = socket.local_addr().ok()?;
    let (ip, port) = (meant.ip().to_canonical(), meant.port());
    let meant = SocketAddr::new(ip, port);
    // Loopback is the session's own, and nobody listens on this port of it.
    if ip.is_loopback() || ip.is_unspecified() {
        return None;
    }
    let caller = Caller { client, entry: Entry::Caught };
    let (name, host) = match names.meaning(ip) {
        Meaning::Name(name) => (Some(name.clone()), name),
        Meaning::Address(ip) => (None, Host::from_ip(ip)),
        Meaning::Nothing => {
            let refusal = Refusal::new(Reason::Malformed, "an address that stands for no name of this session");
            gate.turned_away(&Subject::unjudged(&caller, &gate.current.get(), "CONNECT", &meant), &refusal);
            return None;
        }
    };
    let bounds = bounds(gate);
    let mut first = BytesMut::new();
    let opening = match port {
        HTTP | HTTPS => {
            let read = read_opening(&mut stream, &mut first);
            Some(timeout(bounds.idle, read).await.ok().flatten()?)
        }
        // Who speaks first is not known of other protocols.
        _ => None,
    };
    if port == HTTP && opening == Some(Opening::Other) && first.first().is_some_and(u8::is_ascii_alphabetic) {
        let read = detect::read_protocol(&mut stream, &mut first);
        if timeout(bounds.head_time, read).await.ok().flatten()? == Protocol::Http1 {
            let service = Plain { gate: Arc::clone(gate), caller, name, meant: Authority::new(host, port) };
            return http1::serve(stream, first, &service, bounds, &mut gate.drain.clone()).await;
        }
    }
    let sent = match (&name, &opening) {
        (None, Some(Opening::Hello(Some(sent)))) if port == HTTPS => Host::parse(sent).ok(),
        _ => None,
    };
    let authority = Authority::new(sent.unwrap_or(host), port);
    match gate.tunnel_or_reason(&caller, &authority).await {
        Ok(switch) => Some(Switched { stream, buffered: first, switch }),
        Err(_) => {
            if matches!(opening, Some(Opening::Hello(_))) {
                let _ = timeout(bounds.head_time, async {
                    stream.write_all(&ACCESS_DENIED).await?;
                    stream.shutdown().await
                })
                .await;
            }
            None
        }
    }
}

/// Judges the requests of a caught connection to port 80.
#[derive(Debug)]
struct Plain {
    gate: Arc<Gate>,
    caller: Caller,
    /// The name that the connection's address stands for.
    name: Option<Host>,
    /// Where the connection was meant to go.
    meant: Authority,
}

impl Service for Plain {
    type Switch = Switch;

    async fn call(&self, exchange: Exchange) -> Reply<Switch> {
        match self.target(&exchange.head) {
            Ok(target) => self.gate.request(self.caller.clone(), target, exchange).await,
            Err(refusal) => {
                let Head { method, target, .. } = &exchange.head;
                Reply::Response(self.refused(method.as_str(), target, refusal))
            }
        }
    }

    fn refuse(&self, error: &HeadError) -> Response<ResponseBody> {
        self.refused("", "", Refusal::new(error.reason, error.detail))
    }
}

impl Plain {
    /// The target of a request: its path at the host that it names, which has to be the one that it was sent to where
    /// that is known.
    fn target(&self, head: &Head) -> Result<Target, Refusal> {
        if head.method == Method::CONNECT {
            return Err(Refusal::new(Reason::MethodRefused, "a CONNECT is for the proxy port"));
        }
        let named = head.headers.get(header::HOST).map(|field| field.to_str().unwrap_or_default());
        let authority = match named {
            None | Some("") => self.meant.clone(),
            Some(field) => {
                let read =
                    Authority::parse(field).or_else(|_| Host::parse(field).map(|host| Authority::new(host, HTTP)));
                read.map_err(|_| Refusal::new(Reason::Malformed, "Host names no host"))?
            }
        };
        let right = self.name.as_ref().is_none_or(|name| name == authority.host());
        if !right || authority.port() != self.meant.port() {
            let detail = format_args!("the connection leads to {}, Host does not name it", self.meant);
            return Err(Refusal::new(Reason::Misdirected, detail));
        }
        let target = if head.target.starts_with('/') {
            Target::from_parts(Scheme::Http, &authority, &head.target)
        } else {
            Target::parse_wire(&head.target)
        };
        let target = target.map_err(Refusal::from)?;
        if target.scheme() != Scheme::Http || *target.authority() != authority {
            let detail = format_args!("the connection leads to {}, the request target does not", self.meant);
            return Err(Refusal::new(Reason::Misdirected, detail));
        }
        Ok(target)
    }

    fn refused(&self, method: &str, target: &str, refusal: Refusal) -> Response<ResponseBody> {
        let snapshot = self.gate.current.get();
        let url = format!("http://{}{}", self.meant, Shown(target));
        self.gate.refused(&Subject::unjudged(&self.caller, &snapshot, method, &url), refusal)
    }
}
