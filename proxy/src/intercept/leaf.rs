//! Leaf certificates for the hosts of inspected tunnels, made when first needed and kept.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use exeat_policy::host::Host;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType,
};
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::ca::{Ca, CaError};

/// How long a leaf is valid, and after how long a new one is made.
const VALIDITY: time::Duration = time::Duration::days(7);
const RENEW_AFTER: Duration = Duration::from_secs(3 * 24 * 3600);

/// How many hosts' leaves are kept. Twice as many may be held for a while.
const KEPT: usize = 2048;

/// Makes and keeps the server side of TLS for hosts.
///
/// All leaves share one key pair, one session cache and one base config; what is kept for a host is its certificate
/// and a shallow copy of the config.
pub(crate) struct Leaves {
    ca: Ca,
    key: KeyPair,
    /// What signs handshakes with the same key.
    signing: Arc<dyn SigningKey>,
    base: ServerConfig,
    kept: Mutex<Kept>,
}

impl std::fmt::Debug for Leaves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leaves").field("ca", &self.ca).finish_non_exhaustive()
    }
}

/// Two generations: when the young one is full it becomes the old one, and what nobody asks for again goes.
#[derive(Default)]
struct Kept {
    young: HashMap<Host, Leaf>,
    old: HashMap<Host, Leaf>,
}

#[derive(Clone)]
struct Leaf {
    config: Arc<ServerConfig>,
    made: Instant,
}

/// Why there is no leaf.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeafError {
    #[error("cannot sign a certificate: {0}")]
    Sign(#[from] rcgen::Error),
}

impl Leaves {
    /// Leaves signed by `ca`.
    pub(crate) fn new(ca: Ca) -> Result<Self, CaError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let provider = Arc::new(crate::crypto::provider());
        let unusable = |expected| {
            let path = ca.cert_path().into();
            move |error: rustls::Error| CaError::Content { expected, path, detail: error.to_string() }
        };
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let signing = provider.key_provider.load_private_key(der).map_err(unusable("key for leaves"))?;
        let mut base = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(rustls::ALL_VERSIONS)
            .map_err(unusable("protocol version"))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new()));
        base.session_storage = ServerSessionMemoryCache::new(1024);
        // Every client has the suites, and most would take a slower one first.
        base.ignore_client_order = true;
        base.alpn_protocols = [&b"h2"[..], b"http/1.1", b"http/1.0"].map(<[u8]>::to_vec).to_vec();
        Ok(Self { ca, key, signing, base, kept: Mutex::default() })
    }

    /// The server side of TLS for `host`.
    pub(crate) fn config(&self, host: &Host) -> Result<Arc<ServerConfig>, LeafError> {
        if let Some(leaf) = self.find(host) {
            return Ok(leaf.config);
        }
        let leaf = Leaf { config: self.make(host)?, made: Instant::now() };
        let config = Arc::clone(&leaf.config);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(host.clone(), leaf);
        Ok(config)
    }

    fn find(&self, host: &Host) -> Option<Leaf> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(leaf) = kept.young.get(host) {
            return (leaf.made.elapsed() < RENEW_AFTER).then(|| leaf.clone());
        }
        let leaf = kept.old.remove(host).filter(|leaf| leaf.made.elapsed() < RENEW_AFTER)?;
        kept.insert(host.clone(), leaf.clone());
        Some(leaf)
    }

    fn make(&self, host: &Host) -> Result<Arc<ServerConfig>, LeafError> {
        let now = time::OffsetDateTime::now_utc();
        let mut params = CertificateParams::default();
        params.not_before = now - time::Duration::hours(1);
        params.not_after = now + VALIDITY;
        params.distinguished_name = DistinguishedName::new();
        // The name stands in the alternative names; a common name ends at 64 characters (RFC 5280 appendix A).
        params.distinguished_name.push(DnType::OrganizationName, "exeat gateway");
        params.subject_alt_names = vec![match host.ip() {
            Some(ip) => SanType::IpAddress(ip),
            None => SanType::DnsName(host.as_str().try_into()?),
        }];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let cert = params.signed_by(&self.key, self.ca.issuer())?;
        let chain = vec![cert.der().clone(), self.ca.cert().clone()];
        let certified = CertifiedKey::new(chain, Arc::clone(&self.signing));
        let mut config = self.base.clone();
        config.cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(certified));
        if matches!(host.ip(), Some(IpAddr::V4(_) | IpAddr::V6(_))) {
            // Sessions are told apart by server name, and a client that connects to an address sends none.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Arc::new(config))
    }
}

impl Kept {
    fn insert(&mut self, host: Host, leaf: Leaf) {
        if self.young.len() >= KEPT {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(host, leaf);
    }
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

    use super::*;

    fn leaves() -> (tempfile::TempDir, Leaves) {
        let folder = tempfile::tempdir().unwrap();
        let leaves = Leaves::new(Ca::open(folder.path()).unwrap()).unwrap();
        (folder, leaves)
    }

    /// Verifies the chain that a client gets, with webpki and the CA as the only root.
    fn verify(leaves: &Leaves, host: &str, name: &str) -> Result<(), rustls::Error> {
        use rustls::client::danger::ServerCertVerifier as _;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(leaves.ca.cert().clone()).unwrap();
        let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::new(crate::crypto::provider()),
        )
        .build()
        .unwrap();
        let chain = served(leaves, host);
        let name = ServerName::try_from(name.to_owned()).unwrap();
        verifier.verify_server_cert(&chain[0], &chain[1..], &name, &[], UnixTime::now()).map(|_| ())
    }

    /// The certificates that a handshake with the host's config gives.
    fn served(leaves: &Leaves, host: &str) -> Vec<CertificateDer<'static>> {
        let config = leaves.config(&Host::parse(host).unwrap()).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(leaves.ca.cert().clone()).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(Arc::new(crate::crypto::provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(client), name).unwrap();
        let mut server = rustls::ServerConnection::new(config).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut wire.as_slice()).unwrap();
            server.process_new_packets().unwrap();
            wire.clear();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut wire.as_slice()).unwrap();
            client.process_new_packets().unwrap();
        }
        client.peer_certificates().unwrap().iter().map(|cert| cert.clone().into_owned()).collect()
    }

    #[test]
    fn leaves_verify_for_their_host_alone() {
        let (_folder, leaves) = leaves();
        let long = format!("{}.{}.example.test", "a".repeat(63), "b".repeat(63));
        for host in ["api.example.test", "xn--bcher-kva.example", "127.0.0.1", "[::1]", &long] {
            verify(&leaves, host, host.trim_matches(['[', ']'])).unwrap();
            assert!(verify(&leaves, host, "other.example.test").is_err());
        }
    }

    #[test]
    fn a_leaf_is_made_once_and_the_number_kept_is_bounded() {
        let (_folder, leaves) = leaves();
        let host = Host::parse("a.test").unwrap();
        assert!(Arc::ptr_eq(&leaves.config(&host).unwrap(), &leaves.config(&host).unwrap()));
        let mut kept = Kept::default();
        let leaf = Leaf { config: leaves.config(&host).unwrap(), made: Instant::now() };
        for number in 0..3 * KEPT {
            kept.insert(Host::parse(&format!("h{number}.test")).unwrap(), leaf.clone());
        }
        assert!(kept.young.len() <= KEPT && kept.old.len() <= KEPT);
    }
}
