//! What is wrong with an entry, and what to write instead.

use crate::host::HostError;

/// Why an entry is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PatternError {
    /// What was expected and what was found.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

impl PatternError {
    pub(super) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: help.into() }
    }

    /// A host that cannot be read.
    pub(super) fn host(error: HostError) -> Self {
        let help = match error {
            HostError::Empty => "write a host name, such as `example.com`",
            HostError::EmptyLabel => "write the name with single dots between its labels, and none in front",
            HostError::LabelTooLong | HostError::NameTooLong => {
                "DNS carries no such name; write the name that clients ask for"
            }
            HostError::Character(_) | HostError::Idna => {
                "write the host name alone, such as `example.com`, or an origin with a path, such as \
                 `https://example.com/api/`"
            }
            HostError::Ipv4 => "write four numbers from 0 to 255, such as `192.0.2.1`",
            HostError::Ipv6 => "write an IPv6 address without a zone, such as `2001:db8::1` or `[2001:db8::1]`",
        };
        Self::new(error.to_string(), help)
    }
}
