//! JSON written member by member into a buffer: what every request is worth, without a value in between.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::net::SocketAddr;

/// The name of a member as it is written, with the comma before it and the quote that a string begins with. It is a
/// plain word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name(pub(super) &'static str);

/// The [`Name`] of a member.
macro_rules! name {
    ($name:literal) => {
        $crate::audit::json::Name(concat!(",\"", $name, "\":\""))
    };
}
pub(super) use name;

/// An object that is being written. The first member and every later one bring their own comma, so one may be begun
/// anywhere.
#[derive(Debug)]
pub(super) struct Object<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl<'a> Object<'a> {
    /// Begins an object.
    #[inline]
    pub(super) fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    /// Goes on with one that has members already.
    pub(super) const fn go_on(out: &'a mut Vec<u8>) -> Self {
        Self { out, empty: false }
    }

    /// Ends it.
    pub(super) fn end(self) {
        self.out.push(b'}');
    }

    /// Begins a member, whose value is to follow.
    #[inline]
    pub(super) fn name(&mut self, Name(name): Name) -> &mut Vec<u8> {
        let from = usize::from(std::mem::take(&mut self.empty));
        self.out.extend_from_slice(name.as_bytes().get(from..name.len() - 1).unwrap_or_default());
        self.out
    }

    /// Begins a member that is a string, behind its first quote.
    #[inline]
    pub(super) fn open(&mut self, Name(name): Name) -> &mut Vec<u8> {
        let from = usize::from(std::mem::take(&mut self.empty));
        self.out.extend_from_slice(name.as_bytes().get(from..).unwrap_or_default());
        self.out
    }

    /// A member that is a string.
    #[inline]
    pub(super) fn text(&mut self, name: Name, value: &str) {
        let out = self.open(name);
        escape(out, value);
        out.push(b'"');
    }

    /// A member that is a string, if there is one.
    #[inline]
    pub(super) fn text_if(&mut self, name: Name, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    /// A member that is a string in which nothing has to be escaped, such as a word of this program's own.
    #[inline]
    pub(super) fn plain(&mut self, name: Name, value: &str) {
        debug_assert!(!is_special(value.as_bytes()), "{value:?} is not plain");
        let out = self.open(name);
        out.extend_from_slice(value.as_bytes());
        out.push(b'"');
    }

    /// A member that is a plain string, if there is one.
    #[inline]
    pub(super) fn plain_if(&mut self, name: Name, value: Option<&str>) {
        if let Some(value) = value {
            self.plain(name, value);
        }
    }

    /// A member that is a string, whose text is written as it stands between the quotes.
    #[inline]
    pub(super) fn quoted(&mut self, name: Name, fill: impl FnOnce(&mut Vec<u8>)) {
        let out = self.open(name);
        fill(out);
        out.push(b'"');
    }

    /// A member that is a string, as it is shown.
    pub(super) fn shown(&mut self, name: Name, value: impl fmt::Display) {
        self.quoted(name, |out| escape_shown(out, value));
    }

    /// A member that is a whole number.
    #[inline]
    pub(super) fn number(&mut self, name: Name, value: u64) {
        decimal(self.name(name), value);
    }

    /// A member that is a whole number, if there is one.
    #[inline]
    pub(super) fn number_if(&mut self, name: Name, value: Option<u64>) {
        if let Some(value) = value {
            self.number(name, value);
        }
    }

    /// A member that is an object of its own.
    #[inline]
    pub(super) fn object(&mut self, name: Name, fill: impl FnOnce(&mut Object<'_>)) {
        let mut inner = Object::begin(self.name(name));
        fill(&mut inner);
        inner.end();
    }

    /// A member that is a list of strings.
    pub(super) fn list<'s>(&mut self, name: Name, items: impl Iterator<Item = &'s str>) {
        let out = self.name(name);
        out.push(b'[');
        for (at, item) in items.enumerate() {
            out.extend_from_slice(if at == 0 { b"\"" } else { b",\"" });
            escape(out, item);
            out.push(b'"');
        }
        out.push(b']');
    }
}

/// Writes a whole number.
pub(super) fn decimal(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Writes an address and a port as they are shown.
pub(super) fn socket(out: &mut Vec<u8>, address: SocketAddr) {
    match address {
        SocketAddr::V4(address) => {
            // Room for four octets of four bytes.
            let (mut text, mut end) = ([0; 16], 0);
            for octet in address.ip().octets() {
                let (digits, length) = dotted(octet);
                if let Some(place) = text.get_mut(end..end + digits.len()) {
                    place.copy_from_slice(&digits);
                }
                end += length;
            }
            // The last dot is none.
            out.extend_from_slice(text.get(..end - 1).unwrap_or_default());
            out.push(b':');
            decimal(out, address.port().into());
        }
        SocketAddr::V6(address) => {
            // Memory takes everything.
            let _ = write!(out, "{address}");
        }
    }
}

/// An octet of an address and the dot behind it, and how many bytes that is.
const fn dotted(octet: u8) -> ([u8; 4], usize) {
    let (hundreds, tens, ones) = (b'0' + octet / 100, b'0' + octet / 10 % 10, b'0' + octet % 10);
    match octet {
        100.. => ([hundreds, tens, ones, b'.'], 4),
        10.. => ([tens, ones, b'.', 0], 3),
        _ => ([ones, b'.', 0, 0], 2),
    }
}

/// Writes what stands between the quotes of a string that is shown.
pub(super) fn escape_shown(out: &mut Vec<u8>, value: impl fmt::Display) {
    // Memory takes everything.
    let _ = write!(Escaped(out), "{value}");
}

/// Text between quotes.
struct Escaped<'a>(&'a mut Vec<u8>);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        escape(self.0, text);
        Ok(())
    }
}

/// Writes what stands between the quotes of a string (RFC 8259 section 7).
pub(super) fn escape(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    // There is seldom anything to find.
    if !is_special(rest) {
        return out.extend_from_slice(rest);
    }
    while let Some(at) = rest.iter().position(|&byte| must_be_escaped(byte)) {
        let (plain, special) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((&byte, behind)) = special.split_first() else { break };
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                let _ = write!(out, "\\u{byte:04x}");
            }
        }
        rest = behind;
    }
    out.extend_from_slice(rest);
}

const fn must_be_escaped(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

/// Whether anything in a text has to be escaped.
fn is_special(text: &[u8]) -> bool {
    let (eights, rest) = text.as_chunks();
    // What is left over is looked at together with some of what came before it.
    match text.last_chunk() {
        Some(last) => eights.iter().chain([last]).any(|eight| any_special(*eight)),
        None => rest.iter().any(|byte| must_be_escaped(*byte)),
    }
}

/// Whether any of eight bytes has to be escaped: a byte without its top bit has it when more than the byte is taken off.
/// The lowest that does is one for certain; those above it may only have lent to it, which changes no answer.
const fn any_special(eight: [u8; 8]) -> bool {
    const ONES: u64 = u64::MAX / 0xff;
    const TOPS: u64 = ONES * 0x80;
    let bytes = u64::from_le_bytes(eight);
    let quotes = bytes ^ (ONES * b'"' as u64);
    let slashes = bytes ^ (ONES * b'\\' as u64);
    let controls = bytes.wrapping_sub(ONES * 0x20) & !bytes;
    let equal = (quotes.wrapping_sub(ONES) & !quotes) | (slashes.wrapping_sub(ONES) & !slashes);
    (controls | equal) & TOPS != 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn object(fill: impl FnOnce(&mut Object<'_>)) -> Value {
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out);
        fill(&mut object);
        object.end();
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn members_are_those_that_were_written() {
        let written = object(|object| {
            object.text(name!("a"), "x");
            object.text_if(name!("b"), None);
            object.number(name!("c"), u64::MAX);
            object.number_if(name!("d"), Some(0));
            object.object(name!("e"), |_| {});
            object.object(name!("f"), |inner| inner.shown(name!("g"), 1.5));
            object.list(name!("h"), ["1", "\"2\""].into_iter());
            object.list(name!("i"), std::iter::empty());
        });
        let expected =
            json!({ "a": "x", "c": u64::MAX, "d": 0, "e": {}, "f": { "g": "1.5" }, "h": ["1", "\"2\""], "i": [] });
        assert_eq!(written, expected);
    }

    #[test]
    fn numbers_and_addresses_are_written_as_they_are_shown() {
        for value in [0, 9, 10, 99, 100, 65_535, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            decimal(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), value.to_string());
        }
        for text in [
            "0.0.0.0:0",
            "127.0.0.1:65535",
            "255.255.255.255:1",
            "10.99.100.9:80",
            "[2001:db8::1]:443",
            "[::ffff:1.2.3.4]:1",
        ] {
            let mut out = Vec::new();
            socket(&mut out, text.parse().unwrap());
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn what_has_to_be_escaped_is_found_wherever_it_stands() {
        for length in 0..40 {
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    let mut text = vec![b'a'; length];
                    text[at] = byte;
                    assert_eq!(is_special(&text), must_be_escaped(byte), "{byte:#x} at {at} of {length}");
                    // Bytes that differ from one that has to be escaped by their top bit.
                    text.fill(0xa2);
                    text[at] = byte;
                    assert_eq!(is_special(&text), must_be_escaped(byte), "{byte:#x} at {at} of {length}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_back(text in any::<String>()) {
            let written = object(|object| {
                object.text(name!("a"), &text);
                object.shown(name!("b"), &text);
                object.list(name!("c"), std::iter::once(&*text));
            });
            prop_assert_eq!(written, json!({ "a": text, "b": text, "c": [text] }));
        }
    }
}
