//! Answers that are ready at the same time go out together.
//!
//! The framing flushes after each answer, and each flush is a TLS record and a system call. Here a flush first lets the
//! tasks run that are ready: what they have to say for the same connection joins what waits.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much may wait, in bytes: what fits into one TLS record (RFC 8446 section 5.1).
const ROOM: usize = 16 * 1024;
/// The largest buffer that is kept for the next time.
const KEPT: usize = 4 * 1024;

/// A stream that holds small writes back until all who are ready have written.
#[derive(Debug)]
pub(super) struct Batched<T> {
    inner: T,
    /// What waits to be written.
    held: BytesMut,
    /// Whether the others have had their turn.
    waited: bool,
}

impl<T: AsyncWrite + Unpin> Batched<T> {
    /// Holds back what is written to `inner`.
    pub(super) fn new(inner: T) -> Self {
        Self { inner, held: BytesMut::new(), waited: false }
    }

    /// Writes what waits.
    fn poll_release(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_write(cx, &self.held))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.held.advance(written),
            }
        }
        if self.held.capacity() > KEPT {
            self.held = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Whether so many bytes more can wait; makes room for them if they could.
    fn poll_room(&mut self, length: usize, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.held.len() + length > ROOM {
            ready!(self.poll_release(cx))?;
        }
        Poll::Ready(Ok(length <= ROOM))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Batched<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Batched<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = bufs.iter().map(|buf| buf.len()).sum();
        if !ready!(self.poll_room(length, cx))? {
            return Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        }
        bufs.iter().for_each(|buf| self.held.extend_from_slice(buf));
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.held.is_empty() && !std::mem::replace(&mut self.waited, true) {
            // Behind all who are ready by now.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(self.poll_release(cx))?;
        self.waited = false;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_release(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// Takes what is written to it, and remembers how.
    #[derive(Debug, Default)]
    struct Sink {
        writes: Vec<usize>,
        flushes: usize,
    }

    impl AsyncWrite for Sink {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            self.writes.push(buf.len());
            Poll::Ready(Ok(buf.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.flushes += 1;
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn what_is_written_in_one_turn_goes_out_at_once() {
        let mut batched = Batched::new(Sink::default());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        for _ in 0..3 {
            batched.write_all(&[1; 100]).await.unwrap();
        }
        assert!(Pin::new(&mut batched).poll_flush(&mut cx).is_pending());
        batched.write_all(&[2; 100]).await.unwrap();
        assert!(batched.inner.writes.is_empty());
        assert!(Pin::new(&mut batched).poll_flush(&mut cx).is_ready());
        assert_eq!((&*batched.inner.writes, batched.inner.flushes), (&[400][..], 1));
        // There is nothing to wait for.
        assert!(Pin::new(&mut batched).poll_flush(&mut cx).is_ready());

        batched.write_all(&[3; ROOM]).await.unwrap();
        batched.write_all(&[4; 1]).await.unwrap();
        assert_eq!(batched.inner.writes, [400, ROOM]);
        batched.write_all(&vec![5; ROOM + 1]).await.unwrap();
        assert_eq!(batched.inner.writes, [400, ROOM, 1, ROOM + 1]);
        batched.write_all(&[6; 7]).await.unwrap();
        batched.shutdown().await.unwrap();
        assert_eq!(batched.inner.writes.last(), Some(&7));
        assert!(batched.held.capacity() <= KEPT);
    }

    #[tokio::test]
    async fn everything_arrives_in_its_order() {
        let (near, mut far) = duplex(1000);
        let sent: Vec<u8> = (0..200_000_u32).map(|number| (number % 251) as u8).collect();
        let expected = sent.clone();
        let writing = async move {
            let mut batched = Batched::new(near);
            let mut rest = &sent[..];
            for length in (1..).map(|step| step * 37 % 40_000 + 1) {
                let (piece, behind) = rest.split_at(length.min(rest.len()));
                batched.write_all(piece).await.unwrap();
                if length % 2 == 0 {
                    batched.flush().await.unwrap();
                }
                rest = behind;
                if rest.is_empty() {
                    break;
                }
            }
            batched.shutdown().await.unwrap();
        };
        let reading = async {
            let mut received = Vec::new();
            far.read_to_end(&mut received).await.unwrap();
            received
        };
        let ((), received) = tokio::join!(writing, reading);
        assert!(received == expected, "other bytes arrived");
    }
}
