//! Reading a request's head: the bytes up to the empty line, and what they mean.
//!
//! The reader is stricter than RFC 9112 asks of a recipient, because the gateway judges what it reads and forwards it
//! to somebody who may read it differently. Line ends are CRLF and nothing else (section 2.2 allows a bare LF),
//! obsolete line folding is refused (section 5.2), a message has one framing: a single Content-Length of digits, or a
//! single `Transfer-Encoding: chunked`, never both (section 6.3), and HTTP/1.1 requests have exactly one Host
//! (section 3.2).

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use exeat_policy::Reason;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header};

/// The most fields one head may carry, whatever their size.
pub(crate) const MAX_FIELDS: usize = 128;

/// A request head, read and checked.
#[derive(Debug)]
pub(crate) struct Head {
    /// The method.
    pub(crate) method: Method,
    /// The request target exactly as sent; for HTTP/2 what an HTTP/1.1 client would have sent for it.
    pub(crate) target: String,
    /// HTTP/1.0, HTTP/1.1 or HTTP/2.
    pub(crate) version: Version,
    /// All fields, the hop-by-hop ones included.
    pub(crate) headers: HeaderMap,
    /// How the body is delimited.
    pub(crate) framing: Framing,
    /// Whether the client wants to go on using the connection (RFC 9112 section 9.3).
    pub(crate) keep_alive: bool,
}

/// How a request body is delimited (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// No body.
    None,
    /// As many bytes as Content-Length says.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// Why a head was not accepted: the reason, and what was wrong in words fit for the client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeadError {
    pub(crate) reason: Reason,
    pub(crate) detail: &'static str,
}

impl HeadError {
    pub(crate) const fn new(reason: Reason, detail: &'static str) -> Self {
        Self { reason, detail }
    }
}

/// A head that is malformed.
pub(crate) const fn bad(detail: &'static str) -> HeadError {
    HeadError::new(Reason::BadRequest, detail)
}

/// What [`Scan::advance`] found so far.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The head ends behind this many bytes.
    Complete(usize),
    /// More bytes are needed.
    Partial,
}

/// Looks for the end of a head in a growing buffer without reading any byte twice.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    seen: usize,
    line_start: usize,
    started: bool,
}

impl Scan {
    /// Looks at the bytes that were added to `buffer` since the last call.
    ///
    /// # Errors
    /// A bare LF, a bare CR at a line's end, or a head larger than `limit` bytes.
    pub(crate) fn advance(&mut self, buffer: &[u8], limit: usize) -> Result<Progress, HeadError> {
        while let Some(offset) = buffer.get(self.seen..).and_then(|rest| memchr::memchr(b'\n', rest)) {
            let at = self.seen + offset;
            self.seen = at + 1;
            let line = buffer.get(self.line_start..at).unwrap_or_default();
            let Some((b'\r', line)) = line.split_last() else {
                return Err(bad("a line ends in a bare LF; lines end in CRLF"));
            };
            self.line_start = self.seen;
            match (line.is_empty(), self.started) {
                (true, true) => {
                    return if self.seen > limit { Err(too_large()) } else { Ok(Progress::Complete(self.seen)) };
                }
                // RFC 9112 section 2.2: an empty line before the request line is ignored.
                (true, false) => {}
                (false, _) => self.started = true,
            }
        }
        self.seen = buffer.len();
        if self.seen > limit { Err(too_large()) } else { Ok(Progress::Partial) }
    }
}

const fn too_large() -> HeadError {
    HeadError::new(Reason::HeadTooLarge, "the header section is larger than the limit")
}

/// Reads a complete head, as [`Scan`] delimited it.
///
/// # Errors
/// Anything that RFC 9112 forbids or that two readers might take differently.
pub(crate) fn parse(bytes: BytesMut) -> Result<Head, HeadError> {
    let bytes = bytes.freeze();
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(&bytes, &mut fields) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Err(bad("the header section is incomplete")),
        Err(error) => return Err(parse_error(error)),
    }
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Err(bad("the request line is incomplete"));
    };
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| bad("the method is not a token"))?;
    check_method(&method)?;
    let version = if version == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    let mut headers = HeaderMap::with_capacity(request.headers.len() + 4);
    for field in request.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| bad("a field name is not a token"))?;
        let value = field_value(&bytes, field.value)?;
        headers.append(name, value);
    }
    let framing = framing(version, &headers)?;
    check_host(version, &headers)?;
    let keep_alive = keep_alive(version, &headers);
    Ok(Head { method, target: target.to_owned(), version, headers, framing, keep_alive })
}

/// A field value that shares the head's buffer.
fn field_value(bytes: &Bytes, value: &[u8]) -> Result<HeaderValue, HeadError> {
    if value.contains(&b'\r') {
        return Err(bad("a field value contains a bare CR"));
    }
    let value = if value.is_empty() { Bytes::new() } else { bytes.slice_ref(value) };
    HeaderValue::from_maybe_shared(value).map_err(|_| bad("a field value contains a control character"))
}

const fn parse_error(error: httparse::Error) -> HeadError {
    match error {
        httparse::Error::HeaderName => bad("a field name is not a token followed by a colon"),
        httparse::Error::HeaderValue => bad("a field value contains a control character"),
        httparse::Error::NewLine => bad("a line does not end in CRLF"),
        httparse::Error::Token => bad("the request line is not METHOD SP TARGET SP VERSION"),
        httparse::Error::TooManyHeaders => HeadError::new(Reason::HeadTooLarge, "the request has more fields than 128"),
        httparse::Error::Version => bad("the version is not HTTP/1.0 or HTTP/1.1"),
        _ => bad("the header section cannot be read"),
    }
}

fn framing(version: Version, headers: &HeaderMap) -> Result<Framing, HeadError> {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (lengths.next(), codings.next()) {
        (None, None) => Ok(Framing::None),
        (Some(_), Some(_)) => Err(bad("both Content-Length and Transfer-Encoding are present")),
        (Some(length), None) => {
            if lengths.next().is_some() {
                return Err(bad("Content-Length is repeated"));
            }
            let length = content_length(length).ok_or_else(|| bad("Content-Length is not a plain number"))?;
            Ok(if length == 0 { Framing::None } else { Framing::Length(length) })
        }
        (None, Some(coding)) => {
            if version == Version::HTTP_10 {
                return Err(bad("Transfer-Encoding in an HTTP/1.0 request"));
            }
            if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
                return Err(bad("Transfer-Encoding is not exactly chunked"));
            }
            Ok(Framing::Chunked)
        }
    }
}

/// The number in a Content-Length, which is digits alone (RFC 9110 section 8.6).
pub(crate) fn content_length(value: &HeaderValue) -> Option<u64> {
    plain_number(value.as_bytes())
}

/// A number of eighteen digits at most, and of nothing else.
pub(crate) fn plain_number(digits: &[u8]) -> Option<u64> {
    let plain = (1..=18).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    plain.then(|| digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// Whether a client waits with its body for a 100 (RFC 9110 section 10.1.1).
pub(crate) fn expects_continue(headers: &HeaderMap) -> bool {
    headers.get(header::EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Refuses the method that stands for a preface of HTTP/2 (RFC 9113 section 11.6): nobody may be made to take a request
/// for one.
///
/// # Errors
/// It is that method.
pub(crate) fn check_method(method: &Method) -> Result<(), HeadError> {
    if method.as_str() == "PRI" { Err(bad("PRI is no method of requests")) } else { Ok(()) }
}

/// Refuses a Host that is repeated or no host, and its absence where the version asks for it.
pub(crate) fn check_host(version: Version, headers: &HeaderMap) -> Result<(), HeadError> {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => Err(bad("Host is repeated")),
        (None, None) if version == Version::HTTP_11 => Err(bad("an HTTP/1.1 request has no Host")),
        (Some(host), None) if !host.as_bytes().iter().all(|&byte| is_host_byte(byte)) => {
            Err(bad("Host is not a host with an optional port"))
        }
        _ => Ok(()),
    }
}

/// The bytes of `uri-host [":" port]` (RFC 3986 section 3.2.2). Lists, userinfo and white space have others.
const fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':' | b'[' | b']' | b'%')
}

/// Whether a connection can be used again behind a message with these fields (RFC 9112 section 9.3).
pub(crate) fn keep_alive(version: Version, headers: &HeaderMap) -> bool {
    let mut keep = version == Version::HTTP_11;
    for value in headers.get_all(header::CONNECTION) {
        for token in value.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            if token.eq_ignore_ascii_case(b"close") {
                return false;
            }
            keep |= token.eq_ignore_ascii_case(b"keep-alive");
        }
    }
    keep
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Head, HeadError> {
        let mut scan = Scan::default();
        match scan.advance(text.as_bytes(), 4096)? {
            Progress::Complete(end) => parse(BytesMut::from(&text.as_bytes()[..end])),
            Progress::Partial => panic!("partial: {text:?}"),
        }
    }

    #[test]
    fn a_plain_request_is_read() {
        let head = read("\r\nGET http://a.test/x HTTP/1.1\r\nHost: a.test\r\nX: 1\r\nx: 2\r\n\r\nrest").unwrap();
        assert_eq!((head.method, head.target.as_str()), (Method::GET, "http://a.test/x"));
        assert_eq!(head.headers.get_all("x").iter().count(), 2);
        assert_eq!((head.framing, head.keep_alive), (Framing::None, true));
    }

    #[test]
    fn ambiguous_or_malformed_heads_are_refused() {
        for fields in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: 0x5\r\n",
            "Content-Length:\r\n",
            "Content-Length: 9999999999999999999\r\n",
            "Transfer-Encoding: chunked, identity\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: \x0bchunked\r\n",
            "Transfer-Encoding : chunked\r\n",
            "X: a\r\n b\r\n",
            "X: a\nY: b\r\n",
            "X: a\rY: b\r\n",
            "X: a\0b\r\n",
            "X Y: a\r\n",
            ": a\r\n",
            "Host: b.test\r\n",
        ] {
            let text = format!("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n{fields}\r\n");
            assert_eq!(read(&text).map_err(|error| error.reason).err(), Some(Reason::BadRequest), "{fields:?}");
        }
        for text in [
            "GET http://a.test/ HTTP/1.1\r\n\r\n",
            "PRI http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "GET http://a.test/ HTTP/1.1\r\nHost: a.test, b.test\r\n\r\n",
            "GET http://a.test/ HTTP/1.1\r\nHost: u@a.test\r\n\r\n",
            "GET http://a.test/\r\n\r\n",
            "GET http://a.test/ HTTP/1.1 junk\r\nHost: a.test\r\n\r\n",
            "GET http://a.test/ HTTP/2.0\r\nHost: a.test\r\n\r\n",
            "GET  http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "GET http://a.test/\x01 HTTP/1.1\r\nHost: a.test\r\n\r\n",
            "GET http://a.test/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert_eq!(read(text).map_err(|error| error.reason).err(), Some(Reason::BadRequest), "{text:?}");
        }
    }

    #[test]
    fn a_head_is_found_in_any_segmentation_and_bounded() {
        let text = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET";
        let mut scan = Scan::default();
        for end in 0..27 {
            assert_eq!(scan.advance(&text[..end], 64), Ok(Progress::Partial));
        }
        assert_eq!(scan.advance(&text[..27], 64), Ok(Progress::Complete(27)));
        assert_eq!(Scan::default().advance(text, 26), Err(too_large()));
        assert_eq!(Scan::default().advance(&[b'a'; 65], 64), Err(too_large()));
    }

    #[test]
    fn connection_fields_decide_about_keeping_alive() {
        for (version, field, expected) in [
            ("1.1", "", true),
            ("1.1", "Connection: close\r\n", false),
            ("1.1", "Connection: keep-alive, Close\r\n", false),
            ("1.0", "", false),
            ("1.0", "Connection: Keep-Alive\r\n", true),
        ] {
            let head = read(&format!("GET / HTTP/{version}\r\nHost: a\r\n{field}\r\n")).unwrap();
            assert_eq!(head.keep_alive, expected, "{version} {field}");
        }
    }
}
