//! A connection to upstream that is no longer HTTP.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use hyper::upgrade::{Parts, Upgraded};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::shared::Io as Secured;
use crate::tunnel::relay::Side;

/// What is left of a connection when its protocol was switched: its bytes, and where they come from.
#[derive(Debug)]
pub(crate) struct Raw {
    /// What was read behind the answer that switched.
    front: Bytes,
    io: Io,
}

#[derive(Debug)]
enum Io {
    Plain(TcpStream),
    Secured(Box<TokioIo<Secured>>),
}

impl Raw {
    /// Takes a connection out of hyper's hands; none if it is not one that this module's parent has made.
    pub(crate) fn new(upgraded: Upgraded) -> Option<Self> {
        let upgraded = match upgraded.downcast::<TokioIo<TcpStream>>() {
            Ok(Parts { io, read_buf, .. }) => {
                return Some(Self { front: read_buf, io: Io::Plain(io.into_inner()) });
            }
            Err(upgraded) => upgraded,
        };
        let Parts { io, read_buf, .. } = upgraded.downcast::<Secured>().ok()?;
        Some(match io {
            MaybeHttpsStream::Http(io) => Self { front: read_buf, io: Io::Plain(io.into_inner()) },
            secured => Self { front: read_buf, io: Io::Secured(Box::new(TokioIo::new(secured))) },
        })
    }

    /// The address at its other end.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        let socket = match &self.io {
            Io::Plain(socket) => socket,
            Io::Secured(secured) => match secured.inner() {
                MaybeHttpsStream::Http(io) => io.inner(),
                MaybeHttpsStream::Https(tls) => tls.inner().get_ref().0.inner().inner(),
            },
        };
        socket.peer_addr().ok().map(|address| address.ip())
    }
}

impl Side for Raw {
    fn socket(&self) -> Option<&TcpStream> {
        match &self.io {
            Io::Plain(socket) if self.front.is_empty() => Some(socket),
            _ => None,
        }
    }
}

macro_rules! each {
    ($self:expr, $io:ident => $call:expr) => {
        match &mut $self.get_mut().io {
            Io::Plain($io) => $call,
            Io::Secured($io) => $call,
        }
    };
}

impl AsyncRead for Raw {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.front.is_empty() {
            return each!(self, io => Pin::new(io).poll_read(cx, buf));
        }
        let length = self.front.len().min(buf.remaining());
        buf.put_slice(self.front.get(..length).unwrap_or_default());
        self.front.advance(length);
        if self.front.is_empty() {
            self.front = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Raw {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, io => Pin::new(io).poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, io => Pin::new(io).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, io => Pin::new(io).poll_shutdown(cx))
    }
}
