//! The other side of real programs: where `.ci/setup` put Python, Node and Rust programs, MCP clients and servers built
//! from them, and the small servers that pip, npm and git ask.

mod git;
mod grpc;
mod index;
mod mcp;
mod mcp_client;
mod oauth;
mod program;
mod prometheus;
mod websocket;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

pub use git::git_server;
pub use grpc::GrpcServer;
pub use index::Packages;
pub use mcp::McpServer;
pub use mcp_client::{McpClient, rust_client};
pub use oauth::{AuthorizationServer, ClientKey, TokenSettings};
pub use prometheus::Prometheus;
pub use websocket::WebSocketServer;

use crate::client::Cmd;
use crate::gateway::profile_dir;

/// The folder that `.ci/setup` fills: `EXEAT_PEERS`, or `peers` in the target folder.
fn root() -> PathBuf {
    std::env::var_os("EXEAT_PEERS").map_or_else(|| profile_dir().join("../peers"), PathBuf::from)
}

fn installed(part: &str) -> PathBuf {
    let path = root().join(part);
    assert!(path.exists(), "{} is missing: run .ci/setup", path.display());
    path
}

/// The `PATH` of programs: what `.ci/setup` had to bring along first, then the test's own.
#[must_use]
pub fn search_path() -> OsString {
    let own = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(root().join("tools/bin")).chain(std::env::split_paths(&own));
    std::env::join_paths(folders).unwrap()
}

/// The Python that has requests and the MCP SDK of the session era.
#[must_use]
pub fn python() -> PathBuf {
    installed("venv/bin/python")
}

/// The Python that has fastmcp and the MCP SDK of both eras.
#[must_use]
pub fn modern_python() -> PathBuf {
    installed("venv-modern/bin/python")
}

/// The folder of the npm packages.
#[must_use]
pub fn node_modules() -> PathBuf {
    installed("node/node_modules")
}

/// A script of `tests/peers`.
#[must_use]
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(name)
}

/// A folder in which scripts of `tests/peers` find the npm packages: Node looks for them upwards from the script.
#[derive(Debug)]
pub struct NodeDir(TempDir);

impl Default for NodeDir {
    fn default() -> Self {
        let dir = TempDir::new().unwrap();
        std::os::unix::fs::symlink(node_modules(), dir.path().join("node_modules")).unwrap();
        for name in [
            "authorization_server.mjs",
            "console.mjs",
            "fetch.mjs",
            "guard_listen.mjs",
            "http2_client.mjs",
            "http2_proxy.mjs",
            "mcp_client.mjs",
            "mcp_client_2.mjs",
            "mcp_server_2.mjs",
            "use_proxy.mjs",
        ] {
            std::fs::copy(script(name), dir.path().join(name)).unwrap();
        }
        Self(dir)
    }
}

impl NodeDir {
    /// A script by name.
    #[must_use]
    pub fn script(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Node with a script, made to read the proxy variables.
    #[must_use]
    pub fn command(&self, script: &str) -> Cmd {
        Cmd::new("node").arg("--import").arg(self.script("use_proxy.mjs")).arg(self.script(script))
    }
}
