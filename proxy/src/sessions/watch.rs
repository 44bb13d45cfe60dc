//! A look at the files every now and then, and a reload when they have changed.
//!
//! Files are told apart by what stat(2) says of what a path leads to, so that a link that is led elsewhere counts, as
//! Kubernetes does with those of a ConfigMap. A change has to have settled: it is acted on when two looks in a row found
//! the same, so that a file that is being written is not read half.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::Sessions;
use crate::config::{Config, SecretSource};
use crate::load::Inputs;

/// A manifest that is no file.
const STANDARD_INPUT: &str = "-";
/// How often the files are looked at.
const EVERY: Duration = Duration::from_millis(500);

/// What tells a state of a file from the one before: device, inode, size, and the times of the last changes; none where
/// there is no file.
type Stamp = Option<(u64, u64, u64, (i64, i64), (i64, i64))>;

/// The files that are read at start and at each reload, as they were at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen(Vec<(PathBuf, Stamp)>);

impl Seen {
    /// Looks at the files that `inputs` and `config` name.
    pub(crate) fn now(config: &Config, inputs: &Inputs) -> Self {
        let Config { policy, listen, upstream, .. } = config;
        let manifests = if inputs.manifests.is_empty() { &policy.manifests } else { &inputs.manifests };
        let tls = listen.tls.iter().flat_map(|tls| [Some(&tls.cert), Some(&tls.key), tls.client_ca.as_ref()]).flatten();
        let accounts = listen.auth.users.values().chain(listen.auth.tokens.values());
        let accounts = accounts.filter_map(SecretSource::file);
        let named = manifests.iter().chain(&inputs.config).chain(tls).chain(&upstream.ca).chain(accounts);
        let files = named.filter(|path| **path != Path::new(STANDARD_INPUT));
        Self(files.map(|path| (path.clone(), stamp(path))).collect())
    }

    /// The same, with files that were not looked at before.
    fn and(mut self, other: Self) -> Self {
        let Self(now) = other;
        let before = std::mem::take(&mut self.0);
        let known = |path: &PathBuf| before.iter().find(|(known, _)| known == path).map(|(_, stamp)| *stamp);
        Self(
            now.into_iter()
                .map(|(path, stamp)| {
                    let stamp = known(&path).unwrap_or(stamp);
                    (path, stamp)
                })
                .collect(),
        )
    }
}

/// Watches until the gateway shuts down. `known` is how the files were when they were about to be read.
pub(crate) async fn watch(sessions: Arc<Sessions>, mut known: Seen) {
    let mut drain = sessions.base.drain.clone();
    let mut every = interval(EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut settling = None;
    loop {
        tokio::select! {
            _ = every.tick() => {}
            () = drain.begun() => return,
        }
        let Some(now) = look(&sessions).await else { return };
        if now == known {
            settling = None;
        } else if settling.as_ref() == Some(&now) {
            tracing::info!("the files have changed");
            let reloading = Arc::clone(&sessions);
            // What came of it has been told.
            let _ = spawn_blocking(move || reloading.reload().map(drop)).await;
            settling = None;
            // A config that names other files than before has them looked at from here on.
            let Some(after) = look(&sessions).await else { return };
            known = now.and(after);
        } else {
            settling = Some(now);
        }
    }
}

async fn look(sessions: &Arc<Sessions>) -> Option<Seen> {
    let sessions = Arc::clone(sessions);
    spawn_blocking(move || Seen::now(&sessions.base.current.get().config, &sessions.files)).await.ok()
}

fn stamp(path: &Path) -> Stamp {
    let found = fs::metadata(path).ok()?;
    let (modified, changed) = ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()));
    Some((found.dev(), found.ino(), found.size(), modified, changed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_and_a_link_to_another_are_other_than_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (version, text) in [("v1", "one"), ("v2", "two")] {
            fs::create_dir(path(version)).unwrap();
            fs::write(path(version).join("agent.toml"), text).unwrap();
        }
        let link = |to: &str| {
            std::os::unix::fs::symlink(path(to), path("..next")).unwrap();
            fs::rename(path("..next"), path("..data")).unwrap();
        };
        link("v1");
        std::os::unix::fs::symlink("..data/agent.toml", path("agent.toml")).unwrap();
        let first = stamp(&path("agent.toml"));
        assert!(first.is_some() && first == stamp(&path("agent.toml")));
        link("v2");
        let second = stamp(&path("agent.toml"));
        assert_ne!(first, second);
        fs::write(path("v2").join("agent.toml"), "three").unwrap();
        assert_ne!(stamp(&path("agent.toml")), second);
        fs::remove_file(path("..data")).unwrap();
        assert_eq!(stamp(&path("agent.toml")), None);
    }
}
