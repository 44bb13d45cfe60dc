//! A real gRPC server on loopback.

use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::{python, script, search_path};
use crate::certs::Leaf;
use crate::gateway::copy_lines;
use crate::relay::Task;
use crate::wait::{Journal, PROGRAM_DEADLINE};

/// PyPI's `grpcio`, with the services of `grpc_server.py`. It is killed when this is dropped.
#[derive(Debug)]
pub struct GrpcServer {
    port: u16,
    _child: Child,
    _reader: Task,
    _dir: TempDir,
}

impl GrpcServer {
    /// Without TLS, or with a certificate.
    pub async fn start(leaf: Option<&Leaf>) -> Self {
        let dir = TempDir::new().unwrap();
        let mut command = Command::new(python());
        command.arg(script("grpc_server.py"));
        if let Some(leaf) = leaf {
            command.args(leaf.write_pem(dir.path()));
        }
        command.env_clear().env("PATH", search_path()).env("PYTHONDONTWRITEBYTECODE", "1").kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = Journal::default();
        let reader = Task::spawn(copy_lines(child.stdout.take().unwrap(), lines.clone()));
        let first = lines.when_within(PROGRAM_DEADLINE, "the port of a gRPC server", |all| !all.is_empty()).await;
        let port = serde_json::from_str::<Value>(&first[0]).unwrap()["port"].as_u64().expect("a port");
        Self { port: u16::try_from(port).unwrap(), _child: child, _reader: reader, _dir: dir }
    }

    /// The port it listens on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// `host:port`, for a name that leads here.
    #[must_use]
    pub fn authority(&self, host: &str) -> String {
        format!("{host}:{}", self.port)
    }
}
