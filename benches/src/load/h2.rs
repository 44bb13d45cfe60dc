//! As much of HTTP/2 (RFC 9113) as a client needs that asks for the same thing over and over.
//!
//! One read of the connection is answered by one write: what streams have ended is taken up, and as many begin. The
//! windows are opened as far as they go, so that none of them is ever what an answer waits for.

use std::time::Instant;

use anyhow::{Context as _, bail, ensure};

use super::origin::BODY;
use super::stats::Tally;

/// How many requests a connection has under way.
pub(crate) const STREAMS: usize = 8;

/// Section 3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The length of a frame's header, section 4.1.
const HEADER: usize = 9;
/// The largest window, section 6.9.1.
const WINDOW: u32 = (1 << 31) - 1;
/// The window of a connection at its beginning, section 6.9.2.
const FIRST_WINDOW: u32 = 65_535;
/// The longest frame that is taken, which is what RFC 9113 has peers begin with.
const MAX_FRAME: usize = 16_384;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// Of DATA and HEADERS.
const END_STREAM: u8 = 0x1;
/// Of SETTINGS and PING.
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

const ENABLE_PUSH: u16 = 2;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// The fields of a request, coded as RFC 7541 has it, without Huffman codes and without the dynamic table.
pub(crate) fn block(authority: &str, path: &str) -> anyhow::Result<Vec<u8>> {
    // `:method: GET` and `:scheme: https`, as the static table has them.
    let mut block = vec![0x82, 0x87];
    // Names by their place in the static table: in four bits, or in those and a second byte.
    for (name, value) in
        [(&[0x01][..], authority), (&[0x04], path), (&[0x0f, 58 - 15], "load"), (&[0x0f, 19 - 15], "*/*")]
    {
        let length = u8::try_from(value.len()).ok().filter(|length| *length < 0x7f);
        block.extend(name);
        block.push(length.context("a field that is too long for one byte of length")?);
        block.extend(value.as_bytes());
    }
    Ok(block)
}

/// A request that is under way.
#[derive(Clone, Copy, Debug)]
struct Stream {
    id: u32,
    began: Instant,
    /// How much of the answer's body has come.
    got: usize,
}

/// The client's side of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    streams: [Stream; STREAMS],
    next: u32,
    /// A frame whose end has not arrived.
    held: Vec<u8>,
    /// What has to be sent.
    out: Vec<u8>,
    /// How much of the connection's window is used up.
    used: u32,
}

impl Session {
    /// Opens a connection, with as many requests as it has streams.
    pub(crate) fn new(block: &[u8]) -> Self {
        let streams = std::array::from_fn(|_| Stream { id: 0, began: Instant::now(), got: 0 });
        let mut session = Self { streams, next: 1, held: Vec::new(), out: PREFACE.to_vec(), used: 0 };
        let mut settings = [0; 12];
        let pairs = [(ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, WINDOW)];
        for (place, (name, value)) in settings.chunks_exact_mut(6).zip(pairs) {
            let (first, second) = place.split_at_mut(2);
            first.copy_from_slice(&name.to_be_bytes());
            second.copy_from_slice(&u32::to_be_bytes(value));
        }
        frame(&mut session.out, SETTINGS, 0, 0, &settings);
        frame(&mut session.out, WINDOW_UPDATE, 0, 0, &(WINDOW - FIRST_WINDOW).to_be_bytes());
        for at in 0..STREAMS {
            session.ask(at, block);
        }
        session
    }

    /// What has to be sent now; it counts as sent.
    pub(crate) fn send(&mut self, write: impl FnOnce(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        if !self.out.is_empty() {
            write(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }

    /// Takes bytes of the server's, and asks again for every answer that has ended.
    pub(crate) fn take(&mut self, bytes: &[u8], block: &[u8], tally: &mut Tally) -> anyhow::Result<()> {
        let mut held = std::mem::take(&mut self.held);
        held.extend_from_slice(bytes);
        let mut rest = held.as_slice();
        while let Some((header, behind)) = rest.split_first_chunk::<HEADER>() {
            let [a, b, c, kind, flags, id @ ..] = *header;
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            ensure!(length <= MAX_FRAME, "a frame of {length} bytes");
            let Some((payload, next)) = behind.split_at_checked(length) else { break };
            self.frame(kind, flags, u32::from_be_bytes(id) & WINDOW, payload, block, tally)?;
            rest = next;
        }
        let done = held.len() - rest.len();
        held.drain(..done);
        self.held = held;
        Ok(())
    }

    fn frame(
        &mut self,
        kind: u8,
        flags: u8,
        id: u32,
        payload: &[u8],
        block: &[u8],
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        match kind {
            DATA => {
                let padding =
                    if flags & PADDED == 0 { 0 } else { payload.first().map_or(0, |&length| 1 + usize::from(length)) };
                self.consume(payload.len());
                let at = self.streams.iter().position(|stream| stream.id == id);
                let at = at.context("bytes of a stream that is not open")?;
                let Some(stream) = self.streams.get_mut(at) else { return Ok(()) };
                stream.got += payload.len() - padding.min(payload.len());
                if flags & END_STREAM != 0 {
                    ensure!(stream.got == BODY, "an answer of {} bytes", stream.got);
                    tally.operation(stream.began.elapsed());
                    self.ask(at, block);
                }
            }
            HEADERS => {
                let fields = payload.get(usize::from(flags & PADDED != 0)..).unwrap_or_default();
                let fields = fields.get(if flags & PRIORITY == 0 { 0 } else { 5 }..).unwrap_or_default();
                ensure!(
                    is_ok(fields),
                    "the proxy answered with fields that do not begin with status 200: {fields:02x?}"
                );
                ensure!(flags & END_STREAM == 0, "an answer without a body");
            }
            SETTINGS if flags & ACK == 0 => frame(&mut self.out, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => frame(&mut self.out, PING, ACK, 0, payload),
            RST_STREAM | GOAWAY => bail!("the proxy ended stream {id} with frame {kind}: {payload:?}"),
            // What is left changes nothing for who has no bodies to send.
            _ => {}
        }
        Ok(())
    }

    /// Opens a stream in one of the places.
    fn ask(&mut self, at: usize, block: &[u8]) {
        frame(&mut self.out, HEADERS, END_STREAM | END_HEADERS, self.next, block);
        if let Some(stream) = self.streams.get_mut(at) {
            *stream = Stream { id: self.next, began: Instant::now(), got: 0 };
        }
        self.next += 2;
    }

    /// Gives the connection's window back once half of it is used up.
    fn consume(&mut self, length: usize) {
        self.used += length as u32;
        if self.used > WINDOW / 2 {
            let used = std::mem::take(&mut self.used);
            frame(&mut self.out, WINDOW_UPDATE, 0, 0, &used.to_be_bytes());
        }
    }
}

/// Whether a block of fields begins with `:status: 200` as the static table has it, behind changes of the table's size.
fn is_ok(mut block: &[u8]) -> bool {
    while let Some((first, mut rest)) = block.split_first() {
        if first & 0xe0 != 0x20 {
            return *first == 0x88;
        }
        // An integer that fills its five bits goes on until a byte whose highest bit is not set.
        let mut more = first & 0x1f == 0x1f;
        while let (true, Some((next, behind))) = (more, rest.split_first()) {
            more = next & 0x80 != 0;
            rest = behind;
        }
        block = rest;
    }
    false
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, id: u32, payload: &[u8]) {
    let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
    out.extend(length);
    out.extend([kind, flags]);
    out.extend(id.to_be_bytes());
    out.extend(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(session: &mut Session) -> Vec<u8> {
        let mut all = Vec::new();
        session
            .send(|bytes| {
                all.extend_from_slice(bytes);
                Ok(())
            })
            .unwrap();
        all
    }

    fn answer(id: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame(&mut bytes, HEADERS, END_HEADERS, id, &[0x3f, 0xe1, 0x1f, 0x88, 0x5c]);
        frame(&mut bytes, DATA, PADDED, id, &[[2].as_slice(), &[b'x'; 1000], &[0, 0]].concat());
        frame(&mut bytes, DATA, END_STREAM, id, &[b'x'; BODY - 1000]);
        bytes
    }

    #[test]
    fn an_answer_ends_its_stream_and_begins_another_in_any_segmentation() {
        let block = block("origin.test:1", "/").unwrap();
        let mut expected = Vec::new();
        frame(&mut expected, SETTINGS, ACK, 0, &[]);
        frame(&mut expected, HEADERS, END_STREAM | END_HEADERS, 17, &block);
        let mut bytes = Vec::new();
        frame(&mut bytes, SETTINGS, 0, 0, &[]);
        bytes.extend(answer(5));
        for size in [1, 2, 7, 1000, bytes.len()] {
            let mut session = Session::new(&block);
            assert!(sent(&mut session).starts_with(PREFACE));
            let mut tally = Tally::default();
            bytes.chunks(size).for_each(|piece| session.take(piece, &block, &mut tally).unwrap());
            assert_eq!((tally.operations, sent(&mut session)), (1, expected.clone()), "pieces of {size}");
        }
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        let block = block("origin.test:1", "/").unwrap();
        for (kind, flags, id, payload) in [
            (HEADERS, END_HEADERS, 1, &[0x8d][..]),
            (HEADERS, END_HEADERS | END_STREAM, 1, &[0x88]),
            (DATA, END_STREAM, 1, b"short"),
            (DATA, 0, 99, b"of no stream"),
            (RST_STREAM, 0, 1, &[0, 0, 0, 2]),
            (GOAWAY, 0, 0, &[0; 8]),
        ] {
            let mut bytes = Vec::new();
            frame(&mut bytes, kind, flags, id, payload);
            assert!(
                Session::new(&block).take(&bytes, &block, &mut Tally::default()).is_err(),
                "frame {kind} {payload:?}"
            );
        }
    }
}
