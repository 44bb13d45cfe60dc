//! Clients: a raw connection that sends exactly the given bytes, and real programs.

mod command;
mod conn;
mod h2;
pub mod socks;

pub use command::{Cmd, Output, curl};
pub use conn::{Opened, RawConn, Response};
pub use h2::{H2Conn, H2Opened, H2Stream};
