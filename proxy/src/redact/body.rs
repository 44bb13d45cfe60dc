//! Bodies of answers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use prometheus::IntCounter;

use super::{Masker, Redactor};

/// A body that is searched on its way. Its length is that of the one inside.
#[derive(Debug)]
pub(crate) struct Redacted<B> {
    inner: B,
    redactor: Arc<Redactor>,
    masker: Masker,
    /// Trailers that wait for what was held back to go first.
    trailers: Option<HeaderMap>,
    ended: bool,
    counts: Arc<Counts>,
}

/// Where what is found in the answers of one server is counted.
#[derive(Debug)]
pub(crate) struct Counts {
    /// In header fields.
    pub(crate) header: IntCounter,
    /// In the body.
    pub(crate) body: IntCounter,
    /// In its trailers.
    pub(crate) trailer: IntCounter,
    /// Answers that were withheld since nothing could be found in them.
    pub(crate) withheld: IntCounter,
}

impl<B> Redacted<B> {
    /// Searches `inner`.
    pub(crate) fn new(inner: B, redactor: Arc<Redactor>, counts: Arc<Counts>) -> Self {
        let masker = Masker::new(Arc::clone(&redactor));
        Self { inner, redactor, masker, trailers: None, ended: false, counts }
    }

    fn push(&mut self, piece: Bytes, last: bool) -> Option<Frame<Bytes>> {
        let (out, found) = self.masker.push(piece, last);
        self.counts.body.inc_by(found as u64);
        (!out.is_empty()).then(|| Frame::data(out))
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Redacted<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        if let Some(trailers) = this.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        loop {
            if this.ended {
                return Poll::Ready(None);
            }
            let Some(frame) = ready!(Pin::new(&mut this.inner).poll_frame(cx)) else {
                this.ended = true;
                return Poll::Ready(this.push(Bytes::new(), true).map(Ok));
            };
            let frame = match frame?.into_data() {
                Ok(piece) => {
                    this.ended = this.inner.is_end_stream();
                    this.push(piece, this.ended)
                }
                Err(frame) => {
                    let Ok(mut trailers) = frame.into_trailers() else { continue };
                    this.counts.trailer.inc_by(this.redactor.clean(&mut trailers) as u64);
                    match this.push(Bytes::new(), true) {
                        None => Some(Frame::trailers(trailers)),
                        held => {
                            this.trailers = Some(trailers);
                            held
                        }
                    }
                }
            };
            if let Some(frame) = frame {
                return Poll::Ready(Some(Ok(frame)));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.trailers.is_none() && self.masker.held() == 0 && (self.ended || self.inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, held) = (self.inner.size_hint(), self.masker.held() as u64);
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint.set_lower(inner.lower().saturating_add(held));
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use http::HeaderValue;
    use http_body_util::BodyExt as _;

    use super::*;

    /// Frames one after the other; the end is known with the last of them where `announced`.
    struct Script {
        frames: VecDeque<Frame<Bytes>>,
        announced: bool,
    }

    impl Body for Script {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.frames.pop_front().map(Ok))
        }

        fn is_end_stream(&self) -> bool {
            self.announced && self.frames.is_empty()
        }

        fn size_hint(&self) -> SizeHint {
            let left = self.frames.iter().filter_map(Frame::data_ref).map(Bytes::len).sum::<usize>();
            if self.announced { SizeHint::with_exact(left as u64) } else { SizeHint::default() }
        }
    }

    fn body(pieces: &[&'static str], announced: bool) -> Redacted<Script> {
        let redactor = Redactor::new([&b"Bearer s3cret-token"[..]].into_iter()).unwrap().unwrap();
        let counter = |name: &str| IntCounter::new(name, "x").unwrap();
        let frames = pieces.iter().map(|piece| Frame::data(Bytes::from_static(piece.as_bytes()))).collect();
        let [header, body, trailer, withheld] = ["header", "body", "trailer", "withheld"].map(counter);
        let counts = Counts { header, body, trailer, withheld };
        Redacted::new(Script { frames, announced }, Arc::new(redactor), Arc::new(counts))
    }

    #[tokio::test]
    async fn a_body_keeps_its_length_and_ends_with_what_was_held() {
        for announced in [true, false] {
            let mut body = body(&["x s3cret", "-token y s3", "cret-"], announced);
            assert_eq!(body.size_hint().exact(), announced.then_some(24));
            let mut whole = Vec::new();
            while let Some(frame) = body.frame().await {
                whole.extend_from_slice(frame.unwrap().data_ref().unwrap());
            }
            assert_eq!(whole, b"x ************ y s3cret-");
            assert!(body.is_end_stream());
            assert_eq!(body.counts.body.get(), 1);
        }
    }

    #[tokio::test]
    async fn what_was_held_goes_before_the_trailers() {
        let mut body = body(&["s3cret"], false);
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("s3cret-token"));
        body.inner.frames.push_back(Frame::trailers(trailers));
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "s3cret");
        let trailers = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(trailers["x-sum"], "************");
        assert!(body.frame().await.is_none());
        assert_eq!((body.counts.body.get(), body.counts.trailer.get()), (0, 1));
    }
}
