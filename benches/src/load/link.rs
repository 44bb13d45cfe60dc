//! One end of a connection, plain or TLS, that never waits.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto};

/// What one read gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// So many bytes, at the front of the buffer.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The end of the stream.
    End,
}

/// A non-blocking connection.
#[derive(Debug)]
pub(crate) struct Link {
    socket: TcpStream,
    tls: Option<Box<rustls::Connection>>,
    /// What the event loop waits for.
    pub(crate) interest: EventFlags,
}

impl Link {
    /// A connection that was accepted, with TLS if there is a server for it.
    pub(crate) fn accepted(socket: TcpStream, tls: Option<rustls::ServerConnection>) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        Ok(Self { socket, tls: tls.map(|tls| Box::new(tls.into())), interest: EventFlags::empty() })
    }

    /// Starts to connect, from an address that changes with `serial`: ports of closed connections stay taken for a
    /// while, and one address does not have enough of them.
    pub(crate) fn connect(to: SocketAddr, serial: u64) -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        let from = SocketAddr::from((Ipv4Addr::new(127, 0, 1, 1 + (serial % 250) as u8), 0));
        rustix::net::bind(&socket, &from)?;
        match rustix::net::connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let socket = TcpStream::from(socket);
        socket.set_nodelay(true)?;
        Ok(Self { socket, tls: None, interest: EventFlags::empty() })
    }

    /// Speaks TLS from here on.
    pub(crate) fn secure(&mut self, tls: rustls::ClientConnection) -> io::Result<()> {
        let tls = self.tls.insert(Box::new(tls.into()));
        flush(tls, &self.socket)
    }

    /// Whether a TLS handshake is under way.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// The protocol that TLS has agreed on.
    pub(crate) fn alpn(&self) -> Option<&[u8]> {
        self.tls.as_ref()?.alpn_protocol()
    }

    /// Reads once from the socket; of TLS all that this decrypts.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Got> {
        let Some(tls) = &mut self.tls else { return got((&self.socket).read(buffer)) };
        match got(tls.read_tls(&mut &self.socket))? {
            Got::Bytes(_) => {}
            other => return Ok(other),
        }
        tls.process_new_packets().map_err(io::Error::other)?;
        flush(tls, &self.socket)?;
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match got(tls.reader().read(rest))? {
                Got::Bytes(length) => filled += length,
                Got::End if filled == 0 => return Ok(Got::End),
                Got::End | Got::Nothing => break,
            }
        }
        Ok(if filled == 0 { Got::Nothing } else { Got::Bytes(filled) })
    }

    /// Throws received bytes away without copying them, and of TLS without decrypting them: such a connection is good
    /// for nothing else from then on.
    pub(crate) fn discard(&mut self, buffer: &mut [u8]) -> io::Result<Got> {
        got(rustix::net::recv(&self.socket, buffer, RecvFlags::TRUNC).map(|(_, length)| length).map_err(Into::into))
    }

    /// Sends as much of a block, in TLS, as the socket takes now; what it does not take goes first the next time, and the
    /// next block behind that. False if there is no TLS.
    pub(crate) fn pour(&mut self, block: &[u8]) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(false) };
        if !tls.wants_write() {
            tls.set_buffer_limit(None);
            tls.writer().write_all(block)?;
        }
        match tls.write_tls(&mut &self.socket) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Writes a short message, whole; `false` if the connection is not established yet.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<bool> {
        if let Some(tls) = &mut self.tls {
            tls.writer().write_all(bytes)?;
            flush(tls, &self.socket)?;
            return Ok(true);
        }
        match (&self.socket).write(bytes) {
            Ok(length) if length == bytes.len() => Ok(true),
            Ok(_) => Err(io::Error::other("the peer does not read: a short message did not fit into the socket")),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Ends the stream towards the peer.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            flush(tls, &self.socket)?;
        }
        self.socket.shutdown(std::net::Shutdown::Write)
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn flush(tls: &mut rustls::Connection, mut socket: &TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(&mut socket)?;
    }
    Ok(())
}

fn got(read: io::Result<usize>) -> io::Result<Got> {
    match read {
        Ok(0) => Ok(Got::End),
        Ok(length) => Ok(Got::Bytes(length)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Got::Nothing),
        Err(error) => Err(error),
    }
}
