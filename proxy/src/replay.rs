//! Recorded traffic, in the formats that gateways, proxies and browsers write.
//!
//! [`Input::open`] finds out what a file is from its first bytes and gives it out in pieces: blocks of lines for logs,
//! single records for documents. [`Piece::records`] reads a piece, on any thread. A file is never held as a whole: of a
//! log a few blocks are, of a HAR one entry without its bodies, of a flow file one flow.
//!
//! A record says what was asked for and, where the log does, whether it was let out. What a log does not say is not
//! guessed: a CONNECT has no path, whatever went through the tunnel.

mod flows;
mod har;
mod input;
mod line;
pub(crate) mod tally;

pub(crate) use input::{Format, Input, Piece};

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// A URL, or the authority of a tunnel.
    pub(crate) asked: String,
    /// Whether it was let out; none where the log does not say, or says only that it failed for another reason.
    pub(crate) recorded: Option<bool>,
}

/// What a line of a log turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// A request or a tunnel.
    Record(Record),
    /// Something that is no request: a comment, or a line about another matter.
    Other,
    /// Nothing that is known.
    Unreadable,
}
