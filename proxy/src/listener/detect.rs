//! Which protocol a client speaks, from its first bytes.

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The connection preface of HTTP/2 (RFC 9113 section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A protocol of the proxy port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1.1, or what its reader will refuse with a reason.
    Http1,
    /// HTTP/2 with prior knowledge.
    Http2,
    /// SOCKS4 (version byte 4).
    Socks4,
    /// SOCKS5 (RFC 1928, version byte 5).
    Socks5,
}

/// What `first` begins; none if more bytes are needed.
pub(crate) fn protocol(first: &[u8]) -> Option<Protocol> {
    match first {
        [] => None,
        [4, ..] => Some(Protocol::Socks4),
        [5, ..] => Some(Protocol::Socks5),
        // The preface tells itself from an HTTP/1.1 request by its third byte at the latest.
        _ if first.starts_with(HTTP2_PREFACE) => Some(Protocol::Http2),
        _ if HTTP2_PREFACE.starts_with(first) => None,
        _ => Some(Protocol::Http1),
    }
}

/// Reads until the protocol is known; none if the client ends before. What was read stands in `first`.
///
/// # Cancel safety
/// What was read stays in `first` when the future is dropped.
pub(crate) async fn read_protocol(stream: &mut (impl AsyncRead + Unpin), first: &mut BytesMut) -> Option<Protocol> {
    loop {
        if let Some(protocol) = protocol(first) {
            return Some(protocol);
        }
        if stream.read_buf(first).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_tell_the_protocol() {
        for (first, expected) in [
            (b"".as_slice(), None),
            (b"\x05\x01\x00", Some(Protocol::Socks5)),
            (b"\x04\x01", Some(Protocol::Socks4)),
            (b"P", None),
            (b"PRI * HTTP/2.0\r\n\r\nSM", None),
            (HTTP2_PREFACE, Some(Protocol::Http2)),
            (b"PROPFIND http://a.test/ HTTP/1.1", Some(Protocol::Http1)),
            (b"POST", Some(Protocol::Http1)),
            (b"PRI * HTTP/2.0\r\n\r\nXX", Some(Protocol::Http1)),
            (b"GET ", Some(Protocol::Http1)),
            (b"\x16\x03\x01", Some(Protocol::Http1)),
        ] {
            assert_eq!(protocol(first), expected, "{first:?}");
        }
    }
}
