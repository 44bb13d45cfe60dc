//! A look at the files every now and then, and a reload when they have changed.
//!
//! Files are told apart by what stat(2) says of what a path leads to, so that a link that is led elsewhere counts, as
//! Kubernetes does with those of a ConfigMap. A change has to have settled: it is acted on when two looks in a row found
//! the same, so that a file that is being written is not read half.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::Sessions;

/// How often the files are looked at.
const EVERY: Duration = Duration::from_millis(500);

/// What tells a state of a file from the one before: device, inode, size, and the times of the last changes; none where
/// there is no file.
type Stamp = Option<(u64, u64, u64, (i64, i64), (i64, i64))>;

/// Watches until the gateway shuts down.
pub(crate) async fn watch(sessions: Arc<Sessions>) {
    let mut drain = sessions.base.drain.clone();
    let mut every = interval(EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let Some(mut known) = look(&sessions).await else { return };
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
            known = now;
            settling = None;
            // A config that names other files than before has them looked at from here on.
            let Some(after) = look(&sessions).await else { return };
            if !after.iter().map(|(path, _)| path).eq(known.iter().map(|(path, _)| path)) {
                known = after;
            }
        } else {
            settling = Some(now);
        }
    }
}

async fn look(sessions: &Arc<Sessions>) -> Option<Vec<(PathBuf, Stamp)>> {
    let sessions = Arc::clone(sessions);
    let stamps = move || {
        let files = sessions.files().into_iter();
        files.map(|path| (stamp(&path), path)).map(|(stamp, path)| (path, stamp)).collect()
    };
    spawn_blocking(stamps).await.ok()
}

fn stamp(path: &std::path::Path) -> Stamp {
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
