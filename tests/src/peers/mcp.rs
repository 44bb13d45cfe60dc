//! Real MCP servers on loopback, behind TLS and a check of the Authorization field where one is named.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;
use tokio::process::{Child, Command};

use super::{NodeDir, installed, modern_python, python, script, search_path};
use crate::certs::Leaf;
use crate::gateway::copy_lines;
use crate::relay::{Task, TlsFront};
use crate::wait::{Journal, PROGRAM_DEADLINE};

/// A running server. It is killed when this is dropped.
#[derive(Debug)]
pub struct McpServer {
    front: TlsFront,
    backend: SocketAddr,
    lines: Journal<String>,
    _child: Child,
    _reader: Task,
    _dir: Option<NodeDir>,
}

impl McpServer {
    /// PyPI's `mcp` 1.x, one tool `echo(text)`.
    pub async fn python(leaf: &Leaf, authorization: &str) -> Self {
        Self::start(leaf, Command::new(python()).arg(script("mcp_server.py")), authorization, None).await
    }

    /// PyPI's `fastmcp` 4.x, one tool `echo(text)`; also serves clients that open no session.
    pub async fn modern(leaf: &Leaf, authorization: &str) -> Self {
        Self::start(leaf, Command::new(modern_python()).arg(script("fastmcp_server.py")), authorization, None).await
    }

    /// PyPI's `mcp` 1.x with all that the public conformance suite asks a server for; no credential is asked.
    pub async fn conformance(leaf: &Leaf) -> Self {
        Self::start(leaf, Command::new(python()).arg(script("conformance_server.py")), "", None).await
    }

    /// npm's `@modelcontextprotocol/server-everything`, with a tool `echo(message)` among others.
    pub async fn everything(leaf: &Leaf, authorization: &str) -> Self {
        let dir = NodeDir::default();
        let main: PathBuf = installed("node/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
        let mut command = Command::new("node");
        command.arg("--import").arg(dir.script("guard_listen.mjs")).arg(main).arg("streamableHttp");
        Self::start(leaf, &mut command, authorization, Some(dir)).await
    }

    async fn start(leaf: &Leaf, command: &mut Command, authorization: &str, dir: Option<NodeDir>) -> Self {
        command.env_clear().env("PATH", search_path()).kill_on_drop(true);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        if !authorization.is_empty() {
            command.env("REQUIRED_AUTHORIZATION", authorization);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = Journal::default();
        let reader = Task::spawn(copy_lines(child.stdout.take().unwrap(), lines.clone()));
        let first = lines.when_within(PROGRAM_DEADLINE, "the port of an MCP server", |all| !all.is_empty()).await;
        let port = serde_json::from_str::<Value>(&first[0]).unwrap()["port"].as_u64().expect("a port");
        let backend: SocketAddr = ([127, 0, 0, 1], u16::try_from(port).unwrap()).into();
        let front = TlsFront::start(leaf, backend).await;
        Self { front, backend, lines, _child: child, _reader: reader, _dir: dir }
    }

    /// The port it listens on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.front.port()
    }

    /// The URL of its endpoint, for a name that leads here.
    #[must_use]
    pub fn url(&self, host: &str) -> String {
        format!("https://{host}:{}/mcp", self.front.port())
    }

    /// The URL of its endpoint with nothing in front of it.
    #[must_use]
    pub fn direct_url(&self) -> String {
        format!("http://{}/mcp", self.backend)
    }

    /// The Authorization fields of each request so far.
    #[must_use]
    pub fn authorizations(&self) -> Vec<Vec<String>> {
        let requests = self.lines.all().into_iter().skip(1);
        requests
            .map(|line| {
                let request: Value = serde_json::from_str(&line).unwrap();
                request["authorization"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|field| field.as_str().unwrap().into())
                    .collect()
            })
            .collect()
    }
}
