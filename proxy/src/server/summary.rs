//! What a gateway says of itself when it starts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use exeat_policy::diag::Diagnostic;

use crate::config::{AdminListen, Mode, NextProxy as NextProxyAddress};
use crate::intercept::Ca;
use crate::load::Loaded;

/// What a gateway serves, for the lines it prints at start.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The proxy port.
    pub proxy: SocketAddr,
    /// Whether the proxy port speaks TLS.
    pub tls: bool,
    /// Whether its clients need certificates.
    pub client_certificates: bool,
    /// The Unix socket beside the proxy port.
    pub unix: Option<PathBuf>,
    /// How many may use the gateway: users, tokens. Everybody where both are 0.
    pub accounts: (usize, usize),
    /// The admin listener, where it is a TCP port.
    pub admin: Option<SocketAddr>,
    /// The admin listener, where it is a Unix socket.
    pub admin_unix: Option<PathBuf>,
    /// The listener of the local endpoints.
    pub mcp: Option<SocketAddr>,
    /// The names of the servers that have one.
    pub mcp_servers: Vec<String>,
    /// The CA's certificate.
    pub ca: PathBuf,
    /// The manifests, outermost first.
    pub files: Vec<Arc<str>>,
    /// How many rules they have: allowed, blocked.
    pub rules: (usize, usize),
    /// The policy's digest.
    pub digest: String,
    /// Whether denials by rules are enforced.
    pub mode: Mode,
    /// The file of events.
    pub events: Option<PathBuf>,
    /// Whether TLS is intercepted where a rule needs it.
    pub intercepts: bool,
    /// The proxy that connections go through.
    pub next_proxy: Option<NextProxyAddress>,
    /// What deserves a look in the files.
    pub warnings: Vec<Diagnostic>,
    /// What is in force and deserves a look: servers whose requests will be refused, open listeners.
    pub cautions: Vec<String>,
}

pub(super) fn summarise(
    loaded: &Loaded,
    proxy: SocketAddr,
    admin: Option<SocketAddr>,
    mcp: Option<SocketAddr>,
    ca: &Ca,
) -> Summary {
    let listen = &loaded.config.listen;
    let allowed = loaded.policy.rules().filter(|rule| rule.list == exeat_policy::ListKind::Allowed).count();
    Summary {
        proxy,
        tls: listen.tls.is_some(),
        client_certificates: listen.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()),
        unix: listen.unix.clone(),
        accounts: (listen.auth.users.len(), listen.auth.tokens.len()),
        admin,
        admin_unix: match &loaded.config.admin.listen {
            Some(AdminListen::Unix(path)) => Some(path.clone()),
            Some(AdminListen::Tcp(_)) | None => None,
        },
        mcp,
        mcp_servers: loaded.mcp.endpoints.keys().cloned().collect(),
        ca: ca.cert_path().to_owned(),
        files: loaded.files.clone(),
        rules: (allowed, loaded.policy.rule_count() - allowed),
        digest: loaded.policy.digest().to_owned(),
        mode: loaded.config.policy.mode,
        events: loaded.config.audit.events.clone(),
        intercepts: loaded.config.intercept.enabled,
        next_proxy: loaded.config.upstream.proxy.clone(),
        warnings: loaded.warnings.clone(),
        cautions: Vec::new(),
    }
}

/// What others can do who reach the listeners, where they are not on loopback.
pub(super) fn exposed(proxy: SocketAddr, admin: Option<SocketAddr>, mcp: Option<SocketAddr>) -> Vec<String> {
    let mut cautions = Vec::new();
    if !proxy.ip().is_loopback() {
        cautions.push(format!("whoever reaches {proxy} may use this policy and its credentials"));
    }
    cautions.extend(
        admin
            .filter(|admin| !admin.ip().is_loopback())
            .map(|admin| format!("whoever reaches {admin} and has its token may end sessions and create them")),
    );
    cautions.extend(
        mcp.filter(|mcp| !mcp.ip().is_loopback())
            .map(|mcp| format!("whoever reaches {mcp} may use the MCP servers with their credentials")),
    );
    for caution in &cautions {
        tracing::warn!("{caution}");
    }
    cautions
}
