//! Entries with a scheme: an origin and a path prefix.

use super::{Pattern, PatternError, Prefix, parse};
use crate::path::{self, Readings};
use crate::target::Scheme;

/// Reads what stands before and behind `://`.
pub(super) fn parse(scheme: &str, rest: &str) -> Result<Pattern, PatternError> {
    let scheme = read_scheme(scheme, rest)?;
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (host, port) = read_authority(scheme, authority, path)?;
    let path = read_path(path, &format!("{scheme}://{authority}"))?;
    Ok(Pattern::Prefix(Prefix { scheme, host, port, path }))
}

fn read_scheme(scheme: &str, rest: &str) -> Result<Scheme, PatternError> {
    match scheme.to_ascii_lowercase().as_str() {
        "http" => Ok(Scheme::Http),
        "https" => Ok(Scheme::Https),
        "ws" => Err(PatternError::new(
            "expected the scheme http or https, found `ws`",
            format!("WebSocket requests count as http; write `http://{rest}`"),
        )),
        "wss" => Err(PatternError::new(
            "expected the scheme http or https, found `wss`",
            format!("WebSocket requests count as https; write `https://{rest}`"),
        )),
        "*" => Err(PatternError::new(
            "expected the scheme http or https, found `*`",
            format!("write the host alone for every scheme, or both `http://{rest}` and `https://{rest}`"),
        )),
        other => Err(PatternError::new(
            format!("expected the scheme http or https, found `{}`", other.escape_debug()),
            format!("only http and https leave the gateway; write `https://{rest}`"),
        )),
    }
}

fn read_authority(scheme: Scheme, text: &str, path: &str) -> Result<(crate::host::Host, u16), PatternError> {
    let path = if path.starts_with('/') { path } else { "/" };
    if let Some((_, host)) = text.rsplit_once('@') {
        return Err(PatternError::new(
            "expected a host, found userinfo in front of it",
            format!("credentials play no part in rules; write `{scheme}://{host}{path}`"),
        ));
    }
    let behind_brackets = text.rfind(']').map_or(0, |at| at + 1);
    let (host, port) = match text.split_at(behind_brackets).1.split_once(':') {
        None => (text, None),
        Some((_, port)) => {
            (text.strip_suffix(port).and_then(|host| host.strip_suffix(':')).unwrap_or(text), Some(port))
        }
    };
    if host.is_empty() {
        return Err(PatternError::new(
            format!("expected a host behind `{scheme}://`, found none"),
            format!("write an origin, such as `{scheme}://example.com/`"),
        ));
    }
    if host.contains('*') {
        let domain = host.trim_start_matches(['*', '.']);
        let help = if domain.is_empty() || domain.contains('*') {
            "write one entry for each origin".to_owned()
        } else {
            format!(
                "a URL names one host: write `*.{domain}` for the domain and its subdomains whatever the path, or one \
                 entry for each origin"
            )
        };
        return Err(PatternError::new(format!("expected one host, found the wildcard `{host}`"), help));
    }
    if host.contains('%') {
        return Err(PatternError::new(
            "expected a host name, found '%' in it",
            "write the host's name without percent-encoding, and an IPv6 address without a zone",
        ));
    }
    let port = match port {
        None => scheme.default_port(),
        Some(port) => match port.parse::<u16>() {
            Ok(number) if number != 0 && number.to_string() == port => number,
            _ => {
                return Err(PatternError::new(
                    format!("expected a port from 1 to 65535, found `{port}`"),
                    format!("write `{scheme}://{host}{path}` for the scheme's own port"),
                ));
            }
        },
    };
    Ok((parse::host(host)?, port))
}

/// Reads a path into its literal reading. `origin` is for suggestions.
fn read_path(raw: &str, origin: &str) -> Result<Box<str>, PatternError> {
    if let Some(found) = raw.chars().find(|found| matches!(found, '?' | '#' | '\\')) {
        let part = match found {
            '?' => "a query",
            '#' => "a fragment",
            _ => "`\\`",
        };
        let path = raw.split(found).next().filter(|path| !path.is_empty()).unwrap_or("/");
        return Err(PatternError::new(
            format!("expected a path prefix, found {part}"),
            format!("rules compare paths only; write `{origin}{path}`"),
        ));
    }
    let raw = match raw.strip_suffix("/**") {
        Some("") => "/",
        Some(prefix) => prefix,
        None => raw,
    };
    if let Some(at) = raw.find('*') {
        let before = raw.get(..at).unwrap_or_default();
        let prefix = before.rfind('/').and_then(|slash| before.get(..=slash)).unwrap_or("/");
        return Err(PatternError::new(
            "expected a path prefix, found `*` in it",
            format!("a rule covers everything below its path; write `{origin}{prefix}`"),
        ));
    }
    let sent = path::normalise(raw);
    if path::has_dot_segments(raw) {
        return Err(PatternError::new(
            "expected a path without `.` and `..` segments, found some",
            format!("write `{origin}{sent}`"),
        ));
    }
    if let Some((before, _)) = raw.split_once(';') {
        return Err(PatternError::new(
            "expected a path without `;parameters`, which many servers drop, found some",
            format!("write `{origin}{before}`"),
        ));
    }
    if raw.contains("//") {
        let merged = raw.split('/').filter(|segment| !segment.is_empty()).collect::<Vec<_>>().join("/");
        return Err(PatternError::new(
            "expected a path without empty segments, which many servers merge, found `//`",
            format!("write `{origin}/{merged}{}`", if raw.ends_with('/') && !merged.is_empty() { "/" } else { "" }),
        ));
    }
    // What is left has a literal reading and, with escapes, a decoded one; more than that are escapes of escapes, or
    // of the characters refused above.
    match Readings::of(raw, &sent) {
        Ok(readings) if readings.count() <= 2 => Ok(path::literal(&sent).into()),
        _ => Err(PatternError::new(
            format!("expected a path that servers read alike, found `{raw}`, whose escapes they decode differently"),
            format!("write a prefix that ends before the escape, such as `{origin}{}`", before_escape(&sent)),
        )),
    }
}

/// The whole segments in front of the first escape.
fn before_escape(path: &str) -> &str {
    let end = path.find('%').unwrap_or(path.len());
    let before = path.get(..end).unwrap_or_default();
    before.rfind('/').and_then(|slash| before.get(..=slash)).unwrap_or("/")
}
