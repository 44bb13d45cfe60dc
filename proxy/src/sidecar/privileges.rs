//! Giving up what a command does not need: capabilities, the way to new ones, and the system calls that lead around the
//! network namespace.
//!
//! Network namespaces hold the families of IP, and Unix sockets without a path. Other families of sockets are not held by
//! every kernel: AF_VSOCK reaches the host of a virtual machine. So sockets of other families cannot be made, and neither
//! can an io_uring, whose own way of making sockets no filter of system calls sees. TIOCSTI and TIOCLINUX, which put
//! keystrokes into the terminal that the user's shell reads next, are refused too.

use std::collections::BTreeMap;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

use super::namespaces::Privilege;

/// What a session of root keeps, so that package managers work: all about files, processes and users of the system, none
/// about networks, mounts, devices or the kernel.
const KEPT_BY_ROOT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID);

/// The families of sockets that there are inside: Unix, IPv4, IPv6, netlink.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// What sets the numbers of the x32 calls apart from those of x86-64.
const X32: i64 = 0x4000_0000;
/// `ioctl` among the x32 calls.
const X32_IOCTL: i64 = X32 + 514;

/// Hands the privileges of the keeper down to the program that it starts next, whoever runs it: one who is not root inside
/// would lose them on the way (capabilities(7), "Ambient").
///
/// # Errors
/// What the system says.
pub(super) fn hand_down() -> Result<(), String> {
    let failed = |error: rustix::io::Errno| format!("cannot hand privileges down inside: {error}");
    let needed = CapabilitySet::SYS_ADMIN.union(CapabilitySet::SETPCAP);
    let mut sets = capabilities(None).map_err(failed)?;
    sets.inheritable |= needed;
    set_capabilities(None, sets).map_err(failed)?;
    for capability in needed.iter() {
        configure_capability_in_ambient_set(capability, true).map_err(failed)?;
    }
    Ok(())
}

/// Gives up everything that the command does not need, for good.
///
/// # Errors
/// What the system did not let go of.
pub(super) fn drop_all(privilege: Privilege) -> Result<(), String> {
    let kept = match privilege {
        Privilege::Root => KEPT_BY_ROOT,
        Privilege::User => CapabilitySet::empty(),
    };
    let failed = |what: &'static str| move |error: rustix::io::Errno| format!("cannot {what}: {error}");
    for capability in CapabilitySet::all().difference(kept).iter() {
        match remove_capability_from_bounding_set(capability) {
            // The kernel knows fewer capabilities than this program.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(failed("narrow the bounding set")(error)),
        }
    }
    clear_ambient_capability_set().map_err(failed("clear the ambient capabilities"))?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(failed("give up capabilities"))?;
    set_no_new_privs(true).map_err(failed("forbid new privileges"))?;
    filter_calls()
}

/// Installs the filters of system calls; on a machine for which there is no filter, the rest has to do.
fn filter_calls() -> Result<(), String> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else { return Ok(()) };
    let refused = |error: seccompiler::Error| format!("cannot filter system calls: {error}");
    for (calls, errno) in filters().map_err(refused)? {
        let action = SeccompAction::Errno(errno.unsigned_abs());
        let filter = SeccompFilter::new(calls, SeccompAction::Allow, action, arch);
        let program: BpfProgram = filter.and_then(TryInto::try_into).map_err(|error| refused(error.into()))?;
        apply_filter(&program).map_err(refused)?;
    }
    Ok(())
}

type Calls = BTreeMap<i64, Vec<SeccompRule>>;

fn filters() -> Result<[(Calls, i32); 3], seccompiler::Error> {
    let argument = |index, operator, value: u64| {
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value).map_err(seccompiler::Error::from)
    };
    let other_family: Vec<_> = FAMILIES
        .iter()
        .map(|family| argument(0, SeccompCmpOp::Ne, u64::from(family.unsigned_abs())))
        .collect::<Result<_, _>>()?;
    let sockets = vec![SeccompRule::new(other_family).map_err(seccompiler::Error::from)?];
    let keystrokes: Vec<_> = [0x5412, 0x541C]
        .into_iter()
        .map(|request| SeccompRule::new(vec![argument(1, SeccompCmpOp::Eq, request)?]).map_err(Into::into))
        .collect::<Result<_, seccompiler::Error>>()?;
    Ok([
        (with_x32(libc::SYS_socket, libc::SYS_socket + X32, &sockets), libc::EAFNOSUPPORT),
        (with_x32(libc::SYS_ioctl, X32_IOCTL, &keystrokes), libc::EPERM),
        (with_x32(libc::SYS_io_uring_setup, libc::SYS_io_uring_setup + X32, &[]), libc::ENOSYS),
    ])
}

fn with_x32(number: i64, x32: i64, rules: &[SeccompRule]) -> Calls {
    let numbers = if cfg!(target_arch = "x86_64") { vec![number, x32] } else { vec![number] };
    numbers.into_iter().map(|number| (number, rules.to_vec())).collect()
}
