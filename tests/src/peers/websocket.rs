//! A real WebSocket server on loopback.

use std::net::SocketAddr;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::process::Command;

use super::program::Program;
use super::{modern_python, script};
use crate::certs::Leaf;

/// An echo server of PyPI's `websockets`. It is killed when this is dropped.
#[derive(Debug)]
pub struct WebSocketServer {
    addr: SocketAddr,
    scheme: &'static str,
    _program: Program,
    _files: TempDir,
}

impl WebSocketServer {
    /// Starts one, over TLS where it has a certificate to show.
    pub async fn start(leaf: Option<&Leaf>) -> Self {
        let files = TempDir::new().unwrap();
        let mut command = Command::new(modern_python());
        command.arg(script("websocket_server.py"));
        if let Some(leaf) = leaf {
            command.args(leaf.write_pem(files.path()));
        }
        // What it says of clients that break off is nobody's business.
        let program = Program::start("a WebSocket server", command.stderr(Stdio::null()), &[]).await;
        let scheme = if leaf.is_some() { "https" } else { "http" };
        Self { addr: ([127, 0, 0, 1], program.port()).into(), scheme, _program: program, _files: files }
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `host:port`, for a name that leads here.
    #[must_use]
    pub fn authority(&self, host: &str) -> String {
        format!("{host}:{}", self.addr.port())
    }

    /// `http://…` or `https://…`, for a name that leads here.
    #[must_use]
    pub fn url(&self, host: &str, path: &str) -> String {
        format!("{}://{}{path}", self.scheme, self.authority(host))
    }
}
