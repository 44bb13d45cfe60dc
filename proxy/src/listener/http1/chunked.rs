//! The chunked transfer coding, read strictly (RFC 9112 section 7.1).

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The longest line of a chunk header, extensions included.
const MAX_LINE: usize = 256;
/// The largest trailer section.
const MAX_TRAILERS: usize = 8 * 1024;

/// One step of decoding.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Some bytes of the body.
    Data(Bytes),
    /// The body ended; the trailer fields, if there were any.
    End(Option<HeaderMap>),
    /// More input is needed.
    More,
}

/// Decodes a chunked body from a buffer that grows between calls.
#[derive(Debug)]
pub(crate) struct Chunked {
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Size,
    Data(u64),
    DataEnd,
    Trailers,
}

impl Chunked {
    pub(crate) const fn new() -> Self {
        Self { state: State::Size }
    }

    /// Takes the next step off the front of `buffer`.
    ///
    /// # Errors
    /// What was wrong with the coding. Nothing can be read behind an error.
    pub(crate) fn step(&mut self, buffer: &mut BytesMut) -> Result<Step, &'static str> {
        loop {
            match self.state {
                State::Size => {
                    let Some(line) = take_line(buffer, MAX_LINE)? else { return Ok(Step::More) };
                    self.state = match chunk_size(&line)? {
                        0 => State::Trailers,
                        size => State::Data(size),
                    };
                }
                State::Data(left) => {
                    if buffer.is_empty() {
                        return Ok(Step::More);
                    }
                    let length = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
                    let data = buffer.split_to(length).freeze();
                    let left = left - length as u64;
                    self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
                    return Ok(Step::Data(data));
                }
                State::DataEnd => {
                    match buffer.as_ref() {
                        [b'\r', b'\n', ..] => buffer.advance(2),
                        [] | [b'\r'] => return Ok(Step::More),
                        _ => return Err("a chunk is longer than its size"),
                    }
                    self.state = State::Size;
                }
                State::Trailers => return trailers(buffer),
            }
        }
    }
}

/// The line at the front of `buffer` without its CRLF.
fn take_line(buffer: &mut BytesMut, limit: usize) -> Result<Option<BytesMut>, &'static str> {
    let Some(at) = memchr::memchr(b'\n', buffer) else {
        return if buffer.len() > limit { Err("a chunk header is too long") } else { Ok(None) };
    };
    if at > limit {
        return Err("a chunk header is too long");
    }
    let mut line = buffer.split_to(at + 1);
    if !line.ends_with(b"\r\n") {
        return Err("a chunk header ends in a bare LF");
    }
    line.truncate(at - 1);
    if line.contains(&b'\r') {
        return Err("a chunk header contains a bare CR");
    }
    Ok(Some(line))
}

fn chunk_size(line: &[u8]) -> Result<u64, &'static str> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if digits == 0 || digits > 15 {
        return Err("a chunk size is not a hexadecimal number");
    }
    let (size, extension) = line.split_at_checked(digits).unwrap_or((line, &[]));
    let extension = extension.trim_ascii_start();
    if !(extension.is_empty() || extension.starts_with(b";")) || extension.iter().any(u8::is_ascii_control) {
        return Err("a chunk size is followed by something else than an extension");
    }
    Ok(size.iter().fold(0, |sum, &digit| sum * 16 + u64::from(hex(digit))))
}

const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

/// Reads the trailer section once it is complete. Fields that frame, route or authenticate a message have no meaning
/// in a trailer (RFC 9110 section 6.5.1) and are dropped.
fn trailers(buffer: &mut BytesMut) -> Result<Step, &'static str> {
    if buffer.starts_with(b"\r\n") {
        buffer.advance(2);
        return Ok(Step::End(None));
    }
    let Some(end) = memchr::memmem::find(buffer, b"\r\n\r\n") else {
        return if buffer.len() > MAX_TRAILERS + 3 { Err("the trailer section is too large") } else { Ok(Step::More) };
    };
    if end > MAX_TRAILERS {
        return Err("the trailer section is too large");
    }
    let section = buffer.split_to(end + 4).freeze();
    if memchr::memchr_iter(b'\n', &section).any(|at| at == 0 || section.get(at - 1) != Some(&b'\r')) {
        return Err("a trailer line ends in a bare LF");
    }
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let Ok(httparse::Status::Complete((_, fields))) = httparse::parse_headers(&section, &mut fields) else {
        return Err("the trailer section cannot be read");
    };
    let mut trailers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| "a trailer name is not a token")?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| "a trailer value is not a field value")?;
        if !is_forbidden_trailer(&name) {
            trailers.append(name, value);
        }
    }
    Ok(Step::End(Some(trailers)))
}

/// Whether a field has no meaning in a trailer, of a request or of a response, or only the gateway says it.
pub(crate) fn is_forbidden_trailer(name: &HeaderName) -> bool {
    const FORBIDDEN: [&str; 20] = [
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-range",
        "content-type",
        "cookie",
        "exeat-reason",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "set-cookie",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
    ];
    FORBIDDEN.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body, its trailers and what stands behind it.
    type Decoded = (Vec<u8>, Option<HeaderMap>, Vec<u8>);

    /// Feeds `text` in pieces of `size` bytes.
    fn decode(text: &[u8], size: usize) -> Result<Decoded, &'static str> {
        let mut decoder = Chunked::new();
        let mut buffer = BytesMut::new();
        let mut body = Vec::new();
        let mut pieces = text.chunks(size);
        loop {
            match decoder.step(&mut buffer)? {
                Step::Data(data) => body.extend_from_slice(&data),
                Step::End(trailers) => {
                    let left = buffer.iter().copied().chain(pieces.flatten().copied()).collect();
                    return Ok((body, trailers, left));
                }
                Step::More => match pieces.next() {
                    Some(piece) => buffer.extend_from_slice(piece),
                    None => return Err("incomplete"),
                },
            }
        }
    }

    #[test]
    fn bodies_decode_in_any_segmentation() {
        let text =
            b"4;name=\"v\"\r\nWiki\r\n5\r\npedia\r\n00A\r\n0123456789\r\n0\r\nX-Sum: 1\r\nHost: evil\r\n\r\nNEXT";
        for size in 1..=text.len() {
            let (body, trailers, left) = decode(text, size).unwrap();
            assert_eq!(body, b"Wikipedia0123456789");
            let trailers = trailers.unwrap();
            assert_eq!((trailers.len(), trailers.get("x-sum").unwrap().as_bytes()), (1, b"1".as_slice()));
            assert_eq!(left, b"NEXT");
        }
    }

    #[test]
    fn odd_codings_are_errors() {
        for text in [
            "4\nWiki\r\n0\r\n\r\n",
            "4\r\nWiki\n0\r\n\r\n",
            "4\r\nWikipedia\r\n0\r\n\r\n",
            "+4\r\nWiki\r\n0\r\n\r\n",
            "0x4\r\nWiki\r\n0\r\n\r\n",
            " 4\r\nWiki\r\n0\r\n\r\n",
            "-1\r\nWiki\r\n0\r\n\r\n",
            "\r\nWiki\r\n0\r\n\r\n",
            "10000000000000000\r\nWiki\r\n",
            "4 x\r\nWiki\r\n0\r\n\r\n",
            "4;a\rb\r\nWiki\r\n0\r\n\r\n",
            "0\r\nX: 1\n\r\n\r\n",
            "0\r\nX : 1\r\n\r\n",
            "0\r\nX: 1\r\n folded\r\n\r\n",
        ] {
            for size in [1, 3, 1000] {
                let result = decode(text.as_bytes(), size);
                assert!(result.as_ref().is_err_and(|error| *error != "incomplete"), "{text:?}: {result:?}");
            }
        }
        let long = format!("4;{}\r\n", "a".repeat(300));
        assert!(decode(long.as_bytes(), 7).is_err_and(|error| error != "incomplete"));
    }
}
