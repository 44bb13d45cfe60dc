//! The sessions of a gateway beside its own: created, listed, ended, and built anew when the gateway's files are.
//!
//! Each has a gate of its own, and with it a snapshot, connections, credentials and MCP sessions of its own. What it has
//! in common with the others carries no credential of a client: metrics, certificates for inspection, the places among
//! connections and tunnels, the limit on guessing, the shutdown. Its layers lie within those of the gateway's files, so
//! a session can only narrow what the gateway permits.

mod build;
mod reload;
mod spec;
mod view;
mod watch;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use exeat_policy::diag::{Diagnostic, has_errors};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

pub(crate) use build::snapshot;
pub(crate) use reload::announce;
pub(crate) use spec::Spec;
pub(crate) use view::{Created, SessionView};
pub(crate) use watch::watch;

use crate::auth::SessionCredentials;
use crate::config::Binding;
use crate::credentials::Sources;
use crate::evidence::{Board, MustDeny};
use crate::gate::{Gate, Identity, Session, SessionId};
use crate::guard::OwnListeners;
use crate::listener::unix::UnixSocket;
use crate::listener::{Listener, serve};
use crate::load::{Base, Inner, Inputs, LoadError};
use crate::metrics::SessionEnd;
use crate::quota::Quota;
use crate::respond::Unmet;
use crate::snapshot::Current;
use crate::upstream::Upstream;
use spec::Ways;

/// How long a connection to upstream waits unused for its next request.
pub(crate) const POOL_IDLE: Duration = Duration::from_secs(60);

/// Where clients of all sessions come in.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// The proxy port, and whether it speaks TLS.
    pub(crate) proxy: (SocketAddr, bool),
    /// Whether clients there show certificates.
    pub(crate) certificates: bool,
    /// The Unix socket beside it.
    pub(crate) unix: Option<PathBuf>,
    /// The listener of local MCP endpoints.
    pub(crate) mcp: Option<SocketAddr>,
    /// The certificate of the interception CA.
    pub(crate) ca: PathBuf,
}

/// The sessions of a gateway.
#[derive(Debug)]
pub(crate) struct Sessions {
    base: Arc<Gate>,
    /// What the gateway's own snapshot is loaded from.
    files: Inputs,
    /// Whether the gateway's own session is private to who started it.
    private: bool,
    own: OwnListeners,
    connections: Arc<Semaphore>,
    places: Places,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    files: Base,
    open: BTreeMap<SessionId, Arc<Open>>,
}

/// A session that is open.
#[derive(Debug)]
struct Open {
    id: SessionId,
    name: String,
    gate: Arc<Gate>,
    /// What it adds to the gateway's files, now and after each reload.
    inner: Inner,
    sources: Arc<Sources>,
    /// The files that its bindings write.
    stores: Vec<PathBuf>,
    ways: Ways,
    identity: Identity,
    /// The name that goes with its password.
    user: Option<String>,
    bound: Bound,
    created: SystemTime,
    expires: SystemTime,
}

/// The addresses of a session's own listeners.
#[derive(Clone, Copy, Debug, Default)]
struct Bound {
    listen: Option<SocketAddr>,
    mcp: Option<SocketAddr>,
}

impl Bound {
    fn all(&self) -> Vec<SocketAddr> {
        self.listen.into_iter().chain(self.mcp).collect()
    }
}

/// Why a session was not created.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) unmet: Unmet,
    pub(crate) detail: String,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

impl Refused {
    fn new(unmet: Unmet, detail: impl Into<String>) -> Self {
        Self { unmet, detail: detail.into(), diagnostics: Vec::new() }
    }
}

impl From<LoadError> for Refused {
    fn from(error: LoadError) -> Self {
        let detail = error.to_string();
        let diagnostics = match error {
            LoadError::Invalid(diagnostics) => diagnostics,
            LoadError::Unreadable { .. } | LoadError::TooLarge(_) => Vec::new(),
        };
        Self { unmet: Unmet::Invalid, detail, diagnostics }
    }
}

/// The listeners of a session, bound and not served yet.
struct Listeners {
    proxy: Vec<Listener>,
    mcp: Option<TcpListener>,
    bound: Bound,
}

impl Sessions {
    /// No sessions yet, in a gateway with the gate `base` that was loaded from `loaded`.
    pub(crate) fn new(
        base: Arc<Gate>,
        (files, loaded, private): (Inputs, Base, bool),
        own: OwnListeners,
        connections: Arc<Semaphore>,
        places: Places,
    ) -> Arc<Self> {
        let state = Mutex::new(State { files: loaded, open: BTreeMap::new() });
        Arc::new(Self { base, files, private, own, connections, places, state })
    }

    /// The gate of the gateway's own session.
    pub(crate) const fn base(&self) -> &Arc<Gate> {
        &self.base
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a session and serves it. Takes as long as making a policy does. Who asks is `trusted` where they have
    /// shown that they may run this gateway.
    ///
    /// # Errors
    /// Why there is no such session; nothing of it is left.
    pub(crate) fn create(self: &Arc<Self>, spec: Spec, trusted: bool) -> Result<Created, Refused> {
        if let Some(what) = spec.needs_trust().filter(|_| !trusted) {
            let detail = format!("{what} takes [admin] token, or an admin listener on a Unix socket");
            return Err(Refused::new(Unmet::Forbidden, detail));
        }
        let mut state = self.state();
        let (base, id) = (self.base.current.get(), SessionId::new());
        let name = spec.name.clone().unwrap_or_else(|| id.to_string());
        let ttl = self.admit(&state, &spec, &name)?;
        let stores: Vec<PathBuf> = spec.bound.sources.values().filter_map(Binding::store).map(Path::to_owned).collect();
        let kept = base.config.bindings.values().filter_map(Binding::store);
        let mut kept = kept.chain(state.open.values().flat_map(|open| open.stores.iter().map(|store| &**store)));
        if let Some(store) = kept.find(|kept| stores.iter().any(|store| store == kept)) {
            let detail = format!("{} is the store of another binding: give each a file of its own", store.display());
            return Err(Refused::new(Unmet::Conflict, detail));
        }
        let loaded = state.files.compile(Some(&spec.inner))?;
        let warnings: Vec<Diagnostic> = loaded.warnings.clone();
        debug_assert!(!has_errors(&warnings));
        let Spec { inner, bound: crate::config::Bound { sources, values }, limits, ways, .. } = spec;
        let sources = Arc::new(Sources::of_session(&sources, values));
        let snapshot = build::within(&base, loaded, &sources);
        let credentials = ways.credentials.then(|| SessionCredentials::new(id.as_str())).transpose();
        let credentials = credentials.map_err(|_| Refused::new(Unmet::Conflict, "the system has no randomness"))?;
        let identity = Identity {
            proofs: credentials.iter().flat_map(SessionCredentials::proofs).collect(),
            certificate: ways.certificate.as_deref().map(Arc::from),
            uid: ways.uid,
        };
        if let Some(detail) = self.base.directory.taken(&identity) {
            return Err(Refused::new(Unmet::Conflict, detail));
        }
        let Listeners { proxy, mcp, bound } = bind(&ways).map_err(|detail| Refused::new(Unmet::Conflict, detail))?;
        let quota = Quota::new(limits, Arc::clone(&self.base.metrics), Instant::now());
        let gate = self.gate(Session::new(id.clone(), name.as_str().into(), quota), Current::new(snapshot));
        gate.audit.policy_loaded(&gate.current.get());
        let created = SystemTime::now();
        let open = Arc::new(Open {
            id: id.clone(),
            name,
            gate: Arc::clone(&gate),
            inner,
            sources,
            stores,
            ways,
            identity,
            user: credentials.as_ref().map(|credentials| credentials.user.clone()),
            bound,
            created,
            expires: created + ttl,
        });
        self.own.add(&bound.all());
        self.base.directory.add(&open.identity, &gate);
        for listener in proxy {
            serve::proxy(listener, false, Arc::clone(&gate), Arc::clone(&self.connections));
        }
        if let Some(listener) = mcp {
            serve::endpoints(listener, &gate, Arc::clone(&self.connections));
        }
        tokio::spawn(expire(Arc::downgrade(self), id.clone(), gate.session.ended(), ttl));
        state.open.insert(id.clone(), Arc::clone(&open));
        self.count(&state);
        drop(state);
        tracing::info!(session = %id, name = open.name, ttl_seconds = ttl.as_secs(), "session created");
        Ok(Created::new(&open, credentials.as_ref(), &self.places, &warnings))
    }

    /// Whether there may be such a session beside the others, and for how long.
    fn admit(&self, state: &State, spec: &Spec, name: &str) -> Result<Duration, Refused> {
        let invalid = |detail: String| Err(Refused::new(Unmet::Invalid, detail));
        let config = &self.base.current.get().config;
        let limits = &config.sessions;
        if self.base.drain.has_begun() {
            return Err(Refused::new(Unmet::Conflict, "the gateway is shutting down"));
        }
        if state.open.len() >= limits.max {
            let detail = format!("there are {} sessions, as many as [sessions] max permits", state.open.len());
            return Err(Refused::new(Unmet::Full, detail));
        }
        if state.open.values().any(|open| open.name == *name) {
            return Err(Refused::new(Unmet::Conflict, format!("there is a session {name:?} already")));
        }
        let ttl = spec.ttl.unwrap_or(limits.ttl.min(limits.max_ttl));
        if ttl > limits.max_ttl {
            let longest = limits.max_ttl.as_secs();
            return invalid(format!("expected a ttl of at most {longest} s ([sessions] max_ttl), found a longer one"));
        }
        if let Some(name) = spec.inner.lent.iter().find(|name| !config.bindings.contains_key(*name)) {
            return invalid(format!("gateway_bindings: the gateway's config binds no {name:?}"));
        }
        if spec.ways.certificate.is_some() && !self.places.certificates {
            return invalid("client_certificate: the proxy port asks for none; set [listen] client_ca".to_owned());
        }
        if spec.ways.uid.is_some() && self.places.unix.is_none() {
            return invalid("unix_uid: there is no Unix socket; set [listen] unix".to_owned());
        }
        Ok(ttl)
    }

    /// The gate of a session within the gateway.
    fn gate(&self, session: Session, current: Current) -> Arc<Gate> {
        let base = &self.base;
        let audit = base.audit.of_session(session.id().as_str());
        Arc::new(Gate {
            session,
            current,
            upstream: Upstream::new(POOL_IDLE),
            audit,
            metrics: Arc::clone(&base.metrics),
            leaves: Arc::clone(&base.leaves),
            wrong_credentials: Arc::clone(&base.wrong_credentials),
            board: Board::default(),
            must_deny: MustDeny::default(),
            directory: Arc::clone(&base.directory),
            pseudonym: Arc::clone(&base.pseudonym),
            tunnel_slots: Arc::clone(&base.tunnel_slots),
            drain: base.drain.clone(),
        })
    }

    /// All sessions, the oldest first.
    pub(crate) fn list(&self) -> Vec<SessionView> {
        let mut open: Vec<Arc<Open>> = self.state().open.values().cloned().collect();
        open.sort_by_key(|open| open.created);
        open.iter().map(|open| SessionView::new(open, &self.places)).collect()
    }

    /// The session of this id.
    pub(crate) fn find(&self, id: &str) -> Option<SessionView> {
        let state = self.state();
        let open = state.open.values().find(|open| open.id.as_str() == id)?;
        Some(SessionView::new(open, &self.places))
    }

    /// Ends a session, with whatever is under way in it; whether there was one.
    pub(crate) fn end(&self, id: &str, end: SessionEnd) -> bool {
        let mut state = self.state();
        let found = state.open.keys().find(|known| known.as_str() == id).cloned();
        let Some(open) = found.and_then(|id| state.open.remove(&id)) else { return false };
        // Nobody is let in any more before what is under way ends.
        self.base.directory.remove(&open.identity);
        open.gate.end();
        open.gate.audit.ended();
        self.own.remove(&open.bound.all());
        self.count(&state);
        drop(state);
        self.base.metrics.count_session_end(end);
        tracing::info!(session = %open.id, name = open.name, cause = end.as_str(), "session ended");
        true
    }

    fn count(&self, state: &State) {
        self.base.metrics.sessions_active.set(i64::try_from(state.open.len()).unwrap_or(i64::MAX));
    }

    /// Closes the connections of all sessions that have waited too long.
    pub(crate) fn reap(&self) {
        self.base.upstream.reap();
        for open in self.state().open.values() {
            open.gate.upstream.reap();
        }
    }

    /// Takes down that all sessions are over, the gateway's own at last.
    pub(crate) fn close(&self) {
        for open in self.state().open.values() {
            open.gate.audit.ended();
        }
        self.base.audit.ended();
    }

    /// Waits until no session mints anything.
    pub(crate) async fn settle(&self) {
        self.base.current.get().injector.sources().settle().await;
        let sources: Vec<Arc<Sources>> = self.state().open.values().map(|open| Arc::clone(&open.sources)).collect();
        for sources in sources {
            sources.settle().await;
        }
    }
}

/// Ends a session when its time is over.
async fn expire(sessions: Weak<Sessions>, id: SessionId, mut ended: crate::drain::Drain, ttl: Duration) {
    tokio::select! {
        () = tokio::time::sleep(ttl) => {
            if let Some(sessions) = sessions.upgrade() {
                sessions.end(id.as_str(), SessionEnd::Expired);
            }
        }
        () = ended.begun() => {}
    }
}

/// Binds the listeners of a session's own.
fn bind(ways: &Ways) -> Result<Listeners, String> {
    let tcp = |address: &SocketAddr| {
        listen(*address).map_err(|error| format!("cannot listen on {address}: {error}; port 0 picks a free one"))
    };
    let listen = ways.listen.as_ref().map(tcp).transpose()?;
    let mcp = ways.mcp.as_ref().map(tcp).transpose()?;
    let unix = ways.unix.as_ref().map(|path| {
        UnixSocket::bind(path).map_err(|error| format!("cannot listen on the Unix socket {}: {error}", path.display()))
    });
    let address = |listener: &Option<TcpListener>| listener.as_ref().and_then(|listener| listener.local_addr().ok());
    let bound = Bound { listen: address(&listen), mcp: address(&mcp) };
    let proxy = listen.map(Listener::Tcp).into_iter().chain(unix.transpose()?.map(Listener::Unix)).collect();
    Ok(Listeners { proxy, mcp, bound })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
