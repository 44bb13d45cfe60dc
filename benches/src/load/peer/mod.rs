//! The proxies that are measured: how each is set up for a job, started and stopped.
//!
//! All of them get the same: one CPU, a log of every request in a file, and a list of permitted hosts. What a peer
//! has no equal for is left out rather than measured with something missing.

mod envoy;
mod exeat;
mod haproxy;
mod mitmproxy;
mod squid;
mod tinyproxy;

use std::ffi::OsString;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use exeat_tests::certs::TestCa;
use rustix::process::{Pid, Signal, kill_process};

use super::floor;
use super::system::{LOAD_CPU, PROXY_CPU, Tree, pin};
use super::words::Opening;

/// The name of the origin, for proxies that can be told its address.
pub(crate) const HOST: &str = "origin.test";
/// How long a proxy may take to end after it was asked to.
const STOP_TIME: Duration = Duration::from_secs(3);

/// The name of one of the hosts that are asked for once, all of which lie below [`HOST`].
pub(crate) fn fresh_host(number: usize) -> String {
    format!("h{number}.{HOST}")
}

/// A way to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Peer {
    /// What all this is about.
    Exeat,
    /// The same with ten rules, beside itself with very many.
    ExeatFew,
    /// Squid, with ssl-bump where TLS is to be opened.
    Squid,
    /// HAProxy with a fixed server, as it is no forward proxy.
    Haproxy,
    /// Tinyproxy.
    Tinyproxy,
    /// Envoy with one worker; where TLS is to be opened, with one certificate and the origin as its one server.
    Envoy,
    /// Mitmproxy, as mitmdump.
    Mitmproxy,
    /// Floor: tokio's copy.
    Relay,
    /// Floor: splice(2).
    Splice,
    /// Floor: rustls on both sides.
    TlsRelay,
    /// Floor: rustls on both sides, and a configuration and a certificate for each host.
    HostRelay,
    /// No proxy at all.
    Direct,
}

/// What a proxy has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Job {
    /// Forward plain requests.
    Forward,
    /// Open tunnels and look at nothing in them.
    Tunnel,
    /// Open TLS and judge each request by its path.
    Intercept,
    /// The same for HTTP/2.
    InterceptH2,
    /// The same for hosts of which each is asked for once.
    InterceptHosts,
    /// Open TLS, judge each request by its path and the MCP message in it, and put a credential on.
    InterceptCalls,
}

impl Job {
    /// Whether TLS is opened.
    pub(crate) const fn opens_tls(self) -> bool {
        match self {
            Self::Forward | Self::Tunnel => false,
            Self::Intercept | Self::InterceptH2 | Self::InterceptHosts | Self::InterceptCalls => true,
        }
    }
}

impl Peer {
    /// Every peer, in the order of the report.
    pub(crate) const ALL: [Self; 12] = [
        Self::Exeat,
        Self::ExeatFew,
        Self::Squid,
        Self::Haproxy,
        Self::Tinyproxy,
        Self::Envoy,
        Self::Mitmproxy,
        Self::Relay,
        Self::Splice,
        Self::TlsRelay,
        Self::HostRelay,
        Self::Direct,
    ];

    /// The name in the report.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Exeat => "exeat",
            Self::ExeatFew => "exeat-few",
            Self::Squid => "squid",
            Self::Haproxy => "haproxy",
            Self::Tinyproxy => "tinyproxy",
            Self::Envoy => "envoy",
            Self::Mitmproxy => "mitmproxy",
            Self::Relay => "relay",
            Self::Splice => "splice",
            Self::TlsRelay => "tls-relay",
            Self::HostRelay => "host-relay",
            Self::Direct => "direct",
        }
    }

    /// Whether it can do a job.
    pub(crate) const fn does(self, job: Job) -> bool {
        match self {
            Self::Exeat | Self::ExeatFew => true,
            Self::Squid => !matches!(job, Job::InterceptH2 | Job::InterceptCalls),
            Self::Envoy => !matches!(job, Job::InterceptHosts | Job::InterceptCalls),
            Self::Mitmproxy => !matches!(job, Job::InterceptCalls),
            Self::Tinyproxy | Self::Relay => matches!(job, Job::Forward | Job::Tunnel),
            Self::Haproxy | Self::Direct => matches!(job, Job::Forward),
            Self::Splice => matches!(job, Job::Tunnel),
            Self::TlsRelay => matches!(job, Job::Intercept | Job::InterceptCalls),
            Self::HostRelay => matches!(job, Job::InterceptHosts),
        }
    }

    /// Whether it shows certificates of the authority that it is given.
    pub(crate) const fn signs(self) -> bool {
        matches!(self, Self::Exeat | Self::ExeatFew | Self::Squid | Self::Envoy | Self::Mitmproxy)
    }

    /// Whether it judges requests, so that rules and starting are worth a measurement.
    pub(crate) const fn has_policy(self) -> bool {
        match self {
            Self::Exeat | Self::ExeatFew | Self::Squid | Self::Haproxy | Self::Tinyproxy => true,
            Self::Envoy | Self::Mitmproxy => true,
            Self::Relay | Self::Splice | Self::TlsRelay | Self::HostRelay | Self::Direct => false,
        }
    }

    /// What clients have it dial in the place of a name, as it resolves names with the system alone.
    pub(crate) const fn dialled(self) -> Option<&'static str> {
        match self {
            Self::Tinyproxy | Self::Envoy | Self::Mitmproxy => Some("127.0.0.1"),
            Self::Exeat | Self::ExeatFew | Self::Squid | Self::Haproxy => None,
            Self::Relay | Self::Splice | Self::TlsRelay | Self::HostRelay | Self::Direct => None,
        }
    }

    /// How clients get to the origin through it.
    pub(crate) fn opening(self, job: Job) -> Opening {
        match (job, self) {
            (Job::Forward, _) => Opening::Absolute,
            (Job::Tunnel, _) => Opening::Connect,
            // It opens TLS on a port and not in a tunnel.
            (Job::Intercept | Job::InterceptH2 | Job::InterceptHosts | Job::InterceptCalls, Self::Envoy) => {
                Opening::Straight
            }
            (Job::Intercept | Job::InterceptH2 | Job::InterceptHosts | Job::InterceptCalls, _) => Opening::Connect,
        }
    }

    /// The names of its program, if it is one that systems have.
    const fn commands(self) -> &'static [&'static str] {
        match self {
            Self::Squid => &["squid"],
            Self::Haproxy => &["haproxy"],
            Self::Tinyproxy => &["tinyproxy"],
            Self::Envoy => &["envoy"],
            Self::Mitmproxy => &["mitmdump"],
            Self::Exeat | Self::ExeatFew => &[],
            Self::Relay | Self::Splice | Self::TlsRelay | Self::HostRelay | Self::Direct => &[],
        }
    }

    /// Its program, or none where it is not installed.
    pub(crate) fn program(self, exeat: &Path) -> Option<PathBuf> {
        match self {
            Self::Exeat | Self::ExeatFew => exeat.is_file().then(|| exeat.to_owned()),
            Self::Relay | Self::Splice | Self::TlsRelay | Self::HostRelay | Self::Direct => {
                std::env::current_exe().ok()
            }
            Self::Squid | Self::Haproxy | Self::Tinyproxy | Self::Envoy | Self::Mitmproxy => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                // Debian's servers are not where everybody's PATH leads.
                let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/bin".into()]);
                let candidates = folders.flat_map(|folder| self.commands().iter().map(move |name| folder.join(name)));
                candidates.into_iter().find(|path| path.is_file())
            }
        }
    }

    /// The first line of what its program says of its version.
    pub(crate) fn version(self, program: &Path) -> Option<String> {
        let flag = match self {
            Self::Exeat | Self::Envoy | Self::Mitmproxy => "--version",
            Self::Squid | Self::Haproxy | Self::Tinyproxy => "-v",
            Self::ExeatFew => return None,
            Self::Relay | Self::Splice | Self::TlsRelay | Self::HostRelay | Self::Direct => return None,
        };
        let output = Command::new(program).arg(flag).output().ok()?;
        // Envoy says where it is, too.
        let text = String::from_utf8_lossy(&output.stdout).replace(&*program.to_string_lossy(), "");
        text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
    }
}

/// The authorities of a run.
pub(crate) struct Authorities {
    /// Signs what intercepting proxies show.
    pub(crate) proxy: TestCa,
    /// Signs what the origin shows.
    pub(crate) origin: TestCa,
}

/// One proxy's task.
pub(crate) struct Task<'a> {
    /// A folder for its files.
    pub(crate) dir: &'a Path,
    /// Where it listens.
    pub(crate) listen: SocketAddr,
    /// Where exeat's admin listener is.
    pub(crate) admin: SocketAddr,
    /// Where it finds the origin.
    pub(crate) origin: SocketAddr,
    /// What it does.
    pub(crate) job: Job,
    /// How many hosts its rules permit, the origin's among them.
    pub(crate) rules: usize,
    /// How many MCP servers it knows, the origin's among them, where calls are judged.
    pub(crate) servers: usize,
    /// How many hosts there are that are asked for once.
    pub(crate) names: usize,
    /// The authorities.
    pub(crate) authorities: &'a Authorities,
}

impl Task<'_> {
    /// The permitted hosts, `own` the last of them.
    fn hosts(&self, own: &str) -> impl Iterator<Item = String> {
        let others = self.rules.saturating_sub(1);
        let name = |number| format!("host-{number}.zone-{}.example", number % 977);
        (0..others).map(name).chain([own.to_owned()])
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// How a proxy is started, as often as needed.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    program: PathBuf,
    args: Vec<OsString>,
    log: PathBuf,
    /// Where it will listen.
    pub(crate) address: SocketAddr,
}

impl Launch {
    /// Sets a proxy up for a task. None for no proxy.
    pub(crate) fn prepare(peer: Peer, program: PathBuf, task: &Task<'_>) -> anyhow::Result<Option<Self>> {
        let args = match peer {
            Peer::Exeat | Peer::ExeatFew => exeat::prepare(task)?,
            Peer::Squid => squid::prepare(task)?,
            Peer::Haproxy => haproxy::prepare(task)?,
            Peer::Tinyproxy => tinyproxy::prepare(task)?,
            Peer::Envoy => envoy::prepare(task)?,
            Peer::Mitmproxy => mitmproxy::prepare(task)?,
            Peer::Relay if task.job == Job::Forward => relay(floor::Kind::Raw, task),
            Peer::Relay => relay(floor::Kind::Copy, task),
            Peer::Splice => relay(floor::Kind::Splice, task),
            Peer::TlsRelay => relay(floor::Kind::Tls, task),
            Peer::HostRelay => relay(floor::Kind::Hosts, task),
            Peer::Direct => return Ok(None),
        };
        Ok(Some(Self { program, args, log: task.dir.join("output"), address: task.listen }))
    }

    /// Starts it on its CPU.
    pub(crate) fn start(&self) -> anyhow::Result<Process> {
        let log = File::create(&self.log)?;
        let mut command = Command::new(&self.program);
        command.args(&self.args).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // A child begins on the CPUs of the thread that started it.
        pin(PROXY_CPU)?;
        let child = command.spawn().with_context(|| format!("cannot start {}", self.program.display()));
        pin(LOAD_CPU)?;
        Ok(Process { child: child?, log: self.log.clone() })
    }
}

fn relay(kind: floor::Kind, task: &Task<'_>) -> Vec<OsString> {
    let name = match kind {
        floor::Kind::Raw => "raw",
        floor::Kind::Copy => "copy",
        floor::Kind::Splice => "splice",
        floor::Kind::Tls => "tls",
        floor::Kind::Hosts => "hosts",
    };
    let (listen, origin) = (task.listen.to_string(), task.origin.to_string());
    let mut args: Vec<OsString> = ["floor", name, &listen, &origin].map(OsString::from).into();
    if kind == floor::Kind::Hosts {
        args.push(task.authorities.origin.pem_path().into());
    }
    args
}

/// A proxy that runs; stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Its processes.
    pub(crate) fn tree(&self) -> anyhow::Result<Tree> {
        Tree::of(Pid::from_child(&self.child))
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails with the end of its output if it is no longer running.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let output = std::fs::read(&self.log).unwrap_or_default();
        let output = String::from_utf8_lossy(&output);
        let start = output.char_indices().rev().nth(2000).map_or(0, |(at, _)| at);
        bail!("it ended with {status}: {}", output.get(start..).unwrap_or_default());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // By its id, which is still its own: the child has not been waited for.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let end = Instant::now() + STOP_TIME;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
