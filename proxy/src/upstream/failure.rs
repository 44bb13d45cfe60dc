//! What can go wrong on the way out, with words for the client and words for the log.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::IpAddr;

use exeat_policy::Reason;
use exeat_policy::host::Host;
use rustix::io::Errno;

use crate::listener::transit::{BodyFault, USED_UP};

/// A connection or request that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The reason, which also picks the status code.
    pub(crate) reason: Reason,
    /// What happened, fit for the client: no addresses beyond those it named, no paths.
    pub(crate) outside: String,
    /// What happened, for the log.
    pub(crate) inside: String,
}

/// How far a request got that has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The server says that it has not processed it (RFC 9113 section 8.7).
    Unprocessed,
    /// The server gave it up: it reset the stream, said what is no answer, or nothing.
    Reset,
    /// The connection broke; who knows.
    Unknown,
}

impl Fate {
    pub(super) fn of(error: &h2::Error) -> Self {
        let refused = error.reason() == Some(h2::Reason::REFUSED_STREAM);
        match (error.is_remote(), error.is_go_away(), error.is_reset()) {
            // A GOAWAY reaches only the streams behind the last one that the server processed.
            (true, true, _) => Self::Unprocessed,
            (true, _, true) if refused => Self::Unprocessed,
            (true, _, true) => Self::Reset,
            _ => Self::Unknown,
        }
    }
}

impl Failure {
    pub(super) fn new(reason: Reason, outside: impl Into<String>, inside: impl fmt::Display) -> Self {
        Self { reason, outside: outside.into(), inside: inside.to_string() }
    }

    pub(super) fn connect_timeout() -> Self {
        Self::new(Reason::ConnectTimeout, Reason::ConnectTimeout.text(), "no connection within the limit")
    }

    /// Upstream took a request and said nothing.
    pub(crate) fn upstream_timeout() -> Self {
        Self::new(Reason::UpstreamTimeout, Reason::UpstreamTimeout.text(), "no answer within the idle time")
    }

    pub(super) fn no_addresses() -> Self {
        Self::new(Reason::DnsNotFound, "the name has no addresses", "no addresses")
    }

    pub(super) fn resolve_timeout() -> Self {
        Self::resolve("no name server answered in time", "no answer within the limit")
    }

    /// A name that could not be resolved, and why.
    pub(super) fn resolve(detail: impl fmt::Display, inside: impl fmt::Display) -> Self {
        Self::new(Reason::DnsFailed, format!("{}: {detail}", Reason::DnsFailed.text()), inside)
    }

    pub(super) fn refused_address(reason: Reason, host: &Host, address: IpAddr) -> Self {
        let outside = format!("{host} resolves to an address that the gateway does not reach: {}", reason.text());
        Self::new(reason, outside, format_args!("{host} resolves to {address}"))
    }

    pub(super) fn from_connect(error: &io::Error) -> Self {
        if matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE)) {
            return Self::new(Reason::ConnectionLimit, Reason::ConnectionLimit.text(), error);
        }
        let reason = match error.kind() {
            io::ErrorKind::ConnectionRefused => Reason::ConnectRefused,
            io::ErrorKind::TimedOut => Reason::ConnectTimeout,
            _ => Reason::ConnectFailed,
        };
        Self::new(reason, reason.text(), error)
    }

    /// A failed TLS handshake; what rustls says of it is fit for the client, who has to know which certificate check
    /// failed.
    pub(super) fn from_tls(error: &(dyn Error + 'static)) -> Self {
        let cause = innermost(error);
        let reason = match cause.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::TimedOut) => Reason::ConnectTimeout,
            _ => Reason::UpstreamTls,
        };
        Self::new(reason, format!("{}: {cause}", reason.text()), chain(error))
    }

    /// A failed exchange. Where the client broke its own body, upstream has no part in it.
    pub(super) fn from_hyper(error: &hyper::Error) -> Self {
        if error.is_timeout() {
            return Self::new(Reason::UpstreamTimeout, Reason::UpstreamTimeout.text(), chain(error));
        }
        Self::from_exchange(error)
    }

    /// The same, for an error of a stream or of a body.
    pub(super) fn from_exchange(error: &(dyn Error + 'static)) -> Self {
        if let Some(BodyFault(detail)) = innermost(error).downcast_ref::<BodyFault>() {
            let reason = if *detail == USED_UP { Reason::SessionQuota } else { Reason::BadRequest };
            return Self::new(reason, *detail, detail);
        }
        Self::new(Reason::UpstreamProtocol, Reason::UpstreamProtocol.text(), chain(error))
    }

    /// An answer whose coding cannot be searched.
    pub(crate) fn encoded(coding: &str) -> Self {
        Self::new(Reason::UpstreamEncoded, Reason::UpstreamEncoded.text(), format_args!("the coding {coding:?}"))
    }

    /// An answer that HTTP does not allow here.
    pub(crate) fn protocol(detail: &'static str) -> Self {
        Self::new(Reason::UpstreamProtocol, format!("{}: {detail}", Reason::UpstreamProtocol.text()), detail)
    }
}

fn innermost<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut cause = error;
    loop {
        // An io::Error hides what it wraps from source().
        let wrapped = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        match wrapped.map(|inner| inner as &(dyn Error + 'static)).or_else(|| cause.source()) {
            Some(next) => cause = next,
            None => return cause,
        }
    }
}

fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = next.source();
    }
    text
}
