//! A session: a command that has the gateway as its only way out.
//!
//! Three processes stand behind `exeat run`, all of them this program:
//!
//! - the gateway, which stays where it is and reaches the network;
//! - the *keeper*, a single-threaded helper that leaves for namespaces of its own (user, network, mounts, processes, IPC),
//!   makes every address there lead back to itself, opens the listening sockets, passes them to the gateway and then
//!   waits;
//! - the *init* process of the new process namespace, which gives up its privileges, starts the command, collects what
//!   becomes orphaned, and tells how the command ended.
//!
//! The keeper exists because a process namespace holds the children of who made it, and because making a user namespace
//! takes a process of one thread. Where a session is not confined, the init process alone is started, outside of any
//! namespace.
//!
//! Each of the three dies with the one before it, by the death signal of Linux and by the end of their common channel;
//! with the init process of a namespace everything in it ends.

pub(crate) mod channel;
mod dev;
pub(crate) mod helper;
mod init;
mod masks;
mod namespaces;
mod netlink;
pub(crate) mod parent;
mod privileges;
mod sockets;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub(crate) use parent::{Command, End, Session, Signals};
pub(crate) use sockets::Sockets;

/// The first argument by which this program is told to be a helper.
pub(crate) const HELPER: &str = "__session";

/// What is to be closed in around the command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The proxy port, on loopback inside.
    pub(crate) proxy: u16,
    /// The port of the local endpoints of MCP servers, on loopback inside.
    pub(crate) mcp: Option<u16>,
    /// Ports on which connections to any address are caught.
    pub(crate) catch: Vec<u16>,
    /// Files that the command must not read: keys, bound secrets.
    pub(crate) secrets: Vec<PathBuf>,
    /// The folder of the gateway's state, which the command sees empty.
    pub(crate) state: Option<PathBuf>,
    /// Unix sockets outside that it may use.
    pub(crate) sockets: Vec<PathBuf>,
}

/// What the gateway says to its helpers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Close this in; for the keeper.
    Confine(Plan),
    /// The maps of the user namespace are written; for the keeper.
    Mapped,
    /// Start the command, with the descriptor that comes along as its standard input; for the init process.
    Go,
    /// Send the command this signal; for the init process.
    Signal(i32),
}

/// What the helpers say to the gateway.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum News {
    /// The namespaces are made and need their maps.
    Unshared,
    /// The listening sockets come along: the proxy port, the name server over UDP and TCP, the endpoints of MCP servers,
    /// the caught ports in order.
    Listening {
        /// Whether there are such endpoints.
        mcp: bool,
        /// Whether addresses of IPv6 lead back too.
        ipv6: bool,
    },
    /// The init process awaits its order.
    Up,
    /// Something is not possible here.
    Failed(String),
    /// The command cannot be started; the number is the system's error.
    NotStarted(Option<i32>),
    /// The command has ended by itself with this code.
    Exited(i32),
    /// The command was ended by this signal.
    Killed(i32),
}
