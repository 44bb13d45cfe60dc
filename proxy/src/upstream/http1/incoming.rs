//! The body of an answer, read from its connection, which goes back to the pool behind it.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::head::Framing;
use super::upload::{Broken, Upload};
use super::{Connection, LONG_READ, Raw, Wait};
use crate::listener::http1::chunked::{Chunked, Step};
use crate::patience::Patience;

/// A body under way.
#[derive(Debug)]
pub(in super::super) struct Incoming {
    /// Gone behind the end of the body.
    connection: Option<Box<Connection>>,
    /// What is left of the request.
    upload: Option<Box<Upload>>,
    coding: Coding,
    /// Whether the connection can be used again.
    keep: bool,
    /// How much is read at once.
    read: usize,
}

#[derive(Debug)]
enum Coding {
    Length(u64),
    Chunked(Chunked),
    Close,
    Ended,
}

impl Incoming {
    /// The body that comes on `connection`, behind a head that was read from it.
    pub(super) fn new(connection: Box<Connection>, upload: Option<Box<Upload>>, framing: Framing, keep: bool) -> Self {
        let coding = match framing {
            Framing::Length(0) => Coding::Ended,
            Framing::Length(length) => Coding::Length(length),
            Framing::Chunked => Coding::Chunked(Chunked::new()),
            Framing::Close => Coding::Close,
        };
        Self { connection: Some(connection), upload, coding, keep, read: super::FIRST_READ }
    }

    /// The connection, where the head switched it to something else.
    pub(in super::super) fn take_raw(&mut self) -> Option<Raw> {
        let Connection { io, input, .. } = *self.connection.take()?;
        Some(Raw::new(io, input.freeze()))
    }

    pub(in super::super) const fn is_ended(&self) -> bool {
        matches!(self.coding, Coding::Ended)
    }

    pub(in super::super) fn size_hint(&self) -> SizeHint {
        match self.coding {
            Coding::Length(left) => SizeHint::with_exact(left),
            Coding::Ended => SizeHint::with_exact(0),
            Coding::Chunked(_) | Coding::Close => SizeHint::default(),
        }
    }

    /// Takes the next piece; the connection goes back with the last one.
    pub(in super::super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = ready!(self.poll_next(cx));
        match &frame {
            Ok(_) if self.is_ended() => self.release(),
            Ok(_) => {}
            Err(_) => {
                self.coding = Coding::Ended;
                self.connection = None;
            }
        }
        Poll::Ready(frame.transpose())
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Frame<Bytes>>>> {
        let Some(connection) = self.connection.as_deref_mut() else { return Poll::Ready(Ok(None)) };
        if let Some(upload) = &mut self.upload
            && let Poll::Ready(sent) = upload.poll(&mut connection.io, &mut connection.output, cx)
        {
            self.upload = None;
            match sent {
                Ok(()) => {}
                Err(Broken::Client(error)) => return Poll::Ready(Err(error)),
                Err(Broken::Server(error)) => {
                    tracing::debug!(%error, "upstream takes no more of a request");
                    self.keep = false;
                }
            }
        }
        loop {
            match &mut self.coding {
                Coding::Ended => return Poll::Ready(Ok(None)),
                Coding::Length(left) if !connection.input.is_empty() => {
                    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(connection.input.len());
                    *left -= length as u64;
                    if *left == 0 {
                        self.coding = Coding::Ended;
                    }
                    return Poll::Ready(Ok(Some(Frame::data(connection.input.split_to(length).freeze()))));
                }
                Coding::Close if !connection.input.is_empty() => {
                    return Poll::Ready(Ok(Some(Frame::data(connection.input.split().freeze()))));
                }
                Coding::Chunked(chunked) => match chunked.step(&mut connection.input).map_err(broken)? {
                    Step::Data(data) => return Poll::Ready(Ok(Some(Frame::data(data)))),
                    Step::End(trailers) => {
                        self.coding = Coding::Ended;
                        return Poll::Ready(Ok(trailers.map(Frame::trailers)));
                    }
                    Step::More => {}
                },
                Coding::Length(_) | Coding::Close => {}
            }
            let length = ready!(connection.poll_fill(self.read, cx))?;
            if length == 0 {
                if !matches!(self.coding, Coding::Close) {
                    return Poll::Ready(Err(broken("it ended early")));
                }
                self.coding = Coding::Ended;
                self.keep = false;
            }
            // Who has more to say than fits is read in larger pieces from then on.
            if length >= self.read {
                self.read = LONG_READ;
            }
        }
    }

    /// Gives the connection back, once the request is through. A server that has answered and reads no further keeps
    /// neither it nor the client's for longer than one that does not answer.
    pub(in super::super) fn release(&mut self) {
        let (Some(mut connection), upload) = (self.connection.take(), self.upload.take()) else { return };
        let Some(limit) = connection.patience.as_ref().map(Patience::limit).filter(|_| self.keep) else { return };
        let Some(mut upload) = upload else { return connection.put_back() };
        tokio::spawn(async move {
            let mut wait = Wait::new(limit, upload.progress());
            let sent = wait.wait(poll_fn(|cx| upload.poll(&mut connection.io, &mut connection.output, cx))).await;
            drop(upload);
            if matches!(sent, Some(Ok(()))) {
                connection.put_back();
            }
        });
    }
}

fn broken(detail: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, detail)
}
