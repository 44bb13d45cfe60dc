//! A real WebSocket server on loopback.

use std::net::SocketAddr;
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::{modern_python, script, search_path};
use crate::certs::Leaf;
use crate::gateway::copy_lines;
use crate::relay::Task;
use crate::wait::{Journal, PROGRAM_DEADLINE};

/// An echo server of PyPI's `websockets`. It is killed when this is dropped.
#[derive(Debug)]
pub struct WebSocketServer {
    addr: SocketAddr,
    scheme: &'static str,
    _child: Child,
    _reader: Task,
    _files: TempDir,
}

impl WebSocketServer {
    /// Starts one, over TLS where it has a certificate to show.
    pub async fn start(leaf: Option<&Leaf>) -> Self {
        let files = TempDir::new().unwrap();
        let mut command = Command::new(modern_python());
        command.arg(script("websocket_server.py"));
        if let Some(leaf) = leaf {
            for (name, text) in [("cert.pem", leaf.cert_pem()), ("key.pem", leaf.key_pem())] {
                std::fs::write(files.path().join(name), text).unwrap();
                command.arg(files.path().join(name));
            }
        }
        command.env_clear().env("PATH", search_path()).env("PYTHONDONTWRITEBYTECODE", "1").kill_on_drop(true);
        // What it says of clients that break off is nobody's business.
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = Journal::default();
        let reader = Task::spawn(copy_lines(child.stdout.take().unwrap(), lines.clone()));
        let first = lines.when_within(PROGRAM_DEADLINE, "the port of a WebSocket server", |all| !all.is_empty()).await;
        let port = serde_json::from_str::<Value>(&first[0]).unwrap()["port"].as_u64().expect("a port");
        let addr = ([127, 0, 0, 1], u16::try_from(port).unwrap()).into();
        let scheme = if leaf.is_some() { "https" } else { "http" };
        Self { addr, scheme, _child: child, _reader: reader, _files: files }
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
