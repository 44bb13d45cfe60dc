//! Real MCP servers on loopback, behind TLS and a check of the Authorization field where one is named.

use std::ffi::OsString;
use std::net::SocketAddr;

use tokio::process::Command;

use super::program::Program;
use super::{NodeDir, installed, modern_python, python, script};
use crate::certs::Leaf;
use crate::relay::TlsFront;

/// A running server. It is killed when this is dropped.
#[derive(Debug)]
pub struct McpServer {
    front: TlsFront,
    program: Program,
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

    /// PyPI's `mcp` 2.x, with tools `echo(text)` and `greet()`, which asks the user for a name; also serves clients that
    /// open no session.
    pub async fn python_2(leaf: &Leaf, authorization: &str) -> Self {
        Self::start(leaf, Command::new(modern_python()).arg(script("mcp_server_2.py")), authorization, None).await
    }

    /// npm's `@modelcontextprotocol/server` 2.x, with the tools of [`McpServer::python_2`]. It keeps no sessions, and can
    /// ask only the clients that open none.
    pub async fn node_2(leaf: &Leaf, authorization: &str) -> Self {
        let dir = NodeDir::default();
        let main = dir.script("mcp_server_2.mjs");
        Self::node(leaf, dir, &[main.into()], authorization).await
    }

    /// PyPI's `mcp` 1.x with all that the public conformance suite asks a server for; no credential is asked.
    pub async fn conformance(leaf: &Leaf) -> Self {
        Self::start(leaf, Command::new(python()).arg(script("conformance_server.py")), "", None).await
    }

    /// npm's `@modelcontextprotocol/server-everything`, with a tool `echo(message)` among others.
    pub async fn everything(leaf: &Leaf, authorization: &str) -> Self {
        let main = installed("node/node_modules/@modelcontextprotocol/server-everything/dist/index.js");
        Self::node(leaf, NodeDir::default(), &[main.into(), "streamableHttp".into()], authorization).await
    }

    async fn node(leaf: &Leaf, dir: NodeDir, args: &[OsString], authorization: &str) -> Self {
        let mut command = Command::new("node");
        command.arg("--import").arg(dir.script("guard_listen.mjs")).args(args);
        Self::start(leaf, &mut command, authorization, Some(dir)).await
    }

    async fn start(leaf: &Leaf, command: &mut Command, authorization: &str, dir: Option<NodeDir>) -> Self {
        let required = [("REQUIRED_AUTHORIZATION", authorization)];
        let env: &[_] = if authorization.is_empty() { &[] } else { &required };
        let program = Program::start("an MCP server", command, env).await;
        let front = TlsFront::start(leaf, backend(&program)).await;
        Self { front, program, _dir: dir }
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
        format!("http://{}/mcp", backend(&self.program))
    }

    /// The Authorization fields of each request so far.
    #[must_use]
    pub fn authorizations(&self) -> Vec<Vec<String>> {
        let fields = |request: serde_json::Value| -> Vec<String> {
            request["authorization"].as_array().unwrap().iter().map(|field| field.as_str().unwrap().into()).collect()
        };
        self.program.said().into_iter().map(fields).collect()
    }
}

fn backend(program: &Program) -> SocketAddr {
    ([127, 0, 0, 1], program.port()).into()
}
