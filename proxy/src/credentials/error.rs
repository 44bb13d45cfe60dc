//! Why there is no value. The texts name the source, never its content.

use std::path::PathBuf;

/// Why a place that stores a secret gives none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoredError {
    /// The environment variable is not set.
    #[error("the environment variable {0} is not set")]
    EnvMissing(String),
    /// The file could not be read.
    #[error("the file {path} cannot be read: {1}", path = .0.display())]
    FileUnreadable(PathBuf, String),
    /// The value is empty.
    #[error("the value is empty")]
    Empty,
    /// The value cannot stand in a field.
    #[error("the value holds a line end, a NUL or another character that no header field may carry")]
    Unusable,
}

/// Why a program or an authorization server gave no value: one sentence for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MintError(pub(super) String);

impl MintError {
    pub(super) fn new(detail: impl std::fmt::Display) -> Self {
        Self(detail.to_string())
    }
}

/// Why there is no value for a placeholder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SourceError {
    /// No source is configured.
    #[error("${{{0}}} is not bound; add `{0} = {{ env = \"…\" }}` or `{{ file = \"…\" }}` to [bindings]")]
    Unbound(String),
    /// It is stored nowhere that can be read.
    #[error("${{{0}}}: {1}")]
    Stored(String, StoredError),
    /// It was not to be had.
    #[error("${{{0}}}: {1}")]
    Minted(String, MintError),
    /// The server acts as the user, and no user's credentials are bound.
    #[error("${{{0}}}: the server acts as the user, and this version binds no credentials of users")]
    NoUser(String),
}

impl SourceError {
    /// The error without the place of the source, fit for the client.
    pub(crate) fn outside(&self) -> String {
        match self {
            Self::Unbound(name) => format!("the gateway binds no credential to ${{{name}}}"),
            Self::Stored(name, _) | Self::Minted(name, _) => {
                format!("the credential that the gateway binds to ${{{name}}} cannot be used now")
            }
            Self::NoUser(name) => format!("${{{name}}} is the user's own, and no user's credentials are bound here"),
        }
    }
}
