//! Who may ask: a program that was told where the admin listener is, and no page of another site that a browser on this
//! machine shows.
//!
//! Such a page can send requests to loopback, and with DNS rebinding under a name of its own. It cannot keep the browser
//! from saying so, in Host and in Origin.

use std::net::IpAddr;

use exeat_policy::Reason;
use http::{HeaderMap, HeaderValue, Method, header};

use crate::respond::Problem;

/// What requests are checked by.
#[derive(Debug)]
pub(super) struct Guard {
    /// Whether the listener is on loopback.
    pub(super) loopback: bool,
}

impl Guard {
    /// Lets a request in.
    ///
    /// # Errors
    /// What it is refused with.
    pub(super) fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), Box<Problem<'static>>> {
        let host = headers.get(header::HOST);
        if self.loopback && !host.is_some_and(names_loopback) {
            return Err(Box::new(Problem::new(Reason::Misdirected)));
        }
        // A page in a browser can send a POST to another origin; such a request names the page's.
        let origin = headers.get_all(header::ORIGIN);
        let own = |origin: &HeaderValue| host.is_some_and(|host| is_origin_of(origin, host));
        if !method.is_safe() && !origin.iter().all(own) {
            let mut problem = Problem::new(Reason::MethodRefused);
            problem.detail = "this was asked for by a page of another site".to_owned();
            return Err(Box::new(problem));
        }
        Ok(())
    }
}

/// Whether `origin` is that of the page that this listener serves under `host`.
fn is_origin_of(origin: &HeaderValue, host: &HeaderValue) -> bool {
    origin.as_bytes().strip_prefix(b"http://").is_some_and(|rest| rest.eq_ignore_ascii_case(host.as_bytes()))
}

/// Whether Host is a loopback address or `localhost`, with or without a port.
fn names_loopback(host: &HeaderValue) -> bool {
    let Ok(host) = host.to_str() else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_are_served_on_loopback() {
        for (host, expected) in [
            ("127.0.0.1:9180", true),
            ("127.0.0.2", true),
            ("localhost:9180", true),
            ("[::1]:9180", true),
            ("evil.test", false),
            ("127.0.0.1.evil.test:9180", false),
            ("10.0.0.1:9180", false),
        ] {
            assert_eq!(names_loopback(&HeaderValue::from_static(host)), expected, "{host}");
        }
    }

    #[test]
    fn pages_of_other_sites_change_nothing() {
        let guard = Guard { loopback: true };
        for (method, origin, admitted) in [
            (Method::POST, None, true),
            (Method::POST, Some("http://127.0.0.1:9180"), true),
            (Method::POST, Some("http://127.0.0.1:9181"), false),
            (Method::POST, Some("https://127.0.0.1:9180"), false),
            (Method::DELETE, Some("https://evil.test"), false),
            (Method::POST, Some("null"), false),
            (Method::GET, Some("https://evil.test"), true),
        ] {
            let mut headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("127.0.0.1:9180"))]);
            headers.extend(origin.map(|origin| (header::ORIGIN, HeaderValue::from_static(origin))));
            assert_eq!(guard.check(&method, &headers).is_ok(), admitted, "{method} {origin:?}");
        }
    }
}
