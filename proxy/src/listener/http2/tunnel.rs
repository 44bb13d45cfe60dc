//! The bytes of a tunnel over a stream: what CONNECT makes of it (RFC 9113 section 8.5).
//!
//! The end of either direction is END_STREAM and nothing else. A stream that the client resets, for whatever reason,
//! has broken off, and so has one whose connection is over: what was cut short must not look complete on the other
//! side. Where the other side breaks off the stream is reset with CONNECT_ERROR.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use h2::{RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::Busy;
use super::body::poll_capacity;

/// The most that is written at once.
const PIECE: usize = 64 * 1024;

/// A stream that carries bytes.
#[derive(Debug)]
pub(crate) struct Tunnel {
    incoming: RecvStream,
    /// What was received and not read yet. Its window is given back when it is.
    received: Bytes,
    outgoing: SendStream<Bytes>,
    ended: bool,
    _busy: Busy,
}

impl Tunnel {
    pub(super) const fn new(incoming: RecvStream, outgoing: SendStream<Bytes>, busy: Busy) -> Self {
        Self { incoming, received: Bytes::new(), outgoing, ended: false, _busy: busy }
    }

    /// Ends the stream as one whose other side has broken off.
    pub(crate) fn break_off(&mut self) {
        self.reset(h2::Reason::CONNECT_ERROR);
    }

    fn reset(&mut self, reason: h2::Reason) {
        self.ended = true;
        self.outgoing.send_reset(reason);
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        // The gateway closes it: neither side has.
        if !self.ended {
            self.reset(h2::Reason::CANCEL);
        }
    }
}

fn broken(error: h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error)
}

impl AsyncRead for Tunnel {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.received.is_empty() {
            match ready!(self.incoming.poll_data(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(data) => self.received = data.map_err(broken)?,
            }
        }
        let length = self.received.len().min(buf.remaining());
        buf.put_slice(self.received.get(..length).unwrap_or_default());
        self.received.advance(length);
        // Fails only where more is given back than was received.
        let _ = self.incoming.flow_control().release_capacity(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.outgoing.reserve_capacity(buf.len().min(PIECE));
        let granted = ready!(poll_capacity(&mut self.outgoing, cx)).map_err(broken)?;
        let data = Bytes::copy_from_slice(buf.get(..granted).unwrap_or(buf));
        let length = data.len();
        self.outgoing.send_data(data, false).map_err(broken)?;
        Poll::Ready(Ok(length))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.ended {
            self.ended = true;
            self.outgoing.send_data(Bytes::new(), true).map_err(broken)?;
        }
        Poll::Ready(Ok(()))
    }
}
