//! As much of WebSocket (RFC 6455) as an echo needs: the handshake's key and short frames.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::wire::Wire;

/// The key that the RFC's own example handshake sends.
pub const SAMPLE_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

/// A text frame's opcode.
pub const TEXT: u8 = 1;
/// A close frame's opcode.
pub const CLOSE: u8 = 8;

/// The `Sec-WebSocket-Accept` that answers `key` (RFC 6455 section 4.2.2).
#[must_use]
pub fn accept(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()))
}

/// The request head that asks `target` at `host` for an upgrade.
#[must_use]
pub fn handshake(target: &str, host: &str) -> String {
    format!(
        "GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {SAMPLE_KEY}\r\n\r\n"
    )
}

/// A frame of fewer than 126 bytes; clients mask (RFC 6455 section 5.3), servers do not.
#[must_use]
pub fn frame(opcode: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    assert!(length < 126, "only short frames");
    let mut bytes = vec![0x80 | opcode, length | if mask.is_some() { 0x80 } else { 0 }];
    bytes.extend(mask.iter().flatten());
    let mask = mask.unwrap_or_default();
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// Reads one short frame: opcode and unmasked payload.
pub async fn read_frame(wire: &mut Wire) -> io::Result<(u8, Vec<u8>)> {
    let head = wire.exact(2).await?;
    let mask = if head[1] & 0x80 == 0 { vec![0; 4] } else { wire.exact(4).await? };
    let payload = wire.exact(usize::from(head[1] & 0x7f)).await?;
    let payload = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
    Ok((head[0] & 0x0f, payload))
}

/// Serves an upgraded connection: echoes text frames until the peer closes.
pub async fn echo(wire: &mut Wire) -> io::Result<()> {
    loop {
        let (opcode, payload) = read_frame(wire).await?;
        wire.send(frame(opcode, &payload, None)).await?;
        if opcode == CLOSE {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_accept_key_is_the_one_of_the_rfc() {
        assert_eq!(super::accept(super::SAMPLE_KEY), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
