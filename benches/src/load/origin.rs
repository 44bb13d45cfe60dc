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

/// How much is put into a bulk connection with TLS at once.
const BULK_SEALED: usize = 256 * 1024;
/// The head of bytes without end: a petabyte.
const BULK_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\n\
                           content-length: 1000000000000000\r\n\r\n";
/// The credential that calls are to carry where the proxy puts one on.
pub(crate) const CREDENTIAL: &str = "Bearer of-the-load-bench-0123456789";

static BULK: [u8; BULK_SEALED] = [b'x'; BULK_SEALED];
static FLIGHT: [u8; imitation::FLIGHT] = [0; imitation::FLIGHT];
static ANSWER: [u8; imitation::ANSWER] = [0; imitation::ANSWER];

/// What an origin does with what it gets.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    /// Answers each request with [`BODY`] bytes.
    Answer,
    /// Answers each request, which has a body, as an MCP server answers the call of a tool, with [`BODY`] bytes. It has
    /// to carry the [`CREDENTIAL`] where that is asked for.
    Call {
        /// Whether it is.
        bound: bool,
    },
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
        let (kind, body) = match behaviour {
            Behaviour::Call { .. } => ("application/json", result()),
            _ => ("text/plain", "x".repeat(BODY)),
        };
        let answer =
            |field| format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {BODY}\r\n{field}\r\n{body}");
        let [answer, last_answer] = ["", "connection: close\r\n"].map(|field| answer(field).into_bytes().into());
        Self { behaviour, tls, answer, last_answer }
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

/// What a tool gives, with [`BODY`] bytes.
fn result() -> String {
    let result = |text: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":[{{"type":"text","text":"{text}"}}],"isError":false}}}}"#
        )
    };
    result(&"issue ".repeat(BODY).chars().take(BODY - result("").len()).collect::<String>())
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
            let head = self.head.get(..end).unwrap_or_default();
            let last = memmem::find(head, b"onnection: close").is_some();
            let mut whole = end + 4;
            if let Behaviour::Call { bound } = self.service.behaviour {
                if bound && memmem::find(head, CREDENTIAL.as_bytes()).is_none() {
                    sent(self.link.write(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")?)?;
                    return Ok(After::Close);
                }
                whole += body_length(head).ok_or_else(|| io::Error::other("a call without Content-Length"))?;
                if self.head.len() < whole {
                    break;
                }
            }
            self.head.drain(..whole);
            match &self.service.behaviour {
                Behaviour::Answer | Behaviour::Call { .. } if last => {
                    sent(self.link.write(&self.service.last_answer)?)?;
                    self.stage = Stage::Finished;
                    self.link.finish()?;
                    return Ok(After::Read);
                }
                Behaviour::Answer | Behaviour::Call { .. } => sent(self.link.write(&self.service.answer)?)?,
                Behaviour::Bulk(_) => {
                    sent(self.link.write(BULK_HEAD)?)?;
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
        if self.link.pour(&BULK)? {
            return Ok(After::Write);
        }
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

/// What a head says of the length of its body.
fn body_length(head: &[u8]) -> Option<usize> {
    let name = b"ontent-length:";
    let name = memmem::find(head, name).or_else(|| memmem::find(head, b"ontent-Length:"))? + name.len();
    let digits = head.get(name..)?.trim_ascii_start().split(|byte| !byte.is_ascii_digit()).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn sent(written: bool) -> io::Result<()> {
    if written { Ok(()) } else { Err(io::Error::other("a proxy does not take an answer")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_a_tool_is_json_of_the_length_of_other_answers() {
        let result = result();
        assert_eq!(result.len(), BODY);
        assert!(serde_json::from_str::<serde_json::Value>(&result).is_ok(), "{result}");
    }

    #[test]
    fn the_length_of_a_body_is_found_however_it_is_written() {
        for (head, expected) in [
            ("POST / HTTP/1.1\r\ncontent-length: 12\r\nhost: a", Some(12)),
            ("POST / HTTP/1.1\r\nContent-Length:7", Some(7)),
            ("POST / HTTP/1.1\r\nhost: a", None),
        ] {
            assert_eq!(body_length(head.as_bytes()), expected, "{head}");
        }
    }
}
