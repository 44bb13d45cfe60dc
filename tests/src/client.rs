//! Clients: a raw connection that sends exactly the given bytes, and real programs.

mod command;
mod conn;
pub mod socks;

pub use command::{Cmd, Output, curl};
pub use conn::{RawConn, Response};
