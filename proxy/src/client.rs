//! Who is at the other end of a client connection.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::auth::Account;
use crate::evidence::Purpose;

/// A client: where it is, and who it has shown itself to be.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// Where it is.
    pub(crate) address: Address,
    /// The name of its proxy credentials, or else of its certificate.
    pub(crate) user: Option<Arc<str>>,
    /// What its proxy credentials belong to, where it had to show any.
    pub(crate) account: Option<Arc<Account>>,
}

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// The far end of a TCP connection, or what a trusted source said it is.
    Tcp(SocketAddr),
    /// A process of this machine, by a Unix socket.
    Unix {
        /// The user it ran as when it connected.
        uid: u32,
        /// The process, where the system tells.
        pid: Option<i32>,
    },
    /// The gateway itself, by a connection that never leaves the process.
    Inner(Purpose),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp {address}"),
            Self::Unix { uid, pid: Some(pid) } => write!(f, "unix uid={uid} pid={pid}"),
            Self::Unix { uid, pid: None } => write!(f, "unix uid={uid}"),
            Self::Inner(_) => f.write_str("readiness"),
        }
    }
}
