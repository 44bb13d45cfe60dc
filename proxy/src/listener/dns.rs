//! The name server of a session (RFC 1035), which asks nobody.
//!
//! A name that the policy may permit at one of the caught ports has an address that stands for it ([`Names`]); whether it
//! exists is found out when a connection to it is judged and dialled. Any other name does not exist, and that is taken
//! down. So no query leaves the session, and none can carry anything out.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use exeat_policy::host::Host;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::names::Names;
use crate::audit::Entry;
use crate::client::{Address, Client};
use crate::drain::Drain;
use crate::gate::{Caller, Gate};

/// How long an answer may be kept, in seconds. The addresses hold as long as the session; what is permitted may change.
const TTL: u32 = 60;
/// The longest query that is read.
const MAX_QUERY: usize = 4096;
/// Connections at once, and how long one may wait with its next query.
const MAX_STREAMS: usize = 64;
const STREAM_IDLE: Duration = Duration::from_secs(10);

const A: u16 = 1;
const AAAA: u16 = 28;
const INTERNET: u16 = 1;

const NO_ERROR: u8 = 0;
const FORMAT_ERROR: u8 = 1;
const SERVER_FAILURE: u8 = 2;
const NAME_ERROR: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;

/// The name server.
#[derive(Debug)]
pub(crate) struct NameServer {
    /// Judges names.
    pub(crate) gate: Arc<Gate>,
    /// Gives them addresses.
    pub(crate) names: Arc<Names>,
    /// The ports at which a name has to be permitted to have an address.
    pub(crate) ports: Arc<[u16]>,
    /// Whether addresses of IPv6 lead to the gateway.
    pub(crate) ipv6: bool,
}

/// Answers over UDP until the drain begins.
pub(crate) async fn serve_udp(server: Arc<NameServer>, socket: UdpSocket, mut drain: Drain) {
    let mut buffer = vec![0; MAX_QUERY];
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut buffer) => received,
            () = drain.begun() => return,
        };
        // An error is that of an earlier answer, whose asker was gone.
        let Ok((length, from)) = received else { continue };
        if let Some(answer) = server.answer(buffer.get(..length).unwrap_or_default(), Address::Tcp(from)) {
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

/// Answers over TCP (RFC 7766) until the drain begins.
pub(crate) async fn serve_tcp(server: Arc<NameServer>, listener: TcpListener, mut drain: Drain) {
    let places = Arc::new(Semaphore::new(MAX_STREAMS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = drain.begun() => return,
        };
        if let (Ok((stream, from)), Ok(place)) = (accepted, Arc::clone(&places).try_acquire_owned()) {
            let (server, mut drain) = (Arc::clone(&server), drain.clone());
            tokio::spawn(async move {
                tokio::select! {
                    _ = serve_stream(&server, stream, Address::Tcp(from)) => {}
                    () = drain.begun() => {}
                }
                drop(place);
            });
        }
    }
}

async fn serve_stream(server: &NameServer, mut stream: TcpStream, from: Address) -> io::Result<()> {
    loop {
        let length = timeout(STREAM_IDLE, stream.read_u16()).await??;
        let mut query = vec![0; usize::from(length)];
        timeout(STREAM_IDLE, stream.read_exact(&mut query)).await??;
        let Some(answer) = server.answer(&query, from) else { return Ok(()) };
        let length = u16::try_from(answer.len()).unwrap_or_default();
        stream.write_all(&[&length.to_be_bytes()[..], &answer].concat()).await?;
    }
}

impl NameServer {
    /// The answer to a message; none for one that is no query.
    fn answer(&self, message: &[u8], from: Address) -> Option<Vec<u8>> {
        let query = match Query::read(message)? {
            Ok(query) => query,
            Err(code) => return Some(Query::default().answer(message, code, None)),
        };
        let (code, address) = self.look_up(&query, from);
        Some(query.answer(message, code, address))
    }

    fn look_up(&self, query: &Query, from: Address) -> (u8, Option<IpAddr>) {
        let wanted = |short: Ipv4Addr, long: Ipv6Addr| match (query.class, query.kind) {
            (INTERNET, A) => Some(IpAddr::V4(short)),
            (INTERNET, AAAA) if self.ipv6 => Some(IpAddr::V6(long)),
            _ => None,
        };
        // What stands in a query may be no host at all.
        let Some(host) =
            query.name.as_deref().and_then(|name| Host::parse(name).ok()).filter(|host| host.ip().is_none())
        else {
            return (NAME_ERROR, None);
        };
        if host.as_str() == "localhost" || host.as_str().ends_with(".localhost") {
            return (NO_ERROR, wanted(Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST));
        }
        let caller = Caller { client: Client { address: from, user: None, account: None }, entry: Entry::Dns };
        if !self.gate.may_name(&caller, &host, &self.ports) {
            return (NAME_ERROR, None);
        }
        match self.names.addresses(&host) {
            Some((short, long)) => (NO_ERROR, wanted(short, long)),
            None => {
                tracing::error!(%host, "the session has asked for too many names");
                (SERVER_FAILURE, None)
            }
        }
    }
}

/// The one question of a query.
#[derive(Debug, Default, PartialEq, Eq)]
struct Query {
    /// The name; none where it is none that text can hold.
    name: Option<String>,
    kind: u16,
    class: u16,
    /// Where the question ends.
    end: usize,
}

impl Query {
    /// Reads a query: none for a message that is none, an error code for one that is not served.
    fn read(message: &[u8]) -> Option<Result<Self, u8>> {
        let [_, _, flags, _, questions @ ..] = message.get(..12)? else { return None };
        if flags & 0x80 != 0 {
            return None;
        }
        if flags & 0x78 != 0 {
            return Some(Err(NOT_IMPLEMENTED));
        }
        if questions.get(..2) != Some(&[0, 1]) {
            return Some(Err(FORMAT_ERROR));
        }
        Some(Self::question(message).ok_or(FORMAT_ERROR))
    }

    fn question(message: &[u8]) -> Option<Self> {
        let (mut name, mut at) = (Some(String::new()), 12);
        loop {
            let length = usize::from(*message.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            // The first name of a message cannot be compressed; 255 bytes is the longest (RFC 1035 section 2.3.4).
            if length > 63 || at + length > 12 + 255 {
                return None;
            }
            let label = message.get(at..at + length)?;
            at += length;
            name = name.zip(std::str::from_utf8(label).ok().filter(|label| !label.contains('.'))).map(
                |(mut name, label)| {
                    if !name.is_empty() {
                        name.push('.');
                    }
                    name.push_str(label);
                    name
                },
            );
        }
        let number = |at: usize| Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
        Some(Self { name, kind: number(at)?, class: number(at + 2)?, end: at + 4 })
    }

    /// The message that answers: the question again, and a record where there is an address.
    fn answer(&self, message: &[u8], code: u8, address: Option<IpAddr>) -> Vec<u8> {
        let question = message.get(12..self.end).unwrap_or_default();
        let identity = message.get(..2).unwrap_or_default();
        // An answer, authoritative, with the flag "recursion desired" as it came, and recursion available.
        let flags = [0x84 | (message.get(2).unwrap_or(&0) & 1), 0x80 | code];
        let counts = [0, u8::from(!question.is_empty()), 0, u8::from(address.is_some()), 0, 0, 0, 0];
        let mut bytes = [identity, &flags, &counts, question].concat();
        if let Some(address) = address {
            // The name is that of the question, at offset 12 of the message.
            bytes.extend([0xC0, 12]);
            bytes.extend(self.kind.to_be_bytes());
            bytes.extend(self.class.to_be_bytes());
            bytes.extend(TTL.to_be_bytes());
            match address {
                IpAddr::V4(address) => bytes.extend([&[0, 4][..], &address.octets()].concat()),
                IpAddr::V6(address) => bytes.extend([&[0, 16][..], &address.octets()].concat()),
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &[&[u8]], kind: u16) -> Vec<u8> {
        let mut bytes = vec![0xAB, 0xCD, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name {
            bytes.push(u8::try_from(label.len()).unwrap());
            bytes.extend(*label);
        }
        bytes.push(0);
        bytes.extend(kind.to_be_bytes());
        bytes.extend([0, 1]);
        bytes
    }

    #[test]
    fn a_question_is_read_whole_or_not_at_all() {
        let bytes = message(&[b"Api", b"example", b"test"], A);
        let query = Query::read(&bytes).unwrap().unwrap();
        assert_eq!(query, Query { name: Some("Api.example.test".to_owned()), kind: A, class: 1, end: bytes.len() });
        for end in 0..bytes.len() {
            assert!(Query::read(&bytes[..end]).is_none_or(|read| read == Err(FORMAT_ERROR)), "{end}");
        }
        for odd in [[b"a.b".as_slice(), b"test"], [b"\xff", b"test"]] {
            assert_eq!(Query::read(&message(&odd, A)).unwrap().unwrap().name, None);
        }
        let mut compressed = bytes.clone();
        compressed[12] = 0xC0;
        assert_eq!(Query::read(&compressed), Some(Err(FORMAT_ERROR)));
        let (mut answer, mut update) = (bytes.clone(), bytes);
        answer[2] |= 0x80;
        update[2] |= 5 << 3;
        assert_eq!(Query::read(&answer), None);
        assert_eq!(Query::read(&update), Some(Err(NOT_IMPLEMENTED)));
    }

    #[test]
    fn an_answer_repeats_the_question_and_gives_one_address() {
        let bytes = message(&[b"a", b"test"], AAAA);
        let query = Query::read(&bytes).unwrap().unwrap();
        let answer = query.answer(&bytes, NO_ERROR, Some(Ipv6Addr::LOCALHOST.into()));
        assert_eq!(answer[..12], [0xAB, 0xCD, 0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(answer[12..bytes.len()], bytes[12..]);
        let record = [&[0xC0, 12, 0, 28, 0, 1, 0, 0, 0, 60, 0, 16][..], &Ipv6Addr::LOCALHOST.octets()].concat();
        assert_eq!(answer[bytes.len()..], record);
        let refused = query.answer(&bytes, NAME_ERROR, None);
        assert_eq!((refused[3], refused[7], refused.len()), (0x83, 0, bytes.len()));
    }
}
