//! Evidence: what was checked of the manifest's servers, through the gateway's own way out.
//!
//! Each server has ten checks, made in order by messages that go in at the gateway's own listener: what passes here
//! passes for an agent, with the same policy, credential, guard and dialler. A check that was not reached is reported
//! as such. Checks are made at start, after each reload, at intervals with jitter, sooner (and then ever later) after a
//! failure, and when somebody asks.

pub(crate) mod answer;
pub(crate) mod board;
pub(crate) mod carrier;
pub(crate) mod must_deny;
mod named;
pub(crate) mod probe;
pub(crate) mod report;
pub(crate) mod server;

pub(crate) use board::Board;
pub(crate) use carrier::{Enter, Purpose};
pub(crate) use must_deny::MustDeny;
pub(crate) use server::ServerSpec;
