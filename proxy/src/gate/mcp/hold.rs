//! Holding bodies, within bounds.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use tokio::time::timeout;

/// How much of a body is looked at to tell whether it may be a message.
const BEGINNING: usize = 4096;

/// What came of holding a body.
#[derive(Debug)]
pub(super) enum Hold<E> {
    /// All of it. Trailers are gone.
    Whole(Bytes),
    /// More than was to be held; what was read of it.
    TooLong(Bytes),
    /// It broke off; none where nothing came for too long.
    Failed(Option<E>),
}

/// Reads a body to its end, up to `most` bytes. Between two pieces of it up to `patience` may pass.
///
/// # Cancel safety
/// What was read is lost when the future is dropped.
pub(super) async fn hold<B>(body: &mut B, most: usize, patience: Duration) -> Hold<B::Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    read(body, most, patience, |_| false).await
}

/// Reads a body until it shows whether it may be a message.
pub(super) async fn beginning<B>(body: &mut B, patience: Duration) -> Hold<B::Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    let telling = |read: &[u8]| {
        String::from_utf8_lossy(read)
            .chars()
            .any(|it| !it.is_whitespace() && !it.is_control() && !"\u{feff}\u{fffd}".contains(it))
    };
    read(body, BEGINNING, patience, telling).await
}

async fn read<B>(body: &mut B, most: usize, patience: Duration, enough: impl Fn(&[u8]) -> bool) -> Hold<B::Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut read = BytesMut::new();
    while !body.is_end_stream() {
        let frame = match timeout(patience, poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx))).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Hold::Failed(Some(error)),
            Ok(None) => break,
            Err(_) => return Hold::Failed(None),
        };
        // Trailers have no meaning for a message.
        let Ok(data) = frame.into_data() else { continue };
        read.extend_from_slice(&data);
        if read.len() > most || enough(&read) {
            return Hold::TooLong(read.freeze());
        }
    }
    Hold::Whole(read.freeze())
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_body_is_held_up_to_a_bound() {
        let body = |text: &'static str| Full::new(Bytes::from_static(text.as_bytes()));
        assert!(matches!(hold(&mut body("12345"), 5, PATIENCE).await, Hold::Whole(read) if read == "12345"));
        assert!(matches!(hold(&mut body("12345"), 4, PATIENCE).await, Hold::TooLong(read) if read == "12345"));
        assert!(matches!(hold(&mut body(""), 0, PATIENCE).await, Hold::Whole(read) if read.is_empty()));
        assert!(matches!(beginning(&mut body(" \n"), PATIENCE).await, Hold::Whole(_)));
        assert!(matches!(beginning(&mut body(" \n{"), PATIENCE).await, Hold::TooLong(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_is_given_up() {
        let mut never = http_body_util::Empty::<Bytes>::new().map_frame(|frame| frame).boxed();
        assert!(matches!(hold(&mut never, 5, PATIENCE).await, Hold::Whole(_)));
        let mut stalled = http_body_util::StreamBody::new(futures_util::stream::pending::<
            Result<http_body::Frame<Bytes>, std::convert::Infallible>,
        >());
        assert!(matches!(hold(&mut stalled, 5, PATIENCE).await, Hold::Failed(None)));
    }
}
