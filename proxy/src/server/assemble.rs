//! A gate put together from files: at start, at a reload, and for checks that need no listener.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tokio::sync::Semaphore;

use super::{Options, StartError};
use crate::audit::{Audit, Journal};
use crate::auth::{Accounts, Limiter};
use crate::client::Address;
use crate::credentials::{Injector, Sources};
use crate::drain;
use crate::evidence::report::Evidence;
use crate::evidence::{Board, Enter, MustDeny};
use crate::gate::{Gate, Pseudonym, Session};
use crate::guard::Guard;
use crate::hits::RuleHits;
use crate::intercept::{Ca, Leaves};
use crate::listener::stream::Stream;
use crate::listener::{proxy, tls};
use crate::load::{self, Inputs, Loaded, McpServers};
use crate::mcp::policy::Policies;
use crate::metrics::Metrics;
use crate::snapshot::{Current, Snapshot};
use crate::tally::Tally;
use crate::upstream::{ClientTls, NextProxy, Resolver, Route, Upstream};

/// How long a connection to upstream waits unused for its next request.
const POOL_IDLE: Duration = Duration::from_secs(60);

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
    let metrics = Metrics::new()?;
    // The file of events belongs to the gateway that serves.
    let journal = Journal::fleeting(Arc::clone(&metrics));
    let (gate, _trigger) = assemble(snapshot(1, loaded, &[], None, false)?, metrics, ca, None, journal)?;
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
pub(super) fn assemble(
    snapshot: Snapshot,
    metrics: Arc<Metrics>,
    ca: Ca,
    tally: Option<Arc<Tally>>,
    journal: Journal,
) -> Result<(Arc<Gate>, drain::Trigger), StartError> {
    let (trigger, drain) = drain::pair();
    let (tunnels, log) = (snapshot.config.limits.tunnels, snapshot.config.audit.log);
    let session = Session::new();
    let audit = Audit::new(Arc::clone(&metrics), tally, Arc::new(journal), session.id().as_str(), log);
    let gate = Gate {
        session,
        current: Current::new(snapshot),
        upstream: Upstream::new(POOL_IDLE),
        audit,
        metrics,
        leaves: Arc::new(Leaves::new(ca)?),
        wrong_credentials: Arc::new(Limiter::new(Instant::now())),
        board: Board::default(),
        must_deny: MustDeny::default(),
        pseudonym: Arc::new(Pseudonym::new(unique())),
        tunnel_slots: Arc::new(Semaphore::new(tunnels)),
        drain,
    };
    Ok((Arc::new(gate), trigger))
}

/// How the gateway's own messages come in: as a client's connection, which has a place of its own.
pub(super) fn inner_way_in(gate: &Arc<Gate>) -> Enter {
    let gate = Arc::clone(gate);
    Arc::new(move |stream, purpose| {
        let place = Arc::new(Semaphore::new(1));
        if let Ok(slot) = place.try_acquire_owned() {
            let (stream, address) = (Stream::Inner(stream), Address::Inner(purpose));
            tokio::spawn(proxy::connection(Arc::clone(&gate), false, stream, address, slot));
        }
    })
}

pub(super) async fn keep_evidence(gate: Arc<Gate>) {
    let enter = inner_way_in(&gate);
    let interval = gate.current.get().config.admin.readiness_interval;
    gate.board.keep(&gate.current, &gate.metrics, &enter, gate.drain.clone(), interval).await;
}

pub(super) fn inputs(options: &Options) -> Inputs {
    Inputs {
        config: options.config.clone(),
        manifests: options.manifests.clone(),
        overrides: options.overrides.clone(),
    }
}

pub(super) fn snapshot(
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
        hits: Arc::new(RuleHits::new(&policy)),
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

/// A number that no other gateway has: what its name in Via fields ends in.
fn unique() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id())
}
