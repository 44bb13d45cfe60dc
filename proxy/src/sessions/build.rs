//! Snapshots made of what was loaded: that of the gateway itself, and those of the sessions within it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::auth::Accounts;
use crate::credentials::{Injector, Sources};
use crate::guard::{Guard, OwnListeners};
use crate::hits::RuleHits;
use crate::listener::tls;
use crate::load::{Loaded, McpServers};
use crate::mcp::policy::Policies;
use crate::snapshot::Snapshot;
use crate::upstream::{ClientTls, NextProxy, Resolver, Route};

/// The snapshot of the gateway's own session. What `earlier` bindings have minted is kept.
///
/// # Errors
/// A file that the config names cannot be used.
pub(crate) fn snapshot(
    generation: u64,
    loaded: Loaded,
    own: &OwnListeners,
    earlier: Option<&Sources>,
    private: bool,
) -> Result<Snapshot, String> {
    let Loaded { config, policy, injections, mcp: McpServers { policies, endpoints }, servers, capabilities, .. } =
        loaded;
    let mut extra = Vec::new();
    for path in &config.upstream.ca {
        extra.append(&mut certificates(path)?);
    }
    let route = Route {
        generation,
        guard: Guard::new(config.guard.allow.clone(), config.guard.blocked_ports.clone(), own.clone()),
        resolver: Arc::new(Resolver::new(config.dns.hosts.clone(), config.dns.servers.clone())),
        next_proxy: NextProxy::of(&config.upstream).map(Arc::new),
        tls: ClientTls::new(extra),
        connect_time: config.limits.connect_time,
        keepalive: config.limits.tcp_keepalive,
    };
    let injector = Injector::new(injections, Arc::new(Sources::new(&config.bindings, earlier)), None);
    let accounts = match private {
        true => Accounts::default(),
        false => Accounts::load(&config.listen.auth)?,
    };
    let listen_tls = config.listen.tls.as_ref().filter(|_| !private);
    let listen_tls = listen_tls.map(tls::server_config).transpose()?;
    Ok(Snapshot {
        generation,
        hits: Arc::new(RuleHits::new(&policy)),
        policy,
        route: Arc::new(route),
        injector,
        mcp: Policies::new(policies),
        endpoints,
        accounts,
        listen_tls,
        servers,
        capabilities,
        config,
    })
}

/// The snapshot of a session within the gateway whose snapshot is `base`: the same way out, but nothing on it that could
/// carry a credential across; its own bindings before the gateway's.
pub(super) fn within(base: &Snapshot, loaded: Loaded, own: &Arc<Sources>) -> Snapshot {
    let Loaded { config, policy, injections, mcp: McpServers { policies, endpoints }, servers, capabilities, .. } =
        loaded;
    Snapshot {
        generation: base.generation,
        // The gateway's rules come first in both, under the same numbers; those of sessions are not counted.
        hits: Arc::clone(&base.hits),
        policy,
        route: Arc::new(base.route.apart()),
        injector: Injector::new(injections, Arc::clone(base.injector.sources()), Some(Arc::clone(own))),
        mcp: Policies::new(policies),
        endpoints,
        accounts: Accounts::default(),
        listen_tls: None,
        servers,
        capabilities,
        config,
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unusable = |detail: &dyn fmt::Display| format!("[upstream] ca: {}: {detail}", path.display());
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
