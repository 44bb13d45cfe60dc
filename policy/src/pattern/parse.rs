//! Entries without a scheme: hosts, addresses, wildcards, and what is often written for them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Pattern, PatternError, origin};
use crate::host::{Host, HostError};

pub(super) fn parse(text: &str) -> Result<Pattern, PatternError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(PatternError::new(
            "expected a pattern, found an empty entry",
            "write a host such as `example.com`, or remove the entry",
        ));
    }
    if let Some(found) = text.chars().find(|found| found.is_whitespace() || found.is_control()) {
        return Err(PatternError::new(
            format!("expected one host or URL, found {found:?} in it"),
            "write one entry for each host",
        ));
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        return origin::parse(scheme, rest);
    }
    if let Some(rest) = text.strip_prefix("//") {
        return Err(PatternError::new(
            "expected a scheme in front of `//`, found none",
            format!("write `https://{rest}`"),
        ));
    }
    if text.bytes().all(|byte| matches!(byte, b'*' | b'.')) && text.contains('*') {
        return Err(PatternError::new(
            format!("expected a host, found `{text}`"),
            "a list that is empty or missing restricts nothing; to permit every host, remove the list, and to \
             permit a domain with its subdomains, write `*.example.com`",
        ));
    }
    if let Some(domain) = text.strip_prefix("*.") {
        return wildcard(domain);
    }
    reject_common_mistakes(text)?;
    host(text).map(Pattern::Host)
}

/// What stands behind `*.`.
fn wildcard(domain: &str) -> Result<Pattern, PatternError> {
    if let Some(address) = host(domain).ok().filter(|host| host.ip().is_some()) {
        return Err(PatternError::new(
            format!("expected a domain behind `*.`, found the address `{address}`"),
            format!("addresses have no subdomains; write `{address}`"),
        ));
    }
    let name = domain.split(['/', ':', '?', '#']).next().unwrap_or_default();
    if name.len() < domain.len() {
        return Err(PatternError::new(
            format!("expected a domain behind `*.`, found `{domain}`"),
            format!("a wildcard covers every scheme, port and path; write `*.{name}`"),
        ));
    }
    reject_common_mistakes(domain)?;
    host(domain).map(Pattern::Domain)
}

/// Reads a host of a rule. Requests may spell an address in any way; a rule may not, since `010.0.0.1` reads as
/// 8.0.0.1 and its author hardly meant that.
pub(super) fn host(text: &str) -> Result<Host, PatternError> {
    if let Ok(ip) = text.parse::<Ipv6Addr>() {
        return Ok(Host::from_ip(IpAddr::V6(ip)));
    }
    let host = Host::parse(text).map_err(PatternError::host)?;
    if let Some(IpAddr::V4(ip)) = host.ip() {
        let written = text.strip_suffix('.').unwrap_or(text).parse::<Ipv4Addr>();
        if written != Ok(ip) {
            return Err(PatternError::new(
                format!("expected an IPv4 address in its usual form, found `{text}`, which reads as `{ip}`"),
                format!("write `{ip}` if that is meant"),
            ));
        }
    }
    Ok(host)
}

/// Names what was probably meant by entries that are no host.
fn reject_common_mistakes(text: &str) -> Result<(), PatternError> {
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok(());
    }
    if let Some((address, length)) = text.split_once('/') {
        let address = address.trim_start_matches('[').trim_end_matches(']');
        if address.parse::<IpAddr>().is_ok() && length.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(PatternError::new(
                format!("expected a host, found the address range `{text}`"),
                "rules name hosts, not ranges; list the addresses or names that are needed. Ranges of special-purpose \
                 addresses are granted in the gateway's `[guard] allow`",
            ));
        }
    }
    if text.contains('@') {
        return Err(PatternError::new(
            "expected a host, found userinfo in front of it",
            format!("write `{}`", text.rsplit('@').next().unwrap_or_default()),
        ));
    }
    if let Some(end) = text.find(['/', '?', '#', '\\']) {
        let (host, rest) = text.split_at(end);
        let path = if rest.starts_with('/') { rest.split(['?', '#']).next().unwrap_or("/") } else { "/" };
        return Err(PatternError::new(
            format!("expected a host, found `{rest}` behind it"),
            format!("a path needs a scheme: write `https://{host}{path}`, or `{host}` for the whole host"),
        ));
    }
    if text.contains('*') {
        return Err(stray_wildcard(text));
    }
    if let Some(found) = text.chars().find(|found| *found == '%') {
        return Err(PatternError::new(
            format!("expected a host name, found {found:?} in it"),
            "write the host's name without percent-encoding, and an IPv6 address without a zone",
        ));
    }
    let behind_brackets = text.rfind(']').map_or(0, |at| at + 1);
    if let Some((_, port)) = text.split_at(behind_brackets).1.split_once(':') {
        let host = text.strip_suffix(port).and_then(|host| host.strip_suffix(':')).unwrap_or(text);
        let help = match port {
            "443" => format!("write `https://{host}/`, or `{host}` for every port"),
            "80" => format!("write `http://{host}/`, or `{host}` for every port"),
            "" => format!("write `{host}`"),
            _ => format!("write `https://{host}:{port}/` or `http://{host}:{port}/`, or `{host}` for every port"),
        };
        return Err(PatternError::new(format!("expected a host, found the port `:{port}` behind it"), help));
    }
    Ok(())
}

fn stray_wildcard(text: &str) -> PatternError {
    let message = format!("expected `*` only in front, as in `*.example.com`, found `{text}`");
    let domain = text.trim_start_matches(['*', '.']);
    if domain.contains('*') || domain.is_empty() {
        return PatternError::new(
            message,
            "list the hosts one by one, or write `*.` in front of the part of the name that they share",
        );
    }
    PatternError::new(message, format!("write `*.{domain}` for the domain and its subdomains"))
}

impl From<HostError> for PatternError {
    fn from(error: HostError) -> Self {
        Self::host(error)
    }
}
