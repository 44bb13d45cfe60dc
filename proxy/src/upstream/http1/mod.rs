//! The client side of HTTP/1.1 (RFC 9112), driven by whoever waits for the answer.
//!
//! A connection has no task of its own: the request's future writes and reads until the head of the answer is there,
//! then the answer's body does, and in between the connection is a socket in the pool. Nothing wakes anybody but the
//! socket, and a request is sent, answered and passed on within the task of the client's connection.
//!
//! Request and answer flow at once. A server may answer before it has the whole request: what is left of it goes on
//! beside the body of the answer, and behind it if need be.

mod head;
mod incoming;
mod upload;

use std::future::{Future as _, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::BytesMut;
use http::{Method, Request, Response, StatusCode};
use tokio::io::{AsyncRead as _, AsyncReadExt as _, ReadBuf};

use super::pool::{Key, Pool};
use super::raw::{Io, Raw};
use super::{Failure, Fate, Unsent, Wait};
use crate::listener::http1::{Interim, RequestBody};
use crate::patience::Patience;
use crate::scratch;
use head::Head;
pub(super) use incoming::Incoming;
use upload::{Broken, Upload};

/// How much is read at once: little until an answer turns out to be long.
const FIRST_READ: usize = 8 * 1024;
const LONG_READ: usize = 64 * 1024;
/// The largest buffer that a connection keeps while it waits for its next request.
const KEPT: usize = 2 * 1024;

/// A connection that carries one request after the other.
#[derive(Debug)]
pub(super) struct Connection {
    io: Io,
    /// Where it leads.
    peer: Option<SocketAddr>,
    /// What was read and belongs to nothing yet.
    input: BytesMut,
    /// What waits to be written.
    output: BytesMut,
    /// Where it waits for its next request.
    key: Key,
    pool: Arc<Pool>,
    /// Waits for answers.
    patience: Option<Patience>,
}

impl Connection {
    /// A connection that has carried nothing yet.
    pub(super) fn new(io: Io, key: Key, pool: Arc<Pool>) -> Box<Self> {
        let peer = io.socket().peer_addr().ok();
        Box::new(Self { io, peer, input: BytesMut::new(), output: BytesMut::new(), key, pool, patience: None })
    }

    /// Where it leads.
    pub(super) const fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Whether nothing has come on it unasked, its end included.
    pub(super) fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        let mut cx = Context::from_waker(Waker::noop());
        self.input.is_empty() && Pin::new(&mut self.io).poll_read(&mut cx, &mut ReadBuf::new(&mut byte)).is_pending()
    }

    /// The same, asked of the system: what came a moment ago is not told of by itself.
    pub(super) fn is_surely_quiet(&mut self) -> bool {
        self.is_quiet() && is_silent(self.io.socket())
    }

    /// Sends a request and waits for the head of its answer, for as long as `wait` says. Interim answers before it go to
    /// `interim`.
    pub(super) async fn send(
        mut self: Box<Self>,
        request: Request<RequestBody>,
        interim: Option<&Interim>,
        mut wait: Wait,
    ) -> Result<Response<Incoming>, Unsent> {
        let (parts, body) = request.into_parts();
        let mut upload = match Upload::new(&parts, body, &mut self.output) {
            Ok(upload) => upload,
            Err((failure, _)) => return Err(Unsent { failure, fate: Fate::Reset, request: None }),
        };
        let mut patience = self.patience.take().unwrap_or_else(|| Patience::new(wait.limit()));
        let mut seen = 0;
        let mut sent = Poll::Pending;
        let answer = poll_fn(|cx| {
            if sent.is_pending() {
                sent = upload.poll(&mut self.io, &mut self.output, cx);
            }
            // A server that takes no more of a request may have answered it all the same.
            if let Poll::Ready(Err(Broken::Client(_))) = sent {
                return Poll::Ready(None);
            }
            match self.poll_head(&mut seen, &parts.method, interim, cx) {
                Poll::Ready(head) => Poll::Ready(Some(head)),
                Poll::Pending => {
                    wait.poll_over(&mut patience, cx).map(|()| Some(Err((Failure::upstream_timeout(), Fate::Reset))))
                }
            }
        })
        .await;
        self.patience = Some(patience);
        let (failure, fate) = match (answer, sent) {
            (Some(Ok(head)), sent) => {
                let upload = sent.is_pending().then(|| Box::new(upload));
                let whole = !matches!(sent, Poll::Ready(Err(_)));
                return Ok(respond(head, self, upload, whole));
            }
            (_, Poll::Ready(Err(broken))) => (broken.into_failure(), Fate::Unknown),
            (Some(Err(failed)), _) => failed,
            (None, _) => (Failure::protocol("it closed early"), Fate::Unknown),
        };
        let body = upload.again(parts.method.is_safe());
        let request = body.map(|body| Box::new(Request::from_parts(parts, body)));
        Err(Unsent { failure, fate, request })
    }

    fn poll_head(
        &mut self,
        seen: &mut usize,
        method: &Method,
        interim: Option<&Interim>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Head, (Failure, Fate)>> {
        loop {
            let head = head::take(&mut self.input, seen, method);
            match head.map_err(|detail| (Failure::protocol(detail), Fate::Reset))? {
                Some(head) if head.status.is_informational() && head.status != StatusCode::SWITCHING_PROTOCOLS => {
                    if let Some(interim) = interim {
                        interim.push_clean(head.status, head.headers);
                    }
                    continue;
                }
                Some(head) => return Poll::Ready(Ok(head)),
                None => {}
            }
            match ready!(scratch::poll_read(&mut self.io, &mut self.input, FIRST_READ, cx)) {
                Ok(0) => {
                    let failure = Failure::protocol("it closed before its answer was whole");
                    return Poll::Ready(Err((failure, Fate::Unknown)));
                }
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err((Failure::from_exchange(&error), Fate::Unknown))),
            }
        }
    }

    fn poll_fill(&mut self, size: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.input.reserve(size);
        pin!(self.io.read_buf(&mut self.input)).poll(cx)
    }

    /// Waits in the pool for the next request.
    fn put_back(mut self: Box<Self>) {
        if self.input.is_empty() {
            for buffer in [&mut self.input, &mut self.output] {
                if buffer.capacity() > KEPT {
                    *buffer = BytesMut::new();
                }
            }
            let (pool, key) = (Arc::clone(&self.pool), self.key.clone());
            pool.put(key, self);
        }
    }
}

fn respond(head: Head, connection: Box<Connection>, upload: Option<Box<Upload>>, whole: bool) -> Response<Incoming> {
    let Head { status, version, headers, phrase, framing, keep_alive } = head;
    let keep = keep_alive && whole && status != StatusCode::SWITCHING_PROTOCOLS;
    let mut response = Response::new(Incoming::new(connection, upload, framing, keep));
    *response.status_mut() = status;
    *response.version_mut() = version;
    *response.headers_mut() = headers;
    if let Some(phrase) = phrase {
        response.extensions_mut().insert(phrase);
    }
    response
}

/// Whether there is nothing to be read, neither bytes nor an end.
fn is_silent(socket: &tokio::net::TcpStream) -> bool {
    let mut byte = [0];
    let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
    rustix::net::recv(socket, &mut byte, flags).is_err_and(|errno| errno == rustix::io::Errno::AGAIN)
}
