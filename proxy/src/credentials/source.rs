//! Where the values of placeholders come from.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderValue;
use secrecy::{ExposeSecret as _, SecretString};

use crate::config::Binding;

/// The largest file that is read for a secret, in bytes.
const MAX_FILE: u64 = 64 * 1024;

/// Why there is no value. The text names the source, never its content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SourceError {
    /// No source is configured.
    #[error("${{{0}}} is not bound; add `{0} = {{ env = \"…\" }}` or `{{ file = \"…\" }}` to [bindings]")]
    Unbound(String),
    /// The environment variable is not set.
    #[error("${{{0}}}: the environment variable {1} is not set")]
    EnvMissing(String, String),
    /// The file could not be read.
    #[error("${{{0}}}: the file {path} cannot be read: {2}", path = .1.display())]
    FileUnreadable(String, PathBuf, String),
    /// The value is empty.
    #[error("${{{0}}}: the value is empty")]
    Empty(String),
    /// The server acts as the user, and no user's credentials are bound.
    #[error("${{{0}}}: the server acts as the user, and this version binds no credentials of users")]
    NoUser(String),
    /// The value cannot stand in a field.
    #[error("${{{0}}}: the value holds a line end, a NUL or another character that no header field may carry")]
    Unusable(String),
}

impl SourceError {
    /// The error without the place of the source, fit for the client.
    pub(crate) fn outside(&self) -> String {
        match self {
            Self::Unbound(name) => format!("the gateway binds no credential to ${{{name}}}"),
            Self::EnvMissing(name, _) | Self::FileUnreadable(name, ..) | Self::Empty(name) | Self::Unusable(name) => {
                format!("the credential that the gateway binds to ${{{name}}} cannot be used now")
            }
            Self::NoUser(name) => format!("${{{name}}} is the user's own, and no user's credentials are bound here"),
        }
    }
}

/// All configured sources.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    by_name: BTreeMap<String, Source>,
}

#[derive(Debug)]
enum Source {
    Env { variable: String, value: Option<SecretString> },
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

impl Sources {
    /// Reads the environment now; files are read when they are asked for.
    pub(crate) fn new(bindings: &BTreeMap<String, Binding>) -> Self {
        let by_name = bindings
            .iter()
            .map(|(name, binding)| {
                let source = match binding {
                    Binding::Env(variable) => Source::Env {
                        variable: variable.clone(),
                        value: std::env::var(variable).ok().map(SecretString::from),
                    },
                    Binding::File(path) => Source::File { path: path.clone(), cache: Mutex::default() },
                };
                (name.clone(), source)
            })
            .collect();
        Self { by_name }
    }

    /// The value of a placeholder, as it stands in a field.
    ///
    /// # Errors
    /// Anything that leaves no value that can be sent; nothing is sent in its place.
    pub(crate) fn header_value(&self, name: &str) -> Result<HeaderValue, SourceError> {
        match self.by_name.get(name) {
            None => Err(SourceError::Unbound(name.to_owned())),
            Some(Source::Env { variable, value }) => match value {
                None => Err(SourceError::EnvMissing(name.to_owned(), variable.clone())),
                Some(value) => to_header(name, value),
            },
            Some(Source::File { path, cache }) => to_header(name, &*read(name, path, cache)?),
        }
    }
}

fn to_header(name: &str, value: &SecretString) -> Result<HeaderValue, SourceError> {
    let value = value.expose_secret();
    if value.trim().is_empty() {
        return Err(SourceError::Empty(name.to_owned()));
    }
    let mut value = HeaderValue::from_str(value).map_err(|_| SourceError::Unusable(name.to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The value of a source as it is now, for one who does not ask again.
///
/// # Errors
/// There is none; the text names the source, never its content.
pub(crate) fn read_secret(binding: &Binding) -> Result<SecretString, String> {
    let secret = match binding {
        Binding::Env(variable) => std::env::var(variable)
            .map(SecretString::from)
            .map_err(|_| format!("the environment variable {variable} is not set"))?,
        Binding::File(path) => {
            let failed = |error| format!("the file {} cannot be read: {error}", path.display());
            let metadata = fs::metadata(path).map_err(|error| failed(error.to_string()))?;
            content(path, &metadata).map_err(failed)?
        }
    };
    if secret.expose_secret().is_empty() { Err("the value is empty".to_owned()) } else { Ok(secret) }
}

/// The file's content, from the cache while the file is the same.
fn read(name: &str, path: &Path, cache: &Mutex<Option<Cached>>) -> Result<Arc<SecretString>, SourceError> {
    let failed = |error| SourceError::FileUnreadable(name.to_owned(), path.to_owned(), error);
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
    if metadata.len() > MAX_FILE {
        return Err(format!("it is larger than {MAX_FILE} bytes"));
    }
    let mut text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    // Editors and `echo` end a file with one line end; it is not part of the secret.
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(SecretString::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_file(content: &[u8]) -> Result<String, SourceError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, content).unwrap();
        let sources = Sources::new(&BTreeMap::from([("TOKEN".to_owned(), Binding::File(path))]));
        sources.header_value("TOKEN").map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn one_line_end_is_trimmed_and_no_more() {
        for content in ["Bearer x", "Bearer x\n", "Bearer x\r\n"] {
            assert_eq!(from_file(content.as_bytes()).as_deref(), Ok("Bearer x"), "{content:?}");
        }
        for content in ["Bearer x\n\n", "Bearer\nx", "Bearer\rx", "Bearer x\0"] {
            assert_eq!(from_file(content.as_bytes()), Err(SourceError::Unusable("TOKEN".to_owned())), "{content:?}");
        }
        for content in ["", "\n", "  \n"] {
            assert_eq!(from_file(content.as_bytes()), Err(SourceError::Empty("TOKEN".to_owned())), "{content:?}");
        }
        assert!(matches!(from_file(b"\xff"), Err(SourceError::FileUnreadable(..))));
        assert!(matches!(from_file(&vec![b'a'; 70_000]), Err(SourceError::FileUnreadable(..))));
    }

    #[test]
    fn what_is_no_file_is_not_read() {
        for path in ["/dev/zero", "/"] {
            let sources = Sources::new(&BTreeMap::from([("TOKEN".to_owned(), Binding::File(path.into()))]));
            assert!(matches!(sources.header_value("TOKEN"), Err(SourceError::FileUnreadable(..))), "{path}");
        }
    }

    #[test]
    fn a_file_is_read_again_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let sources = Sources::new(&BTreeMap::from([("TOKEN".to_owned(), Binding::File(path.clone()))]));
        assert!(matches!(sources.header_value("TOKEN"), Err(SourceError::FileUnreadable(..))));
        fs::write(&path, "one").unwrap();
        assert_eq!(sources.header_value("TOKEN").unwrap(), "one");
        fs::write(folder.path().join("next"), "two").unwrap();
        fs::rename(folder.path().join("next"), &path).unwrap();
        assert_eq!(sources.header_value("TOKEN").unwrap(), "two");
        fs::remove_file(&path).unwrap();
        assert!(matches!(sources.header_value("TOKEN"), Err(SourceError::FileUnreadable(..))));
    }

    #[test]
    fn values_are_marked_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, "canary-value").unwrap();
        let sources = Sources::new(&BTreeMap::from([("TOKEN".to_owned(), Binding::File(path))]));
        let value = sources.header_value("TOKEN").unwrap();
        assert!(value.is_sensitive());
        assert!(!format!("{sources:?} {value:?}").contains("canary"));
    }

    #[test]
    fn what_is_not_bound_is_said() {
        let bindings = BTreeMap::from([("TOKEN".to_owned(), Binding::Env("EXEAT_TEST_NEVER_SET".to_owned()))]);
        let sources = Sources::new(&bindings);
        assert!(matches!(sources.header_value("OTHER"), Err(SourceError::Unbound(_))));
        assert!(matches!(sources.header_value("TOKEN"), Err(SourceError::EnvMissing(..))));
    }
}
