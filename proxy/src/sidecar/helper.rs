//! The helpers' side: what this program does when it is told to be one.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use nix::sys::signal::SigSet;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::set_name;

use super::channel::Channel;
use super::namespaces::{self, Privilege};
use super::netlink::Netlink;
use super::{HELPER, News, Order, Plan, Sockets, dev, init, masks, privileges};

/// The stage in which namespaces are made.
pub(super) const KEEPER: &str = "keeper";
/// The stage that starts the command inside of them.
pub(super) const INIT: &str = "init";
/// The stage that starts the command where there are none.
pub(super) const PLAIN: &str = "plain";

/// Is a helper: of the stage that the first argument names, for the command that the others are. Its standard input is
/// the channel to the gateway.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) {
    let mut arguments = arguments.into_iter();
    let stage = arguments.next().unwrap_or_default();
    let command: Vec<OsString> = arguments.collect();
    let _ = set_name(c"exeat");
    close_inherited();
    let Ok(channel) = io::stdin().as_fd().try_clone_to_owned().map(Channel::of) else { return };
    // Signals of the terminal are for the command.
    let _ = SigSet::all().thread_block();
    let failed = match stage.to_str() {
        Some(KEEPER) => keep(&channel, &command).err(),
        Some(INIT) => init::run(&channel, &command, Some(Privilege::own())).err(),
        Some(PLAIN) => init::run(&channel, &command, None).err(),
        _ => None,
    };
    if let Some(why) = failed {
        // A gateway that is gone does not need to know.
        let _ = channel.send(&News::Failed(why), &[]);
    }
}

/// Closes every descriptor but the standard ones: what a shell has left open is no part of a session.
fn close_inherited() {
    let numbers = fs::read_dir("/proc/self/fd").map(|entries| {
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
        entries.flatten().filter_map(number).collect::<Vec<_>>()
    });
    for number in numbers.unwrap_or_else(|_| (3..1024).collect()).into_iter().filter(|number| *number > 2) {
        // The folder that was read is among them, and closed already.
        let _ = nix::unistd::close(number);
    }
}

/// Has this process end with the one that started it.
pub(super) fn end_with_parent() -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("cannot be tied to the gateway: {error}"))
}

fn keep(channel: &Channel, command: &[OsString]) -> Result<(), String> {
    let lost = |error: io::Error| format!("the gateway cannot be heard: {error}");
    let Some((Order::Confine(plan), _)) = channel.receive().map_err(lost)? else { return Ok(()) };
    let privilege = Privilege::own();
    let sockets = masks::unix_sockets(&plan.sockets);
    namespaces::leave()?;
    channel.send(&News::Unshared, &[]).map_err(lost)?;
    let Some((Order::Mapped, _)) = channel.receive().map_err(lost)? else { return Ok(()) };
    // Later than the change of namespaces, which takes it back.
    end_with_parent()?;

    namespaces::seal_mounts()?;
    masks::cover_all(sockets.iter().chain(&plan.secrets))?;
    if let Some(folder) = &plan.state {
        namespaces::hide(folder)?;
    }
    if privilege == Privilege::Root {
        dev::close()?;
    }
    listen(channel, &plan)?;

    privileges::hand_down()?;
    let socket = channel.as_fd().try_clone_to_owned().map_err(lost)?;
    let mut init = Command::new("/proc/self/exe");
    init.arg0("exeat").arg(HELPER).arg(INIT).args(command.iter().map(OsStr::new)).stdin(Stdio::from(socket));
    let mut child = init.spawn().map_err(|error| format!("cannot start a process inside: {error}"))?;
    let _ = child.wait();
    Ok(())
}

/// Makes the network inside and passes its sockets on. The keeper itself keeps none of them.
fn listen(channel: &Channel, plan: &Plan) -> Result<(), String> {
    let failed = |what: &'static str| move |error: io::Error| format!("cannot {what}: {error}");
    let mut netlink = Netlink::open().map_err(failed("speak to the network inside"))?;
    netlink.bring_loopback_up().map_err(failed("bring loopback up inside"))?;
    netlink.make_ipv4_local().map_err(failed("make addresses lead back inside"))?;
    // Without IPv6 there is no route for it either, so that a connection to such an address fails by itself.
    let ipv6 = netlink.make_ipv6_local().is_ok();
    if ipv6 {
        for server in name_servers(&fs::read_to_string("/etc/resolv.conf").unwrap_or_default()) {
            // One that is there already, as ::1 is, needs no more.
            let _ = netlink.add_ipv6(server);
        }
    }
    let sockets = Sockets::open(plan, ipv6)?;
    channel
        .send(&News::Listening { mcp: sockets.mcp.is_some(), ipv6 }, &sockets.descriptors())
        .map_err(failed("pass the sockets on"))
}

/// The name servers of a resolv.conf(5) that are reached over IPv6.
fn name_servers(settings: &str) -> Vec<Ipv6Addr> {
    let server = |line: &str| line.trim().strip_prefix("nameserver")?.trim().parse().ok();
    settings.lines().filter_map(server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_over_ipv6_are_found() {
        let settings = "# nameserver 2001:db8::1\nnameserver 192.0.2.1\n nameserver\t2001:db8::2 \nsearch a.test\n";
        assert_eq!(name_servers(settings), ["2001:db8::2".parse::<Ipv6Addr>().unwrap()]);
    }
}
