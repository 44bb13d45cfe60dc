//! The zero-copy relay: splice(2) from socket to pipe to socket.

use std::io;
use std::net::SocketAddr;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};

use super::{accept_connect, dial, read_connect};

/// How much a pipe holds.
const PIPE: usize = 256 * 1024;

pub(super) async fn serve(listener: &TcpListener, origin: SocketAddr) -> anyhow::Result<()> {
    loop {
        let (client, _) = listener.accept().await?;
        // A connection that breaks is the peers' affair.
        tokio::spawn(async move { drop(relay(client, origin).await) });
    }
}

async fn relay(mut client: TcpStream, origin: SocketAddr) -> io::Result<()> {
    client.set_nodelay(true)?;
    read_connect(&mut client).await?;
    let upstream = dial(origin).await?;
    accept_connect(&mut client).await?;
    tokio::try_join!(one_way(&client, &upstream), one_way(&upstream, &client))?;
    Ok(())
}

async fn one_way(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    fcntl_setpipe_size(&write, PIPE)?;
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    loop {
        let taken = from.async_io(Interest::READABLE, || again(splice(from, None, &write, None, PIPE, flags))).await?;
        if taken == 0 {
            return rustix::net::shutdown(to, rustix::net::Shutdown::Write).map_err(Into::into);
        }
        let mut left = taken;
        while left > 0 {
            left -= to.async_io(Interest::WRITABLE, || again(splice(&read, None, to, None, left, flags))).await?;
        }
    }
}

fn again(moved: Result<usize, Errno>) -> io::Result<usize> {
    moved.map_err(Into::into)
}
