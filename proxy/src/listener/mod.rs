//! Listening: connections are accepted, counted and served.

pub(crate) mod caught;
pub(crate) mod detect;
pub(crate) mod dns;
pub(crate) mod endpoint;
mod entrance;
pub(crate) mod held;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod names;
pub(crate) mod proxy;
pub(crate) mod proxy_protocol;
pub(crate) mod redact;
pub(crate) mod serve;
pub(crate) mod socks;
pub(crate) mod stream;
pub(crate) mod tls;
pub(crate) mod transit;
pub(crate) mod unix;

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use self::stream::Stream;
use self::unix::UnixSocket;
use crate::client::Address;
use crate::drain::Drain;
use crate::keepalive;

/// How long accepting pauses when the process has no descriptor or memory left for a connection.
const BACK_OFF: Duration = Duration::from_millis(50);
/// How many connections over the limit are told so at once; the rest is just closed.
const TURNED_AWAY: usize = 64;
/// How long telling one may take.
const TURN_AWAY_TIME: Duration = Duration::from_secs(1);

/// Where connections come in.
#[derive(Debug)]
pub(crate) enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixSocket),
}

impl Listener {
    async fn accept(&self) -> io::Result<(Stream, Address)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok((Stream::Tcp(stream), Address::Tcp(address)))
            }
            Self::Unix(socket) => {
                let (stream, _) = socket.listener().accept().await?;
                // Without its credentials a client would have no address, so the connection counts as failed.
                let peer = stream.peer_cred().map_err(|_| io::Error::from(io::ErrorKind::ConnectionAborted))?;
                Ok((Stream::Unix(stream), Address::Unix { uid: peer.uid(), pid: peer.pid() }))
            }
        }
    }
}

/// The options of the sockets that are accepted. They take them over from their listener, which saves most of them the
/// system calls.
#[derive(Debug, Default)]
struct Inherited(Option<Option<Duration>>);

impl Inherited {
    /// Has `stream`, which `listener` accepted, and all that follow it be asked for signs of life after this much silence.
    fn settle(&mut self, listener: &Listener, stream: &Stream, silence: Option<Duration>) {
        if let (Listener::Tcp(listener), Stream::Tcp(stream)) = (listener, stream)
            && self.0 != Some(silence)
        {
            for socket in [listener.as_fd(), stream.as_fd()] {
                // A socket that refuses the option still works, with more delay.
                let _ = rustix::net::sockopt::set_tcp_nodelay(socket, true);
                keepalive::set(socket, silence);
            }
            self.0 = Some(silence);
        }
    }
}

/// Accepts connections until the drain begins. `serve` gets each with its place among the connections, and in a task of
/// its own; one that finds no place gets `full`. Each is asked for signs of life after as much silence as `keepalive`
/// says.
pub(crate) async fn accept<F>(
    listener: Listener,
    slots: Arc<Semaphore>,
    full: impl Fn() -> Vec<u8>,
    keepalive: impl Fn() -> Option<Duration>,
    mut drain: Drain,
    serve: impl Fn(Stream, Address, OwnedSemaphorePermit) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let turned_away = Arc::new(Semaphore::new(TURNED_AWAY));
    let mut inherited = Inherited::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = drain.begun() => return,
        };
        match accepted {
            Ok((stream, address)) => {
                inherited.settle(&listener, &stream, keepalive());
                if let Ok(slot) = Arc::clone(&slots).try_acquire_owned() {
                    // A task is moved about while it is made and when it ends, and this is a large one.
                    tokio::spawn(Box::pin(serve(stream, address, slot)));
                } else if let Ok(place) = Arc::clone(&turned_away).try_acquire_owned() {
                    tokio::spawn(turn_away(stream, full(), place));
                }
            }
            Err(error) if is_about_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections; trying again");
                tokio::time::sleep(BACK_OFF).await;
            }
        }
    }
}

/// Errors that concern the connection that failed, not the listener.
fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

async fn turn_away(mut stream: Stream, answer: Vec<u8>, place: OwnedSemaphorePermit) {
    let _ = timeout(TURN_AWAY_TIME, async {
        stream.write_all(&answer).await?;
        stream.shutdown().await
    })
    .await;
    drop(place);
}
