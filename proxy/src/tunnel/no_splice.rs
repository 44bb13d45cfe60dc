//! The stand-in for splice(2) on systems that do not have it: there is never a pipe, so every tunnel copies.

use std::convert::Infallible;
use std::io;

use bytes::BytesMut;

/// A pipe that cannot be had.
#[derive(Debug)]
pub(super) struct Pipe(Infallible);

impl Pipe {
    pub(super) fn take() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn put_back(self) {
        match self.0 {}
    }

    pub(super) const fn is_empty(&self) -> bool {
        match self.0 {}
    }

    pub(super) fn fill<S>(&mut self, _from: S) -> io::Result<usize> {
        match self.0 {}
    }

    pub(super) fn drain<S>(&mut self, _to: S) -> io::Result<usize> {
        match self.0 {}
    }

    pub(super) fn read_out(&mut self, _bytes: &mut BytesMut) -> io::Result<()> {
        match self.0 {}
    }
}

pub(super) fn is_impossible(_error: &io::Error) -> bool {
    true
}
