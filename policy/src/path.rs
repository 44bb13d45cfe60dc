//! Paths and their readings.
//!
//! A path means what the server behind it makes of it, and servers differ: one treats `%2F` as a slash and another
//! does not, one drops `;parameters`, one merges `//`, one decodes twice because a proxy in front of it has decoded
//! once. A rule that looks at one spelling is evaded by the next. So a request's path is held as all its *readings*:
//!
//! * What goes upstream ([`normalise`]) is the path of the WHATWG URL standard (section 4.4): `\` is `/`, dot
//!   segments are resolved, `%2e` included, and what may not stand in a path is percent-encoded.
//! * The *literal reading* ([`literal`]) is that path in one spelling: unreserved characters decoded (RFC 3986,
//!   section 2.3), hexadecimal digits in upper case, a `%` that begins no escape as `%25`.
//! * The *servers' readings* ([`Readings`]) are everything a chain of servers could make of the literal one: the
//!   smallest set that holds it and is closed under the [`STEPS`] that servers are known to take, in any order and
//!   any number. Decoding to the fixed point, then dropping parameters, merging slashes and resolving dots is one
//!   member; so is decoding once, or dropping parameters before the decoding makes new ones.
//!
//! An allowed prefix has to hold in every reading and a blocked prefix denies if it holds in one, so a rule never
//! lets out more, and never blocks less, than any reading of it. A path with more readings than [`MAX_READINGS`]
//! cannot be read, and what cannot be read is denied. Nearly all paths have none of the characters that matter; they
//! are their own only reading, which [`is_plain`] finds in one pass without allocating.

use std::borrow::Cow;

mod steps;

use steps::STEPS;

/// The most readings a path may have. Paths in honest use have one or two, a few with parameters and escapes at once
/// have four.
const MAX_READINGS: usize = 64;

/// The most bytes that all readings of a path but the first two may take together.
const MAX_READING_BYTES: usize = 256 * 1024;

/// A path has more readings than are worth following, as one escaped over and over has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyReadings;

/// Every reading of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Readings {
    /// The path is its own only reading.
    Plain,
    /// The literal reading, then the servers' readings.
    Several(Vec<Box<[u8]>>),
}

impl Readings {
    /// Every reading of a raw path, and what [`normalise`] made of it.
    pub(crate) fn of(raw: &str, sent: &str) -> Result<Self, TooManyReadings> {
        if is_plain(raw) {
            return Ok(Self::Plain);
        }
        let mut readings: Vec<Box<[u8]>> = vec![literal(sent).as_bytes().into()];
        let resolved = steps::resolve_fully(raw);
        if *resolved != *readings.concat() {
            readings.push(resolved.into());
        }
        let mut bytes = 0;
        let mut at = 0;
        while let Some(reading) = readings.get(at) {
            let next: Vec<Vec<u8>> = STEPS.iter().filter_map(|step| step(reading)).collect();
            for reading in next {
                if readings.iter().any(|known| **known == *reading) {
                    continue;
                }
                bytes += if readings.len() < 2 { 0 } else { reading.len() };
                if readings.len() == MAX_READINGS || bytes > MAX_READING_BYTES {
                    return Err(TooManyReadings);
                }
                readings.push(reading.into());
            }
            at += 1;
        }
        Ok(Self::Several(readings))
    }

    /// The literal reading of `sent`, whose readings these are, and the others.
    pub(crate) fn split<'a>(&'a self, sent: &'a str) -> (&'a [u8], &'a [Box<[u8]>]) {
        match self {
            Self::Several(all) => all.split_first().map_or((sent.as_bytes(), &[]), |(first, others)| (first, others)),
            Self::Plain => (sent.as_bytes(), &[]),
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Plain => 1,
            Self::Several(readings) => readings.len(),
        }
    }
}

/// The bytes that mean the same to every server wherever they stand in a path.
const fn is_plain_byte(byte: u8) -> bool {
    matches!(byte, b'!' | b'$' | b'&'..=b':' | b'=' | b'@'..=b'[' | b']'..=b'_' | b'a'..=b'z' | b'|' | b'~')
}

static PLAIN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        #[expect(
            clippy::indexing_slicing,
            clippy::cast_possible_truncation,
            reason = "evaluated by the compiler, below 256"
        )]
        {
            table[byte] = is_plain_byte(byte as u8);
        }
        byte += 1;
    }
    table
};

/// Whether every server reads `path` the same way: it begins with `/` and has no escape, parameter, backslash, empty
/// or dot segment, nor a character outside those of RFC 3986.
pub(crate) fn is_plain(path: &str) -> bool {
    let bytes = path.as_bytes();
    // Set behind a `/` and behind `/.`, where a dot segment or an empty one could end.
    let mut segment_is_dots = false;
    let mut after_slash = false;
    for &byte in bytes {
        if !PLAIN.get(usize::from(byte)).copied().unwrap_or(false) {
            return false;
        }
        match byte {
            b'/' => {
                if segment_is_dots || after_slash {
                    return false;
                }
                after_slash = true;
            }
            b'.' => {
                segment_is_dots |= after_slash;
                after_slash = false;
            }
            _ => {
                segment_is_dots = false;
                after_slash = false;
            }
        }
    }
    bytes.first() == Some(&b'/') && !segment_is_dots
}

/// The path as the WHATWG URL standard writes it for http and https, from the raw text between authority and query.
pub(crate) fn normalise(raw: &str) -> Cow<'_, str> {
    if is_plain(raw) {
        return Cow::Borrowed(raw);
    }
    let raw = raw.strip_prefix(['/', '\\']).unwrap_or(raw);
    let mut segments: Vec<&str> = Vec::new();
    let mut rest = raw.split(['/', '\\']).peekable();
    while let Some(segment) = rest.next() {
        let last = rest.peek().is_none();
        match dots(segment) {
            Some(2) => {
                segments.pop();
            }
            Some(_) => {}
            None => segments.push(segment),
        }
        if last && dots(segment).is_some() {
            segments.push("");
        }
    }
    let mut path = String::with_capacity(raw.len() + 1);
    for segment in segments {
        path.push('/');
        encode_into(segment, &mut path);
    }
    Cow::Owned(path)
}

/// Whether a raw path has segments that [`normalise`] resolves.
pub(crate) fn has_dot_segments(raw: &str) -> bool {
    raw.split(['/', '\\']).any(|segment| dots(segment).is_some())
}

/// How many dots a segment consists of, where it is a single-dot or double-dot segment of the URL standard, in which
/// `%2e` counts as a dot.
fn dots(segment: &str) -> Option<usize> {
    let mut rest = segment.as_bytes();
    let mut dots = 0;
    while !rest.is_empty() {
        rest = match rest {
            [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] => rest,
            _ => return None,
        };
        dots += 1;
    }
    (dots == 1 || dots == 2).then_some(dots)
}

/// Appends `segment` with the path percent-encode set of the URL standard applied.
fn encode_into(segment: &str, path: &mut String) {
    for character in segment.chars() {
        if matches!(character, '!' | '$'..=';' | '=' | '@'..='_' | 'a'..='z' | '|' | '~') {
            path.push(character);
        } else {
            let mut buffer = [0; 4];
            for byte in character.encode_utf8(&mut buffer).bytes() {
                push_escape(byte, path);
            }
        }
    }
}

fn push_escape(byte: u8, path: &mut String) {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0').to_ascii_uppercase();
    path.extend(['%', digit(byte >> 4), digit(byte & 15)]);
}

/// The literal reading of a path that [`normalise`] returned.
pub(crate) fn literal(sent: &str) -> Cow<'_, str> {
    if !sent.contains('%') {
        return Cow::Borrowed(sent);
    }
    let mut reading = String::with_capacity(sent.len());
    let mut rest = sent;
    while let Some(at) = rest.find('%') {
        let (before, escape) = rest.split_at(at);
        reading.push_str(before);
        match steps::escaped(escape.as_bytes()) {
            Some(byte) => {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                        reading.push(char::from(byte))
                    }
                    _ => push_escape(byte, &mut reading),
                }
                rest = escape.get(3..).unwrap_or_default();
            }
            None => {
                reading.push_str("%25");
                rest = escape.get(1..).unwrap_or_default();
            }
        }
    }
    reading.push_str(rest);
    Cow::Owned(reading)
}

/// The other reading that the path of a rule may have: its escapes decoded once; none where there are no escapes.
pub(crate) fn decoded(literal: &[u8]) -> Option<Vec<u8>> {
    steps::decode(literal)
}

/// Whether a rule's `prefix`, in its literal reading, holds on a segment border in the literal reading of a path, and
/// in each of the others as it is or decoded.
pub(crate) fn is_within(literal: &[u8], others: &[Box<[u8]>], prefix: &[u8]) -> bool {
    let holds = |path: &[u8]| path.starts_with(prefix) && is_border(path, prefix.len());
    holds(literal) && others.iter().all(|other| holds(other) || has_decoded_prefix_on_border(other, prefix))
}

/// Whether a prefix of `path` of that length ends with `/`, before one, or with the path.
fn is_border(path: &[u8], length: usize) -> bool {
    let last = length.checked_sub(1).and_then(|last| path.get(last));
    last == Some(&b'/') || path.get(length).is_none_or(|next| *next == b'/')
}

/// Whether a prefix of `path` that ends on a border is `escaped` with its escapes decoded once.
fn has_decoded_prefix_on_border(path: &[u8], escaped: &[u8]) -> bool {
    let mut rest = escaped;
    let mut length = 0;
    while let Some((first, behind)) = rest.split_first() {
        let (byte, behind) = match steps::escaped(rest) {
            Some(byte) => (byte, rest.get(3..).unwrap_or_default()),
            None => (*first, behind),
        };
        if path.get(length) != Some(&byte) {
            return false;
        }
        length += 1;
        rest = behind;
    }
    is_border(path, length)
}

#[cfg(test)]
mod tests;
