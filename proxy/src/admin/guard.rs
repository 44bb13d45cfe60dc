//! Who may ask: a program that was told where the admin listener is, and no page of another site that a browser on this
//! machine shows.
//!
//! Such a page can send requests to loopback, and with DNS rebinding under a name of its own. It cannot keep the browser
//! from saying so, in Host, in Origin and in Sec-Fetch-Site. A page of the admin listener itself may ask.
//!
//! Where others can reach the listener, they have to show a token, and the gateway does not start without one. On
//! loopback and on a Unix socket a token may be asked for too. What takes no token anywhere is `/livez` and `/readyz`,
//! which are asked by what keeps the gateway running and tell of nothing but that, and the files of the console, which
//! are the same everywhere: the page asks for the token and shows it with whatever it asks.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use exeat_policy::Reason;
use exeat_policy::host::Host;
use exeat_policy::target::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, header};
use ring::digest::{SHA256, digest};
use secrecy::ExposeSecret as _;
use subtle::ConstantTimeEq as _;

use crate::config::SecretSource;
use crate::credentials::Stored;
use crate::respond::{Problem, Unmet};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// What takes no token.
fn is_open(path: &str) -> bool {
    matches!(path, "/livez" | "/readyz" | "/") || path.starts_with("/console/")
}

/// The fewest bytes of a token that others can reach for.
const SHORTEST_TOKEN: usize = 16;

/// What requests are checked by.
#[derive(Debug)]
pub(crate) struct Guard {
    place: Place,
    token: Option<Stored>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Programs on this machine reach it, and pages that a browser shows.
    Loopback,
    /// Everybody does.
    Open,
    /// The user that the gateway runs as does, and nobody else.
    Unix,
}

impl Guard {
    /// A guard of a TCP port.
    ///
    /// # Errors
    /// Others can reach it, and it asks for no token; or the token cannot be read.
    pub(crate) fn of_tcp(address: SocketAddr, token: Option<&SecretSource>) -> Result<Self, String> {
        let place = if address.ip().to_canonical().is_loopback() { Place::Loopback } else { Place::Open };
        if place == Place::Open && token.is_none() {
            return Err(format!(
                "[admin] listen: {address} is not on loopback, and anybody could end sessions there; set [admin] token = \
                 {{ file = \"…\" }}, or listen on loopback or on a Unix socket (\"unix:/path\")"
            ));
        }
        Self::new(place, token)
    }

    /// A guard of a Unix socket.
    ///
    /// # Errors
    /// The token cannot be read.
    pub(crate) fn of_unix(token: Option<&SecretSource>) -> Result<Self, String> {
        Self::new(Place::Unix, token)
    }

    fn new(place: Place, token: Option<&SecretSource>) -> Result<Self, String> {
        let token = token.map(Stored::new);
        if let Some(token) = &token {
            let secret = token.secret().map_err(|error| format!("[admin] token: {error}"))?;
            let length = secret.expose_secret().trim().len();
            if length < SHORTEST_TOKEN {
                return Err(format!(
                    "[admin] token: expected at least {SHORTEST_TOKEN} bytes that nobody can guess, found {length}"
                ));
            }
        }
        Ok(Self { place, token })
    }

    /// Lets a request in; whether who asks has shown that they may run this gateway.
    ///
    /// # Errors
    /// What it is refused with.
    pub(super) fn check(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<bool, Box<Response<Bytes>>> {
        let host = headers.get(header::HOST).filter(|_| headers.get_all(header::HOST).iter().count() == 1);
        if !host.is_some_and(|host| self.is_named(host)) {
            return Err(Box::new(Problem::new(Reason::Misdirected).into_bytes()));
        }
        let own = |origin: &HeaderValue| host.is_some_and(|host| is_origin_of(origin, host));
        let elsewhere = |site: &HeaderValue| matches!(site.as_bytes(), b"cross-site" | b"same-site");
        let foreign = !headers.get_all(header::ORIGIN).iter().all(own)
            || (!method.is_safe() && headers.get_all(SEC_FETCH_SITE).iter().any(elsewhere));
        if foreign {
            let mut problem = Problem::new(Reason::MethodRefused);
            problem.detail = "this was asked for by a page of another site".to_owned();
            return Err(Box::new(problem.into_bytes()));
        }
        // A page can send other types without asking; this one a browser asks about first, and gets no.
        if *method == Method::POST && has_body(headers) && !is_json(headers) {
            let detail = "expected a body of the type application/json";
            return Err(Box::new(Unmet::MediaType.answer(detail, &[])));
        }
        match &self.token {
            None => Ok(self.place == Place::Unix),
            Some(_) if is_open(path) => Ok(false),
            Some(token) => self.check_token(token, headers).map(|()| true),
        }
    }

    fn check_token(&self, token: &Stored, headers: &HeaderMap) -> Result<(), Box<Response<Bytes>>> {
        let refused = |detail: &str| Err(Box::new(Unmet::Unauthorized.answer(detail, &[])));
        let Ok(expected) = token.secret() else {
            tracing::error!("[admin] token cannot be read any more; nobody is let in");
            return refused("the gateway cannot read its token");
        };
        let mut fields = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(field), None) = (fields.next(), fields.next()) else {
            return refused("expected one field Authorization: Bearer TOKEN");
        };
        let shown = field.as_bytes().split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "));
        let Some((_, shown)) = shown else { return refused("expected the scheme Bearer") };
        let hash = |bytes: &[u8]| digest(&SHA256, bytes);
        let (shown, expected) = (hash(shown.trim_ascii()), hash(expected.expose_secret().trim().as_bytes()));
        if bool::from(shown.as_ref().ct_eq(expected.as_ref())) { Ok(()) } else { refused("the token is wrong") }
    }

    /// Whether Host is a name for this listener that nobody else could let lead here: on loopback an address of it or
    /// `localhost`, elsewhere what a client with the token likes.
    fn is_named(&self, host: &HeaderValue) -> bool {
        let Ok(host) = host.to_str() else { return false };
        match self.place {
            // Clients of Unix sockets write what they like, and no browser is one.
            Place::Unix | Place::Open => true,
            Place::Loopback => {
                let named = Authority::parse(host).map(|it| it.host().clone()).or_else(|_| Host::parse(host));
                named.is_ok_and(|named| {
                    named.as_str() == "localhost"
                        || named.ip().is_some_and(|ip: IpAddr| ip.to_canonical().is_loopback())
                })
            }
        }
    }
}

fn has_body(headers: &HeaderMap) -> bool {
    let length = headers.get(header::CONTENT_LENGTH).is_some_and(|length| length.as_bytes() != b"0");
    length || headers.contains_key(header::TRANSFER_ENCODING)
}

fn is_json(headers: &HeaderMap) -> bool {
    let essence = |value: &HeaderValue| {
        let text = value.to_str().unwrap_or_default();
        text.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
    };
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    types.next().is_some_and(essence) && types.next().is_none()
}

/// Whether `origin` is that of the page that this listener serves under `host`.
fn is_origin_of(origin: &HeaderValue, host: &HeaderValue) -> bool {
    origin.as_bytes().strip_prefix(b"http://").is_some_and(|rest| rest.eq_ignore_ascii_case(host.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(address: &str, token: Option<&str>) -> Guard {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, token.unwrap_or_default()).unwrap();
        let source = token.map(|_| SecretSource::File(path));
        let guard = Guard::of_tcp(address.parse().unwrap(), source.as_ref()).unwrap();
        // The file is read when it changes, so it has to stay.
        std::mem::forget(folder);
        guard
    }

    fn status(guard: &Guard, method: &Method, path: &str, fields: &[(&'static str, &'static str)]) -> u16 {
        let fields =
            fields.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        match guard.check(method, path, &fields.collect()) {
            Ok(trusted) => {
                if trusted {
                    201
                } else {
                    200
                }
            }
            Err(refused) => refused.status().as_u16(),
        }
    }

    #[test]
    fn only_loopback_names_are_served_on_loopback() {
        let guard = guard("127.0.0.1:9180", None);
        for (host, expected) in [
            ("127.0.0.1:9180", 200),
            ("127.0.0.2", 200),
            ("localhost:9180", 200),
            ("LOCALHOST", 200),
            ("[::1]:9180", 200),
            ("evil.test", 421),
            ("127.0.0.1.evil.test:9180", 421),
            ("localhost.evil.test", 421),
            ("10.0.0.1:9180", 421),
            ("", 421),
        ] {
            assert_eq!(status(&guard, &Method::GET, "/metrics", &[("host", host)]), expected, "{host}");
        }
        assert_eq!(status(&guard, &Method::GET, "/metrics", &[]), 421);
    }

    #[test]
    fn pages_of_other_sites_are_turned_away_on_every_resource() {
        let guard = guard("127.0.0.1:9180", None);
        let host = ("host", "127.0.0.1:9180");
        for (method, origin, expected) in [
            (Method::POST, None, 200),
            (Method::POST, Some("http://127.0.0.1:9180"), 200),
            (Method::POST, Some("http://127.0.0.1:9181"), 403),
            (Method::POST, Some("https://127.0.0.1:9180"), 403),
            (Method::DELETE, Some("https://evil.test"), 403),
            (Method::POST, Some("null"), 403),
            (Method::GET, Some("https://evil.test"), 403),
            (Method::GET, Some("http://127.0.0.1:9180"), 200),
        ] {
            let fields: Vec<_> = [host].into_iter().chain(origin.map(|origin| ("origin", origin))).collect();
            assert_eq!(status(&guard, &method, "/v1/reload", &fields), expected, "{method} {origin:?}");
        }
        for (site, expected) in [("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)] {
            assert_eq!(status(&guard, &Method::DELETE, "/x", &[host, ("sec-fetch-site", site)]), expected, "{site}");
        }
        // A link to the console is followed from anywhere.
        assert_eq!(status(&guard, &Method::GET, "/", &[host, ("sec-fetch-site", "cross-site")]), 200);
    }

    #[test]
    fn what_is_sent_is_json() {
        let guard = guard("127.0.0.1:9180", None);
        let host = ("host", "localhost");
        for (fields, expected) in [
            (&[("content-length", "2"), ("content-type", "application/json")][..], 200),
            (&[("content-length", "2"), ("content-type", "Application/JSON; charset=utf-8")], 200),
            (&[("content-length", "0")], 200),
            (&[], 200),
            (&[("content-length", "2")], 415),
            (&[("transfer-encoding", "chunked"), ("content-type", "text/plain")], 415),
            (&[("content-length", "2"), ("content-type", "text/plain; application/json")], 415),
        ] {
            let fields: Vec<_> = [host].into_iter().chain(fields.iter().copied()).collect();
            assert_eq!(status(&guard, &Method::POST, "/v1/sessions", &fields), expected, "{fields:?}");
        }
    }

    #[test]
    fn a_token_is_asked_for_everywhere_but_where_health_is() {
        const TOKEN: &str = "0123456789abcdef";
        for address in ["127.0.0.1:9180", "0.0.0.0:9180"] {
            let guard = guard(address, Some(TOKEN));
            let host = ("host", "localhost");
            for (value, expected) in [
                (Some("Bearer 0123456789abcdef"), 201),
                (Some("bearer  0123456789abcdef "), 201),
                (Some("Bearer 0123456789abcdeF"), 401),
                (Some("Bearer "), 401),
                (Some("Bearer"), 401),
                (Some("Basic 0123456789abcdef"), 401),
                (None, 401),
            ] {
                let fields: Vec<_> = [host].into_iter().chain(value.map(|value| ("authorization", value))).collect();
                for path in ["/metrics", "/v1/sessions", "/v1/evidence", "/livez/", "/readyz/x", "//", "/console"] {
                    assert_eq!(status(&guard, &Method::GET, path, &fields), expected, "{path} {value:?}");
                }
                for path in ["/livez", "/readyz", "/", "/console/console.js"] {
                    assert_eq!(status(&guard, &Method::GET, path, &fields), 200, "{path} {value:?}");
                }
            }
        }
    }

    #[test]
    fn nobody_is_let_in_from_outside_without_a_token() {
        for address in ["0.0.0.0:9180", "[::]:9180", "192.0.2.1:9180"] {
            let error = Guard::of_tcp(address.parse().unwrap(), None).unwrap_err();
            assert!(error.contains("[admin] token"), "{error}");
        }
        for address in ["127.0.0.1:9180", "[::1]:9180", "[::ffff:127.0.0.1]:1"] {
            assert!(Guard::of_tcp(address.parse().unwrap(), None).is_ok(), "{address}");
        }
        let unset = SecretSource::Env("EXEAT_TEST_NEVER_SET".to_owned());
        assert!(Guard::of_unix(Some(&unset)).unwrap_err().starts_with("[admin] token: "));
        assert!(Guard::of_unix(None).unwrap().check(&Method::GET, "/x", &host("anything")).unwrap());
    }

    fn host(name: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(name))])
    }
}
