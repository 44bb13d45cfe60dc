//! The network of a namespace: loopback up, and every address local.
//!
//! A new network namespace has one interface, loopback, and it is down. Once it is up, a route of type `local` over
//! `0.0.0.0/0` and `::/0` makes the kernel take every address for one of its own: a connection to any of them arrives at
//! whoever listens on its port inside, and the listener learns from `getsockname` where it was meant to go. Where nobody
//! listens, it is refused at once.
//!
//! A client that has not chosen an address of its own is then at the one that it speaks to, so that an answer to it comes
//! from where it asked. The kernel's route for 127.0.0.0/8 would make it 127.0.0.1 instead, and a name server at 127.0.0.53
//! would answer from a stranger's address; so that route goes.
//!
//! Spoken is rtnetlink (rtnetlink(7), netlink(7)), a few requests of it, each answered by an acknowledgement.

use std::io;
use std::net::Ipv6Addr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_CREATE: u16 = 0x400;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const IFF_UP: u32 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_F_NODAD: u8 = 2;
const AF_UNSPEC: u8 = 0;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const RT_TABLE_LOCAL: u8 = 255;
const RTPROT_KERNEL: u8 = 2;
const RTPROT_BOOT: u8 = 3;
const RT_SCOPE_HOST: u8 = 254;
const RTN_LOCAL: u8 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
/// Loopback is the first interface of every network namespace.
const LOOPBACK: u32 = 1;

/// A connection to the kernel's routing.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// # Errors
    /// What the system says.
    pub(super) fn open() -> io::Result<Self> {
        // The protocol of number 0, NETLINK_ROUTE, is the default one.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Brings loopback up.
    ///
    /// # Errors
    /// The kernel's answer.
    pub(super) fn bring_loopback_up(&mut self) -> io::Result<()> {
        // struct ifinfomsg: family, padding, type, index, flags, and which of the flags are to change.
        let mut body = vec![AF_UNSPEC, 0, 0, 0];
        for number in [LOOPBACK, IFF_UP, IFF_UP] {
            body.extend(number.to_ne_bytes());
        }
        self.request(RTM_NEWLINK, 0, &body)
    }

    /// Makes every address of IPv4 local.
    ///
    /// # Errors
    /// The kernel's answer.
    pub(super) fn make_ipv4_local(&mut self) -> io::Result<()> {
        self.make_local(AF_INET)?;
        let mut body = vec![AF_INET, 8, 0, 0, RT_TABLE_LOCAL, RTPROT_KERNEL, RT_SCOPE_HOST, RTN_LOCAL, 0, 0, 0, 0];
        body.extend(attribute(RTA_DST, &[127, 0, 0, 0]));
        self.request(RTM_DELROUTE, 0, &body)
    }

    /// Makes every address of IPv6 local.
    ///
    /// # Errors
    /// The kernel's answer: a kernel without IPv6 says so here.
    pub(super) fn make_ipv6_local(&mut self) -> io::Result<()> {
        self.make_local(AF_INET6)
    }

    /// Gives loopback an address of IPv6, so that it is where answers to it come from. Unlike in IPv4, a route alone does
    /// not make it that.
    ///
    /// # Errors
    /// The kernel's answer.
    pub(super) fn add_ipv6(&mut self, address: Ipv6Addr) -> io::Result<()> {
        // struct ifaddrmsg: family, length of the prefix, flags, scope, index.
        let mut body = vec![AF_INET6, 128, IFA_F_NODAD, 0];
        body.extend(LOOPBACK.to_ne_bytes());
        body.extend(attribute(IFA_LOCAL, &address.octets()));
        body.extend(attribute(IFA_ADDRESS, &address.octets()));
        self.request(RTM_NEWADDR, NLM_F_CREATE, &body)
    }

    fn make_local(&mut self, family: u8) -> io::Result<()> {
        // struct rtmsg: family, lengths of destination and source, TOS, table, protocol, scope, type, flags.
        let mut body = vec![family, 0, 0, 0, RT_TABLE_LOCAL, RTPROT_BOOT, RT_SCOPE_HOST, RTN_LOCAL, 0, 0, 0, 0];
        body.extend(attribute(RTA_OIF, &LOOPBACK.to_ne_bytes()));
        self.request(RTM_NEWROUTE, NLM_F_CREATE, &body)
    }

    fn request(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.sequence += 1;
        send(&self.socket, &message(kind, NLM_F_REQUEST | NLM_F_ACK | flags, self.sequence, body), SendFlags::empty())?;
        let mut answer = [0; 4096];
        let (length, _) = recv(&self.socket, &mut answer, RecvFlags::empty())?;
        acknowledged(answer.get(..length).unwrap_or_default(), self.sequence)
    }
}

/// An attribute: struct rtattr (length, type) and its value, which fills whole words.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat()
}

/// A message: struct nlmsghdr (length, type, flags, sequence, port) and its body.
fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + body.len()).unwrap_or(u32::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(body);
    bytes
}

/// Reads an acknowledgement: a message of type NLMSG_ERROR whose error is 0.
fn acknowledged(answer: &[u8], sequence: u32) -> io::Result<()> {
    let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer cannot be read");
    let field = |at: usize| answer.get(at..at + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
    let kind = field(4).map(|[low, high, ..]| u16::from_ne_bytes([low, high]));
    let (Some(NLMSG_ERROR), Some(answered), Some(error)) = (kind, field(8), field(16)) else {
        return Err(unreadable());
    };
    if u32::from_ne_bytes(answered) != sequence {
        return Err(unreadable());
    }
    match i32::from_ne_bytes(error) {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error.saturating_neg())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(kind: u16, sequence: u32, error: i32) -> Vec<u8> {
        message(kind, 0, sequence, &error.to_ne_bytes())
    }

    #[test]
    fn acknowledgements_are_told_from_errors_and_from_anything_else() {
        assert!(acknowledged(&answer(NLMSG_ERROR, 7, 0), 7).is_ok());
        let refused = acknowledged(&answer(NLMSG_ERROR, 7, -1), 7).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(1));
        for odd in [answer(NLMSG_ERROR, 8, 0), answer(16, 7, 0), Vec::new(), answer(NLMSG_ERROR, 7, 0)[..18].to_vec()] {
            assert_eq!(acknowledged(&odd, 7).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
