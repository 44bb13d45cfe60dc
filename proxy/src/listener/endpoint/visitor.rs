//! Who comes to an endpoint: a program that was told of it, or a browser that a page sent there.
//!
//! A page anywhere can have its visitor's browser send requests to loopback, and with DNS rebinding under a name of its
//! own. It cannot keep the browser from saying so: in Host, in Origin and in Sec-Fetch-Site.

use exeat_policy::Reason;
use exeat_policy::host::Host;
use exeat_policy::target::Authority;
use http::{HeaderMap, HeaderName, header};

use crate::gate::Refusal;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Lets those in that name the endpoint as such, and come from no page but one of its own.
///
/// # Errors
/// What gave the visitor away.
pub(super) fn check(headers: &HeaderMap, names: &[Host]) -> Result<(), Refusal> {
    let foreign = |detail: &str| Err(Refusal::new(Reason::McpOrigin, detail));
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else {
        return foreign("expected a Host that names this gateway, found none");
    };
    // An address is no name that somebody could let lead here.
    let named = Authority::parse(host).map(|it| it.host().clone()).or_else(|_| Host::parse(host));
    let known = |named: &Host| named.ip().is_some() || named.as_str() == "localhost" || names.contains(named);
    if !named.as_ref().is_ok_and(known) {
        return foreign("expected a Host that names this gateway: an address, localhost, or one of [mcp] hosts");
    }
    let own = format!("http://{host}");
    if headers.get_all(header::ORIGIN).iter().any(|origin| !origin.as_bytes().eq_ignore_ascii_case(own.as_bytes())) {
        return foreign("expected a program, found a web page of another origin");
    }
    let from_elsewhere = |site: &[u8]| matches!(site, b"cross-site" | b"same-site");
    if headers.get_all(SEC_FETCH_SITE).iter().any(|site| from_elsewhere(site.as_bytes())) {
        return foreign("expected a program, found a web page of another site");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn admitted(fields: &[(&'static str, &'static str)]) -> bool {
        let fields =
            fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        check(&fields.collect(), &[Host::parse("exeat").unwrap()]).is_ok()
    }

    #[test]
    fn pages_elsewhere_and_names_of_others_are_turned_away() {
        for host in ["127.0.0.1:3129", "localhost", "LOCALHOST.:1", "[::1]:3129", "192.0.2.1", "exeat:80"] {
            assert!(admitted(&[("host", host)]), "{host}");
        }
        for host in ["", "evil.test", "localhost.evil.test", "127.0.0.1.evil.test", "exeat.evil.test:3129", "a b"] {
            assert!(!admitted(&[("host", host)]), "{host}");
        }
        assert!(!admitted(&[]));
        let host = ("host", "localhost:3129");
        for (origin, expected) in [
            ("http://localhost:3129", true),
            ("http://localhost:8080", false),
            ("https://localhost:3129", false),
            ("null", false),
            ("https://evil.test", false),
        ] {
            assert_eq!(admitted(&[host, ("origin", origin)]), expected, "{origin}");
        }
        for (site, expected) in [("none", true), ("same-origin", true), ("cross-site", false), ("same-site", false)] {
            assert_eq!(admitted(&[host, ("sec-fetch-site", site)]), expected, "{site}");
        }
    }
}
