//! HTTP/2 towards clients.
//!
//! The framing is that of the h2 crate; what a stream asks for becomes the same [`Exchange`] that HTTP/1.1 makes of a
//! request, and goes through the same [`Service`]. Streams are served beside each other and end by themselves: a
//! client's reset drops what its stream was waiting for, an answer that breaks off resets the stream, and neither is
//! ever passed on as a clean end.
//!
//! What a client can make the gateway hold or do is bounded: streams at once, bytes that nobody reads, header sections,
//! resets before a stream was looked at, resets that its own mistakes cause, and frames that ask for nothing.
//! [`frames`] follows what goes over the wire for that, [`activity`] how long a connection may do nothing. What is
//! refused on the level of frames, by RST_STREAM or GOAWAY, is taken down like every other refusal.
//!
//! [`Exchange`]: super::http1::Exchange

mod activity;
mod batch;
pub(crate) mod body;
mod budget;
mod frames;
mod inbound;
mod request;
mod stream;
mod tunnel;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use exeat_policy::Reason;
use h2::server::{Builder, Connection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use self::activity::Activity;
use self::batch::Batched;
use self::frames::{Fault, Metered};
pub(crate) use self::inbound::{Inbound, poll_received};
pub(crate) use self::tunnel::Tunnel;
use super::http1::{Bounds, HeadError, Service, Switched};
use super::stream::{Rewound, Stream};
use crate::drain::Drain;

/// How much of one request body may arrive before upstream takes it, and how much of all on a connection.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// How much of one answer waits to be written.
const SEND_BUFFER: usize = 64 * 1024;
/// Streams that a client resets before they were looked at: more than a few at once is an attack (CVE-2023-44487).
const MAX_EARLY_RESETS: usize = 20;
/// Streams that the gateway resets for a client's mistakes, for the life of a connection.
const MAX_ERROR_RESETS: usize = 100;
/// How many times the limit a header section may have to be refused with a reason. A longer one is refused by the
/// framing with a bare 431.
const HEAD_ROOM: usize = 2;
/// How often a connection is looked at that may have done nothing.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const LOOK_LEAST: Duration = Duration::from_millis(20);
/// How much and how long a client that was cut off is still listened to, so that it hears why.
const LINGER_BYTES: usize = 1024 * 1024;
const LINGER_TIME: Duration = Duration::from_secs(1);

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
    let (give_back, back) = oneshot::channel();
    let io = Batched::new(Metered::new(Rewound::new(buffered, stream), Arc::clone(&activity), give_back));
    let cut = drive(io, &activity, &service, bounds, drain, switched).await;
    for fault in activity.rest() {
        if let Fault::Stream(error) = fault {
            refuse(&*service, &error);
        }
    }
    if let (Some(refusal), Ok(mut stream)) = (cut, back.await) {
        refuse(&*service, &refusal);
        linger(&mut stream).await;
    }
}

/// Serves a connection; tells why it was cut off, if it was.
async fn drive<S, F, U>(
    io: Batched<Metered>,
    activity: &Arc<Activity>,
    service: &Arc<S>,
    bounds: Bounds,
    drain: &mut Drain,
    switched: F,
) -> Option<HeadError>
where
    S: Service + Send + 'static,
    S::Switch: 'static,
    F: Fn(Switched<S::Switch>) -> U + Clone + Send + Sync + 'static,
    U: Future<Output = ()> + Send + 'static,
{
    let mut connection = match timeout(bounds.head_time, builder(bounds).handshake::<_, Bytes>(io)).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return fault_of(&error),
        Err(_) => return Some(slow()),
    };
    let look_every = bounds.head_time.min(bounds.idle).clamp(LOOK_LEAST, LOOK_EVERY);
    let mut draining = false;
    loop {
        tokio::select! {
            accepted = connection.accept() => match accepted {
                None => return None,
                Some(Err(error)) => return fault_of(&error),
                Some(Ok((request, respond))) => {
                    activity.settle(request.body().stream_id().as_u32());
                    let (service, busy, switched) = (Arc::clone(service), activity.begin(), switched.clone());
                    // A task is moved about while it is made and when it ends, and this is a large one.
                    tokio::spawn(Box::pin(stream::answer(service, request, respond, bounds, busy, switched)));
                }
            },
            fault = activity.fault() => match fault {
                Fault::Stream(error) => refuse(&**service, &error),
                Fault::Preface => {
                    end(connection, Some(h2::Reason::PROTOCOL_ERROR)).await;
                    return Some(HeadError::new(Reason::BadRequest, "no SETTINGS follow the preface of HTTP/2"));
                }
                Fault::Flood => {
                    end(connection, Some(h2::Reason::ENHANCE_YOUR_CALM)).await;
                    return Some(HeadError::new(Reason::Flood, "too many frames that ask for nothing"));
                }
            },
            () = drain.begun(), if !draining => {
                draining = true;
                connection.graceful_shutdown();
            }
            () = sleep(look_every) => {
                if activity.is_slow(bounds.head_time) {
                    end(connection, Some(h2::Reason::ENHANCE_YOUR_CALM)).await;
                    return Some(slow());
                }
                if activity.is_idle(bounds.idle) {
                    end(connection, None).await;
                    return None;
                }
            }
        }
    }
}

fn builder(bounds: Bounds) -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(bounds.streams)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER)
        .max_header_list_size(u32::try_from(bounds.head_bytes.saturating_mul(HEAD_ROOM)).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(MAX_EARLY_RESETS)
        .max_local_error_reset_streams(Some(MAX_ERROR_RESETS));
    builder
}

/// Closes a connection: at once and for a reason, or when its streams have ended. The client has a second for it.
async fn end(mut connection: Connection<Batched<Metered>, Bytes>, reason: Option<h2::Reason>) {
    match reason {
        Some(reason) => connection.abrupt_shutdown(reason),
        None => connection.graceful_shutdown(),
    }
    // Streams that come in between are dropped with it.
    let closed = std::future::poll_fn(|cx| connection.poll_closed(cx));
    let _ = timeout(LINGER_TIME, closed).await;
}

/// What the client did wrong, where the connection failed for that.
fn fault_of(error: &h2::Error) -> Option<HeadError> {
    tracing::debug!(%error, "an HTTP/2 connection failed");
    let reason = error.reason().filter(|_| error.is_library() && error.is_go_away())?;
    Some(match reason {
        h2::Reason::NO_ERROR => return None,
        h2::Reason::ENHANCE_YOUR_CALM => HeadError::new(Reason::Flood, "too many streams were reset or malformed"),
        reason => HeadError::new(Reason::BadRequest, frames::words(reason)),
    })
}

fn slow() -> HeadError {
    HeadError::new(Reason::HeadTimeout, "the header section did not arrive in time")
}

/// Takes a refusal down that frames have told the client already.
fn refuse<S: Service>(service: &S, error: &HeadError) {
    drop(service.refuse(error));
}

/// Takes what a client still sends, for a while: to close with something unread would take back what it was told.
async fn linger(stream: &mut Rewound) {
    let deadline = Instant::now() + LINGER_TIME;
    if !matches!(timeout_at(deadline, stream.shutdown()).await, Ok(Ok(()))) {
        return;
    }
    let mut left = LINGER_BYTES;
    let mut scrap = vec![0; 16 * 1024];
    while left > 0 {
        match timeout_at(deadline, stream.read(&mut scrap)).await {
            Ok(Ok(length)) if length > 0 => left = left.saturating_sub(length),
            _ => return,
        }
    }
}
