//! Servers of the outside world.
//!
//! [`Origin`] speaks HTTP/1.1 or HTTP/2, plain or over TLS, and answers each path as a [`Site`] says; [`Echo`] are servers that
//! speak something else. Both count their connections, and an origin keeps every request as it arrived.

pub(crate) mod h2;
mod http;
mod raw;
mod record;
mod reply;

pub use http::{Origin, Site};
pub use raw::{BANNER, Echo};
pub use record::Request;
pub(crate) use record::hex;
pub use reply::{EventSource, Gate, Reply};
