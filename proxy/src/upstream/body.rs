//! The body of an answer on its way from upstream.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use prometheus::IntCounter;

use super::Lease;

/// The body of an answer. When it has been read to its end its connection goes back to the pool.
#[derive(Debug)]
pub(crate) struct UpstreamBody {
    incoming: Incoming,
    lease: Option<Lease>,
    count: Option<IntCounter>,
}

impl UpstreamBody {
    pub(super) const fn new(incoming: Incoming, lease: Lease) -> Self {
        Self { incoming, lease: Some(lease), count: None }
    }

    /// Has the body's bytes counted as they go by.
    pub(crate) fn count_into(&mut self, counter: &IntCounter) {
        self.count = Some(counter.clone());
    }

    fn release(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.give_back();
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        if let (Some(Ok(frame)), Some(count)) = (&frame, &self.count) {
            count.inc_by(frame.data_ref().map_or(0, Bytes::len) as u64);
        }
        match &frame {
            None => self.release(),
            Some(Ok(_)) if self.incoming.is_end_stream() => self.release(),
            Some(Ok(_)) => {}
            Some(Err(_)) => self.lease = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for UpstreamBody {
    fn drop(&mut self) {
        if self.incoming.is_end_stream() {
            self.release();
        }
    }
}
