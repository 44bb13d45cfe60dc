//! Diagnostics: what is wrong in a file, where, and what to write instead.
//!
//! Readers collect every problem of a file into a `Vec<Diagnostic>` and go on; nothing stops at the first one. A
//! [`Diagnostic`] keeps the [`Source`] it speaks of, so that whoever prints it can show the line.

use std::fmt;
use std::sync::Arc;

mod codes;
mod problems;

pub use codes::Code;
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
    text: String,
    line_starts: Vec<usize>,
}

impl Source {
    /// Takes a file's name (as the user wrote it) and its text.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, text: impl Into<String>) -> Arc<Self> {
        let text = text.into();
        let line_starts =
            std::iter::once(0).chain(memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1)).collect();
        Arc::new(Self { name: name.into(), text, line_starts })
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

    /// Line and column of a byte offset; an offset behind the end is the end.
    #[must_use]
    pub fn position(&self, offset: usize) -> Position {
        let offset = offset.min(self.text.len());
        let line = self.line_starts.partition_point(|&start| start <= offset);
        let start = line.checked_sub(1).and_then(|index| self.line_starts.get(index)).copied().unwrap_or(0);
        let column = self.text.get(start..offset).map_or(0, |before| before.chars().count());
        Position { line: to_u32(line.max(1)), column: to_u32(column + 1) }
    }
}

fn to_u32(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// How much a diagnostic matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file loads; something in it deserves a look.
    Warning,
    /// The file does not load.
    Error,
}

impl Severity {
    /// `"error"` or `"warning"`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
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

    /// Error or warning, as the code says.
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
