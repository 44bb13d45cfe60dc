//! The gateway's own certificate authority.
//!
//! It is made on first start in the state folder, its key readable by the owner alone, or comes from files that the
//! config names. It signs leaf certificates for the hosts of inspected tunnels and nothing else.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use time::{Duration, OffsetDateTime};

/// How long a CA that the gateway makes is valid.
const VALIDITY: Duration = Duration::days(3650);

/// The file names in the state folder.
const CERT_FILE: &str = "ca.pem";
const KEY_FILE: &str = "ca.key";

/// A certificate authority that is ready to sign.
pub(crate) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    cert: CertificateDer<'static>,
    cert_path: PathBuf,
}

impl std::fmt::Debug for Ca {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ca").field("cert_path", &self.cert_path).finish_non_exhaustive()
    }
}

/// Why there is no CA.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaError {
    /// A file could not be read or written.
    #[error("cannot {doing} {}: {cause}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A file's content is no certificate or key.
    #[error("{} holds no usable {expected}: {detail}", path.display())]
    Content {
        /// What the file should hold.
        expected: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// One of the two files is missing.
    #[error("{} is there but {} is not; restore it, or remove both files and a new CA is made", present.display(), missing.display())]
    Half {
        /// The file that is there.
        present: PathBuf,
        /// The one that is not.
        missing: PathBuf,
    },
    /// Key and certificate do not belong together.
    #[error("the key {} does not belong to the certificate {}", key.display(), cert.display())]
    Mismatch {
        /// The key file.
        key: PathBuf,
        /// The certificate file.
        cert: PathBuf,
    },
    /// The certificate library refused.
    #[error("cannot make a CA: {0}")]
    Make(#[from] rcgen::Error),
}

impl Ca {
    /// Loads the CA of a state folder; makes folder and CA if they are not there.
    ///
    /// # Errors
    /// Whatever keeps the files from being read, written or used. Files that are there are never overwritten.
    pub(crate) fn open(state: &Path) -> Result<Self, CaError> {
        let (cert, key) = (state.join(CERT_FILE), state.join(KEY_FILE));
        match (cert.exists(), key.exists()) {
            (true, true) => Self::load(&cert, &key),
            (false, false) => {
                make(state, &cert, &key)?;
                Self::load(&cert, &key)
            }
            (true, false) => Err(CaError::Half { present: cert, missing: key }),
            (false, true) => Err(CaError::Half { present: key, missing: cert }),
        }
    }

    /// Loads a CA from PEM files.
    ///
    /// # Errors
    /// A file that cannot be read, is no certificate or key, or a pair that does not belong together.
    pub(crate) fn load(cert_path: &Path, key_path: &Path) -> Result<Self, CaError> {
        let cert_pem = read(cert_path)?;
        let key_pem = zeroize::Zeroizing::new(read(key_path)?);
        if let Ok(mode) = fs::metadata(key_path).map(|metadata| metadata.permissions().mode())
            && mode & 0o077 != 0
        {
            tracing::warn!(path = %key_path.display(), "the CA's key is readable by others; chmod 600 it");
        }
        let content = |expected, path: &Path, detail: String| CaError::Content { expected, path: path.into(), detail };
        let cert = CertificateDer::from_pem_slice(cert_pem.as_bytes())
            .map_err(|error| content("PEM certificate", cert_path, error.to_string()))?;
        let key = KeyPair::from_pem(&key_pem).map_err(|e| content("PEM private key", key_path, e.to_string()))?;
        let issuer = Issuer::from_ca_cert_der(&cert, key)
            .map_err(|error| content("CA certificate", cert_path, error.to_string()))?;
        if !spki_matches(&cert, issuer.key()) {
            return Err(CaError::Mismatch { key: key_path.into(), cert: cert_path.into() });
        }
        Ok(Self { issuer, cert, cert_path: std::path::absolute(cert_path).unwrap_or_else(|_| cert_path.to_owned()) })
    }

    /// The certificate.
    #[must_use]
    pub(crate) const fn cert(&self) -> &CertificateDer<'static> {
        &self.cert
    }

    /// The file that holds the certificate, PEM.
    #[must_use]
    pub(crate) fn cert_path(&self) -> &Path {
        &self.cert_path
    }

    pub(super) const fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }
}

/// Whether the certificate is about this key: its encoding contains the key's raw bytes.
fn spki_matches(cert: &CertificateDer<'_>, key: &KeyPair) -> bool {
    memchr::memmem::find(cert, key.public_key_raw()).is_some()
}

fn read(path: &Path) -> Result<String, CaError> {
    fs::read_to_string(path).map_err(|source| CaError::File { doing: "read", path: path.into(), cause: source })
}

fn make(state: &Path, cert_path: &Path, key_path: &Path) -> Result<(), CaError> {
    fs::create_dir_all(state).map_err(|source| CaError::File { doing: "create", path: state.into(), cause: source })?;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let now = OffsetDateTime::now_utc();
    let mut params = CertificateParams::default();
    params.not_before = now - Duration::hours(1);
    params.not_after = now + VALIDITY;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params.distinguished_name = DistinguishedName::new();
    // Two gateways' CAs must differ in name too: some trust stores look an issuer up by its name alone.
    let serial: String = key.public_key_raw().iter().skip(1).take(4).map(|byte| format!("{byte:02x}")).collect();
    params.distinguished_name.push(DnType::CommonName, format!("exeat gateway CA {serial}"));
    params.distinguished_name.push(DnType::OrganizationName, "exeat");
    let cert = params.self_signed(&key)?;
    let pem = zeroize::Zeroizing::new(key.serialize_pem());
    write_new(key_path, pem.as_bytes(), 0o600)?;
    write_new(cert_path, cert.pem().as_bytes(), 0o644)
}

/// Writes a file that must not be there yet, whole or not at all.
fn write_new(path: &Path, content: &[u8], mode: u32) -> Result<(), CaError> {
    let failed = |source| CaError::File { doing: "write", path: path.into(), cause: source };
    let partial = path.with_extension(format!("partial-{}", std::process::id()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&partial)?;
        file.write_all(content)?;
        file.sync_all()?;
        // A hard link fails where the name exists, so of two gateways that start at once one loses and says so.
        fs::hard_link(&partial, path)
    })();
    let _ = fs::remove_file(&partial);
    written.map_err(failed)?;
    if let Some(folder) = path.parent() {
        // Not every file system lets a folder be synced; the file itself is.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ca_is_made_once_and_loaded_after() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let first = Ca::open(&state).unwrap();
        let second = Ca::open(&state).unwrap();
        assert_eq!(first.cert(), second.cert());
        let mode = fs::metadata(state.join(KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(&state).unwrap().count(), 2, "no partial file stays behind");
    }

    #[test]
    fn half_a_ca_or_a_foreign_key_is_refused_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        Ca::open(&one).unwrap();
        Ca::open(&other).unwrap();
        fs::copy(other.join(KEY_FILE), one.join(KEY_FILE)).unwrap();
        assert!(matches!(Ca::open(&one), Err(CaError::Mismatch { .. })));
        fs::remove_file(one.join(KEY_FILE)).unwrap();
        assert!(matches!(Ca::open(&one), Err(CaError::Half { .. })));
        assert!(!one.join(KEY_FILE).exists());
        fs::write(other.join(KEY_FILE), "no key").unwrap();
        assert!(matches!(Ca::open(&other), Err(CaError::Content { expected: "PEM private key", .. })));
    }
}
