//! Asking the next proxy for a tunnel with CONNECT (RFC 9110 section 9.3.6).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::HeaderValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::super::failure::Failure;
use super::{Destination, refused};

/// The largest head that the next proxy may answer with, in bytes.
const MAX_HEAD: usize = 16 * 1024;
const MAX_FIELDS: usize = 128;

impl fmt::Display for Destination<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

/// Opens a tunnel. What follows the answer's head is left unread: it is the tunnel's.
pub(super) async fn open(
    stream: &mut TcpStream,
    destination: Destination<'_>,
    credentials: Option<&HeaderValue>,
) -> Result<(), Failure> {
    let mut request = format!("CONNECT {destination} HTTP/1.1\r\nHost: {destination}\r\n").into_bytes();
    if let Some(credentials) = credentials {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(&field_value(credentials.as_bytes()));
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    stream.write_all(&request).await.map_err(refused)?;
    loop {
        let head = read_head(stream).await?;
        match status(&head)? {
            100..=199 => {}
            200..=299 => return Ok(()),
            407 => return Err(refused("it wants other credentials (407)")),
            status => return Err(refused(format_args!("it answered {status}"))),
        }
    }
}

/// Credentials as the field carries them: a value that begins with a scheme as it is, `user:password` as Basic
/// (RFC 7617).
fn field_value(credentials: &[u8]) -> Vec<u8> {
    let word = credentials.split(|&byte| byte == b' ').next().unwrap_or_default();
    if word.len() < credentials.len() && !word.contains(&b':') {
        return credentials.to_vec();
    }
    format!("Basic {}", BASE64.encode(credentials)).into_bytes()
}

/// Reads up to the end of a header section and not a byte further.
async fn read_head(stream: &mut TcpStream) -> Result<Vec<u8>, Failure> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        let seen = stream.peek(&mut piece).await.map_err(refused)?;
        if seen == 0 {
            return Err(refused("it closed without an answer"));
        }
        let before = head.len();
        head.extend_from_slice(piece.get(..seen).unwrap_or_default());
        let end = head.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4);
        let taken = end.map_or(seen, |end| end - before);
        stream.read_exact(piece.get_mut(..taken).unwrap_or_default()).await.map_err(refused)?;
        if let Some(end) = end {
            head.truncate(end);
            return Ok(head);
        }
        if head.len() > MAX_HEAD {
            return Err(refused("its answer has a header section that is too large"));
        }
    }
}

fn status(head: &[u8]) -> Result<u16, Failure> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    match response.parse(head) {
        Ok(httparse::Status::Complete(_)) => response.code.ok_or_else(|| refused("it did not answer in HTTP")),
        _ => Err(refused("it did not answer in HTTP")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_a_field_value_or_a_name_and_a_password() {
        for (credentials, field) in [
            ("user:pass", "Basic dXNlcjpwYXNz"),
            ("user:pass word", "Basic dXNlcjpwYXNzIHdvcmQ="),
            ("Bearer abc", "Bearer abc"),
            ("Basic dXNlcjpwYXNz", "Basic dXNlcjpwYXNz"),
        ] {
            assert_eq!(field_value(credentials.as_bytes()), field.as_bytes(), "{credentials}");
        }
    }
}
