//! Reading the head of an answer.
//!
//! Less strict than with requests, since nobody judges by it: a line may end in a bare LF (RFC 9112 section 2.2). What
//! two recipients could delimit differently is refused all the same (section 6.3), so that an answer is never longer or
//! shorter for the client than it was for the gateway.

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use hyper::ext::ReasonPhrase;

use crate::listener::http1::head::{keep_alive, plain_number};

/// The largest head of an answer, in bytes.
const MAX_BYTES: usize = 256 * 1024;
/// The most fields in one.
const MAX_FIELDS: usize = 256;

/// A head, read and checked.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) version: Version,
    pub(super) headers: HeaderMap,
    /// What the server calls the status, where that is not what everybody does.
    pub(super) phrase: Option<ReasonPhrase>,
    pub(super) framing: Framing,
    /// Whether the connection can be used again behind the answer.
    pub(super) keep_alive: bool,
}

/// How the body of an answer is delimited (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// As many bytes.
    Length(u64),
    /// Chunks.
    Chunked,
    /// It ends with the connection.
    Close,
}

/// Takes a head off the front of `input`, once it is there. `seen` is how much of the input was searched for its end.
///
/// # Errors
/// What is wrong with it.
pub(super) fn take(input: &mut BytesMut, seen: &mut usize, method: &Method) -> Result<Option<Head>, &'static str> {
    let Some(end) = find_end(input, *seen) else {
        *seen = input.len();
        return if input.len() > MAX_BYTES { Err("its header section is too large") } else { Ok(None) };
    };
    *seen = 0;
    if end > MAX_BYTES {
        return Err("its header section is too large");
    }
    let bytes = input.split_to(end).freeze();
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut answer = httparse::Response::new(&mut []);
    match httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut answer, &bytes, &mut fields) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Err("its header section is incomplete"),
        Err(httparse::Error::TooManyHeaders) => return Err("it has more fields than 256"),
        Err(_) => return Err("its header section cannot be read"),
    }
    let (Some(code), Some(version)) = (answer.code, answer.version) else {
        return Err("its status line is incomplete");
    };
    let status = StatusCode::from_u16(code).map_err(|_| "its status is none")?;
    let version = if version == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    let mut headers = HeaderMap::with_capacity(answer.headers.len() + 4);
    for field in answer.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| "a field name is not a token")?;
        let value = if field.value.is_empty() { Bytes::new() } else { bytes.slice_ref(field.value) };
        let value = HeaderValue::from_maybe_shared(value).map_err(|_| "a field value has a control character")?;
        headers.append(name, value);
    }
    let phrase = answer.reason.filter(|&phrase| !phrase.is_empty() && status.canonical_reason() != Some(phrase));
    let phrase = phrase.and_then(|phrase| ReasonPhrase::try_from(phrase.as_bytes()).ok());
    let (framing, plain) = framing(method, status, version, &mut headers)?;
    let keep_alive = plain && framing != Framing::Close && keep_alive(version, &headers);
    Ok(Some(Head { status, version, headers, phrase, framing, keep_alive }))
}

/// Where a head ends: behind the first empty line.
fn find_end(input: &[u8], seen: usize) -> Option<usize> {
    let mut from = seen.saturating_sub(3);
    loop {
        let at = from + memchr::memchr(b'\n', input.get(from..)?)?;
        match input.get(at + 1..)? {
            [b'\n', ..] => return Some(at + 2),
            [b'\r', b'\n', ..] => return Some(at + 3),
            _ => from = at + 1,
        }
    }
}

/// How the body is delimited, and whether that is said plainly enough to go on behind it.
fn framing(
    method: &Method,
    status: StatusCode,
    version: Version,
    headers: &mut HeaderMap,
) -> Result<(Framing, bool), &'static str> {
    let coded = headers.contains_key(header::TRANSFER_ENCODING);
    if *method == Method::HEAD || status.is_informational() || matches!(status.as_u16(), 204 | 304) {
        return Ok((Framing::Length(0), !coded));
    }
    if coded {
        // A length beside it is to be ignored, and never passed on (section 6.3).
        let plain = headers.remove(header::CONTENT_LENGTH).is_none() && version == Version::HTTP_11;
        let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
        let chunked =
            |coding: &HeaderValue| coding.as_bytes().rsplit(|&byte| byte == b',').next().is_some_and(is_chunked);
        return match codings.next_back() {
            Some(last) if chunked(last) => Ok((Framing::Chunked, plain)),
            _ => Ok((Framing::Close, false)),
        };
    }
    // The same length over and over is one (section 6.3).
    let lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let mut lengths = lengths.flat_map(|value| value.as_bytes().split(|&byte| byte == b',')).map(<[u8]>::trim_ascii);
    let Some(first) = lengths.next() else { return Ok((Framing::Close, false)) };
    if lengths.any(|other| other != first) {
        return Err("it has several lengths");
    }
    let length = plain_number(first).ok_or("its Content-Length is not a plain number")?;
    Ok((Framing::Length(length), true))
}

fn is_chunked(coding: &[u8]) -> bool {
    coding.trim_ascii().eq_ignore_ascii_case(b"chunked")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, method: &Method) -> Result<Option<Head>, &'static str> {
        take(&mut BytesMut::from(text), &mut 0, method)
    }

    #[test]
    fn bodies_are_delimited_as_rfc_9112_says() {
        use Framing::{Chunked, Close, Length};
        for (status, fields, expected, keep) in [
            ("200", "Content-Length: 5\r\n", Length(5), true),
            ("200", "Content-Length: 5\r\nContent-Length: 5\r\n", Length(5), true),
            ("200", "Content-Length: 5, 5\r\n", Length(5), true),
            ("200", "Content-Length: 0\r\n", Length(0), true),
            ("200", "Content-Length: 5\r\nConnection: close\r\n", Length(5), false),
            ("200", "Transfer-Encoding: chunked\r\n", Chunked, true),
            ("200", "Transfer-Encoding: gzip, Chunked\r\n", Chunked, true),
            ("200", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", Chunked, false),
            ("200", "Transfer-Encoding: gzip\r\n", Close, false),
            ("200", "Transfer-Encoding: chunked, gzip\r\n", Close, false),
            ("200", "", Close, false),
            ("204", "Content-Length: 5\r\n", Length(0), true),
            ("304", "Content-Length: 5\r\n", Length(0), true),
            ("103", "", Length(0), true),
        ] {
            let text = format!("HTTP/1.1 {status} X\r\n{fields}\r\n");
            let head = read(&text, &Method::GET).unwrap().unwrap();
            assert_eq!((head.framing, head.keep_alive), (expected, keep), "{status} {fields:?}");
        }
        let head = read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", &Method::HEAD).unwrap().unwrap();
        assert_eq!((head.framing, head.headers.len()), (Framing::Length(0), 1));
        let head = read("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &Method::GET).unwrap().unwrap();
        assert_eq!((head.framing, head.keep_alive), (Framing::Chunked, false));
        let head = read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", &Method::GET);
        assert!(!head.unwrap().unwrap().headers.contains_key("content-length"));
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for fields in [
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: 5, 6\r\n",
            "Content-Length: 5,\r\n",
            "Content-Length: +5\r\n",
            "Content-Length: -1\r\n",
            "Content-Length:\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "X: a\r\n b\r\n",
            "X : a\r\n",
            "X: a\0b\r\n",
            "X: a\rb\r\n",
            "X\r\n",
        ] {
            assert!(read(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n"), &Method::GET).is_err(), "{fields:?}");
        }
        for text in ["HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n", "ICY 200 OK\r\n\r\n", "\r\n\r\n\r\n"] {
            assert!(read(text, &Method::GET).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_head_is_found_in_any_segmentation_with_either_line_end() {
        for text in
            ["HTTP/1.1 200 OK\r\nA: 1\r\nContent-Length: 2\r\n\r\nhi", "HTTP/1.1 200 OK\nA: 1\nContent-Length: 2\n\nhi"]
        {
            let mut input = BytesMut::new();
            let mut seen = 0;
            for (at, byte) in text.bytes().enumerate() {
                input.extend_from_slice(&[byte]);
                let head = take(&mut input, &mut seen, &Method::GET).unwrap();
                if at + 1 == text.len() - 2 {
                    assert_eq!(head.unwrap().headers["a"], "1");
                    assert!(input.is_empty());
                    break;
                }
                assert!(head.is_none(), "{at}");
            }
        }
    }

    #[test]
    fn heads_are_bounded() {
        let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n", "a".repeat(MAX_BYTES));
        assert!(read(&long, &Method::GET).is_err());
        assert!(read(&format!("{long}\r\n"), &Method::GET).is_err());
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: a\r\n".repeat(MAX_FIELDS + 1));
        assert!(read(&many, &Method::GET).is_err());
        let full = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: a\r\n".repeat(MAX_FIELDS));
        assert_eq!(read(&full, &Method::GET).unwrap().unwrap().headers.len(), MAX_FIELDS);
    }

    #[test]
    fn a_phrase_is_kept_where_it_is_the_servers_own() {
        let phrase =
            |text: &str| read(text, &Method::GET).unwrap().unwrap().phrase.map(|phrase| phrase.as_bytes().to_vec());
        assert_eq!(phrase("HTTP/1.1 200 Fine\r\n\r\n"), Some(b"Fine".to_vec()));
        assert_eq!(phrase("HTTP/1.1 200 OK\r\n\r\n"), None);
        assert_eq!(phrase("HTTP/1.1 200\r\n\r\n"), None);
    }
}
