//! Sending a body over a stream, towards clients and towards upstream alike.
//!
//! A frame of the body is asked for only when the last one was taken, as far as the peer's window goes: a peer that
//! reads slowly slows the other side down, and what is held is one frame.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::SendStream;
use http_body::Body;

use crate::listener::transit::clean_trailers;

/// The most that is asked of the window at once.
const PIECE: usize = 64 * 1024;

/// Why a body did not get through.
#[derive(Debug)]
pub(crate) enum Broken<E> {
    /// The peer gave the stream up, or the connection is over.
    Peer(h2::Error),
    /// The body itself broke off.
    Body(E),
}

/// Hears whether a peer is waited for.
pub(crate) trait Waits {
    /// The wait for the peer's window begins, or is over.
    fn waits(&mut self, waits: bool);
}

impl Waits for () {
    fn waits(&mut self, _: bool) {}
}

/// Sends a body to its end, trailers included. The stream of one that broke off is left to the caller to reset.
pub(crate) async fn send<B: Body<Data = Bytes>>(
    mut body: Pin<&mut B>,
    stream: &mut SendStream<Bytes>,
    waits: &mut impl Waits,
) -> Result<(), Broken<B::Error>> {
    loop {
        let frame = poll_fn(|cx| match poll_gone(stream, cx) {
            Poll::Ready(error) => Poll::Ready(Err(Broken::Peer(error))),
            Poll::Pending => body.as_mut().poll_frame(cx).map(Ok),
        });
        let Some(frame) = frame.await? else {
            return stream.send_data(Bytes::new(), true).map_err(Broken::Peer);
        };
        match frame.map_err(Broken::Body)?.into_data() {
            Ok(data) => {
                let ends = body.is_end_stream();
                if !data.is_empty() || ends {
                    send_piece(data, ends, stream, waits).await.map_err(Broken::Peer)?;
                }
                if ends {
                    return Ok(());
                }
            }
            Err(frame) => {
                if let Ok(mut trailers) = frame.into_trailers() {
                    clean_trailers(&mut trailers, &[]);
                    stream.reserve_capacity(0);
                    return stream.send_trailers(trailers).map_err(Broken::Peer);
                }
            }
        }
    }
}

async fn send_piece(
    mut data: Bytes,
    ends: bool,
    stream: &mut SendStream<Bytes>,
    waits: &mut impl Waits,
) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len().min(PIECE));
        waits.waits(true);
        let granted = poll_fn(|cx| poll_capacity(stream, cx)).await;
        waits.waits(false);
        let piece = data.split_to(granted?.min(data.len()));
        stream.send_data(piece, ends && data.is_empty())?;
        if data.is_empty() {
            return Ok(());
        }
    }
    stream.send_data(data, ends)
}

/// How much may be sent now of what was asked for; more than nothing.
pub(super) fn poll_capacity(stream: &mut SendStream<Bytes>, cx: &mut Context<'_>) -> Poll<Result<usize, h2::Error>> {
    loop {
        match stream.poll_capacity(cx) {
            Poll::Ready(Some(Ok(0))) => {}
            Poll::Ready(Some(granted)) => return Poll::Ready(granted),
            Poll::Ready(None) => {
                // No longer open for sending: the peer's reset says why.
                return Poll::Ready(Err(match poll_gone(stream, cx) {
                    Poll::Ready(error) => error,
                    Poll::Pending => h2::Reason::STREAM_CLOSED.into(),
                }));
            }
            Poll::Pending => return Poll::Pending,
        }
    }
}

/// Ready when the peer has given the stream up.
fn poll_gone(stream: &mut SendStream<Bytes>, cx: &mut Context<'_>) -> Poll<h2::Error> {
    stream.poll_reset(cx).map(|reset| match reset {
        Ok(reason) => reason.into(),
        Err(error) => error,
    })
}
