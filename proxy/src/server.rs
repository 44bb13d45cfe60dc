//! The gateway as a whole: started, reloaded, drained.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use exeat_policy::diag::Diagnostic;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::admin;
use crate::audit::Audit;
use crate::auth::{Accounts, Limiter};
use crate::client::Address;
use crate::config::{Config, NextProxy as NextProxyAddress};
use crate::credentials::{Injector, Sources};
use crate::drain;
use crate::evidence::report::Evidence;
use crate::evidence::{Board, Enter};
use crate::gate::{Gate, Pseudonym};
use crate::guard::Guard;
use crate::intercept::{Ca, CaError, Leaves};
use crate::listener::dns::{self, NameServer};
use crate::listener::endpoint::Endpoints;
use crate::listener::names::Names;
use crate::listener::stream::Stream;
use crate::listener::unix::UnixSocket;
use crate::listener::{self, Listener, caught, proxy, tls};
use crate::load::{self, Inputs, LoadError, Loaded, McpServers};
use crate::mcp::policy::Policies;
use crate::metrics::Metrics;
use crate::snapshot::{Current, Snapshot};
use crate::tally::Tally;
use crate::upstream::{ClientTls, NextProxy, Resolver, Route, Upstream};

/// How long a connection to upstream waits unused for its next request.
const POOL_IDLE: Duration = Duration::from_secs(60);
/// How often unused connections are looked through.
const REAP_EVERY: Duration = Duration::from_secs(15);

/// How long the end waits for a credential that is being renewed.
const SETTLE_TIME: Duration = Duration::from_secs(5);

/// What a gateway is started with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `exeat.toml`; none for the defaults.
    pub config: Option<PathBuf>,
    /// Manifests, outermost layer first.
    pub manifests: Vec<PathBuf>,
    /// `section.key=value`, in force over the config file.
    pub overrides: Vec<String>,
    /// Holds the CA.
    pub state_dir: PathBuf,
    /// Whether a session alone reaches the ways in, so that nobody has to authenticate.
    pub private: bool,
}

/// The ways in of a session, which come from inside of it.
#[derive(Debug)]
pub(crate) struct Inside {
    /// The proxy port.
    pub(crate) proxy: std::net::TcpListener,
    /// The local endpoints of MCP servers.
    pub(crate) mcp: Option<std::net::TcpListener>,
    /// The name server, over UDP and TCP.
    pub(crate) dns: (std::net::UdpSocket, std::net::TcpListener),
    /// Where connections to any address are caught.
    pub(crate) caught: Vec<std::net::TcpListener>,
    /// Whether addresses of IPv6 lead there too.
    pub(crate) ipv6: bool,
}

/// The same, served by a gateway.
#[derive(Debug)]
struct Catching {
    dns: (UdpSocket, TcpListener),
    caught: Vec<TcpListener>,
    ports: Arc<[u16]>,
    ipv6: bool,
}

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Manifest or config cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Manifest or config has errors.
    #[error("manifest or config has errors")]
    Invalid(Vec<Diagnostic>),
    /// A file of the config or the state folder cannot be used.
    #[error("{0}")]
    File(String),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {cause}; choose another with {flag}, port 0 picks a free one")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The flag that sets it.
        flag: &'static str,
        /// What the system said.
        cause: io::Error,
    },
    /// A Unix socket cannot be listened on.
    #[error("cannot listen on the Unix socket {}: {cause}", path.display())]
    ListenUnix {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The metrics could not be registered.
    #[error("cannot register the metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

impl From<CaError> for StartError {
    fn from(error: CaError) -> Self {
        Self::File(error.to_string())
    }
}

impl From<LoadError> for StartError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Unreadable { path, cause: source } => Self::Unreadable { path, cause: source },
            LoadError::Invalid(diagnostics) => Self::Invalid(diagnostics),
            LoadError::TooLarge(error) => Self::File(error.to_string()),
        }
    }
}

/// A gateway that listens and is about to serve.
#[derive(Debug)]
pub struct Gateway {
    gate: Arc<Gate>,
    trigger: drain::Trigger,
    proxy: TcpListener,
    unix: Option<UnixSocket>,
    admin: Option<TcpListener>,
    mcp: Option<TcpListener>,
    catching: Option<Catching>,
    options: Options,
    own: Vec<SocketAddr>,
    connections: Arc<Semaphore>,
    connection_limit: usize,
    summary: Summary,
    /// Reloads come one at a time.
    reloading: Mutex<()>,
}

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
    /// The admin listener.
    pub admin: Option<SocketAddr>,
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
    /// Whether TLS is intercepted where a rule needs it.
    pub intercepts: bool,
    /// The proxy that connections go through.
    pub next_proxy: Option<NextProxyAddress>,
    /// What deserves a look in the files.
    pub warnings: Vec<Diagnostic>,
    /// What is in force and deserves a look: servers whose requests will be refused, open listeners.
    pub cautions: Vec<String>,
}

impl Gateway {
    /// Loads everything and binds the listeners. Nothing is served yet.
    ///
    /// # Errors
    /// Whatever keeps a file from being loaded or an address from being bound.
    pub async fn bind(options: Options) -> Result<Self, StartError> {
        Self::bind_for(options, None, None).await
    }

    /// As [`Gateway::bind`], for a session: adds its decisions up, and where the session is confined listens inside of
    /// it and nowhere else.
    ///
    /// # Errors
    /// As for [`Gateway::bind`].
    pub(crate) async fn bind_for(
        options: Options,
        tally: Option<Arc<Tally>>,
        inside: Option<Inside>,
    ) -> Result<Self, StartError> {
        let mut loaded = load::load(&inputs(&options))?;
        if inside.is_some() {
            // These are for clients from elsewhere, of whom there are none.
            (loaded.config.listen.unix, loaded.config.listen.tls) = (None, None);
        }
        let listen = loaded.config.listen.proxy;
        let (proxy, mcp, catching) = match inside {
            None => (bind(listen, "--listen").await?, None, None),
            Some(inside) => take_over(inside)
                .map_err(|error| StartError::File(format!("cannot serve the session's sockets: {error}")))?,
        };
        let unix = loaded.config.listen.unix.as_deref().map(bind_unix).transpose()?;
        let admin = match loaded.config.admin.listen {
            Some(address) => Some(bind(address, "--admin").await?),
            None => None,
        };
        let proxy_address = local(&proxy, listen, "--listen")?;
        let admin_address = match (&admin, loaded.config.admin.listen) {
            (Some(admin), Some(address)) => Some(local(admin, address, "--admin")?),
            _ => None,
        };
        let mcp = match loaded.config.mcp.listen {
            _ if catching.is_some() => mcp,
            Some(address) => Some(bind(address, "[mcp] listen").await?),
            None => None,
        };
        let mcp_address = mcp.as_ref().and_then(|mcp| mcp.local_addr().ok());
        let ca = match &loaded.config.intercept.ca {
            Some(files) => Ca::load(&files.cert, &files.key)?,
            None => Ca::open(&options.state_dir)?,
        };
        // A port inside a session is none of this machine's.
        let own: Vec<SocketAddr> = match &catching {
            None => std::iter::once(proxy_address).chain(admin_address).chain(mcp_address).collect(),
            Some(_) => admin_address.into_iter().collect(),
        };
        let metrics = Metrics::new()?;
        let summary = summarise(&loaded, proxy_address, admin_address, mcp_address, &ca);
        let snapshot = snapshot(1, loaded, &own, None, options.private)?;
        let mut cautions = announce(&snapshot, &metrics);
        cautions.extend(exposed(proxy_address, admin_address, mcp_address));
        let limits = snapshot.config.limits.clone();
        let (gate, trigger) = assemble(snapshot, metrics, ca, tally)?;
        Ok(Self {
            gate,
            trigger,
            proxy,
            unix,
            admin,
            mcp,
            catching,
            options,
            own,
            connections: Arc::new(Semaphore::new(limits.connections)),
            connection_limit: limits.connections,
            summary: Summary { cautions, ..summary },
            reloading: Mutex::new(()),
        })
    }

    /// What requests meet, without a way in, and what begins its drain.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn into_gate(self) -> (Arc<Gate>, drain::Trigger) {
        (self.gate, self.trigger)
    }

    /// Its metrics, which outlive it.
    pub(crate) fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.gate.metrics)
    }

    /// What it serves.
    #[must_use]
    pub const fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Serves until `shutdown` resolves, then drains: no new connections, requests under way are finished, tunnels get
    /// the drain time. Loads the files anew each time `reload` yields.
    pub async fn serve(self, shutdown: impl Future<Output = ()>, mut reload: impl AsyncFnMut()) {
        let Self {
            gate,
            trigger,
            proxy,
            unix,
            admin,
            mcp,
            catching,
            options,
            own,
            connections,
            connection_limit,
            reloading,
            ..
        } = self;
        gate.metrics.ready.set(1);
        if let Some(admin) = admin {
            tokio::spawn(admin::serve(Arc::clone(&gate), admin));
        }
        tokio::spawn(reap(Arc::clone(&gate)));
        tokio::spawn(keep_evidence(Arc::clone(&gate)));
        let secure = gate.current.get().listen_tls.is_some();
        let ways_in = std::iter::once((Listener::Tcp(proxy), secure));
        let ways_in = ways_in.chain(unix.map(|unix| (Listener::Unix(unix), false)));
        let mut accepting: Vec<_> = ways_in
            .map(|(listener, secure)| accept(listener, secure, Arc::clone(&gate), Arc::clone(&connections)))
            .chain(mcp.map(|mcp| accept_mcp(mcp, &gate, Arc::clone(&connections))))
            .collect();
        accepting.extend(catching.into_iter().flat_map(|catching| catch(catching, &gate, &connections)));
        let reloads = async {
            loop {
                reload().await;
                let _one = reloading.lock().unwrap_or_else(PoisonError::into_inner);
                reload_files(&gate, &options, &own);
            }
        };
        tokio::select! {
            () = shutdown => {}
            () = reloads => {}
        }
        gate.metrics.ready.set(0);
        trigger.begin();
        for accepting in accepting {
            let _ = accepting.await;
        }
        let drain_time = gate.current.get().config.limits.drain_time;
        let all = u32::try_from(connection_limit).unwrap_or(u32::MAX);
        tracing::info!("draining");
        match timeout(drain_time, connections.acquire_many(all)).await {
            Ok(_) => tracing::info!("drained"),
            Err(_) => tracing::warn!("the drain time is over; closing what is left"),
        }
        let snapshot = gate.current.get();
        if timeout(SETTLE_TIME, snapshot.injector.sources().settle()).await.is_err() {
            tracing::warn!("an authorization server has not answered; a refresh token that it replaced may be lost");
        }
    }
}

/// Checks the readiness of the manifests' servers once, without listening anywhere.
///
/// # Errors
/// Whatever keeps a file from being loaded.
pub(crate) async fn check_readiness(options: &Options) -> Result<Evidence, StartError> {
    let loaded = load::load(&inputs(options))?;
    let ca = match &loaded.config.intercept.ca {
        Some(files) => Ca::load(&files.cert, &files.key)?,
        None => Ca::open(&options.state_dir)?,
    };
    let (gate, _trigger) = assemble(snapshot(1, loaded, &[], None, false)?, Metrics::new()?, ca, None)?;
    let keeping = {
        let gate = Arc::clone(&gate);
        async move { gate.board.keep(&gate.current, &gate.metrics, &inner_way_in(&gate), gate.drain.clone(), None).await }
    };
    tokio::select! {
        () = keeping => {}
        () = gate.board.check_now() => {}
    }
    Ok(gate.board.evidence(&gate.current.get()))
}

/// Puts a gate together.
fn assemble(
    snapshot: Snapshot,
    metrics: Arc<Metrics>,
    ca: Ca,
    tally: Option<Arc<Tally>>,
) -> Result<(Arc<Gate>, drain::Trigger), StartError> {
    let (trigger, drain) = drain::pair();
    let tunnels = snapshot.config.limits.tunnels;
    let gate = Gate {
        current: Current::new(snapshot),
        upstream: Upstream::new(POOL_IDLE),
        audit: Audit::new(Arc::clone(&metrics), tally),
        metrics,
        leaves: Leaves::new(ca)?,
        wrong_credentials: Limiter::new(Instant::now()),
        board: Board::default(),
        pseudonym: Pseudonym::new(unique()),
        tunnel_slots: Arc::new(Semaphore::new(tunnels)),
        drain,
    };
    Ok((Arc::new(gate), trigger))
}

/// How the gateway's own messages come in: as a client's connection, which has a place of its own.
fn inner_way_in(gate: &Arc<Gate>) -> Enter {
    let gate = Arc::clone(gate);
    Arc::new(move |stream, purpose| {
        let place = Arc::new(Semaphore::new(1));
        if let Ok(slot) = place.try_acquire_owned() {
            let (stream, address) = (Stream::Inner(stream), Address::Inner(purpose));
            tokio::spawn(proxy::connection(Arc::clone(&gate), false, stream, address, slot));
        }
    })
}

async fn keep_evidence(gate: Arc<Gate>) {
    let enter = inner_way_in(&gate);
    let interval = gate.current.get().config.admin.readiness_interval;
    gate.board.keep(&gate.current, &gate.metrics, &enter, gate.drain.clone(), interval).await;
}

/// Serves what comes in at a listener, from a task of its own.
fn accept(listener: Listener, secure: bool, gate: Arc<Gate>, connections: Arc<Semaphore>) -> JoinHandle<()> {
    let drain = gate.drain.clone();
    // What a TLS client could not read is not said to it.
    let full = if secure { Vec::new } else { proxy::full_answer };
    tokio::spawn(listener::accept(listener, connections, full, drain, move |stream, address, slot| {
        proxy::connection(Arc::clone(&gate), secure, stream, address, slot)
    }))
}

/// Serves the local endpoints, from a task of their own.
fn accept_mcp(listener: TcpListener, gate: &Arc<Gate>, connections: Arc<Semaphore>) -> JoinHandle<()> {
    let (listener, drain) = (Listener::Tcp(listener), gate.drain.clone());
    let endpoints = Arc::new(Endpoints::new(Arc::clone(gate)));
    tokio::spawn(listener::accept(listener, connections, proxy::full_answer, drain, move |stream, address, slot| {
        Arc::clone(&endpoints).connection(stream, address, slot)
    }))
}

/// Serves what is caught inside a session, and its names.
fn catch(catching: Catching, gate: &Arc<Gate>, connections: &Arc<Semaphore>) -> Vec<JoinHandle<()>> {
    let Catching { dns: (udp, tcp), caught, ports, ipv6 } = catching;
    let names = Arc::new(Names::default());
    let server = Arc::new(NameServer { gate: Arc::clone(gate), names: Arc::clone(&names), ports, ipv6 });
    let mut tasks = vec![
        tokio::spawn(dns::serve_udp(Arc::clone(&server), udp, gate.drain.clone())),
        tokio::spawn(dns::serve_tcp(server, tcp, gate.drain.clone())),
    ];
    tasks.extend(caught.into_iter().map(|listener| {
        let (gate, names) = (Arc::clone(gate), Arc::clone(&names));
        let drain = gate.drain.clone();
        let serve = move |stream, address, slot| {
            caught::connection(Arc::clone(&gate), Arc::clone(&names), stream, address, slot)
        };
        tokio::spawn(listener::accept(Listener::Tcp(listener), Arc::clone(connections), Vec::new, drain, serve))
    }));
    tasks
}

/// Makes the sockets of a session this runtime's.
fn take_over(inside: Inside) -> io::Result<(TcpListener, Option<TcpListener>, Option<Catching>)> {
    let listener = |listener: std::net::TcpListener| {
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    };
    let (udp, tcp) = inside.dns;
    udp.set_nonblocking(true)?;
    let caught: Vec<TcpListener> = inside.caught.into_iter().map(listener).collect::<io::Result<_>>()?;
    let ports = caught.iter().map(|listener| listener.local_addr().map(|address| address.port()));
    let ports = ports.collect::<io::Result<_>>()?;
    let catching = Catching { dns: (UdpSocket::from_std(udp)?, listener(tcp)?), caught, ports, ipv6: inside.ipv6 };
    Ok((listener(inside.proxy)?, inside.mcp.map(listener).transpose()?, Some(catching)))
}

/// Replaces the snapshot, or keeps it and says why.
fn reload_files(gate: &Gate, options: &Options, own: &[SocketAddr]) {
    let before = gate.current.get();
    let next = load::load(&inputs(options)).map_err(StartError::from).and_then(|loaded| {
        let sources = Some(before.injector.sources());
        snapshot(before.generation + 1, loaded, own, sources, options.private)
    });
    match next {
        Ok(mut next) => {
            // A port that speaks TLS goes on doing so, and a plain one stays plain.
            if before.listen_tls.is_none() || next.listen_tls.is_none() {
                next.listen_tls.clone_from(&before.listen_tls);
            }
            warn_of_fixed(&before.config, &next.config);
            announce(&next, &gate.metrics);
            let (generation, digest) = (next.generation, next.policy.digest().to_owned());
            gate.current.replace(next);
            gate.upstream.clear();
            gate.metrics.count_reload(true);
            tracing::info!(generation, digest, "reloaded");
        }
        Err(error) => {
            gate.metrics.count_reload(false);
            if let StartError::Invalid(diagnostics) = &error {
                for diagnostic in diagnostics {
                    tracing::error!(%diagnostic, help = diagnostic.help, "not reloaded");
                }
            }
            tracing::error!(generation = before.generation, %error, "not reloaded; the policy in force stays");
        }
    }
}

/// Warns of changes that a reload cannot carry out.
fn warn_of_fixed(before: &Config, after: &Config) {
    let (old, new) = (&before.limits, &after.limits);
    let fixed = [
        ("listen.proxy", before.listen.proxy == after.listen.proxy),
        ("listen.unix", before.listen.unix == after.listen.unix),
        ("listen.tls_cert", before.listen.tls.is_some() == after.listen.tls.is_some()),
        ("admin.listen", before.admin.listen == after.admin.listen),
        ("admin.readiness_interval", before.admin.readiness_interval == after.admin.readiness_interval),
        ("mcp.listen", before.mcp.listen == after.mcp.listen),
        ("intercept.ca_cert", before.intercept.ca == after.intercept.ca),
        ("limits.connections", old.connections == new.connections),
        ("limits.tunnels", old.tunnels == new.tunnels),
    ];
    for (key, _) in fixed.into_iter().filter(|(_, same)| !same) {
        tracing::warn!(key, "the change of this key takes effect at the next start");
    }
}

fn inputs(options: &Options) -> Inputs {
    Inputs {
        config: options.config.clone(),
        manifests: options.manifests.clone(),
        overrides: options.overrides.clone(),
    }
}

fn snapshot(
    generation: u64,
    loaded: Loaded,
    own: &[SocketAddr],
    earlier: Option<&Sources>,
    private: bool,
) -> Result<Snapshot, StartError> {
    let Loaded { config, policy, injections, mcp: McpServers { policies, endpoints }, servers, capabilities, .. } =
        loaded;
    let mut extra = Vec::new();
    for path in &config.upstream.ca {
        extra.append(&mut certificates(path)?);
    }
    let route = Route {
        generation,
        guard: Guard::new(config.guard.allow.clone(), config.guard.blocked_ports.clone(), own.to_vec()),
        resolver: Resolver::new(config.dns.hosts.clone(), config.dns.servers.clone()),
        next_proxy: NextProxy::of(&config.upstream),
        tls: ClientTls::new(extra),
        connect_time: config.limits.connect_time,
        keepalive: config.limits.tcp_keepalive,
    };
    let route = Arc::new(route);
    let injector = Injector::new(injections, Sources::new(&config.bindings, earlier));
    let accounts = match private {
        true => Accounts::default(),
        false => Accounts::load(&config.listen.auth).map_err(StartError::File)?,
    };
    let listen_tls = config.listen.tls.as_ref().filter(|_| !private);
    let listen_tls = listen_tls.map(tls::server_config).transpose().map_err(StartError::File)?;
    let mcp = Policies::new(policies);
    Ok(Snapshot {
        generation,
        policy,
        route,
        injector,
        mcp,
        endpoints,
        accounts,
        listen_tls,
        servers,
        capabilities,
        config,
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, StartError> {
    let unusable =
        |detail: &dyn std::fmt::Display| StartError::File(format!("[upstream] ca: {}: {detail}", path.display()));
    let found: Vec<_> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(|error| unusable(&error))?;
    if found.is_empty() {
        return Err(unusable(&"the file holds no PEM certificate"));
    }
    let mut store = rustls::RootCertStore::empty();
    for certificate in &found {
        store.add(certificate.clone()).map_err(|error| unusable(&error))?;
    }
    Ok(found)
}

/// Shows a snapshot in the metrics and the log; gives what deserves a look in it.
fn announce(snapshot: &Snapshot, metrics: &Metrics) -> Vec<String> {
    let servers = snapshot.injector.iter().map(|injection| &*injection.server);
    metrics.show_policy(snapshot.generation, snapshot.policy.digest(), servers);
    metrics.register_minted(snapshot.injector.sources().minted());
    let refused = snapshot.injector.problems().into_iter();
    let mut problems: Vec<String> =
        refused.map(|(server, error)| format!("requests to {server} will be refused: {error}")).collect();
    problems.extend(snapshot.injector.sources().warnings());
    if let Some(next) = &snapshot.config.upstream.proxy {
        problems.push(format!("{next} resolves names itself: [guard] does not see the addresses behind them"));
    }
    for problem in &problems {
        tracing::warn!("{problem}");
    }
    problems
}

fn summarise(
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
        mcp,
        mcp_servers: loaded.mcp.endpoints.keys().cloned().collect(),
        ca: ca.cert_path().to_owned(),
        files: loaded.files.clone(),
        rules: (allowed, loaded.policy.rule_count() - allowed),
        digest: loaded.policy.digest().to_owned(),
        intercepts: loaded.config.intercept.enabled,
        next_proxy: loaded.config.upstream.proxy.clone(),
        warnings: loaded.warnings.clone(),
        cautions: Vec::new(),
    }
}

/// What others can do who reach the listeners, where they are not on loopback.
fn exposed(proxy: SocketAddr, admin: Option<SocketAddr>, mcp: Option<SocketAddr>) -> Vec<String> {
    let mut cautions = Vec::new();
    if !proxy.ip().is_loopback() {
        cautions.push(format!("whoever reaches {proxy} may use this policy and its credentials"));
    }
    cautions.extend(
        admin
            .filter(|admin| !admin.ip().is_loopback())
            .map(|admin| format!("whoever reaches {admin} may read the metrics and the state of the gateway")),
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

async fn bind(address: SocketAddr, flag: &'static str) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, flag, cause: source })
}

fn bind_unix(path: &Path) -> Result<UnixSocket, StartError> {
    UnixSocket::bind(path).map_err(|cause| StartError::ListenUnix { path: path.to_owned(), cause })
}

fn local(listener: &TcpListener, address: SocketAddr, flag: &'static str) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|source| StartError::Listen { address, flag, cause: source })
}

async fn reap(gate: Arc<Gate>) {
    let mut every = tokio::time::interval(REAP_EVERY);
    let mut drain = gate.drain.clone();
    loop {
        tokio::select! {
            _ = every.tick() => gate.upstream.reap(),
            () = drain.begun() => return,
        }
    }
}

/// A number that no other gateway has: what its name in Via fields ends in.
fn unique() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id())
}
