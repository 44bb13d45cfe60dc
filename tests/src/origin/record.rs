//! What an origin writes down.

use crate::wire::Head;

/// How much of a body is kept; longer ones are known by length and digest.
const KEPT: usize = 1 << 20;

/// A request as it arrived.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Which connection it came on, counted from 0.
    pub connection: usize,
    /// The TLS server name of that connection.
    pub sni: Option<String>,
    /// The method.
    pub method: String,
    /// The request target, as sent.
    pub target: String,
    /// The version, as sent.
    pub version: String,
    /// The request line and the header lines.
    pub head: Head,
    /// The first mebibyte of the body, without chunk framing.
    pub body: Vec<u8>,
    /// The length of the body in bytes.
    pub body_length: u64,
    /// SHA-256 of the whole body in hex, once it has ended.
    pub body_sha256: String,
    /// The trailer lines.
    pub trailers: Vec<String>,
    /// Whether the whole request has arrived.
    pub complete: bool,
}

impl Request {
    pub(super) fn new(connection: usize, sni: Option<String>, head: Head) -> Self {
        let mut words = head.start.split(' ').map(str::to_owned);
        let mut word = || words.next().unwrap_or_default();
        let (method, target, version) = (word(), word(), word());
        Self { connection, sni, method, target, version, head, ..Self::default() }
    }

    pub(super) fn append(&mut self, piece: &[u8]) {
        let room = KEPT.saturating_sub(self.body.len()).min(piece.len());
        self.body.extend_from_slice(&piece[..room]);
        self.body_length += piece.len() as u64;
    }

    /// The target without its query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The query, empty where there is none.
    #[must_use]
    pub fn query(&self) -> &str {
        self.target.split_once('?').map_or("", |(_, query)| query)
    }

    /// The values of the fields called `name`, compared without case, in order.
    #[must_use]
    pub fn values(&self, name: &str) -> Vec<String> {
        self.head.values(name)
    }

    /// The only value of the field called `name`; panics when it is there more than once.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<String> {
        self.head.value(name)
    }

    /// Whether there is a field called `name`.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.head.has(name)
    }
}

/// SHA-256 in hex.
#[must_use]
pub(crate) fn hex(digest: &ring::digest::Digest) -> String {
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
