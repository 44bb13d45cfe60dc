//! The origin: answers that were made beforehand, as fast as they can be written.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use memchr::memmem;
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustls::ServerConfig;

use super::imitation;
use super::link::{Got, Link};

/// How much is put into a bulk connection at once.
const BULK_PIECE: usize = 512 * 1024;
/// The body of an ordinary answer.
pub(crate) const BODY: usize = 1024;

static FLIGHT: [u8; imitation::FLIGHT] = [0; imitation::FLIGHT];
static ANSWER: [u8; imitation::ANSWER] = [0; imitation::ANSWER];

/// What an origin does with what it gets.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    /// Answers each request with [`BODY`] bytes.
    Answer,
    /// Answers the first request with bytes without end.
    Bulk(Arc<OwnedFd>),
    /// Plays the server of an [`imitation`] that opens with so many bytes.
    Imitate(usize),
    /// Answers the first request with events that carry the time at which they were sent.
    Events,
}

impl Behaviour {
    /// Bytes without end, from a file in memory, so that sending them costs the origin no copy.
    pub(crate) fn bulk() -> anyhow::Result<Self> {
        let file = memfd_create("bulk", MemfdFlags::CLOEXEC)?;
        let block = vec![b'x'; BULK_PIECE];
        let mut at = 0;
        while let Some(rest) = block.get(at..).filter(|rest| !rest.is_empty()) {
            at += rustix::io::write(&file, rest)?;
        }
        Ok(Self::Bulk(Arc::new(file)))
    }
}

/// What the connections of one listener have in common.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    behaviour: Behaviour,
    tls: Option<Arc<ServerConfig>>,
    answer: Arc<[u8]>,
    last_answer: Arc<[u8]>,
}

impl Service {
    /// A service that speaks plain text, or TLS with a configuration.
    pub(crate) fn new(behaviour: Behaviour, tls: Option<Arc<ServerConfig>>) -> Self {
        Self { behaviour, tls, answer: answer("").into(), last_answer: answer("connection: close\r\n").into() }
    }

    /// Takes a non-blocking connection on.
    pub(crate) fn accept(&self, socket: TcpStream) -> io::Result<Origin> {
        let tls = self.tls.clone().map(rustls::ServerConnection::new).transpose().map_err(io::Error::other)?;
        Ok(Origin {
            link: Link::accepted(socket, tls)?,
            service: self.clone(),
            head: Vec::new(),
            taken: 0,
            stage: Stage::Requests,
        })
    }
}

fn answer(field: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {BODY}\r\n{field}\r\n");
    [head.as_bytes(), &[b'x'; BODY]].concat()
}

/// What has to happen to a connection after it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// It waits to be readable.
    Read,
    /// It waits to be writable.
    Write,
    /// It gets an event from time to time.
    Events,
    /// It is over.
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Requests,
    Bulk,
    Events,
    Finished,
}

/// One connection of the origin.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) link: Link,
    service: Service,
    /// The beginning of a request whose end has not arrived.
    head: Vec<u8>,
    /// How many bytes came, where bytes are all that counts.
    taken: usize,
    stage: Stage,
}

impl Origin {
    /// Does what can be done now.
    pub(crate) fn turn(&mut self, scratch: &mut [u8]) -> io::Result<After> {
        if self.stage == Stage::Bulk {
            return self.pour();
        }
        let length = match self.link.read(scratch)? {
            Got::Bytes(length) => length,
            Got::Nothing => return Ok(After::Read),
            Got::End => return Ok(After::Close),
        };
        if self.stage != Stage::Requests {
            return Ok(After::Read);
        }
        if let Behaviour::Imitate(hello) = self.service.behaviour {
            let before = self.taken;
            self.taken += length;
            for (end, message) in [(hello, &FLIGHT[..]), (hello + imitation::REQUEST, &ANSWER[..])] {
                if (before + 1..=self.taken).contains(&end) {
                    sent(self.link.write(message)?)?;
                }
            }
            return Ok(After::Read);
        }
        self.head.extend_from_slice(scratch.get(..length).unwrap_or_default());
        while let Some(end) = memmem::find(&self.head, b"\r\n\r\n") {
            let last = memmem::find(&self.head, b"onnection: close").is_some_and(|at| at < end);
            self.head.drain(..end + 4);
            match &self.service.behaviour {
                Behaviour::Answer if last => {
                    sent(self.link.write(&self.service.last_answer)?)?;
                    self.stage = Stage::Finished;
                    self.link.finish()?;
                    return Ok(After::Read);
                }
                Behaviour::Answer => sent(self.link.write(&self.service.answer)?)?,
                Behaviour::Bulk(_) => {
                    self.stage = Stage::Bulk;
                    return Ok(After::Write);
                }
                Behaviour::Imitate(_) => return Ok(After::Read),
                Behaviour::Events => {
                    let head =
                        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
                    sent(self.link.write(head.as_bytes())?)?;
                    self.stage = Stage::Events;
                    return Ok(After::Events);
                }
            }
        }
        Ok(After::Read)
    }

    /// Sends bulk bytes until the socket is full.
    fn pour(&mut self) -> io::Result<After> {
        let Behaviour::Bulk(file) = &self.service.behaviour else { return Ok(After::Close) };
        match sendfile(&self.link, file, Some(&mut 0), BULK_PIECE) {
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(After::Write),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends an event with the time since `epoch` in nanoseconds.
    pub(crate) fn event(&mut self, epoch: Instant) -> io::Result<()> {
        let event = format!("data: {}\n\n", epoch.elapsed().as_nanos());
        sent(self.link.write(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())?)
    }
}

fn sent(written: bool) -> io::Result<()> {
    if written { Ok(()) } else { Err(io::Error::other("a proxy does not take an answer")) }
}
