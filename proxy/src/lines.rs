//! Long inputs: blocks of whole lines, worked on by several threads, their results in order.
//!
//! What a read returns is worked on at once, so that a program that asks line by line gets its answers, and what is
//! held at any time is bounded: a few blocks for each thread, and of one line at most [`MOST_LINE`] bytes.

use std::io::{self, Read};
use std::sync::{Mutex, mpsc};
use std::thread;

/// How much is read at once.
const BLOCK: usize = 256 * 1024;

/// The longest line, in bytes; the rest of a longer one is dropped.
pub(crate) const MOST_LINE: usize = 1024 * 1024;

/// A reader as blocks of whole lines.
#[derive(Debug)]
pub(crate) struct Blocks<R> {
    reader: R,
    /// The start of a line whose end has not been read.
    rest: Vec<u8>,
    /// Whether what comes belongs to a line that was too long.
    skipping: bool,
    ended: bool,
}

impl<R: Read> Blocks<R> {
    /// The blocks of a reader.
    pub(crate) const fn new(reader: R) -> Self {
        Self { reader, rest: Vec::new(), skipping: false, ended: false }
    }

    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let mut block = std::mem::take(&mut self.rest);
            let held = block.len();
            block.resize(held + BLOCK, 0);
            let count = loop {
                match self.reader.read(block.get_mut(held..).unwrap_or_default()) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    count => break count?,
                }
            };
            block.truncate(held + count);
            if count == 0 {
                self.ended = true;
                return Ok((!block.is_empty()).then_some(block));
            }
            if self.skipping {
                match memchr::memchr(b'\n', &block) {
                    None => continue,
                    Some(end) => block.drain(..=end),
                };
                self.skipping = false;
            }
            match memchr::memrchr(b'\n', &block) {
                Some(end) => self.rest = block.split_off(end + 1),
                None if block.len() >= MOST_LINE => {
                    block.truncate(MOST_LINE);
                    self.skipping = true;
                }
                None => {
                    self.rest = block;
                    continue;
                }
            }
            return Ok(Some(block));
        }
    }
}

impl<R: Read> Iterator for Blocks<R> {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let block = self.read();
        self.ended |= block.is_err();
        block.transpose()
    }
}

/// The lines of a block, without their ends and without the empty ones.
pub(crate) fn of(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = block.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.filter(|line| !line.is_empty())
}

/// Has threads work on items, and takes the results in the order of the items.
///
/// # Errors
/// The first that an item, or taking a result, ends with.
pub(crate) fn in_order<I: Send, T: Send>(
    items: impl Iterator<Item = io::Result<I>> + Send,
    work: impl Fn(I) -> T + Sync,
    mut take: impl FnMut(T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let workers = thread::available_parallelism().map_or(1, usize::from).min(8);
    // One channel hands out work, the other the places where results will be, in order.
    let (to_workers, jobs) = mpsc::sync_channel::<(I, mpsc::SyncSender<T>)>(workers);
    let (to_taker, results) = mpsc::sync_channel::<io::Result<mpsc::Receiver<T>>>(workers * 2);
    let jobs = Mutex::new(jobs);
    thread::scope(|scope| {
        // Owned here, so that the threads end when taking ends early.
        let results = results;
        for _ in 0..workers {
            let (jobs, work) = (&jobs, &work);
            scope.spawn(move || {
                loop {
                    let job = jobs.lock().map(|jobs| jobs.recv());
                    let Ok(Ok((item, reply))) = job else { return };
                    // Nobody waits for it if taking has ended.
                    let _ = reply.send(work(item));
                }
            });
        }
        scope.spawn(move || {
            for item in items {
                let (reply, result) = mpsc::sync_channel(1);
                let sent = match item {
                    Ok(item) => to_taker.send(Ok(result)).is_ok() && to_workers.send((item, reply)).is_ok(),
                    Err(error) => to_taker.send(Err(error)).is_ok(),
                };
                if !sent {
                    return;
                }
            }
        });
        for result in results {
            if let Ok(result) = result?.recv() {
                take(result)?;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(reader: impl Read) -> Vec<Vec<u8>> {
        Blocks::new(reader).collect::<io::Result<_>>().unwrap()
    }

    /// Gives a few bytes at a time.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(to.len());
            to[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn blocks_hold_whole_lines_however_they_arrive() {
        let text = b"one\ntwo\r\n\nthree";
        for size in 1..=text.len() {
            let blocks = blocks(Drip(text, size));
            let lines: Vec<&[u8]> = blocks.iter().flat_map(|block| of(block)).collect();
            assert_eq!(lines, [&b"one"[..], b"two", b"three"], "{size}");
        }
        assert!(blocks(&b""[..]).is_empty());
    }

    #[test]
    fn of_a_line_that_is_too_long_the_start_is_kept() {
        let mut text = vec![b'x'; MOST_LINE * 3];
        text.extend_from_slice(b"\nnext\n");
        let blocks = blocks(&text[..]);
        let lines: Vec<&[u8]> = blocks.iter().flat_map(|block| of(block)).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0].len(), lines[1]), (MOST_LINE, &b"next"[..]));
    }

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items = (0..500).map(Ok);
        let mut taken = Vec::new();
        let work = |item: u32| {
            if item.is_multiple_of(7) {
                thread::yield_now();
            }
            item * 2
        };
        in_order(items, work, |result| {
            taken.push(result);
            Ok(())
        })
        .unwrap();
        assert_eq!(taken, (0..500).map(|item| item * 2).collect::<Vec<_>>());
    }

    #[test]
    fn an_error_ends_the_work() {
        let items = (0..).map(|item| if item == 3 { Err(io::Error::other("gone")) } else { Ok(item) });
        let mut taken = 0;
        let ended = in_order(
            items,
            |item: u32| item,
            |_| {
                taken += 1;
                Ok(())
            },
        );
        assert!(ended.unwrap_err().to_string().contains("gone"));
        assert_eq!(taken, 3);
        let ended = in_order((0..).map(Ok), |item: u32| item, |_| anyhow::bail!("enough"));
        assert!(ended.unwrap_err().to_string().contains("enough"));
    }
}
