//! The gateway's side of a session.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};

use super::channel::Channel;
use super::helper::{KEEPER, PLAIN};
use super::{HELPER, News, Order, Plan, Sockets, namespaces};

/// What is to be run.
#[derive(Debug)]
pub(crate) struct Command {
    /// The program and its arguments.
    pub(crate) line: Vec<OsString>,
    /// Its whole environment.
    pub(crate) environment: Vec<(OsString, OsString)>,
}

/// A session that is set up and awaits its beginning. What runs in it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Session {
    helper: Child,
    channel: Channel,
}

/// Why a session cannot be confined.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unconfined(String);

impl From<io::Error> for Unconfined {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) enum End {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// It did not begin.
    NotStarted(io::Error),
    /// Unknown: its helper was ended from outside.
    Lost,
}

impl Session {
    /// Sets up a confined session. To be called while this process has one thread, which has to live on: the helpers end
    /// with it.
    ///
    /// # Errors
    /// Why there is to be none on this system.
    pub(crate) fn confined(command: &Command, plan: &Plan) -> Result<(Self, Sockets), Unconfined> {
        let session = Self::start(KEEPER, command)?;
        session.channel.send(&Order::Confine(plan.clone()), &[])?;
        let mut sockets = None;
        loop {
            match session.channel.receive()? {
                Some((News::Unshared, _)) => {
                    namespaces::write_maps(session.helper.id()).map_err(Unconfined)?;
                    session.channel.send(&Order::Mapped, &[])?;
                }
                Some((News::Listening { mcp, ipv6 }, descriptors)) => {
                    sockets = Sockets::from_descriptors(descriptors, mcp, ipv6);
                }
                Some((News::Up, _)) => {
                    let sockets =
                        sockets.ok_or_else(|| Unconfined("no sockets came out of the namespace".to_owned()))?;
                    return Ok((session, sockets));
                }
                Some((News::Failed(why), _)) => return Err(Unconfined(why)),
                Some(_) | None => return Err(Unconfined("the helper ended before it was ready".to_owned())),
            }
        }
    }

    /// Sets up a session that is not confined.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn plain(command: &Command) -> io::Result<Self> {
        let session = Self::start(PLAIN, command)?;
        match session.channel.receive()? {
            Some((News::Up, _)) => Ok(session),
            Some((News::Failed(why), _)) => Err(io::Error::other(why)),
            _ => Err(io::Error::other("the helper ended before it was ready")),
        }
    }

    fn start(stage: &str, command: &Command) -> io::Result<Self> {
        let (channel, other) = Channel::pair()?;
        let mut helper = std::process::Command::new("/proc/self/exe");
        helper.arg0("exeat").arg(HELPER).arg(stage).args(&command.line);
        helper.env_clear().envs(command.environment.iter().map(|(name, value)| (name, value)));
        helper.stdin(Stdio::from(other));
        Ok(Self { helper: helper.spawn()?, channel })
    }

    /// Lets the command begin, with this process's standard input.
    ///
    /// # Errors
    /// The session is over already.
    pub(crate) fn begin(&self) -> io::Result<()> {
        self.channel.send(&Order::Go, &[io::stdin().as_fd()])
    }

    /// A way to send the command signals.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn signals(&self) -> io::Result<Signals> {
        self.channel.again().map(Signals)
    }

    /// Waits until the command, and in a confined session everything that it started, has ended.
    pub(crate) fn ended(mut self) -> End {
        let news = self.channel.receive();
        // The channel tells of the command; the rest of a namespace has ended when the helper has.
        let _ = self.helper.wait();
        match news {
            Ok(Some((News::Exited(code), _))) => End::Exited(code),
            Ok(Some((News::Killed(signal), _))) => End::Killed(signal),
            Ok(Some((News::NotStarted(error), _))) => {
                End::NotStarted(error.map_or_else(|| io::Error::other("unknown"), io::Error::from_raw_os_error))
            }
            Ok(Some((News::Failed(why), _))) => End::NotStarted(io::Error::other(why)),
            _ => End::Lost,
        }
    }
}

/// Sends the command of a session signals.
#[derive(Debug)]
pub(crate) struct Signals(Channel);

impl Signals {
    /// Sends the signal of this number.
    pub(crate) fn send(&self, number: i32) {
        // A command that has ended needs none.
        let _ = self.0.send(&Order::Signal(number), &[]);
    }
}
