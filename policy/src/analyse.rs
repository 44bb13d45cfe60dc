//! Questions about rules that are not about one request: what a rule is good for, what a change of rules opens, which
//! rules would permit what was seen.
//!
//! A policy divides all requests into finitely many classes: two requests that match the same rules get the same
//! decision. [`space`] finds one request of each class, from the rules alone: for every host that is named, the host,
//! a subdomain and, once, a host that nobody names; for every origin that is named, a path at, below and beside each
//! prefix. What holds for all of those holds for everything, so the questions become finite, and each answer comes
//! with a request that shows it. The requests are judged by [`Policy::decide`], the function the gateway calls; nothing
//! here decides by itself.
//!
//! * [`explain`] walks the layers for one request.
//! * [`diff`] says what a change opens and closes.
//! * [`lint`] says which rules contradict, repeat or miss each other.
//! * [`suggest`] writes rules for what was seen.
//!
//! [`Policy::decide`]: crate::Policy::decide

pub mod diff;
pub mod explain;
pub mod lint;
mod matching;
mod space;
pub mod suggest;
mod table;

pub use table::layers_of;

#[cfg(test)]
mod tests;
