//! The body of an answer on its way from upstream.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http::{HeaderMap, header};
use http_body::{Body, Frame, SizeHint};

use super::http1::Incoming;
use super::raw::Raw;
use super::shared::{Place, Upload};
use crate::audit::Ending;
use crate::listener::http2::poll_received;
use crate::quota::Meter;

/// The body of an answer. When it has been read to its end its connection goes back to the pool.
#[derive(Debug)]
pub(crate) struct UpstreamBody {
    source: Source,
    peer: Option<SocketAddr>,
    meter: Option<Meter>,
    ending: Option<Box<Ending>>,
}

/// Where a body comes from.
#[derive(Debug)]
pub(super) enum Source {
    /// A connection of HTTP/1.1.
    Http1(Box<Incoming>),
    /// A stream of HTTP/2.
    Http2(Box<Streamed>),
}

/// A body over a stream.
#[derive(Debug)]
pub(super) struct Streamed {
    incoming: RecvStream,
    data_ended: bool,
    /// How many bytes are still to come, where that was said.
    length: Option<u64>,
    /// What is left of the request, which goes on until the answer is given up.
    upload: Option<Upload>,
    /// The stream's place on its connection; given back behind the body.
    place: Option<Place>,
}

impl Streamed {
    pub(super) fn new(incoming: RecvStream, headers: &HeaderMap, upload: Option<Upload>, place: Place) -> Self {
        // A length that is none was refused by the framing.
        let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        Self { incoming, data_ended: false, length, upload, place: Some(place) }
    }
}

/// How an answer broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    /// On a connection of HTTP/1.1.
    #[error("{0}")]
    Http1(#[from] io::Error),
    /// On a stream of HTTP/2.
    #[error("{0}")]
    Http2(#[from] h2::Error),
    /// The session may not have more.
    #[error("the session has used up its bytes")]
    Quota,
}

impl UpstreamBody {
    pub(super) const fn new(source: Source, peer: Option<SocketAddr>) -> Self {
        Self { source, peer, meter: None, ending: None }
    }

    /// The connection, where the head switched it to something else; HTTP/2 has no such answer.
    pub(crate) fn into_raw(mut self) -> Option<Raw> {
        match &mut self.source {
            Source::Http1(incoming) => incoming.take_raw(),
            Source::Http2(_) => None,
        }
    }

    /// Has the body's bytes counted as they go by.
    pub(crate) fn count_into(&mut self, meter: Meter) {
        self.meter = Some(meter);
    }

    /// Where its connection leads: to the server, or to the next proxy.
    pub(crate) const fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Has its end, and what was read until then, taken down.
    pub(crate) fn end_with(&mut self, ending: Option<Box<Ending>>) {
        self.ending = ending;
    }

    fn release(&mut self) {
        if let Some(ending) = &mut self.ending {
            ending.completed();
        }
        match &mut self.source {
            Source::Http1(incoming) => incoming.release(),
            Source::Http2(streamed) => {
                if let Some(upload) = streamed.upload.take() {
                    // The whole answer is there, and the request may still be read.
                    upload.detach();
                }
                streamed.place = None;
            }
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = match &mut self.source {
            Source::Http1(incoming) => ready!(incoming.poll_frame(cx)).map(|frame| frame.map_err(BodyError::from)),
            Source::Http2(streamed) => {
                let Streamed { incoming, data_ended, length, .. } = &mut **streamed;
                let frame = ready!(poll_received(incoming, data_ended, cx));
                if let (Some(left), Some(Ok(frame))) = (length, &frame) {
                    *left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len) as u64);
                }
                frame.map(|frame| frame.map_err(BodyError::from))
            }
        };
        if let Some(Ok(frame)) = &frame {
            let read = frame.data_ref().map_or(0, Bytes::len);
            if let Some(ending) = &mut self.ending {
                ending.down += read as u64;
            }
            if self.meter.as_ref().is_some_and(|meter| !meter.count(read)) {
                return Poll::Ready(Some(Err(BodyError::Quota)));
            }
        }
        match &frame {
            None => self.release(),
            Some(Ok(_)) if self.is_end_stream() => self.release(),
            Some(Ok(_) | Err(_)) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Http1(incoming) => incoming.is_ended(),
            Source::Http2(streamed) => streamed.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Http1(incoming) => incoming.size_hint(),
            Source::Http2(streamed) => streamed.length.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        if self.is_end_stream() {
            self.release();
        }
    }
}
