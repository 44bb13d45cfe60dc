//! The part of a request's head that depends on what the connection upstream speaks.

use bytes::Bytes;
use exeat_policy::Reason;
use exeat_policy::target::Target;
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Uri, Version, header};

use super::refusal::Refusal;
use crate::listener::http1::RequestBody;
use crate::listener::http1::head::Framing;
use crate::upstream::Protocol;

/// How a request names its target in either version of HTTP: always from the one parsed target, never from the client's
/// fields.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The request target of HTTP/1.1, in origin form.
    path: Uri,
    /// Its Host field.
    host: HeaderValue,
    /// What the pseudo-header fields of HTTP/2 are made of.
    absolute: Uri,
    /// Whether the body has no length.
    chunked: bool,
    /// Whether the request opens a WebSocket.
    websocket: bool,
}

impl Outgoing {
    /// Spells `target` for both.
    pub(super) fn new(target: &Target, framing: Framing, websocket: bool) -> Result<Self, Refusal> {
        let path = PathAndQuery::from_maybe_shared(Bytes::copy_from_slice(target.path_and_query().as_bytes()))
            .map_err(|error| Refusal::new(Reason::Malformed, format_args!("the path cannot be sent on: {error}")))?;
        let unfit = || Refusal::new(Reason::Malformed, "the host cannot stand in a Host field");
        let host = if target.port() == target.scheme().default_port() {
            HeaderValue::from_str(&target.host().to_string())
        } else {
            HeaderValue::from_str(&target.authority().to_string())
        };
        let host = host.map_err(|_| unfit())?;
        let mut parts = Parts::default();
        parts.scheme = Some(match target.scheme() {
            exeat_policy::target::Scheme::Http => Scheme::HTTP,
            exeat_policy::target::Scheme::Https => Scheme::HTTPS,
        });
        parts.authority = Some(Authority::try_from(host.as_bytes()).map_err(|_| unfit())?);
        parts.path_and_query = Some(path.clone());
        let absolute = Uri::from_parts(parts).map_err(|_| unfit())?;
        Ok(Self { path: Uri::from(path), host, absolute, chunked: framing == Framing::Chunked, websocket })
    }

    /// Makes a request fit for a connection, whichever it was fit for before.
    pub(super) fn fit(&self, request: &mut Request<RequestBody>, protocol: Protocol) {
        let te = request.headers().contains_key(header::TE);
        let uri = match protocol {
            Protocol::Http1 => &self.path,
            Protocol::Http2 => &self.absolute,
        };
        uri.clone_into(request.uri_mut());
        let headers = request.headers_mut();
        match protocol {
            Protocol::Http1 => {
                headers.insert(header::HOST, self.host.clone());
                // Said explicitly, because hyper takes a GET of unknown length for one without a body.
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
            outgoing.fit(&mut request, Protocol::Http1);
            assert_eq!(request.uri(), "/x?y=1");
            assert_eq!((request.version(), request.headers().len()), (Version::HTTP_11, 4));
            assert_eq!(
                (&request.headers()["host"], &request.headers()["connection"]),
                (&"a.test".parse().unwrap(), &"TE".parse().unwrap())
            );
            outgoing.fit(&mut request, Protocol::Http2);
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
            outgoing(url, false).fit(&mut request, Protocol::Http2);
            assert_eq!(request.uri().authority().unwrap().as_str(), authority);
        }
    }

    #[test]
    fn a_websocket_keeps_its_upgrade() {
        let mut request = request();
        outgoing("http://a.test/", true).fit(&mut request, Protocol::Http1);
        assert_eq!(
            (&request.headers()["connection"], &request.headers()["upgrade"]),
            (&"Upgrade".parse().unwrap(), &"websocket".parse().unwrap())
        );
    }
}
