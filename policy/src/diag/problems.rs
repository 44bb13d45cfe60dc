//! Where readers put what they find.

use std::cell::RefCell;
use std::sync::Arc;

use super::{Code, Diagnostic, Severity, Source, Span};

/// Collects the diagnostics of one file while it is read.
///
/// Shared by reference: several readers of one file hold it at once, each reports what it sees and goes on. It holds at
/// most [`Problems::MOST`] errors; a file that has more says so at the first one left out.
#[derive(Debug)]
pub struct Problems {
    source: Arc<Source>,
    found: RefCell<Found>,
}

#[derive(Debug, Default)]
struct Found {
    list: Vec<Diagnostic>,
    errors: usize,
}

impl Problems {
    /// How many errors of one file are listed.
    pub const MOST: usize = 1000;

    /// An empty collection for one file.
    #[must_use]
    pub fn new(source: &Arc<Source>) -> Self {
        Self { source: Arc::clone(source), found: RefCell::default() }
    }

    /// The file.
    #[must_use]
    pub const fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// Reports `message` at `span`, with what to write instead.
    pub fn report(&self, code: Code, span: Span, message: impl Into<String>, help: impl Into<String>) {
        self.push(Diagnostic::new(code, &self.source, span, message, help));
    }

    /// Takes over diagnostics made elsewhere.
    pub fn extend(&self, diagnostics: impl IntoIterator<Item = Diagnostic>) {
        diagnostics.into_iter().for_each(|diagnostic| self.push(diagnostic));
    }

    fn push(&self, diagnostic: Diagnostic) {
        let mut found = self.found.borrow_mut();
        if diagnostic.severity() == Severity::Error {
            found.errors += 1;
            if found.errors > Self::MOST + 1 {
                return;
            }
            if found.errors == Self::MOST + 1 {
                let message = format!("more than {} errors; the rest is not listed", Self::MOST);
                let help = "mend those listed first";
                found.list.push(Diagnostic::new(Code::TooMany, &self.source, diagnostic.span, message, help));
                return;
            }
        }
        found.list.push(diagnostic);
    }

    /// Whether an error was reported so far.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.found.borrow().errors > 0
    }

    /// Whether further errors are left out, so that looking for them is in vain.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.found.borrow().errors > Self::MOST
    }

    /// Everything reported, in the order of the file.
    #[must_use]
    pub fn into_vec(self) -> Vec<Diagnostic> {
        let mut list = self.found.into_inner().list;
        list.sort_by_key(|diagnostic| diagnostic.span);
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_in_the_order_of_the_file_and_no_more_than_the_limit() {
        let problems = Problems::new(&Source::new("file", "x".repeat(5000)));
        assert!(!problems.has_errors());
        for at in (0..3000).rev() {
            problems.report(Code::Syntax, Span::new(at, at + 1), "wrong", "right it");
        }
        assert!(problems.has_errors() && problems.is_full());
        let list = problems.into_vec();
        assert_eq!(list.len(), Problems::MOST + 1);
        assert!(list.is_sorted_by_key(|diagnostic| diagnostic.span));
        assert_eq!(list.first().map(|diagnostic| diagnostic.code), Some(Code::TooMany));
    }
}
