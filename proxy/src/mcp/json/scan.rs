//! The grammar.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;

use super::{Fault, MAX_DEPTH};

/// A position in a document.
#[derive(Clone, Debug)]
pub(super) struct Scanner<'a> {
    document: &'a str,
    at: usize,
}

/// What a value stands in.
enum Open {
    Array,
    /// The keys of the object begin here in the list of keys.
    Object(usize),
}

/// Checks a document and gives the place of its value.
pub(super) fn check(document: &str) -> Result<Range<usize>, Fault> {
    let mut scanner = Scanner::at(document, 0);
    scanner.space();
    let start = scanner.at;
    let mut open = Vec::new();
    let mut keys = Vec::new();
    loop {
        match scanner.peek() {
            Some(bracket @ (b'{' | b'[')) => {
                scanner.at += 1;
                scanner.space();
                let (closing, opened) =
                    if bracket == b'{' { (b'}', Open::Object(keys.len())) } else { (b']', Open::Array) };
                if open.len() == MAX_DEPTH {
                    return Err(Fault::TooDeep);
                }
                if !scanner.eat(closing) {
                    if bracket == b'{' {
                        keys.push(scanner.key()?);
                    }
                    open.push(opened);
                    continue;
                }
            }
            Some(b'"') => {
                scanner.string()?;
            }
            Some(b'-' | b'0'..=b'9') => scanner.number()?,
            Some(b't') => scanner.word("true")?,
            Some(b'f') => scanner.word("false")?,
            Some(b'n') => scanner.word("null")?,
            _ => return Err(scanner.unexpected()),
        }
        // A value has ended, and with it perhaps what it stands in.
        loop {
            let end = scanner.at;
            scanner.space();
            match open.last() {
                None if scanner.peek().is_none() => return Ok(start..end),
                None => return Err(Fault::Trailing(scanner.at)),
                Some(Open::Array) if scanner.eat(b']') => drop(open.pop()),
                Some(Open::Object(from)) if scanner.eat(b'}') => {
                    distinct(keys.get_mut(*from..).unwrap_or_default())?;
                    keys.truncate(*from);
                    open.pop();
                }
                Some(inside) => {
                    if !scanner.eat(b',') {
                        return Err(scanner.unexpected());
                    }
                    scanner.space();
                    if let Open::Object(_) = inside {
                        keys.push(scanner.key()?);
                    }
                    break;
                }
            }
        }
    }
}

fn distinct(keys: &mut [Cow<'_, str>]) -> Result<(), Fault> {
    keys.sort_unstable();
    let twice = keys.windows(2).find_map(|pair| match pair {
        [one, other] if one == other => Some(one),
        _ => None,
    });
    twice.map_or(Ok(()), |key| Err(Fault::DuplicateKey(key.chars().take(64).collect())))
}

impl<'a> Scanner<'a> {
    pub(super) const fn at(document: &'a str, at: usize) -> Self {
        Self { document, at }
    }

    pub(super) const fn position(&self) -> usize {
        self.at
    }

    fn rest(&self) -> &'a [u8] {
        self.document.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    const fn unexpected(&self) -> Fault {
        Fault::Syntax(self.at)
    }

    fn space(&mut self) {
        self.pass(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    }

    /// Goes past bytes of a kind, and says whether there were any.
    fn pass(&mut self, kind: impl Fn(u8) -> bool) -> bool {
        let length = self.rest().iter().take_while(|&&byte| kind(byte)).count();
        self.at += length;
        length > 0
    }

    fn word(&mut self, word: &str) -> Result<(), Fault> {
        if !self.rest().starts_with(word.as_bytes()) {
            return Err(self.unexpected());
        }
        self.at += word.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), Fault> {
        let digits = |scanner: &mut Self| {
            if scanner.pass(|byte| byte.is_ascii_digit()) { Ok(()) } else { Err(scanner.unexpected()) }
        };
        self.eat(b'-');
        if !self.eat(b'0') {
            digits(self)?;
        }
        if self.eat(b'.') {
            digits(self)?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            digits(self)?;
        }
        Ok(())
    }

    /// Reads a string, and gives the place of what stands between its quotes.
    fn string(&mut self) -> Result<Range<usize>, Fault> {
        if !self.eat(b'"') {
            return Err(self.unexpected());
        }
        let start = self.at;
        loop {
            self.pass(|byte| byte != b'"' && byte != b'\\' && byte >= b' ');
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(start..self.at - 1);
                }
                Some(b'\\') => {
                    let length = match self.rest() {
                        [_, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => 2,
                        [_, b'u', digits @ ..]
                            if digits.iter().take(4).filter(|d| d.is_ascii_hexdigit()).count() == 4 =>
                        {
                            6
                        }
                        _ => return Err(self.unexpected()),
                    };
                    self.at += length;
                }
                _ => return Err(self.unexpected()),
            }
        }
    }

    /// Reads a key with its colon and the white space behind it.
    pub(super) fn key(&mut self) -> Result<Cow<'a, str>, Fault> {
        let inside = self.string()?;
        let key = decode(self.document.get(inside.clone()).unwrap_or_default(), inside.start)?;
        self.space();
        if !self.eat(b':') {
            return Err(self.unexpected());
        }
        self.space();
        Ok(key)
    }

    // --- In a document that was checked ------------------------------------------------------------------------------

    /// Goes past what stands between two values.
    pub(super) fn between(&mut self) {
        self.pass(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b','));
    }

    /// Goes past a value and gives its end; none where there is no value.
    pub(super) fn skip(&mut self) -> Option<usize> {
        match self.peek()? {
            b'"' => self.skip_string()?,
            b'{' | b'[' => {
                let mut depth = 0_usize;
                loop {
                    self.pass(|byte| !matches!(byte, b'"' | b'{' | b'[' | b'}' | b']'));
                    match self.peek()? {
                        b'"' => self.skip_string()?,
                        bracket => {
                            self.at += 1;
                            depth = if matches!(bracket, b'{' | b'[') { depth + 1 } else { depth.checked_sub(1)? };
                            if depth == 0 {
                                break;
                            }
                        }
                    }
                }
            }
            b'}' | b']' => return None,
            _ => drop(self.pass(|byte| !matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r'))),
        }
        Some(self.at)
    }

    fn skip_string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            self.at += memchr2(b'"', b'\\', self.rest())?;
            if self.eat(b'"') {
                return Some(());
            }
            self.at += 2;
        }
    }
}

/// Undoes the escapes of a string that was checked, and that begins at `offset` of its document.
pub(super) fn decode(text: &str, offset: usize) -> Result<Cow<'_, str>, Fault> {
    let Some(first) = text.find('\\') else { return Ok(Cow::Borrowed(text)) };
    let mut decoded = String::with_capacity(text.len());
    let (mut plain, mut rest) = text.split_at(first);
    loop {
        decoded.push_str(plain);
        let at = offset + text.len() - rest.len();
        let Some(escape) = rest.as_bytes().get(1) else { return Ok(Cow::Owned(decoded)) };
        let mut length = 2;
        decoded.push(match escape {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = unit(rest, 2).ok_or(Fault::Syntax(at))?;
                length = 6;
                let second = if (0xd800..0xdc00).contains(&first) && rest.get(6..8) == Some("\\u") {
                    length = 12;
                    unit(rest, 8)
                } else {
                    None
                };
                let pair = char::decode_utf16([first].into_iter().chain(second)).next();
                pair.and_then(Result::ok).ok_or(Fault::LoneSurrogate(at))?
            }
            other => char::from(*other),
        });
        rest = rest.get(length..).unwrap_or_default();
        (plain, rest) = rest.split_at(rest.find('\\').unwrap_or(rest.len()));
    }
}

/// The four hexadecimal digits at `from`.
fn unit(text: &str, from: usize) -> Option<u16> {
    u16::from_str_radix(text.get(from..from + 4)?, 16).ok()
}
