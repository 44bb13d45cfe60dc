//! The body of a request on its way from the client.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Frame, SizeHint};

use crate::listener::transit::Transit;

/// A body that comes over a stream. Its window opens as upstream takes what came.
#[derive(Debug)]
pub(crate) struct Inbound {
    incoming: RecvStream,
    data_ended: bool,
    transit: Transit,
}

impl Inbound {
    /// A client that sends nothing for `patience` while its body is waited for has given up.
    pub(super) fn new(incoming: RecvStream, patience: Duration) -> Self {
        Self { incoming, data_ended: false, transit: Transit::new(patience) }
    }

    pub(crate) const fn transit(&mut self) -> &mut Transit {
        &mut self.transit
    }

    /// The next frame. A stream that the client reset gives an error, never an end.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = self.poll_received(cx);
        let frame = match ready!(self.transit.arrived(frame, cx)) {
            Ok(frame) => frame,
            Err(fault) => return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::InvalidData, fault)))),
        };
        Poll::Ready(frame.map(|frame| {
            let mut frame = frame.map_err(io::Error::other)?;
            self.transit.pass(&mut frame).map_err(|fault| io::Error::new(io::ErrorKind::InvalidData, fault))?;
            Ok(frame)
        }))
    }

    fn poll_received(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        poll_received(&mut self.incoming, &mut self.data_ended, cx)
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// The next frame of what a stream receives: data, then trailers if there are any. The window of what is given is
/// opened again, since whoever asks has room for it.
pub(crate) fn poll_received(
    incoming: &mut RecvStream,
    data_ended: &mut bool,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
    if !*data_ended {
        match ready!(incoming.poll_data(cx)) {
            Some(Ok(data)) => {
                // Fails only where more is given back than was received.
                let _ = incoming.flow_control().release_capacity(data.len());
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => *data_ended = true,
        }
    }
    let trailers = ready!(incoming.poll_trailers(cx))?;
    Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
}
