//! The commands.

pub mod diagnostics;
