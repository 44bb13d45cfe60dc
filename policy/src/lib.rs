//! What an agent manifest permits, decided without touching anything.
//!
//! The crate reads manifests (`agent.toml`, or the same structure in YAML or JSON) into typed values with every
//! problem reported at its place, compiles the `network_access` lists of one or more layers into an index whose cost
//! does not grow with the number of rules, and answers two questions: may this URL be requested
//! ([`Policy::decide`]), and what is to become of a tunnel to this authority ([`Policy::decide_authority`]). The
//! table of special-purpose addresses ([`guard`]) lives here too, since it is data and not I/O. What rules are good for,
//! and what a change of them does, is asked in [`analyse`].
//!
//! Nothing here performs I/O, reads a clock, spawns a thread or panics: a decision is a value, never an error.

pub mod analyse;
pub mod decision;
pub mod diag;
pub mod doc;
pub mod globs;
pub mod guard;
pub mod host;
pub mod manifest;
mod path;
pub mod pattern;
pub mod policy;
pub mod reason;
pub mod suffix;
pub mod target;

pub use decision::{AuthorityDecision, AuthorityVerdict, Decision, ListKind, Rule, RuleRef, Verdict};
pub use diag::{Code, Diagnostic, Problems, Severity, Source, Span};
pub use globs::{GlobError, NameGlobs};
pub use guard::{AddressClass, GrantError, Grants};
pub use host::{Host, HostError};
pub use manifest::Manifest;
pub use pattern::{Pattern, PatternError, Prefix};
pub use policy::{DefaultVerdict, Layer, Policy, PolicyTooLarge};
pub use reason::Reason;
pub use target::{Authority, Scheme, Target, TargetError};
