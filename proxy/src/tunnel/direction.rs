//! One direction of a tunnel.
//!
//! A direction holds no buffer while nothing flows: bytes are read into one buffer that all tunnels of a thread share
//! and written on at once; only what the other side did not take is kept. Between two TCP sockets a direction that has
//! moved a good deal is spliced from there on, which copies nothing; a short tunnel ends before that pays.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{Interest, ReadBuf};
use tokio::net::TcpStream;

use super::relay::Side;
use super::splice::{self, Pipe};
use crate::scratch;

/// From how many bytes on a direction is spliced.
const SPLICE_AFTER: u64 = 64 * 1024;
/// How much a direction moves, in bytes, before other tasks get their turn.
const TURN: u64 = 1024 * 1024;

/// The bytes on their way from one side to the other.
#[derive(Debug, Default)]
pub(super) struct Direction {
    /// What was read and not taken by the other side yet.
    pub(super) pending: BytesMut,
    /// How many bytes the other side has taken.
    pub(super) bytes: u64,
    /// Whether the source has ended.
    pub(super) ended: bool,
    /// Holds what was spliced and not taken yet.
    pipe: Option<Pipe>,
    copies: bool,
    unflushed: bool,
    /// Whether it is over.
    pub(super) done: bool,
}

impl Direction {
    /// A direction whose first bytes were read already.
    pub(super) fn behind(pending: BytesMut) -> Self {
        Self { pending, ..Self::default() }
    }

    /// Moves bytes until nothing more can be moved now. Ready when the direction is over. Where it is the `last` one, both
    /// sides are closed then.
    pub(super) fn poll(
        &mut self,
        from: &mut impl Side,
        to: &mut impl Side,
        last: bool,
        moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let turn_ends = self.bytes.saturating_add(TURN);
        loop {
            if self.bytes >= turn_ends {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            while !self.pending.is_empty() {
                let written = ready!(Pin::new(&mut *to).poll_write(cx, &self.pending))?;
                self.wrote(written, moved)?;
                self.pending.advance(written);
            }
            self.pending = BytesMut::new();
            if self.ended {
                // A socket that is closed says by itself that nothing more comes.
                let is_said = self.done || (last && to.socket().is_some());
                if !is_said {
                    ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                }
                self.done = true;
                return Poll::Ready(Ok(()));
            }
            let spliced = match (from.socket(), to.socket()) {
                (Some(from), Some(to)) if !self.copies && self.bytes >= SPLICE_AFTER => Some((from, to)),
                _ => None,
            };
            match spliced {
                Some((from, to)) => ready!(self.poll_splice(from, to, moved, cx))?,
                None => match self.poll_copy(from, to, moved, cx) {
                    Poll::Ready(copied) => copied?,
                    Poll::Pending => {
                        if self.unflushed {
                            ready!(Pin::new(&mut *to).poll_flush(cx))?;
                            self.unflushed = false;
                        }
                        return Poll::Pending;
                    }
                },
            }
        }
    }

    /// Copies one piece.
    fn poll_copy(
        &mut self,
        from: &mut impl Side,
        to: &mut impl Side,
        moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        scratch::lend(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(from).poll_read(cx, &mut buffer))?;
            let data = buffer.filled();
            if data.is_empty() {
                self.ended = true;
                return Poll::Ready(Ok(()));
            }
            let written = match Pin::new(to).poll_write(cx, data) {
                Poll::Ready(written) => {
                    let written = written?;
                    self.wrote(written, moved)?;
                    written
                }
                Poll::Pending => 0,
            };
            self.pending.extend_from_slice(data.get(written..).unwrap_or_default());
            Poll::Ready(Ok(()))
        })
    }

    /// Splices one piece. A pipe is held only while something is in it.
    fn poll_splice(
        &mut self,
        from: &TcpStream,
        to: &TcpStream,
        moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut pipe = match self.pipe.take() {
            Some(pipe) => pipe,
            None => {
                ready!(from.poll_read_ready(cx))?;
                let Ok(pipe) = Pipe::take() else {
                    self.copies = true;
                    return Poll::Ready(Ok(()));
                };
                pipe
            }
        };
        let piece = self.poll_through(&mut pipe, from, to, moved, cx);
        if pipe.is_empty() {
            pipe.put_back();
        } else {
            self.pipe = Some(pipe);
        }
        piece
    }

    fn poll_through(
        &mut self,
        pipe: &mut Pipe,
        from: &TcpStream,
        to: &TcpStream,
        moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while pipe.is_empty() {
            ready!(from.poll_read_ready(cx))?;
            match from.try_io(Interest::READABLE, || pipe.fill(from)) {
                Ok(0) => {
                    self.ended = true;
                    return Poll::Ready(Ok(()));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if splice::is_impossible(&error) => {
                    self.copies = true;
                    return Poll::Ready(Ok(()));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        while !pipe.is_empty() {
            ready!(to.poll_write_ready(cx))?;
            match to.try_io(Interest::WRITABLE, || pipe.drain(to)) {
                Ok(written) => self.wrote(written, moved)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if splice::is_impossible(&error) => {
                    self.copies = true;
                    pipe.read_out(&mut self.pending)?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn wrote(&mut self, written: usize, moved: &mut bool) -> io::Result<()> {
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.bytes += written as u64;
        self.unflushed = true;
        *moved = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Both ends of a TCP connection.
    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        #[allow(clippy::disallowed_methods, reason = "a test's own listener")]
        let near = TcpStream::connect(address).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    /// Moves four mebibytes from one socket to another; gives the direction, and the most it moved in one turn.
    async fn move_much(mut direction: Direction) -> (Direction, u64) {
        let (mut client, mut from) = pair().await;
        let (mut to, mut upstream) = pair().await;
        let sent: Vec<u8> = (0_u32..1024 * 1024).flat_map(u32::to_le_bytes).collect();
        let mut longest = 0;
        let moving = poll_fn(|cx| {
            let before = direction.bytes;
            let polled = direction.poll(&mut from, &mut to, false, &mut false, cx);
            longest = longest.max(direction.bytes - before);
            polled
        });
        let writing = async {
            client.write_all(&sent).await.unwrap();
            client.shutdown().await.unwrap();
        };
        let reading = async {
            let mut received = Vec::new();
            upstream.read_to_end(&mut received).await.unwrap();
            received
        };
        let (moved, (), received) = tokio::join!(moving, writing, reading);
        moved.unwrap();
        assert!(sent == received, "other bytes arrived");
        assert_eq!(direction.bytes, sent.len() as u64);
        assert!(direction.pipe.is_none());
        (direction, longest)
    }

    #[tokio::test]
    async fn spliced_bytes_arrive_as_copied_ones_do() {
        for copies in [false, true] {
            let (direction, longest) = move_much(Direction { copies, ..Direction::default() }).await;
            assert_eq!(direction.copies, copies, "splicing is possible here");
            assert!(longest < TURN + 256 * 1024, "{longest} bytes in one turn");
        }
    }

    #[tokio::test]
    async fn a_pipe_is_held_only_while_something_is_in_it() {
        let (mut client, mut from) = pair().await;
        let (mut to, mut upstream) = pair().await;
        let mut direction = Direction { bytes: SPLICE_AFTER, ..Direction::default() };
        let piece = vec![7; 64 * 1024];
        let mut writing = pin!(async {
            // More than the buffers of both connections hold.
            for _ in 0..1024 {
                client.write_all(&piece).await.unwrap();
            }
            client.shutdown().await.unwrap();
        });
        poll_fn(|cx| {
            assert!(direction.poll(&mut from, &mut to, false, &mut false, cx).is_pending());
            assert!(writing.as_mut().poll(cx).is_pending());
            if direction.pipe.is_some() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let moving = poll_fn(|cx| direction.poll(&mut from, &mut to, false, &mut false, cx));
        let reading = async {
            let (mut buffer, mut received) = (vec![0; 64 * 1024], 0);
            while let Ok(read @ 1..) = upstream.read(&mut buffer).await {
                received += read;
            }
            received
        };
        let (moved, (), received) = tokio::join!(moving, writing, reading);
        moved.unwrap();
        assert_eq!(received, 1024 * piece.len());
        assert!(direction.pipe.is_none());
    }
}
