//! A connection to upstream that is no longer HTTP.

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
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

/// What a connection of HTTP/1.1 runs over.
#[derive(Debug)]
pub(super) enum Io {
    /// TCP.
    Plain(TcpStream),
    /// TLS.
    Secured(Box<TokioIo<Secured>>),
}

impl Io {
    /// The socket under it.
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Secured(secured) => match secured.inner() {
                MaybeHttpsStream::Http(io) => io.inner(),
                MaybeHttpsStream::Https(tls) => tls.inner().get_ref().0.inner().inner(),
            },
        }
    }
}

impl Raw {
    /// A connection from which `front` was read already.
    pub(super) const fn new(io: Io, front: Bytes) -> Self {
        Self { front, io }
    }

    /// The address at its other end.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        self.io.socket().peer_addr().ok().map(|address| address.ip())
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
        match $self.get_mut() {
            Io::Plain($io) => $call,
            Io::Secured($io) => $call,
        }
    };
}

impl AsyncRead for Io {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self, io => Pin::new(io).poll_read(cx, buf))
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, io => Pin::new(io).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, io => Pin::new(io).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, io => Pin::new(io).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, io => Pin::new(io).poll_shutdown(cx))
    }
}

impl AsyncRead for Raw {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.front.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buf);
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
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
