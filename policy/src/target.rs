//! Targets: what a request asks for, read once.
//!
//! A [`Target`] is the one value that is decided on, injected for and dialled. Three readers make one:
//!
//! * [`Target::parse`] reads what a person wrote, as a browser's address field would: the WHATWG URL standard with
//!   its leniency. Userinfo and fragment play no part in the decision and are reported by flags.
//! * [`Target::parse_wire`] reads the absolute form of a request target (RFC 9112, section 3.2.2). The wire has no
//!   use for leniency: userinfo, fragments, white space, control and non-ASCII characters are errors.
//! * [`Target::from_parts`] joins a tunnel's authority with the path of a request seen inside it.
//!
//! All three give the path that is to be sent upstream, [`Target::path_and_query`]: dot segments resolved and odd
//! characters escaped as the URL standard has it. Sending exactly that is what makes the decision hold; sending the
//! client's own spelling would let the upstream resolve what was judged otherwise.

use std::borrow::Cow;
use std::fmt;

mod authority;
mod error;

pub use authority::Authority;
pub use error::TargetError;

use crate::host::Host;
use crate::path::{self, Readings};
use crate::pattern::Prefix;

/// The schemes that policy tells apart; `ws` counts as http and `wss` as https.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// `http`, `ws`.
    Http,
    /// `https`, `wss`.
    Https,
}

impl Scheme {
    /// `"http"` or `"https"`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// 80 or 443.
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// A host and a port as a URL of this scheme has them.
    #[must_use]
    pub const fn short_authority(self, host: &Host, port: u16) -> ShortAuthority<'_> {
        ShortAuthority { scheme: self, host, port }
    }

    /// Scheme and whether it is that of a WebSocket, from a name in any case.
    fn parse(name: &str) -> Option<(Self, bool)> {
        let schemes = [
            ("http", Self::Http, false),
            ("https", Self::Https, false),
            ("ws", Self::Http, true),
            ("wss", Self::Https, true),
        ];
        schemes.into_iter().find(|(known, ..)| name.eq_ignore_ascii_case(known)).map(|(_, scheme, ws)| (scheme, ws))
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One parsed request URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    scheme: Scheme,
    websocket: bool,
    userinfo: bool,
    fragment: bool,
    authority: Authority,
    path_and_query: Box<str>,
    path_length: usize,
    readings: Readings,
}

impl Target {
    /// Reads a URL that a person wrote, as the WHATWG URL standard does, white space around it dropped.
    ///
    /// # Errors
    ///
    /// [`TargetError`] where it is no absolute URL of a supported scheme, or its host, port or path cannot be read.
    /// Control characters, which the standard ignores, are an error too.
    pub fn parse(url: &str) -> Result<Self, TargetError> {
        let url = url.trim_ascii();
        if let Some(found) = url.chars().find(|found| found.is_control()) {
            return Err(TargetError::Character(found));
        }
        let Some((name, rest)) = split_scheme(url) else { return Err(TargetError::not_absolute(url)) };
        let Some((scheme, websocket)) = Scheme::parse(name) else { return Err(TargetError::unsupported_scheme(name)) };
        let rest = rest.trim_start_matches(['/', '\\']);
        let (written, rest) = rest.split_at(rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len()));
        let path = rest.split(['?', '#']).next().unwrap_or_default();
        let parsed = url::Url::parse(url).map_err(|error| TargetError::of_url(error, url, written))?;
        let host = parsed.host().ok_or_else(|| TargetError::not_absolute(url))?;
        let port = parsed.port().unwrap_or(scheme.default_port());
        if port == 0 {
            return Err(TargetError::port("0"));
        }
        let authority = Authority::new(Host::from_url(&host)?, port);
        let mut target = Self::new(scheme, authority, path, parsed.query())?;
        target.websocket = websocket;
        target.userinfo = written.contains('@');
        target.fragment = parsed.fragment().is_some();
        Ok(target)
    }

    /// Reads the absolute form of a request target as it stands on the wire (RFC 9112, section 3.2.2).
    ///
    /// # Errors
    ///
    /// [`TargetError`] as for [`Target::parse`], and for userinfo, a fragment, and any character outside visible
    /// ASCII.
    pub fn parse_wire(url: &str) -> Result<Self, TargetError> {
        check_wire(url)?;
        let Some((name, rest)) = split_scheme(url) else { return Err(TargetError::not_absolute(url)) };
        let Some((scheme, websocket)) = Scheme::parse(name) else { return Err(TargetError::unsupported_scheme(name)) };
        let rest = rest.strip_prefix("//").ok_or_else(|| TargetError::not_absolute(url))?;
        let end = rest.find(['/', '?', '\\']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let authority = Authority::parse_in_url(authority, scheme)?;
        let mut target = Self::from_path_and_query(scheme, authority, rest)?;
        target.websocket = websocket;
        Ok(target)
    }

    /// The target of a request seen inside a tunnel to `authority`: `path_and_query` is its request target in origin
    /// form (RFC 9112, section 3.2.1).
    ///
    /// # Errors
    ///
    /// [`TargetError`] where it does not begin with `/`, or has a fragment or a character outside visible ASCII.
    pub fn from_parts(scheme: Scheme, authority: &Authority, path_and_query: &str) -> Result<Self, TargetError> {
        check_wire(path_and_query)?;
        if !path_and_query.starts_with('/') {
            return Err(TargetError::not_origin_form(path_and_query));
        }
        Self::from_path_and_query(scheme, authority.clone(), path_and_query)
    }

    fn from_path_and_query(scheme: Scheme, authority: Authority, text: &str) -> Result<Self, TargetError> {
        let (path, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
        Self::new(scheme, authority, path, query)
    }

    fn new(scheme: Scheme, authority: Authority, raw: &str, query: Option<&str>) -> Result<Self, TargetError> {
        let raw = if raw.is_empty() { "/" } else { raw };
        let path = path::normalise(raw);
        let readings = Readings::of(raw, &path).map_err(|path::TooManyReadings| TargetError::TooManyReadings)?;
        let path_length = path.len();
        let path_and_query = match query {
            None => path.into_owned(),
            Some(query) => [&*path, "?", query].concat(),
        };
        Ok(Self {
            scheme,
            websocket: false,
            userinfo: false,
            fragment: false,
            authority,
            path_and_query: path_and_query.into(),
            path_length,
            readings,
        })
    }

    /// The scheme, as policy counts it.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Whether the scheme was written `ws` or `wss`.
    #[must_use]
    pub const fn is_websocket(&self) -> bool {
        self.websocket
    }

    /// Whether the URL had userinfo, which the decision ignores. Always false for targets from the wire, where it is
    /// an error.
    #[must_use]
    pub const fn had_userinfo(&self) -> bool {
        self.userinfo
    }

    /// Whether the URL had a fragment, which is never sent. Always false for targets from the wire.
    #[must_use]
    pub const fn had_fragment(&self) -> bool {
        self.fragment
    }

    /// Host, and port where it is not the scheme's default.
    #[must_use]
    pub const fn short_authority(&self) -> ShortAuthority<'_> {
        self.scheme.short_authority(self.host(), self.port())
    }

    /// Host and port.
    #[must_use]
    pub const fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The host.
    #[must_use]
    pub const fn host(&self) -> &Host {
        self.authority.host()
    }

    /// The port: the written one, or the scheme's default.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.authority.port()
    }

    /// The path that is sent upstream; it begins with `/`.
    #[must_use]
    pub fn path(&self) -> &str {
        self.path_and_query.get(..self.path_length).unwrap_or_default()
    }

    /// The query without its `?`, where there is one.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.path_and_query.get(self.path_length..).and_then(|rest| rest.strip_prefix('?'))
    }

    /// The request target in origin form, exactly as it has to be sent upstream for the decision to hold.
    #[must_use]
    pub fn path_and_query(&self) -> &str {
        &self.path_and_query
    }

    /// The path's literal reading: what rules with a path are compared with, and the form for logs.
    #[must_use]
    pub fn literal_path(&self) -> Cow<'_, str> {
        path::literal(self.path())
    }

    /// Whether the target lies at the prefix's origin and [within its path](Self::has_path_within).
    #[must_use]
    pub fn is_within(&self, prefix: &Prefix) -> bool {
        self.scheme == prefix.scheme()
            && self.port() == prefix.port()
            && self.host() == prefix.host()
            && self.has_path_within(prefix)
    }

    /// Whether every reading of the path begins with the prefix's path and leaves it on a segment border, whatever
    /// the origin.
    #[must_use]
    pub fn has_path_within(&self, prefix: &Prefix) -> bool {
        let (literal, others) = self.readings();
        path::is_within(literal, others, prefix.path().as_bytes())
    }

    /// Whether some server could read the path as `path` or as one below it: in any reading, in any case, with or
    /// without a slash at the end. Where [`Self::has_path_within`] is for what is permitted, this is for what is
    /// restricted.
    #[must_use]
    pub fn may_be_within(&self, path: &str) -> bool {
        self.any_reading(path, |rest| rest.is_empty() || rest.starts_with(b"/"))
    }

    /// Whether some server could read the path as `path`.
    #[must_use]
    pub fn may_be(&self, path: &str) -> bool {
        self.any_reading(path, |rest| matches!(rest, b"" | b"/"))
    }

    fn any_reading(&self, path: &str, rest: impl Fn(&[u8]) -> bool) -> bool {
        let path = path.strip_suffix('/').unwrap_or(path).as_bytes();
        let (literal, others) = self.readings();
        std::iter::once(literal).chain(others.iter().map(|reading| &**reading)).any(|reading| {
            reading
                .split_at_checked(path.len())
                .is_some_and(|(start, end)| start.eq_ignore_ascii_case(path) && rest(end))
        })
    }

    /// The literal reading of the path as bytes, then every other reading.
    pub(crate) fn readings(&self) -> (&[u8], &[Box<[u8]>]) {
        self.readings.split(self.path())
    }
}

/// A host, and a port where it is not the scheme's default: what stands in a URL and in a Host field (RFC 9110
/// section 7.2).
#[derive(Clone, Copy, Debug)]
pub struct ShortAuthority<'a> {
    scheme: Scheme,
    host: &'a Host,
    port: u16,
}

impl fmt::Display for ShortAuthority<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.host.fmt(f)?;
        if self.port == self.scheme.default_port() { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

/// The URL as it is fetched: policy's scheme, the port where it is not the default, path and query.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.short_authority(), self.path_and_query)
    }
}

/// Splits a scheme (RFC 3986, section 3.1) from what stands behind its colon.
fn split_scheme(url: &str) -> Option<(&str, &str)> {
    let (name, rest) = url.split_once(':')?;
    let valid = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    valid.then_some((name, rest))
}

/// What a request target on the wire may not contain, whatever its form.
fn check_wire(text: &str) -> Result<(), TargetError> {
    if text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Ok(());
    }
    match text.chars().find(|found| !found.is_ascii_graphic()) {
        Some(found) => Err(TargetError::Character(found)),
        None => Err(TargetError::Fragment),
    }
}

#[cfg(test)]
mod tests;
