//! Patterns: what the entries of `allowed` and `blocked` say.
//!
//! There are three kinds, and what is none of them is an error that says what to write instead; an entry that could
//! never match must not pass for a rule:
//!
//! | written | matches |
//! |---|---|
//! | `example.com`, `192.0.2.1`, `2001:db8::1` | that host; any scheme, port and path |
//! | `*.example.com` | the domain itself and every subdomain |
//! | `https://example.com/api/` | scheme, host, port (the scheme's default if none is written) and path prefix |
//!
//! Hosts are read by [`Host::parse`] and paths into the literal reading, as those of requests are. A path may hold escapes
//! (`/projects/acme%2Fapp/`), but nothing that makes servers disagree about where it leads: dot segments,
//! `;parameters`, empty segments and the like are errors.

use std::fmt;

use crate::host::Host;
use crate::suffix::{SuffixKind, suffix_kind};
use crate::target::Scheme;

mod error;
mod origin;
mod parse;

pub use error::PatternError;

/// One entry of `allowed` or `blocked`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// A host, whatever scheme, port and path.
    Host(Host),
    /// A domain and every subdomain of it, whatever scheme, port and path.
    Domain(Host),
    /// A path prefix of one origin.
    Prefix(Prefix),
}

/// An origin and a path prefix of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    scheme: Scheme,
    host: Host,
    port: u16,
    path: Box<str>,
}

impl Prefix {
    /// The scheme.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// The port: the written one, or the scheme's default.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The literal reading of the path; `/` for a whole origin.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether the prefix is the whole origin.
    #[must_use]
    pub fn is_whole_origin(&self) -> bool {
        &*self.path == "/"
    }
}

impl Pattern {
    /// Reads an entry; white space around it is dropped.
    ///
    /// # Errors
    ///
    /// [`PatternError`] for what is no pattern, with a suggestion of what to write.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        parse::parse(text)
    }

    /// The host it names, or whose subdomains it covers.
    #[must_use]
    pub const fn host(&self) -> &Host {
        match self {
            Self::Host(host) | Self::Domain(host) => host,
            Self::Prefix(prefix) => &prefix.host,
        }
    }

    /// Whether it is a wildcard over names that anybody may register: a public suffix of a registry, such as `*.com` or
    /// `*.co.uk`.
    #[must_use]
    pub fn covers_public_suffix(&self) -> bool {
        matches!(self, Self::Domain(host) if suffix_kind(host) == Some(SuffixKind::Registry))
    }
}

/// The canonical spelling: equal patterns display equally.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => write!(f, "{host}"),
            Self::Domain(host) => write!(f, "*.{host}"),
            Self::Prefix(prefix) => write!(f, "{prefix}"),
        }
    }
}

/// The canonical spelling, as a URL; the scheme's default port is left out.
impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.scheme.short_authority(&self.host, self.port);
        write!(f, "{}://{authority}{}", self.scheme, self.path)
    }
}

impl std::str::FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests;
