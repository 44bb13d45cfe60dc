//! The body of a request on its way from the client.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use crate::listener::transit::Transit;

/// A body that comes over a stream. Its window opens as upstream takes what came.
#[derive(Debug)]
pub(crate) struct Inbound {
    incoming: Incoming,
    transit: Transit,
}

impl Inbound {
    /// A client that sends nothing for `patience` while its body is waited for has given up.
    pub(super) fn new(incoming: Incoming, patience: Duration) -> Self {
        Self { incoming, transit: Transit::new(patience) }
    }

    pub(crate) const fn transit(&mut self) -> &mut Transit {
        &mut self.transit
    }

    /// The next frame. A stream that the client reset gives the error of HTTP/2 on, so that upstream's is reset for
    /// the same reason.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = Pin::new(&mut self.incoming).poll_frame(cx);
        let frame = match ready!(self.transit.arrived(frame, cx)) {
            Ok(frame) => frame,
            Err(fault) => return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::InvalidData, fault)))),
        };
        Poll::Ready(frame.map(|frame| {
            let mut frame = frame.map_err(io::Error::other)?;
            self.transit.pass(&mut frame);
            Ok(frame)
        }))
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
