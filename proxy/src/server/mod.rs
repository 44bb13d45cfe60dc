//! The gateway as a whole: started, reloaded, drained.

mod assemble;
mod error;
mod self_test;
mod summary;
mod ways_in;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;

pub(crate) use assemble::check_readiness;
pub use error::StartError;
pub use summary::Summary;
pub(crate) use ways_in::Inside;

use crate::admin;
use crate::audit::Journal;
use crate::config::AdminListen;
use crate::drain;
use crate::gate::Gate;
use crate::guard::OwnListeners;
use crate::intercept::Ca;
use crate::listener::unix::UnixSocket;
use crate::listener::{Listener, serve};
use crate::load::Base;
use crate::metrics::Metrics;
use crate::sessions::{Places, Seen, Sessions, announce, snapshot, watch};
use crate::tally::Tally;
use assemble::{assemble, inputs, keep_evidence};
use summary::{exposed, summarise};
use ways_in::{Catching, bind, bind_unix, catch, local, take_over};

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

/// A gateway that listens and is about to serve.
#[derive(Debug)]
pub struct Gateway {
    gate: Arc<Gate>,
    trigger: drain::Trigger,
    proxy: TcpListener,
    unix: Option<UnixSocket>,
    admin: Option<(Listener, admin::Guard)>,
    mcp: Option<TcpListener>,
    catching: Option<Catching>,
    sessions: Arc<Sessions>,
    /// How the files were that are watched.
    seen: Option<Seen>,
    connections: Arc<Semaphore>,
    connection_limit: usize,
    summary: Summary,
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
        let inputs = inputs(&options);
        let mut base = Base::read(&inputs)?;
        let seen = base.config.policy.watch.then(|| Seen::now(&base.config, &inputs));
        if seen.is_some() && inputs.manifests.iter().all(|path| path.as_os_str() != "-") {
            // A change before that look is in what is read now; one after it is seen.
            base = Base::read(&inputs)?;
        }
        let mut loaded = base.compile(None)?;
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
        let token = loaded.config.admin.token.as_ref();
        let (admin, admin_address) = match &loaded.config.admin.listen {
            Some(AdminListen::Tcp(address)) => {
                let guard = admin::Guard::of_tcp(*address, token).map_err(StartError::File)?;
                let listener = bind(*address, "--admin").await?;
                let address = local(&listener, *address, "--admin")?;
                (Some((Listener::Tcp(listener), guard)), Some(address))
            }
            Some(AdminListen::Unix(path)) => {
                let guard = admin::Guard::of_unix(token).map_err(StartError::File)?;
                (Some((Listener::Unix(bind_unix(path)?), guard)), None)
            }
            None => (None, None),
        };
        let proxy_address = local(&proxy, listen, "--listen")?;
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
        let own = OwnListeners::from(own);
        let snapshot = snapshot(1, loaded, &own, None, options.private).map_err(StartError::File)?;
        let mut cautions = announce(&snapshot, &metrics);
        cautions.extend(exposed(proxy_address, admin_address, mcp_address));
        let limits = snapshot.config.limits.clone();
        let places = Places {
            proxy: (proxy_address, summary.tls),
            certificates: summary.client_certificates,
            unix: summary.unix.clone(),
            mcp: mcp_address,
            ca: summary.ca.clone(),
        };
        let journal = Journal::open(&snapshot.config.audit, Arc::clone(&metrics))?;
        let (gate, trigger) = assemble(snapshot, metrics, ca, tally, journal)?;
        let connections = Arc::new(Semaphore::new(limits.connections));
        let files = (inputs, base, options.private);
        let sessions = Sessions::new(Arc::clone(&gate), files, own, Arc::clone(&connections), places);
        Ok(Self {
            gate,
            trigger,
            proxy,
            unix,
            admin,
            mcp,
            catching,
            sessions,
            seen,
            connections,
            connection_limit: limits.connections,
            summary: Summary { cautions, ..summary },
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
            sessions,
            seen,
            connections,
            connection_limit,
            ..
        } = self;
        let ways = self_test::ways(&gate, mcp.is_some());
        self_test::run(&gate, &ways).await;
        gate.metrics.show_evidence(&gate.board.evidence(&gate.current.get()));
        tokio::spawn(self_test::keep(Arc::clone(&gate), ways));
        gate.audit.policy_loaded(&gate.current.get());
        if let Some((listener, guard)) = admin {
            tokio::spawn(admin::serve(Arc::clone(&sessions), listener, guard));
        }
        tokio::spawn(gate.audit.clone().keep_up());
        tokio::spawn(reap(Arc::clone(&sessions)));
        tokio::spawn(keep_evidence(Arc::clone(&gate)));
        if let Some(seen) = seen {
            tokio::spawn(watch(Arc::clone(&sessions), seen));
        }
        let secure = gate.current.get().listen_tls.is_some();
        let ways_in = std::iter::once((Listener::Tcp(proxy), secure));
        let ways_in = ways_in.chain(unix.map(|unix| (Listener::Unix(unix), false)));
        let mut accepting: Vec<_> = ways_in
            .map(|(listener, secure)| serve::proxy(listener, secure, Arc::clone(&gate), Arc::clone(&connections)))
            .chain(mcp.map(|mcp| serve::endpoints(mcp, &gate, Arc::clone(&connections))))
            .collect();
        accepting.extend(catching.into_iter().flat_map(|catching| catch(catching, &gate, &connections)));
        let reloads = async {
            loop {
                reload().await;
                let sessions = Arc::clone(&sessions);
                // What came of it has been told.
                let _ = tokio::task::spawn_blocking(move || sessions.reload().map(drop)).await;
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
        if timeout(SETTLE_TIME, sessions.settle()).await.is_err() {
            tracing::warn!("an authorization server has not answered; a refresh token that it replaced may be lost");
        }
        sessions.close();
    }
}

/// Every way in there can be, for the test of what they must refuse.
#[cfg(test)]
pub(crate) fn ways_to_test(gate: &Arc<Gate>) -> crate::evidence::must_deny::Ways {
    self_test::ways(gate, true)
}

async fn reap(sessions: Arc<Sessions>) {
    let mut every = tokio::time::interval(REAP_EVERY);
    let mut drain = sessions.base().drain.clone();
    loop {
        tokio::select! {
            _ = every.tick() => sessions.reap(),
            () = drain.begun() => return,
        }
    }
}
