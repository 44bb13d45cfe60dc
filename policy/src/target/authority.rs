//! Authorities: a host and a port.

use std::fmt;

use super::{Scheme, TargetError};
use crate::host::Host;

/// Host and port, as CONNECT and SOCKS name them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Authority {
    host: Host,
    port: u16,
}

impl Authority {
    /// Joins a host and a port. Port 0 is never reachable; readers of requests refuse it before this.
    #[must_use]
    pub const fn new(host: Host, port: u16) -> Self {
        Self { host, port }
    }

    /// Reads the authority form of a request target (RFC 9112, section 3.2.3): `host:port`, both present, IPv6
    /// addresses in brackets.
    ///
    /// # Errors
    ///
    /// [`TargetError`] for userinfo, a missing port, a port that is not a plain number from 1 to 65535 (no sign, no
    /// leading zero), and a host that cannot be read.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let (host, port) = split(text)?;
        let port = port.ok_or_else(|| TargetError::port_missing(text))?;
        if port.starts_with('0') {
            return Err(TargetError::port(port));
        }
        Ok(Self { port: parse_port(port)?, host: Host::parse(host)? })
    }

    /// Reads the authority of an absolute URL: the port may be absent or empty, and have leading zeros, as the URL
    /// standard has it.
    pub(super) fn parse_in_url(text: &str, scheme: Scheme) -> Result<Self, TargetError> {
        let (host, port) = split(text)?;
        let port = match port {
            None | Some("") => scheme.default_port(),
            Some(port) => parse_port(port)?,
        };
        Ok(Self { port, host: Host::parse(host)? })
    }

    /// The host.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

/// `host:port`, IPv6 addresses in brackets.
impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl std::str::FromStr for Authority {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        Self::parse(text)
    }
}

/// Splits host and port, whose colon may be missing.
fn split(text: &str) -> Result<(&str, Option<&str>), TargetError> {
    if text.contains('@') {
        return Err(TargetError::Userinfo);
    }
    let behind_brackets = if text.starts_with('[') { text.find(']').unwrap_or(text.len()) } else { 0 };
    let (brackets, rest) = text.split_at(behind_brackets);
    match rest.find(':') {
        None => Ok((text, None)),
        Some(colon) => {
            let (host, port) = text.split_at(brackets.len() + colon);
            Ok((host, port.strip_prefix(':')))
        }
    }
}

fn parse_port(text: &str) -> Result<u16, TargetError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u16>() {
        Ok(port) if digits && port != 0 => Ok(port),
        _ => Err(TargetError::port(text)),
    }
}
