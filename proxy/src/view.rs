//! How a rule is shown to machines: the same members wherever one is named.

use exeat_policy::RuleRef;
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
