//! A real gRPC server on loopback.

use tempfile::TempDir;
use tokio::process::Command;

use super::program::Program;
use super::{python, script};
use crate::certs::Leaf;

/// PyPI's `grpcio`, with the services of `grpc_server.py`. It is killed when this is dropped.
#[derive(Debug)]
pub struct GrpcServer {
    port: u16,
    _program: Program,
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
        let program = Program::start("a gRPC server", &mut command, &[]).await;
        Self { port: program.port(), _program: program, _dir: dir }
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
