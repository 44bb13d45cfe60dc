//! A name server (RFC 1035) that answers what the test says and remembers what it was asked.
//!
//! It listens on one loopback port over UDP and TCP. A name without an entry does not exist.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use crate::relay::Task;
use crate::wait::Journal;

/// What a name leads to.
#[derive(Clone, Debug)]
pub enum Answer {
    /// These addresses; each query gets those of its family, possibly none.
    Addresses(Vec<IpAddr>),
    /// Another name, whose own answers follow in the same message.
    Alias(String),
    /// The name does not exist.
    NoSuchName,
    /// The name does not exist, and its zone says that this may be kept for so many seconds.
    NoSuchNameFor(u32),
    /// The server failed.
    Failure,
    /// No answer at all.
    Silence,
    /// Over UDP only the word that the answer is too long (TC); over TCP these addresses.
    Truncated(Vec<IpAddr>),
}

impl Answer {
    /// The addresses, parsed.
    #[must_use]
    pub fn addresses(addresses: &[&str]) -> Self {
        Self::Addresses(addresses.iter().map(|address| address.parse().unwrap()).collect())
    }
}

/// A question as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The name, lower case, without the last dot.
    pub name: String,
    /// The record type: 1 A, 28 AAAA, 65 HTTPS.
    pub kind: u16,
    /// Whether it came over TCP.
    pub tcp: bool,
}

#[derive(Clone, Debug, Default)]
struct Zone {
    names: Arc<Mutex<HashMap<String, Vec<Answer>>>>,
    queries: Journal<Query>,
}

/// A running name server.
#[derive(Debug)]
pub struct Dns {
    addr: SocketAddr,
    zone: Zone,
    _tasks: [Task; 2],
}

impl Dns {
    /// Starts one that knows no name.
    pub async fn start() -> Self {
        let (udp, tcp) = bind().await;
        let addr = udp.local_addr().unwrap();
        let zone = Zone::default();
        let tasks = [Task::spawn(serve_udp(udp, zone.clone())), Task::spawn(serve_tcp(tcp, zone.clone()))];
        Self { addr, zone, _tasks: tasks }
    }

    /// Where it listens, the same port over UDP and TCP.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Answers `name` so from now on.
    pub fn set(&self, name: &str, answer: Answer) {
        self.set_sequence(name, vec![answer]);
    }

    /// Answers `name` with each in turn, and then with the last for good. Every query counts as a turn, so a client
    /// that asks for A and AAAA takes two.
    pub fn set_sequence(&self, name: &str, answers: Vec<Answer>) {
        self.zone.names.lock().unwrap().insert(name.to_owned(), answers);
    }

    /// Every query so far.
    #[must_use]
    pub fn queries(&self) -> Vec<Query> {
        self.zone.queries.all()
    }

    /// The queries for `name`.
    #[must_use]
    pub fn queries_for(&self, name: &str) -> usize {
        self.queries().iter().filter(|query| query.name == name).count()
    }

    /// Waits until somebody has asked for `name`.
    pub async fn await_query(&self, name: &str) {
        let asked = |all: &[Query]| all.iter().any(|query| query.name == name);
        self.zone.queries.when(&format!("a query for {name}"), asked).await;
    }
}

/// A port that is free over both UDP and TCP.
async fn bind() -> (UdpSocket, TcpListener) {
    loop {
        let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
            return (udp, tcp);
        }
    }
}

async fn serve_udp(socket: UdpSocket, zone: Zone) {
    let mut buffer = [0; 4096];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
        if let Some(answer) = zone.answer(&buffer[..length], false) {
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

async fn serve_tcp(listener: TcpListener, zone: Zone) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let zone = zone.clone();
        tokio::spawn(async move {
            // The asker closes when it has its answer; that ends the reading with an error, as it should.
            let _ = serve_stream(stream, &zone).await;
        });
    }
}

async fn serve_stream(mut stream: TcpStream, zone: &Zone) -> io::Result<()> {
    loop {
        let length = stream.read_u16().await?;
        let mut message = vec![0; usize::from(length)];
        stream.read_exact(&mut message).await?;
        if let Some(answer) = zone.answer(&message, true) {
            stream.write_u16(u16::try_from(answer.len()).unwrap()).await?;
            stream.write_all(&answer).await?;
        }
    }
}

const NO_ERROR: u8 = 0;
const SERVER_FAILURE: u8 = 2;
const NAME_ERROR: u8 = 3;

impl Zone {
    fn next(&self, name: &str) -> Answer {
        let mut names = self.names.lock().unwrap();
        match names.get_mut(name) {
            Some(answers) if answers.len() > 1 => answers.remove(0),
            Some(answers) => answers.first().cloned().unwrap_or(Answer::NoSuchName),
            None => Answer::NoSuchName,
        }
    }

    fn answer(&self, message: &[u8], tcp: bool) -> Option<Vec<u8>> {
        let (name, end) = read_name(message, 12)?;
        let question = message.get(12..end + 4)?;
        let kind = u16::from_be_bytes([message[end], message[end + 1]]);
        self.queries.push(Query { name: name.clone(), kind, tcp });

        let mut records = Vec::new();
        let mut code = NO_ERROR;
        let mut truncated = false;
        let mut authority = None;
        let mut owner = name;
        loop {
            match self.next(&owner) {
                Answer::Silence => return None,
                Answer::Failure => code = SERVER_FAILURE,
                Answer::NoSuchName => code = NAME_ERROR,
                Answer::NoSuchNameFor(seconds) => {
                    code = NAME_ERROR;
                    authority = Some(start_of_authority(seconds));
                }
                Answer::Truncated(_) if !tcp => truncated = true,
                Answer::Addresses(addresses) | Answer::Truncated(addresses) => {
                    records.extend(addresses.iter().filter_map(|address| address_record(&owner, kind, *address)));
                }
                Answer::Alias(target) => {
                    records.push(record(&owner, 5, &write_name(&target)));
                    owner = target;
                    continue;
                }
            }
            break;
        }
        let flags = 0x84 | if truncated { 2 } else { 0 } | (message[2] & 1);
        let count = u16::try_from(records.len()).unwrap().to_be_bytes();
        let header = [
            message[0],
            message[1],
            flags,
            0x80 | code,
            0,
            1,
            count[0],
            count[1],
            0,
            u8::from(authority.is_some()),
            0,
            0,
        ];
        Some([&header[..], question, &records.concat(), &authority.unwrap_or_default()].concat())
    }
}

fn address_record(owner: &str, kind: u16, address: IpAddr) -> Option<Vec<u8>> {
    match (kind, address) {
        (1, IpAddr::V4(address)) => Some(record(owner, 1, &address.octets())),
        (28, IpAddr::V6(address)) => Some(record(owner, 28, &address.octets())),
        _ => None,
    }
}

/// A record of class IN that must not be cached.
fn record(owner: &str, kind: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = write_name(owner);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1, 0, 0, 0, 0]);
    bytes.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
    bytes.extend(data);
    bytes
}

/// The record of a zone that has names not exist for so many seconds (RFC 2308 section 5).
fn start_of_authority(seconds: u32) -> Vec<u8> {
    let mut data = [write_name("ns.test"), write_name("hostmaster.test")].concat();
    [1, 3600, 600, 86_400, seconds].iter().for_each(|number: &u32| data.extend(number.to_be_bytes()));
    let mut bytes = write_name("test");
    bytes.extend([0, 6, 0, 1]);
    bytes.extend(seconds.to_be_bytes());
    bytes.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
    bytes.extend(data);
    bytes
}

fn write_name(name: &str) -> Vec<u8> {
    let labels = name.split('.').filter(|label| !label.is_empty());
    let mut bytes = labels.fold(Vec::new(), |mut bytes, label| {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.as_bytes());
        bytes
    });
    bytes.push(0);
    bytes
}

/// Reads an uncompressed name, as questions hold it; returns it and where it ends.
fn read_name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join(".").to_ascii_lowercase(), at));
        }
        labels.push(String::from_utf8_lossy(message.get(at..at + length)?).into_owned());
        at += length;
    }
}
