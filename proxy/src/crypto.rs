//! The one crypto provider, with the order of cipher suites the gateway prefers.

use rustls::CipherSuite;
use rustls::crypto::{CryptoProvider, ring};

/// Ring's suites with AES-128-GCM first: fewer rounds than AES-256, and SHA-256 has hardware where SHA-384 has none.
pub(crate) fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| match suite.suite() {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => 0,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => 2,
        suite if suite.as_str().is_some_and(|name| name.starts_with("TLS13")) => 1,
        _ => 3,
    });
    provider
}
