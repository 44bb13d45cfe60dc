//! The channel between gateway and helpers: one message a packet, descriptors along with it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest message.
const MAX_BYTES: usize = 64 * 1024;
/// The most descriptors in one message. The kernel's own limit is 253 (SCM_MAX_FD).
pub(super) const MAX_DESCRIPTORS: usize = 96;

/// One end of the channel.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

impl Channel {
    /// Both ends; neither is inherited by programs that are started meanwhile.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(own), other))
    }

    /// An end that was handed down.
    pub(super) const fn of(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// The same end once more, for the other direction.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn again(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Sends a message with descriptors.
    ///
    /// # Errors
    /// The other end is gone.
    pub(crate) fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one message"));
        }
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits for a message; none when the other end is gone.
    ///
    /// # Errors
    /// A message that cannot be read.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut bytes = vec![0; MAX_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                // An end that is gone, and left something unread, is told of once and before what it has sent.
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
                received => break received?,
            }
        };
        let descriptors: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            })
            .flatten()
            .collect();
        if received.bytes == 0 {
            return Ok(None);
        }
        let message = serde_json::from_slice(bytes.get(..received.bytes).unwrap_or_default())?;
        Ok(Some((message, descriptors)))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn messages_arrive_whole_with_their_descriptors_until_the_end_is_gone() {
        let (here, there) = Channel::pair().unwrap();
        let there = Channel::of(there);
        let (mut reader, writer) = std::io::pipe().unwrap();
        here.send(&"one", &[writer.as_fd()]).unwrap();
        here.send(&"two", &[]).unwrap();
        drop((here, writer));
        let (first, descriptors) = there.receive::<String>().unwrap().unwrap();
        assert_eq!((first.as_str(), descriptors.len()), ("one", 1));
        let (second, none) = there.receive::<String>().unwrap().unwrap();
        assert_eq!((second.as_str(), none.len()), ("two", 0));
        assert!(there.receive::<String>().unwrap().is_none());
        drop(descriptors);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "no other copy of the descriptor is left");
    }

    #[test]
    fn the_last_words_of_an_end_that_left_something_unread_are_heard() {
        let (here, there) = Channel::pair().unwrap();
        let there = Channel::of(there);
        there.send(&"news", &[]).unwrap();
        here.send(&"order", &[]).unwrap();
        drop(there);
        assert_eq!(here.receive::<String>().unwrap().unwrap().0, "news");
        assert!(here.receive::<String>().unwrap().is_none());
    }
}
