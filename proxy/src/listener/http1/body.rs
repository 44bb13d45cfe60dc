//! Bodies on their way through: a request's from the client, a response's from upstream.
//!
//! Neither is ever held as a whole. The body of an HTTP/1.1 request owns the reading half of the client's connection while it lasts and
//! hands it back when it ends, so that reading from the client waits for upstream to take what was read: backpressure
//! with no queue between.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderName;
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncReadExt, ReadHalf};
use tokio::sync::oneshot;

use super::chunked::{Chunked, Step};
use super::head::Framing;
use crate::gate::ReviewedBody;
use crate::listener::held::Held;
use crate::listener::http2::Inbound;
use crate::listener::stream::Stream;
use crate::listener::transit::{BodyFault, Progress, Transit};
use crate::quota::Meter;
use crate::redact::Redacted;
use crate::scratch;
use crate::upstream::{BodyError, UpstreamBody};

/// How much is read from a client at once while a body is under way.
const READ_SIZE: usize = 64 * 1024;

/// The reading half of a client's connection with what was read ahead.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) io: ReadHalf<Stream>,
    pub(crate) buffer: BytesMut,
}

impl Reader {
    /// Reads some bytes more; 0 is the end of the stream.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn fill(&mut self, size: usize) -> io::Result<usize> {
        poll_fn(|cx| scratch::poll_read(&mut self.io, &mut self.buffer, size, cx)).await
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.buffer.reserve(READ_SIZE);
        pin!(self.io.read_buf(&mut self.buffer)).poll(cx)
    }
}

/// The body of a request, in the one shape that upstream connections take.
#[derive(Debug)]
pub(crate) enum RequestBody {
    /// No body.
    Empty,
    /// A body read from an HTTP/1.1 client.
    Client(Box<ClientBody>),
    /// A body of which the beginning was read already.
    Held(Box<Held<RequestBody>>),
    /// A body that comes over a stream of HTTP/2.
    Http2(Box<Inbound>),
}

impl RequestBody {
    fn transit(&mut self) -> Option<&mut Transit> {
        match self {
            Self::Empty => None,
            Self::Client(body) => Some(&mut body.transit),
            Self::Held(body) => body.rest().and_then(Self::transit),
            Self::Http2(body) => Some(body.transit()),
        }
    }

    /// Has the body's bytes counted as they go by.
    pub(crate) fn count_into(&mut self, meter: Meter) {
        if let Self::Held(body) = self {
            // What was read already is small; what comes behind it is looked at as it comes.
            meter.count(body.read().len());
        }
        if let Some(transit) = self.transit() {
            transit.meter = Some(meter);
        }
    }

    /// How the body gets on, to be looked at while it is under way.
    pub(crate) fn progress(&mut self) -> Option<Arc<Progress>> {
        self.transit().map(|transit| Arc::clone(&transit.progress))
    }

    /// Drops trailer fields that an upstream could take for one of `names`, which the gateway has set itself.
    pub(crate) fn withhold(&mut self, names: &[HeaderName]) {
        if let Some(transit) = self.transit() {
            transit.withheld = names.to_vec();
        }
    }
}

/// A body that reads from the client's connection.
#[derive(Debug)]
pub(crate) struct ClientBody {
    reader: Option<Reader>,
    decoder: Decoder,
    back: Option<oneshot::Sender<Rest>>,
    transit: Transit,
}

/// What comes back of a lent reader.
#[derive(Debug)]
pub(crate) struct Rest {
    /// The reader.
    pub(crate) reader: Reader,
    /// Where the body was given up before its end, how many of its bytes are still to come; `u64::MAX` if unknown.
    pub(crate) unread: Option<u64>,
}

#[derive(Debug)]
enum Decoder {
    Length(u64),
    Chunked(Chunked),
}

impl ClientBody {
    /// A body of `framing`, and the receiver that gets the reader back once the body was read to its end or given up.
    /// A stream that failed or ended early gives nothing back. Without a body the reader stays where it is.
    ///
    /// A client that sends nothing for `patience` while its body is waited for has given up.
    pub(crate) fn lend(
        reader: Reader,
        framing: Framing,
        patience: Duration,
    ) -> Result<(RequestBody, oneshot::Receiver<Rest>), Reader> {
        let decoder = match framing {
            Framing::None => return Err(reader),
            Framing::Length(length) => Decoder::Length(length),
            Framing::Chunked => Decoder::Chunked(Chunked::new()),
        };
        let (back, receiver) = oneshot::channel();
        let body = Self { reader: Some(reader), decoder, back: Some(back), transit: Transit::new(patience) };
        Ok((RequestBody::Client(Box::new(body)), receiver))
    }

    /// Ends the body as one that the client broke. The reader goes back, so that the client can be told.
    fn fault(&mut self, fault: BodyFault) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.give_back(Some(u64::MAX));
        Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::InvalidData, fault))))
    }

    fn give_back(&mut self, unread: Option<u64>) {
        self.transit.ended();
        if let (Some(reader), Some(back)) = (self.reader.take(), self.back.take()) {
            // The receiver is gone when the connection is; then the reader goes too.
            drop(back.send(Rest { reader, unread }));
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            let Some(reader) = self.reader.as_mut() else { return Poll::Ready(None) };
            match &mut self.decoder {
                Decoder::Length(left) => {
                    if !reader.buffer.is_empty() {
                        let length = usize::try_from(*left).unwrap_or(usize::MAX).min(reader.buffer.len());
                        let data = reader.buffer.split_to(length).freeze();
                        *left -= length as u64;
                        if *left == 0 {
                            self.give_back(None);
                        }
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                }
                Decoder::Chunked(chunked) => match chunked.step(&mut reader.buffer) {
                    Ok(Step::Data(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                    Ok(Step::End(trailers)) => {
                        self.give_back(None);
                        return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
                    }
                    Ok(Step::More) => {}
                    Err(detail) => return self.fault(BodyFault(detail)),
                },
            }
            let filled = reader.poll_fill(cx);
            let filled = match ready!(self.transit.arrived(filled, cx)) {
                Ok(filled) => filled,
                Err(fault) => return self.fault(fault),
            };
            match filled {
                Ok(0) => {
                    self.reader = None;
                    return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
                }
                Ok(_) => {}
                Err(error) => {
                    self.reader = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

impl Drop for ClientBody {
    fn drop(&mut self) {
        self.give_back(Some(match self.decoder {
            Decoder::Length(left) => left,
            Decoder::Chunked(_) => u64::MAX,
        }));
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Client(body) => {
                let mut frame = ready!(body.poll(cx));
                if let Some(Ok(frame)) = &mut frame
                    && let Err(fault) = body.transit.pass(frame)
                {
                    return body.fault(fault);
                }
                Poll::Ready(frame)
            }
            Self::Held(body) => Pin::new(&mut **body).poll_frame(cx),
            Self::Http2(body) => body.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Client(body) => body.reader.is_none(),
            Self::Held(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Client(body) => match body.decoder {
                Decoder::Length(left) => SizeHint::with_exact(left),
                Decoder::Chunked(_) => SizeHint::default(),
            },
            Self::Held(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
        }
    }
}

/// The body of a response to a client.
#[derive(Debug)]
pub(crate) enum ResponseBody {
    /// No body.
    Empty,
    /// The gateway's own answer.
    Full(Bytes),
    /// An answer that streams from upstream.
    Upstream(Box<UpstreamBody>),
    /// One that is searched for credentials on its way.
    Redacted(Box<Redacted<UpstreamBody>>),
    /// An answer of an MCP server, of which something was read already or is changed on its way.
    Reviewed(Box<ReviewedBody>),
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        match this {
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *this = Self::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Self::Upstream(body) => Pin::new(&mut **body).poll_frame(cx),
            Self::Redacted(body) => Pin::new(&mut **body).poll_frame(cx),
            Self::Reviewed(body) => Pin::new(&mut **body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(bytes) => bytes.is_empty(),
            Self::Upstream(body) => body.is_end_stream(),
            Self::Redacted(body) => body.is_end_stream(),
            Self::Reviewed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Upstream(body) => body.size_hint(),
            Self::Redacted(body) => body.size_hint(),
            Self::Reviewed(body) => body.size_hint(),
        }
    }
}
