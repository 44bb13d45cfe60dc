//! Bodies of which the beginning was read ahead of who they are for.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// Bytes that were read, and what is still to come of the body.
#[derive(Debug)]
pub(crate) struct Held<B> {
    read: Bytes,
    rest: Option<B>,
}

impl<B> Held<B> {
    /// A body of `read` and then `rest`.
    pub(crate) const fn new(read: Bytes, rest: Option<B>) -> Self {
        Self { read, rest }
    }

    /// What was read and has not been taken.
    pub(crate) const fn read(&self) -> &Bytes {
        &self.read
    }

    /// What is still to come.
    pub(crate) const fn rest(&mut self) -> Option<&mut B> {
        self.rest.as_mut()
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Held<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if !self.read.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.read)))));
        }
        match &mut self.rest {
            Some(rest) => Pin::new(rest).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let read = self.read.len() as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(read));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};

    use super::*;

    #[tokio::test]
    async fn what_was_read_comes_first() {
        let rest = Full::new(Bytes::from_static(b"rest"));
        let body = Held::new(Bytes::from_static(b"read and "), Some(rest));
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(13), false));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "read and rest");
        let alone = Held::<Full<Bytes>>::new(Bytes::from_static(b"read"), None);
        assert_eq!(alone.collect().await.unwrap().to_bytes(), "read");
        assert!(Held::<Full<Bytes>>::new(Bytes::new(), None).is_end_stream());
    }
}
