//! Requests: judged, given their credentials, sent, and their answers cleaned on the way back.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use exeat_policy::Reason;
use exeat_policy::pattern::Pattern;
use exeat_policy::target::{Scheme, Target};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use prometheus::IntCounter;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use super::fields::{clean_answer, connection_lists, lists, remove_hop_by_hop};
use super::mcp::McpWay;
use super::outgoing::Outgoing;
use super::redaction::Redaction;
use super::refusal::{Leaving, Refusal, Subject};
use super::{Caller, Gate, Slot, Switch, UpgradedTunnel};
use crate::audit::{AskedFor, Ending, Entry, Outcome};
use crate::client::Address;
use crate::credentials::{Credentials, Errand, Injection};
use crate::evidence::Purpose;
use crate::listener::http1::head::Framing;
use crate::listener::http1::{Exchange, Head, Interim, Reply, RequestBody, ResponseBody};
use crate::metrics::TunnelResult;
use crate::permit::{self, Permit};
use crate::quota::Meter;
use crate::snapshot::Snapshot;
use crate::tunnel::Kind;
use crate::upstream::{Failure, Fate, Lease, Protocol, Speaks, Unsent, UpstreamBody, Wait};

impl Gate {
    /// Judges a request and, if it may go out, sends it and brings its answer.
    pub(crate) async fn request(self: &Arc<Self>, caller: Caller, target: Target, exchange: Exchange) -> Reply<Switch> {
        let began = Instant::now();
        let snapshot = self.current.get();
        let judged = permit::request(&snapshot.policy, snapshot.mode(), &snapshot.route.guard, &target);
        let counts = !caller.is_self_test();
        if counts {
            self.metrics.decision_seconds.observe(began.elapsed().as_secs_f64());
        }
        let method = exchange.head.method.clone();
        let mut subject = Subject {
            caller: &caller,
            snapshot: &snapshot,
            method: method.as_str(),
            url: &target,
            target: AskedFor::Url(&target),
            rule: judged.rule,
            layer: judged.layer,
            server: None,
            pattern: Some(&Patterns(&target)),
        };
        if let Err(limit) = self.session.take() {
            return Reply::Response(self.refused(&subject, limit.into()));
        }
        let Some(permit) = judged.leave else {
            return Reply::Response(self.refused(&subject, judged.reason.into()));
        };
        let reply = match snapshot.mcp.find(&target) {
            None => self.send_permitted(&mut subject, judged.reason, &permit, &target, exchange).await,
            Some(found) => {
                let way = McpWay { found: &found, snapshot: &snapshot, reason: judged.reason, permit: &permit };
                // Large, and seldom what a request is: the rest of this is kept for every one that is under way.
                Box::pin(self.send_mcp(&mut subject, way, &target, exchange)).await
            }
        };
        if counts {
            self.metrics.request_seconds.observe(began.elapsed().as_secs_f64());
        }
        reply
    }

    pub(super) async fn send_permitted<'a>(
        self: &Arc<Self>,
        subject: &mut Subject<'a>,
        reason: Reason,
        permit: &Permit,
        target: &Target,
        exchange: Exchange,
    ) -> Reply<Switch> {
        let snapshot = subject.snapshot;
        let Exchange { head, mut body, interim } = exchange;
        let http2 = head.version == Version::HTTP_2;
        let reported = Outcome::let_out(reason) == Outcome::Report;
        let mut prepared = match self.prepare(subject, target, head, &body, reported) {
            Ok(prepared) => prepared,
            Err(refusal) => return Reply::Response(self.refused(subject, refusal)),
        };
        let speaks = speaks(subject.caller, target, http2, prepared.websocket.is_some());
        let owed = self.owe(subject, reason);
        let way_out = self.way_out(snapshot, permit, speaks, &mut prepared).await;
        owed.settle();
        let (bound, lease) = match way_out {
            Ok(way_out) => way_out,
            Err(refusal) => return Reply::Response(self.refused(subject, refusal)),
        };
        body.withhold(&bound.names);
        let tunnel = prepared.websocket.is_some().then_some(Kind::Upgraded);
        let leaving = Leaving { injected: &bound.names, upstream: lease.peer(), tunnel };
        let mut ending = match self.permitted(subject, reason, &leaving).await {
            Ok(ending) => ending,
            Err(refusal) => return Reply::Response(self.explain(subject, refusal)),
        };
        body.count_into(self.meter(&self.metrics.bytes_up).with(ending.as_ref().map(|ending| Arc::clone(&ending.up))));
        if let Some(injection) = prepared.injection {
            self.metrics.count_injection(&injection.label, true);
        }
        let Prepared { method, headers, outgoing, websocket, .. } = prepared;
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        if let (Some(interim), Some(redaction)) = (&interim, bound.redaction.clone()) {
            interim.amend(move |headers| redaction.fields(headers));
        }
        let way = Way { snapshot, permit, speaks, outgoing: &outgoing, interim: interim.as_ref() };
        let answered = self.exchange(&way, lease, request).await.map(|response| bound.heard(response));
        let failure = match answered {
            Ok(response) if !is_framed_plainly(response.headers()) => {
                Failure::protocol("its answer has a transfer coding that was not asked for")
            }
            Ok(mut response) => {
                if let Some(ending) = &mut ending {
                    ending.status = Some(response.status().as_u16());
                    ending.upstream = response.body().peer();
                }
                let reply = match websocket {
                    _ if response.status() != StatusCode::SWITCHING_PROTOCOLS => {
                        if let Some(ending) = &mut ending {
                            ending.no_tunnel();
                        }
                        response.body_mut().end_with(ending.take());
                        self.clean(response, bound.redaction.as_ref()).map(Reply::Response)
                    }
                    Some(websocket) => self.switch(subject.caller, response, websocket, target, &mut ending),
                    None => Err(Failure::protocol("it switched protocols unasked")),
                };
                match reply {
                    Ok(reply) => return reply,
                    Err(failure) => failure,
                }
            }
            Err(failure) => {
                tracing::warn!(reason = %failure.reason, target = %subject.target, detail = failure.inside, "upstream failed");
                failure
            }
        };
        if let Some(ending) = &mut ending {
            ending.failed(failure.reason);
        }
        Reply::Response(self.explain(subject, failure.into()))
    }

    /// Gets the credentials that a request needs, puts them on, and finds the connection it goes out by.
    async fn way_out(
        &self,
        snapshot: &Snapshot,
        permit: &Permit,
        speaks: Speaks,
        prepared: &mut Prepared<'_>,
    ) -> Result<(Bound, Lease), Refusal> {
        let bound = match prepared.injection {
            None => Bound::default(),
            Some(injection) => {
                let errand = Errand { route: Arc::clone(&snapshot.route), metrics: Arc::clone(&self.metrics) };
                let credentials = snapshot.injector.credentials(injection, &errand).await;
                if credentials.is_err() {
                    self.metrics.count_injection(&injection.label, false);
                }
                let credentials = if prepared.hopeless { credentials?.hopeless() } else { credentials? };
                let names = credentials.put_on(&mut prepared.headers);
                let redactor = credentials.redactor.clone();
                let redaction = redactor.map(|redactor| Redaction::new(redactor, injection, &self.metrics));
                if let Some(redaction) = &redaction {
                    redaction.prepare(&mut prepared.headers);
                }
                Bound { names, credentials: Some(credentials), redaction }
            }
        };
        let lease = self.upstream.connect(&snapshot.route, permit, speaks, prepared.once).await?;
        Ok((bound, lease))
    }

    /// Counts bytes for the metrics and for the session.
    fn meter(&self, counter: &IntCounter) -> Meter {
        Meter::new(counter, self.session.quota())
    }

    /// Makes the head that goes upstream, but for its credentials; what is only `reported` gets none.
    fn prepare<'a>(
        &self,
        subject: &mut Subject<'a>,
        target: &Target,
        head: Head,
        body: &RequestBody,
        reported: bool,
    ) -> Result<Prepared<'a>, Refusal> {
        let snapshot: &'a Snapshot = subject.snapshot;
        let Head { method, version, mut headers, framing, .. } = head;
        if self.pseudonym.has_seen(&headers) {
            return Err(Reason::Loop.into());
        }
        // What goes out against the rules goes out as whoever asked, not with what is bound to permitted requests.
        let injection = snapshot.injector.find(target, &method)?.filter(|_| !reported);
        subject.server = injection.map(|injection| &*injection.server);
        let mut websocket = websocket_key(&method, version, &headers, body);
        if let Some(websocket) = &mut websocket {
            websocket.slot = Some(self.slot()?);
        }
        let trailers = lists(&headers, &header::TE, "trailers");
        remove_hop_by_hop(&mut headers);
        // The body is framed as it was read, whatever Connection named.
        if let Framing::Length(length) = framing {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        if trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        let outgoing = Outgoing::new(target, framing, websocket.is_some())?;
        self.pseudonym.sign(&mut headers, version);
        let hopeless = subject.caller.client.address == Address::Inner(Purpose::Hopeless);
        let once = !(method.is_safe() && matches!(body, RequestBody::Empty));
        Ok(Prepared { method, headers, outgoing, websocket, injection, once, hopeless })
    }

    /// Sends a request. One that surely was not processed is sent again on a new connection, once: where a pooled
    /// connection was just closing and nothing of it was sent, or the server says so (RFC 9113 section 8.7). So is one
    /// that changes nothing and met a pooled connection that broke (RFC 9110 section 9.2.2).
    async fn exchange(
        &self,
        way: &Way<'_>,
        lease: Lease,
        mut request: Request<RequestBody>,
    ) -> Result<Response<UpstreamBody>, Failure> {
        let (reused, protocol) = (lease.is_reused(), lease.protocol());
        way.outgoing.fit(&mut request, protocol)?;
        let safe = request.method().is_safe();
        // Over HTTP/1.1 a request comes back by itself.
        let may_repeat = protocol == Protocol::Http2 && matches!(request.body(), RequestBody::Empty);
        let spare = may_repeat.then(|| Box::new(copy(&request)));
        let limit = way.snapshot.config.limits.idle;
        let progress = request.body_mut().progress();
        let wait = Wait::new(limit, progress.clone());
        let Unsent { failure, fate, request } = match lease.send(request, way.interim, wait).await {
            Ok(response) => return Ok(response),
            Err(unsent) => unsent,
        };
        let again = match fate {
            Fate::Unprocessed => request.or(spare),
            Fate::Unknown if reused => request.or(spare.filter(|_| safe)),
            Fate::Unknown | Fate::Reset => None,
        };
        let Some(mut request) = again else { return Err(failure) };
        let lease = Box::pin(self.upstream.connect_anew(&way.snapshot.route, way.permit, way.speaks)).await?;
        way.outgoing.fit(&mut request, lease.protocol())?;
        lease.send(*request, way.interim, Wait::new(limit, progress)).await.map_err(|unsent| unsent.failure)
    }

    /// Makes an answer fit to go to the client.
    fn clean(
        &self,
        response: Response<UpstreamBody>,
        redaction: Option<&Redaction>,
    ) -> Result<Response<ResponseBody>, Failure> {
        let (mut parts, mut body) = response.into_parts();
        clean_answer(&mut parts.headers);
        self.pseudonym.sign(&mut parts.headers, parts.version);
        body.count_into(self.meter(&self.metrics.bytes_down));
        let body = match redaction {
            Some(redaction) => redaction.body(&parts.headers, body)?,
            None => ResponseBody::Upstream(Box::new(body)),
        };
        Ok(Response::from_parts(parts, body))
    }

    /// Opens a WebSocket, if that is what upstream's 101 means.
    fn switch(
        self: &Arc<Self>,
        caller: &Caller,
        response: Response<UpstreamBody>,
        websocket: WebSocket,
        target: &Target,
        ending: &mut Option<Box<Ending>>,
    ) -> Result<Reply<Switch>, Failure> {
        let headers = response.headers();
        let accepted = headers.get(header::SEC_WEBSOCKET_ACCEPT).map(HeaderValue::as_bytes);
        if !lists(headers, &header::UPGRADE, "websocket")
            || !connection_lists(headers, "upgrade")
            || accepted != Some(websocket.accept.as_bytes())
        {
            return Err(Failure::protocol("its 101 does not accept the WebSocket that was asked for"));
        }
        let Some(slot) = websocket.slot else { return Err(Failure::protocol("it accepted no WebSocket")) };
        let (mut parts, body) = response.into_parts();
        let upstream = body.into_raw().ok_or_else(|| Failure::protocol("it switched protocols over HTTP/2"))?;
        clean_answer(&mut parts.headers);
        self.pseudonym.sign(&mut parts.headers, parts.version);
        parts.headers.remove(header::CONTENT_LENGTH);
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        parts.headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        self.metrics.count_tunnel(Kind::Upgraded, TunnelResult::Opened);
        let account = caller.client.account.clone();
        let (gate, ending) = (Arc::clone(self), ending.take());
        let tunnel = UpgradedTunnel { gate, target: target.clone(), upstream, account, slot, ending };
        Ok(Reply::Switch(Response::from_parts(parts, ()), Switch::Upgraded(Box::new(tunnel))))
    }
}

/// A request's head, ready to be sent.
struct Prepared<'a> {
    method: Method,
    headers: HeaderMap,
    outgoing: Outgoing,
    websocket: Option<WebSocket>,
    injection: Option<&'a Injection>,
    /// Whether it cannot be sent again.
    once: bool,
    /// Whether a credential that no server takes is put on in place of the bound one.
    hopeless: bool,
}

/// The credentials on a request, and what they ask of its answer.
#[derive(Default)]
struct Bound {
    names: Vec<HeaderName>,
    credentials: Option<Credentials>,
    redaction: Option<Redaction>,
}

impl Bound {
    /// Takes in what upstream answered: whether it accepted the credentials, and any copy of them in the head.
    fn heard(&self, response: Response<UpstreamBody>) -> Response<UpstreamBody> {
        if let Some(credentials) = self.credentials.as_ref().filter(|_| response.status() == StatusCode::UNAUTHORIZED) {
            credentials.rejected();
        }
        let Some(redaction) = &self.redaction else { return response };
        let (mut parts, body) = response.into_parts();
        redaction.head(&mut parts);
        Response::from_parts(parts, body)
    }
}

/// The way out of one request.
struct Way<'a> {
    snapshot: &'a Snapshot,
    permit: &'a Permit,
    speaks: Speaks,
    outgoing: &'a Outgoing,
    interim: Option<&'a Interim>,
}

/// What the connection for a request may speak. A WebSocket opens with an upgrade, which HTTP/2 does not have. Without
/// TLS nothing is negotiated: what came by prior knowledge inside a tunnel goes on by it, all else is HTTP/1.1.
fn speaks(caller: &Caller, target: &Target, http2: bool, websocket: bool) -> Speaks {
    match target.scheme() {
        Scheme::Https if !websocket => Speaks::Negotiated,
        Scheme::Http if http2 && caller.entry == Entry::Intercept => Speaks::Http2,
        Scheme::Https | Scheme::Http => Speaks::Http1,
    }
}

/// A WebSocket that was asked for.
struct WebSocket {
    /// What upstream's `Sec-WebSocket-Accept` has to be (RFC 6455 section 4.2.2).
    accept: String,
    slot: Option<Slot>,
}

/// Recognises the opening handshake of a WebSocket (RFC 6455 section 4.2.1). Other upgrades, h2c among them, are not
/// passed on, and the request is an ordinary one.
fn websocket_key(method: &Method, version: Version, headers: &HeaderMap, body: &RequestBody) -> Option<WebSocket> {
    let asked = method == Method::GET
        && version == Version::HTTP_11
        && matches!(body, RequestBody::Empty)
        && connection_lists(headers, "upgrade")
        && lists(headers, &header::UPGRADE, "websocket");
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| asked)?;
    let joined = [key.as_bytes(), b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"].concat();
    Some(WebSocket { accept: BASE64.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &joined)), slot: None })
}

/// Whether an answer has no transfer coding but chunked, which is undone on the way: TE asks for no other (RFC 9112
/// section 7.4), and a client that is not told of it would take the coded bytes for the content.
fn is_framed_plainly(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::TRANSFER_ENCODING)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .all(|coding| {
            let coding = coding.trim_ascii();
            coding.eq_ignore_ascii_case(b"chunked") || coding.eq_ignore_ascii_case(b"identity")
        })
}

fn copy(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    copy
}

/// The patterns that would permit a request: its host, or its path alone.
struct Patterns<'a>(&'a Target);

impl fmt::Display for Patterns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(target) = self;
        write!(f, "{:?} (the whole host)", target.host().as_str())?;
        let url = target.to_string();
        let url = url.split('?').next().unwrap_or_default();
        // Not every path can be a rule's.
        if Pattern::parse(url).is_ok() {
            write!(f, " or {url:?} (what lies below this path)")?;
        }
        Ok(())
    }
}
