//! A certificate authority for tests, and leaves good and bad.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};

/// How many authorities this process has made: each has a name of its own, or a chain could be built to the wrong one.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// A certificate authority made for one test, its certificate as a PEM file in a folder that goes with it.
pub struct TestCa {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
    dir: TempDir,
}

impl Default for TestCa {
    fn default() -> Self {
        Self::new()
    }
}

impl TestCa {
    /// Makes an authority.
    #[must_use]
    pub fn new() -> Self {
        let serial = MADE.fetch_add(1, Ordering::Relaxed);
        let mut params = params(&[], &format!("exeat test CA {serial}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("ca.pem"), certificate.pem()).unwrap();
        std::fs::write(dir.path().join("ca.key"), key.serialize_pem()).unwrap();
        Self { issuer: Issuer::new(params, key), der: certificate.der().clone(), dir }
    }

    /// The authority's certificate as a PEM file.
    #[must_use]
    pub fn pem_path(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// The authority's private key as a PEM file.
    #[must_use]
    pub fn key_path(&self) -> PathBuf {
        self.dir.path().join("ca.key")
    }

    /// A root store that holds only this authority.
    #[must_use]
    pub fn roots(&self) -> Arc<RootCertStore> {
        roots([self.der.clone()])
    }

    /// A good certificate for DNS names and IP addresses.
    #[must_use]
    pub fn leaf(&self, names: &[&str]) -> Leaf {
        self.sign(leaf_params(names))
    }

    /// A good certificate for a client called `name`.
    #[must_use]
    pub fn client(&self, name: &str) -> Leaf {
        let mut params = leaf_params(&[name]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// A certificate that was good until yesterday.
    #[must_use]
    pub fn expired(&self, names: &[&str]) -> Leaf {
        let mut params = leaf_params(names);
        params.not_before = OffsetDateTime::now_utc() - Duration::days(30);
        params.not_after = OffsetDateTime::now_utc() - Duration::days(1);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Leaf {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Leaf::new(vec![certificate.der().clone(), self.der.clone()], &key)
    }
}

/// A certificate chain with its key.
#[derive(Debug)]
pub struct Leaf {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Leaf {
    fn new(chain: Vec<CertificateDer<'static>>, key: &KeyPair) -> Self {
        Self { chain, key: PrivatePkcs8KeyDer::from(key.serialize_der()).into() }
    }

    /// A certificate that no authority signed.
    #[must_use]
    pub fn self_signed(names: &[&str]) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = leaf_params(names).self_signed(&key).unwrap();
        Self::new(vec![certificate.der().clone()], &key)
    }

    /// The chain in PEM.
    #[must_use]
    pub fn cert_pem(&self) -> String {
        self.chain.iter().map(|certificate| pem("CERTIFICATE", certificate)).collect()
    }

    /// The private key in PEM.
    #[must_use]
    pub fn key_pem(&self) -> String {
        pem("PRIVATE KEY", self.key.secret_der())
    }

    /// Writes the chain and the key into a folder, as PEM files.
    #[must_use]
    pub fn write_pem(&self, dir: &Path) -> [PathBuf; 2] {
        let [chain, key] = ["leaf.pem", "leaf.key"].map(|name| dir.join(name));
        std::fs::write(&chain, self.cert_pem()).unwrap();
        std::fs::write(&key, self.key_pem()).unwrap();
        [chain, key]
    }

    /// A client that trusts `roots` and shows this certificate.
    #[must_use]
    pub fn client_config(&self, roots: Arc<RootCertStore>) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(default_provider().into());
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        builder.with_client_auth_cert(self.chain.clone(), self.key.clone_key()).unwrap()
    }

    /// A server that shows this certificate and speaks the first of `alpn` that the client offers.
    #[must_use]
    pub fn server_config(&self, alpn: &[&str]) -> Arc<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(default_provider().into());
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let mut config = builder.with_single_cert(self.chain.clone(), self.key.clone_key()).unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64.encode(der);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// A client that trusts `roots` and offers `alpn`.
#[must_use]
pub fn client_config(roots: Arc<RootCertStore>, alpn: &[&str]) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(default_provider().into());
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

/// The first bytes of a TLS client that asks for `name`.
#[must_use]
pub fn client_hello(name: &str) -> Vec<u8> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(unchecked_client_config()), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// A client that takes any certificate, to see what a server says to one that asked for another name.
#[must_use]
pub fn unchecked_client_config() -> ClientConfig {
    let mut config = client_config(roots([]), &[]);
    config.dangerous().set_certificate_verifier(Arc::new(AnyCertificate));
    config
}

#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// The certificates of a PEM file as a root store.
#[must_use]
pub fn roots_of(path: &Path) -> Arc<RootCertStore> {
    roots(CertificateDer::pem_file_iter(path).unwrap().map(Result::unwrap))
}

fn roots(certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> Arc<RootCertStore> {
    let mut store = RootCertStore::empty();
    for certificate in certificates {
        store.add(certificate).unwrap();
    }
    Arc::new(store)
}

fn params(names: &[&str], common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = OffsetDateTime::now_utc() - Duration::hours(1);
    params.not_after = OffsetDateTime::now_utc() + Duration::days(1);
    params
}

fn leaf_params(names: &[&str]) -> CertificateParams {
    let mut params = params(names, names.first().copied().unwrap_or("exeat test leaf"));
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}
