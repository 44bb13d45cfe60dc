//! The local endpoints of MCP servers, `/mcp/NAME`: for clients that do not go by proxy settings.
//!
//! A request to one is a request to the server's URL: judged, given its credentials and reviewed by the same gate, over
//! HTTP/1.1 without TLS. What a browser could be made to send is turned away ([`visitor`]), and the ids of sessions are
//! good for the client alone that opened them ([`seal`]).

mod seal;
mod visitor;

use std::sync::Arc;

use bytes::BytesMut;
use exeat_policy::Reason;
use exeat_policy::target::Target;
use http::{HeaderMap, HeaderValue, Response, header};
use tokio::sync::OwnedSemaphorePermit;

use self::seal::Seal;
use super::http1::{self, Bounds, Exchange, HeadError, Reply, ResponseBody, Service};
use super::redact::Shown;
use super::stream::Stream;
use crate::audit::Entry;
use crate::auth::Credentials;
use crate::client::{Address, Client};
use crate::gate::{Admitted, Caller, Gate, Refusal, Subject, Switch, Unauthenticated};

/// Where the endpoints are.
const FOLDER: &str = "/mcp/";

/// What all connections to the endpoints share.
#[derive(Debug)]
pub(crate) struct Endpoints {
    gate: Arc<Gate>,
    seal: Seal,
}

impl Endpoints {
    /// Endpoints in front of `gate`. Sessions that were opened at others are not known to these.
    pub(crate) fn new(gate: Arc<Gate>) -> Self {
        Self { gate, seal: Seal::new() }
    }

    /// Serves one client connection to its end. `slot` is its place among the connections.
    pub(crate) async fn connection(self: Arc<Self>, stream: Stream, address: Address, slot: OwnedSemaphorePermit) {
        let gate = &self.gate;
        gate.metrics.connections_active.inc();
        let bounds = Bounds::of(&gate.current.get().config.limits);
        let mut drain = gate.drain.clone();
        let client = Client { address, user: None, account: None };
        let local = Local { endpoints: Arc::clone(&self), client, admitted: Admitted::default() };
        let mut ended = gate.session.ended();
        tokio::select! {
            // Nothing that is asked for here becomes a tunnel.
            _ = http1::serve(stream, BytesMut::new(), &local, bounds, &mut drain) => {}
            () = local.admitted.revoked() => {}
            () = ended.begun() => {}
        }
        gate.metrics.connections_active.dec();
        drop(slot);
    }
}

/// The path of a server's endpoint.
pub(crate) fn path_of(server: &str) -> String {
    let mut path = FOLDER.to_owned();
    for byte in server.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path += &format!("%{byte:02X}");
        }
    }
    path
}

/// The server whose endpoint a path is.
fn server_of(path: &str) -> Option<String> {
    let mut rest = path.strip_prefix(FOLDER)?.as_bytes();
    let mut name = Vec::new();
    while let [first, behind @ ..] = rest {
        rest = behind;
        name.push(match (first, behind) {
            (b'%', [high, low, behind @ ..]) => {
                rest = behind;
                let digits = [*high, *low];
                let digits =
                    std::str::from_utf8(&digits).ok().filter(|it| it.bytes().all(|it| it.is_ascii_hexdigit()))?;
                u8::from_str_radix(digits, 16).ok()?
            }
            (b'%' | b'/' | b'?' | b'#', _) => return None,
            (plain, _) => *plain,
        });
    }
    String::from_utf8(name).ok()
}

/// Serves one connection.
struct Local {
    endpoints: Arc<Endpoints>,
    client: Client,
    /// Who was let in over it.
    admitted: Admitted,
}

impl Service for Local {
    type Switch = Switch;

    async fn call(&self, exchange: Exchange) -> Reply<Switch> {
        let (method, shown) = (exchange.head.method.clone(), exchange.head.target.clone());
        let mut caller = Caller { client: self.client.clone(), entry: Entry::Mcp };
        match self.admit(&mut caller, exchange) {
            Ok(Admission { gate, owner, server, target, exchange }) => {
                let reply = gate.request(caller, target, exchange).await;
                match reply {
                    Reply::Response(mut response) => {
                        self.endpoints.seal.close(&server, owner.as_deref(), response.headers_mut());
                        Reply::Response(response)
                    }
                    // An endpoint opens nothing but answers.
                    Reply::Switch(..) => Reply::Response(refused(
                        &gate,
                        &Caller { client: self.client.clone(), entry: Entry::Mcp },
                        method.as_str(),
                        &shown,
                        Refusal::from(Reason::McpMethod),
                    )),
                }
            }
            Err(denied) => {
                let (gate, denied) = *denied;
                let Unauthenticated { refusal, fields } = denied;
                let mut response = refused(&gate, &caller, method.as_str(), &shown, refusal);
                response.headers_mut().extend(fields);
                Reply::Response(response)
            }
        }
    }

    fn refuse(&self, error: &HeadError) -> Response<ResponseBody> {
        let caller = Caller { client: self.client.clone(), entry: Entry::Mcp };
        refused(&self.endpoints.gate, &caller, "", "", Refusal::new(error.reason, error.detail))
    }
}

/// A request that may go on, as one of the server's.
struct Admission {
    /// The gate of its session.
    gate: Arc<Gate>,
    /// Whose the sessions of MCP are that it opens.
    owner: Option<Arc<str>>,
    server: String,
    target: Target,
    exchange: Exchange,
}

/// A request that may not, with the gate of the session that it is one of.
type Denied = Box<(Arc<Gate>, Unauthenticated)>;

impl Local {
    /// Makes a request of the server's of one of the endpoint's.
    fn admit(&self, caller: &mut Caller, mut exchange: Exchange) -> Result<Admission, Denied> {
        let shared = &self.endpoints.gate;
        let deny = |gate: &Arc<Gate>, refusal: Refusal| -> Denied {
            Box::new((Arc::clone(gate), Unauthenticated { refusal, fields: HeaderMap::new() }))
        };
        let head = &mut exchange.head;
        visitor::check(&head.headers, &shared.current.get().config.mcp.hosts)
            .map_err(|refusal| deny(shared, refusal))?;
        let presented = || Credentials::in_fields(&head.headers);
        let gate = shared
            .authenticate(&mut caller.client, presented)
            .map_err(|denied| Box::new((Arc::clone(shared), *denied)))?;
        let snapshot = gate.current.get();
        self.admitted.note(&gate, caller.client.account.as_ref());
        let found = server_of(&head.target).and_then(|server| {
            let target = snapshot.endpoints.get(&server)?.clone();
            Some((server, target))
        });
        let (server, target) = found.ok_or_else(|| {
            let known: Vec<String> = snapshot.endpoints.keys().map(|server| path_of(server)).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            deny(&gate, Refusal::new(Reason::NotFound, format_args!("expected the endpoint of an MCP server: {known}")))
        })?;
        // Who the client may be is said; from here on the request is the server's, whose page this is not.
        for name in [header::ORIGIN, header::REFERER, header::UPGRADE] {
            head.headers.remove(name);
        }
        // A session's name may be another's later, its id is not.
        let owner = match gate.session.is_base() {
            true => caller.client.user.clone(),
            false => Some(gate.session.id().as_str().into()),
        };
        self.endpoints
            .seal
            .open(&server, owner.as_deref(), &mut head.headers)
            .map_err(|refusal| deny(&gate, refusal))?;
        Ok(Admission { gate, owner, server, target, exchange })
    }
}

fn refused(gate: &Gate, caller: &Caller, method: &str, target: &str, refusal: Refusal) -> Response<ResponseBody> {
    let snapshot = gate.current.get();
    let shown = Shown(target);
    let subject = Subject::unjudged(caller, &snapshot, method, &shown);
    let allow = refusal.reason == Reason::McpMethod;
    let mut response = gate.refused(&subject, refusal);
    if allow {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST, GET, DELETE"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_the_endpoint_of_one_server() {
        for server in ["docs", "a b/c?%", "é", "..", "x.y_z~-"] {
            assert_eq!(server_of(&path_of(server)).as_deref(), Some(server));
        }
        assert_eq!(path_of("a b"), "/mcp/a%20b");
        assert_eq!(server_of("/mcp/d%6fcs").as_deref(), Some("docs"));
        for path in
            ["/", "/mcp", "/other/docs", "/mcp/docs/x", "/mcp/docs?x", "/mcp/%", "/mcp/%6", "/mcp/%+1", "/mcp/%ff"]
        {
            assert_eq!(server_of(path), None, "{path}");
        }
    }
}
