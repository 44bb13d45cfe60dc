//! What an origin answers.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::sync::{Mutex, mpsc, watch};

use super::Request;
use crate::wire::{chunk, last_chunk};

type Computation = dyn Fn(Request) -> Pin<Box<dyn Future<Output = Reply> + Send>> + Send + Sync;

/// An answer: a status with fields and a body, or something a server should not do.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(super) interim: Vec<String>,
    pub(super) status: u16,
    pub(super) lines: Vec<String>,
    pub(super) trailers: Vec<String>,
    pub(super) gate: Option<Gate>,
    pub(super) body: Body,
}

#[derive(Clone)]
pub(super) enum Body {
    Sized(Vec<u8>),
    Chunked(Vec<Vec<u8>>),
    Events(Arc<Mutex<mpsc::Receiver<Vec<u8>>>>),
    Flood(u64, Arc<AtomicU64>),
    Echo,
    WebSocket,
    Verbatim(Vec<u8>),
    Reset(Vec<u8>),
    Vanish,
    Early,
    Hang,
    Computed(Arc<Computation>),
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body")
    }
}

impl Reply {
    fn of(status: u16, body: Body) -> Self {
        Self { interim: Vec::new(), status, lines: Vec::new(), trailers: Vec::new(), gate: None, body }
    }

    /// A status without a body.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self::of(status, Body::Sized(Vec::new()))
    }

    /// 200 with a body of known length.
    #[must_use]
    pub fn bytes(content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::of(200, Body::Sized(body.into())).header("Content-Type", content_type)
    }

    /// 200 with text.
    #[must_use]
    pub fn text(body: &str) -> Self {
        Self::bytes("text/plain", body)
    }

    /// 200 with JSON.
    #[must_use]
    pub fn json(body: &serde_json::Value) -> Self {
        Self::bytes("application/json", body.to_string())
    }

    /// 302 to `location`.
    #[must_use]
    pub fn redirect(location: &str) -> Self {
        Self::status(302).header("Location", location)
    }

    /// 200 in chunks, each written on its own.
    #[must_use]
    pub fn chunked(pieces: &[&str]) -> Self {
        Self::of(200, Body::Chunked(pieces.iter().map(|piece| piece.as_bytes().to_vec()).collect()))
    }

    /// 200 with an event stream that the test feeds; it ends when the source is dropped.
    #[must_use]
    pub fn events() -> (Self, EventSource) {
        let (sender, receiver) = mpsc::channel(1);
        let reply = Self::of(200, Body::Events(Arc::new(Mutex::new(receiver))));
        (reply.header("Content-Type", "text/event-stream"), EventSource(sender))
    }

    /// 200 with the first `length` bytes of [`crate::bulk::Content`], written as fast as they are taken, and how many
    /// were written so far.
    #[must_use]
    pub fn flood(length: u64) -> (Self, Arc<AtomicU64>) {
        let written = Arc::new(AtomicU64::new(0));
        (Self::of(200, Body::Flood(length, Arc::clone(&written))), written)
    }

    /// 200 that gives the request's body back piece by piece, while it is still arriving.
    #[must_use]
    pub fn echo() -> Self {
        Self::of(200, Body::Echo)
    }

    /// 101 to a WebSocket handshake, then an echo of frames; 400 to anything else.
    #[must_use]
    pub fn websocket() -> Self {
        Self::of(101, Body::WebSocket)
    }

    /// These bytes and the end of the connection.
    #[must_use]
    pub fn verbatim(bytes: &str) -> Self {
        Self::of(0, Body::Verbatim(bytes.as_bytes().to_vec()))
    }

    /// These bytes and a TCP reset; over HTTP/2 a body of these bytes and a reset of the stream.
    #[must_use]
    pub fn reset(bytes: &str) -> Self {
        Self::of(0, Body::Reset(bytes.as_bytes().to_vec()))
    }

    /// The end of the connection, without an answer; over HTTP/2 the stream is refused.
    #[must_use]
    pub fn vanish() -> Self {
        Self::of(0, Body::Vanish)
    }

    /// A status over HTTP/2 before the request's body was read, of which nothing more is taken.
    #[must_use]
    pub fn early(status: u16) -> Self {
        Self::of(status, Body::Early)
    }

    /// Nothing, for as long as the connection lasts; the request's body is not read either.
    #[must_use]
    pub fn hang() -> Self {
        Self::of(0, Body::Hang)
    }

    /// Whatever `compute` makes of the whole request.
    #[must_use]
    pub fn computed<F>(compute: impl Fn(Request) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Self> + Send + 'static,
    {
        Self::of(0, Body::Computed(Arc::new(move |request| Box::pin(compute(request)))))
    }

    /// Adds a header field.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.lines.push(format!("{name}: {value}"));
        self
    }

    /// Sets the status.
    #[must_use]
    pub const fn with_status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Adds a trailer field to a chunked answer.
    #[must_use]
    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        self.trailers.push(format!("{name}: {value}"));
        self
    }

    /// Sends an interim answer first, such as `103 Early Hints`, with header lines. It goes out before the request's
    /// body is read.
    #[must_use]
    pub fn interim(mut self, status: &str, lines: &[&str]) -> Self {
        let lines = lines.iter().map(|line| format!("{line}\r\n")).collect::<String>();
        self.interim.push(format!("HTTP/1.1 {status}\r\n{lines}\r\n"));
        self
    }

    /// Holds the answer back until the gate opens.
    #[must_use]
    pub fn after(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// The bytes of the final head, with the framing that the body asks for.
    pub(super) fn head(&self, method: &str) -> Vec<u8> {
        let mut text = format!("HTTP/1.1 {} Scripted\r\n", self.status);
        self.lines.iter().for_each(|line| text += &format!("{line}\r\n"));
        match &self.body {
            Body::Sized(body) if self.status != 204 && self.status != 304 && method != "CONNECT" => {
                text += &format!("Content-Length: {}\r\n", body.len());
            }
            Body::Flood(length, _) => text += &format!("Content-Length: {length}\r\n"),
            Body::Chunked(_) | Body::Events(_) | Body::Echo => text += "Transfer-Encoding: chunked\r\n",
            _ => {}
        }
        (text + "\r\n").into_bytes()
    }

    /// The whole answer as a server would put it on the wire at once; only for bodies known beforehand.
    pub(super) fn whole(&self, method: &str) -> Vec<u8> {
        let mut bytes = self.head(method);
        match &self.body {
            Body::Sized(body) if method != "HEAD" => bytes.extend_from_slice(body),
            Body::Chunked(pieces) if method != "HEAD" => {
                pieces.iter().for_each(|piece| bytes.extend(chunk(piece)));
                bytes.extend(last_chunk(&self.trailers));
            }
            _ => {}
        }
        bytes
    }
}

/// Feeds an event stream.
#[derive(Debug)]
pub struct EventSource(mpsc::Sender<Vec<u8>>);

impl EventSource {
    /// Sends one event with `data`.
    pub async fn send(&self, data: &str) {
        self.0.send(format!("data: {data}\n\n").into_bytes()).await.expect("the stream is still open");
    }

    /// Waits until nobody reads the stream any more.
    pub async fn abandoned(&self) {
        crate::wait::within("the event stream to be closed", self.0.closed()).await;
    }
}

/// Holds answers back until it is opened.
#[derive(Clone, Debug)]
pub struct Gate(watch::Sender<bool>);

impl Default for Gate {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Gate {
    /// Lets everyone pass, now and later.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    pub(super) async fn pass(&self) {
        let mut opened = self.0.subscribe();
        opened.wait_for(|open| *open).await.expect("the gate holds its own sender");
    }
}
