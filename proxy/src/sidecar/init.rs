//! The first process inside: starts the command, collects orphans, and tells how the command ended.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::thread;

use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};

use super::channel::Channel;
use super::helper::end_with_parent;
use super::namespaces::{self, Privilege};
use super::{News, Order, privileges};

/// Runs a command to its end; `confined` says whose session it is, where it is one.
///
/// When this returns the process ends, and with it everything in its namespace.
///
/// # Errors
/// What keeps the command from being started as it has to be.
pub(super) fn run(channel: &Channel, command: &[OsString], confined: Option<Privilege>) -> Result<(), String> {
    end_with_parent()?;
    if let Some(privilege) = confined {
        namespaces::mount_processes(privilege)?;
        privileges::drop_all(privilege)?;
        // Giving up capabilities takes the death signal back.
        end_with_parent()?;
    }
    let lost = |error: io::Error| format!("the gateway cannot be heard: {error}");
    channel.send(&News::Up, &[]).map_err(lost)?;
    let Some((Order::Go, descriptors)) = channel.receive().map_err(lost)? else { return Ok(()) };
    let listening = channel.again().map_err(lost)?;
    let news = match start(command, descriptors) {
        Ok(command) => {
            thread::spawn(move || obey(&listening, command));
            end_of(command)
        }
        Err(error) => News::NotStarted(error.raw_os_error()),
    };
    channel.send(&news, &[]).map_err(lost)
}

fn start(command: &[OsString], descriptors: Vec<OwnedFd>) -> io::Result<Pid> {
    let (Some((program, arguments)), Some(input)) = (command.split_first(), descriptors.into_iter().next()) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    // The command's mask of signals is that of the thread that starts it, and this process's own blocks all of them.
    let start = || {
        SigSet::empty().thread_set_mask()?;
        Command::new(program).args(arguments).stdin(Stdio::from(input)).spawn()
    };
    let child = thread::scope(|scope| scope.spawn(start).join()).map_err(|_| io::ErrorKind::Other)??;
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(|| io::ErrorKind::Other.into())
}

/// Does what the gateway says, and ends everything when it is gone.
fn obey(channel: &Channel, command: Pid) {
    while let Ok(Some((order, _))) = channel.receive::<Order>() {
        if let Order::Signal(number) = order
            && let Ok(signal) = nix::sys::signal::Signal::try_from(number)
        {
            // A command that has just ended needs no signal.
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(command.as_raw_nonzero().get()), signal);
        }
    }
    // In a namespace the end of this process takes the command along; elsewhere it has to be asked.
    let _ = kill_process(command, Signal::KILL);
    std::process::exit(1);
}

/// Waits for the command, and for orphans as they end.
fn end_of(command: Pid) -> News {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == command => {
                if let Some(news) = told(status) {
                    return news;
                }
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return News::Failed(format!("the command is lost: {error}")),
        }
    }
}

fn told(status: WaitStatus) -> Option<News> {
    let exited = status.exit_status().map(News::Exited);
    exited.or_else(|| status.terminating_signal().map(News::Killed))
}
