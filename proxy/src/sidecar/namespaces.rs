//! The namespaces of a session: made, mapped, and sealed.

use std::fs;
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change, mount_remount,
};
use rustix::process::{getegid, geteuid};

/// Who is inside, as the system outside sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Privilege {
    /// Root, who may write whatever has no other lock than its owner.
    Root,
    /// Anybody else.
    User,
}

impl Privilege {
    /// That of the calling process, which is also that of the command: the maps change no number.
    pub(super) fn own() -> Self {
        if geteuid().is_root() { Self::Root } else { Self::User }
    }
}

/// Leaves for new namespaces: user, network and IPC for the calling process, processes for its children, and mounts.
///
/// # Errors
/// What the system forbids.
pub(super) fn leave() -> Result<(), String> {
    let all = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC;
    unshare(all).map_err(|error| format!("the system does not let namespaces be made (unshare: {error})"))
}

/// Writes the maps of the user namespace of a process that has just left for it. Nobody changes number: root keeps all
/// the users that it has, others themselves.
///
/// # Errors
/// What the system does not let be mapped.
pub(super) fn write_maps(process: u32) -> Result<(), String> {
    let folder = Path::new("/proc").join(process.to_string());
    if Privilege::own() == Privilege::Root && map_everybody(&folder).is_ok() {
        return Ok(());
    }
    let write = |name: &str, text: &str| {
        fs::write(folder.join(name), text)
            .map_err(|error| format!("the system does not let the user namespace be mapped ({name}: {error})"))
    };
    // Without it, leaving a group would be a way around files that a group is shut out of (user_namespaces(7)).
    write("setgroups", "deny")?;
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    write("uid_map", &format!("{user} {user} 1"))?;
    write("gid_map", &format!("{group} {group} 1"))
}

fn map_everybody(folder: &Path) -> std::io::Result<()> {
    for name in ["uid_map", "gid_map"] {
        let own = fs::read_to_string(Path::new("/proc/self").join(name))?;
        fs::write(folder.join(name), identity(&own))?;
    }
    Ok(())
}

/// The map that leaves every number of a map as it is.
fn identity(map: &str) -> String {
    let line = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (inside, _, count) = (fields.next()?, fields.next()?, fields.next()?);
        Some(format!("{inside} {inside} {count}\n"))
    };
    map.lines().filter_map(line).collect()
}

/// Keeps what is mounted from now on to this namespace.
///
/// # Errors
/// What the system says.
pub(super) fn seal_mounts() -> Result<(), String> {
    let all = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", all).map_err(|error| format!("cannot keep mounts apart: {error}"))
}

/// Covers a file with one that is empty and stays so.
///
/// # Errors
/// What the system says.
pub(super) fn cover(path: &Path) -> rustix::io::Result<()> {
    mount_bind("/dev/null", path)
}

/// Puts an empty folder over one, which is as good as any for who runs inside and goes with the namespace.
///
/// # Errors
/// What the system says.
pub(super) fn hide(folder: &Path) -> Result<(), String> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", folder, "tmpfs", flags, Some(c"mode=0700"))
        .map_err(|error| format!("cannot hide {}: {error}", folder.display()))
}

/// Mounts the processes of the calling process's namespace at /proc. Where that is forbidden, as in a container that
/// hides parts of /proc, the old ones stay: their insides are closed to a user namespace below theirs.
pub(super) fn mount_processes(privilege: Privilege) -> Result<(), String> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let _ = mount("proc", "/proc", "proc", flags, None);
    if privilege == Privilege::User {
        return Ok(());
    }
    // The settings of the kernel ask for no more than root's number.
    for part in ["bus", "fs", "irq", "sys", "sysrq-trigger"] {
        let path = Path::new("/proc").join(part);
        if path.exists() {
            // With what is mounted below: what that covers stays covered.
            let closed = mount_bind_recursive(&path, &path).and_then(|()| make_read_only(&path, flags));
            closed.map_err(|error| format!("cannot close {}: {error}", path.display()))?;
        }
    }
    Ok(())
}

/// Makes the mount at `path` read-only; `flags` are those that it has to keep.
///
/// # Errors
/// What the system says.
pub(super) fn make_read_only(path: &Path, flags: MountFlags) -> rustix::io::Result<()> {
    mount_remount(path, MountFlags::BIND | MountFlags::RDONLY | flags, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_turned_into_one_that_changes_nobody() {
        assert_eq!(identity("         0          0 4294967295\n"), "0 0 4294967295\n");
        assert_eq!(identity("0 100000 65536\n65536 7 1\n"), "0 0 65536\n65536 65536 1\n");
    }
}
