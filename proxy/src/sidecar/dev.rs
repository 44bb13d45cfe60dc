//! What root could reach the system by, beside the network: devices, and file systems that are knobs of the kernel.
//!
//! Root in a user namespace whose numbers are those outside still owns root's files. Most of what matters asks for a
//! capability over the outer namespace too; raw disks and the files of sysfs and the like ask for the owner alone. So
//! root's sessions get a /dev of their own with harmless devices only, and those file systems read-only.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, mount, move_mount, open_tree};

use super::namespaces::make_read_only;

/// The devices that stay: they hold nothing that anybody else has.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// The folders that stay: terminals, and shared memory.
const FOLDERS: [&str; 2] = ["pts", "shm"];
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
/// File systems whose files are settings and handles of the kernel.
const KNOBS: [&str; 12] = [
    "sysfs",
    "cgroup",
    "cgroup2",
    "debugfs",
    "tracefs",
    "securityfs",
    "pstore",
    "bpf",
    "configfs",
    "efivarfs",
    "fusectl",
    "binfmt_misc",
];

/// Replaces /dev, and makes the knobs read-only.
///
/// # Errors
/// What could not be closed.
pub(super) fn close() -> Result<(), String> {
    replace_devices().map_err(|error| format!("cannot make a /dev of its own: {error}"))?;
    let mounts = fs::read("/proc/self/mountinfo").map_err(|error| format!("cannot read the mounts: {error}"))?;
    for (path, flags) in knobs(&mounts) {
        match make_read_only(&path, flags) {
            // Covered by another mount, so out of reach.
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(format!("cannot make {} read-only: {error}", path.display())),
        }
    }
    Ok(())
}

fn replace_devices() -> std::io::Result<()> {
    let dev = Path::new("/dev");
    let kept = |name: &'static str| -> Option<(&'static str, OwnedFd)> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        open_tree(CWD, dev.join(name), flags).ok().map(|tree| (name, tree))
    };
    let devices: Vec<_> = DEVICES.into_iter().filter_map(kept).collect();
    let folders: Vec<_> = FOLDERS.into_iter().filter_map(kept).collect();
    mount("tmpfs", dev, "tmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, Some(c"mode=0755,size=64k"))?;
    for (name, tree) in &devices {
        File::create(dev.join(name))?;
        attach(tree, &dev.join(name))?;
    }
    for (name, tree) in &folders {
        fs::create_dir(dev.join(name))?;
        attach(tree, &dev.join(name))?;
    }
    for (name, target) in LINKS {
        symlink(target, dev.join(name))?;
    }
    Ok(())
}

fn attach(tree: &OwnedFd, path: &Path) -> std::io::Result<()> {
    Ok(move_mount(tree, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// The mounted knobs, with the flags that a remount has to keep; from a mountinfo file (proc_pid_mountinfo(5)).
fn knobs(mountinfo: &[u8]) -> Vec<(PathBuf, MountFlags)> {
    let knob = |line: &[u8]| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let (path, options) = (fields.get(4)?, std::str::from_utf8(fields.get(5)?).ok()?);
        let separator = fields.iter().position(|field| *field == b"-")?;
        let kind = std::str::from_utf8(fields.get(separator + 1)?).ok()?;
        KNOBS.contains(&kind).then(|| (unescaped(path), flags(options)))
    };
    mountinfo.split(|byte| *byte == b'\n').filter_map(knob).collect()
}

fn flags(options: &str) -> MountFlags {
    options.split(',').fold(MountFlags::empty(), |flags, option| {
        flags
            | match option {
                "nosuid" => MountFlags::NOSUID,
                "nodev" => MountFlags::NODEV,
                "noexec" => MountFlags::NOEXEC,
                "noatime" => MountFlags::NOATIME,
                "nodiratime" => MountFlags::NODIRATIME,
                "relatime" => MountFlags::RELATIME,
                _ => MountFlags::empty(),
            }
    })
}

/// Space, tab, line end and backslash stand as `\040` and so on.
fn unescaped(path: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_are_found_by_the_kind_of_their_file_system() {
        let mountinfo = b"22 27 0:21 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw\n\
            23 27 0:22 / /proc rw - proc proc rw\n\
            30 22 0:26 / /sys/fs/a\\040b rw,noatime - cgroup2 cgroup2 rw,nsdelegate\n\
            broken\n";
        let found = knobs(mountinfo);
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RELATIME;
        assert_eq!(found, [(PathBuf::from("/sys"), flags), (PathBuf::from("/sys/fs/a b"), MountFlags::NOATIME)]);
    }
}
