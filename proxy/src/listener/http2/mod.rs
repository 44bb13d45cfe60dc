//! HTTP/2 towards clients.
//!
//! The framing is hyper's; what a stream asks for becomes the same [`Exchange`] that HTTP/1.1 makes of a request, and
//! goes through the same [`Service`]. Streams are served beside each other and end by themselves: a client's reset
//! drops what its stream was waiting for, an answer that breaks off resets the stream, and neither is ever passed on as
//! a clean end. Interim answers end here, since hyper sends none.
//!
//! What a client can make the gateway hold is bounded: streams at once, bytes that nobody reads, header sections,
//! resets before a stream was looked at and resets that its own mistakes cause. [`frames`] bounds how long a header
//! section may take to arrive, [`activity`] how long a connection may do nothing.

mod activity;
mod frames;
mod inbound;
mod request;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use exeat_policy::Reason;
use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::{sleep, timeout};

use self::activity::{Activity, Busy, Outbound};
use self::frames::Metered;
pub(crate) use self::inbound::Inbound;
use super::http1::{Bounds, HeadError, Reply, ResponseBody, Service, Switched};
use super::stream::{Rewound, Stream};
use crate::drain::Drain;

/// Streams at once on one connection.
const MAX_STREAMS: u32 = 100;
/// How much of one request body may arrive before upstream takes it, and how much of all on a connection.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// How much of one answer waits to be written.
const SEND_BUFFER: usize = 64 * 1024;
/// Streams that a client resets before they were looked at: more than a few at once is an attack (CVE-2023-44487).
const MAX_EARLY_RESETS: usize = 20;
/// Streams that the gateway resets for a client's mistakes, for the life of a connection.
const MAX_ERROR_RESETS: usize = 100;
/// How often a connection is looked at that may have done nothing.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const LOOK_LEAST: Duration = Duration::from_millis(20);

/// Serves a connection until it closes. `buffered` was read from it already. A stream that turns into something else
/// goes to `switched`, on a task of its own.
pub(crate) async fn serve<S, F, U>(
    stream: Stream,
    buffered: BytesMut,
    service: Arc<S>,
    bounds: Bounds,
    drain: &mut Drain,
    switched: F,
) where
    S: Service + Send + 'static,
    S::Switch: 'static,
    F: Fn(Switched<S::Switch>) -> U + Clone + Send + Sync + 'static,
    U: Future<Output = ()> + Send + 'static,
{
    let activity = Arc::new(Activity::default());
    let io = TokioIo::new(Metered::new(Rewound::new(buffered, stream), Arc::clone(&activity)));
    let answering = {
        let activity = Arc::clone(&activity);
        service_fn(move |request| {
            let (service, busy, switched) = (Arc::clone(&service), activity.begin(), switched.clone());
            async move { Ok::<_, Infallible>(answer(&*service, request, bounds, busy, switched).await) }
        })
    };
    let mut connection = pin!(builder(bounds).serve_connection(io, answering));
    let look_every = bounds.head_time.min(bounds.idle).clamp(LOOK_LEAST, LOOK_EVERY);
    let mut draining = false;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "an HTTP/2 connection failed");
                }
                return;
            }
            () = drain.begun(), if !draining => {
                draining = true;
                connection.as_mut().graceful_shutdown();
            }
            () = sleep(look_every) => {
                if activity.is_slow(bounds.head_time) {
                    return;
                }
                if activity.is_idle(bounds.idle) {
                    connection.as_mut().graceful_shutdown();
                    let _ = timeout(bounds.head_time, connection).await;
                    return;
                }
            }
        }
    }
}

fn builder(bounds: Bounds) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(u32::try_from(bounds.head_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(MAX_EARLY_RESETS)
        .max_local_error_reset_streams(MAX_ERROR_RESETS)
        // Together as long as a silent client of HTTP/1.1 may stay: some clients read nothing between two requests.
        .keep_alive_interval(bounds.idle / 2)
        .keep_alive_timeout(bounds.idle / 2);
    builder
}

/// Answers one request.
async fn answer<S, F, U>(
    service: &S,
    mut request: Request<Incoming>,
    bounds: Bounds,
    busy: Busy,
    switched: F,
) -> Response<Outbound>
where
    S: Service,
    S::Switch: 'static,
    F: FnOnce(Switched<S::Switch>) -> U + Send + 'static,
    U: Future<Output = ()> + Send,
{
    let upgrade = (request.method() == Method::CONNECT).then(|| hyper::upgrade::on(&mut request));
    let reply = match request::read(request, bounds.idle) {
        Ok(exchange) => service.call(exchange).await,
        Err(error) => Reply::Response(service.refuse(&error)),
    };
    match (reply, upgrade) {
        (Reply::Response(mut response), _) => {
            if response.status() == StatusCode::NO_CONTENT {
                response.headers_mut().remove(header::CONTENT_LENGTH);
            }
            response.map(|body| Outbound::new(body, busy))
        }
        (Reply::Switch(response, switch), Some(upgrade)) => {
            let opened = busy.clone();
            tokio::spawn(async move {
                // An error is a client that has left between its question and the answer.
                if let Ok(upgraded) = upgrade.await {
                    let stream = Stream::Http2(Box::new(TokioIo::new(upgraded)));
                    switched(Switched { stream, buffered: BytesMut::new(), switch }).await;
                }
                drop(opened);
            });
            response.map(|()| Outbound::new(ResponseBody::Empty, busy))
        }
        (Reply::Switch(..), None) => {
            let error = HeadError::new(Reason::Internal, "only a CONNECT can turn into something else");
            service.refuse(&error).map(|body| Outbound::new(body, busy))
        }
    }
}
