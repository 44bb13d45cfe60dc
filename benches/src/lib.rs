//! What exeat costs, measured.
//!
//! [`load`] is the side-by-side load bench: exeat, other proxies, and relays without any policy, one after the other
//! over the same scenarios in one run. The criterion benches of single functions stand in `benches/`.

pub mod load;
