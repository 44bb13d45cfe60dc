//! How rules, judgements and diagnostics are shown to machines: the same members wherever there is one.

use exeat_policy::analyse::suggest::{Observations, Options};
use exeat_policy::diag::Diagnostic;
use exeat_policy::{Policy, Reason, RuleRef};
use serde::Serialize;

use crate::judge::{Asked, Judgement};

/// A rule, where it belongs and where it is written.
#[derive(Clone, Copy, Debug, Serialize)]
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

/// A judgement: what `exeat check --json` writes.
#[derive(Debug, Serialize)]
pub(crate) struct JudgementView<'a> {
    /// What was to be judged, as it was written.
    pub(crate) input: &'a str,
    /// The method that URLs are judged for.
    pub(crate) method: &'a str,
    /// `allow` or `deny` for a URL; `permit`, `inspect` or `deny` for an authority.
    pub(crate) verdict: &'static str,
    /// Why.
    pub(crate) reason: &'static str,
    /// The rule that decided.
    pub(crate) rule: Option<RuleView<'a>>,
    /// The names of the fields that would be put on.
    pub(crate) inject: &'a [String],
}

impl<'a> JudgementView<'a> {
    /// Shows a judgement of `input`.
    pub(crate) fn new(input: &'a str, method: &'a str, judgement: &'a Judgement<'a>) -> Self {
        Self {
            input,
            method,
            verdict: judgement.verdict,
            reason: judgement.reason.as_str(),
            rule: judgement.rule.map(RuleView::from),
            inject: &judgement.inject,
        }
    }
}

/// What would have to be written for something that a policy refused.
#[derive(Debug, Serialize)]
pub(crate) struct SuggestionView<'a> {
    /// The layer that lacks a rule; none where a manifest of any layer would do.
    layer: Option<&'a str>,
    /// Patterns to add to its `allowed`, the narrowest that are readable.
    allow: Vec<String>,
    /// What they would permit beside what was refused.
    also_permits: Vec<String>,
    /// The rule that stands against it, and would have to go or be narrowed: no other rule helps.
    blocked_by: Option<RuleView<'a>>,
}

impl<'a> SuggestionView<'a> {
    /// What would permit `asked`, which was refused by `policy` as `judgement` says; none where no rule would.
    pub(crate) fn of(policy: &Policy, asked: &Asked, judgement: &Judgement<'a>) -> Option<Self> {
        let layer = judgement.layer;
        match judgement.reason {
            Reason::Blocked => {
                let blocked_by = judgement.rule.map(RuleView::from);
                return Some(Self { layer, allow: Vec::new(), also_permits: Vec::new(), blocked_by });
            }
            Reason::NotAllowed | Reason::DefaultDeny => {}
            _ => return None,
        }
        let mut seen = Observations::default();
        match asked {
            Asked::Url(target) => seen.request(target),
            Asked::Authority(authority) => seen.tunnel(authority),
        }
        let suggestion = seen.suggest(Options::default(), Some(policy));
        let (allow, also_permits) =
            suggestion.rules.into_iter().map(|rule| (rule.pattern.to_string(), rule.also)).unzip();
        Some(Self { layer, allow, also_permits, blocked_by: None })
    }
}
