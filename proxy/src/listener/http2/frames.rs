//! The frames a client sends, followed for one thing: how long a header section takes to arrive.
//!
//! A header section is a HEADERS frame and the CONTINUATION frames behind it (RFC 9113 section 6.10). One that never
//! ends holds the whole connection, since nothing else may come in between, and hyper waits for it for ever. The same
//! goes for the settings that have to follow the preface.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::Activity;
use crate::listener::stream::Rewound;

/// The length of the connection preface, and of what stands before each frame.
const PREFACE: usize = 24;
const FRAME_HEAD: usize = 9;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Follows frames through a byte stream in any segmentation.
#[derive(Debug)]
struct Frames {
    /// The frame head that is being read, and how much of it is there.
    head: [u8; FRAME_HEAD],
    filled: usize,
    /// What is left of the preface or of a frame's payload.
    skip: usize,
    /// Whether a header section is open, or the settings are still to come.
    open: bool,
}

impl Default for Frames {
    fn default() -> Self {
        Self { head: [0; FRAME_HEAD], filled: 0, skip: PREFACE, open: true }
    }
}

impl Frames {
    /// Goes on with what was read; tells whether a header section is open behind it, and whether one began in it.
    fn follow(&mut self, mut bytes: &[u8]) -> (bool, bool) {
        let mut new = false;
        while !bytes.is_empty() {
            if self.skip > 0 {
                let length = self.skip.min(bytes.len());
                bytes = bytes.get(length..).unwrap_or_default();
                self.skip -= length;
                continue;
            }
            let [byte, rest @ ..] = bytes else { break };
            bytes = rest;
            if let Some(place) = self.head.get_mut(self.filled) {
                *place = *byte;
                self.filled += 1;
            }
            if self.filled == FRAME_HEAD {
                let [high, middle, low, kind, flags, ..] = self.head;
                self.filled = 0;
                self.skip = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
                let open = matches!(kind, HEADERS | CONTINUATION) && flags & END_HEADERS == 0;
                new |= kind == HEADERS;
                self.open = open;
            }
        }
        // A section whose last frame is not whole is open as well.
        let last = self.skip > 0 && matches!(self.head, [_, _, _, HEADERS | CONTINUATION, ..]);
        (self.open || last, new)
    }
}

/// A stream whose reading is followed.
#[derive(Debug)]
pub(super) struct Metered {
    inner: Rewound,
    frames: Frames,
    activity: Arc<Activity>,
    open: bool,
}

impl Metered {
    /// Tells `activity` of the header sections in what is read from `inner`.
    pub(super) fn new(inner: Rewound, activity: Arc<Activity>) -> Self {
        Self { inner, frames: Frames::default(), activity, open: true }
    }
}

impl AsyncRead for Metered {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        let (open, new) = this.frames.follow(buf.filled().get(before..).unwrap_or_default());
        match (this.open, open) {
            (true, true) if !new => {}
            (_, true) => this.activity.section_begins(),
            (_, false) => this.activity.section_ends(),
        }
        this.open = open;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        frame.resize(FRAME_HEAD + usize::from(length), 0);
        frame
    }

    #[test]
    fn open_sections_are_found_in_any_segmentation() {
        const SETTINGS: u8 = 4;
        const DATA: u8 = 0;
        let steps = [
            (vec![b'x'; PREFACE], true),
            (frame(SETTINGS, 0, 6), false),
            (frame(HEADERS, END_HEADERS, 5), false),
            (frame(HEADERS, 0, 5), true),
            (frame(CONTINUATION, 0, 0), true),
            (frame(CONTINUATION, END_HEADERS, 3), false),
            (frame(DATA, 0, 200)[..100].to_vec(), false),
        ];
        for size in [1, 2, 7, 1000] {
            let mut frames = Frames::default();
            for (bytes, expected) in &steps {
                let mut open = false;
                for piece in bytes.chunks(size) {
                    (open, _) = frames.follow(piece);
                }
                assert_eq!(open, *expected, "{size}: {bytes:?}");
            }
        }
        let mut frames = Frames::default();
        frames.follow(&[vec![0; PREFACE], frame(SETTINGS, 0, 0)].concat());
        assert_eq!(frames.follow(&frame(HEADERS, END_HEADERS, 5)[..12]), (true, true), "its payload is not whole");
    }

    #[test]
    fn a_section_that_follows_another_in_one_piece_is_new() {
        let mut frames = Frames::default();
        frames.follow(&[vec![0; PREFACE], frame(4, 0, 0), frame(HEADERS, 0, 1)].concat());
        assert_eq!(frames.follow(&[frame(CONTINUATION, END_HEADERS, 1), frame(HEADERS, 0, 1)].concat()), (true, true));
        assert_eq!(frames.follow(&frame(CONTINUATION, 0, 1)), (true, false));
    }
}
