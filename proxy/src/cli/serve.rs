//! `exeat serve`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal as _, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::{Ended, FileArgs, StateArgs, Style, show_diagnostics, show_start_error, stdout_has_color};
use crate::listener::endpoint::path_of;
use crate::server::{Gateway, Options, Summary};

#[derive(Args, Debug)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    files: FileArgs,
    /// The proxy port [default: 127.0.0.1:3128]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// The admin listener, or `off` [default: 127.0.0.1:9180]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    #[command(flatten)]
    state: StateArgs,
    /// Write {"proxy","admin","mcp","ca","pid"} to this file once traffic is served
    #[arg(long, value_name = "PATH")]
    ready_file: Option<PathBuf>,
}

/// What the ready file says.
#[derive(Serialize)]
struct Ready<'a> {
    proxy: SocketAddr,
    admin: Option<String>,
    /// The local endpoints of MCP servers, by name.
    mcp: BTreeMap<&'a str, String>,
    ca: &'a Path,
    pid: u32,
}

pub(super) fn run(arguments: &ServeArgs) -> anyhow::Result<Ended> {
    start_log();
    raise_descriptor_limit();
    let mut overrides = arguments.files.overrides.clone();
    overrides.extend(arguments.listen.map(|address| format!("listen.proxy={:?}", address.to_string())));
    overrides.extend(arguments.admin.as_ref().map(|address| format!("admin.listen={address:?}")));
    let options = Options {
        config: arguments.files.config.clone(),
        manifests: arguments.files.manifests.clone(),
        overrides,
        state_dir: arguments.state.folder(),
        private: false,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(serve(options, arguments.ready_file.as_deref()))
}

async fn serve(options: Options, ready_file: Option<&Path>) -> anyhow::Result<Ended> {
    let gateway = match Gateway::bind(options).await {
        Ok(gateway) => gateway,
        Err(error) => return show_start_error(error),
    };
    let summary = gateway.summary().clone();
    show_diagnostics(&summary.warnings)?;
    write_summary(&summary, Style::new(stdout_has_color()), &mut io::stdout().lock())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut stop = Stop { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? };
    if let Some(path) = ready_file {
        write_ready(path, &summary).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let reload = async || {
        if hangup.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    };
    let serving = gateway.serve(async { stop.recv().await }, reload);
    serving.await;
    if let Some(path) = ready_file {
        // The file says that traffic is served, which it no longer is.
        let _ = fs::remove_file(path);
    }
    Ok(Ended::Clean)
}

/// The signals that end the gateway. The first begins the drain; a second one ends the process at once.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        // SAFETY of the default action: nothing is written that a kill could leave half done.
        let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        else {
            return;
        };
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::warn!("stopped without draining");
            std::process::exit(0);
        });
    }
}

/// Raises the soft limit of descriptors to the hard one: each connection takes up to two, and the soft limit that shells
/// hand down is meant for programs that use select(2).
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where the system refuses, the limit in force is kept, and running into it is survived.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Writes the ready file whole: a reader sees all of it or no file.
pub(super) fn write_ready(path: &Path, summary: &Summary) -> io::Result<()> {
    let mcp = endpoints(summary).collect();
    let admin = admin(summary);
    let ready = Ready { proxy: summary.proxy, admin, mcp, ca: &summary.ca, pid: std::process::id() };
    let partial = path.with_extension(format!("partial-{}", std::process::id()));
    fs::write(&partial, serde_json::to_string(&ready)? + "\n")?;
    fs::rename(&partial, path)
}

/// The admin listener as its key spells it.
fn admin(summary: &Summary) -> Option<String> {
    let unix = summary.admin_unix.as_ref().map(|path| format!("unix:{}", path.display()));
    summary.admin.map(|address| address.to_string()).or(unix)
}

/// The local endpoints of MCP servers.
fn endpoints(summary: &Summary) -> impl Iterator<Item = (&str, String)> {
    let base = summary.mcp.map(super::env::reachable);
    let servers = summary.mcp_servers.iter().map(String::as_str);
    servers.filter_map(move |server| Some((server, format!("http://{}{}", base?, path_of(server)))))
}

/// Says in a few lines what is served.
fn write_summary(summary: &Summary, style: Style, out: &mut impl Write) -> io::Result<()> {
    let Style { bold, dim, yellow, reset, .. } = style;
    let Summary { proxy, ca, files, rules: (allowed, blocked), digest, intercepts, .. } = summary;
    let scheme = if summary.tls { "https" } else { "http" };
    let files = files.iter().map(|file| &**file).collect::<Vec<_>>().join(", ");
    let digest = digest.get(..19).unwrap_or(digest);
    writeln!(out, "{bold}exeat{reset} {}", env!("CARGO_PKG_VERSION"))?;
    let certificates = if summary.client_certificates { ", client certificates required" } else { "" };
    writeln!(out, "  proxy     {scheme}://{proxy}  {dim}HTTP, SOCKS5{certificates}{reset}")?;
    if let Some(path) = &summary.unix {
        writeln!(out, "  proxy     unix:{}  {dim}HTTP, SOCKS5{reset}", path.display())?;
    }
    if summary.accounts != (0, 0) {
        let (users, tokens) = summary.accounts;
        writeln!(out, "  auth      required: {users} users, {tokens} tokens")?;
    }
    match admin(summary) {
        Some(admin) if summary.admin.is_none() => {
            writeln!(out, "  admin     {admin}  {dim}console, /metrics, /livez, /readyz{reset}")?
        }
        Some(admin) => writeln!(out, "  admin     http://{admin}  {dim}console, /metrics, /livez, /readyz{reset}")?,
        None => writeln!(out, "  admin     off")?,
    }
    for (server, url) in endpoints(summary) {
        writeln!(out, "  mcp       {url}  {dim}{server:?}{reset}")?;
    }
    writeln!(out, "  policy    {files}: {allowed} allowed, {blocked} blocked  {dim}{digest}…{reset}")?;
    if let Some(events) = &summary.events {
        writeln!(out, "  events    {}", events.display())?;
    }
    let tls = if *intercepts { "intercepted where a rule needs it" } else { "never intercepted" };
    writeln!(out, "  TLS       {tls}; CA {}", ca.display())?;
    let (exeat, reachable) = (command_name(), super::env::reachable(*proxy));
    writeln!(out, "  clients   eval \"$({exeat} env --proxy {scheme}://{reachable} --ca {})\"", ca.display())?;
    if let Some(next) = &summary.next_proxy {
        writeln!(out, "  upstream  through {next}")?;
    }
    for caution in &summary.cautions {
        writeln!(out, "  {yellow}warning{reset}   {caution}")?;
    }
    out.flush()
}

/// How a shell calls this program: by name if that finds it, else by its path.
fn command_name() -> String {
    let Ok(own) = std::env::current_exe() else { return "exeat".to_owned() };
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).map(|folder| folder.join("exeat")).find(|path| path.is_file());
    match found.and_then(|path| path.canonicalize().ok()) {
        Some(found) if found == own => "exeat".to_owned(),
        _ => own.display().to_string(),
    }
}

/// Logs to a file, as JSON lines. Decisions are left to the events unless `EXEAT_LOG` asks for them.
#[cfg(target_os = "linux")]
pub(super) fn log_to(file: fs::File) {
    let file = std::sync::Arc::new(file);
    let filter = EnvFilter::builder().with_env_var("EXEAT_LOG").try_from_env();
    let filter = filter.unwrap_or_else(|_| EnvFilter::new("info,exeat::decision=off"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(file).json().flatten_event(true).init();
}

/// `EXEAT_LOG` sets the level.
fn log_filter() -> EnvFilter {
    EnvFilter::builder().with_env_var("EXEAT_LOG").try_from_env().unwrap_or_else(|_| EnvFilter::new("info"))
}

/// Logs to the standard error: text on a terminal, JSON lines otherwise.
fn start_log() {
    let builder = tracing_subscriber::fmt().with_env_filter(log_filter()).with_writer(io::stderr);
    if io::stderr().is_terminal() {
        builder.with_ansi(super::diagnostics::color_wanted(&io::stderr())).with_target(false).compact().init();
    } else {
        builder.json().flatten_event(true).init();
        crate::audit::log::is_lines_on_stderr();
    }
}
