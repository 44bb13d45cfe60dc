//! Large bodies whose bytes depend on their place, so that a piece lost, doubled or swapped shows in the digest. They
//! are written and read without ever being held.

use std::io;
use std::time::Duration;

use ring::digest::{Context, SHA256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::origin::hex;

/// The size of a piece.
pub const PIECE: usize = 64 * 1024;

/// How fast a peer reads or writes.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How much at once, in bytes.
    pub piece: usize,
    /// How many bytes before each rest.
    pub burst: u64,
    /// How long it rests.
    pub rest: Duration,
}

impl Pace {
    /// As fast as it goes.
    pub const FAST: Self = Self { piece: PIECE, burst: u64::MAX, rest: Duration::ZERO };
    /// In small pieces, with rests that let every buffer on the way run full or empty.
    pub const SLOW: Self = Self { piece: 3_001, burst: 4 * 1024 * 1024, rest: Duration::from_millis(5) };
}

/// Makes the bytes of a body in order.
#[derive(Debug)]
pub struct Content {
    piece: Vec<u8>,
    index: u64,
}

impl Default for Content {
    fn default() -> Self {
        let mut random = Random::new(1);
        Self { piece: (0..PIECE).map(|_| random.number() as u8).collect(), index: 0 }
    }
}

impl Content {
    /// The next [`PIECE`] bytes.
    pub fn more(&mut self) -> &[u8] {
        self.piece[..8].copy_from_slice(&self.index.to_le_bytes());
        self.index += 1;
        &self.piece
    }
}

/// SHA-256 in hex of the first `length` bytes.
#[must_use]
pub fn sha256(length: u64) -> String {
    let (mut content, mut digest, mut left) = (Content::default(), Context::new(&SHA256), length);
    while left > 0 {
        let count = left.min(PIECE as u64);
        digest.update(&content.more()[..usize::try_from(count).unwrap()]);
        left -= count;
    }
    hex(&digest.finish())
}

/// Writes the first `length` bytes.
pub async fn write(io: &mut (impl AsyncWrite + Unpin), length: u64, pace: Pace) -> io::Result<()> {
    let (mut content, mut left, mut burst) = (Content::default(), length, pace.burst);
    while left > 0 {
        let count = usize::try_from(left.min(PIECE as u64)).unwrap();
        for piece in content.more()[..count].chunks(pace.piece) {
            io.write_all(piece).await?;
        }
        left -= count as u64;
        burst = rest(burst, count, pace).await;
    }
    io.flush().await
}

/// Reads `length` bytes, or fewer where the stream ends before; gives how many, and their SHA-256 in hex.
pub async fn read(io: &mut (impl AsyncRead + Unpin), length: u64, pace: Pace) -> io::Result<(u64, String)> {
    let (mut buffer, mut digest) = (vec![0; pace.piece], Context::new(&SHA256));
    let (mut left, mut burst) = (length, pace.burst);
    while left > 0 {
        let room = usize::try_from(left.min(buffer.len() as u64)).unwrap();
        let count = io.read(&mut buffer[..room]).await?;
        if count == 0 {
            break;
        }
        digest.update(&buffer[..count]);
        left -= count as u64;
        burst = rest(burst, count, pace).await;
    }
    Ok((length - left, hex(&digest.finish())))
}

async fn rest(burst: u64, count: usize, pace: Pace) -> u64 {
    match burst.checked_sub(count as u64) {
        Some(burst) => burst,
        None => {
            tokio::time::sleep(pace.rest).await;
            pace.burst
        }
    }
}

/// Numbers that look random and are the same in every run with one seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts at a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub const fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_written_is_read_at_any_pace() {
        let length = 3 * PIECE as u64 + 17;
        for pace in [Pace::FAST, Pace { piece: 7, burst: 1000, rest: Duration::from_micros(1) }] {
            let (mut near, mut far) = tokio::io::duplex(4096);
            let writing = async {
                write(&mut near, length, pace).await.unwrap();
                drop(near);
            };
            let ((), read) = tokio::join!(writing, read(&mut far, u64::MAX, Pace::FAST));
            assert_eq!(read.unwrap(), (length, sha256(length)));
        }
    }

    #[test]
    fn every_piece_counts() {
        assert_ne!(sha256(2 * PIECE as u64), sha256(PIECE as u64));
        let mut content = Content::default();
        let first = content.more().to_vec();
        assert_ne!(content.more(), first);
    }
}
