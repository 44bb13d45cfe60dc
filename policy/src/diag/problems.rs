//! Where readers put what they find.

use std::cell::RefCell;
use std::sync::Arc;

use super::{Code, Diagnostic, Severity, Source, Span};

/// Collects the diagnostics of one file while it is read.
///
/// Shared by reference: several readers of one file hold it at once, each reports what it sees and goes on.
#[derive(Debug)]
pub struct Problems {
    source: Arc<Source>,
    found: RefCell<Vec<Diagnostic>>,
}

impl Problems {
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
        self.found.borrow_mut().push(Diagnostic::new(code, &self.source, span, message, help));
    }

    /// Takes over diagnostics made elsewhere.
    pub fn extend(&self, diagnostics: impl IntoIterator<Item = Diagnostic>) {
        self.found.borrow_mut().extend(diagnostics);
    }

    /// Whether an error was reported so far.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.found.borrow().iter().any(|diagnostic| diagnostic.severity() == Severity::Error)
    }

    /// Everything reported, in the order of the file.
    #[must_use]
    pub fn into_vec(self) -> Vec<Diagnostic> {
        let mut found = self.found.into_inner();
        found.sort_by_key(|diagnostic| diagnostic.span);
        found
    }
}
