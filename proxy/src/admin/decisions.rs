//! `/v1/decisions`: the latest decisions, and with `Accept: text/event-stream` those to come.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{StatusCode, header};
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde_json::Value;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use super::answer::{self, Answer};
use super::query::Query;
use super::{Admin, Asked};

/// How many decisions are told if nothing is asked for, and at most.
const DEFAULT: usize = 100;
const MOST: usize = 1024;
/// After how much silence a stream says that it is there.
const SILENCE: Duration = Duration::from_secs(15);

/// Which decisions are wanted.
#[derive(Debug, Default)]
struct Filter {
    verdict: Option<String>,
    /// A host, and all below it.
    host: Option<String>,
    reason: Option<String>,
    session: Option<String>,
}

impl Filter {
    /// The decision that a line of the journal holds, if it is wanted.
    fn read(&self, line: &[u8]) -> Option<Value> {
        let event: Value = serde_json::from_slice(line).ok()?;
        self.wants(&event).then_some(event)
    }

    fn wants(&self, event: &Value) -> bool {
        let is = |member: &str, wanted: &Option<String>| {
            wanted.as_deref().is_none_or(|wanted| event.get(member).and_then(Value::as_str) == Some(wanted))
        };
        let host = || event.get("target")?.get("host")?.as_str();
        let below = |wanted: &str| {
            let rest = host().and_then(|host| host.strip_suffix(wanted));
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        event.get("kind").and_then(Value::as_str) == Some("decision")
            && is("verdict", &self.verdict)
            && is("reason", &self.reason)
            && is("session_id", &self.session)
            && self.host.as_deref().is_none_or(below)
    }
}

pub(super) fn answer(admin: &Admin, asked: &Asked) -> Answer {
    let read = Query::read(&asked.request, &["limit", "verdict", "host", "reason", "session"]).and_then(|query| {
        let text = |name: &str| query.get(name).map(str::to_owned);
        let host = query.get("host").map(|host| host.trim_end_matches('.').to_ascii_lowercase());
        let filter = Filter { verdict: text("verdict"), host, reason: text("reason"), session: text("session") };
        Ok((filter, query.number("limit", DEFAULT, MOST)?))
    });
    let (filter, limit) = match read {
        Ok(read) => read,
        Err(refused) => return answer::problem(*refused),
    };
    let (latest, live) = admin.gate.audit.feed().follow();
    let found: Vec<Value> = latest.iter().rev().filter_map(|line| filter.read(line)).take(limit).collect();
    let latest = found.into_iter().rev();
    let accepts = asked.request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    if !accepts.is_some_and(|accept| accept.contains("text/event-stream")) {
        return answer::json(StatusCode::OK, &serde_json::json!({ "decisions": latest.collect::<Vec<_>>() }));
    }
    let telling = Telling { waiting: latest.map(|event| block(&event)).collect(), live, filter };
    let frames = stream::unfold(telling, |mut telling| async {
        let block = telling.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(block)), telling))
    });
    answer::stream(StatusCode::OK, "text/event-stream", StreamBody::new(frames))
}

/// A stream of decisions.
struct Telling {
    waiting: VecDeque<Bytes>,
    live: Receiver<Bytes>,
    filter: Filter,
}

impl Telling {
    /// The next block of the stream; none when there is nothing more to come.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(block) = self.waiting.pop_front() {
            return Some(block);
        }
        loop {
            match timeout(SILENCE, self.live.recv()).await {
                Err(_) => return Some(Bytes::from_static(b":\n\n")),
                Ok(Ok(line)) => {
                    if let Some(event) = self.filter.read(&line) {
                        return Some(block(&event));
                    }
                }
                Ok(Err(RecvError::Lagged(missed))) => {
                    return Some(format!("event: missed\ndata: {{\"missed\":{missed}}}\n\n").into());
                }
                Ok(Err(RecvError::Closed)) => return None,
            }
        }
    }
}

/// An event as a block of a stream. Its JSON has no line end in it.
fn block(event: &Value) -> Bytes {
    let id = event.get("event_id").and_then(Value::as_str).unwrap_or_default();
    format!("id: {id}\nevent: decision\ndata: {event}\n\n").into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn filters_narrow_by_verdict_host_reason_and_session() {
        let event = json!({
            "kind": "decision", "event_id": "a-1", "session_id": "s", "verdict": "deny", "reason": "not_allowed",
            "target": { "scheme": "https", "host": "api.docs.test", "port": 443, "path": "/" },
        });
        let some = |text: &str| Some(text.to_owned());
        for (filter, wanted) in [
            (Filter::default(), true),
            (Filter { verdict: some("deny"), ..Filter::default() }, true),
            (Filter { verdict: some("allow"), ..Filter::default() }, false),
            (Filter { host: some("api.docs.test"), ..Filter::default() }, true),
            (Filter { host: some("docs.test"), ..Filter::default() }, true),
            (Filter { host: some("ocs.test"), ..Filter::default() }, false),
            (Filter { reason: some("blocked"), ..Filter::default() }, false),
            (Filter { session: some("s"), reason: some("not_allowed"), ..Filter::default() }, true),
        ] {
            assert_eq!(filter.wants(&event), wanted, "{filter:?}");
        }
        assert!(!Filter::default().wants(&json!({ "kind": "policy_loaded" })));
        assert!(Filter::default().read(b"{").is_none());
    }

    #[test]
    fn a_block_is_one_event() {
        let text = block(&json!({ "event_id": "a-1" }));
        assert_eq!(text, "id: a-1\nevent: decision\ndata: {\"event_id\":\"a-1\"}\n\n");
        let lines = block(&json!({ "detail": "two\nlines\r\n\n" }));
        assert_eq!(lines, "id: \nevent: decision\ndata: {\"detail\":\"two\\nlines\\r\\n\\n\"}\n\n");
    }
}
