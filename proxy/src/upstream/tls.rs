//! TLS towards upstream: which certificates are believed.

use std::sync::{Arc, OnceLock};

use exeat_policy::Reason;
use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;

use super::Speaks;
use super::failure::Failure;

/// How many TLS sessions of one session are remembered.
const TLS_SESSIONS: usize = 64;

/// The client's side of TLS, built when the first connection needs it: reading the system's roots takes longer than
/// everything else at start.
#[derive(Debug)]
pub(crate) struct ClientTls {
    extra: Vec<CertificateDer<'static>>,
    configs: OnceLock<Result<Configs, String>>,
}

/// One config for connections that may speak HTTP/2, and one for those that may not.
#[derive(Clone, Debug)]
struct Configs {
    negotiated: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
}

impl ClientTls {
    /// Believes the system's roots and `extra`.
    pub(crate) const fn new(extra: Vec<CertificateDer<'static>>) -> Self {
        Self { extra, configs: OnceLock::new() }
    }

    /// The same beliefs, without the TLS sessions that servers could be reminded of.
    pub(crate) fn apart(&self) -> Self {
        let configs = OnceLock::new();
        let of = self.configs.get_or_init(|| build(&self.extra)).as_ref();
        if let Ok(Configs { negotiated, http1 }) = of {
            let resumption = Resumption::in_memory_sessions(TLS_SESSIONS);
            let apart = |config: &ClientConfig| {
                let mut config = config.clone();
                config.resumption = resumption.clone();
                Arc::new(config)
            };
            let _ = configs.set(Ok(Configs { negotiated: apart(negotiated), http1: apart(http1) }));
        }
        Self { extra: self.extra.clone(), configs }
    }

    /// The config that offers the protocols of `speaks`.
    pub(super) fn config(&self, speaks: Speaks) -> Result<Arc<ClientConfig>, Failure> {
        match self.configs.get_or_init(|| build(&self.extra)) {
            Ok(configs) if speaks == Speaks::Http1 => Ok(Arc::clone(&configs.http1)),
            Ok(configs) => Ok(Arc::clone(&configs.negotiated)),
            Err(inside) => Err(Failure::new(Reason::UpstreamTls, Reason::UpstreamTls.text(), inside)),
        }
    }
}

fn build(extra: &[CertificateDer<'static>]) -> Result<Configs, String> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!(%error, "a system root certificate could not be read");
    }
    roots.add_parsable_certificates(native.certs);
    for certificate in extra {
        roots.add(certificate.clone()).map_err(|error| error.to_string())?;
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(crate::crypto::provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let http1 = Arc::new(config.clone());
    config.alpn_protocols.insert(0, b"h2".to_vec());
    Ok(Configs { negotiated: Arc::new(config), http1 })
}
