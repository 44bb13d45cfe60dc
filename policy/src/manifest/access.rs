//! `network_access`: the patterns of what may be reached and what may not.

use std::collections::HashMap;
use std::sync::Arc;

use crate::decision::{ListKind, Rule};
use crate::diag::{Code, Problems, Source, Span};
use crate::doc::{Field, Fields, Spanned, quoted};
use crate::pattern::Pattern;
use crate::policy::Layer;

/// The `network_access` table. A missing list is an empty one: both add no restriction.
#[derive(Clone, Debug, Default)]
pub struct NetworkAccess {
    /// Where the table stands.
    pub span: Span,
    /// `allowed`, in the order written.
    pub allowed: Vec<AccessRule>,
    /// `blocked`, in the order written.
    pub blocked: Vec<AccessRule>,
}

/// One entry of a list.
#[derive(Clone, Debug)]
pub struct AccessRule {
    /// What it matches.
    pub pattern: Pattern,
    /// How it is written.
    pub written: Spanned<Arc<str>>,
}

impl NetworkAccess {
    /// The list of that kind.
    #[must_use]
    pub fn list(&self, kind: ListKind) -> &[AccessRule] {
        match kind {
            ListKind::Allowed => &self.allowed,
            ListKind::Blocked => &self.blocked,
        }
    }

    /// The rules as a layer of a policy, each with its place in `source`.
    #[must_use]
    pub fn layer(&self, name: impl Into<Arc<str>>, source: &Source) -> Layer {
        let rules =
            |list: &[AccessRule]| list.iter().map(|entry| (entry.pattern.clone(), entry.rule(source))).collect();
        Layer { name: name.into(), allowed: rules(&self.allowed), blocked: rules(&self.blocked) }
    }
}

impl AccessRule {
    fn rule(&self, source: &Source) -> Rule {
        let at = source.position(self.written.span.start);
        Rule {
            pattern: Arc::clone(&self.written.value),
            file: Arc::clone(source.name()),
            line: at.line,
            column: at.column,
        }
    }
}

pub(super) fn read(mut fields: Fields<'_>) -> NetworkAccess {
    let span = fields.span();
    let problems = fields.problems();
    let allowed = fields.take("allowed").map_or_else(Vec::new, patterns);
    let blocked = fields.take("blocked").map_or_else(Vec::new, patterns);
    fields.finish();
    let denied = once(problems, &blocked, ListKind::Blocked);
    once(problems, &allowed, ListKind::Allowed);
    for AccessRule { pattern, written } in &allowed {
        if let Some(line) = denied.get(pattern) {
            let message =
                format!("{} is blocked on line {line}, so nothing it names is let out", quoted(&written.value));
            problems.report(Code::AllowedAndBlocked, written.span, message, "keep it in one of the lists");
        }
        if pattern.covers_public_suffix() {
            let message = format!("{} covers names that anybody can register", quoted(&written.value));
            let help = "write the domains that are needed, such as `*.example.com`";
            problems.report(Code::PublicSuffix, written.span, message, help);
        }
    }
    NetworkAccess { span, allowed, blocked }
}

fn patterns(field: Field<'_>) -> Vec<AccessRule> {
    let problems = field.problems();
    let written = field.strings().map_or_else(Vec::new, Spanned::into_value);
    let mut rules = Vec::with_capacity(written.len());
    for Spanned { value, span } in written {
        match Pattern::parse(&value) {
            Ok(pattern) => {
                // Most rules are a host as it is: one text for both.
                let host = match &pattern {
                    Pattern::Host(host) => host.name().filter(|name| ***name == *value),
                    Pattern::Domain(_) | Pattern::Prefix(_) => None,
                };
                let text = host.cloned().unwrap_or_else(|| value.into());
                rules.push(AccessRule { pattern, written: Spanned::new(text, span) });
            }
            Err(error) => problems.report(Code::Pattern, span, error.message, error.help),
        }
    }
    rules
}

/// Warns of patterns that a list has already, and gives the line of each pattern.
fn once<'r>(problems: &Problems, rules: &'r [AccessRule], list: ListKind) -> HashMap<&'r Pattern, u32> {
    let mut lines = HashMap::with_capacity(rules.len());
    for AccessRule { pattern, written } in rules {
        let line = problems.source().position(written.span.start).line;
        if let Some(first) = lines.get(pattern) {
            let message = format!("{} is {list} on line {first} already", quoted(&written.value));
            problems.report(Code::RepeatedPattern, written.span, message, "remove it");
        } else {
            lines.insert(pattern, line);
        }
    }
    lines
}
