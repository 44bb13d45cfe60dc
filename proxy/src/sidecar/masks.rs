//! What is taken out of the command's sight: the secrets that the gateway holds for it, and the Unix sockets by which
//! programs outside would act for it.
//!
//! A network namespace holds Unix sockets without a path; one with a path is reached through the file system by whoever
//! may write it, and behind some of them stand programs with a network: a container engine, the system's resolver, a
//! log, an agent of keys. So each that exists when the session begins is covered.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use super::namespaces::cover;

/// Where sockets stand that the list of the kernel does not name: those of other network namespaces, which a container
/// is lent, and those that were renamed. With how deep they are looked for.
const FOLDERS: [(&str, usize); 4] = [("/run", 6), ("/tmp", 4), ("/var/tmp", 3), ("/dev/shm", 2)];
/// Variables that name such folders.
const VARIABLES: [(&str, usize); 2] = [("XDG_RUNTIME_DIR", 6), ("TMPDIR", 4)];
/// How many entries of folders are looked at.
const MAX_ENTRIES: usize = 65_536;

/// The paths of Unix sockets there are, except those that `allowed` names.
pub(super) fn unix_sockets(allowed: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut found: BTreeSet<PathBuf> = fs::read("/proc/net/unix").map(|list| listed(&list)).unwrap_or_default();
    let mut left = MAX_ENTRIES;
    let variables =
        VARIABLES.into_iter().filter_map(|(name, depth)| Some((PathBuf::from(std::env::var_os(name)?), depth)));
    for (folder, depth) in FOLDERS.map(|(folder, depth)| (PathBuf::from(folder), depth)).into_iter().chain(variables) {
        walk(&folder, depth, &mut left, &mut found);
    }
    let allowed: BTreeSet<PathBuf> = allowed.iter().filter_map(|path| path.canonicalize().ok()).collect();
    // The name by which a socket was bound may be one of several; a cover is laid on the file itself.
    found.iter().filter_map(|path| path.canonicalize().ok()).filter(|path| !allowed.contains(path)).collect()
}

/// The paths in the kernel's list of Unix sockets: seven columns, and then the path.
fn listed(list: &[u8]) -> BTreeSet<PathBuf> {
    let path = |line: &[u8]| {
        let mut rest = line;
        for _ in 0..7 {
            rest = rest.trim_ascii_start();
            let end = rest.iter().position(|byte| *byte == b' ')?;
            rest = rest.get(end..)?;
        }
        let path = rest.get(1..)?;
        path.starts_with(b"/").then(|| PathBuf::from(OsStr::from_bytes(path)))
    };
    list.split(|byte| *byte == b'\n').filter_map(path).collect()
}

fn walk(folder: &Path, depth: usize, left: &mut usize, found: &mut BTreeSet<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let Some(less) = left.checked_sub(1) else { return };
        *left = less;
        match entry.file_type() {
            Ok(kind) if kind.is_socket() => {
                found.insert(entry.path());
            }
            Ok(kind) if kind.is_dir() && depth > 1 => walk(&entry.path(), depth - 1, left, found),
            _ => {}
        }
    }
}

/// Covers sockets and secrets.
///
/// # Errors
/// One that is there and stays uncovered.
pub(super) fn cover_all<'p>(paths: impl Iterator<Item = &'p PathBuf>) -> Result<(), String> {
    for path in paths {
        match cover(path) {
            // Gone meanwhile, or out of the command's reach as well.
            Ok(()) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::ACCESS | rustix::io::Errno::NOTDIR) => {}
            Err(error) => return Err(format!("cannot cover {}: {error}", path.display())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn paths_are_read_from_the_kernels_list() {
        let list = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 12345 /run/with space.sock\n\
            0000000000000000: 00000002 00000000 00010000 0001 01    17 /run/a\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 12346 @abstract\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 12347\n";
        let found: Vec<PathBuf> = listed(list).into_iter().collect();
        assert_eq!(found, [PathBuf::from("/run/a"), PathBuf::from("/run/with space.sock")]);
    }

    #[test]
    fn a_socket_is_found_by_every_name_but_not_where_it_is_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let (bound, renamed) = (folder.path().join("bound"), folder.path().join("renamed"));
        let _listener = UnixListener::bind(&bound).unwrap();
        fs::rename(&bound, &renamed).unwrap();
        let mut found = BTreeSet::new();
        walk(folder.path(), 1, &mut 10, &mut found);
        assert_eq!(found.iter().collect::<Vec<_>>(), [&renamed]);
        assert!(!unix_sockets(std::slice::from_ref(&renamed)).contains(&renamed));
    }
}
