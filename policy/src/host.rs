//! Hosts, read one way.
//!
//! A host reaches the gateway in many spellings: `EXAMPLE.com.`, `ex%61mple.com`, `bücher.example`, `0x7f.1`,
//! `[::FFFF:1.2.3.4]`. [`Host::parse`] reads them as the WHATWG URL standard's host parser does (section 3.5:
//! percent-decoding, IDNA, every IPv4 spelling) and keeps the one canonical form; rules are read by the same parser,
//! so equality of hosts is equality of text. On top of the standard, one trailing dot is dropped, since it names the
//! same host, and what no resolver serves is refused: empty labels, labels over 63 and names over 253 bytes, and
//! characters other than letters, digits, `-` and `_`.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

mod embedded;

pub use embedded::{EmbeddedIpv4, embedded_ipv4};

/// The longest label of a name, in bytes (RFC 1035, section 2.3.4).
const MAX_LABEL: usize = 63;
/// The longest name without its trailing dot, in bytes.
const MAX_NAME: usize = 253;

/// A host in canonical form: a lower-case ASCII name, or an address. Cloning shares the text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host(Repr);

/// Small, since there is one for each rule and each request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Repr {
    Name(Arc<str>),
    Address(Arc<(IpAddr, Box<str>)>),
}

/// Why a text is not a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// Nothing is left of it.
    #[error("expected a host, found nothing")]
    Empty,
    /// Two dots in a row, a dot in front, or more than one behind.
    #[error("expected labels separated by single dots, found an empty label")]
    EmptyLabel,
    /// A label longer than DNS carries.
    #[error("expected labels of at most 63 bytes, found a longer one")]
    LabelTooLong,
    /// A name longer than DNS carries.
    #[error("expected a name of at most 253 bytes, found a longer one")]
    NameTooLong,
    /// A character that no host name has.
    #[error("expected letters, digits, `-` and `_` in a host name, found {0:?}")]
    Character(char),
    /// A name whose last label is a number is an IPv4 address, and this one is not.
    #[error("expected an IPv4 address where the last label is a number, found something else")]
    Ipv4,
    /// Brackets that do not hold an IPv6 address; zone identifiers are not accepted.
    #[error("expected an IPv6 address without a zone between brackets, found something else")]
    Ipv6,
    /// IDNA does not map the name, or its percent-encoding is not UTF-8.
    #[error("expected a name that IDNA accepts, found one it does not")]
    Idna,
}

impl Host {
    /// Reads a host as it stands in a URL: a name, an IPv4 address in any spelling, or an IPv6 address in brackets.
    ///
    /// # Errors
    ///
    /// [`HostError`] where the WHATWG host parser fails or one of the stricter rules of this module is broken.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if is_canonical_name(text) {
            return Self::from_name(text);
        }
        if let Some(found) = text.chars().find(|found| found.is_control()) {
            return Err(HostError::Character(found));
        }
        let host = url::Host::parse(text).map_err(|error| of_url_error(error, text))?;
        Self::from_url(&host)
    }

    /// The host of an address.
    #[must_use]
    pub fn from_ip(ip: IpAddr) -> Self {
        let text = match ip {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => {
                let bracketed = url::Host::<&str>::Ipv6(ip).to_string();
                bracketed.trim_start_matches('[').trim_end_matches(']').to_owned()
            }
        };
        Self(Repr::Address(Arc::new((ip, text.into()))))
    }

    /// Takes over what the WHATWG parser made of a host.
    pub(crate) fn from_url<S: AsRef<str>>(host: &url::Host<S>) -> Result<Self, HostError> {
        match host {
            url::Host::Domain(name) => Self::from_name(name.as_ref()),
            url::Host::Ipv4(ip) => Ok(Self::from_ip(IpAddr::V4(*ip))),
            url::Host::Ipv6(ip) => Ok(Self::from_ip(IpAddr::V6(*ip))),
        }
    }

    /// A name that IDNA has passed already.
    fn from_name(name: &str) -> Result<Self, HostError> {
        let name = name.strip_suffix('.').unwrap_or(name);
        if has_fine_labels(name.as_bytes()) {
            return Ok(Self(Repr::Name(name.into())));
        }
        // What is wrong with it?
        if name.is_empty() {
            return Err(HostError::Empty);
        }
        let is_name_byte = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
        if !name.as_bytes().iter().all(is_name_byte) {
            let found = name.chars().find(|found| !u8::try_from(*found).is_ok_and(|byte| is_name_byte(&byte)));
            return Err(HostError::Character(found.unwrap_or(char::REPLACEMENT_CHARACTER)));
        }
        for label in name.split('.') {
            match label.len() {
                0 => return Err(HostError::EmptyLabel),
                1..=MAX_LABEL => {}
                _ => return Err(HostError::LabelTooLong),
            }
        }
        Err(HostError::NameTooLong)
    }

    /// The canonical text: a lower-case ASCII name without a trailing dot, a dotted IPv4 address, or an IPv6 address
    /// (RFC 5952) without brackets.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Repr::Name(name) => name,
            Repr::Address(address) => &address.1,
        }
    }

    /// The text to be shared, where the host is a name.
    pub(crate) const fn name(&self) -> Option<&Arc<str>> {
        match &self.0 {
            Repr::Name(name) => Some(name),
            Repr::Address(_) => None,
        }
    }

    /// The address, where the host is one.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        match &self.0 {
            Repr::Name(_) => None,
            Repr::Address(address) => Some(address.0),
        }
    }

    /// The IPv4 addresses embedded in an IPv6 host; none for names and IPv4 addresses.
    #[must_use]
    pub fn embedded_ipv4(&self) -> EmbeddedIpv4 {
        match self.ip() {
            Some(IpAddr::V6(ip)) => embedded_ipv4(ip),
            _ => EmbeddedIpv4::default(),
        }
    }
}

/// The host as it stands in a URL: IPv6 addresses in brackets.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip() {
            Some(IpAddr::V6(_)) => write!(f, "[{}]", self.as_str()),
            _ => f.write_str(self.as_str()),
        }
    }
}

impl std::str::FromStr for Host {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        Self::parse(text)
    }
}

/// Whether a name consists of labels as [`Host`] wants them, and is not too long.
fn has_fine_labels(name: &[u8]) -> bool {
    let mut label = 0;
    for byte in name {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => label += 1,
            b'.' if (1..=MAX_LABEL).contains(&label) => label = 0,
            _ => return false,
        }
    }
    (1..=MAX_LABEL).contains(&label) && name.len() <= MAX_NAME
}

/// Whether the WHATWG parser would return `text` unchanged as a name, so that it need not run: lower-case ASCII
/// letters, digits, `-`, `_` and dots, no punycode to verify, and a last label that begins with a letter, which is
/// what tells a name from a number.
fn is_canonical_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let last = bytes.strip_suffix(b".").unwrap_or(bytes).rsplit(|byte| *byte == b'.').next().unwrap_or_default();
    last.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.'))
        && !bytes.windows(4).any(|window| window == b"xn--")
}

fn of_url_error(error: url::ParseError, text: &str) -> HostError {
    match error {
        url::ParseError::EmptyHost => HostError::Empty,
        url::ParseError::InvalidIpv4Address => HostError::Ipv4,
        url::ParseError::InvalidIpv6Address => HostError::Ipv6,
        _ => {
            let odd = |found: &char| found.is_ascii() && !found.is_ascii_alphanumeric() && !"-_.%".contains(*found);
            text.chars().find(odd).map_or(HostError::Idna, HostError::Character)
        }
    }
}

#[cfg(test)]
mod tests;
