//! Decisions: a verdict, why, and the rule that made it so.

use std::fmt;
use std::sync::Arc;

use crate::reason::Reason;

/// Which list of a layer a rule stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ListKind {
    /// `network_access.allowed`.
    Allowed,
    /// `network_access.blocked`.
    Blocked,
}

impl ListKind {
    /// `"allowed"` or `"blocked"`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Blocked => "blocked",
        }
    }
}

impl fmt::Display for ListKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A rule as its author wrote it, with the place it stands at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The pattern as written.
    pub pattern: Arc<str>,
    /// The file it stands in.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// A rule together with where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleRef<'p> {
    /// The layer's name.
    pub layer: &'p str,
    /// The layer's position, outermost 0.
    pub layer_index: usize,
    /// The list.
    pub list: ListKind,
    /// Position in the list.
    pub index: usize,
    /// Position among all rules of the policy, below [`Policy::rule_count`](crate::Policy::rule_count); an index for
    /// tables of counters.
    pub number: usize,
    /// The rule itself.
    pub rule: &'p Rule,
}

/// Whether one request may go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It may.
    Allow,
    /// It may not.
    Deny,
}

impl Verdict {
    /// `"allow"` or `"deny"`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// What becomes of a tunnel to `host:port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AuthorityVerdict {
    /// Every request there is permitted: a blind tunnel.
    Permit,
    /// Every https request there is permitted, but not every http one: a blind tunnel that has to open with a TLS
    /// ClientHello for the host. Shown to users as `permit`.
    PermitTls,
    /// It depends on scheme or path, so each request has to be seen.
    Inspect,
    /// No request there is permitted.
    Deny,
}

impl AuthorityVerdict {
    /// `"permit"`, `"inspect"` or `"deny"`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Permit | Self::PermitTls => "permit",
            Self::Inspect => "inspect",
            Self::Deny => "deny",
        }
    }
}

/// The answer to "may this URL be requested?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision<'p> {
    /// Allow or deny.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
    /// The rule that decided; none where no rule did (nothing matched, or no layer restricts).
    pub rule: Option<RuleRef<'p>>,
    /// The layer that decided, where one did: for [`Reason::NotAllowed`] the one whose list lacks a match.
    pub layer: Option<&'p str>,
}

/// The answer to "what becomes of a tunnel to this authority?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthorityDecision<'p> {
    /// Permit, inspect or deny.
    pub verdict: AuthorityVerdict,
    /// Why; for [`AuthorityVerdict::Inspect`] it is [`Reason::Allowed`] or [`Reason::DefaultAllow`].
    pub reason: Reason,
    /// The rule that decided; for inspect, the rule that makes the answer depend on the request.
    pub rule: Option<RuleRef<'p>>,
    /// The layer that decided, where one did.
    pub layer: Option<&'p str>,
}
