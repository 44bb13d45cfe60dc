//! Relaying the bytes of a tunnel.
//!
//! A direction holds no buffer while nothing flows: bytes are read into one buffer that all tunnels of a thread share
//! and written on at once; only what the other side did not take is kept. Each side's end of stream is passed on by
//! itself, so a half-closed connection stays half closed (RFC 9110 section 9.3.6).

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::Cause;

const SCRATCH_SIZE: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_SIZE].into_boxed_slice());
}

/// What a tunnel moved and why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Bytes from the client to upstream.
    pub(crate) up: u64,
    /// Bytes from upstream to the client.
    pub(crate) down: u64,
    /// Why it ended.
    pub(crate) cause: Cause,
}

/// Looks at what a client has sent so far and says whether it may go on: none for "more is needed".
pub(crate) trait Check {
    /// Judges the first bytes.
    fn check(&self, first: &[u8]) -> Option<Result<(), Cause>>;

    /// Whether upstream's bytes wait for the verdict.
    fn holds_upstream(&self) -> bool;
}

/// One direction of a tunnel.
#[derive(Debug, Default)]
struct Direction {
    pending: BytesMut,
    bytes: u64,
    unflushed: bool,
    ended: bool,
    done: bool,
}

impl Direction {
    /// Moves bytes until nothing more can be moved now. Ready when the direction is over.
    fn poll(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        moved: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            while !self.pending.is_empty() {
                let written = std::task::ready!(Pin::new(&mut *to).poll_write(cx, &self.pending))?;
                self.wrote(written, moved)?;
                self.pending.advance(written);
            }
            self.pending = BytesMut::new();
            if self.ended {
                if !self.done {
                    std::task::ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                    self.done = true;
                }
                return Poll::Ready(Ok(()));
            }
            let read = SCRATCH.with_borrow_mut(|scratch| {
                let mut buffer = ReadBuf::new(scratch);
                std::task::ready!(Pin::new(&mut *from).poll_read(cx, &mut buffer))?;
                let data = buffer.filled();
                if data.is_empty() {
                    self.ended = true;
                    return Poll::Ready(io::Result::Ok(()));
                }
                let written = match Pin::new(&mut *to).poll_write(cx, data) {
                    Poll::Ready(written) => {
                        let written = written?;
                        self.wrote(written, moved)?;
                        written
                    }
                    Poll::Pending => 0,
                };
                self.pending.extend_from_slice(data.get(written..).unwrap_or_default());
                Poll::Ready(Ok(()))
            });
            match read {
                Poll::Ready(result) => result?,
                Poll::Pending => {
                    if self.unflushed {
                        std::task::ready!(Pin::new(&mut *to).poll_flush(cx))?;
                        self.unflushed = false;
                    }
                    return Poll::Pending;
                }
            }
        }
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

/// Both directions and the check of the client's first bytes.
struct Relay<'a, A, B, C> {
    client: &'a mut A,
    upstream: &'a mut B,
    up: Direction,
    down: Direction,
    check: Option<C>,
}

impl<A, B, C> Relay<'_, A, B, C>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
    C: Check,
{
    fn poll(&mut self, moved: &mut bool, cx: &mut Context<'_>) -> Poll<Cause> {
        if self.check.is_some() {
            match self.poll_check(cx) {
                Poll::Ready(Ok(())) => self.check = None,
                Poll::Ready(Err(cause)) => return Poll::Ready(cause),
                Poll::Pending => {}
            }
        }
        let holds = self.check.as_ref().is_some_and(C::holds_upstream);
        let up = if self.check.is_some() {
            Poll::Pending
        } else {
            match self.up.poll(self.client, self.upstream, moved, cx) {
                Poll::Ready(Err(_)) => return Poll::Ready(Cause::Error),
                other => other.map(|_| ()),
            }
        };
        if holds {
            return Poll::Pending;
        }
        match self.down.poll(self.upstream, self.client, moved, cx) {
            Poll::Ready(Err(_)) => Poll::Ready(Cause::Error),
            Poll::Ready(Ok(())) if up.is_ready() => Poll::Ready(Cause::Closed),
            _ => Poll::Pending,
        }
    }

    /// Reads from the client until its first bytes can be judged.
    fn poll_check(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        let Some(check) = &self.check else { return Poll::Ready(Ok(())) };
        loop {
            if !self.up.pending.is_empty()
                && let Some(verdict) = check.check(&self.up.pending)
            {
                return Poll::Ready(verdict);
            }
            let mut piece = [0; 2048];
            let mut buffer = ReadBuf::new(&mut piece);
            match std::task::ready!(Pin::new(&mut *self.client).poll_read(cx, &mut buffer)) {
                Ok(()) if buffer.filled().is_empty() => {
                    self.up.ended = true;
                    // Nothing was said, so there is nothing to judge: the end itself may pass.
                    let silent = self.up.pending.is_empty() && !check.holds_upstream();
                    return Poll::Ready(if silent { Ok(()) } else { Err(Cause::Closed) });
                }
                Ok(()) => self.up.pending.extend_from_slice(buffer.filled()),
                Err(_) => return Poll::Ready(Err(Cause::Error)),
            }
        }
    }
}

/// Relays between a client and upstream until both directions ended, one failed, the client's first bytes were
/// refused, nothing moved for `idle`, or `stop` says so. `first` was read from the client already.
pub(crate) async fn relay<A, B, C>(
    client: &mut A,
    upstream: &mut B,
    first: BytesMut,
    check: Option<C>,
    idle: Duration,
    stop: impl Future<Output = Cause>,
) -> Outcome
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
    C: Check,
{
    let mut relay = Relay {
        client,
        upstream,
        up: Direction { pending: first, ..Direction::default() },
        down: Direction::default(),
        check,
    };
    let mut stop = pin!(stop);
    let mut timer = pin!(tokio::time::sleep(idle));
    let mut active = Instant::now();
    let cause = poll_fn(|cx| {
        let mut moved = false;
        if let Poll::Ready(cause) = relay.poll(&mut moved, cx) {
            return Poll::Ready(cause);
        }
        if moved {
            active = Instant::now();
        }
        if let Poll::Ready(cause) = stop.as_mut().poll(cx) {
            return Poll::Ready(cause);
        }
        while timer.as_mut().poll(cx).is_ready() {
            let deadline = active + idle;
            if deadline <= Instant::now() {
                return Poll::Ready(Cause::Idle);
            }
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    })
    .await;
    Outcome { up: relay.up.bytes, down: relay.down.bytes, cause }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    struct Hello(bool);

    impl Check for Hello {
        fn check(&self, first: &[u8]) -> Option<Result<(), Cause>> {
            match first {
                b"hello" => Some(Ok(())),
                [b'h', ..] if first.len() < 5 => None,
                _ => Some(Err(Cause::SniMismatch)),
            }
        }

        fn holds_upstream(&self) -> bool {
            self.0
        }
    }

    async fn run(
        check: Option<Hello>,
        script: impl AsyncFnOnce(&mut tokio::io::DuplexStream, &mut tokio::io::DuplexStream),
    ) -> Outcome {
        let (mut client, mut client_far) = duplex(64);
        let (mut upstream, mut upstream_far) = duplex(64);
        let relay = relay(&mut client, &mut upstream, BytesMut::new(), check, Duration::from_secs(60), pending());
        let (outcome, ()) = tokio::join!(relay, script(&mut client_far, &mut upstream_far));
        outcome
    }

    #[tokio::test]
    async fn each_side_ends_by_itself() {
        let outcome = run(None, async |client, upstream| {
            client.write_all(b"question").await.unwrap();
            client.shutdown().await.unwrap();
            let mut question = String::new();
            upstream.read_to_string(&mut question).await.unwrap();
            assert_eq!(question, "question");
            upstream.write_all(b"the answer comes after the end of the question").await.unwrap();
            upstream.shutdown().await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer.len(), 46);
        })
        .await;
        assert_eq!(outcome, Outcome { up: 8, down: 46, cause: Cause::Closed });
    }

    #[tokio::test]
    async fn a_server_that_speaks_first_is_not_delayed() {
        let outcome = run(Some(Hello(false)), async |client, upstream| {
            upstream.write_all(b"220 ready").await.unwrap();
            let mut banner = [0; 9];
            client.read_exact(&mut banner).await.unwrap();
            for piece in ["he", "ll", "o"] {
                client.write_all(piece.as_bytes()).await.unwrap();
            }
            let mut hello = [0; 5];
            upstream.read_exact(&mut hello).await.unwrap();
            client.shutdown().await.unwrap();
            upstream.shutdown().await.unwrap();
        })
        .await;
        assert_eq!(outcome, Outcome { up: 5, down: 9, cause: Cause::Closed });
    }

    #[tokio::test]
    async fn refused_first_bytes_never_reach_upstream() {
        let outcome = run(Some(Hello(true)), async |client, upstream| {
            upstream.write_all(b"held").await.unwrap();
            client.write_all(b"hullo").await.unwrap();
        })
        .await;
        assert_eq!(outcome, Outcome { up: 0, down: 0, cause: Cause::SniMismatch });
    }

    #[tokio::test(start_paused = true)]
    async fn only_silence_counts_as_idle() {
        let outcome = run(None, async |client, upstream| {
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_secs(50)).await;
                client.write_all(b".").await.unwrap();
                upstream.read_u8().await.unwrap();
            }
        })
        .await;
        assert_eq!(outcome, Outcome { up: 10, down: 0, cause: Cause::Idle });
    }
}
