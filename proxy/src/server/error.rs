//! Why a gateway does not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use exeat_policy::diag::Diagnostic;

use crate::audit::JournalError;
use crate::intercept::CaError;
use crate::load::LoadError;

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Manifest or config cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Manifest or config has errors.
    #[error("manifest or config has errors")]
    Invalid(Vec<Diagnostic>),
    /// A file of the config or the state folder cannot be used.
    #[error("{0}")]
    File(String),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {cause}; choose another with {flag}, port 0 picks a free one")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The flag that sets it.
        flag: &'static str,
        /// What the system said.
        cause: io::Error,
    },
    /// A Unix socket cannot be listened on.
    #[error("cannot listen on the Unix socket {}: {cause}", path.display())]
    ListenUnix {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The metrics could not be registered.
    #[error("cannot register the metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

impl From<CaError> for StartError {
    fn from(error: CaError) -> Self {
        Self::File(error.to_string())
    }
}

impl From<JournalError> for StartError {
    fn from(error: JournalError) -> Self {
        Self::File(error.to_string())
    }
}

impl From<LoadError> for StartError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Unreadable { path, cause: source } => Self::Unreadable { path, cause: source },
            LoadError::Invalid(diagnostics) => Self::Invalid(diagnostics),
            LoadError::TooLarge(error) => Self::File(error.to_string()),
        }
    }
}
