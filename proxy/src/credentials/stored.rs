//! Secrets that are kept in a place: variables, files, and the memory of a session that was handed them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderValue;
use rustix::process::geteuid;
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use super::error::StoredError;
use crate::config::SecretSource;

/// The largest file that is read for a secret, in bytes.
pub(super) const MAX_SECRET: usize = 64 * 1024;

/// A place that holds a secret.
#[derive(Debug)]
pub(crate) struct Stored(Place);

#[derive(Debug)]
enum Place {
    Given(Arc<SecretString>),
    Env { variable: String, value: Option<Arc<SecretString>> },
    File { path: PathBuf, cache: Mutex<Option<Cached>> },
}

/// A file's content and what told it apart from the content before.
struct Cached {
    stamp: Stamp,
    value: Arc<SecretString>,
}

impl std::fmt::Debug for Cached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cached").field("stamp", &self.stamp).finish_non_exhaustive()
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stored {
    /// Reads the environment now; a file is read when it is asked for.
    pub(crate) fn new(source: &SecretSource) -> Self {
        Self(match source {
            SecretSource::Env(variable) => Place::Env {
                variable: variable.clone(),
                value: std::env::var(variable).ok().map(SecretString::from).map(Arc::new),
            },
            SecretSource::File(path) => Place::File { path: path.clone(), cache: Mutex::default() },
        })
    }

    /// A secret that was handed over and is kept nowhere else.
    pub(crate) fn given(secret: SecretString) -> Self {
        Self(Place::Given(Arc::new(secret)))
    }

    /// The secret as it is now. The same value is the same `Arc` for as long as the source does not change.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn secret(&self) -> Result<Arc<SecretString>, StoredError> {
        let secret = match &self.0 {
            Place::Given(secret) => Arc::clone(secret),
            Place::Env { variable, value } => value.clone().ok_or_else(|| StoredError::EnvMissing(variable.clone()))?,
            Place::File { path, cache } => read(path, cache)?,
        };
        if secret.expose_secret().trim().is_empty() { Err(StoredError::Empty) } else { Ok(secret) }
    }

    /// The secret as it stands in a field.
    ///
    /// # Errors
    /// There is none, or it cannot stand in one.
    pub(crate) fn header_value(&self) -> Result<HeaderValue, StoredError> {
        to_header(&*self.secret()?)
    }

    /// What makes the place a bad one for a secret.
    pub(crate) fn warning(&self) -> Option<String> {
        match &self.0 {
            Place::Given(_) | Place::Env { .. } => None,
            Place::File { path, .. } => exposure(path),
        }
    }
}

/// A value as it stands in a field, marked so that nothing shows it.
pub(super) fn to_header(value: &SecretString) -> Result<HeaderValue, StoredError> {
    let value = value.expose_secret();
    if value.trim().is_empty() {
        return Err(StoredError::Empty);
    }
    let mut value = HeaderValue::from_str(value).map_err(|_| StoredError::Unusable)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Who beside its owner can read or change a file of secrets.
pub(super) fn exposure(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    let (mode, owner, own) = (metadata.mode() & 0o777, metadata.uid(), geteuid().as_raw());
    let path = path.display();
    if owner != own && owner != 0 {
        return Some(format!("{path} belongs to another user ({owner}), who can change the secret in it"));
    }
    if mode & 0o022 != 0 {
        return Some(format!("{path} can be written by others (mode {mode:04o}); chmod it to 0600"));
    }
    (mode & 0o004 != 0).then(|| format!("{path} can be read by everybody (mode {mode:04o}); chmod it to 0600"))
}

/// The file's content, from the cache while the file is the same.
fn read(path: &Path, cache: &Mutex<Option<Cached>>) -> Result<Arc<SecretString>, StoredError> {
    let failed = |error| StoredError::FileUnreadable(path.to_owned(), error);
    let metadata = fs::metadata(path).map_err(|error| failed(error.to_string()))?;
    let stamp = Stamp {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.size(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    };
    let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cached) = cache.as_ref().filter(|cached| cached.stamp == stamp) {
        return Ok(Arc::clone(&cached.value));
    }
    let value = Arc::new(content(path, &metadata).map_err(failed)?);
    *cache = Some(Cached { stamp, value: Arc::clone(&value) });
    Ok(value)
}

fn content(path: &Path, metadata: &fs::Metadata) -> Result<SecretString, String> {
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    if metadata.len() > MAX_SECRET as u64 {
        return Err(format!("it is larger than {MAX_SECRET} bytes"));
    }
    one_line(Zeroizing::new(fs::read(path).map_err(|error| error.to_string())?))
}

/// Text without the one line end that editors and programs put behind it, which is no part of the secret.
pub(super) fn one_line(bytes: Zeroizing<Vec<u8>>) -> Result<SecretString, String> {
    let text = std::str::from_utf8(&bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    let text = text.strip_suffix('\n').map_or(text, |text| text.strip_suffix('\r').unwrap_or(text));
    Ok(SecretString::from(text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn from_file(content: &[u8]) -> Result<String, StoredError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, content).unwrap();
        Stored::new(&SecretSource::File(path)).header_value().map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn one_line_end_is_trimmed_and_no_more() {
        for content in ["Bearer x", "Bearer x\n", "Bearer x\r\n"] {
            assert_eq!(from_file(content.as_bytes()).as_deref(), Ok("Bearer x"), "{content:?}");
        }
        for content in ["Bearer x\n\n", "Bearer\nx", "Bearer\rx", "Bearer x\0"] {
            assert_eq!(from_file(content.as_bytes()), Err(StoredError::Unusable), "{content:?}");
        }
        for content in ["", "\n", "  \n"] {
            assert_eq!(from_file(content.as_bytes()), Err(StoredError::Empty), "{content:?}");
        }
        assert!(matches!(from_file(b"\xff"), Err(StoredError::FileUnreadable(..))));
        assert!(matches!(from_file(&vec![b'a'; 70_000]), Err(StoredError::FileUnreadable(..))));
    }

    #[test]
    fn what_is_no_file_is_not_read() {
        for path in ["/dev/zero", "/"] {
            let stored = Stored::new(&SecretSource::File(path.into()));
            assert!(matches!(stored.secret(), Err(StoredError::FileUnreadable(..))), "{path}");
        }
    }

    #[test]
    fn a_file_is_read_again_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let stored = Stored::new(&SecretSource::File(path.clone()));
        assert!(matches!(stored.secret(), Err(StoredError::FileUnreadable(..))));
        fs::write(&path, "one").unwrap();
        assert_eq!(stored.header_value().unwrap(), "one");
        assert!(Arc::ptr_eq(&stored.secret().unwrap(), &stored.secret().unwrap()));
        fs::write(folder.path().join("next"), "two").unwrap();
        fs::rename(folder.path().join("next"), &path).unwrap();
        assert_eq!(stored.header_value().unwrap(), "two");
        fs::remove_file(&path).unwrap();
        assert!(matches!(stored.secret(), Err(StoredError::FileUnreadable(..))));
    }

    #[test]
    fn values_are_marked_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, "canary-value").unwrap();
        let stored = Stored::new(&SecretSource::File(path));
        let value = stored.header_value().unwrap();
        assert!(value.is_sensitive());
        assert!(!format!("{stored:?} {value:?} {:?}", stored.secret()).contains("canary"));
    }

    #[test]
    fn a_variable_that_is_not_set_is_named() {
        let stored = Stored::new(&SecretSource::Env("EXEAT_TEST_NEVER_SET".to_owned()));
        assert_eq!(stored.secret().err(), Some(StoredError::EnvMissing("EXEAT_TEST_NEVER_SET".to_owned())));
    }

    #[test]
    fn files_that_others_can_get_at_are_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, "x").unwrap();
        for (mode, warned) in [(0o600, None), (0o640, None), (0o644, Some("read")), (0o660, Some("written"))] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let warning = Stored::new(&SecretSource::File(path.clone())).warning();
            assert_eq!(warning.is_some(), warned.is_some(), "{mode:o}");
            assert!(warning.unwrap_or_default().contains(warned.unwrap_or_default()), "{mode:o}");
        }
    }
}
