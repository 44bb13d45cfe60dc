//! Credentials: where they come from, what they belong to, and the one moment they become bytes.
//!
//! A value is *stored*, in a variable or a file, or *minted*: printed by a program or issued by an authorization server,
//! and good for a time. Both are asked for through [`Sources`] when a request needs them, and a request whose value is
//! not to be had goes nowhere.

mod command;
mod error;
mod inject;
mod minted;
mod oauth;
mod source;
mod stored;

pub(crate) use inject::{Credentials, InjectError, Injection, Injector};
pub(crate) use minted::Errand;
pub(crate) use source::Sources;
pub(crate) use stored::Stored;
