//! JSON as RFC 8259 has it: no comments, no trailing commas, no duplicate keys, no lone surrogates.
//!
//! Mistakes that leave no doubt about what follows (a comment, a comma too many or too few, a bad escape, a bare or
//! single-quoted word) are reported and read over, so that one pass finds them all; anything else ends the reading.

use super::{Keys, MAX_DEPTH, Node, Slot, Value, bom, quoted, too_deep};
use crate::diag::{Code, Problems, Span};

pub(super) fn parse(problems: &Problems) -> Option<Node> {
    let text = problems.source().text();
    let mut reader = Reader { problems, text, at: bom(text) };
    let root = reader.value(1).ok()?;
    reader.blank();
    if reader.at < text.len() {
        let span = Span::new(reader.at, text.len());
        problems.report(Code::Syntax, span, "something stands behind the end of the document", "remove it");
    }
    Some(root)
}

/// The document cannot be read on; the reason has been reported.
struct Lost;

struct Reader<'p> {
    problems: &'p Problems,
    text: &'p str,
    at: usize,
}

impl<'p> Reader<'p> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'p str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn syntax(&self, start: usize, message: impl Into<String>, help: &str) {
        self.problems.report(Code::Syntax, Span::new(start, self.at.max(start)), message, help);
    }

    /// Skips white space, and comments with a report.
    fn blank(&mut self) {
        loop {
            while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
                self.at += 1;
            }
            let start = self.at;
            if self.rest().starts_with("//") {
                self.at += self.rest().find('\n').unwrap_or(self.rest().len());
            } else if self.rest().starts_with("/*") {
                self.at += self.rest().find("*/").map_or(self.rest().len(), |end| end + 2);
            } else {
                return;
            }
            self.syntax(start, "JSON has no comments", "remove the comment, or write the file as TOML or YAML");
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, Lost> {
        self.blank();
        let start = self.at;
        let value = match self.peek() {
            Some(b'{' | b'[') if depth > MAX_DEPTH => {
                too_deep(self.problems, Span::new(start, start + 1));
                return Err(Lost);
            }
            Some(b'{') => self.table(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"') => Value::String(self.string()?),
            Some(b'\'') => Value::String(self.single_quoted()?),
            Some(byte) if is_word(byte) => self.word(),
            Some(_) => {
                let found = self.rest().chars().next().map(String::from).unwrap_or_default();
                self.at += found.len();
                self.syntax(start, format!("expected a value, found {}", quoted(&found)), "write a JSON value here");
                return Err(Lost);
            }
            None => {
                self.syntax(start, "expected a value, found the end of the file", "write a JSON value here");
                return Err(Lost);
            }
        };
        Ok(Node { value, span: Span::new(start, self.at) })
    }

    fn table(&mut self, depth: usize) -> Result<Value, Lost> {
        let open = self.at;
        self.at += 1;
        let mut table = Keys::new();
        while !self.closes(b'}', open)? {
            let start = self.at;
            let key = match self.peek() {
                Some(b'"') => self.string()?,
                Some(b'\'') => self.single_quoted()?,
                Some(byte) if is_word(byte) => {
                    let key = self.take_word().to_owned();
                    self.syntax(start, "keys of JSON stand in double quotes", &format!("write \"{key}\""));
                    key
                }
                _ => {
                    self.at += self.rest().chars().next().map_or(0, char::len_utf8);
                    self.syntax(start, "expected a key in double quotes", "write a key or close the object");
                    return Err(Lost);
                }
            };
            let key_span = Span::new(start, self.at);
            self.blank();
            if !self.eat(b':') {
                self.syntax(self.at, "expected `:` behind the key", "write `:` and a value");
                return Err(Lost);
            }
            let value = self.value(depth + 1)?;
            table.insert(self.problems, Slot { key, key_span, value });
            self.comma(b'}');
        }
        Ok(table.into_table(|node| node))
    }

    fn array(&mut self, depth: usize) -> Result<Value, Lost> {
        let open = self.at;
        self.at += 1;
        let mut items = Vec::new();
        while !self.closes(b']', open)? {
            items.push(self.value(depth + 1)?);
            self.comma(b']');
        }
        Ok(Value::Array(items))
    }

    /// Whether the list opened at `open` ends here.
    fn closes(&mut self, close: u8, open: usize) -> Result<bool, Lost> {
        self.blank();
        if self.peek().is_none() {
            let close = char::from(close);
            self.at = open + 1;
            self.syntax(open, "this is never closed", &format!("close it with `{close}`"));
            return Err(Lost);
        }
        Ok(self.eat(close))
    }

    /// Reads the comma between two items, and reports one too many or too few.
    fn comma(&mut self, close: u8) {
        let end = self.at;
        self.blank();
        let comma = self.at;
        if self.eat(b',') {
            self.blank();
            if self.peek() == Some(close) {
                self.problems.report(
                    Code::Syntax,
                    Span::new(comma, comma + 1),
                    "JSON has no comma behind the last item",
                    "remove the comma",
                );
            }
        } else if self.peek().is_some_and(|byte| byte == b'"' || byte == b'{' || byte == b'[' || is_word(byte)) {
            self.problems.report(Code::Syntax, Span::new(end, end), "a comma is missing here", "write `,`");
        }
    }

    fn take_word(&mut self) -> &'p str {
        let rest = self.rest();
        let length = rest.bytes().position(|byte| !is_word(byte)).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }

    /// A literal name or a number.
    fn word(&mut self) -> Value {
        let start = self.at;
        let word = self.take_word();
        match word {
            "null" => return Value::Null,
            "true" => return Value::Bool(true),
            "false" => return Value::Bool(false),
            _ => {}
        }
        match number(word) {
            Some(value) => value,
            None if word.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '-' | '+' | '.')) => {
                let message = format!("{} is not a JSON number", quoted(word));
                self.syntax(start, message, "write digits with an optional `-`, fraction and exponent");
                Value::Null
            }
            None => {
                let message = format!("{} is not a JSON value", quoted(word));
                self.syntax(start, message, "put text in double quotes; the bare words are null, true and false");
                Value::Null
            }
        }
    }

    fn single_quoted(&mut self) -> Result<String, Lost> {
        let start = self.at;
        let rest = self.rest().get(1..).unwrap_or_default();
        let end = rest.find(['\'', '\n']).filter(|&end| rest.as_bytes().get(end) == Some(&b'\''));
        self.at += end.map_or(1, |end| end + 2);
        self.syntax(start, "strings of JSON stand in double quotes", "replace `'` by `\"`");
        end.and_then(|end| rest.get(..end)).map(str::to_owned).ok_or(Lost)
    }

    fn string(&mut self) -> Result<String, Lost> {
        let start = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = self.rest();
            let plain = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)).unwrap_or(rest.len());
            out.push_str(rest.get(..plain).unwrap_or_default());
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => self.escape(&mut out),
                Some(b'\n') | None => {
                    self.syntax(start, "the string is never closed", "close it with `\"` on the same line");
                    return Err(Lost);
                }
                Some(control) => {
                    self.at += 1;
                    let message = format!("a control character (U+{control:04X}) inside a string");
                    self.syntax(self.at - 1, message, &format!("write `\\u{control:04x}`"));
                }
            }
        }
    }

    fn escape(&mut self, out: &mut String) {
        let start = self.at;
        let kind = self.text.as_bytes().get(start + 1).copied();
        self.at += 2;
        let character = match kind {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => match self.unicode() {
                Some(character) => character,
                None => {
                    let help = "write \\u and four hexadecimal digits; beyond U+FFFF, both surrogates";
                    self.syntax(start, "this escape is no character", help);
                    return;
                }
            },
            _ => {
                self.at = start + 1;
                self.syntax(start, "a `\\` that begins no escape of JSON", "write `\\\\` for a backslash");
                return;
            }
        };
        out.push(character);
    }

    /// What stands behind `\u`, with the second half of a surrogate pair.
    fn unicode(&mut self) -> Option<char> {
        let first = self.hex4()?;
        if !(0xD800..0xDC00).contains(&first) {
            return char::from_u32(first);
        }
        if !self.rest().starts_with("\\u") {
            return None;
        }
        self.at += 2;
        let second = self.hex4()?;
        (0xDC00..0xE000)
            .contains(&second)
            .then(|| 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
            .and_then(char::from_u32)
    }

    fn hex4(&mut self) -> Option<u32> {
        let digits = self.rest().get(..4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        self.at += 4;
        u32::from_str_radix(digits, 16).ok()
    }
}

/// Bytes of literal names and numbers, right or wrong.
const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'+' | b'-' | b'.')
}

/// RFC 8259, section 6; a number that is whole and fits 64 bits is an integer, written without fraction and exponent.
fn number(word: &str) -> Option<Value> {
    let digits = word.strip_prefix('-').unwrap_or(word);
    let whole = digits.bytes().take_while(u8::is_ascii_digit).count();
    if whole == 0 || (whole > 1 && digits.starts_with('0')) {
        return None;
    }
    let rest = digits.get(whole..)?;
    if rest.is_empty() {
        return word.parse().map(Value::Integer).ok().or_else(|| float(word));
    }
    let (fraction, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (rest.get(..at)?, rest.get(at + 1..)),
        None => (rest, None),
    };
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let fraction_holds = fraction.is_empty() || fraction.strip_prefix('.').is_some_and(all_digits);
    let exponent_holds =
        exponent.is_none_or(|exponent| all_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)));
    if fraction_holds && exponent_holds { float(word) } else { None }
}

fn float(word: &str) -> Option<Value> {
    word.parse().ok().filter(|number: &f64| number.is_finite()).map(Value::Float)
}
