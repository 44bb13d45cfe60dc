//! The TLS relay for hosts that nobody knows beforehand: for each a certificate and a configuration of its own, as
//! intercepting proxies make them that have rustls and nothing in common between hosts, and a connection to the origin
//! that is verified. One key does for all certificates.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use exeat_tests::certs::{client_config, roots_of};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls_pki_types::{PrivatePkcs8KeyDer, ServerName};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{accept_connect, dial, read_connect, serve_local, tls};

struct Relay {
    origin: SocketAddr,
    connector: TlsConnector,
    issuer: Issuer<'static, KeyPair>,
    key: KeyPair,
}

pub(super) async fn serve(listener: &TcpListener, origin: SocketAddr, ca: &Path) -> anyhow::Result<()> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let relay = Relay {
        origin,
        connector: Arc::new(client_config(roots_of(ca), &[])).into(),
        issuer: Issuer::new(params, KeyPair::generate()?),
        key: KeyPair::generate()?,
    };
    serve_local(listener, relay, Relay::client).await
}

impl Relay {
    async fn client(&self, mut client: TcpStream) -> anyhow::Result<()> {
        client.set_nodelay(true)?;
        let head = read_connect(&mut client).await?;
        let host = host(&head).context("no CONNECT")?.to_owned();
        let acceptor = self.acceptor(&host)?;
        let name = ServerName::try_from(host)?;
        accept_connect(&mut client).await?;
        let mut client = acceptor.accept(client).await?;
        let mut upstream = self.connector.connect(name, dial(self.origin).await?).await?;
        tls::relay(&mut client, &mut upstream).await?;
        Ok(client.shutdown().await?)
    }

    fn acceptor(&self, host: &str) -> anyhow::Result<TlsAcceptor> {
        let leaf = CertificateParams::new([host.to_owned()])?.signed_by(&self.key, &self.issuer)?;
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der());
        let builder = ServerConfig::builder_with_provider(default_provider().into());
        let builder = builder.with_safe_default_protocol_versions()?.with_no_client_auth();
        Ok(Arc::new(builder.with_single_cert(vec![leaf.der().clone()], key.into())?).into())
    }
}

/// The host of a CONNECT.
fn host(head: &[u8]) -> Option<&str> {
    Some(std::str::from_utf8(head).ok()?.strip_prefix("CONNECT ")?.split_once(':')?.0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_host_of_a_connect_ends_at_its_port() {
        assert_eq!(super::host(b"CONNECT h1.origin.test:443 HTTP/1.1\r\n\r\n"), Some("h1.origin.test"));
        assert_eq!(super::host(b"GET / HTTP/1.1\r\n\r\n"), None);
    }
}
