//! SOCKS5 towards clients (RFC 1928): CONNECT, with names resolved here.
//!
//! A SOCKS5 CONNECT is a tunnel like that of an HTTP CONNECT, and goes through the same gate. What SOCKS has no words
//! for, such as the rule that refused, stands in the log alone. BIND and UDP ASSOCIATE are not served, and SOCKS4 is
//! refused in its own words: it would have to be trusted to resolve names.

pub(crate) mod wire;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use exeat_policy::Reason;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout, timeout_at};

use self::wire::{Command, Method, Read, Request};
use super::http1::{Bounds, Switched};
use super::stream::Stream;
use crate::audit::Entry;
use crate::auth::Credentials;
use crate::client::Client;
use crate::gate::{Caller, Gate, Refusal, Subject, Switch};
use crate::respond::{SOCKS4_REJECTED, socks5_reply};

/// How much of what a client sends ahead is read while its tunnel is opened.
const READ_AHEAD: usize = 16 * 1024;
/// How long, and how much, a refused connection still reads so that the client sees the reply.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 64 * 1024;

/// Serves a SOCKS5 client up to its tunnel; none where there is to be none. `buffer` was read from it already.
pub(crate) async fn serve(
    gate: &Arc<Gate>,
    client: Client,
    stream: Stream,
    buffer: BytesMut,
    bounds: Bounds,
) -> Option<Switched<Switch>> {
    let mut session = Session::new(gate, client, Entry::Socks5, stream, buffer, bounds);
    match session.run().await {
        Ok(switch) => Some(Switched { stream: session.stream, buffered: session.buffer, switch }),
        Err(Stop::Refused(words)) => {
            session.end(&words).await;
            None
        }
        Err(Stop::Gone) => None,
    }
}

/// Refuses a SOCKS4 client.
pub(crate) async fn refuse_socks4(gate: &Arc<Gate>, client: Client, stream: Stream, buffer: BytesMut, bounds: Bounds) {
    let mut session = Session::new(gate, client, Entry::Forward, stream, buffer, bounds);
    let detail = "SOCKS4 is not served; use SOCKS5 with names resolved by the proxy (socks5h://)";
    session.note(&Refusal::new(Reason::UnsupportedProtocol, detail), "", "");
    session.end(&SOCKS4_REJECTED).await;
}

/// A reply (RFC 1928 section 6). The address in it would be that of the gateway's own side, which is nobody's business.
fn reply(reason: Reason) -> Vec<u8> {
    vec![5, socks5_reply(reason), 0, 1, 0, 0, 0, 0, 0, 0]
}

/// Why a client gets no tunnel.
enum Stop {
    /// It went away.
    Gone,
    /// It was refused, as has been taken down; these are the last words to it.
    Refused(Vec<u8>),
}

/// One client on its way to a tunnel.
struct Session {
    gate: Arc<Gate>,
    caller: Caller,
    stream: Stream,
    buffer: BytesMut,
    /// When the client has to have said everything.
    deadline: Instant,
    idle: Duration,
}

impl Session {
    fn new(
        gate: &Arc<Gate>,
        client: Client,
        entry: Entry,
        stream: Stream,
        buffer: BytesMut,
        Bounds { head_time, idle, .. }: Bounds,
    ) -> Self {
        let caller = Caller { client, entry };
        Self { gate: Arc::clone(gate), caller, stream, buffer, deadline: Instant::now() + head_time, idle }
    }

    async fn run(&mut self) -> Result<Switch, Stop> {
        self.authenticate().await?;
        let Request { command, destination } = self.read(wire::request, reply).await?;
        if command != Command::Connect {
            let shown = destination.map_or_else(|(_, shown)| shown, |authority| authority.to_string());
            let refusal = Refusal::new(Reason::MethodRefused, "of the commands of SOCKS5, CONNECT alone is served");
            return Err(self.refused(&refusal, command.as_str(), &shown, reply));
        }
        let authority = match destination {
            Ok(authority) => authority,
            Err((refusal, shown)) => return Err(self.refused(&refusal, command.as_str(), &shown, reply)),
        };
        let opened = tokio::select! {
            biased;
            opened = self.gate.tunnel_or_reason(&self.caller, &authority) => opened,
            () = gone(&mut self.stream, &mut self.buffer) => return Err(Stop::Gone),
        };
        let switch = opened.map_err(|reason| Stop::Refused(reply(reason)))?;
        self.send(&reply(Reason::Allowed)).await?;
        Ok(switch)
    }

    /// Agrees on a method of authentication and carries it out.
    async fn authenticate(&mut self) -> Result<(), Stop> {
        let none_acceptable = |_| vec![5, 0xFF];
        let offer = self.read(wire::greeting, none_acceptable).await?;
        // Where nobody has to authenticate, a client that insists on it may; and one that can has to where its
        // credentials say which session it belongs to.
        let served: &[_] = match (self.gate.authentication_required(), self.gate.credentials_matter()) {
            (true, _) => &[Method::Password],
            (false, true) => &[Method::Password, Method::None],
            (false, false) => &[Method::None, Method::Password],
        };
        let Some(method) = served.iter().copied().find(|method| offer.has(*method)) else {
            let refusal = Refusal::new(Reason::ProxyAuth, "the client offers no method of authentication served here");
            return Err(self.refused(&refusal, "", "", none_acceptable));
        };
        self.send(&[5, method.code()]).await?;
        if method == Method::Password {
            let wrong = |_| vec![1, 1];
            let (name, password) = self.read(wire::credentials, wrong).await?;
            let presented = || Some(Credentials::password(&name, &password));
            match self.gate.authenticate(&mut self.caller.client, presented) {
                Ok(gate) => self.gate = gate,
                Err(denied) => return Err(self.refused(&denied.refusal, "", "", wrong)),
            }
            self.send(&[1, 0]).await?;
        }
        Ok(())
    }

    /// Reads a message; `words` are those for a client that breaks the rules or takes too long.
    async fn read<T>(
        &mut self,
        message: impl Fn(&[u8]) -> Read<T>,
        words: impl FnOnce(Reason) -> Vec<u8>,
    ) -> Result<T, Stop> {
        let refusal = loop {
            match message(&self.buffer) {
                Ok(Some((message, length))) => {
                    self.buffer.advance(length);
                    return Ok(message);
                }
                Ok(None) => {}
                Err(refusal) => break refusal,
            }
            match timeout_at(self.deadline, self.stream.read_buf(&mut self.buffer)).await {
                Ok(Ok(0) | Err(_)) => return Err(Stop::Gone),
                Ok(Ok(_)) => {}
                Err(_) => break Refusal::new(Reason::HeadTimeout, "the SOCKS5 request did not arrive in time"),
            }
        };
        Err(self.refused(&refusal, "", "", words))
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let sent = timeout(self.idle, async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        });
        sent.await.ok().and_then(Result::ok).ok_or(Stop::Gone)
    }

    /// Takes a refusal down that the gate has not.
    fn note(&self, refusal: &Refusal, command: &str, destination: &str) {
        let snapshot = self.gate.current.get();
        self.gate.turned_away(&Subject::unjudged(&self.caller, &snapshot, command, &destination), refusal);
    }

    fn refused(
        &self,
        refusal: &Refusal,
        command: &str,
        destination: &str,
        words: impl FnOnce(Reason) -> Vec<u8>,
    ) -> Stop {
        self.note(refusal, command, destination);
        Stop::Refused(words(refusal.reason))
    }

    /// Says the last words and closes so that the client can still read them: a socket closed with unread bytes resets
    /// it.
    async fn end(&mut self, words: &[u8]) {
        let _ = timeout(LINGER, async {
            self.stream.write_all(words).await?;
            self.stream.shutdown().await?;
            let mut left = LINGER_BYTES;
            while left > 0 {
                self.buffer.clear();
                match self.stream.read_buf(&mut self.buffer).await? {
                    0 => break,
                    length => left = left.saturating_sub(length),
                }
            }
            io::Result::Ok(())
        })
        .await;
    }
}

/// Resolves when the client has gone away; reads ahead a little until then.
///
/// # Cancel safety
/// What was read stays in `buffer` when the future is dropped.
async fn gone(stream: &mut Stream, buffer: &mut BytesMut) {
    while buffer.len() < READ_AHEAD {
        buffer.reserve(1024);
        if stream.read_buf(buffer).await.unwrap_or(0) == 0 {
            return;
        }
    }
    std::future::pending().await
}
