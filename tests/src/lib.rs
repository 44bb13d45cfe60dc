//! The end-to-end harness: everything a test needs around a gateway, on loopback and in one process.
//!
//! A suite stands on four legs. [`origin`] are the servers of the outside world, scripted byte by byte, which write
//! down every request line and header field as it arrived. [`dns`] is a name server that answers what the test says
//! and remembers what it was asked. [`gateway`] starts the built binary with a manifest and a config and reads its
//! metrics. [`client`] speaks to it: a raw connection for bytes no library would send, and real programs.
//! [`certs`] is the certificate authority that holds it together, [`peers`] finds the Python and Node programs that
//! `.ci/setup` installs and serves the small package indexes they ask.
//!
//! Nothing here sleeps in place of a condition: whatever is waited for is awaited through [`wait::within`], with a
//! deadline and a sentence that says what did not come.

pub mod bulk;
pub mod certs;
pub mod client;
pub mod dns;
pub mod events;
pub mod gateway;
pub mod origin;
pub mod peers;
pub mod relay;
pub mod session;
pub mod socks_server;
pub mod wait;
pub mod wire;
pub mod ws;

/// What a suite needs in nearly every test.
pub mod prelude {
    pub use crate::certs::{Leaf, TestCa};
    pub use crate::client::{Cmd, H2Conn, RawConn, Response};
    pub use crate::dns::{Answer, Dns};
    pub use crate::gateway::{Gateway, Setup};
    pub use crate::origin::{Echo, Origin, Reply, Site};
    pub use crate::wait::within;
}
