//! Who is at the other end of a client connection.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// A client: where it is, and who it has shown itself to be.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// Where it is.
    pub(crate) address: Address,
    /// The name of its proxy credentials, or else of its certificate.
    pub(crate) user: Option<Arc<str>>,
}

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// The far end of a TCP connection.
    Tcp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp {address}"),
        }
    }
}
