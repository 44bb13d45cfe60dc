//! The clients: each connection walks through the steps of a plan and counts what it achieves.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use memchr::memmem;
use rustls::ClientConfig;

use super::h2::Session;
use super::imitation;
use super::link::{Got, Link};
use super::stats::Tally;
use super::words::{Hosts, Words};

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// One request after the other; each is an operation.
    Requests,
    /// One request, then a new connection; that whole is an operation.
    OneRequest,
    /// An open tunnel, then a new connection; that whole is an operation.
    Tunnel,
    /// TLS with the proxy and no request, then a new connection; that whole is an operation.
    Handshake,
    /// The head of an answer, which is an operation, and as many bytes as come behind it.
    Bulk,
    /// An open tunnel with an [`imitation`] in it, then a new connection; that whole is an operation.
    Imitate,
    /// One request, and then nothing.
    Idle,
    /// Events that carry the time at which they were sent.
    Events,
    /// Requests over HTTP/2, [`STREAMS`](super::h2::STREAMS) at once; each is an operation.
    Streams,
}

/// The steps of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Where to connect.
    pub(crate) to: SocketAddr,
    /// Whom to ask for, and in which words.
    pub(crate) hosts: Hosts,
    /// TLS before the request, if any.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// What it is for.
    pub(crate) goal: Goal,
}

/// What has to happen to a connection after it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// It waits to be readable.
    Read,
    /// It waits to be established.
    Write,
    /// It has done what it was for; the next one may begin.
    Again,
    /// It is idle from now on.
    Settled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Dial,
    /// TLS begins once the connection is established.
    Secure,
    Connect,
    Handshake,
    Request,
    Stream,
    /// Requests and answers of HTTP/2.
    Session,
    /// So many bytes of the origin's are still to come, in the first or second of its messages.
    Imitate(usize, bool),
}

/// One client connection.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) link: Link,
    words: Rc<Words>,
    step: Step,
    began: Instant,
    response: Response,
    session: Option<Box<Session>>,
}

impl Client {
    /// Starts a connection.
    pub(crate) fn start(plan: &Plan, serial: u64) -> anyhow::Result<Self> {
        let words = plan.hosts.next()?;
        let began = Instant::now();
        let link = Link::connect(plan.to, serial).context("cannot connect to the proxy")?;
        Ok(Self { link, words, step: Step::Dial, began, response: Response::default(), session: None })
    }

    /// Does what can be done now.
    pub(crate) fn turn(
        &mut self,
        plan: &Plan,
        epoch: Instant,
        scratch: &mut [u8],
        tally: &mut Tally,
    ) -> anyhow::Result<After> {
        match self.step {
            Step::Dial => return self.first_write(plan),
            Step::Secure => return self.secure(plan),
            Step::Stream if plan.goal == Goal::Bulk => {
                return match self.link.discard(scratch)? {
                    Got::Bytes(length) => {
                        tally.bytes += length as u64;
                        Ok(After::Read)
                    }
                    Got::Nothing => Ok(After::Read),
                    Got::End => bail!("the proxy ended bytes that have no end"),
                };
            }
            _ => {}
        }
        let length = match self.link.read(scratch)? {
            Got::Bytes(length) => length,
            Got::Nothing if self.step == Step::Handshake => 0,
            Got::Nothing => return Ok(After::Read),
            Got::End => bail!("the proxy closed the connection while {:?} was under way", self.step),
        };
        let bytes = scratch.get(..length).unwrap_or_default();
        match self.step {
            Step::Connect => self.connected(plan, bytes, tally),
            Step::Handshake if self.link.is_handshaking() => Ok(After::Read),
            Step::Handshake => self.secured(plan, bytes, tally),
            Step::Request => self.answered(plan, bytes, tally),
            Step::Imitate(left, last) => {
                let left = left.checked_sub(length).context("there is more than the origin sent")?;
                self.step = Step::Imitate(left, last);
                if left > 0 {
                    return Ok(After::Read);
                }
                if last {
                    tally.operation(self.began.elapsed());
                    return Ok(After::Again);
                }
                ensure!(self.link.write(&[0; imitation::REQUEST])?, "the proxy does not take bytes");
                self.step = Step::Imitate(imitation::ANSWER, true);
                Ok(After::Read)
            }
            Step::Session => {
                let session = self.session.as_mut().context("no HTTP/2 was begun")?;
                session.take(bytes, &self.words.request, tally)?;
                self.converse()
            }
            Step::Dial | Step::Secure | Step::Stream => {
                events(bytes, epoch, tally);
                Ok(After::Read)
            }
        }
    }

    /// Sends the first bytes as soon as the connection is established.
    fn first_write(&mut self, plan: &Plan) -> anyhow::Result<After> {
        let (bytes, next) = match &self.words.connect {
            Some(connect) => (connect, Step::Connect),
            None if plan.tls.is_some() => {
                self.step = Step::Secure;
                return Ok(After::Write);
            }
            None => (&self.words.request, Step::Request),
        };
        if !self.link.write(bytes)? {
            return Ok(After::Write);
        }
        self.step = next;
        Ok(After::Read)
    }

    fn connected(&mut self, plan: &Plan, bytes: &[u8], tally: &mut Tally) -> anyhow::Result<After> {
        if !self.response.tunnel(bytes)? {
            return Ok(After::Read);
        }
        self.response = Response::default();
        if plan.goal == Goal::Tunnel {
            tally.operation(self.began.elapsed());
            return Ok(After::Again);
        }
        if plan.tls.is_some() { self.secure(plan) } else { self.ask(plan) }
    }

    /// Begins with TLS.
    fn secure(&mut self, plan: &Plan) -> anyhow::Result<After> {
        let config = plan.tls.as_ref().context("no TLS was planned")?;
        self.link.secure(rustls::ClientConnection::new(Arc::clone(config), self.words.name.clone())?)?;
        self.step = Step::Handshake;
        Ok(After::Read)
    }

    fn secured(&mut self, plan: &Plan, bytes: &[u8], tally: &mut Tally) -> anyhow::Result<After> {
        match plan.goal {
            Goal::Handshake => {
                tally.operation(self.began.elapsed());
                self.link.finish()?;
                Ok(After::Again)
            }
            Goal::Streams => {
                ensure!(self.link.alpn() == Some(b"h2"), "the proxy does not speak HTTP/2");
                let session = self.session.insert(Box::new(Session::new(&self.words.request)));
                // A server may speak before it has heard the end of the handshake.
                session.take(bytes, &self.words.request, tally)?;
                self.step = Step::Session;
                self.converse()
            }
            _ => self.ask(plan),
        }
    }

    /// Sends what HTTP/2 has to say.
    fn converse(&mut self) -> anyhow::Result<After> {
        let link = &mut self.link;
        if let Some(session) = &mut self.session {
            session.send(|bytes| {
                ensure!(link.write(bytes)?, "the proxy does not take frames");
                Ok(())
            })?;
        }
        Ok(After::Read)
    }

    /// Sends a request.
    fn ask(&mut self, plan: &Plan) -> anyhow::Result<After> {
        ensure!(self.link.write(&self.words.request)?, "the proxy does not take a request");
        self.step = match plan.goal {
            Goal::Imitate => Step::Imitate(imitation::FLIGHT, false),
            _ => Step::Request,
        };
        Ok(After::Read)
    }

    fn answered(&mut self, plan: &Plan, bytes: &[u8], tally: &mut Tally) -> anyhow::Result<After> {
        if matches!(plan.goal, Goal::Events | Goal::Bulk) {
            if self.response.tunnel(bytes)? {
                self.step = Step::Stream;
                if plan.goal == Goal::Bulk {
                    tally.operation(self.began.elapsed());
                }
            }
            return Ok(After::Read);
        }
        if !self.response.feed(bytes)? {
            return Ok(After::Read);
        }
        let closes = std::mem::take(&mut self.response).closes;
        tally.operation(self.began.elapsed());
        match plan.goal {
            Goal::Requests if !closes => {
                self.began = Instant::now();
                self.ask(plan)
            }
            Goal::Idle => Ok(After::Settled),
            _ => {
                if plan.tls.is_some() {
                    self.link.finish()?;
                }
                Ok(After::Again)
            }
        }
    }
}

/// Takes down how long each event was on its way.
fn events(bytes: &[u8], epoch: Instant, tally: &mut Tally) {
    let now = epoch.elapsed();
    for at in memmem::find_iter(bytes, b"data: ") {
        let digits = bytes.iter().skip(at + 6).take_while(|byte| byte.is_ascii_digit());
        let sent = digits.fold(0, |sum, &digit| sum * 10 + u64::from(digit - b'0'));
        tally.operation(now.saturating_sub(Duration::from_nanos(sent)));
    }
}

/// Reads an answer as far as the load needs it: its status, its end, and whether the connection ends with it.
#[derive(Debug, Default)]
struct Response {
    head: Vec<u8>,
    left: Option<usize>,
    closes: bool,
}

impl Response {
    /// Takes bytes of an answer with a body; true once it is whole.
    fn feed(&mut self, bytes: &[u8]) -> anyhow::Result<bool> {
        let left = match self.left {
            Some(left) => left.checked_sub(bytes.len()),
            None => {
                let Some(body) = self.head(bytes)? else { return Ok(false) };
                let Some(length) = self.content_length() else {
                    bail!("an answer without Content-Length: {}", String::from_utf8_lossy(&self.head));
                };
                length.checked_sub(body)
            }
        };
        self.left = Some(left.context("there is more than an answer")?);
        Ok(self.left == Some(0))
    }

    /// Takes bytes of an answer whose body does not count; true once its head is whole.
    fn tunnel(&mut self, bytes: &[u8]) -> anyhow::Result<bool> {
        Ok(self.head(bytes)?.is_some())
    }

    /// Takes bytes of a head; once it is whole, how many bytes there are behind it.
    fn head(&mut self, bytes: &[u8]) -> anyhow::Result<Option<usize>> {
        self.head.extend_from_slice(bytes);
        let Some(end) = memmem::find(&self.head, b"\r\n\r\n") else { return Ok(None) };
        let behind = self.head.len() - end - 4;
        let status = self.head.get(9..12).unwrap_or_default();
        if status != b"200" {
            bail!("the proxy answered: {}", String::from_utf8_lossy(&self.head));
        }
        self.head.truncate(end + 2);
        Ok(Some(behind))
    }

    fn content_length(&mut self) -> Option<usize> {
        let mut length = None;
        for line in self.head.split(|&byte| byte == b'\n') {
            let Some(colon) = memchr::memchr(b':', line) else { continue };
            let (name, value) = line.split_at(colon);
            let value = value.trim_ascii_start().strip_prefix(b":").unwrap_or_default().trim_ascii();
            if name.eq_ignore_ascii_case(b"content-length") {
                length = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
            } else if name.eq_ignore_ascii_case(b"connection") {
                self.closes = value.eq_ignore_ascii_case(b"close");
            }
        }
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_where_its_length_says_in_any_segmentation() {
        let text = b"HTTP/1.1 200 OK\r\nContent-LENGTH:  5\r\nconnection: Close\r\n\r\nhello";
        for size in 1..text.len() {
            let mut response = Response::default();
            let pieces: Vec<bool> = text.chunks(size).map(|piece| response.feed(piece).unwrap()).collect();
            let (last, before) = pieces.split_last().unwrap();
            assert!(last & before.iter().all(|whole| !whole) & response.closes, "pieces of {size}");
        }
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for text in [
            "HTTP/1.1 403 Forbidden\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab",
        ] {
            assert!(Response::default().feed(text.as_bytes()).is_err(), "{text}");
        }
    }
}
