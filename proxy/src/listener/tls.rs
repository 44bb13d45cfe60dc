//! TLS on the proxy port, and the certificates of its clients.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

use crate::config::ListenTls;

/// What the proxy port speaks inside TLS, most wanted first. SOCKS has no name among these: its clients offer none.
const PROTOCOLS: [&[u8]; 3] = [b"h2", b"http/1.1", b"http/1.0"];

/// The longest name of a client that is kept, in bytes.
const MAX_NAME: usize = 255;

/// Reads the files of `[listen]` and makes the server side of TLS.
///
/// # Errors
/// Which file cannot be used, and why.
pub(crate) fn server_config(files: &ListenTls) -> Result<Arc<ServerConfig>, String> {
    let chain = certificates("tls_cert", &files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unusable("tls_key", &files.key, error))?;
    let provider = Arc::new(crate::crypto::provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(rustls::ALL_VERSIONS)
        .map_err(|error| unusable("tls_cert", &files.cert, error))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("client_ca", path)? {
                roots.add(certificate).map_err(|error| unusable("client_ca", path, error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| unusable("client_ca", path, error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| unusable("tls_cert", &files.cert, error))?;
    config.alpn_protocols = PROTOCOLS.iter().map(|name| name.to_vec()).collect();
    Ok(Arc::new(config))
}

fn certificates(key: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Vec<_> =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(|error| unusable(key, path, error))?;
    if found.is_empty() { Err(unusable(key, path, "the file holds no PEM certificate")) } else { Ok(found) }
}

fn unusable(key: &str, path: &Path, error: impl Display) -> String {
    format!("[listen] {key}: {}: {error}", path.display())
}

/// The name of whom a certificate was issued to: the first DNS name, URI or mail address among its alternative names,
/// or else the common name of its subject. The certificate was verified already.
pub(crate) fn subject(certificate: &CertificateDer<'_>) -> Option<Arc<str>> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let name = alternative
        .iter()
        .flat_map(|extension| &extension.value.general_names)
        .find_map(|name| match name {
            GeneralName::DNSName(name) | GeneralName::URI(name) | GeneralName::RFC822Name(name) => Some(*name),
            _ => None,
        })
        .or_else(|| certificate.subject().iter_common_name().find_map(|name| name.as_str().ok()))?;
    (!name.is_empty() && name.len() <= MAX_NAME && !name.contains(char::is_control)).then(|| name.into())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn name(common_name: &str, alternatives: Vec<SanType>) -> Option<String> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.subject_alt_names = alternatives;
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        subject(certificate.der()).map(|name| name.to_string())
    }

    #[test]
    fn a_client_is_called_by_its_alternative_name_or_its_subject() {
        let dns = SanType::DnsName("agent.example.test".try_into().unwrap());
        let uri = SanType::URI("spiffe://example.test/agent/7".try_into().unwrap());
        let ip = SanType::IpAddress([192, 0, 2, 1].into());
        assert_eq!(name("agent seven", vec![]).as_deref(), Some("agent seven"));
        assert_eq!(name("agent seven", vec![ip.clone()]).as_deref(), Some("agent seven"));
        assert_eq!(name("agent seven", vec![ip, uri.clone()]).as_deref(), Some("spiffe://example.test/agent/7"));
        assert_eq!(name("agent seven", vec![dns, uri]).as_deref(), Some("agent.example.test"));
        assert_eq!(name("a\u{1b}[31m", vec![]), None);
        assert_eq!(subject(&CertificateDer::from_slice(b"no certificate")), None);
    }
}
