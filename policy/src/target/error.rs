//! Why a target cannot be read.

use crate::host::HostError;
use crate::reason::Reason;

/// Why a text is not a target; its display says what was expected and what was found, and is safe to log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// No scheme, or no authority behind it.
    #[error("expected an absolute URL such as `https://example.com/path`, found {0}")]
    NotAbsolute(String),
    /// A request target inside a tunnel that is not a path.
    #[error("expected a request target that begins with `/`, found {0}")]
    NotOriginForm(String),
    /// A scheme that policy does not know.
    #[error("expected one of the schemes http, https, ws and wss, found {0}")]
    UnsupportedScheme(String),
    /// Userinfo where none may stand.
    #[error("expected a host, found userinfo in front of it")]
    Userinfo,
    /// A fragment on the wire.
    #[error("expected a request target, found a fragment behind it")]
    Fragment,
    /// A character that may not stand in a target.
    #[error("expected visible ASCII, found {0:?}")]
    Character(char),
    /// The host cannot be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// An authority without a port.
    #[error("expected `host:port`, found no port in {0}")]
    PortMissing(String),
    /// A port that is not a number from 1 to 65535 without sign or leading zero.
    #[error("expected a port from 1 to 65535, found {0}")]
    Port(String),
    /// A path that servers could read in more ways than are followed.
    #[error("expected a path with one meaning, found one escaped so often that it has too many")]
    TooManyReadings,
}

impl TargetError {
    /// [`Reason::UnsupportedScheme`] or [`Reason::Malformed`].
    #[must_use]
    pub const fn reason(&self) -> Reason {
        match self {
            Self::UnsupportedScheme(_) => Reason::UnsupportedScheme,
            _ => Reason::Malformed,
        }
    }

    pub(super) fn not_absolute(found: &str) -> Self {
        Self::NotAbsolute(excerpt(found))
    }

    pub(super) fn not_origin_form(found: &str) -> Self {
        Self::NotOriginForm(excerpt(found))
    }

    pub(super) fn unsupported_scheme(found: &str) -> Self {
        Self::UnsupportedScheme(excerpt(found))
    }

    pub(super) fn port(found: &str) -> Self {
        Self::Port(excerpt(found))
    }

    pub(super) fn port_missing(found: &str) -> Self {
        Self::PortMissing(excerpt(found))
    }

    /// What the URL parser's error means here; `authority` is the authority as written in `url`.
    pub(super) fn of_url(error: url::ParseError, url: &str, authority: &str) -> Self {
        match error {
            url::ParseError::EmptyHost => Self::Host(HostError::Empty),
            url::ParseError::InvalidIpv4Address => Self::Host(HostError::Ipv4),
            url::ParseError::InvalidIpv6Address => Self::Host(HostError::Ipv6),
            url::ParseError::IdnaError | url::ParseError::InvalidDomainCharacter => Self::Host(HostError::Idna),
            url::ParseError::InvalidPort => Self::port(authority.rsplit(':').next().unwrap_or_default()),
            _ => Self::not_absolute(url),
        }
    }
}

/// A short, escaped quotation of what was found.
fn excerpt(found: &str) -> String {
    const LENGTH: usize = 60;
    match found.char_indices().nth(LENGTH) {
        None => format!("{found:?}"),
        Some((end, _)) => format!("{:?}…", found.get(..end).unwrap_or_default()),
    }
}
