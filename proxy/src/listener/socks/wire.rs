//! The messages of a SOCKS5 client (RFC 1928), and of its authentication by name and password (RFC 1929).
//!
//! Each reader looks at what has arrived so far and says how much of it the message takes, so that what a client sends
//! ahead stays where it is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use exeat_policy::Reason;
use exeat_policy::host::{Host, HostError};
use exeat_policy::target::Authority;

use crate::gate::Refusal;
use crate::listener::redact::Shown;

/// A message and its length; none while more bytes are needed.
pub(crate) type Read<T> = Result<Option<(T, usize)>, Refusal>;

/// How a client may authenticate (RFC 1928 section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Not at all.
    None,
    /// By name and password.
    Password,
}

impl Method {
    /// The number on the wire.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Password => 2,
        }
    }
}

/// The methods that a client offers, as their numbers on the wire.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Offer(Vec<u8>);

impl Offer {
    /// Whether `method` is among them.
    pub(crate) fn has(&self, method: Method) -> bool {
        self.0.contains(&method.code())
    }
}

/// What a client wants (RFC 1928 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// A connection to the destination.
    Connect,
    /// A connection from the destination, which is not served.
    Bind,
    /// A relay of datagrams, which is not served.
    UdpAssociate,
    /// A number that stands for nothing.
    Unknown,
}

impl Command {
    /// The word in the log.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "CONNECT",
            Self::Bind => "BIND",
            Self::UdpAssociate => "UDP ASSOCIATE",
            Self::Unknown => "",
        }
    }
}

/// Where a client wants to go: an authority, or why it cannot be read and what there is to show of it.
pub(crate) type Destination = Result<Authority, (Refusal, String)>;

/// A request.
#[derive(Debug)]
pub(crate) struct Request {
    /// What is to be done.
    pub(crate) command: Command,
    /// With whom.
    pub(crate) destination: Destination,
}

/// Reads the greeting: the version and the methods on offer.
pub(crate) fn greeting(bytes: &[u8]) -> Read<Offer> {
    let mut message = Message::new(bytes, 5)?;
    let Some(methods) = message.vector() else { return Ok(None) };
    Ok(Some((Offer(methods.to_vec()), message.read)))
}

/// Reads name and password.
pub(crate) fn credentials(bytes: &[u8]) -> Read<(Vec<u8>, Vec<u8>)> {
    let mut message = Message::new(bytes, 1)?;
    let Some(name) = message.vector() else { return Ok(None) };
    let Some(password) = message.vector() else { return Ok(None) };
    Ok(Some(((name.to_vec(), password.to_vec()), message.read)))
}

/// Reads a request. A destination that cannot be read is part of it, since the client is told so in a reply.
pub(crate) fn request(bytes: &[u8]) -> Read<Request> {
    let mut message = Message::new(bytes, 5)?;
    let Some([command, reserved, kind]) = message.array() else { return Ok(None) };
    if reserved != 0 {
        return Err(Refusal::new(Reason::BadRequest, "the reserved byte of a SOCKS5 request is not 0"));
    }
    let host = match kind {
        1 => message.array::<4>().map(|octets| Ok(Host::from_ip(IpAddr::V4(Ipv4Addr::from(octets))))),
        3 => message.vector().map(|name| host(name).map_err(|error| (error, shown(name)))),
        4 => message.array::<16>().map(|octets| Ok(Host::from_ip(IpAddr::V6(Ipv6Addr::from(octets))))),
        _ => {
            return Err(Refusal::new(
                Reason::UnsupportedProtocol,
                "the address of a SOCKS5 request is of no known type",
            ));
        }
    };
    let Some((host, port)) = host.zip(message.array()) else { return Ok(None) };
    let port = u16::from_be_bytes(port);
    let command = match command {
        1 => Command::Connect,
        2 => Command::Bind,
        3 => Command::UdpAssociate,
        _ => Command::Unknown,
    };
    let destination = match host {
        // A client that asks for datagrams may not know yet where they go.
        Ok(host) if port == 0 && command == Command::Connect => {
            let refusal = Refusal::new(Reason::Malformed, "expected a port from 1 to 65535, found 0");
            Err((refusal, format!("{host}:0")))
        }
        Ok(host) => Ok(Authority::new(host, port)),
        Err((error, shown)) => Err((Refusal::new(Reason::Malformed, error), format!("{shown}:{port}"))),
    };
    Ok(Some((Request { command, destination }, message.read)))
}

/// A name as the wire has it: read like the host of a CONNECT, or an IPv6 address, which needs no brackets here.
fn host(name: &[u8]) -> Result<Host, HostError> {
    let name = std::str::from_utf8(name).map_err(|_| HostError::Idna)?;
    if let Some(odd) = name.chars().find(|&found| found.is_whitespace()) {
        return Err(HostError::Character(odd));
    }
    match name.parse::<Ipv6Addr>() {
        Ok(ip) => Ok(Host::from_ip(IpAddr::V6(ip))),
        Err(_) => Host::parse(name),
    }
}

fn shown(name: &[u8]) -> String {
    Shown(&String::from_utf8_lossy(name)).to_string()
}

/// A message behind its version byte, and how much of it was read.
struct Message<'a> {
    rest: &'a [u8],
    read: usize,
}

impl<'a> Message<'a> {
    fn new(bytes: &'a [u8], version: u8) -> Result<Self, Refusal> {
        match bytes.split_first() {
            None => Ok(Self { rest: bytes, read: 0 }),
            Some((&found, rest)) if found == version => Ok(Self { rest, read: 1 }),
            Some((found, _)) => {
                let detail = format_args!("expected a SOCKS message of version {version}, found {found}");
                Err(Refusal::new(Reason::BadRequest, detail))
            }
        }
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        self.read += length;
        Some(taken)
    }

    fn array<const LENGTH: usize>(&mut self) -> Option<[u8; LENGTH]> {
        self.take(LENGTH)?.try_into().ok()
    }

    /// Bytes behind one byte that says how many they are.
    fn vector(&mut self) -> Option<&'a [u8]> {
        let [length] = self.array()?;
        self.take(usize::from(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(kind: u8, address: &[u8], port: u16) -> Vec<u8> {
        [&[5, 1, 0, kind], address, &port.to_be_bytes()].concat()
    }

    fn named(name: &[u8]) -> Vec<u8> {
        ask(3, &[&[u8::try_from(name.len()).unwrap()], name].concat(), 443)
    }

    fn destination(bytes: &[u8]) -> Result<String, Reason> {
        match request(bytes).map_err(|refusal| refusal.reason)? {
            Some((request, length)) => {
                assert_eq!(length, bytes.len());
                request.destination.map(|authority| authority.to_string()).map_err(|(refusal, _)| refusal.reason)
            }
            None => panic!("{bytes:?} is incomplete"),
        }
    }

    #[test]
    fn messages_are_found_in_any_segmentation_and_take_no_more_than_their_own() {
        let early = b"early";
        for end in 0..4 {
            assert!(greeting(&[5, 2, 0, 2][..end]).unwrap().is_none(), "{end}");
        }
        let (offer, length) = greeting(&[&[5, 2, 0, 2], &early[..]].concat()).unwrap().unwrap();
        assert_eq!((offer.has(Method::None), offer.has(Method::Password), length), (true, true, 4));
        let message = b"\x01\x04user\x06secret";
        for end in 0..message.len() {
            assert!(credentials(&message[..end]).unwrap().is_none(), "{end}");
        }
        let ((name, password), length) = credentials(&[&message[..], early].concat()).unwrap().unwrap();
        assert_eq!((&*name, &*password, length), (&b"user"[..], &b"secret"[..], message.len()));
        for message in [ask(1, &[10, 0, 0, 1], 80), named(b"a.test"), ask(4, &[0; 16], 80)] {
            for end in 0..message.len() {
                assert!(request(&message[..end]).unwrap().is_none(), "{message:?} {end}");
            }
            assert_eq!(request(&[&message[..], early].concat()).unwrap().unwrap().1, message.len());
        }
    }

    #[test]
    fn destinations_are_hosts_like_any_other() {
        let v6 = "2001:db8::1".parse::<Ipv6Addr>().unwrap().octets();
        for (bytes, expected) in [
            (ask(1, &[127, 0, 0, 1], 80), "127.0.0.1:80"),
            (ask(4, &v6, 443), "[2001:db8::1]:443"),
            (named(b"API.Example.test."), "api.example.test:443"),
            (named(b"0x7f.1"), "127.0.0.1:443"),
            (named(b"::1"), "[::1]:443"),
            (named(b"[::1]"), "[::1]:443"),
            (named("b\u{fc}cher.test".as_bytes()), "xn--bcher-kva.test:443"),
        ] {
            assert_eq!(destination(&bytes).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn names_that_two_readers_could_take_differently_are_malformed() {
        let long = [b'a'; 64];
        let longer = [b"a.".repeat(126), b"aa.test".to_vec()].concat();
        for name in [
            &b""[..],
            b".",
            b"a..test",
            b"attacker.test\0.example.com",
            b"a.test\r\n",
            b"a.test\n",
            b"a\tb.test",
            b"a.test ",
            b" a.test",
            b"a%00.test",
            b"a.test:80",
            b"user@a.test",
            b"a.test/x",
            b"a.test#x",
            b"[a.test]",
            b"[::1%25eth0]",
            b"fe80::1%eth0",
            b"\xff.test",
            &long,
            &longer[..255],
        ] {
            assert_eq!(destination(&named(name)), Err(Reason::Malformed), "{:?}", String::from_utf8_lossy(name));
        }
        assert_eq!(destination(&ask(1, &[10, 0, 0, 1], 0)), Err(Reason::Malformed));
        let shown = request(&named(b"a\0b.test")).unwrap().unwrap().0.destination.unwrap_err().1;
        assert_eq!(shown, "a\\0b.test:443");
    }

    #[test]
    fn what_is_no_socks5_is_refused_at_its_first_odd_byte() {
        fn reason<T>(read: Read<T>) -> Result<bool, Reason> {
            read.map(|read| read.is_some()).map_err(|refusal| refusal.reason)
        }
        for (bytes, expected) in [
            (&[4, 1][..], Err(Reason::BadRequest)),
            (&[5, 1, 1, 1], Err(Reason::BadRequest)),
            (&[5, 1, 0, 2], Err(Reason::UnsupportedProtocol)),
            (&[5, 9, 0, 1, 1, 2, 3, 4, 0, 80], Ok(true)),
        ] {
            assert_eq!(reason(request(bytes)), expected, "{bytes:?}");
        }
        assert_eq!(reason(greeting(&[4, 1])), Err(Reason::BadRequest));
        assert_eq!(reason(credentials(&[5, 1])), Err(Reason::BadRequest));
    }
}
