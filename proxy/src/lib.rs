//! proxy

pub mod cli;
