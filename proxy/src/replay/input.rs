//! What a file is, from its first bytes, and its pieces.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use clap::ValueEnum;
use flate2::read::MultiGzDecoder;

use super::{Reading, Record, flows, har, line};
use crate::lines::{self, Blocks};

/// How much of a file tells what it is.
const START: usize = 64 * 1024;
/// How many records of a document make a piece.
const BATCH: usize = 1024;

/// The form of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// What its first bytes say
    #[default]
    Auto,
    /// A line for each request: a log of exeat, squid or Smokescreen, or URLs and HOST:PORT
    Lines,
    /// An HTTP archive
    Har,
    /// Flows of mitmproxy
    Flows,
}

/// One file of recorded traffic.
pub(crate) struct Input {
    name: PathBuf,
    format: Format,
    reader: Box<dyn Read + Send>,
    /// How many bytes of the file have been read, before decompression.
    read: Arc<AtomicU64>,
}

/// Some of a file.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Whole lines.
    Lines(Vec<u8>),
    /// What entries of a document turned out to be.
    Records(Vec<Reading>),
}

impl Piece {
    /// What is recorded in it.
    pub(crate) fn records(self, mut take: impl FnMut(Reading)) {
        match self {
            Self::Lines(block) => lines::of(&block).for_each(|text| take(line::read(text))),
            Self::Records(records) => records.into_iter().for_each(take),
        }
    }
}

impl Input {
    /// Opens a file, or the standard input for `-`; what is compressed with gzip is decompressed.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn open(path: &Path, format: Format) -> io::Result<Self> {
        let read = Arc::new(AtomicU64::new(0));
        let file: Box<dyn Read + Send> =
            if path == Path::new("-") { Box::new(io::stdin()) } else { Box::new(File::open(path)?) };
        let mut reader = BufReader::with_capacity(START, Counted { reader: file, read: Arc::clone(&read) });
        let is_gzip = reader.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let mut reader: Box<dyn Read + Send> =
            if is_gzip { Box::new(MultiGzDecoder::new(reader)) } else { Box::new(reader) };
        let mut start = Vec::new();
        if format == Format::Auto {
            // A terminal or a pipe is not kept waiting for more than its first bytes.
            start.resize(START, 0);
            let count = reader.read(&mut start)?;
            start.truncate(count);
        }
        let format = if format == Format::Auto { sniff(&start) } else { format };
        let reader = Box::new(io::Cursor::new(start).chain(reader));
        Ok(Self { name: path.to_owned(), format, reader, read })
    }

    /// How many bytes of the file have been read, before decompression; it goes on counting while pieces are read.
    pub(crate) fn position(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read)
    }

    /// The pieces. An error ends them and names the file.
    pub(crate) fn pieces(self) -> Box<dyn Iterator<Item = io::Result<Piece>> + Send> {
        let Self { name, format, reader, .. } = self;
        let named =
            move |error: io::Error| io::Error::new(error.kind(), format!("cannot read {}: {error}", name.display()));
        match format {
            Format::Har => Box::new(pushed(
                move |give| {
                    let mut other = |record| give(Reading::Record(record));
                    har::read(BufReader::new(reader), &mut other).map_err(io::Error::from)
                },
                named,
            )),
            Format::Flows => Box::new(pushed(
                move |give| {
                    let mut give = |record: Option<Record>| give(record.map_or(Reading::Other, Reading::Record));
                    flows::read(BufReader::new(reader), &mut give).map_err(|error| match error {
                        flows::FlowError::Io(error) => error,
                        error => io::Error::new(io::ErrorKind::InvalidData, error),
                    })
                },
                named,
            )),
            Format::Auto | Format::Lines => {
                Box::new(Blocks::new(reader).map(move |block| block.map(Piece::Lines).map_err(&named)))
            }
        }
    }
}

/// What a document's reader, which calls for each record, gives, as pieces. It reads on a thread of its own and no more
/// than a few pieces ahead.
fn pushed(
    read: impl FnOnce(&mut dyn FnMut(Reading) -> bool) -> io::Result<()> + Send + 'static,
    named: impl Fn(io::Error) -> io::Error + Send + 'static,
) -> impl Iterator<Item = io::Result<Piece>> + Send {
    let (sender, pieces) = mpsc::sync_channel(2);
    thread::spawn(move || {
        let mut batch = Vec::new();
        let ended = read(&mut |reading| {
            batch.push(reading);
            batch.len() < BATCH || sender.send(Ok(Piece::Records(std::mem::take(&mut batch)))).is_ok()
        });
        // Nobody is left to hear of it if sending fails.
        let _ = sender.send(Ok(Piece::Records(batch)));
        if let Err(error) = ended {
            let _ = sender.send(Err(named(error)));
        }
    });
    pieces.into_iter()
}

fn sniff(start: &[u8]) -> Format {
    let text = String::from_utf8_lossy(start);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    if text.starts_with('{') {
        // A log has an object in each line; an archive is one object over many lines, or one very long line.
        let first = text.lines().next().unwrap_or_default();
        let whole = serde_json::from_str::<serde::de::IgnoredAny>(first).is_ok();
        let is_archive = text.contains("\"log\"") && (!whole || text.contains("\"entries\""));
        return if is_archive { Format::Har } else { Format::Lines };
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let flows = digits > 0
        && text.get(digits..).is_some_and(|rest| {
            // A host name of digits only would be `127:443`; a flow begins with the netstring of a key.
            rest.strip_prefix(':')
                .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()) && rest.contains(':'))
        });
    if flows { Format::Flows } else { Format::Lines }
}

/// A reader that counts.
struct Counted<R> {
    reader: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn records(text: &[u8], format: Format) -> (Vec<String>, Option<String>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let mut found = Vec::new();
        for piece in Input::open(file.path(), format).unwrap().pieces() {
            match piece {
                Ok(piece) => piece.records(|reading| {
                    if let Reading::Record(record) = reading {
                        found.push(record.asked);
                    }
                }),
                Err(error) => return (found, Some(error.to_string())),
            }
        }
        (found, None)
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn files_are_told_by_their_first_bytes() {
        let har = r#"{"log": {"entries": [{"request": {"url": "https://a.test/"}}]}}"#;
        let pretty = har.replace('{', "{\n");
        let flow = "62:7:request;48:4:host;6:a.test;4:port;3:443#6:method;7:CONNECT,}}";
        let cases: [(&str, &[&str]); 7] = [
            (har, &["https://a.test/"]),
            (&pretty, &["https://a.test/"]),
            (flow, &["a.test:443"]),
            ("https://a.test/\nhttps://b.test/\n", &["https://a.test/", "https://b.test/"]),
            ("127.0.0.1:443\n", &["127.0.0.1:443"]),
            ("{\"url\":\"http://a.test/log\",\"verdict\":\"allow\"}\n", &["http://a.test/log"]),
            ("", &[]),
        ];
        for (text, expected) in cases {
            for text in [text.as_bytes().to_vec(), gzip(text.as_bytes())] {
                let (found, error) = records(&text, Format::Auto);
                assert_eq!(
                    (found.as_slice(), error),
                    (expected.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>().as_slice(), None)
                );
            }
        }
    }

    #[test]
    fn two_gzip_files_behind_each_other_are_one() {
        let text = [gzip(b"https://a.test/\n"), gzip(b"https://b.test/\n")].concat();
        assert_eq!(records(&text, Format::Auto).0, ["https://a.test/", "https://b.test/"]);
    }

    #[test]
    fn what_is_not_what_it_was_said_to_be_is_an_error_that_names_the_file() {
        for format in [Format::Har, Format::Flows] {
            let (found, error) = records(b"https://a.test/\n", format);
            assert!(found.is_empty());
            assert!(error.unwrap().starts_with("cannot read /"), "{format:?}");
        }
    }
}
