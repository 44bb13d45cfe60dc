//! The probe's messages by way of the gateway's own listener: judged, given their credentials, resolved, checked and
//! dialled like a client's.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exeat_policy::Reason;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{DuplexStream, duplex};
use tokio::time::{Instant, timeout_at};

use super::answer::{Answer, EventStream, HttpAnswer, Message};
use super::probe::{Ask, Carrier};
use crate::respond::EXEAT_REASON;

/// The most of an answer that is read, in bytes.
const MAX_BODY: usize = 4 * 1024 * 1024;
/// How long one message and its answer may take.
const STEP_TIME: Duration = Duration::from_secs(10);
/// What the two ends of an inner connection hold between them, in bytes.
const INNER_BUFFER: usize = 64 * 1024;

/// What an inner connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To carry what a client would send.
    Plain,
    /// To carry a credential that no server takes, in place of the bound one.
    Hopeless,
    /// To ask for what must be refused.
    MustDeny,
}

/// Serves one end of an inner connection as a client's.
pub(crate) type Enter = Arc<dyn Fn(DuplexStream, Purpose) + Send + Sync>;

/// Carries messages to one URL.
pub(crate) struct Inner {
    enter: Enter,
    url: http::Uri,
    deadline: Instant,
}

impl Inner {
    /// A carrier to `url` that gives up at `deadline`.
    pub(crate) const fn new(enter: Enter, url: http::Uri, deadline: Instant) -> Self {
        Self { enter, url, deadline }
    }

    async fn exchange(&self, ask: &Ask) -> Result<Answer, String> {
        let (near, far) = duplex(INNER_BUFFER);
        (self.enter)(far, if ask.hopeless { Purpose::Hopeless } else { Purpose::Plain });
        let (mut sender, connection) =
            http1::handshake::<_, Full<Bytes>>(TokioIo::new(near)).await.map_err(|error| error.to_string())?;
        let connection = tokio::spawn(connection);
        let answer = async {
            let body = ask.body.as_ref().map(|body| Bytes::from(body.to_string())).unwrap_or_default();
            let mut request = Request::new(Full::new(body));
            *request.method_mut() = ask.method.clone();
            *request.uri_mut() = self.url.clone();
            *request.headers_mut() = ask.headers.clone();
            let headers = request.headers_mut();
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            if let Some(authority) = self.url.authority()
                && let Ok(host) = HeaderValue::from_str(authority.as_str())
            {
                headers.insert(header::HOST, host);
            }
            let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
            read(response, ask).await
        };
        let answer = answer.await;
        connection.abort();
        answer
    }
}

impl Carrier for Inner {
    async fn ask(&mut self, ask: Ask) -> Answer {
        let until = self.deadline.min(Instant::now() + STEP_TIME);
        match timeout_at(until, self.exchange(&ask)).await {
            Err(_) => Answer::Timeout,
            Ok(Err(detail)) => Answer::Broken(detail),
            Ok(Ok(answer)) => answer,
        }
    }
}

/// Reads an answer: a whole body, or events until the message is there.
async fn read(response: Response<Incoming>, ask: &Ask) -> Result<Answer, String> {
    let (parts, mut body) = response.into_parts();
    let refusal = parts.headers.get(EXEAT_REASON).and_then(|reason| reason.to_str().ok());
    let refusal = refusal.map(|word| Reason::ALL.iter().copied().find(|reason| reason.as_str() == word));
    let is_events = parts
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .is_some_and(|kind| kind.trim().to_ascii_lowercase().starts_with("text/event-stream"));
    let mut events = EventStream::default();
    let mut whole = Vec::new();
    let mut too_large = false;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| error.to_string())?.into_data() else { continue };
        if whole.len() + data.len() > MAX_BODY {
            too_large = true;
            break;
        }
        whole.extend_from_slice(&data);
        if is_events && let Some(message) = events.push(&data, &ask.id) {
            return Ok(Answer::Http(HttpAnswer::with_message(parts.status, parts.headers, message)));
        }
    }
    match refusal {
        None => {
            let body = (!too_large).then_some(&*whole);
            Ok(Answer::Http(HttpAnswer::read(parts.status, parts.headers, body, &ask.id)))
        }
        Some(reason) => {
            let problem: serde_json::Value = serde_json::from_slice(&whole).unwrap_or_default();
            let detail = problem.get("detail").and_then(|detail| detail.as_str()).unwrap_or_default().to_owned();
            Ok(Answer::Refused { reason: reason.unwrap_or(Reason::Internal), detail })
        }
    }
}

impl HttpAnswer {
    fn with_message(status: http::StatusCode, headers: http::HeaderMap, message: Message) -> Self {
        Self { status, headers, content: super::answer::Content::Message(message) }
    }
}
