//! HTTP/2 connections, which many requests share.
//!
//! A request takes one of the connection's places ([`Shared::claim`]) and keeps it while its answer streams. How many
//! places there are is bounded twice: by what the server announced, and by a number small enough that the windows of
//! all streams fit into the connection's window. So an answer that nobody reads stops its own stream, never the
//! others of the connection.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::failure::Failure;
use crate::listener::http1::RequestBody;

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
type Conn = Connection<Io, RequestBody, TokioExecutor>;

/// A connection that requests share.
#[derive(Clone)]
pub(super) struct Shared {
    sender: SendRequest<RequestBody>,
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
    /// Speaks HTTP/2 on a fresh connection.
    pub(super) async fn handshake(io: Io) -> Result<Self, Failure> {
        let (sender, conn) = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .max_header_list_size(HEAD_BYTES)
            .handshake(io)
            .await
            .map_err(|error| Failure::from_hyper(&error))?;
        let conn = Arc::new(Mutex::new(Some(conn)));
        tokio::spawn(Driver(Arc::clone(&conn)));
        let load = Load { streams: 0, since: Instant::now() };
        Ok(Self { sender, conn, load: Arc::new(Mutex::new(load)) })
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
        lock(&self.conn).as_ref().map_or(0, Conn::current_max_send_streams)
    }

    /// Whether it takes no more requests.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Whether it has carried nothing for `time`.
    pub(super) fn is_idle_for(&self, time: Duration) -> bool {
        let load = lock(&self.load);
        load.streams == 0 && load.since.elapsed() >= time
    }

    /// What sends requests on it.
    pub(super) fn sender(&self) -> SendRequest<RequestBody> {
        self.sender.clone()
    }
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
