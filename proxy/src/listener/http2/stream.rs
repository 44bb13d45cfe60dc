//! One stream: from its request to the end of its answer.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use exeat_policy::Reason;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body as _;
use tokio::time::Instant;

use super::activity::Busy;
use super::body::{self, Broken, Waits};
use super::inbound::Inbound;
use super::request;
use super::tunnel::Tunnel;
use crate::listener::http1::head::{self, Framing};
use crate::listener::http1::{
    Bounds, Exchange, HeadError, Interim, Reply, RequestBody, ResponseBody, Service, Switched, expected_long_enough,
};
use crate::listener::stream::Stream;

/// Answers one request.
pub(super) async fn answer<S, F, U>(
    service: Arc<S>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    bounds: Bounds,
    busy: Busy,
    switched: F,
) where
    S: Service,
    S::Switch: 'static,
    F: FnOnce(Switched<S::Switch>) -> U + Send + 'static,
    U: Future<Output = ()> + Send + 'static,
{
    let (parts, incoming) = request.into_parts();
    let method = parts.method.clone();
    let head = match request::read(parts, &incoming, bounds.head_bytes) {
        Ok(head) => head,
        Err(error) => return send(&mut respond, &method, service.refuse(&error), &busy).await,
    };
    let expects = head.framing != Framing::None && head::expects_continue(&head.headers);
    let (body, tunnel) = match (head.framing, &method) {
        (_, &Method::CONNECT) => (RequestBody::Empty, Some(incoming)),
        (Framing::None, _) => (RequestBody::Empty, None),
        _ => (RequestBody::Http2(Box::new(Inbound::new(incoming, bounds.idle))), None),
    };
    let interim = Interim::default();
    let exchange = Exchange { head, body, interim: Some(interim.clone()) };
    let reply = {
        let call = pin!(service.call(exchange));
        await_reply(&mut respond, &interim, expects, call).await
    };
    let Some(reply) = reply else { return };
    match (reply, tunnel) {
        (Reply::Response(response), tunnel) => {
            send(&mut respond, &method, response, &busy).await;
            // A CONNECT that is refused may have had its first bytes sent ahead.
            drop(tunnel);
        }
        (Reply::Switch(response, switch), Some(incoming)) => {
            if let Ok(outgoing) = respond.send_response(response, false) {
                let stream = Stream::Http2(Box::new(Tunnel::new(incoming, outgoing, busy)));
                tokio::spawn(Box::pin(switched(Switched { stream, buffered: BytesMut::new(), switch })));
            }
        }
        (Reply::Switch(..), None) => {
            let error = HeadError::new(Reason::Internal, "only a CONNECT can turn into something else");
            send(&mut respond, &method, service.refuse(&error), &busy).await;
        }
    }
}

/// Waits for a reply and passes interim answers on until then; none if the client gives the stream up.
async fn await_reply<T>(
    respond: &mut SendResponse<Bytes>,
    interim: &Interim,
    expects: bool,
    mut call: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    let mut continued = !expects;
    let began = expects.then(Instant::now);
    loop {
        let (reply, waiting) = tokio::select! {
            biased;
            // Interim answers that came with the final one are still to go before it.
            reply = &mut call => (Some(reply), interim.take()),
            _ = poll_fn(|cx| respond.poll_reset(cx)) => return None,
            waiting = interim.next() => (None, waiting),
            () = expected_long_enough(began), if !continued => (None, vec![(StatusCode::CONTINUE, HeaderMap::new())]),
        };
        for (status, headers) in waiting {
            if status == StatusCode::CONTINUE && std::mem::replace(&mut continued, true) && expects {
                continue;
            }
            let mut response = Response::new(());
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            respond.send_informational(response).ok()?;
        }
        if reply.is_some() {
            return reply;
        }
    }
}

/// Sends a whole answer. One that breaks off resets the stream.
async fn send(respond: &mut SendResponse<Bytes>, method: &Method, response: Response<ResponseBody>, busy: &Busy) {
    let (mut parts, body) = response.into_parts();
    if parts.status == StatusCode::NO_CONTENT {
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    let bodiless = *method == Method::HEAD
        || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || body.is_end_stream();
    if !bodiless && let Some(length) = body.size_hint().exact() {
        parts.headers.entry(header::CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    // The errors below are a client's that has left.
    let Ok(mut outgoing) = respond.send_response(Response::from_parts(parts, ()), bodiless) else { return };
    if bodiless {
        return;
    }
    match body::send(pin!(body), &mut outgoing, &mut Taking(busy)).await {
        Ok(()) => {}
        Err(Broken::Peer(error)) => tracing::debug!(%error, "a client gave an answer up"),
        Err(Broken::Body(error)) => {
            tracing::debug!(%error, "an answer broke off");
            outgoing.send_reset(h2::Reason::INTERNAL_ERROR);
        }
    }
}

/// Tells the connection's activity when a client does not take its answer.
struct Taking<'a>(&'a Busy);

impl Waits for Taking<'_> {
    fn waits(&mut self, waits: bool) {
        self.0.set_untaken(waits);
    }
}
