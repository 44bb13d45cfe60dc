//! HTTP/2 connections, which many requests share.
//!
//! A request takes one of the connection's places ([`Shared::claim`]) and keeps it while its answer streams. How many
//! places there are is bounded twice: by what the server announced, and by a number small enough that the windows of
//! all streams fit into the connection's window. So an answer that nobody reads stops its own stream, never the
//! others of the connection.

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::Unsent;
use super::failure::{Failure, Fate};
use crate::listener::http1::{Interim, RequestBody};
use crate::listener::http2::body::{self, Broken};

/// The most requests that one connection carries at once.
const MAX_STREAMS: usize = 32;
/// How much of one answer may arrive before somebody reads it.
const STREAM_WINDOW: u32 = 512 * 1024;
/// The same for the whole connection: as much as all its streams may hold.
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// How much of one request body waits to be written.
const SEND_BUFFER: usize = 64 * 1024;
/// The largest header section of an answer.
const HEAD_BYTES: u32 = 256 * 1024;

/// What carries an HTTP/2 connection: TLS, or TCP alone with prior knowledge.
pub(super) type Io = MaybeHttpsStream<TokioIo<TcpStream>>;
type Conn = Connection<TokioIo<Io>, Bytes>;

/// A connection that requests share.
#[derive(Clone)]
pub(super) struct Shared {
    sender: SendRequest<Bytes>,
    peer: Option<SocketAddr>,
    conn: Arc<Mutex<Option<Conn>>>,
    load: Arc<Mutex<Load>>,
}

/// What a connection carries now, and since when if that is nothing.
#[derive(Debug)]
struct Load {
    streams: usize,
    since: Instant,
}

/// One request's place on a connection; given back when dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<Mutex<Load>>);

impl Shared {
    /// Where the connection leads.
    pub(super) const fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Speaks HTTP/2 on a fresh connection, which leads to `peer`.
    pub(super) async fn handshake(io: Io, peer: Option<SocketAddr>) -> Result<Self, Failure> {
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buffer_size(SEND_BUFFER)
            .max_header_list_size(HEAD_BYTES);
        let handshake = builder.handshake(TokioIo::new(io)).await;
        let (sender, conn) = handshake.map_err(|error| Failure::from_exchange(&error))?;
        let conn = Arc::new(Mutex::new(Some(conn)));
        tokio::spawn(Driver(Arc::clone(&conn)));
        let load = Load { streams: 0, since: Instant::now() };
        Ok(Self { sender, peer, conn, load: Arc::new(Mutex::new(load)) })
    }

    /// A place for one request, if there is one.
    pub(super) fn claim(&self) -> Option<Place> {
        let limit = MAX_STREAMS.min(self.announced());
        let mut load = lock(&self.load);
        if self.is_closed() || load.streams >= limit {
            return None;
        }
        load.streams += 1;
        Some(Place(Arc::clone(&self.load)))
    }

    /// How many streams the server takes at once; none once the connection is over.
    fn announced(&self) -> usize {
        lock(&self.conn).as_ref().map_or(0, Conn::max_concurrent_send_streams)
    }

    /// Whether it takes no more requests: it is over, or the server has sent GOAWAY.
    pub(super) fn is_closed(&self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        matches!(self.sender.clone().poll_ready(&mut cx), Poll::Ready(Err(_))) || lock(&self.conn).is_none()
    }

    /// Whether it has carried nothing for `time`.
    pub(super) fn is_idle_for(&self, time: Duration) -> bool {
        let load = lock(&self.load);
        load.streams == 0 && load.since.elapsed() >= time
    }

    /// Sends a request and waits for the head of its answer. Interim answers before it go to `interim`.
    pub(super) async fn send(
        &self,
        request: Request<RequestBody>,
        interim: Option<&Interim>,
    ) -> Result<Answer, Unsent> {
        let mut sender = match self.sender.clone().ready().await {
            Ok(sender) => sender,
            Err(error) => return Err(Unsent::whole(&error, request)),
        };
        let (parts, body) = request.into_parts();
        let ends = body.is_end_stream();
        let (mut answer, stream) =
            sender.send_request(Request::from_parts(parts, ()), ends).map_err(|error| Unsent::of(&error))?;
        let mut upload = (!ends).then(|| Box::pin(upload(body, stream)));
        let response = tokio::select! {
            biased;
            failure = finished(&mut upload) => return Err(Unsent { failure, fate: Fate::Unknown, request: None }),
            response = head(&mut answer, interim) => response?,
        };
        // The answer has begun. What is left of the body goes on beside it.
        let upload = upload.map(|upload| Upload(Some(tokio::spawn(async move { drop(upload.await) }))));
        Ok(Answer { response, upload })
    }
}

/// An answer, and what is left of its request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) response: Response<RecvStream>,
    pub(super) upload: Option<Upload>,
}

/// A request body that is still under way. Given up when it is dropped.
#[derive(Debug)]
pub(super) struct Upload(Option<JoinHandle<()>>);

impl Upload {
    /// Lets it go on by itself, to its end or until the server resets the stream.
    pub(super) fn detach(mut self) {
        self.0 = None;
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// Sends the body of a request. A client that breaks it off resets the stream; a server that wants no more of it has
/// its reasons, and its answer tells.
async fn upload(body: RequestBody, mut stream: SendStream<Bytes>) -> Result<(), Failure> {
    let mut body = std::pin::pin!(body);
    match body::send(body.as_mut(), &mut stream, &mut ()).await {
        Ok(()) => Ok(()),
        Err(Broken::Peer(error)) => {
            tracing::debug!(%error, "upstream takes no more of a request");
            Ok(())
        }
        Err(Broken::Body(error)) => {
            stream.send_reset(h2::Reason::CANCEL);
            Err(Failure::from_exchange(&error))
        }
    }
}

/// Resolves when a body has broken off, and forgets one that got through.
async fn finished(upload: &mut Option<Pin<Box<impl Future<Output = Result<(), Failure>>>>>) -> Failure {
    if let Some(sending) = upload {
        let sent = sending.await;
        *upload = None;
        if let Err(failure) = sent {
            return failure;
        }
    }
    std::future::pending().await
}

/// Waits for the head of an answer.
async fn head(answer: &mut ResponseFuture, interim: Option<&Interim>) -> Result<Response<RecvStream>, Unsent> {
    poll_fn(|cx| {
        while let Poll::Ready(Some(Ok(ahead))) = answer.poll_informational(cx) {
            // HTTP/2 has no 101 (RFC 9113 section 8.6).
            if ahead.status() == StatusCode::SWITCHING_PROTOCOLS {
                let failure = Failure::protocol("it switched protocols, which HTTP/2 does not have");
                return Poll::Ready(Err(Unsent { failure, fate: Fate::Reset, request: None }));
            }
            if let Some(interim) = interim {
                let (parts, ()) = ahead.into_parts();
                interim.push_clean(parts.status, parts.headers);
            }
        }
        Pin::new(&mut *answer).poll(cx).map_err(|error| Unsent::of(&error))
    })
    .await
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("load", &self.load).finish_non_exhaustive()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut load = lock(&self.0);
        load.streams -= 1;
        load.since = Instant::now();
    }
}

/// Drives a connection that others look at. When it is over it is dropped at once, which sends back what was not sent.
struct Driver(Arc<Mutex<Option<Conn>>>);

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut conn = lock(&self.0);
        if let Some(driven) = conn.as_mut()
            && let Err(error) = ready!(Pin::new(driven).poll(cx))
        {
            tracing::debug!(%error, "an upstream connection failed");
        }
        *conn = None;
        Poll::Ready(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
