//! The plain relay: tokio's own copy in both directions.

use std::io;
use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use super::{accept_connect, dial, read_connect};

pub(super) async fn serve(listener: &TcpListener, origin: SocketAddr, connect: bool) -> anyhow::Result<()> {
    loop {
        let (client, _) = listener.accept().await?;
        // A connection that breaks is the peers' affair.
        tokio::spawn(async move { drop(relay(client, origin, connect).await) });
    }
}

async fn relay(mut client: TcpStream, origin: SocketAddr, connect: bool) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut upstream = if connect {
        read_connect(&mut client).await?;
        let upstream = dial(origin).await?;
        accept_connect(&mut client).await?;
        upstream
    } else {
        dial(origin).await?
    };
    copy_bidirectional(&mut client, &mut upstream).await?;
    Ok(())
}
