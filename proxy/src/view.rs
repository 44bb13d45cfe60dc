//! How rules and diagnostics are shown to machines: the same members wherever one is named.

use exeat_policy::RuleRef;
use exeat_policy::diag::Diagnostic;
use serde::Serialize;

/// A rule, where it belongs and where it is written.
#[derive(Debug, Serialize)]
pub(crate) struct RuleView<'a> {
    /// The layer's name.
    pub(crate) layer: &'a str,
    /// `allowed` or `blocked`.
    pub(crate) list: &'static str,
    /// The pattern as written.
    pub(crate) pattern: &'a str,
    /// The file it stands in.
    pub(crate) file: &'a str,
    /// Line, from 1.
    pub(crate) line: u32,
    /// Column in characters, from 1.
    pub(crate) column: u32,
}

impl<'a> From<RuleRef<'a>> for RuleView<'a> {
    fn from(RuleRef { layer, list, rule, .. }: RuleRef<'a>) -> Self {
        Self {
            layer,
            list: list.as_str(),
            pattern: &rule.pattern,
            file: &rule.file,
            line: rule.line,
            column: rule.column,
        }
    }
}

/// A diagnostic as a JSON object; the order of its keys is part of the format.
#[derive(Debug, Serialize)]
pub(crate) struct DiagnosticView<'d> {
    code: &'static str,
    severity: &'static str,
    message: &'d str,
    file: &'d str,
    line: u32,
    column: u32,
    end_line: u32,
    end_column: u32,
    help: &'d str,
}

impl<'d> From<&'d Diagnostic> for DiagnosticView<'d> {
    fn from(diagnostic: &'d Diagnostic) -> Self {
        let (start, end) = (diagnostic.start(), diagnostic.end());
        Self {
            code: diagnostic.code.as_str(),
            severity: diagnostic.severity().as_str(),
            message: &diagnostic.message,
            file: diagnostic.source.name(),
            line: start.line,
            column: start.column,
            end_line: end.line,
            end_column: end.column,
            help: &diagnostic.help,
        }
    }
}
