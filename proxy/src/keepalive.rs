//! TCP keepalive: how a connection whose other end has vanished without a word is noticed.
//!
//! A client's machine that loses power, or a firewall that forgets a connection, leaves the gateway with a socket on
//! which nothing ever happens again. The system asks the other end for a sign of life once a connection has been silent
//! for a while; one that gives none is reset, and what was served on it ends.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io;
use rustix::net::sockopt;

/// Between two questions that go unanswered, at most.
const INTERVAL: Duration = Duration::from_secs(15);
/// How many questions may go unanswered.
const PROBES: u32 = 4;

/// Has the system ask for a sign of life after this much silence; none for never.
pub(crate) fn set(socket: impl AsFd, silence: Option<Duration>) {
    // A socket that refuses the options still works: what has vanished is noticed by the idle time alone.
    let _ = match silence {
        Some(silence) => try_set(socket, silence),
        None => sockopt::set_socket_keepalive(&socket, false),
    };
}

fn try_set(socket: impl AsFd, silence: Duration) -> io::Result<()> {
    // The system counts in whole seconds, and not in none of them.
    let silence = Duration::from_secs(silence.as_secs().max(1));
    sockopt::set_tcp_keepidle(&socket, silence)?;
    sockopt::set_tcp_keepintvl(&socket, silence.min(INTERVAL))?;
    sockopt::set_tcp_keepcnt(&socket, PROBES)?;
    sockopt::set_socket_keepalive(&socket, true)
}
