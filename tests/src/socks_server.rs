//! A SOCKS5 proxy (RFC 1928) with no policy that remembers what it was asked, for a gateway to go out through.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;

use crate::relay::{Task, listen};
use crate::wait::Journal;

/// What a client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocksRequest {
    /// The name or address, and the port, as `host:port`.
    pub target: String,
    /// `user:password`, where the client was asked for them.
    pub credentials: Option<String>,
}

/// A running proxy. Whatever the host, it connects to the port on 127.0.0.1.
#[derive(Debug)]
pub struct SocksServer {
    addr: SocketAddr,
    requests: Journal<SocksRequest>,
    _task: Task,
}

impl SocksServer {
    /// One that answers every request with `reply`, 0 for a connection, and wants `user:password` if there is one.
    pub async fn start(reply: u8, credentials: Option<&'static str>) -> Self {
        let requests = Journal::default();
        let seen = requests.clone();
        let (addr, task) = listen(move |stream| {
            let seen = seen.clone();
            async move {
                // A client that is refused leaves in the middle of a message.
                let _ = serve(stream, reply, credentials, &seen).await;
            }
        })
        .await;
        Self { addr, requests, _task: task }
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What it was asked for so far.
    #[must_use]
    pub fn requests(&self) -> Vec<SocksRequest> {
        self.requests.all()
    }
}

async fn serve(mut client: TcpStream, reply: u8, wanted: Option<&str>, seen: &Journal<SocksRequest>) -> io::Result<()> {
    assert_eq!(client.read_u8().await?, 5);
    let methods = bytes(&mut client).await?;
    let method = if wanted.is_some() { 2 } else { 0 };
    if !methods.contains(&method) {
        return client.write_all(&[5, 0xff]).await;
    }
    client.write_all(&[5, method]).await?;
    let mut credentials = None;
    if let Some(wanted) = wanted {
        assert_eq!(client.read_u8().await?, 1);
        let (user, password) = (text(&mut client).await?, text(&mut client).await?);
        let given = format!("{user}:{password}");
        client.write_all(&[1, u8::from(given != wanted)]).await?;
        if given != wanted {
            return Ok(());
        }
        credentials = Some(given);
    }
    let mut head = [0; 4];
    client.read_exact(&mut head).await?;
    assert_eq!(head[..3], [5, 1, 0]);
    let host = match head[3] {
        1 => Ipv4Addr::from(client.read_u32().await?).to_string(),
        4 => format!("[{}]", Ipv6Addr::from(client.read_u128().await?)),
        _ => text(&mut client).await?,
    };
    let port = client.read_u16().await?;
    seen.push(SocksRequest { target: format!("{host}:{port}"), credentials });
    // The address it connects from, as a name, which is the longest form.
    client.write_all(&[&[5, reply, 0, 3, 9], &b"localhost"[..], &[0, 80]].concat()).await?;
    if reply == 0 {
        let mut upstream = TcpStream::connect(("127.0.0.1", port)).await?;
        copy_bidirectional(&mut client, &mut upstream).await?;
    }
    Ok(())
}

/// Bytes behind their count.
async fn bytes(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::from(client.read_u8().await?)];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn text(client: &mut TcpStream) -> io::Result<String> {
    Ok(String::from_utf8(bytes(client).await?).unwrap())
}
