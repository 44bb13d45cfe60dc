//! Reading without a buffer of one's own.
//!
//! Most connections wait most of the time. What they would hold for whatever comes next is shared by all connections
//! and tunnels of a thread: bytes are read there, and copied out or written on, as many as came.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, ReadBuf};

const SIZE: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SIZE].into_boxed_slice());
}

/// Gives the thread's scratch, of 64 KiB, to who reads into it; nobody else may while it is lent. What it holds is
/// somebody else's.
pub(crate) fn lend<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| read(scratch))
}

/// Reads up to `size` bytes, and no more than 64 KiB, behind what `buffer` holds; 0 is the end of the stream.
pub(crate) fn poll_read(
    io: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
    size: usize,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    lend(|scratch| {
        let mut piece = ReadBuf::new(scratch.get_mut(..size.min(SIZE)).unwrap_or_default());
        ready!(Pin::new(io).poll_read(cx, &mut piece))?;
        buffer.extend_from_slice(piece.filled());
        Poll::Ready(Ok(piece.filled().len()))
    })
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn bytes_are_put_behind_those_that_were_there() {
        let (mut io, mut buffer) = (&b"abcdef"[..], BytesMut::from("_"));
        for (size, expected) in [(2, "_ab"), (SIZE * 2, "_abcdef"), (1, "_abcdef")] {
            let before = buffer.len();
            let read = poll_fn(|cx| poll_read(&mut io, &mut buffer, size, cx)).await.unwrap();
            assert_eq!((read, &buffer[..]), (expected.len() - before, expected.as_bytes()));
        }
    }
}
