//! exeat: an egress gateway for agent sessions.
//!
//! A forward proxy that loads an agent manifest, lets out only what its `network_access` permits, puts bound
//! credentials on requests to its `mcpServers`, and says why about every verdict. What is permitted is decided in the
//! `exeat-policy` crate; this one brings the decisions to real traffic.
//!
//! The modules depend on each other downwards only: [`cli`] → server → listener → gate → intercept, tunnel,
//! upstream, credentials, redact, auth → audit, respond, metrics.

mod admin;
mod audit;
mod auth;
mod cases;
pub mod cli;
mod client;
pub mod config;
mod credentials;
mod crypto;
mod drain;
mod evidence;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod guard;
mod hits;
mod intercept;
mod judge;
mod keepalive;
mod lines;
mod lint;
mod listener;
mod load;
mod mcp;
mod metrics;
mod patience;
mod permit;
mod quota;
mod rare;
pub mod redact;
mod replay;
mod respond;
mod scratch;
pub mod server;
mod sessions;
#[cfg(target_os = "linux")]
mod sidecar;
mod snapshot;
mod tally;
mod tunnel;
mod upstream;
mod view;
