//! The part of a request's head that depends on what the connection upstream speaks.

use std::fmt::Write as _;

use bytes::BytesMut;
use exeat_policy::Reason;
use exeat_policy::target::Target;
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Uri, Version, header};

use super::refusal::Refusal;
use crate::listener::http1::RequestBody;
use crate::listener::http1::head::Framing;
use crate::upstream::{Failure, Protocol};

/// How a request names its target in either version of HTTP: always from the one parsed target, never from the client's
/// fields.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The request target of HTTP/1.1, in origin form.
    path: PathAndQuery,
    /// Its Host field.
    host: HeaderValue,
    /// What HTTP/2 has as `:scheme`.
    scheme: Scheme,
    /// Whether the body has no length.
    chunked: bool,
    /// Whether the request opens a WebSocket.
    websocket: bool,
}

impl Outgoing {
    /// Spells `target` for both.
    pub(super) fn new(target: &Target, framing: Framing, websocket: bool) -> Result<Self, Refusal> {
        let path = target.path_and_query();
        // Both share one buffer.
        let mut text = BytesMut::with_capacity(path.len() + target.host().as_str().len() + 8);
        text.extend_from_slice(path.as_bytes());
        let path = PathAndQuery::from_maybe_shared(text.split().freeze())
            .map_err(|error| Refusal::new(Reason::Malformed, format_args!("the path cannot be sent on: {error}")))?;
        // Writing to a BytesMut cannot fail: it grows.
        let _ = write!(text, "{}", target.short_authority());
        let host = HeaderValue::from_maybe_shared(text.freeze())
            .map_err(|_| Refusal::new(Reason::Malformed, "the host cannot stand in a Host field"))?;
        let scheme = match target.scheme() {
            exeat_policy::target::Scheme::Http => Scheme::HTTP,
            exeat_policy::target::Scheme::Https => Scheme::HTTPS,
        };
        Ok(Self { path, host, scheme, chunked: framing == Framing::Chunked, websocket })
    }

    /// What the pseudo-header fields of HTTP/2 are made of.
    fn absolute(&self) -> Result<Uri, Failure> {
        let mut parts = Parts::default();
        let authority = Authority::try_from(self.host.as_bytes());
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(authority.map_err(|_| Failure::protocol("its host cannot stand in :authority"))?);
        parts.path_and_query = Some(self.path.clone());
        Uri::from_parts(parts).map_err(|_| Failure::protocol("its URL cannot be sent"))
    }

    /// Makes a request fit for a connection, whichever it was fit for before.
    ///
    /// # Errors
    /// HTTP/2 has no way to name the target.
    pub(super) fn fit(&self, request: &mut Request<RequestBody>, protocol: Protocol) -> Result<(), Failure> {
        let te = request.headers().contains_key(header::TE);
        *request.uri_mut() = match protocol {
            Protocol::Http1 => Uri::from(self.path.clone()),
            Protocol::Http2 => self.absolute()?,
        };
        let headers = request.headers_mut();
        match protocol {
            Protocol::Http1 => {
                headers.insert(header::HOST, self.host.clone());
                if self.chunked {
                    headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
                }
                if self.websocket {
                    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
                    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
                } else if te {
                    headers.insert(header::CONNECTION, HeaderValue::from_static("TE"));
                }
                *request.version_mut() = Version::HTTP_11;
            }
            Protocol::Http2 => {
                for name in [header::HOST, header::CONNECTION, header::TRANSFER_ENCODING] {
                    headers.remove(name);
                }
                *request.version_mut() = Version::HTTP_2;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outgoing(url: &str, websocket: bool) -> Outgoing {
        Outgoing::new(&Target::parse(url).unwrap(), Framing::Chunked, websocket).unwrap()
    }

    fn request() -> Request<RequestBody> {
        let mut request = Request::new(RequestBody::Empty);
        request.headers_mut().insert(header::HOST, HeaderValue::from_static("elsewhere.test"));
        request.headers_mut().insert(header::TE, HeaderValue::from_static("trailers"));
        request
    }

    #[test]
    fn the_target_is_spelt_for_either_version_and_back() {
        let outgoing = outgoing("https://a.test:443/x?y=1", false);
        let mut request = request();
        for _ in 0..2 {
            outgoing.fit(&mut request, Protocol::Http1).unwrap();
            assert_eq!(request.uri(), "/x?y=1");
            assert_eq!((request.version(), request.headers().len()), (Version::HTTP_11, 4));
            assert_eq!(
                (&request.headers()["host"], &request.headers()["connection"]),
                (&"a.test".parse().unwrap(), &"TE".parse().unwrap())
            );
            outgoing.fit(&mut request, Protocol::Http2).unwrap();
            assert_eq!(request.uri(), "https://a.test/x?y=1");
            assert_eq!((request.version(), request.headers().len()), (Version::HTTP_2, 1));
        }
    }

    #[test]
    fn ports_and_addresses_are_kept() {
        for (url, authority) in
            [("http://a.test:8080/", "a.test:8080"), ("http://[::1]/", "[::1]"), ("http://1.2.3.4:81/", "1.2.3.4:81")]
        {
            let mut request = request();
            outgoing(url, false).fit(&mut request, Protocol::Http2).unwrap();
            assert_eq!(request.uri().authority().unwrap().as_str(), authority);
        }
    }

    #[test]
    fn a_websocket_keeps_its_upgrade() {
        let mut request = request();
        outgoing("http://a.test/", true).fit(&mut request, Protocol::Http1).unwrap();
        assert_eq!(
            (&request.headers()["connection"], &request.headers()["upgrade"]),
            (&"Upgrade".parse().unwrap(), &"websocket".parse().unwrap())
        );
    }
}
