//! Credentials: where they come from, what they belong to, and the one moment they become bytes.

mod inject;
mod source;

pub(crate) use inject::{InjectError, Injection, Injector};
pub(crate) use source::{Sources, read_secret};
