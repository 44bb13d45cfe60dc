//! `exeat run`: a session, which is a gateway and a command that has it as its way out.

mod folder;
mod report;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use exeat_policy::pattern::Pattern;
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use self::folder::Folder;
use self::report::{Bytes, Confinement, Parts, Report};
use super::clients::{self, Proxy, Trust};
use super::env::endpoint_variables;
use super::serve::write_ready;
use super::{Ended, FileArgs, StateArgs, Style, ca, diagnostics, show_diagnostics, show_load_error, show_start_error};
use crate::config::{Admin, Audit, Config, Isolate, Limits, Listen, Mode};
use crate::load::{self, Loaded};
use crate::server::{Gateway, Inside, Options};
use crate::sidecar::{Command, End, Plan, Session, Signals, Sockets};
use crate::tally::Tally;

/// The session's own addresses, which are reached without the gateway.
const LOOPBACK: &str = "localhost,127.0.0.1,::1";
/// The port of the local endpoints of MCP servers inside, where the config leaves it to the system.
const MCP: u16 = 3129;
/// How long a session waits at its end for what is under way.
const DRAIN: &str = "1s";
/// The variable that tells the command whether it is confined.
const CONFINEMENT: &str = "EXEAT_CONFINEMENT";
/// What shells answer for a command that is not there, and for one that cannot be run (POSIX, Shell 2.8.2).
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;
/// What they add to the number of a signal.
const BY_SIGNAL: i32 = 128;

#[derive(Args, Debug)]
pub(super) struct RunArgs {
    #[command(flatten)]
    files: FileArgs,
    /// What to do about confinement: do without where the system forbids it, insist, or leave it [default: auto]
    #[arg(long, value_enum, value_name = "HOW")]
    isolate: Option<IsolateArg>,
    /// The proxy port; in a confined session it is inside, and its address is 127.0.0.1 [default: 127.0.0.1:3128, or a
    /// free one where the session is not confined]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// The admin listener, or `off` [default: a free port]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// Whether what the rules deny is refused, or let out and reported [default: as the config says]
    #[arg(long, value_enum, value_name = "MODE")]
    mode: Option<ModeArg>,
    #[command(flatten)]
    state: StateArgs,
    /// Write {"proxy","admin","ca","pid"} to this file once traffic is served
    #[arg(long, value_name = "PATH")]
    ready_file: Option<PathBuf>,
    /// Write what the session did to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Append the events to this file [default: a new one in the state folder]
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Say what rules would permit what the command asked for
    #[arg(long)]
    suggest: bool,
    /// Show no summary
    #[arg(short, long)]
    quiet: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// As [`Isolate`], on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum IsolateArg {
    /// Confine the command, or say why not and run it all the same
    Auto,
    /// Confine the command, or do not run it
    Require,
    /// Point the command at the gateway by its environment alone
    Off,
}

/// As [`Mode`], on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArg {
    /// Refuse what the rules deny
    Enforce,
    /// Let it out without credentials, and report it
    Report,
}

impl From<ModeArg> for Mode {
    fn from(argument: ModeArg) -> Self {
        match argument {
            ModeArg::Enforce => Self::Enforce,
            ModeArg::Report => Self::Report,
        }
    }
}

impl From<IsolateArg> for Isolate {
    fn from(argument: IsolateArg) -> Self {
        match argument {
            IsolateArg::Auto => Self::Auto,
            IsolateArg::Require => Self::Require,
            IsolateArg::Off => Self::Off,
        }
    }
}

pub(super) fn run(arguments: &RunArgs) -> anyhow::Result<Ended> {
    let began = Instant::now();
    let inputs = arguments.files.inputs();
    let loaded = match load::load(&inputs) {
        Ok(loaded) => loaded,
        Err(error) => return show_load_error(error),
    };
    show_diagnostics(&loaded.warnings)?;
    let config = &loaded.config;
    let state = arguments.state.folder();
    let ca = ca::open_ca(config, &state)?;
    let folder = Folder::new().context("cannot make a folder for the session")?;
    let trust = Trust::write(folder.path(), ca.cert(), &public_copy(&folder, ca.cert_path())?)?;
    let settings = folder.settings(&trust.bundle).context("cannot write the settings of clients")?;
    let surroundings = Surroundings { loaded: &loaded, trust: &trust, settings: &settings };

    let isolate = arguments.isolate.map_or(config.sessions.isolate, Isolate::from);
    let port = match arguments.listen.unwrap_or(config.listen.proxy).port() {
        0 => Listen::default().proxy.port(),
        port => port,
    };
    let kept = Kept::open(arguments.events.as_deref(), &state)?;
    let mut secrets = secrets(config);
    // What the command did is not for the command to change.
    secrets.extend(kept.events.canonicalize().ok());
    let plan = Plan {
        proxy: port,
        catch: caught_ports(&loaded),
        mcp: config.mcp.listen.map(|listener| if listener.port() == 0 { MCP } else { listener.port() }),
        secrets,
        state: state.canonicalize().ok(),
        sockets: config.sessions.sockets.clone(),
    };
    // While this process has one thread.
    let (session, sockets, confinement) = match start(arguments, isolate, &surroundings, &plan)? {
        Start::Confined(session, sockets) => (Some(session), Some(sockets), Confinement::Enforced),
        Start::Plain(why) => (None, None, Confinement::Advisory { why }),
        Start::Refused(why) => {
            writeln!(io::stderr(), "exeat: the command is not run, since it cannot be confined: {why}")?;
            return Ok(Ended::Unusable);
        }
    };

    let Kept { events, log } = kept;
    super::serve::log_to(log);
    let tally = Arc::new(Tally::default());
    let options = options(arguments, config, &state, &events, sockets.is_some())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let bound = runtime.block_on(Gateway::bind_for(options, Some(Arc::clone(&tally)), sockets.map(inside)));
    let gateway = match bound {
        Ok(gateway) => gateway,
        Err(error) => return show_start_error(error),
    };
    let summary = gateway.summary().clone();
    let session = match session {
        Some(session) => session,
        None => {
            let proxy = format!("http://{}", super::env::reachable(summary.proxy));
            let command = surroundings.command(&arguments.command, &proxy, summary.mcp, &confinement);
            Session::plain(&command).context("cannot start a helper")?
        }
    };
    if let Some(path) = &arguments.ready_file {
        write_ready(path, &summary).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let (end, bytes) = runtime.block_on(attend(gateway, session))?;
    if let Some(path) = &arguments.ready_file {
        // The file says that traffic is served, which it no longer is.
        let _ = fs::remove_file(path);
    }
    let exit_code = code(&end, &arguments.command)?;
    let parts = Parts {
        command: arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        exit_code,
        duration: began.elapsed(),
        confinement: &confinement,
        mode: summary.mode.as_str(),
        digest: &summary.digest,
        files: summary.files.iter().map(|file| &**file).collect(),
        bytes,
        events: Some(&events),
    };
    let report = Report::new(parts, tally.sums());
    if let Some(path) = &arguments.report {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        ca::write_whole(path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if !arguments.quiet {
        let color = diagnostics::color_wanted(&io::stderr());
        report.show(Style::new(color), &mut io::stderr().lock())?;
    }
    if arguments.suggest {
        super::suggest::of_session(&events, &mut io::stderr().lock())?;
    }
    Ok(Ended::Command(exit_code))
}

/// How a session starts.
enum Start {
    Confined(Session, Sockets),
    /// Not confined, and why.
    Plain(String),
    /// Not at all, and why.
    Refused(String),
}

fn start(arguments: &RunArgs, isolate: Isolate, surroundings: &Surroundings<'_>, plan: &Plan) -> anyhow::Result<Start> {
    if isolate == Isolate::Off {
        return Ok(Start::Plain("confinement is off".to_owned()));
    }
    let proxy = format!("http://127.0.0.1:{}", plan.proxy);
    let mcp = plan.mcp.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let command = surroundings.command(&arguments.command, &proxy, mcp, &Confinement::Enforced);
    Ok(match Session::confined(&command, plan) {
        Ok((session, sockets)) => Start::Confined(session, sockets),
        Err(why) if isolate == Isolate::Require => Start::Refused(why.to_string()),
        Err(why) => {
            writeln!(
                io::stderr(),
                "exeat: the command is NOT confined: {why}; it is pointed at the gateway by its environment, and can \
                 go around it (--isolate require refuses to run it so)"
            )?;
            Start::Plain(why.to_string())
        }
    })
}

/// What the command finds around it.
struct Surroundings<'a> {
    loaded: &'a Loaded,
    trust: &'a Trust,
    settings: &'a [(&'static str, PathBuf)],
}

impl Surroundings<'_> {
    /// The command with its environment: that of this process without the variables that hold secrets, and with those
    /// that point clients at the gateway.
    fn command(&self, line: &[OsString], proxy: &str, mcp: Option<SocketAddr>, confinement: &Confinement) -> Command {
        let secret: Vec<&OsStr> = self.loaded.config.secret_variables().map(OsStr::new).collect();
        let mut java = std::env::var("JAVA_TOOL_OPTIONS").unwrap_or_default();
        if *confinement == Confinement::Enforced {
            // The files in /tmp that JVMs are watched by are named after process numbers, which many sessions share.
            java = format!("{java} -XX:-UsePerfData").trim_start().to_owned();
        }
        let proxy = Proxy { url: proxy.to_owned(), except: LOOPBACK };
        let mut set: Vec<(OsString, OsString)> = clients::variables(&proxy, self.trust, &java)
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        set.extend(self.settings.iter().map(|(name, path)| ((*name).into(), path.into())));
        let servers = self.loaded.mcp.endpoints.keys();
        let endpoints = mcp.map(|listener| endpoint_variables(listener, servers)).unwrap_or_default();
        set.extend(endpoints.into_iter().map(|(name, value)| (name.into(), value.into())));
        set.push((CONFINEMENT.into(), confinement.as_str().into()));
        let kept = std::env::vars_os()
            .filter(|(name, _)| !secret.contains(&name.as_os_str()) && !set.iter().any(|(taken, _)| taken == name));
        let environment = kept.collect::<Vec<_>>().into_iter().chain(set.iter().cloned()).collect();
        Command { line: line.to_vec(), environment }
    }
}

/// The files that hold secrets, beside those of the state folder.
fn secrets(config: &Config) -> Vec<PathBuf> {
    let files = config.secret_files().chain(config.intercept.ca.as_ref().map(|files| files.key.as_path()));
    // The file itself is covered, whatever links lead to it.
    files.filter_map(|path| path.canonicalize().ok()).collect()
}

/// The ports of the config, and those that a rule or a server names: an address with such a port may be reached, so a
/// client that knows of no proxy gets there too.
fn caught_ports(loaded: &Loaded) -> Vec<u16> {
    let rules = loaded.policy.rules().filter_map(|rule| Pattern::parse(&rule.rule.pattern).ok());
    let ports = rules.filter_map(|pattern| match pattern {
        Pattern::Prefix(prefix) => Some(prefix.port()),
        _ => None,
    });
    let servers = loaded.injections.iter().map(|injection| injection.prefix.port());
    let mut ports: Vec<u16> = loaded.config.sessions.catch.iter().copied().chain(ports).chain(servers).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

fn options(
    arguments: &RunArgs,
    config: &Config,
    state: &Path,
    events: &Path,
    confined: bool,
) -> anyhow::Result<Options> {
    let mut overrides = arguments.files.overrides.clone();
    let free = SocketAddr::from(([127, 0, 0, 1], 0));
    let listen = match arguments.listen {
        Some(address) => Some(address),
        // Several sessions at once are the rule, and their ports are their own.
        None => (!confined && config.listen.proxy == Listen::default().proxy).then_some(free),
    };
    overrides.extend(listen.map(|address| format!("listen.proxy={:?}", address.to_string())));
    let admin = match &arguments.admin {
        Some(address) => Some(address.clone()),
        None => (config.admin.listen == Admin::default().listen).then(|| free.to_string()),
    };
    overrides.extend(admin.map(|address| format!("admin.listen={address:?}")));
    if config.limits.drain_time == Limits::default().drain_time {
        // Whoever could wait for an answer has ended with the command.
        overrides.push(format!("limits.drain_timeout={DRAIN:?}"));
    }
    let path = events.to_str().with_context(|| format!("{} is no UTF-8", events.display()))?;
    overrides.push(format!("audit.events={path:?}"));
    if config.audit.max_size == Audit::default().max_size {
        // One file for one session, for its summary and whoever reads it later.
        overrides.push("audit.max_size=0".to_owned());
    }
    overrides.extend(arguments.mode.map(|mode| format!("policy.mode={:?}", Mode::from(mode).as_str())));
    Ok(Options {
        config: arguments.files.config.clone(),
        manifests: arguments.files.manifests.clone(),
        overrides,
        state_dir: state.to_owned(),
        private: confined,
    })
}

fn inside(sockets: Sockets) -> Inside {
    let Sockets { proxy, mcp, dns_udp, dns_tcp, caught, ipv6 } = sockets;
    Inside { proxy, mcp, dns: (dns_udp, dns_tcp), caught, ipv6 }
}

/// A copy of the CA's certificate that the command can read wherever the state folder is.
fn public_copy(folder: &Folder, cert: &Path) -> anyhow::Result<PathBuf> {
    let copy = folder.path().join("ca.pem");
    fs::copy(cert, &copy).with_context(|| format!("cannot copy {}", cert.display()))?;
    Ok(copy)
}

/// What is kept of a session.
struct Kept {
    /// Its events, which the gateway writes.
    events: PathBuf,
    /// What the gateway has to say beside.
    log: File,
}

impl Kept {
    /// Makes the files: both in the state folder, or the events where they are `wanted`.
    fn open(wanted: Option<&Path>, state: &Path) -> anyhow::Result<Self> {
        let folder = state.join("sessions");
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
        let own = |kind| folder.join(format!("{since}-{}.{kind}", std::process::id()));
        let events = wanted.map_or_else(|| own("jsonl"), Path::to_owned);
        let (_, log) = (Self::append(&events)?, Self::append(&own("log"))?);
        Ok(Self { events, log })
    }

    fn append(path: &Path) -> anyhow::Result<File> {
        let opened = File::options().append(true).create(true).mode(0o600).open(path);
        opened.with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Serves until the command has ended.
async fn attend(gateway: Gateway, session: Session) -> anyhow::Result<(End, Bytes)> {
    let metrics = gateway.metrics();
    pass_signals(session.signals()?);
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(gateway.serve(
        async {
            let _ = stopped.await;
        },
        std::future::pending::<()>,
    ));
    session.begin().context("cannot start the command")?;
    // A thread and not a task: it waits for a process.
    let (tell, told) = oneshot::channel();
    std::thread::spawn(move || tell.send(session.ended()));
    let end = told.await.unwrap_or(End::Lost);
    let _ = stop.send(());
    let _ = serving.await;
    Ok((end, Bytes { up: metrics.bytes_up.get(), down: metrics.bytes_down.get() }))
}

/// Passes signals on to the command. Those of the terminal reach it without help where this process is in front.
fn pass_signals(signals: Signals) {
    let kinds = [
        SignalKind::terminate(),
        SignalKind::hangup(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
        SignalKind::interrupt(),
        SignalKind::quit(),
    ];
    let signals = Arc::new(signals);
    for kind in kinds {
        let Ok(mut stream) = signal(kind) else { continue };
        let signals = Arc::clone(&signals);
        tokio::spawn(async move {
            let of_terminal = kind == SignalKind::interrupt() || kind == SignalKind::quit();
            while stream.recv().await.is_some() {
                if !(of_terminal && is_in_front()) {
                    signals.send(kind.as_raw_value());
                }
            }
        });
    }
}

/// Whether this process's group is the one that its terminal sends signals to.
fn is_in_front() -> bool {
    File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(&terminal).is_ok_and(|group| group == getpgrp()))
}

/// The code to end with, as a shell would.
fn code(end: &End, command: &[OsString]) -> io::Result<u8> {
    let program = command.first().map(|program| program.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(match end {
        End::Exited(code) => u8::try_from(*code).unwrap_or(u8::MAX),
        End::Killed(signal) => u8::try_from(BY_SIGNAL + signal).unwrap_or(u8::MAX),
        End::NotStarted(error) => {
            writeln!(io::stderr(), "exeat: cannot run {program}: {error}")?;
            if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE }
        }
        End::Lost => {
            writeln!(io::stderr(), "exeat: {program} was ended from outside")?;
            u8::try_from(BY_SIGNAL + 9).unwrap_or(u8::MAX)
        }
    })
}
