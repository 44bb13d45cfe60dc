//! JSON written member by member into a buffer: what every request is worth, without a value in between.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::net::SocketAddr;

/// An object that is being written. The first member and every later one bring their own comma, so one may be begun
/// anywhere.
#[derive(Debug)]
pub(super) struct Object<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl<'a> Object<'a> {
    /// Begins an object.
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

    /// Begins a member, whose value is to follow. A name is a plain word.
    pub(super) fn name(&mut self, name: &'static str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// A member that is a string.
    pub(super) fn text(&mut self, name: &'static str, value: &str) {
        let out = self.name(name);
        out.push(b'"');
        escape(out, value);
        out.push(b'"');
    }

    /// A member that is a string, if there is one.
    pub(super) fn text_if(&mut self, name: &'static str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    /// A member that is a string, whose text is written as it stands between the quotes.
    pub(super) fn quoted(&mut self, name: &'static str, fill: impl FnOnce(&mut Vec<u8>)) {
        let out = self.name(name);
        out.push(b'"');
        fill(out);
        out.push(b'"');
    }

    /// A member that is a string, as it is shown.
    pub(super) fn shown(&mut self, name: &'static str, value: impl fmt::Display) {
        self.quoted(name, |out| escape_shown(out, value));
    }

    /// A member that is a whole number.
    pub(super) fn number(&mut self, name: &'static str, value: u64) {
        decimal(self.name(name), value);
    }

    /// A member that is a whole number, if there is one.
    pub(super) fn number_if(&mut self, name: &'static str, value: Option<u64>) {
        if let Some(value) = value {
            self.number(name, value);
        }
    }

    /// A member that is an object of its own.
    pub(super) fn object(&mut self, name: &'static str, fill: impl FnOnce(&mut Object<'_>)) {
        let mut inner = Object::begin(self.name(name));
        fill(&mut inner);
        inner.end();
    }

    /// A member that is a list of strings.
    pub(super) fn list<'s>(&mut self, name: &'static str, items: impl Iterator<Item = &'s str>) {
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
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = value;
    while let Some(digit) = at.checked_sub(1).and_then(|before| digits.get_mut(before)) {
        // A remainder of ten.
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        at -= 1;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
}

/// Writes an address and a port as they are shown.
pub(super) fn socket(out: &mut Vec<u8>, address: SocketAddr) {
    match address {
        SocketAddr::V4(address) => {
            for (at, octet) in address.ip().octets().into_iter().enumerate() {
                if at > 0 {
                    out.push(b'.');
                }
                decimal(out, octet.into());
            }
            out.push(b':');
            decimal(out, address.port().into());
        }
        SocketAddr::V6(address) => {
            // Memory takes everything.
            let _ = write!(out, "{address}");
        }
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
    let special = |byte: u8| (byte < 0x20) | (byte == b'"') | (byte == b'\\');
    let mut rest = text.as_bytes();
    // Looked at as a whole, many bytes at a time: there is seldom anything to find.
    if !rest.iter().fold(false, |found, &byte| found | special(byte)) {
        return out.extend_from_slice(rest);
    }
    while let Some(at) = rest.iter().position(|&byte| special(byte)) {
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
            object.text("a", "x");
            object.text_if("b", None);
            object.number("c", u64::MAX);
            object.number_if("d", Some(0));
            object.object("e", |_| {});
            object.object("f", |inner| inner.shown("g", 1.5));
            object.list("h", ["1", "\"2\""].into_iter());
            object.list("i", std::iter::empty());
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
        for text in ["0.0.0.0:0", "127.0.0.1:65535", "[2001:db8::1]:443", "[::ffff:1.2.3.4]:1"] {
            let mut out = Vec::new();
            socket(&mut out, text.parse().unwrap());
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_back(text in any::<String>()) {
            let written = object(|object| {
                object.text("a", &text);
                object.shown("b", &text);
                object.list("c", std::iter::once(&*text));
            });
            prop_assert_eq!(written, json!({ "a": text, "b": text, "c": [text] }));
        }
    }
}
