//! Moving bytes between two sockets without copying them through the process (splice(2)).
//!
//! The bytes take the way through a pipe: one call moves pages from a socket into it, another moves them on into the
//! other socket. Making a pipe takes two descriptors and three system calls, so each thread keeps a few, all of them
//! empty: a pipe with bytes left in it belongs to its tunnel and ends with it.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use bytes::BytesMut;
use rustix::io::Errno;
use rustix::pipe::{self, PipeFlags, SpliceFlags};

/// How much a pipe is asked to hold, in bytes.
const CAPACITY: usize = 256 * 1024;
/// How many empty pipes a thread keeps.
const KEPT: usize = 16;

thread_local! {
    static EMPTY: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// A pipe, and how many bytes are in it.
#[derive(Debug)]
pub(super) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    held: usize,
}

impl Pipe {
    /// An empty pipe: one of the thread's, or a new one.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(super) fn take() -> io::Result<Self> {
        if let Some(pipe) = EMPTY.with_borrow_mut(Vec::pop) {
            return Ok(pipe);
        }
        let (read, write) = pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A user with many pipes is not given large ones; a small one works too, in more calls.
        let _ = pipe::fcntl_setpipe_size(&write, CAPACITY);
        Ok(Self { read, write, held: 0 })
    }

    /// Keeps the pipe for the next tunnel, if it is empty and there is room.
    pub(super) fn put_back(self) {
        if self.is_empty() {
            EMPTY.with_borrow_mut(|kept| {
                if kept.len() < KEPT {
                    kept.push(self);
                }
            });
        }
    }

    /// Whether nothing is in it.
    pub(super) const fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Moves what there is from a socket into the empty pipe; 0 is the end of the socket's stream.
    ///
    /// # Errors
    /// Those of splice(2); [`io::ErrorKind::WouldBlock`] where the socket has nothing to give.
    pub(super) fn fill(&mut self, from: impl AsFd) -> io::Result<usize> {
        let moved = splice(from, &self.write, CAPACITY)?;
        self.held += moved;
        Ok(moved)
    }

    /// Moves what is in the pipe to a socket, as much as it takes.
    ///
    /// # Errors
    /// Those of splice(2); [`io::ErrorKind::WouldBlock`] where the socket takes nothing.
    pub(super) fn drain(&mut self, to: impl AsFd) -> io::Result<usize> {
        let moved = splice(&self.read, to, self.held)?;
        self.held = self.held.saturating_sub(moved);
        Ok(moved)
    }

    /// Copies what is in the pipe to the end of `bytes`, for a socket that cannot be spliced to.
    ///
    /// # Errors
    /// Those of read(2).
    pub(super) fn read_out(&mut self, bytes: &mut BytesMut) -> io::Result<()> {
        let mut piece = vec![0; self.held];
        while self.held > 0 {
            let read = rustix::io::read(&self.read, &mut *piece)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes.extend_from_slice(piece.get(..read).unwrap_or_default());
            self.held = self.held.saturating_sub(read);
        }
        Ok(())
    }
}

fn splice(from: impl AsFd, to: impl AsFd, length: usize) -> io::Result<usize> {
    // SPLICE_F_MORE is left out: it would hold the end of what was moved back until more comes.
    Ok(pipe::splice(from, None, to, None, length, SpliceFlags::MOVE | SpliceFlags::NONBLOCK)?)
}

/// Whether an error says that splicing does not work here at all, rather than that a side failed: the kernel does not
/// splice this kind of socket, or a sandbox does not let the process.
pub(super) fn is_impossible(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::NOSYS | Errno::PERM | Errno::OPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn bytes_go_from_socket_to_socket() {
        let (mut client, near) = UnixStream::pair().unwrap();
        let (upstream, mut far) = UnixStream::pair().unwrap();
        let mut pipe = Pipe::take().unwrap();
        client.write_all(b"through the pipe").unwrap();
        assert_eq!(pipe.fill(&near).unwrap(), 16);
        assert!(!pipe.is_empty());
        assert_eq!(pipe.drain(&upstream).unwrap(), 16);
        assert!(pipe.is_empty());
        let mut arrived = [0; 16];
        far.read_exact(&mut arrived).unwrap();
        assert_eq!(&arrived, b"through the pipe");
        drop(client);
        assert_eq!(pipe.fill(&near).unwrap(), 0);
    }

    #[test]
    fn what_cannot_be_spliced_on_is_read_out() {
        let (mut client, near) = UnixStream::pair().unwrap();
        let mut pipe = Pipe::take().unwrap();
        client.write_all(b"left in the pipe").unwrap();
        pipe.fill(&near).unwrap();
        // A file that is appended to takes no spliced bytes.
        let folder = tempfile::tempdir().unwrap();
        let file = File::options().append(true).create(true).open(folder.path().join("file")).unwrap();
        let error = pipe.drain(&file).unwrap_err();
        assert!(is_impossible(&error), "{error}");
        let mut bytes = BytesMut::from(&b"before, "[..]);
        pipe.read_out(&mut bytes).unwrap();
        assert_eq!(bytes, "before, left in the pipe");
        assert!(pipe.is_empty());
    }

    #[test]
    fn only_empty_pipes_are_kept() {
        let (mut client, near) = UnixStream::pair().unwrap();
        let kept = || EMPTY.with_borrow(Vec::len);
        let mut used = Pipe::take().unwrap();
        client.write_all(b"x").unwrap();
        used.fill(&near).unwrap();
        used.put_back();
        assert_eq!(kept(), 0);
        let pipes: Vec<Pipe> = (0..KEPT + 3).map(|_| Pipe::take().unwrap()).collect();
        pipes.into_iter().for_each(Pipe::put_back);
        assert_eq!(kept(), KEPT);
        drop(Pipe::take().unwrap());
        assert_eq!(kept(), KEPT - 1);
    }
}
