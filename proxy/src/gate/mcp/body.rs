//! The body of an answer of an MCP server, on its way to the client.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::watch::Watch;
use crate::listener::held::Held;
use crate::listener::http1::ResponseBody;
use crate::mcp::stream::{EventFilter, Output};

/// An answer that is reviewed as it streams, or that was looked into and passes.
#[derive(Debug)]
pub(crate) struct ReviewedBody {
    body: Held<ResponseBody>,
    review: Option<Review>,
}

#[derive(Debug)]
struct Review {
    filter: EventFilter,
    watch: Watch,
    ended: bool,
}

impl ReviewedBody {
    /// An event stream.
    pub(super) const fn events(body: ResponseBody, filter: EventFilter, watch: Watch) -> Self {
        let review = Review { filter, watch, ended: false };
        Self { body: Held::new(Bytes::new(), Some(body)), review: Some(review) }
    }

    /// A body of which the beginning was read.
    pub(super) const fn begun(beginning: Bytes, body: ResponseBody) -> Self {
        Self { body: Held::new(beginning, Some(body)), review: None }
    }
}

impl Review {
    /// What goes to the client of an output; none where nothing does.
    fn give(&self, output: Output) -> Option<Frame<Bytes>> {
        let Output { bytes, answers, notes } = output;
        self.watch.carry_out(answers, notes);
        (!bytes.is_empty()).then(|| Frame::data(bytes.into()))
    }
}

impl Body for ReviewedBody {
    type Data = Bytes;
    type Error = <ResponseBody as Body>::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Self { body, review } = &mut *self;
        let Some(review) = review else { return Pin::new(body).poll_frame(cx) };
        loop {
            if review.ended {
                return Poll::Ready(None);
            }
            let frame = match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    review.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    review.ended = true;
                    let rest = review.filter.finish();
                    return Poll::Ready(review.give(rest).map(Ok));
                }
            };
            match frame.into_data() {
                Ok(data) => {
                    let output = review.filter.push(&data);
                    review.ended = review.filter.is_broken();
                    if let Some(frame) = review.give(output) {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                }
                // Trailers come behind everything else.
                Err(trailers) => {
                    review.ended = true;
                    let rest = review.filter.finish();
                    return Poll::Ready(Some(Ok(review.give(rest).unwrap_or(trailers))));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.review {
            Some(review) => review.ended,
            None => self.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.review {
            Some(_) => SizeHint::default(),
            None => self.body.size_hint(),
        }
    }
}
