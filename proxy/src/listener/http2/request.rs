//! Reading a request: from the pseudo-header fields of HTTP/2 to the head that an HTTP/1.1 client would have sent.
//!
//! The h2 crate has refused what RFC 9113 section 8 calls malformed: fields of a connection, upper case, a missing or
//! doubled pseudo-header field, a body that differs from its Content-Length, `:protocol` (extended CONNECT is not
//! offered).

use bytes::BytesMut;
use exeat_policy::Reason;
use exeat_policy::target::Target;
use h2::RecvStream;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Uri, header};

use crate::listener::http1::head::{Framing, MAX_FIELDS, bad, check_host, check_method, content_length};
use crate::listener::http1::{Head, HeadError};

/// What a field costs beside its name and value (RFC 9113 section 10.5.1).
const FIELD_OVERHEAD: usize = 32;

/// Reads the head of a request.
///
/// # Errors
/// A header section of more than `limit` bytes or of too many fields, white space around a value, a Host that is none, is repeated or names
/// something else than `:authority`, a Content-Length that is repeated or none, a CONNECT with a body.
pub(super) fn read(parts: Parts, incoming: &RecvStream, limit: usize) -> Result<Head, HeadError> {
    let Parts { method, uri, version, mut headers, .. } = parts;
    if size(&uri, &headers) > limit {
        return Err(HeadError::new(Reason::HeadTooLarge, Reason::HeadTooLarge.text()));
    }
    join_cookies(&mut headers)?;
    if headers.len() > MAX_FIELDS {
        return Err(HeadError::new(Reason::HeadTooLarge, "the request has more fields than 128"));
    }
    if headers.values().any(|value| is_padded(value.as_bytes())) {
        return Err(bad("a field value begins or ends with white space"));
    }
    check_method(&method)?;
    check_host(version, &headers)?;
    check_authority(&uri, &headers)?;
    let length = length(&headers)?;
    let framing = match length {
        Some(0) if method == Method::CONNECT => Framing::None,
        Some(_) if method == Method::CONNECT => return Err(bad("a CONNECT has no body")),
        _ if incoming.is_end_stream() || method == Method::CONNECT => Framing::None,
        Some(length) => Framing::Length(length),
        None => Framing::Chunked,
    };
    let target = target(&method, &uri);
    Ok(Head { method, target, version, headers, framing, keep_alive: true })
}

/// Whether white space stands around a field value, which HTTP/2 does not allow (RFC 9113 section 8.2.1).
fn is_padded(value: &[u8]) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    is_space(value.first()) || is_space(value.last())
}

/// The size of a header section as RFC 9113 section 10.5.1 counts it, but for three pseudo-header fields.
fn size(uri: &Uri, headers: &HeaderMap) -> usize {
    let fields = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_OVERHEAD);
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    fields.sum::<usize>() + authority + path
}

fn length(headers: &HeaderMap) -> Result<Option<u64>, HeadError> {
    let mut values = headers.get_all(header::CONTENT_LENGTH).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => {
            content_length(value).map(Some).ok_or_else(|| bad("Content-Length is not a plain number"))
        }
        (Some(_), Some(_)) => Err(bad("Content-Length is repeated")),
    }
}

/// The request target of HTTP/1.1: the authority of a CONNECT, the URL of anything else, or its path where the client
/// gave no `:authority`.
fn target(method: &Method, uri: &Uri) -> String {
    match uri.authority() {
        Some(authority) if *method == Method::CONNECT => authority.as_str().to_owned(),
        _ => uri.to_string(),
    }
}

/// `:authority` and Host have to name the same place, where both are there (RFC 9113 section 8.3.1).
fn check_authority(uri: &Uri, headers: &HeaderMap) -> Result<(), HeadError> {
    let (Some(authority), Some(host)) = (uri.authority(), headers.get(header::HOST)) else { return Ok(()) };
    if authority.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes()) {
        return Ok(());
    }
    let scheme = uri.scheme_str().unwrap_or("https");
    let place = |text: &str| Target::parse_wire(&format!("{scheme}://{text}/")).ok();
    match (place(authority.as_str()), host.to_str().ok().and_then(place)) {
        (Some(authority), Some(host)) if authority.authority() == host.authority() => Ok(()),
        _ => Err(bad("Host and :authority differ")),
    }
}

/// Makes one Cookie of its crumbs (RFC 9113 section 8.2.3): whoever reads the fields from here on expects one.
fn join_cookies(headers: &mut HeaderMap) -> Result<(), HeadError> {
    let mut crumbs = headers.get_all(header::COOKIE).iter();
    let (Some(first), Some(_)) = (crumbs.next(), crumbs.next()) else { return Ok(()) };
    let mut joined = BytesMut::from(first.as_bytes());
    for crumb in headers.get_all(header::COOKIE).iter().skip(1) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(crumb.as_bytes());
    }
    let joined = HeaderValue::from_maybe_shared(joined.freeze()).map_err(|_| bad("the cookies cannot be joined"))?;
    headers.insert(header::COOKIE, joined);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authority_and_host_name_one_place() {
        for (url, host, expected) in [
            ("https://a.test/", "a.test", true),
            ("https://a.test/", "A.test:443", true),
            ("https://a.test:443/", "a.test.", true),
            ("http://a.test/", "a.test:80", true),
            ("https://a.test/", "a.test:80", false),
            ("https://a.test/", "b.test", false),
            ("https://a.test/", "", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static(host));
            let uri = Uri::from_static(url);
            assert_eq!(check_authority(&uri, &headers).is_ok(), expected, "{url} {host}");
        }
    }

    #[test]
    fn crumbs_become_one_cookie() {
        let mut headers = HeaderMap::new();
        for crumb in ["a=1", "b=2; c=3", "d=4"] {
            headers.append(header::COOKIE, HeaderValue::from_static(crumb));
        }
        join_cookies(&mut headers).unwrap();
        assert_eq!(headers.get_all(header::COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2; c=3; d=4"]);
    }

    #[test]
    fn targets_are_those_of_http1() {
        let target = |method: Method, uri: &'static str| target(&method, &Uri::from_static(uri));
        assert_eq!(target(Method::GET, "http://a.test/x?y=1"), "http://a.test/x?y=1");
        assert_eq!(target(Method::GET, "/x"), "/x");
        assert_eq!(target(Method::CONNECT, "a.test:443"), "a.test:443");
    }
}
