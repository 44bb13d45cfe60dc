//! A client of HTTP/2, with its hands on streams and windows.

use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{RawConn, Response};
use crate::origin::h2::{lines, piece, send};
use crate::relay::Task;
use crate::wait::within;
use crate::wire::{Head, Io};

/// A connection of HTTP/2 by prior knowledge, or behind ALPN.
#[derive(Debug)]
pub struct H2Conn {
    sender: SendRequest<Bytes>,
    task: Task,
}

/// An exchange under way.
#[derive(Debug)]
pub struct H2Stream {
    /// The head of the answer.
    pub response: ResponseFuture,
    /// Sends the request's body.
    pub body: SendStream<Bytes>,
}

/// An answer whose body is still to be read.
#[derive(Debug)]
pub struct H2Opened {
    /// Status and fields.
    pub response: Response,
    /// The body.
    pub body: RecvStream,
}

impl H2Conn {
    /// Speaks HTTP/2 on a stream.
    pub(crate) async fn over(io: impl Io + 'static) -> Self {
        let mut builder = h2::client::Builder::new();
        // An answer that a test leaves unread holds its own stream and not the connection.
        builder.initial_connection_window_size(16 << 20);
        let (sender, connection) = within("an HTTP/2 handshake", builder.handshake(io)).await.unwrap();
        // How a connection ends shows in its streams.
        let task = Task::spawn(async move { drop(connection.await) });
        Self { sender, task }
    }

    /// Waits until the gateway has closed the connection.
    pub async fn ended(self) {
        let Self { sender, task } = self;
        task.ended().await;
        drop(sender);
    }

    /// Begins a request; with `end` it has no body.
    pub async fn open(&mut self, request: Request<()>, end: bool) -> H2Stream {
        self.sender = within("room for a stream", self.sender.clone().ready()).await.unwrap();
        let (response, body) = self.sender.send_request(request, end).unwrap();
        H2Stream { response, body }
    }

    /// Sends a request without a body and reads the whole answer.
    pub async fn send(&mut self, request: Request<()>) -> Response {
        self.open(request, true).await.whole().await.unwrap()
    }

    /// GETs a URL.
    pub async fn get(&mut self, url: &str) -> Response {
        self.send(Request::get(url).body(()).unwrap()).await
    }

    /// POSTs a body to a URL.
    pub async fn post(&mut self, url: &str, body: &[u8]) -> Response {
        let mut stream = self.open(Request::post(url).body(()).unwrap(), false).await;
        stream.send(body).await.unwrap();
        stream.finish();
        stream.whole().await.unwrap()
    }

    /// Opens a tunnel; gives the answer where it is refused.
    pub async fn connect(&mut self, authority: &str) -> Result<RawConn, Response> {
        let request = Request::connect(authority).body(()).unwrap();
        let stream = self.open(request, false).await;
        let (response, body) = within("the answer to a CONNECT", stream.response).await.unwrap().into_parts();
        if response.status != 200 {
            let mut opened = H2Opened { response: head(&response), body };
            opened.rest().await.unwrap();
            return Err(opened.response);
        }
        Ok(RawConn::over(Tunnel { send: stream.body, receive: body, read: Bytes::new() }))
    }
}

impl H2Stream {
    /// Sends a piece of the body.
    pub async fn send(&mut self, data: &[u8]) -> Result<(), h2::Error> {
        let unmetered = AtomicU64::new(0);
        let sent = send(&mut self.body, Bytes::copy_from_slice(data), &unmetered);
        within("the window for a body", sent).await
    }

    /// Ends the body.
    pub fn finish(&mut self) {
        self.body.send_data(Bytes::new(), true).unwrap();
    }

    /// Gives the exchange up.
    pub fn reset(&mut self) {
        self.body.send_reset(Reason::CANCEL);
    }

    /// Waits for the head of the answer.
    pub async fn opened(self) -> Result<H2Opened, h2::Error> {
        let (parts, body) = within("the head of an answer", self.response).await?.into_parts();
        Ok(H2Opened { response: head(&parts), body })
    }

    /// Reads the whole answer.
    pub async fn whole(self) -> Result<Response, h2::Error> {
        let mut opened = self.opened().await?;
        opened.rest().await?;
        Ok(opened.response)
    }
}

impl H2Opened {
    /// Reads the next piece of the body.
    pub async fn piece(&mut self) -> Option<Result<Bytes, h2::Error>> {
        within("the next piece of a body", piece(&mut self.body)).await
    }

    /// Reads the rest into the response.
    pub async fn rest(&mut self) -> Result<(), h2::Error> {
        while let Some(piece) = self.piece().await {
            self.response.body.extend_from_slice(&piece?);
        }
        let trailers = within("the trailers", self.body.trailers()).await?;
        self.response.trailers = trailers.as_ref().map(lines).unwrap_or_default();
        Ok(())
    }
}

impl RawConn {
    /// Sends one request over HTTP/2 whose header block is exactly `fields`, and reads the answer; of a tunnel that
    /// opens, its head.
    pub async fn forged_h2(
        self,
        fields: &[(Vec<u8>, Vec<u8>)],
        body: Option<&[u8]>,
        tunnel: bool,
    ) -> Result<Response, h2::Error> {
        let mut conn = H2Conn::over(Forged::new(self.into_io(), fields)).await;
        let is_head = fields.iter().any(|(name, value)| name == b":method" && value == b"HEAD");
        let method = if is_head { "HEAD" } else { "GET" };
        let request = Request::builder().method(method).uri("http://forged.test/").body(()).unwrap();
        let mut stream = conn.open(request, body.is_none() && !tunnel).await;
        if let Some(body) = body {
            // The answer may come before the body was taken, and instead of it.
            let _ = stream.send(body).await;
            let _ = stream.body.send_data(Bytes::new(), true);
        }
        let mut opened = stream.opened().await?;
        if !tunnel || opened.response.status != 200 {
            opened.rest().await?;
        }
        Ok(opened.response)
    }
}

/// Replaces the header block of the first request that is written.
struct Forged {
    inner: Box<dyn Io>,
    /// What was written and is no whole frame yet.
    written: Vec<u8>,
    /// What is on its way.
    out: Vec<u8>,
    preface: bool,
    block: Option<Vec<u8>>,
}

impl Forged {
    fn new(inner: Box<dyn Io>, fields: &[(Vec<u8>, Vec<u8>)]) -> Self {
        let mut block = Vec::new();
        for (name, value) in fields {
            // A literal field, never indexed, without Huffman coding (RFC 7541 section 6.2.2).
            block.push(0);
            for text in [name, value] {
                let mut rest = text.len();
                if rest < 127 {
                    block.push(u8::try_from(rest).unwrap());
                } else {
                    block.push(127);
                    rest -= 127;
                    while rest >= 128 {
                        block.push(u8::try_from(rest % 128 + 128).unwrap());
                        rest /= 128;
                    }
                    block.push(u8::try_from(rest).unwrap());
                }
                block.extend_from_slice(text);
            }
        }
        Self { inner, written: Vec::new(), out: Vec::new(), preface: false, block: Some(block) }
    }

    fn forge(&mut self) {
        if !self.preface && self.written.len() >= 24 {
            self.out.extend(self.written.drain(..24));
            self.preface = true;
        }
        while self.preface && self.written.len() >= 9 {
            let length = u32::from_be_bytes([0, self.written[0], self.written[1], self.written[2]]);
            let length = 9 + usize::try_from(length).unwrap();
            if self.written.len() < length {
                return;
            }
            let mut frame: Vec<u8> = self.written.drain(..length).collect();
            if frame[3] == 1
                && let Some(block) = self.block.take()
            {
                frame.truncate(9);
                frame[..3].copy_from_slice(&u32::try_from(block.len()).unwrap().to_be_bytes()[1..]);
                frame.extend(block);
            }
            self.out.extend(frame);
        }
    }

    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.out))?;
            self.out.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Forged {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Forged {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_out(cx))?;
        self.written.extend_from_slice(buf);
        self.forge();
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_out(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_out(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

fn head(parts: &http::response::Parts) -> Response {
    let start = format!("HTTP/2 {}", parts.status.as_u16());
    let head = Head { start, lines: lines(&parts.headers), raw: Vec::new() };
    Response { status: parts.status.as_u16(), head, ..Response::default() }
}

/// The bytes of a CONNECT stream.
struct Tunnel {
    send: SendStream<Bytes>,
    receive: RecvStream,
    read: Bytes,
}

fn broken(error: h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}

impl AsyncRead for Tunnel {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.read.is_empty() {
            match ready!(self.receive.poll_data(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(data) => self.read = data.map_err(broken)?,
            }
        }
        let length = self.read.len().min(buf.remaining());
        buf.put_slice(&self.read[..length]);
        self.read.advance(length);
        self.receive.flow_control().release_capacity(length).unwrap();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.send.reserve_capacity(buf.len());
        let granted = match ready!(self.send.poll_capacity(cx)) {
            None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Some(granted) => granted.map_err(broken)?.min(buf.len()),
        };
        self.send.send_data(Bytes::copy_from_slice(&buf[..granted]), false).map_err(broken)?;
        Poll::Ready(Ok(granted))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.send.send_data(Bytes::new(), true).map_err(broken))
    }
}
