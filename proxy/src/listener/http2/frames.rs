//! The frames of a connection, followed for what nobody else tells.
//!
//! Of what the client sends: how long a header section takes to arrive, and how many frames ask for nothing. A header
//! section is a HEADERS frame and the CONTINUATION frames behind it (RFC 9113 section 6.10). One that never ends holds
//! the whole connection, since nothing else may come in between, and the framing waits for it for ever; the same goes
//! for the settings that have to follow the preface. Frames without content, each of which is allowed, cost work and
//! sometimes an answer (RFC 9113 section 10.5), so there is a budget for them that traffic earns.
//!
//! Of what the gateway sends: the resets by which the framing refuses a malformed request, so that they are taken down.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use exeat_policy::Reason;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::activity::Activity;
use super::budget::Budget;
use crate::listener::http1::HeadError;
use crate::listener::stream::Rewound;

/// The length of the connection preface, and of what stands before each frame.
const PREFACE: usize = 24;
const FRAME_HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Something that frames did and that has to be answered for.
#[derive(Debug)]
pub(super) enum Fault {
    /// The framing has refused a stream.
    Stream(HeadError),
    /// The client's first frame is not the SETTINGS that its preface ends with.
    Preface,
    /// The client floods the connection.
    Flood,
}

/// A frame's head as it arrives.
#[derive(Debug, Default)]
struct FrameHead {
    bytes: [u8; FRAME_HEAD],
    filled: usize,
}

impl FrameHead {
    /// Takes a byte; the length of the payload, if the head is whole.
    fn push(&mut self, byte: u8) -> Option<usize> {
        if let Some(place) = self.bytes.get_mut(self.filled) {
            *place = byte;
            self.filled += 1;
        }
        if self.filled < FRAME_HEAD {
            return None;
        }
        self.filled = 0;
        let [high, middle, low, ..] = self.bytes;
        Some(usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low))
    }

    const fn kind(&self) -> u8 {
        let [_, _, _, kind, ..] = self.bytes;
        kind
    }

    const fn flags(&self) -> u8 {
        let [_, _, _, _, flags, ..] = self.bytes;
        flags
    }

    const fn stream(&self) -> u32 {
        let [.., a, b, c, d] = self.bytes;
        u32::from_be_bytes([a, b, c, d])
    }
}

/// Follows the client's frames through a byte stream in any segmentation.
#[derive(Debug)]
struct Frames {
    head: FrameHead,
    /// What is left of the preface or of a frame's payload.
    skip: usize,
    /// Whether a header section is open, or the settings are still to come.
    open: bool,
    /// Whether the first frame was seen.
    begun: bool,
    /// The stream that was opened last.
    newest: u32,
}

/// What a piece of the stream was.
#[derive(Debug)]
struct Seen {
    /// Whether a header section is open behind it.
    open: bool,
    /// Whether one began in it.
    began: bool,
    /// How many frames in it asked for nothing.
    idle: u64,
    /// Whether it held a first frame other than SETTINGS (RFC 9113 section 3.4).
    unsettled: bool,
}

impl Default for Frames {
    fn default() -> Self {
        Self { head: FrameHead::default(), skip: PREFACE, open: true, begun: false, newest: 0 }
    }
}

impl Frames {
    /// Goes on with what was read; tells of every stream that is opened.
    fn follow(&mut self, mut bytes: &[u8], mut opened: impl FnMut(u32)) -> Seen {
        let (mut began, mut idle, mut unsettled) = (false, 0, false);
        while !bytes.is_empty() {
            if self.skip > 0 {
                let length = self.skip.min(bytes.len());
                bytes = bytes.get(length..).unwrap_or_default();
                self.skip -= length;
                continue;
            }
            let [byte, rest @ ..] = bytes else { break };
            bytes = rest;
            if let Some(length) = self.head.push(*byte) {
                self.skip = length;
                let (kind, flags) = (self.head.kind(), self.head.flags());
                self.open = matches!(kind, HEADERS | CONTINUATION) && flags & END_HEADERS == 0;
                began |= kind == HEADERS;
                if kind == HEADERS && self.head.stream() > self.newest {
                    self.newest = self.head.stream();
                    opened(self.newest);
                }
                idle += u64::from(is_idle(kind, flags, length));
                unsettled |= !std::mem::replace(&mut self.begun, true) && (kind != SETTINGS || flags & ACK != 0);
            }
        }
        // A section whose last frame is not whole is open as well.
        let last = self.skip > 0 && matches!(self.head.kind(), HEADERS | CONTINUATION);
        Seen { open: self.open || last, began, idle, unsettled }
    }
}

/// Whether a frame is allowed, and brings nothing that anybody waits for.
const fn is_idle(kind: u8, flags: u8, length: usize) -> bool {
    match kind {
        DATA => length == 0 && flags & END_STREAM == 0,
        SETTINGS => flags & ACK == 0,
        // Each of these is bounded elsewhere: streams by their number, resets by those of streams, windows by their size.
        HEADERS | CONTINUATION | RST_STREAM | PUSH_PROMISE | GOAWAY | WINDOW_UPDATE => false,
        _ => true,
    }
}

/// Follows what is written, for resets that the framing makes by itself.
#[derive(Debug, Default)]
struct Written {
    head: FrameHead,
    skip: usize,
    /// The code of the reset that is being written, and how much of it is still to come.
    code: u32,
    code_left: usize,
}

/// What was written for a stream.
#[derive(Debug, PartialEq)]
enum Event {
    /// An answer, or its trailers.
    Answer,
    /// A reset.
    Reset(h2::Reason),
}

impl Written {
    fn follow(&mut self, mut bytes: &[u8], mut tell: impl FnMut(u32, &Event)) {
        while !bytes.is_empty() {
            if self.code_left == 0 && self.skip > 0 {
                let length = self.skip.min(bytes.len());
                bytes = bytes.get(length..).unwrap_or_default();
                self.skip -= length;
                continue;
            }
            let [byte, rest @ ..] = bytes else { break };
            bytes = rest;
            if self.code_left > 0 {
                self.code = self.code << 8 | u32::from(*byte);
                self.code_left -= 1;
                self.skip -= 1;
                if self.code_left == 0 {
                    tell(self.head.stream(), &Event::Reset(self.code.into()));
                }
            } else if let Some(length) = self.head.push(*byte) {
                self.skip = length;
                match self.head.kind() {
                    HEADERS => tell(self.head.stream(), &Event::Answer),
                    RST_STREAM if length == 4 => (self.code, self.code_left) = (0, 4),
                    _ => {}
                }
            }
        }
    }
}

/// Why the framing has refused a stream, if that is what an event says. `unaccepted` tells whether the stream was never
/// handed over: what is written for it then is the framing's own word. On other streams the gateway's own resets are
/// INTERNAL_ERROR, CONNECT_ERROR, CANCEL and NO_ERROR.
fn refusal(event: &Event, unaccepted: bool) -> Option<HeadError> {
    let (reason, detail) = match event {
        Event::Answer if unaccepted => (Reason::HeadTooLarge, Reason::HeadTooLarge.text()),
        Event::Answer => return None,
        Event::Reset(h2::Reason::REFUSED_STREAM) if unaccepted => (Reason::StreamLimit, Reason::StreamLimit.text()),
        // Behind the framing's own answer.
        Event::Reset(h2::Reason::REFUSED_STREAM) => return None,
        Event::Reset(
            h2::Reason::NO_ERROR | h2::Reason::INTERNAL_ERROR | h2::Reason::CANCEL | h2::Reason::CONNECT_ERROR,
        ) => return None,
        Event::Reset(code) => (Reason::BadRequest, words(*code)),
    };
    Some(HeadError::new(reason, detail))
}

/// What a client has done against which the framing acts with this code (RFC 9113 section 7).
pub(super) const fn words(code: h2::Reason) -> &'static str {
    match code {
        h2::Reason::FLOW_CONTROL_ERROR => "it sends more than its window allows, or opens a window too far",
        h2::Reason::STREAM_CLOSED => "it sends on a stream that has ended",
        h2::Reason::FRAME_SIZE_ERROR => "a frame has a length that its type does not allow",
        h2::Reason::COMPRESSION_ERROR => "a header section cannot be decompressed",
        _ => "the connection or a request on it breaks the rules of HTTP/2",
    }
}

/// A stream whose reading and writing is followed.
#[derive(Debug)]
pub(super) struct Metered {
    inner: Option<Rewound>,
    back: Option<oneshot::Sender<Rewound>>,
    frames: Frames,
    written: Written,
    budget: Budget,
    activity: Arc<Activity>,
    open: bool,
    ended: bool,
}

impl Metered {
    /// Tells `activity` of what goes through `inner`, which goes `back` in the end.
    pub(super) fn new(inner: Rewound, activity: Arc<Activity>, back: oneshot::Sender<Rewound>) -> Self {
        Self {
            inner: Some(inner),
            back: Some(back),
            frames: Frames::default(),
            written: Written::default(),
            budget: Budget::default(),
            activity,
            open: true,
            ended: false,
        }
    }

    fn inner(&mut self) -> io::Result<Pin<&mut Rewound>> {
        // It is there until the end.
        self.inner.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn wrote(&mut self, bytes: &[u8]) {
        self.budget.earn(bytes.len() as u64);
        let activity = &self.activity;
        self.written.follow(bytes, |stream, event| {
            if let Some(error) = refusal(event, activity.settle(stream)) {
                activity.note(Fault::Stream(error));
            }
        });
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        if let (Some(inner), Some(back)) = (self.inner.take(), self.back.take()) {
            // Nobody waits for it where the connection is given up.
            drop(back.send(inner));
        }
    }
}

impl AsyncRead for Metered {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ended {
            // Nothing more is taken; the connection is about to be closed.
            return Poll::Pending;
        }
        let before = buf.filled().len();
        ready!(this.inner()?.poll_read(cx, buf))?;
        let read = buf.filled().get(before..).unwrap_or_default();
        let Seen { open, began, idle, unsettled } = this.frames.follow(read, |stream| this.activity.opened(stream));
        if unsettled {
            buf.set_filled(before);
            this.ended = true;
            this.activity.note(Fault::Preface);
            return Poll::Pending;
        }
        match (this.open, open) {
            (true, true) if !began => {}
            (_, true) => this.activity.section_begins(),
            (_, false) => this.activity.section_ends(),
        }
        this.open = open;
        this.budget.earn(read.len() as u64);
        if !this.budget.spend(idle) {
            this.ended = true;
            this.activity.note(Fault::Flood);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(this.inner()?.poll_write(cx, buf))?;
        this.wrote(buf.get(..written).unwrap_or_default());
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().inner()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().inner()?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(this.inner()?.poll_write_vectored(cx, bufs))?;
        let mut left = written;
        for buf in bufs {
            let length = left.min(buf.len());
            this.wrote(buf.get(..length).unwrap_or_default());
            left -= length;
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIORITY: u8 = 2;
    const PING: u8 = 6;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        frame.resize(FRAME_HEAD + usize::from(length), 0);
        frame
    }

    #[test]
    fn open_sections_are_found_in_any_segmentation() {
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
                    open = frames.follow(piece, |_| {}).open;
                }
                assert_eq!(open, *expected, "{size}: {bytes:?}");
            }
        }
        let mut frames = Frames::default();
        frames.follow(&[vec![0; PREFACE], frame(SETTINGS, 0, 0)].concat(), |_| {});
        let seen = frames.follow(&frame(HEADERS, END_HEADERS, 5)[..12], |_| {});
        assert_eq!((seen.open, seen.began), (true, true), "its payload is not whole");
    }

    #[test]
    fn a_section_that_follows_another_in_one_piece_is_new() {
        let mut frames = Frames::default();
        frames.follow(&[vec![0; PREFACE], frame(4, 0, 0), frame(HEADERS, 0, 1)].concat(), |_| {});
        let seen = frames.follow(&[frame(CONTINUATION, END_HEADERS, 1), frame(HEADERS, 0, 1)].concat(), |_| {});
        assert_eq!((seen.open, seen.began), (true, true));
        let seen = frames.follow(&frame(CONTINUATION, 0, 1), |_| {});
        assert_eq!((seen.open, seen.began), (true, false));
    }

    #[test]
    fn the_first_frame_has_to_be_settings() {
        for (first, unsettled) in
            [(frame(SETTINGS, 0, 0), false), (frame(SETTINGS, ACK, 0), true), (frame(PING, 0, 8), true)]
        {
            let mut frames = Frames::default();
            assert!(!frames.follow(&[0; PREFACE], |_| {}).unsettled);
            assert_eq!(frames.follow(&first, |_| {}).unsettled, unsettled, "{first:?}");
            assert!(!frames.follow(&frame(PING, 0, 8), |_| {}).unsettled);
        }
    }

    #[test]
    fn idle_frames_are_those_without_content() {
        let mut frames = Frames::default();
        frames.follow(&[0; PREFACE], |_| {});
        for (bytes, idle) in [
            (frame(SETTINGS, 0, 6), 1),
            (frame(SETTINGS, ACK, 0), 0),
            (frame(PING, 0, 8), 1),
            (frame(PRIORITY, 0, 5), 1),
            (frame(DATA, 0, 0), 1),
            (frame(DATA, END_STREAM, 0), 0),
            (frame(DATA, 0, 1), 0),
            (frame(HEADERS, END_HEADERS, 1), 0),
            (frame(8, 0, 4), 0),
            (frame(0xfe, 0, 100), 1),
        ] {
            assert_eq!(frames.follow(&bytes, |_| {}).idle, idle, "{bytes:?}");
        }
    }

    #[test]
    fn streams_are_opened_once() {
        let (mut frames, mut opened) = (Frames::default(), Vec::new());
        let headers = |stream: u8| vec![0, 0, 0, HEADERS, END_HEADERS, 0, 0, 0, stream];
        for bytes in [vec![0; PREFACE], frame(SETTINGS, 0, 0), headers(1), headers(5), headers(1), headers(7)] {
            frames.follow(&bytes, |stream| opened.push(stream));
        }
        assert_eq!(opened, [1, 5, 7]);
    }

    #[test]
    fn what_is_written_for_streams_is_seen_in_any_segmentation() {
        let reset = |stream: u8, code: u8| vec![0, 0, 4, RST_STREAM, 0, 0, 0, 0, stream, 0, 0, 0, code];
        let headers = vec![0, 0, 1, HEADERS, 5, 0, 0, 0, 7, 0x88];
        let data = vec![0, 0, 3, DATA, 0, 0, 0, 0, 7, RST_STREAM, 0, 0];
        let written = [reset(1, 1), headers, data, reset(7, 7), reset(9, 2)].concat();
        let expected = [
            (1, Event::Reset(h2::Reason::PROTOCOL_ERROR)),
            (7, Event::Answer),
            (7, Event::Reset(h2::Reason::REFUSED_STREAM)),
            (9, Event::Reset(h2::Reason::INTERNAL_ERROR)),
        ];
        for size in [1, 3, 13, 1000] {
            let (mut frames, mut seen) = (Written::default(), Vec::new());
            for piece in written.chunks(size) {
                frames.follow(piece, |stream, event| match event {
                    Event::Answer => seen.push((stream, Event::Answer)),
                    Event::Reset(code) => seen.push((stream, Event::Reset(*code))),
                });
            }
            assert_eq!(seen, expected);
        }
    }

    #[test]
    fn the_framing_s_own_words_are_refusals() {
        let reason = |event: &Event, unaccepted| refusal(event, unaccepted).map(|error| error.reason);
        assert_eq!(reason(&Event::Answer, true), Some(Reason::HeadTooLarge));
        assert_eq!(reason(&Event::Answer, false), None);
        for (code, unaccepted, expected) in [
            (h2::Reason::REFUSED_STREAM, true, Some(Reason::StreamLimit)),
            (h2::Reason::REFUSED_STREAM, false, None),
            (h2::Reason::PROTOCOL_ERROR, true, Some(Reason::BadRequest)),
            (h2::Reason::FLOW_CONTROL_ERROR, false, Some(Reason::BadRequest)),
            (h2::Reason::INTERNAL_ERROR, false, None),
            (h2::Reason::CANCEL, false, None),
        ] {
            assert_eq!(reason(&Event::Reset(code), unaccepted), expected, "{code:?}");
        }
    }
}
