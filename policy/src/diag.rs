//! Diagnostics: what is wrong in a file, where, and what to write instead.
//!
//! Readers collect every problem of a file into a `Vec<Diagnostic>` and go on; nothing stops at the first one. A
//! [`Diagnostic`] keeps the [`Source`] it speaks of, so that whoever prints it can show the line.

use std::fmt;
use std::sync::Arc;

mod codes;
mod problems;

pub use codes::{Code, UnknownCode};
pub use problems::Problems;

/// A range of bytes in a [`Source`], half open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset behind the last byte.
    pub end: usize,
}

impl Span {
    /// The range from `start` up to, not including, `end`.
    #[must_use]
    pub const fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }
}

/// A line and a column, both counted from 1; columns count characters, not bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// The text of one file together with the name it is known by.
#[derive(Debug)]
pub struct Source {
    name: Arc<str>,
    text: Box<str>,
    line_starts: Box<[usize]>,
    /// How many bytes that continue a character stand before each block of [`Source::BLOCK`] bytes; empty for ASCII.
    continued: Vec<usize>,
}

impl Source {
    const BLOCK: usize = 1024;

    /// Takes a file's name (as the user wrote it) and its text.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, text: impl Into<String>) -> Arc<Self> {
        let text = text.into().into_boxed_str();
        let bom = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let breaks = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1);
        let line_starts = std::iter::once(bom).chain(breaks).collect();
        let mut continued = Vec::new();
        if !text.is_ascii() {
            let mut sum = 0;
            for block in text.as_bytes().chunks(Self::BLOCK) {
                continued.push(sum);
                sum += continuations(block);
            }
        }
        Arc::new(Self { name: name.into(), text, line_starts, continued })
    }

    /// The name, shared.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The whole text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Line and column of a byte offset; an offset behind the end is the end. A byte order mark takes no column.
    ///
    /// The time it takes does not grow with the length of the line, so that a file of one line can have as many
    /// positions asked for as one of many.
    #[must_use]
    pub fn position(&self, offset: usize) -> Position {
        let first = self.line_starts.first().copied().unwrap_or(0);
        let offset = offset.clamp(first, self.text.len());
        let line = self.line_starts.partition_point(|&start| start <= offset);
        let start = line.checked_sub(1).and_then(|index| self.line_starts.get(index)).copied().unwrap_or(first);
        let column = (offset - start).saturating_sub(self.continued_before(offset) - self.continued_before(start));
        Position { line: to_u32(line.max(1)), column: to_u32(column + 1) }
    }

    fn continued_before(&self, offset: usize) -> usize {
        let block = offset / Self::BLOCK;
        let Some(before) = self.continued.get(block).or(self.continued.last()) else { return 0 };
        let block = block.min(self.continued.len() - 1) * Self::BLOCK;
        before + self.text.as_bytes().get(block..offset).map_or(0, continuations)
    }
}

/// How many of `bytes` continue a character of UTF-8.
fn continuations(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte & 0b1100_0000 == 0b1000_0000).count()
}

fn to_u32(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// How much a diagnostic matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is wrong; something is worth knowing.
    Note,
    /// The file loads; something in it deserves a look.
    Warning,
    /// The file does not load.
    Error,
}

impl Severity {
    /// `"error"`, `"warning"` or `"note"`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One problem of one file.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// The stable code; it fixes the severity too.
    pub code: Code,
    /// What was expected and what was found.
    pub message: String,
    /// What to write instead.
    pub help: String,
    /// The file.
    pub source: Arc<Source>,
    /// The place in it.
    pub span: Span,
}

impl Diagnostic {
    /// A diagnostic of `code` at `span` of `source`.
    #[must_use]
    pub fn new(
        code: Code,
        source: &Arc<Source>,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self { code, message: message.into(), help: help.into(), source: Arc::clone(source), span }
    }

    /// Error, warning or note, as the code says.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// Where the span begins.
    #[must_use]
    pub fn start(&self) -> Position {
        self.source.position(self.span.start)
    }

    /// Where the span ends.
    #[must_use]
    pub fn end(&self) -> Position {
        self.source.position(self.span.end)
    }
}

impl fmt::Display for Diagnostic {
    /// `FILE:LINE:COLUMN: SEVERITY[CODE]: MESSAGE`, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.start();
        write!(f, "{}:{line}:{column}: {}[{}]: {}", self.source.name(), self.severity(), self.code, self.message)
    }
}

/// Whether any of `diagnostics` is an error.
#[must_use]
pub fn has_errors(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|diagnostic| diagnostic.severity() == Severity::Error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_in_lines() {
        let source = Source::new("file", "name = 1\ngröße = \"ü\"\n");
        let at = |needle: &str| source.position(source.text().find(needle).unwrap());
        assert_eq!(at("name"), Position { line: 1, column: 1 });
        assert_eq!(at("größe"), Position { line: 2, column: 1 });
        assert_eq!(at("= \"ü"), Position { line: 2, column: 7 });
        assert_eq!(source.position(usize::MAX), Position { line: 3, column: 1 });
        assert_eq!(Source::new("empty", "").position(0), Position { line: 1, column: 1 });
        let marked = Source::new("marked", "\u{feff}ab\nc");
        let columns = [0, 3, 4, 5, 6, 7].map(|offset| marked.position(offset)).map(|at| (at.line, at.column));
        assert_eq!(columns, [(1, 1), (1, 1), (1, 2), (1, 3), (2, 1), (2, 2)]);
    }

    #[test]
    fn positions_in_long_lines_agree_with_counting() {
        let text = format!("{}\n{}\n{}", "aé漢😀".repeat(900), "x".repeat(3000), "ü".repeat(2048));
        let source = Source::new("file", text.clone());
        for (offset, _) in text.char_indices().step_by(97).chain([(text.len(), ' ')]) {
            let before = &text[..offset];
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
            let expected = Position { line: line as u32, column: column as u32 };
            assert_eq!(source.position(offset), expected, "{offset}");
        }
    }
}
