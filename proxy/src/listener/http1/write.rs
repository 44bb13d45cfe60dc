//! Writing a response: the head, and a body in the framing that fits it (RFC 9112 section 6).

use std::fmt::Write as _;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version, header};
use http_body::Body;
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::body::ResponseBody;
use super::chunked::is_forbidden_trailer;
use super::head::plain_number;

/// How a response body goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is none, whatever the fields say (HEAD, 1xx, 204, 304).
    None,
    /// The fields carry its length.
    Length,
    /// Chunks, for a client of HTTP/1.1.
    Chunked,
    /// It ends with the connection, for a client of HTTP/1.0.
    Close,
}

impl Framing {
    /// Chooses the framing and completes `headers` for it.
    pub(super) fn choose(
        method: &Method,
        version: Version,
        status: StatusCode,
        headers: &mut HeaderMap,
        body: &impl Body,
    ) -> Self {
        headers.remove(header::TRANSFER_ENCODING);
        if status.is_informational() || status == StatusCode::NO_CONTENT {
            headers.remove(header::CONTENT_LENGTH);
            return Self::None;
        }
        if method == Method::HEAD || status == StatusCode::NOT_MODIFIED {
            return Self::None;
        }
        // The length is that of the body as it was read, whatever the fields say: an upstream whose Content-Length
        // contradicts its chunks would else put an answer of its own making behind this one (RFC 9112 section 6.3).
        if let Some(length) = body.size_hint().exact() {
            if !says_length(headers, length) {
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
            }
            return Self::Length;
        }
        headers.remove(header::CONTENT_LENGTH);
        if version == Version::HTTP_11 { Self::Chunked } else { Self::Close }
    }
}

/// Whether there is one Content-Length, and it is this one in its shortest form.
fn says_length(headers: &HeaderMap, length: u64) -> bool {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    match (lengths.next().map(HeaderValue::as_bytes), lengths.next()) {
        (Some(b"0"), None) => length == 0,
        (Some([b'0', ..]), None) => false,
        (Some(digits), None) => plain_number(digits) == Some(length),
        _ => false,
    }
}

/// Appends a status line and fields, with the empty line, to `out`.
pub(super) fn head(
    out: &mut BytesMut,
    status: StatusCode,
    phrase: Option<&[u8]>,
    headers: &HeaderMap,
    framing: Framing,
    connection: Option<&str>,
) {
    out.reserve(64 + headers.len() * 48);
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.extend_from_slice(b" ");
    out.extend_from_slice(phrase.unwrap_or_else(|| status.canonical_reason().unwrap_or_default().as_bytes()));
    out.extend_from_slice(b"\r\n");
    for (name, value) in headers {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if framing == Framing::Chunked {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    if let Some(connection) = connection {
        out.extend_from_slice(b"connection: ");
        out.extend_from_slice(connection.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// One of the gateway's own answers as bytes, for a connection that is closed behind it.
pub(crate) fn plain_answer(response: Response<ResponseBody>) -> Vec<u8> {
    let (mut parts, body) = response.into_parts();
    let framing = Framing::choose(&Method::GET, Version::HTTP_11, parts.status, &mut parts.headers, &body);
    let mut out = BytesMut::new();
    head(&mut out, parts.status, None, &parts.headers, framing, Some("close"));
    if let ResponseBody::Full(bytes) = body {
        out.extend_from_slice(&bytes);
    }
    out.to_vec()
}

/// Data below this size is copied behind what waits in the buffer, larger data goes out beside it.
const COPY_BELOW: usize = 4 * 1024;
/// How much may wait in the buffer.
const WAITING: usize = 64 * 1024;

/// Writes `data` as `framing` wants it, together with what waits in `out`.
pub(super) async fn data(
    io: &mut (impl AsyncWrite + Unpin),
    out: &mut BytesMut,
    data: Bytes,
    framing: Framing,
) -> io::Result<()> {
    if data.is_empty() {
        return Ok(());
    }
    let chunked = framing == Framing::Chunked;
    if chunked {
        // Writing to a BytesMut cannot fail: it grows.
        let _ = write!(out, "{:x}\r\n", data.len());
    }
    let end: &[u8] = if chunked { b"\r\n" } else { b"" };
    if data.len() < COPY_BELOW && out.len() < WAITING {
        out.extend_from_slice(&data);
        out.extend_from_slice(end);
        return Ok(());
    }
    all(io, &[out, &data, end]).await?;
    out.clear();
    Ok(())
}

/// Appends the end of a body, trailers included, to `out`.
pub(super) fn end(out: &mut BytesMut, framing: Framing, trailers: Option<&HeaderMap>) {
    if framing != Framing::Chunked {
        return;
    }
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers.into_iter().flatten().filter(|(name, _)| !is_forbidden_trailer(name)) {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes what waits in `out` and flushes.
pub(super) async fn flush(io: &mut (impl AsyncWrite + Unpin), out: &mut BytesMut) -> io::Result<()> {
    if !out.is_empty() {
        io.write_all(out).await?;
        out.clear();
    }
    io.flush().await
}

/// Writes all `parts`, together where the stream can.
async fn all(io: &mut (impl AsyncWrite + Unpin), parts: &[&[u8]; 3]) -> io::Result<()> {
    let [mut first, mut second, mut third] = *parts;
    while first.len() + second.len() + third.len() > 0 {
        let slices = [IoSlice::new(first), IoSlice::new(second), IoSlice::new(third)];
        let mut written = io.write_vectored(&slices).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        for part in [&mut first, &mut second, &mut third] {
            let length = part.len().min(written);
            part.advance(length);
            written -= length;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_that_of_the_body_and_written_once() {
        for written in
            [&[][..], &["5"], &["6"], &["05"], &["5", "5"], &["0"], &["+5"], &["5, 5"], &["99999999999999999999"]]
        {
            let mut headers = HeaderMap::new();
            for value in written {
                headers.append("content-length", HeaderValue::from_static(value));
            }
            let body = ResponseBody::Full(Bytes::from_static(b"hello"));
            let framing = Framing::choose(&Method::GET, Version::HTTP_11, StatusCode::OK, &mut headers, &body);
            let lengths: Vec<_> = headers.get_all("content-length").iter().collect();
            assert_eq!(
                (framing, &lengths[..]),
                (Framing::Length, &[&HeaderValue::from_static("5")][..]),
                "{written:?}"
            );
        }
    }
}
