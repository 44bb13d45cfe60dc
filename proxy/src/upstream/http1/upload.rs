//! A request on its way to the server: its head, and its body piece by piece.

use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use exeat_policy::Reason;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, header};
use http_body::{Body as _, Frame};
use tokio::io::AsyncWrite as _;

use super::super::failure::Failure;
use super::super::raw::Io;
use crate::listener::http1::RequestBody;
use crate::listener::http1::head::content_length;
use crate::listener::transit::Progress;

/// Data below this size is copied behind what waits, larger data goes out beside it.
const COPY_BELOW: usize = 4 * 1024;

/// What is left of a request. Nothing is read from the client before what was read has been written.
#[derive(Debug)]
pub(super) struct Upload {
    body: RequestBody,
    coding: Coding,
    /// Data that goes out behind what waits in the buffer.
    data: Bytes,
    /// What goes out behind the data.
    tail: &'static [u8],
    /// Whether something of the body was read.
    begun: bool,
    /// Whether something was written.
    written: bool,
    /// Whether something was written that may still wait for its TLS record to go out.
    unflushed: bool,
}

/// How the body is delimited.
#[derive(Clone, Copy, Debug)]
enum Coding {
    /// So many bytes are left.
    Length(u64),
    Chunked,
    /// All was read.
    Ended,
}

/// Why a request does not go on.
#[derive(Debug)]
pub(super) enum Broken {
    /// The client's side broke off.
    Client(io::Error),
    /// The server takes no more.
    Server(io::Error),
}

impl Broken {
    pub(super) fn into_failure(self) -> Failure {
        match self {
            Self::Client(error) | Self::Server(error) => Failure::from_exchange(&error),
        }
    }
}

impl Upload {
    /// Writes the head of a request into `output`, in the framing that its fields give the body.
    ///
    /// # Errors
    /// The fields give it none.
    pub(super) fn new(parts: &Parts, body: RequestBody, output: &mut BytesMut) -> Result<Self, (Failure, RequestBody)> {
        let Parts { method, uri, headers, .. } = parts;
        let length = headers.get(header::CONTENT_LENGTH);
        let coding = match length.map(content_length) {
            _ if headers.contains_key(header::TRANSFER_ENCODING) => Coding::Chunked,
            Some(Some(length)) => Coding::Length(length),
            None if body.is_end_stream() => Coding::Ended,
            Some(None) | None => {
                let inside = "a request body without a framing";
                return Err((Failure::new(Reason::Internal, Reason::Internal.text(), inside), body));
            }
        };
        output.clear();
        output.reserve(uri.path().len() + 64 + headers.len() * 48);
        output.put_slice(method.as_str().as_bytes());
        output.put_u8(b' ');
        output.put_slice(uri.path_and_query().map_or("/", |path| path.as_str()).as_bytes());
        output.put_slice(b" HTTP/1.1\r\n");
        fields(headers, output);
        // A method that has a body says so where it is empty (RFC 9110 section 8.6).
        if matches!(coding, Coding::Ended) && matches!(*method, Method::POST | Method::PUT | Method::PATCH) {
            output.put_slice(b"content-length: 0\r\n");
        }
        output.put_slice(b"\r\n");
        let coding = if matches!(coding, Coding::Length(0)) { Coding::Ended } else { coding };
        Ok(Self { body, coding, data: Bytes::new(), tail: b"", begun: false, written: false, unflushed: false })
    }

    /// Writes what there is. Ready when all of the request is written.
    pub(super) fn poll(
        &mut self,
        io: &mut Io,
        output: &mut BytesMut,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Broken>> {
        loop {
            // What the client has sent by now goes out together with the head.
            let more = match self.has_room(output).then(|| self.poll_body(output, cx)) {
                Some(Poll::Ready(more)) => more.map_err(Broken::Client)?,
                Some(Poll::Pending) => false,
                None => !matches!(self.coding, Coding::Ended),
            };
            ready!(self.poll_write(io, output, cx)).map_err(Broken::Server)?;
            match self.coding {
                Coding::Ended => return Poll::Ready(Ok(())),
                Coding::Length(_) | Coding::Chunked if more => {}
                Coding::Length(_) | Coding::Chunked => return Poll::Pending,
            }
        }
    }

    /// How the body gets on.
    pub(super) fn progress(&mut self) -> Option<Arc<Progress>> {
        self.body.progress()
    }

    /// The body, if the request can be sent once more: nothing of it was read or written, or there is none and the
    /// request is safe (RFC 9110 section 9.2.2).
    pub(super) fn again(self, safe: bool) -> Option<RequestBody> {
        let repeatable = safe && matches!(self.body, RequestBody::Empty);
        (!self.begun && (repeatable || !self.written)).then_some(self.body)
    }

    /// Whether more of the body can be taken before something is written.
    fn has_room(&self, output: &BytesMut) -> bool {
        self.data.is_empty()
            && self.tail.is_empty()
            && output.len() < 2 * COPY_BELOW
            && !matches!(self.coding, Coding::Ended)
    }

    /// Takes the next piece of the body; tells whether there was one.
    fn poll_body(&mut self, output: &mut BytesMut, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        // A body that broke off is not one that can be sent again.
        self.begun = true;
        match frame.transpose()?.map(Frame::into_data) {
            Some(Ok(data)) => self.take(data, output)?,
            Some(Err(frame)) => self.end(output, frame.into_trailers().ok().as_ref())?,
            None => self.end(output, None)?,
        }
        Poll::Ready(Ok(true))
    }

    fn take(&mut self, data: Bytes, output: &mut BytesMut) -> io::Result<()> {
        match &mut self.coding {
            _ if data.is_empty() => return Ok(()),
            Coding::Length(left) => {
                let rest = left.checked_sub(data.len() as u64).ok_or_else(|| unfit("a body longer than its length"))?;
                *left = rest;
                if rest == 0 {
                    self.coding = Coding::Ended;
                }
            }
            Coding::Chunked => {
                // Writing to a BytesMut cannot fail: it grows.
                let _ = write!(output.writer(), "{:x}\r\n", data.len());
                self.tail = b"\r\n";
            }
            Coding::Ended => return Err(unfit("a body that goes on behind its end")),
        }
        if data.len() < COPY_BELOW {
            output.put_slice(&data);
            output.put_slice(std::mem::take(&mut self.tail));
        } else {
            self.data = data;
        }
        Ok(())
    }

    fn end(&mut self, output: &mut BytesMut, trailers: Option<&HeaderMap>) -> io::Result<()> {
        match self.coding {
            Coding::Length(_) => return Err(unfit("a body shorter than its length")),
            Coding::Chunked => {
                output.put_slice(b"0\r\n");
                trailers.into_iter().for_each(|trailers| fields(trailers, output));
                output.put_slice(b"\r\n");
            }
            Coding::Ended => {}
        }
        self.coding = Coding::Ended;
        Ok(())
    }

    fn poll_write(&mut self, io: &mut Io, output: &mut BytesMut, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut io = Pin::new(io);
        while !(output.is_empty() && self.data.is_empty() && self.tail.is_empty()) {
            // Most requests are a head alone.
            let mut written = if self.data.is_empty() && self.tail.is_empty() {
                ready!(io.as_mut().poll_write(cx, output))?
            } else {
                let slices = [IoSlice::new(output), IoSlice::new(&self.data), IoSlice::new(self.tail)];
                ready!(io.as_mut().poll_write_vectored(cx, &slices))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            (self.written, self.unflushed) = (true, true);
            for part in [output as &mut dyn Buf, &mut self.data, &mut self.tail] {
                let length = written.min(part.remaining());
                part.advance(length);
                written -= length;
            }
        }
        if self.unflushed {
            ready!(io.poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

fn fields(headers: &HeaderMap<HeaderValue>, output: &mut BytesMut) {
    for (name, value) in headers {
        output.put_slice(name.as_str().as_bytes());
        output.put_slice(b": ");
        output.put_slice(value.as_bytes());
        output.put_slice(b"\r\n");
    }
}

fn unfit(detail: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, detail)
}
