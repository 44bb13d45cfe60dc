//! Sessions as the admin listener shows them. Secrets are in none but the answer to who created a session, once.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use exeat_policy::diag::Diagnostic;
use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::{Open, Places};
use crate::auth::SessionCredentials;
use crate::evidence::board::timestamp;
use crate::listener::endpoint::path_of;
use crate::quota::QuotaLimits;
use crate::view::DiagnosticView;

/// A session, without its secrets.
#[derive(Debug, Serialize)]
pub(crate) struct SessionView {
    id: String,
    name: String,
    created_at: String,
    expires_at: String,
    policy: PolicyView,
    limits: QuotaLimits,
    used: Used,
    identity: IdentityView,
    addresses: Addresses,
}

#[derive(Debug, Serialize)]
struct PolicyView {
    digest: String,
    generation: u64,
}

#[derive(Debug, Serialize)]
struct Used {
    requests: u64,
    bytes: u64,
}

/// By what the clients of a session are known.
#[derive(Debug, Serialize)]
struct IdentityView {
    /// The user name of its proxy credentials.
    user: Option<String>,
    client_certificate: Option<String>,
    unix_uid: Option<u32>,
}

/// Where the clients of a session come in.
#[derive(Debug, Serialize)]
struct Addresses {
    /// The URL of the proxy: the session's own, or the one that it shares.
    proxy: String,
    /// The Unix socket: the session's own, or the one that it shares.
    #[serde(skip_serializing_if = "Option::is_none")]
    unix: Option<PathBuf>,
    /// The local endpoints of MCP servers, by name.
    mcp: BTreeMap<String, String>,
}

impl SessionView {
    pub(super) fn new(open: &Open, places: &Places) -> Self {
        let snapshot = open.gate.current.get();
        let quota = open.gate.session.quota();
        let (requests, bytes) = quota.map(|quota| quota.used()).unwrap_or_default();
        let mcp = open.bound.mcp.or(places.mcp).map(reachable);
        let endpoints = snapshot.endpoints.keys().filter_map(|server| {
            let url = format!("http://{}{}", mcp?, path_of(server));
            Some((server.clone(), url))
        });
        Self {
            id: open.id.to_string(),
            name: open.name.clone(),
            created_at: timestamp(open.created),
            expires_at: timestamp(open.expires),
            policy: PolicyView { digest: snapshot.policy.digest().to_owned(), generation: snapshot.generation },
            limits: quota.map(|quota| quota.limits()).unwrap_or_default(),
            used: Used { requests, bytes },
            identity: IdentityView {
                user: open.user.clone(),
                client_certificate: open.ways.certificate.clone(),
                unix_uid: open.ways.uid,
            },
            addresses: Addresses {
                proxy: proxy(open, places, ""),
                unix: open.ways.unix.clone().or_else(|| places.unix.clone().filter(|_| open.ways.uid.is_some())),
                mcp: endpoints.collect(),
            },
        }
    }
}

/// A session for who created it: the one answer that has its credentials.
#[derive(Serialize)]
pub(crate) struct Created {
    #[serde(flatten)]
    session: SessionView,
    credentials: Option<CredentialsView>,
    /// Variables for clients.
    environment: BTreeMap<&'static str, String>,
    /// What deserves a look in its layers.
    warnings: Vec<serde_json::Value>,
}

#[derive(Serialize)]
struct CredentialsView {
    user: String,
    password: String,
    token: String,
}

impl Created {
    /// The session's id.
    pub(crate) fn id(&self) -> &str {
        &self.session.id
    }

    pub(super) fn new(
        open: &Open,
        credentials: Option<&SessionCredentials>,
        places: &Places,
        warnings: &[Diagnostic],
    ) -> Self {
        let userinfo = credentials
            .filter(|_| open.bound.listen.is_none())
            .map(|it| format!("{}:{}@", it.user, it.password.expose_secret()))
            .unwrap_or_default();
        let url = proxy(open, places, &userinfo);
        let known = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];
        let mut environment: BTreeMap<_, _> = known.into_iter().map(|name| (name, url.clone())).collect();
        environment.insert("NODE_EXTRA_CA_CERTS", shown(&places.ca));
        environment.insert("EXEAT_SESSION", open.id.to_string());
        let credentials = credentials.map(|it| CredentialsView {
            user: it.user.clone(),
            password: it.password.expose_secret().to_owned(),
            token: it.token.expose_secret().to_owned(),
        });
        let warnings = warnings.iter().filter_map(|it| serde_json::to_value(DiagnosticView::from(it)).ok()).collect();
        Self { session: SessionView::new(open, places), credentials, environment, warnings }
    }
}

/// The URL of the proxy that clients of a session use.
fn proxy(open: &Open, places: &Places, userinfo: &str) -> String {
    let (address, secure) = open.bound.listen.map_or(places.proxy, |listen| (listen, false));
    let scheme = if secure { "https" } else { "http" };
    format!("{scheme}://{userinfo}{}", reachable(address))
}

/// The address by which clients on this machine reach a listener.
fn reachable(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
