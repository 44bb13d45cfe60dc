//! The gateway's config, `exeat.toml`: what its keys are, read with every problem reported at its place.
//!
//! The types here are the validated config: durations are durations, addresses are addresses, patterns are parsed.
//! Every key has a default; the shipped `config/exeat.toml` documents each one.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use exeat_policy::diag::{Source, Span};
use exeat_policy::doc::Spanned;
use exeat_policy::globs::NameGlobs;
use exeat_policy::guard::{AddressRange, Grants};
use exeat_policy::host::Host;
use exeat_policy::manifest::{AuthMode, HeaderValueSpec};
use exeat_policy::pattern::Pattern;
use exeat_policy::policy::DefaultVerdict;
use http::HeaderName;

mod credentials;
mod read;

pub(crate) use read::{Bound, session_bindings, session_time};

pub use credentials::{
    AuthorizationServer, Binding, ClientAuth, CommandSource, Encoded, Grant, OAuthSource, Place, Redact, RedactKeys,
    RedactScope, SecretSource,
};

/// The whole config.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Where the gateway listens.
    pub listen: Listen,
    /// What is permitted where no layer restricts, and the manifests to load.
    pub policy: PolicySection,
    /// TLS interception.
    pub intercept: Intercept,
    /// Where the values of placeholders come from, by name.
    pub bindings: BTreeMap<String, Binding>,
    /// What `use = "catalog:NAME"` resolves to, by name.
    pub catalog: BTreeMap<String, CatalogEntry>,
    /// Header fields for URL prefixes beside the manifest's servers.
    pub inject: Vec<Inject>,
    /// MCP servers.
    pub mcp: Mcp,
    /// What lies below the manifest.
    pub guard: GuardSection,
    /// Name resolution.
    pub dns: Dns,
    /// Connections to upstream servers.
    pub upstream: Upstream,
    /// Sizes, counts and times.
    pub limits: Limits,
    /// What is kept of decisions.
    pub audit: Audit,
    /// The admin listener.
    pub admin: Admin,
    /// Sessions: those of others, and what `exeat run` closes in.
    pub sessions: Sessions,
}

impl Config {
    /// Every place that holds a secret of the gateway.
    fn secret_sources(&self) -> impl Iterator<Item = &SecretSource> {
        let auth = &self.listen.auth;
        let accounts = auth.users.values().chain(auth.tokens.values());
        let bound = self.bindings.values().flat_map(Binding::secrets);
        bound.chain(accounts).chain(&self.upstream.proxy_authorization).chain(&self.admin.token)
    }

    /// The variables of the environment that hold secrets of the gateway, or let its programs get at them.
    pub(crate) fn secret_variables(&self) -> impl Iterator<Item = &str> {
        let held = self.secret_sources().filter_map(|source| match source {
            SecretSource::Env(name) => Some(name),
            SecretSource::File(_) => None,
        });
        held.chain(self.bindings.values().flat_map(Binding::passed_variables)).map(String::as_str)
    }

    /// The files that hold secrets of the gateway, beside the CA's.
    pub(crate) fn secret_files(&self) -> impl Iterator<Item = &Path> {
        let held = self.secret_sources().filter_map(|source| match source {
            SecretSource::Env(_) => None,
            SecretSource::File(path) => Some(path.as_path()),
        });
        let key = self.listen.tls.as_ref().map(|tls| tls.key.as_path());
        held.chain(self.bindings.values().filter_map(Binding::store)).chain(key)
    }
}

/// `[listen]`.
#[derive(Clone, Debug)]
pub struct Listen {
    /// The proxy port.
    pub proxy: SocketAddr,
    /// A Unix socket beside it.
    pub unix: Option<PathBuf>,
    /// TLS on the proxy port; none where it is plain.
    pub tls: Option<ListenTls>,
    /// The sources whose connections begin with a PROXY protocol header.
    pub proxy_protocol: Vec<AddressRange>,
    /// Who may use the gateway; everybody where nobody is named.
    pub auth: Auth,
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            proxy: SocketAddr::from(([127, 0, 0, 1], 3128)),
            unix: None,
            tls: None,
            proxy_protocol: Vec::new(),
            auth: Auth::default(),
        }
    }
}

/// The files for TLS on the proxy port, all PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenTls {
    /// The certificate chain, the gateway's own first.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// The authorities of client certificates; none where clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// `[listen.auth]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auth {
    /// Where the passwords of users come from, by name.
    pub users: BTreeMap<String, SecretSource>,
    /// Where bearer tokens come from, by a name for the log.
    pub tokens: BTreeMap<String, SecretSource>,
}

/// `[policy]`.
#[derive(Clone, Debug)]
pub struct PolicySection {
    /// What happens where no layer restricts.
    pub default: DefaultVerdict,
    /// Whether denials by rules are enforced.
    pub mode: Mode,
    /// Manifests to load when the command line names none, outermost layer first.
    pub manifests: Vec<PathBuf>,
    /// Whether manifests and config are loaded anew when one of their files changes.
    pub watch: bool,
}

impl Default for PolicySection {
    fn default() -> Self {
        Self { default: DefaultVerdict::Allow, mode: Mode::Enforce, manifests: Vec::new(), watch: false }
    }
}

/// What becomes of what the rules of the manifests deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is refused.
    Enforce,
    /// It goes out without the gateway's credentials, and is reported.
    Report,
}

impl Mode {
    /// The word in metrics, events and evidence.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Report => "report",
        }
    }
}

/// `[intercept]`.
#[derive(Clone, Debug)]
pub struct Intercept {
    /// Whether tunnels are opened where a rule needs it.
    pub enabled: bool,
    /// The CA's certificate and key, PEM files; none for the CA of the state folder.
    pub ca: Option<CaFiles>,
    /// What is asked of the server name in a tunnel that stays blind.
    pub sni_check: SniCheck,
}

impl Default for Intercept {
    fn default() -> Self {
        Self { enabled: true, ca: None, sni_check: SniCheck::Require }
    }
}

/// The files of a CA given by config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaFiles {
    /// PEM certificate.
    pub cert: PathBuf,
    /// PEM private key.
    pub key: PathBuf,
}

/// What is asked of the TLS server name in a blind tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SniCheck {
    /// It is there and is the CONNECT host.
    Require,
    /// If it is there, it is the CONNECT host.
    Match,
    /// Nothing.
    Off,
}

/// `[catalog.NAME]`.
#[derive(Clone, Debug)]
pub struct CatalogEntry {
    /// The server's URL: http or https, no userinfo, no fragment.
    pub url: Spanned<String>,
    /// What the place of the URL is in: the config file, or an override.
    pub source: Arc<Source>,
    /// How the server wants its callers to prove who they are.
    pub auth_mode: Option<AuthMode>,
    /// Its header fields.
    pub headers: Vec<(HeaderName, HeaderValueSpec)>,
    /// What of its answers is searched for credentials.
    pub redact: Redact,
}

/// `[[inject]]`.
#[derive(Clone, Debug)]
pub struct Inject {
    /// The URL prefix in canonical spelling: http or https, no wildcard.
    pub url: Spanned<String>,
    /// What the place of the URL is in: the config file, or an override.
    pub source: Arc<Source>,
    /// The header fields.
    pub headers: Vec<(HeaderName, HeaderValueSpec)>,
    /// What of the answers is searched for credentials.
    pub redact: Redact,
}

/// `[mcp]`.
#[derive(Clone, Debug)]
pub struct Mcp {
    /// The listener of the local endpoints; none when it is off.
    pub listen: Option<SocketAddr>,
    /// Names that clients may call it by, beside its own address and `localhost`.
    pub hosts: Vec<Host>,
    /// The largest message that is held to be judged, in bytes.
    pub max_body: usize,
    /// What servers are held to beside the manifest's own words, by their names in it.
    pub servers: BTreeMap<String, McpServer>,
}

impl Default for Mcp {
    fn default() -> Self {
        Self { listen: None, hosts: Vec::new(), max_body: 8 * 1024 * 1024, servers: BTreeMap::new() }
    }
}

/// `[mcp.NAME]`.
#[derive(Clone, Debug)]
pub struct McpServer {
    /// The tools that may be seen and called; all where there is no glob.
    pub tools: NameGlobs,
    /// What of the answers is searched for credentials, where it is written here.
    pub redact: RedactKeys,
    /// What the place of the name is in: the config file, or an override.
    pub source: Arc<Source>,
    /// Where the name stands.
    pub span: Span,
}

/// `[guard]`.
#[derive(Clone, Debug)]
pub struct GuardSection {
    /// Special-purpose addresses that are reachable all the same.
    pub allow: Grants,
    /// Ports that are never dialled.
    pub blocked_ports: Vec<u16>,
}

impl Default for GuardSection {
    fn default() -> Self {
        Self { allow: Grants::default(), blocked_ports: vec![25] }
    }
}

/// `[dns]`.
#[derive(Clone, Debug, Default)]
pub struct Dns {
    /// Names with fixed addresses, in canonical spelling; the guard judges them like any other.
    pub hosts: BTreeMap<String, Vec<IpAddr>>,
    /// Servers to ask; empty for those of the system.
    pub servers: Vec<SocketAddr>,
}

/// `[upstream]`.
#[derive(Clone, Debug, Default)]
pub struct Upstream {
    /// PEM files of CAs that upstream certificates may come from, beside the system's.
    pub ca: Vec<PathBuf>,
    /// The proxy that connections go through.
    pub proxy: Option<NextProxy>,
    /// The credentials for it: `user:password`, or for HTTP a whole field value.
    pub proxy_authorization: Option<SecretSource>,
    /// Hosts and domains that are reached without it.
    pub no_proxy: Vec<Pattern>,
}

/// Where the next proxy is, and what it speaks. Displays as its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextProxy {
    /// What it speaks.
    pub protocol: NextProxyProtocol,
    /// Its host.
    pub host: Host,
    /// Its port.
    pub port: u16,
}

/// What a next proxy speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextProxyProtocol {
    /// HTTP, asked for tunnels with CONNECT.
    Http,
    /// SOCKS5, which is passed the names unresolved.
    Socks5,
}

impl fmt::Display for NextProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            NextProxyProtocol::Http => "http",
            NextProxyProtocol::Socks5 => "socks5h",
        };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

/// `[limits]`.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest header section of a request, in bytes.
    pub header_bytes: usize,
    /// From the first byte of a header section to its last.
    pub header_time: Duration,
    /// Between the requests of a connection, for a tunnel in which nothing moves, and for a client that does not read.
    pub idle: Duration,
    /// After how much silence of a TCP connection its other end is asked for a sign of life; none for never.
    pub tcp_keepalive: Option<Duration>,
    /// For a name to resolve and a connection to be accepted, TLS included.
    pub connect_time: Duration,
    /// Client connections at once.
    pub connections: usize,
    /// Streams at once on one connection of HTTP/2.
    pub streams: u32,
    /// Tunnels at once.
    pub tunnels: usize,
    /// How long a blind tunnel or a WebSocket may last; none for as long as it likes.
    pub tunnel_lifetime: Option<Duration>,
    /// How long a shutdown waits for what is under way.
    pub drain_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes: 64 * 1024,
            header_time: Duration::from_secs(10),
            idle: Duration::from_secs(600),
            tcp_keepalive: Some(Duration::from_secs(60)),
            connect_time: Duration::from_secs(10),
            connections: 16_384,
            streams: 100,
            tunnels: 8_192,
            tunnel_lifetime: None,
            drain_time: Duration::from_secs(30),
        }
    }
}

/// `[audit]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// The file of events; none where no file is kept.
    pub events: Option<PathBuf>,
    /// What becomes of requests while the file cannot be written.
    pub on_full: OnFull,
    /// Whether a request waits until its event outlives the machine.
    pub durable: bool,
    /// The size in bytes above which the file is rotated; 0 for never.
    pub max_size: u64,
    /// How many rotated files are kept.
    pub keep: u32,
    /// Whether decisions are logged beside.
    pub log: bool,
}

impl Default for Audit {
    fn default() -> Self {
        Self { events: None, on_full: OnFull::Block, durable: false, max_size: 100 << 20, keep: 5, log: true }
    }
}

/// What becomes of requests while their events cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// They are refused.
    Block,
    /// They go out, and how many events are missing is written down when that is possible again.
    Drop,
}

/// `[admin]`.
#[derive(Clone, Debug)]
pub struct Admin {
    /// The admin listener; none when it is off.
    pub listen: Option<AdminListen>,
    /// The bearer token that has to be shown there; none where none has to be.
    pub token: Option<SecretSource>,
    /// How often the readiness of the manifests' servers is checked; none for only when asked.
    pub readiness_interval: Option<Duration>,
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            listen: Some(AdminListen::Tcp(SocketAddr::from(([127, 0, 0, 1], 9180)))),
            token: None,
            readiness_interval: Some(Duration::from_secs(300)),
        }
    }
}

/// Where the admin listener is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminListen {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix socket, which its owner alone can connect to.
    Unix(PathBuf),
}

/// `[sessions]`.
#[derive(Clone, Debug)]
pub struct Sessions {
    /// How many sessions there may be beside the gateway's own.
    pub max: usize,
    /// How long a session lasts that does not say.
    pub ttl: Duration,
    /// The longest that one may last.
    pub max_ttl: Duration,
    /// What to do about confinement.
    pub isolate: Isolate,
    /// Ports on which connections are caught, beside those that a rule names.
    pub catch: Vec<u16>,
    /// Unix sockets outside that the command may use.
    pub sockets: Vec<PathBuf>,
}

impl Default for Sessions {
    fn default() -> Self {
        let (ttl, max_ttl) = (Duration::from_secs(3600), Duration::from_secs(24 * 3600));
        Self { max: 100, ttl, max_ttl, isolate: Isolate::Auto, catch: vec![22, 80, 443], sockets: Vec::new() }
    }
}

/// What to do about confinement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolate {
    /// Confine where the system allows, and say where it does not.
    Auto,
    /// Confine, or do not run the command.
    Require,
    /// Do not confine.
    Off,
}
