//! JSON, read strictly and left where it stands.
//!
//! A gateway that judges a message and passes it on to somebody who reads it anew must not read it differently. So the
//! reader takes RFC 8259 and nothing beside it: no byte order mark, no comments, no `NaN`, nothing behind the value.
//! Where RFC 8259 leaves readers room, this one refuses: a key that is in an object twice (section 4), however it is
//! escaped, and a key that holds half of a surrogate pair (section 8.2). Where readers fold case, as Go's does,
//! [`Object::get`] refuses a key that differs from the asked one in nothing else.
//!
//! Nothing is built of a document: it is checked once, and a [`Value`] is a place in it. What a message is changed by
//! are [`Edits`] of such places, so that every other byte, the spelling of numbers and the order of keys among them,
//! stays as it was.

mod edit;
mod scan;

use std::borrow::Cow;
use std::ops::Range;

pub(crate) use edit::Edits;
use scan::Scanner;

/// How deep arrays and objects may be nested.
pub(crate) const MAX_DEPTH: usize = 128;

/// Why a document is not taken. The texts are fit for whoever sent it; they quote no values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// It is not UTF-8 (RFC 8259 section 8.1).
    #[error("expected UTF-8, found another byte at {0}")]
    NotUtf8(usize),
    /// It begins with U+FEFF (RFC 8259 section 8.1).
    #[error("expected JSON, found a byte order mark before it")]
    ByteOrderMark,
    /// It departs from the grammar.
    #[error("expected JSON, found something else at byte {0}")]
    Syntax(usize),
    /// Something stands behind the value.
    #[error("expected one JSON value, found more behind it at byte {0}")]
    Trailing(usize),
    /// It is nested deeper than [`MAX_DEPTH`].
    #[error("expected JSON nested at most {MAX_DEPTH} deep, found more")]
    TooDeep,
    /// A key is in an object twice.
    #[error("expected each key of an object once, found {0:?} twice")]
    DuplicateKey(String),
    /// A key that some readers take for another one.
    #[error("expected the key {expected:?}, found {found:?}")]
    OtherSpelling {
        /// The key that was looked for.
        expected: &'static str,
        /// The key as it is written.
        found: String,
    },
    /// An escape for half of a surrogate pair.
    #[error("expected whole characters, found half of a surrogate pair at byte {0}")]
    LoneSurrogate(usize),
    /// It is JSON, but not the message that it has to be.
    #[error("{0}")]
    NotAMessage(&'static str),
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An object.
    Object,
    /// An array.
    Array,
    /// A string.
    String,
    /// A number.
    Number,
    /// `true` or `false`.
    Bool,
    /// `null`.
    Null,
}

/// A value where it stands in a checked document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'a> {
    document: &'a str,
    start: usize,
    end: usize,
}

/// Checks a whole document and gives its value.
///
/// # Errors
/// The first departure from what is taken.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value<'_>, Fault> {
    let document = std::str::from_utf8(bytes).map_err(|error| Fault::NotUtf8(error.valid_up_to()))?;
    if document.starts_with('\u{feff}') {
        return Err(Fault::ByteOrderMark);
    }
    let Range { start, end } = scan::check(document)?;
    Ok(Value { document, start, end })
}

/// Whether some reader could find an object or an array in `bytes`: only those are messages. What else there may stand
/// before one, white space of any kind and a byte order mark, is looked past.
pub(crate) fn may_be_message(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes.get(..bytes.len().min(4096)).unwrap_or_default());
    let odd = |character: char| character.is_whitespace() || character.is_control() || character == '\u{feff}';
    let rest = text.trim_start_matches(odd);
    // What is white space for longer than anybody would write is not given the benefit of the doubt.
    rest.starts_with(['{', '[']) || (rest.is_empty() && bytes.len() > 4096)
}

impl<'a> Value<'a> {
    /// The value as it is written.
    pub(crate) fn raw(&self) -> &'a str {
        self.document.get(self.span()).unwrap_or_default()
    }

    /// Where it stands, in bytes of the document.
    pub(crate) const fn span(&self) -> Range<usize> {
        self.start..self.end
    }

    /// What it is.
    pub(crate) fn kind(&self) -> Kind {
        match self.document.as_bytes().get(self.start) {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'n') | None => Kind::Null,
            Some(_) => Kind::Number,
        }
    }

    /// The object that it is.
    pub(crate) fn object(self) -> Option<Object<'a>> {
        (self.kind() == Kind::Object).then_some(Object(self))
    }

    /// The values of the array that it is.
    pub(crate) fn items(self) -> Option<Items<'a>> {
        (self.kind() == Kind::Array)
            .then(|| Items { scanner: Scanner::at(self.document, self.start + 1), document: self.document })
    }

    /// The text of the string that it is.
    ///
    /// # Errors
    /// Half of a surrogate pair.
    pub(crate) fn string(&self) -> Option<Result<Cow<'a, str>, Fault>> {
        if self.kind() != Kind::String {
            return None;
        }
        let inside = self.start + 1..self.end - 1;
        Some(scan::decode(self.document.get(inside.clone()).unwrap_or_default(), inside.start))
    }

    /// The whole number that it is, however it is spelt.
    pub(crate) fn integer(&self) -> Option<i64> {
        let number: f64 = self.raw().parse().ok().filter(|_| self.kind() == Kind::Number)?;
        #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and far below the limit")]
        (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64)
    }
}

/// An object where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object<'a>(Value<'a>);

/// One member of an object.
#[derive(Clone, Debug)]
pub(crate) struct Member<'a> {
    /// The key, unescaped.
    pub(crate) key: Cow<'a, str>,
    /// The value.
    pub(crate) value: Value<'a>,
    /// Where key and value stand.
    pub(crate) span: Range<usize>,
}

impl<'a> Object<'a> {
    /// The members, in order.
    pub(crate) fn members(self) -> Members<'a> {
        Members { scanner: Scanner::at(self.0.document, self.0.start + 1), document: self.0.document }
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// There is a key that a reader which folds case takes for it.
    pub(crate) fn get(self, key: &'static str) -> Result<Option<Value<'a>>, Fault> {
        let mut found = None;
        for member in self.members() {
            if member.key == key {
                found = Some(member.value);
            } else if folds_to(&member.key, key) {
                return Err(Fault::OtherSpelling { expected: key, found: member.key.into_owned() });
            }
        }
        Ok(found)
    }

    /// The object that stands at `key`; none where there is none, or something else.
    ///
    /// # Errors
    /// As [`Object::get`].
    pub(crate) fn object(self, key: &'static str) -> Result<Option<Object<'a>>, Fault> {
        Ok(self.get(key)?.and_then(Value::object))
    }

    /// The string that stands at `key`; none where there is none, or something else.
    ///
    /// # Errors
    /// As [`Object::get`] and [`Value::string`].
    pub(crate) fn string(self, key: &'static str) -> Result<Option<Cow<'a, str>>, Fault> {
        match self.get(key)?.and_then(|value| value.string()) {
            Some(text) => text.map(Some),
            None => Ok(None),
        }
    }

    /// The value it is.
    pub(crate) const fn value(self) -> Value<'a> {
        self.0
    }
}

/// Whether readers that fold case, as Unicode does, take one for the other.
pub(crate) fn folds_to(one: &str, other: &str) -> bool {
    let fold = |character: char| {
        let simple = match character {
            'ſ' => 's',
            '\u{212a}' => 'k',
            other => other,
        };
        simple.to_lowercase()
    };
    one.chars().flat_map(fold).eq(other.chars().flat_map(fold))
}

/// Goes through the members of an object.
#[derive(Clone, Debug)]
pub(crate) struct Members<'a> {
    scanner: Scanner<'a>,
    document: &'a str,
}

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    fn next(&mut self) -> Option<Member<'a>> {
        let scanner = &mut self.scanner;
        scanner.between();
        let from = scanner.position();
        // The document was checked: what does not read as a member is its end.
        let key = scanner.key().ok()?;
        let start = scanner.position();
        let end = scanner.skip()?;
        Some(Member { key, value: Value { document: self.document, start, end }, span: from..end })
    }
}

/// Goes through the values of an array.
#[derive(Clone, Debug)]
pub(crate) struct Items<'a> {
    scanner: Scanner<'a>,
    document: &'a str,
}

impl<'a> Iterator for Items<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.scanner.between();
        let start = self.scanner.position();
        let end = self.scanner.skip()?;
        Some(Value { document: self.document, start, end })
    }
}

#[cfg(test)]
mod tests;
