//! MCP on its way through the gate: a request is held until its message is judged, an answer is reviewed on its way
//! back. What is judged and how is [`crate::mcp`]'s; here is what it takes to do it to traffic.

mod body;
mod hold;
mod watch;

use std::sync::Arc;

use bytes::Bytes;
use exeat_policy::Reason;
use exeat_policy::target::Target;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use http_body::Body as _;
use serde_json::{Value, json};

pub(crate) use body::ReviewedBody;
use hold::{Hold, hold};
use watch::Watch;

use super::refusal::{Refusal, Subject};
use super::{Gate, Switch};
use crate::listener::held::Held;
use crate::listener::http1::head::Framing;
use crate::listener::http1::{Exchange, Head, Reply, RequestBody, ResponseBody};
use crate::mcp::json::may_be_message;
use crate::mcp::policy::Found;
use crate::mcp::request::{Asked, Judged, is_identity, judge_body, judge_head};
use crate::mcp::response::{Fate, Note, Reviewed, review, unreadable};
use crate::mcp::rpc::{Answer, Refused, render};
use crate::mcp::stream::EventFilter;
use crate::mcp::{PROTOCOL_VERSION, SESSION_ID};
use crate::permit::Permit;
use crate::respond::{self, EXEAT_REASON};
use crate::snapshot::Snapshot;
use crate::upstream::Failure;

/// Fields of an answer that say what its body was before it was changed.
const OF_THE_BODY: [HeaderName; 5] = [
    header::CONTENT_LENGTH,
    header::ETAG,
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
];

/// The way of a request to an MCP server.
#[derive(Clone, Copy)]
pub(super) struct McpWay<'w> {
    /// What the server is held to.
    pub(super) found: &'w Found,
    /// What is in force.
    pub(super) snapshot: &'w Arc<Snapshot>,
    /// Why the request is permitted.
    pub(super) reason: Reason,
    /// Leave for its origin.
    pub(super) permit: &'w Permit,
}

impl Gate {
    /// Judges a permitted request to an MCP server by its message, sends it, and reviews its answer.
    pub(super) async fn send_mcp<'a>(
        self: &Arc<Self>,
        subject: &mut Subject<'a>,
        way: McpWay<'_>,
        target: &Target,
        exchange: Exchange,
    ) -> Reply<Switch> {
        let McpWay { found, snapshot, reason, permit } = way;
        let owed = self.owe(subject, reason);
        let judged = self.judge_exchange(snapshot, found, exchange).await;
        owed.settle();
        let (exchange, asked) = match judged {
            Ok(judged) => judged,
            Err(refused) => return Reply::Response(self.refused_in_mcp(subject, found, refused)),
        };
        let method = exchange.head.method.clone();
        let sent = exchange.head.headers.clone();
        let reply = self.send_permitted(subject, reason, permit, target, exchange).await;
        let Reply::Response(response) = reply else { return reply };
        // What the gateway says itself needs no review.
        if response.headers().contains_key(&EXEAT_REASON) {
            return Reply::Response(response);
        }
        let watch = Watch {
            gate: Arc::clone(self),
            snapshot: Arc::clone(snapshot),
            caller: subject.caller.clone(),
            method,
            target: target.clone(),
            server: Arc::clone(&found.policy.server),
            sent: with_session(sent, response.headers()),
            answering: watch::answers_at_once(),
        };
        Reply::Response(self.review_response(subject, watch, found, asked, response).await)
    }

    /// Judges a request, and gives it back as it may go on.
    async fn judge_exchange(
        &self,
        snapshot: &Snapshot,
        found: &Found,
        exchange: Exchange,
    ) -> Result<(Exchange, Judged), Refused> {
        let Exchange { mut head, mut body, interim } = exchange;
        let policy = &*found.policy;
        judge_head(found, Asked { method: &head.method, headers: &head.headers }, head.framing != Framing::None)?;
        // What the answer holds has to be there to be reviewed: whole, as it is, and on this connection.
        head.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        for name in [header::RANGE, header::IF_RANGE] {
            head.headers.remove(name);
        }
        if policy.explicit {
            head.headers.remove(header::UPGRADE);
        }
        let coded = head.headers.get_all(header::CONTENT_ENCODING).iter().any(|value| !is_identity(value.as_bytes()));
        if head.method != Method::POST || coded {
            return Ok((Exchange { head, body, interim }, Judged::default()));
        }
        if head.headers.remove(header::EXPECT).is_some()
            && let Some(interim) = &interim
        {
            interim.push(StatusCode::CONTINUE, HeaderMap::new());
        }
        let bytes = match hold(&mut body, policy.max_body, snapshot.config.limits.idle).await {
            Hold::Whole(bytes) => bytes,
            Hold::TooLong(read) if !policy.explicit => {
                let body = RequestBody::Held(Box::new(Held::new(read, Some(body))));
                return Ok((Exchange { head, body, interim }, Judged::default()));
            }
            Hold::TooLong(_) => {
                let detail = format!("expected a message of at most {} bytes, found a longer one", policy.max_body);
                return Err(Refused::problem(Reason::McpTooLarge, detail));
            }
            Hold::Failed(error) => {
                let detail = error.map_or_else(|| "the body stopped arriving".to_owned(), |error| error.to_string());
                return Err(Refused::problem(Reason::BadRequest, detail));
            }
        };
        let mut judged = judge_body(found, Asked { method: &head.method, headers: &head.headers }, &bytes)?;
        let bytes = judged.changed.take().map_or(bytes, Bytes::from);
        head.framing = Framing::Length(bytes.len() as u64);
        let body = RequestBody::Held(Box::new(Held::new(bytes, None)));
        Ok((Exchange { head, body, interim }, judged))
    }

    /// Takes a refusal down and answers it in the words that clients of MCP show.
    fn refused_in_mcp<'a>(&self, subject: &mut Subject<'a>, found: &Found, refused: Refused) -> Response<ResponseBody> {
        let Refused { reason, detail, answer } = refused;
        let refusal = Refusal::new(reason, &detail);
        let subject = Subject { server: Some(&found.policy.server), ..subject.again() };
        let mut response = match answer {
            Answer::Problem => self.refused(&subject, refusal),
            Answer::Errors { rejected, errors, batch } => {
                self.turned_away(&subject, &refusal);
                let Snapshot { policy, generation, .. } = subject.snapshot;
                let more: [(&str, Value); 3] = [
                    ("reason", reason.as_str().into()),
                    ("server", (*found.policy.server).into()),
                    ("policy", json!({ "digest": policy.digest(), "generation": generation })),
                ];
                respond::json_rpc(reason, rejected, render(&errors, batch, &more))
            }
        };
        if reason == Reason::McpMethod {
            let allowed = if found.policy.is_stateless() { "POST" } else { "POST, GET, DELETE" };
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
        }
        response
    }

    /// Makes an answer one that policy lets the client have.
    async fn review_response(
        &self,
        subject: &Subject<'_>,
        watch: Watch,
        found: &Found,
        asked: Judged,
        response: Response<ResponseBody>,
    ) -> Response<ResponseBody> {
        let (mut parts, mut body) = response.into_parts();
        let policy = &*found.policy;
        if policy.is_stateless() {
            parts.headers.remove(&SESSION_ID);
        }
        let silent = matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if silent || watch.method == Method::HEAD || body.is_end_stream() {
            return Response::from_parts(parts, body);
        }
        let kind = match kind(&parts.headers) {
            Ok(Kind::Coded) if !policy.explicit && !found.exact => return Response::from_parts(parts, body),
            Ok(Kind::Coded) => Err("expected it without a content coding, as was asked for"),
            other => other,
        };
        let kind = match kind {
            Ok(kind) => kind,
            Err(detail) => return self.instead(subject, &watch, unreadable(&asked, detail)),
        };
        if kind == Kind::Events {
            OF_THE_BODY.iter().for_each(|name| drop(parts.headers.remove(name)));
            let filter = EventFilter::new(found.clone(), Arc::new(asked));
            let body = ReviewedBody::events(body, filter, watch);
            return Response::from_parts(parts, ResponseBody::Reviewed(Box::new(body)));
        }
        let patience = subject.snapshot.config.limits.idle;
        let beginning = match hold::beginning(&mut body, patience).await {
            Hold::Whole(read) | Hold::TooLong(read) => read,
            Hold::Failed(_) => return self.broke_off(subject),
        };
        if !may_be_message(&beginning) {
            let body = ReviewedBody::begun(beginning, body);
            return Response::from_parts(parts, ResponseBody::Reviewed(Box::new(body)));
        }
        let mut whole = Held::new(beginning, Some(body));
        let reviewed = match hold(&mut whole, policy.max_body, patience).await {
            Hold::Whole(bytes) => {
                let reviewed = review(policy, &asked, &bytes);
                if reviewed.fate == Fate::Pass {
                    return Response::from_parts(parts, ResponseBody::Full(bytes));
                }
                reviewed
            }
            Hold::TooLong(_) => unreadable(&asked, &format!("it is longer than {} bytes", policy.max_body)),
            Hold::Failed(_) => return self.broke_off(subject),
        };
        if let Fate::Rewrite(bytes) = reviewed.fate {
            watch.carry_out(reviewed.answers, reviewed.notes);
            OF_THE_BODY.iter().for_each(|name| drop(parts.headers.remove(name)));
            return Response::from_parts(parts, ResponseBody::Full(bytes.into()));
        }
        self.instead(subject, &watch, reviewed)
    }

    /// An answer in the place of one that the client does not get: for who waits in JSON-RPC, else as a problem.
    fn instead(&self, subject: &Subject<'_>, watch: &Watch, reviewed: Reviewed) -> Response<ResponseBody> {
        let Reviewed { fate, answers, notes } = reviewed;
        let Note { reason, detail } =
            notes.first().cloned().unwrap_or(Note { reason: Reason::McpAnswer, detail: String::new() });
        watch.carry_out(answers, notes);
        match fate {
            Fate::Rewrite(body) => respond::json_rpc(reason, false, String::from_utf8_lossy(&body).into_owned()),
            Fate::Pass | Fate::Withhold => {
                let subject = Subject { server: Some(&watch.server), ..subject.again() };
                self.explain(&subject, Refusal::new(reason, detail))
            }
        }
    }

    fn broke_off(&self, subject: &Subject<'_>) -> Response<ResponseBody> {
        self.explain(subject, Failure::protocol("its answer broke off").into())
    }
}

/// What the body of an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Events,
    Coded,
    Other,
}

/// Tells an event stream from everything else. Clients differ in how they do that, so it has to be plain.
fn kind(headers: &HeaderMap) -> Result<Kind, &'static str> {
    if headers.get_all(header::CONTENT_ENCODING).iter().any(|value| !is_identity(value.as_bytes())) {
        return Ok(Kind::Coded);
    }
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(first), None) = (types.next(), types.next()) else {
        let none = headers.get(header::CONTENT_TYPE).is_none();
        return if none { Ok(Kind::Other) } else { Err("expected one Content-Type, found several") };
    };
    let text = String::from_utf8_lossy(first.as_bytes()).to_ascii_lowercase();
    let essence = text.split(';').next().unwrap_or_default().trim();
    match text.matches("event-stream").count() {
        0 => Ok(Kind::Other),
        1 if essence == "text/event-stream" => Ok(Kind::Events),
        _ => Err("expected a Content-Type of one meaning"),
    }
}

/// The client's fields, in the session that its answer names if it begins one.
fn with_session(mut sent: HeaderMap, answer: &HeaderMap) -> HeaderMap {
    if let Some(session) = answer.get(&SESSION_ID) {
        sent.insert(SESSION_ID, session.clone());
    }
    sent
}

/// The head of a POST of the gateway's own in the place of a client that sent `sent`.
fn head_of_answer(target: &Target, sent: &HeaderMap, length: usize) -> Head {
    const KEPT: [HeaderName; 6] =
        [header::AUTHORIZATION, header::COOKIE, header::ORIGIN, header::USER_AGENT, SESSION_ID, PROTOCOL_VERSION];
    let kept = sent.iter().filter(|(name, _)| KEPT.contains(name));
    let mut headers: HeaderMap = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    Head {
        method: Method::POST,
        target: target.to_string(),
        version: http::Version::HTTP_11,
        headers,
        framing: Framing::Length(length as u64),
        keep_alive: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_stream_is_told_plainly() {
        for (types, expected) in [
            (&[][..], Ok(Kind::Other)),
            (&["application/json"], Ok(Kind::Other)),
            (&["text/event-stream"], Ok(Kind::Events)),
            (&["Text/Event-Stream ; charset=utf-8"], Ok(Kind::Events)),
            (&["application/json; text/event-stream"], Err(())),
            (&["application/json, text/event-stream"], Err(())),
            (&["text/event-stream, text/event-stream"], Err(())),
            (&["text/event-streams"], Err(())),
            (&["application/json", "text/event-stream"], Err(())),
        ] {
            let mut headers = HeaderMap::new();
            for it in types {
                headers.append(header::CONTENT_TYPE, HeaderValue::from_static(it));
            }
            assert_eq!(kind(&headers).map_err(|_| ()), expected, "{types:?}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("identity"));
        assert_eq!(kind(&headers), Ok(Kind::Other));
        headers.append(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(kind(&headers), Ok(Kind::Coded));
    }

    #[test]
    fn an_answer_of_our_own_is_in_the_clients_session() {
        let mut sent = HeaderMap::new();
        for (name, value) in [("mcp-session-id", "s"), ("last-event-id", "7"), ("content-length", "9"), ("cookie", "c")]
        {
            sent.insert(name, HeaderValue::from_static(value));
        }
        let target = Target::parse("https://mcp.test/mcp?x").unwrap();
        let head = head_of_answer(&target, &sent, 3);
        assert_eq!(
            (head.method, head.framing, &*head.target),
            (Method::POST, Framing::Length(3), "https://mcp.test/mcp?x")
        );
        let mut names: Vec<_> = head.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "content-type", "cookie", "mcp-session-id"]);
    }
}
