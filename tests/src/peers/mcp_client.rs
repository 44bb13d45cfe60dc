//! Real MCP clients, one for each SDK and each way of opening that an SDK has.

use super::{NodeDir, installed, modern_python, python, script};
use crate::client::Cmd;

/// A client, called with `URL TOOL JSON-ARGUMENTS`: it lists the tools, calls one, and prints
/// `{"tools": [names], "asked": questions, "text": result}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McpClient {
    /// PyPI's `mcp` 1.x.
    Python,
    /// PyPI's `mcp` 2.x.
    Python2,
    /// PyPI's `fastmcp` 4.x.
    FastMcp,
    /// npm's `@modelcontextprotocol/sdk` 1.x.
    Node,
    /// npm's `@modelcontextprotocol/client` 2.x as it comes.
    Node2,
    /// The same, asked to do without a session where it can.
    Node2Auto,
    /// crates.io's `rmcp` 3.x as it comes.
    Rust,
    /// The same, asked to do without a session where it can.
    RustAuto,
}

impl McpClient {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Python,
        Self::Python2,
        Self::FastMcp,
        Self::Node,
        Self::Node2,
        Self::Node2Auto,
        Self::Rust,
        Self::RustAuto,
    ];

    /// Whether it opens a session whatever the server can do.
    #[must_use]
    pub const fn needs_session(self) -> bool {
        match self {
            Self::Python | Self::Node | Self::Node2 | Self::Rust => true,
            Self::Python2 | Self::FastMcp | Self::Node2Auto | Self::RustAuto => false,
        }
    }

    /// The program, without a user whom a server could ask.
    #[must_use]
    pub fn command(self, node: &NodeDir) -> Cmd {
        match self {
            Self::Python => Cmd::new(python()).arg(script("mcp_client.py")),
            Self::Python2 => Cmd::new(modern_python()).arg(script("mcp_client_2.py")),
            Self::FastMcp => Cmd::new(modern_python()).arg(script("fastmcp_client.py")),
            Self::Node => node.command("mcp_client.mjs"),
            Self::Node2 => node.command("mcp_client_2.mjs"),
            Self::Node2Auto => node.command("mcp_client_2.mjs").arg("--auto"),
            Self::Rust => Cmd::new(rust_client()),
            Self::RustAuto => Cmd::new(rust_client()).arg("--auto"),
        }
    }

    /// The program, with a user who accepts whatever they are asked.
    #[must_use]
    pub fn with_user(self, node: &NodeDir) -> Cmd {
        self.command(node).arg("--ask")
    }
}

/// The client of `tests/peers/rmcp`.
#[must_use]
pub fn rust_client() -> std::path::PathBuf {
    installed("rmcp/debug/mcp_client")
}
