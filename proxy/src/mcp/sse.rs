//! Server-sent events, taken apart without being held (WHATWG HTML section 9.2).
//!
//! What reaches the splitter comes in pieces that end anywhere. It gives every event that carries data as soon as the
//! empty line behind it is there, with its bytes as they came, and everything else, comments, ids alone and empty
//! lines, as soon as its line has ended. Lines end in LF, CRLF or CR; a CR is not waited behind to see whether an LF
//! follows.

/// A part of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Bytes of no event with data.
    Other(Vec<u8>),
    /// An event with data.
    Event(Event),
}

/// An event with data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// The event as it came, the empty line behind it included.
    pub(crate) raw: Vec<u8>,
    /// Its data: the values of its data lines, joined by LF.
    pub(crate) data: Vec<u8>,
    /// Its type; empty for `message`.
    pub(crate) name: Vec<u8>,
    /// The ends of its lines in `raw`, with what each line is.
    lines: Vec<(usize, Line)>,
}

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Data,
    Name,
    Other,
}

impl Event {
    /// The event with `data`, on one line, in the place of its own.
    pub(crate) fn with_data(&self, data: &[u8]) -> Vec<u8> {
        let mut written = false;
        self.rebuilt(|line, bytes, out| match line {
            Line::Data if written => {}
            Line::Data => {
                written = true;
                out.extend_from_slice(b"data: ");
                out.extend_from_slice(data);
                out.extend_from_slice(line_end(bytes));
            }
            Line::Name | Line::Other => out.extend_from_slice(bytes),
        })
    }

    /// The event without data and type: what is left tells the client its id and when to come back, and is dispatched
    /// to nobody.
    pub(crate) fn without_data(&self) -> Vec<u8> {
        let rest = self.rebuilt(|line, bytes, out| {
            if line == Line::Other {
                out.extend_from_slice(bytes);
            }
        });
        if rest.iter().all(|byte| matches!(byte, b'\r' | b'\n')) { Vec::new() } else { rest }
    }

    fn rebuilt(&self, mut write: impl FnMut(Line, &[u8], &mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.raw.len());
        let mut start = 0;
        for (end, line) in &self.lines {
            write(*line, self.raw.get(start..*end).unwrap_or_default(), &mut out);
            start = *end;
        }
        out
    }

    /// Whether a reader that ends lines where Python's `splitlines` does would find other lines in it. JSON in data
    /// cannot hold such a byte but inside of a string; `outside` asks about everything else.
    pub(crate) fn splits_elsewhere(&self, outside: bool) -> bool {
        if !outside {
            return splits_elsewhere(&self.data);
        }
        let mut found = false;
        self.rebuilt(|line, bytes, _| found |= line != Line::Data && splits_elsewhere(bytes));
        found
    }
}

/// The line ends of `str.splitlines` beside LF and CR, as UTF-8.
const ELSEWHERE: [&str; 8] = ["\u{b}", "\u{c}", "\u{1c}", "\u{1d}", "\u{1e}", "\u{85}", "\u{2028}", "\u{2029}"];

fn splits_elsewhere(bytes: &[u8]) -> bool {
    ELSEWHERE.iter().any(|end| memchr::memmem::find(bytes, end.as_bytes()).is_some())
}

/// Escapes in a JSON document what some readers end lines at. Only its strings can hold it.
pub(crate) fn escape_line_ends(json: &str) -> String {
    json.replace('\u{85}', "\\u0085").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

fn line_end(line: &[u8]) -> &[u8] {
    let text = line.trim_ascii_end().len();
    let end = line.get(text..).unwrap_or_default();
    let from = end.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(end.len());
    end.get(from..).unwrap_or_default()
}

/// An event, or a line, is longer than what is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Takes a stream apart.
#[derive(Debug)]
pub(crate) struct Splitter {
    event: Event,
    /// Where the line begins, in `event.raw`, that has not ended yet.
    line: usize,
    has_data: bool,
    /// The last byte was a CR, so that an LF belongs to it.
    after_cr: bool,
    first_line: bool,
    most: usize,
}

impl Splitter {
    /// Holds events of up to `most` bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self { event: Event::default(), line: 0, has_data: false, after_cr: false, first_line: true, most }
    }

    /// Takes the next bytes and adds the parts that they complete.
    ///
    /// # Errors
    /// An event that is longer than what is held; nothing behind it can be told.
    pub(crate) fn push(&mut self, mut bytes: &[u8], parts: &mut Vec<Part>) -> Result<(), TooLong> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes.first() == Some(&b'\n') {
                self.late_line_feed(parts);
                bytes = bytes.get(1..).unwrap_or_default();
                continue;
            }
            let end = memchr::memchr2(b'\r', b'\n', bytes).map(|end| end + 1);
            let (taken, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            if self.event.raw.len() + taken.len() > self.most {
                return Err(TooLong);
            }
            self.event.raw.extend_from_slice(taken);
            if end.is_some() {
                self.after_cr = taken.last() == Some(&b'\r');
                self.end_line(parts);
            }
            bytes = rest;
        }
        Ok(())
    }

    /// Gives what is left at the end of the stream. An event that was not ended is none to most readers; it is given as
    /// one all the same.
    pub(crate) fn finish(&mut self, parts: &mut Vec<Part>) {
        if self.line < self.event.raw.len() {
            self.end_line(parts);
        }
        self.flush(parts);
    }

    /// The LF of a line whose CR was taken for its end.
    fn late_line_feed(&mut self, parts: &mut Vec<Part>) {
        match self.event.lines.last_mut() {
            Some((end, _)) => {
                self.event.raw.push(b'\n');
                *end += 1;
                self.line = *end;
            }
            None => other(parts, b"\n"),
        }
    }

    fn end_line(&mut self, parts: &mut Vec<Part>) {
        let whole = self.event.raw.get(self.line..).unwrap_or_default();
        let mut text = whole;
        while let [rest @ .., b'\r' | b'\n'] = text {
            text = rest;
        }
        if std::mem::take(&mut self.first_line) {
            text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
        }
        let (name, value) = match memchr::memchr(b':', text) {
            Some(colon) => {
                let value = text.get(colon + 1..).unwrap_or_default();
                (text.get(..colon).unwrap_or_default(), value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (text, &[][..]),
        };
        let line = match name {
            b"data" => Line::Data,
            b"event" => Line::Name,
            _ => Line::Other,
        };
        let (is_empty, is_alone) = (text.is_empty(), self.event.lines.is_empty());
        let is_comment = name.is_empty() && !is_empty;
        match line {
            Line::Data => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push(b'\n');
                }
                self.event.data.extend_from_slice(value);
            }
            Line::Name => self.event.name = value.to_vec(),
            Line::Other => {}
        }
        self.line = self.event.raw.len();
        self.event.lines.push((self.line, line));
        if is_empty || (is_comment && is_alone) {
            self.flush(parts);
        }
    }

    fn flush(&mut self, parts: &mut Vec<Part>) {
        self.line = 0;
        let event = std::mem::take(&mut self.event);
        if std::mem::take(&mut self.has_data) {
            parts.push(Part::Event(event));
        } else if event.splits_elsewhere(true) {
            // To a reader that ends lines elsewhere it may be an event.
        } else if !event.raw.is_empty() {
            other(parts, &event.raw);
        }
    }
}

fn other(parts: &mut Vec<Part>, bytes: &[u8]) {
    match parts.last_mut() {
        Some(Part::Other(before)) => before.extend_from_slice(bytes),
        _ => parts.push(Part::Other(bytes.to_vec())),
    }
}

#[cfg(test)]
mod tests;
