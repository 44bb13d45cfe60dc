//! The file of a refresh token: written whole or not at all, and known to be on disk before anything depends on it.
//!
//! The file remembers which first token its own descends from, by a digest, so that a new one in the config takes over.
//! A lock beside it keeps other gateways from using the same token at the same time.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ring::digest::{SHA256, digest};
use rustix::fs::{FlockOperation, flock};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};
use zeroize::Zeroizing;

use super::super::error::MintError;
use super::super::stored::{MAX_SECRET, Stored};

/// How long another gateway may use the token.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the lock is tried.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// The place of a refresh token.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
}

/// The place, while it is nobody else's.
#[derive(Debug)]
pub(super) struct Locked {
    path: PathBuf,
    _lock: File,
}

/// What the file holds, as JSON.
#[derive(Serialize, Deserialize)]
struct Content {
    version: u32,
    /// SHA-256 of the first token, in hex.
    first: String,
    refresh_token: String,
}

impl Drop for Content {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.refresh_token);
    }
}

impl Store {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Waits until nobody else uses the token.
    pub(super) async fn lock(&self) -> Result<Locked, MintError> {
        let failed = |error: io::Error| {
            MintError::new(format_args!("the store {} cannot be locked: {error}", self.path.display()))
        };
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        }
        let mut name = self.path.clone().into_os_string();
        name.push(".lock");
        let lock =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(name).map_err(failed)?;
        let began = Instant::now();
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Locked { path: self.path.clone(), _lock: lock }),
                Err(error) => {
                    let error = io::Error::from(error);
                    if error.kind() != io::ErrorKind::WouldBlock || began.elapsed() > PATIENCE {
                        return Err(failed(error));
                    }
                }
            }
            sleep(TRY_EVERY).await;
        }
    }
}

impl Locked {
    /// The token to use: the one in the file, or the first where there is none or it descends from another first.
    pub(super) fn read(&self, first: &Stored) -> Result<SecretString, MintError> {
        let stored = self.content()?;
        let first = first.secret();
        match (stored, first) {
            // Whoever takes the first token away leaves the one in the file.
            (Some(content), Err(_)) => Ok(content.refresh_token.as_str().into()),
            (Some(content), Ok(first)) if content.first == fingerprint(&first) => {
                Ok(content.refresh_token.as_str().into())
            }
            (_, Ok(first)) => Ok(first.expose_secret().into()),
            (None, Err(error)) => Err(MintError::new(format_args!("the first refresh token: {error}"))),
        }
    }

    fn content(&self) -> Result<Option<Content>, MintError> {
        let path = self.path.display();
        let text = match fs::read(&self.path).map(Zeroizing::new) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(MintError::new(format_args!("the store {path} cannot be read: {error}"))),
        };
        let content: Option<Content> = serde_json::from_slice(&text).ok();
        let known = content.filter(|content| content.version == 1 && text.len() <= 2 * MAX_SECRET);
        known.map(Some).ok_or_else(|| {
            MintError::new(format_args!(
                "the store {path} is not one of this version; remove it to start with the first token"
            ))
        })
    }

    /// Puts `token` in the file, and returns when it is on disk.
    pub(super) async fn write(&self, token: &SecretString, first: &Stored) -> Result<(), MintError> {
        let earlier = self.content().ok().flatten();
        let first = match first.secret() {
            Ok(first) => fingerprint(&first),
            Err(_) => earlier.map(|content| content.first.clone()).unwrap_or_default(),
        };
        let content = Content { version: 1, first, refresh_token: token.expose_secret().to_owned() };
        let failed = |error: &dyn std::fmt::Display| {
            MintError::new(format_args!("the new refresh token cannot be stored in {}: {error}", self.path.display()))
        };
        let text = serde_json::to_vec(&content).map(Zeroizing::new).map_err(|error| failed(&error))?;
        let path = self.path.clone();
        let written = tokio::task::spawn_blocking(move || replace(&path, &text)).await;
        written.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
    }
}

/// Replaces a file by one with another content, at once and for good: the new file is on disk before it takes the name,
/// and the name is on disk before this returns.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut next = path.to_owned().into_os_string();
    next.push(".next");
    let next = PathBuf::from(next);
    // One that a killed gateway left behind; the lock says that nobody is writing it.
    if let Err(error) = fs::remove_file(&next)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&next)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&next, path)?;
    File::open(folder)?.sync_all()
}

fn fingerprint(secret: &SecretString) -> String {
    digest(&SHA256, secret.expose_secret().as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use tempfile::TempDir;

    use super::*;
    use crate::config::SecretSource;

    fn scene(first: &str) -> (TempDir, Store, Stored) {
        let folder = tempfile::tempdir().unwrap();
        let seed = folder.path().join("first");
        fs::write(&seed, first).unwrap();
        let store = Store::new(folder.path().join("kept/token"));
        (folder, store, Stored::new(&SecretSource::File(seed)))
    }

    async fn token(store: &Store, first: &Stored) -> Result<String, MintError> {
        store.lock().await?.read(first).map(|token| token.expose_secret().to_owned())
    }

    #[tokio::test]
    async fn the_stored_token_follows_the_first() {
        let (folder, store, first) = scene("one");
        assert_eq!(token(&store, &first).await.as_deref(), Ok("one"));
        store.lock().await.unwrap().write(&"two".into(), &first).await.unwrap();
        assert_eq!(token(&store, &first).await.as_deref(), Ok("two"));
        let path = folder.path().join("kept/token");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(folder.path().join("kept")).unwrap().mode() & 0o777, 0o700);
        assert!(!fs::read_to_string(&path).unwrap().contains("one"));
        let names: Vec<_> =
            fs::read_dir(folder.path().join("kept")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }

    #[tokio::test]
    async fn a_new_first_token_takes_over_and_one_that_is_gone_does_not() {
        let (folder, store, first) = scene("one");
        store.lock().await.unwrap().write(&"two".into(), &first).await.unwrap();
        fs::remove_file(folder.path().join("first")).unwrap();
        assert_eq!(token(&store, &first).await.as_deref(), Ok("two"));
        store.lock().await.unwrap().write(&"three".into(), &first).await.unwrap();
        fs::write(folder.path().join("first"), "one").unwrap();
        assert_eq!(token(&store, &first).await.as_deref(), Ok("three"));
        fs::write(folder.path().join("first"), "another").unwrap();
        assert_eq!(token(&store, &first).await.as_deref(), Ok("another"));
    }

    #[tokio::test]
    async fn what_a_kill_left_behind_is_in_nobodys_way() {
        let (folder, store, first) = scene("one");
        let lock = store.lock().await.unwrap();
        fs::write(folder.path().join("kept/token.next"), "half").unwrap();
        assert_eq!(lock.read(&first).unwrap().expose_secret(), "one");
        lock.write(&"two".into(), &first).await.unwrap();
        assert_eq!(lock.read(&first).unwrap().expose_secret(), "two");
    }

    #[tokio::test]
    async fn a_store_that_cannot_be_read_is_no_ground_to_use_the_first_token() {
        let (folder, store, first) = scene("one");
        for content in ["", "half", "{}", r#"{"version":2,"first":"","refresh_token":"canary"}"#] {
            drop(store.lock().await.unwrap());
            fs::write(folder.path().join("kept/token"), content).unwrap();
            let error = token(&store, &first).await.unwrap_err().to_string();
            assert!(error.contains("remove it") && !error.contains("canary"), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_holds_the_lock_at_a_time() {
        let (_folder, store, _) = scene("one");
        let held = store.lock().await.unwrap();
        assert!(store.lock().await.is_err(), "not for as long as another has it");
        let waiting = store.lock();
        drop(held);
        assert!(waiting.await.is_ok());
    }
}
