//! Relaying the bytes of a tunnel.
//!
//! Each side's end of stream is passed on by itself, so a half-closed connection stays half closed (RFC 9110 section
//! 9.3.6). A side that breaks off breaks the other off too: what was cut short must not look complete.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::Cause;
use super::direction::Direction;
use crate::quota::Quota;

/// One side of a tunnel.
pub(crate) trait Side: AsyncRead + AsyncWrite + Unpin {
    /// The TCP socket, where its bytes are the side's bytes as they are.
    fn socket(&self) -> Option<&TcpStream> {
        None
    }

    /// Has the side end as one that was cut short, where it can tell that from an end.
    fn break_off(&mut self) {}
}

impl Side for TcpStream {
    fn socket(&self) -> Option<&TcpStream> {
        Some(self)
    }

    fn break_off(&mut self) {
        // A socket that refuses the option closes as if it had ended.
        let _ = self.set_zero_linger();
    }
}

/// What bounds a tunnel in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// For a tunnel in which nothing moves.
    pub(crate) idle: Duration,
    /// For a tunnel as a whole; none for no limit.
    pub(crate) lifetime: Option<Duration>,
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
    /// Judges the first bytes: all there are, those of the last time among them.
    fn check(&mut self, first: &[u8]) -> Option<Result<(), Cause>>;

    /// Whether upstream's bytes wait for the verdict.
    fn holds_upstream(&self) -> bool;
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
    A: Side,
    B: Side,
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
            match self.up.poll(self.client, self.upstream, self.down.done, moved, cx) {
                Poll::Ready(Err(_)) => return Poll::Ready(Cause::Error),
                other => other.map(|_| ()),
            }
        };
        if holds {
            return Poll::Pending;
        }
        match self.down.poll(self.upstream, self.client, self.up.done, moved, cx) {
            Poll::Ready(Err(_)) => Poll::Ready(Cause::Error),
            Poll::Ready(Ok(())) if up.is_ready() => Poll::Ready(Cause::Closed),
            _ => Poll::Pending,
        }
    }

    /// Reads from the client until its first bytes can be judged.
    fn poll_check(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        let Some(check) = &mut self.check else { return Poll::Ready(Ok(())) };
        loop {
            if !self.up.pending.is_empty()
                && let Some(verdict) = check.check(&self.up.pending)
            {
                return Poll::Ready(verdict);
            }
            let mut piece = [0; 2048];
            let mut buffer = ReadBuf::new(&mut piece);
            match ready!(Pin::new(&mut *self.client).poll_read(cx, &mut buffer)) {
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
/// refused, a bound was reached, `quota` is used up, or `stop` says so. `first` was read from the client already.
pub(crate) async fn relay<A, B, C>(
    client: &mut A,
    upstream: &mut B,
    first: BytesMut,
    check: Option<C>,
    bounds: Bounds,
    quota: Option<&Quota>,
    stop: impl Future<Output = Cause>,
) -> Outcome
where
    A: Side,
    B: Side,
    C: Check,
{
    let pending = if first.is_empty() {
        // What was read ahead is most often nothing, in a buffer that would stay for as long as the client is silent.
        drop(first);
        BytesMut::new()
    } else {
        first
    };
    let mut relay = Relay { client, upstream, up: Direction::behind(pending), down: Direction::default(), check };
    let mut stop = pin!(stop);
    let mut active = Instant::now();
    let end = bounds.lifetime.map(|lifetime| active + lifetime);
    let deadline = move |active: Instant| {
        let idle = active + bounds.idle;
        end.map_or(idle, |end| end.min(idle))
    };
    let mut timer = pin!(sleep_until(deadline(active)));
    let mut spent = 0;
    let cause = poll_fn(|cx| {
        let mut moved = false;
        let polled = relay.poll(&mut moved, cx);
        if let Some(quota) = quota {
            let bytes = relay.up.bytes + relay.down.bytes;
            let within = bytes == spent || quota.spend(bytes - spent);
            spent = bytes;
            if !within && polled.is_pending() {
                return Poll::Ready(Cause::Quota);
            }
        }
        if let Poll::Ready(cause) = polled {
            return Poll::Ready(cause);
        }
        if moved {
            active = Instant::now();
        }
        if let Poll::Ready(cause) = stop.as_mut().poll(cx) {
            return Poll::Ready(cause);
        }
        while timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if end.is_some_and(|end| end <= now) {
                return Poll::Ready(Cause::Lifetime);
            }
            let deadline = deadline(active);
            if deadline <= now {
                return Poll::Ready(Cause::Idle);
            }
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    })
    .await;
    if matches!(cause, Cause::Error | Cause::Quota) {
        relay.client.break_off();
        relay.upstream.break_off();
    }
    Outcome { up: relay.up.bytes, down: relay.down.bytes, cause }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::metrics::Metrics;
    use crate::quota::QuotaLimits;

    impl Side for tokio::io::DuplexStream {}

    const BOUNDS: Bounds = Bounds { idle: Duration::from_secs(60), lifetime: None };

    struct Hello(bool);

    impl Check for Hello {
        fn check(&mut self, first: &[u8]) -> Option<Result<(), Cause>> {
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
        bounds: Bounds,
        script: impl AsyncFnOnce(&mut tokio::io::DuplexStream, &mut tokio::io::DuplexStream),
    ) -> Outcome {
        let (mut client, mut client_far) = duplex(64);
        let (mut upstream, mut upstream_far) = duplex(64);
        let relay = relay(&mut client, &mut upstream, BytesMut::new(), check, bounds, None, pending());
        let (outcome, ()) = tokio::join!(relay, script(&mut client_far, &mut upstream_far));
        outcome
    }

    #[tokio::test]
    async fn each_side_ends_by_itself() {
        let outcome = run(None, BOUNDS, async |client, upstream| {
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
        let outcome = run(Some(Hello(false)), BOUNDS, async |client, upstream| {
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
        let outcome = run(Some(Hello(true)), BOUNDS, async |client, upstream| {
            upstream.write_all(b"held").await.unwrap();
            client.write_all(b"hullo").await.unwrap();
        })
        .await;
        assert_eq!(outcome, Outcome { up: 0, down: 0, cause: Cause::SniMismatch });
    }

    #[tokio::test]
    async fn a_tunnel_ends_where_its_session_has_used_up_its_bytes() {
        let limits = QuotaLimits { bytes: Some(100), ..QuotaLimits::default() };
        let quota = Quota::new(limits, Metrics::new().unwrap(), std::time::Instant::now());
        let (mut client, mut client_far) = duplex(64);
        let (mut upstream, mut upstream_far) = duplex(64);
        let relay = relay(&mut client, &mut upstream, BytesMut::new(), None::<Hello>, BOUNDS, Some(&quota), pending());
        let script = async {
            // The far end goes away when the limit is reached, so not all of it is taken.
            while client_far.write_all(&[7; 10]).await.is_ok() && upstream_far.read_exact(&mut [0; 10]).await.is_ok() {}
        };
        let mut script = pin!(script);
        let outcome = tokio::select! {
            outcome = relay => outcome,
            () = &mut script => panic!("nothing ends but the relay"),
        };
        assert_eq!(outcome.cause, Cause::Quota);
        assert!(outcome.up > 100 && outcome.up <= 100 + 64, "{outcome:?}");
        assert_eq!(quota.used().1, outcome.up);
    }

    #[tokio::test(start_paused = true)]
    async fn only_silence_counts_as_idle() {
        let outcome = run(None, BOUNDS, async |client, upstream| {
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_secs(50)).await;
                client.write_all(b".").await.unwrap();
                upstream.read_u8().await.unwrap();
            }
        })
        .await;
        assert_eq!(outcome, Outcome { up: 10, down: 0, cause: Cause::Idle });
    }

    #[tokio::test(start_paused = true)]
    async fn a_lifetime_ends_a_tunnel_however_busy() {
        let bounds = Bounds { lifetime: Some(Duration::from_secs(120)), ..BOUNDS };
        let outcome = run(None, bounds, async |client, upstream| {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(35)).await;
                client.write_all(b".").await.unwrap();
                upstream.read_u8().await.unwrap();
            }
        })
        .await;
        assert_eq!(outcome, Outcome { up: 3, down: 0, cause: Cause::Lifetime });
    }
}
