//! The variables that point clients at a gateway and its CA.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustls_pki_types::CertificateDer;

use super::{ca, truststore};

/// Variables that name the proxy. Both cases are read by some client alone.
const PROXY: [&str; 14] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "WS_PROXY",
    "ws_proxy",
    "WSS_PROXY",
    "wss_proxy",
    "grpc_proxy",
    "npm_config_proxy",
    "npm_config_https_proxy",
    "CARGO_HTTP_PROXY",
];
/// Variables that name a bundle, which replaces a client's own roots.
const BUNDLE: [&str; 11] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "npm_config_cafile",
    "AWS_CA_BUNDLE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "DENO_CERT",
    "NIX_SSL_CERT_FILE",
];

/// The certificates that clients are to trust, as files.
#[derive(Clone, Debug)]
pub(super) struct Trust {
    /// The gateway's CA alone, PEM.
    pub(super) ca: PathBuf,
    /// The folder of the bundle, which holds nothing else.
    folder: PathBuf,
    /// The system's roots and the CA, PEM.
    pub(super) bundle: PathBuf,
    /// The same for Java, PKCS #12.
    store: PathBuf,
}

impl Trust {
    /// Writes bundle and store into a folder, which is made where it is missing.
    ///
    /// # Errors
    /// The system's roots cannot be read, or a file cannot be written.
    pub(super) fn write(folder: &Path, ca: &CertificateDer<'_>, ca_path: &Path) -> anyhow::Result<Self> {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let folder = absolute(folder);
        let trust = Self {
            ca: absolute(ca_path),
            folder: folder.join("certs"),
            bundle: folder.join("certs/bundle.pem"),
            store: folder.join("truststore.p12"),
        };
        let written =
            |result: io::Result<()>, path: &Path| result.with_context(|| format!("cannot write {}", path.display()));
        written(fs::create_dir_all(&trust.folder), &trust.folder)?;
        let roots = ca::roots(ca)?;
        written(ca::write_whole(&trust.bundle, ca::pem_of(&roots).as_bytes()), &trust.bundle)?;
        written(ca::write_whole(&trust.store, &truststore::of(&roots)), &trust.store)?;
        Ok(trust)
    }
}

/// Where the proxy is, as its URL, with the host and port of it apart.
#[derive(Clone, Debug)]
pub(super) struct Proxy {
    /// `http://host:port`.
    pub(super) url: String,
    /// Hosts that are reached without it.
    pub(super) except: &'static str,
}

impl Proxy {
    /// Host and port, for clients that read them apart; none where the URL holds more than these.
    fn parts(&self) -> Option<(&str, &str)> {
        let authority = self.url.strip_prefix("http://")?.trim_end_matches('/');
        let (host, port) = authority.rsplit_once(':').filter(|_| !authority.contains('@'))?;
        Some((host.trim_matches(['[', ']']), port))
    }
}

/// Every variable that some client reads. `java` is what the options of Java are already.
pub(super) fn variables(proxy: &Proxy, trust: &Trust, java: &str) -> Vec<(String, String)> {
    let mut variables: Vec<_> = PROXY.iter().map(|name| ((*name).to_owned(), proxy.url.clone())).collect();
    variables.extend(["NO_PROXY", "no_proxy"].map(|name| (name.to_owned(), proxy.except.to_owned())));
    let text = |path: &Path| path.to_string_lossy().into_owned();
    variables.extend(BUNDLE.map(|name| (name.to_owned(), text(&trust.bundle))));
    variables.push(("SSL_CERT_DIR".to_owned(), text(&trust.folder)));
    // Node adds these certificates to its own.
    variables.push(("NODE_EXTRA_CA_CERTS".to_owned(), text(&trust.ca)));
    variables.push(("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned()));
    variables.push(("JAVA_TOOL_OPTIONS".to_owned(), java_options(proxy, trust, java)));
    variables
}

fn java_options(proxy: &Proxy, trust: &Trust, before: &str) -> String {
    let mut options: Vec<String> = Some(before.to_owned()).filter(|before| !before.is_empty()).into_iter().collect();
    if let Some((host, port)) = proxy.parts() {
        for scheme in ["http", "https"] {
            options.push(format!("-D{scheme}.proxyHost={host} -D{scheme}.proxyPort={port}"));
        }
    }
    options.push(format!(
        "-Djavax.net.ssl.trustStore={} -Djavax.net.ssl.trustStoreType=PKCS12",
        trust.store.to_string_lossy()
    ));
    options.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(url: &str) -> Proxy {
        Proxy { url: url.to_owned(), except: "" }
    }

    #[test]
    fn java_gets_host_and_port_apart_behind_what_it_has_already() {
        let folder = tempfile::tempdir().unwrap();
        let ca = crate::intercept::Ca::open(folder.path()).unwrap();
        let trust = Trust::write(folder.path(), ca.cert(), ca.cert_path()).unwrap();
        let store = trust.store.display();
        let store = format!("-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStoreType=PKCS12");
        assert_eq!(
            java_options(&proxy("http://[::1]:3128"), &trust, "-Xmx1g"),
            format!(
                "-Xmx1g -Dhttp.proxyHost=::1 -Dhttp.proxyPort=3128 -Dhttps.proxyHost=::1 -Dhttps.proxyPort=3128 {store}"
            )
        );
        assert_eq!(java_options(&proxy("https://gate.test:3128"), &trust, ""), store);
        let bundle = fs::read_to_string(&trust.bundle).unwrap();
        assert!(bundle.contains(fs::read_to_string(ca.cert_path()).unwrap().lines().nth(1).unwrap()));
    }

    #[test]
    fn no_variable_stands_twice() {
        let folder = tempfile::tempdir().unwrap();
        let ca = crate::intercept::Ca::open(folder.path()).unwrap();
        let trust = Trust::write(folder.path(), ca.cert(), ca.cert_path()).unwrap();
        let variables = variables(&proxy("http://127.0.0.1:3128"), &trust, "");
        let names: std::collections::BTreeSet<_> = variables.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), variables.len());
    }
}
