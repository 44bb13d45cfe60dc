//! The commands.

mod annotations;
mod ca;
mod cases;
mod check;
mod clients;
mod codes;
mod diagnostics;
mod diff;
mod env;
mod lint;
mod manual;
mod merge;
mod progress;
mod ready;
mod replay;
#[cfg(target_os = "linux")]
mod run;
mod sarif;
mod schema;
mod serve;
mod suggest;
mod truststore;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use exeat_policy::Diagnostic;

use crate::load::{Inputs, LoadError};
use crate::server::StartError;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All allowed, clean, ready; exit code 0.
    Clean,
    /// Something denied, an error-level diagnostic, not ready; exit code 1.
    Found,
    /// Usage or unreadable input; exit code 2.
    Unusable,
    /// As the command of a session, whose exit code this is.
    Command(u8),
}

/// An egress gateway for agent sessions: lets out what the agent's manifest permits, and says why.
#[derive(Debug, Parser)]
#[command(name = "exeat", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway; with nothing given, on a built-in example manifest
    Serve(serve::ServeArgs),
    /// Run a command with a gateway of its own as its only way out
    #[cfg(target_os = "linux")]
    Run(run::RunArgs),
    /// Judge URLs and HOST:PORT authorities without a network
    Check(check::CheckArgs),
    /// Check now what the manifests' servers are good for, through the gateway's own way out
    Ready(ready::ReadyArgs),
    /// Report what is wrong in manifests and configs
    Lint(lint::LintArgs),
    /// Hold a manifest to a file of expectations
    Test(cases::TestArgs),
    /// Judge recorded traffic by a manifest, and say what changes
    Replay(replay::ReplayArgs),
    /// Say what a change of manifest opens and closes
    Diff(diff::DiffArgs),
    /// Write a network_access that fits recorded traffic
    Suggest(suggest::SuggestArgs),
    /// Print the proxy and CA variables for clients
    Env(env::EnvArgs),
    /// Show or export the interception CA
    Ca(ca::CaArgs),
    /// Print a JSON Schema
    Schema(schema::SchemaArgs),
    /// Print the completions of a shell
    Completions(manual::CompletionsArgs),
    /// Print a manual page, or write all of them
    Man(manual::ManArgs),
}

/// The files that decide, shared by the commands that load them.
#[derive(Args, Clone, Debug, Default)]
struct FileArgs {
    /// The gateway's config
    #[arg(short, long, global = true, value_name = "EXEAT.TOML")]
    config: Option<PathBuf>,
    /// An agent manifest; may be repeated, outermost layer first
    #[arg(short, long = "manifest", global = true, value_name = "AGENT.TOML")]
    manifests: Vec<PathBuf>,
    /// Override a key of the config
    #[arg(long = "set", global = true, value_name = "SECTION.KEY=VALUE")]
    overrides: Vec<String>,
}

impl FileArgs {
    fn inputs(&self) -> Inputs {
        Inputs { config: self.config.clone(), manifests: self.manifests.clone(), overrides: self.overrides.clone() }
    }
}

/// Where the CA and caches are kept.
#[derive(Args, Clone, Debug)]
struct StateArgs {
    /// The folder of the CA and caches
    #[arg(long, global = true, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

impl StateArgs {
    /// The folder given, or the user's state folder (XDG base directories), or that of a system service.
    fn folder(&self) -> PathBuf {
        let absolute = |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        self.state_dir.clone().unwrap_or_else(|| match (absolute("XDG_STATE_HOME"), absolute("HOME")) {
            (Some(state), _) => state.join("exeat"),
            (None, Some(home)) => home.join(".local/state/exeat"),
            (None, None) => PathBuf::from("/var/lib/exeat"),
        })
    }
}

/// Runs a command line.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Ended {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    #[cfg(target_os = "linux")]
    if arguments.get(1).is_some_and(|stage| stage == crate::sidecar::HELPER) {
        crate::sidecar::helper::run(arguments.into_iter().skip(2));
        return Ended::Clean;
    }
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ended::Clean,
                _ => Ended::Unusable,
            };
        }
    };
    let ended = match &cli.command {
        Command::Serve(arguments) => serve::run(arguments),
        #[cfg(target_os = "linux")]
        Command::Run(arguments) => run::run(arguments),
        Command::Check(arguments) => check::run(arguments, &mut io::stdout().lock()),
        Command::Ready(arguments) => ready::run(arguments, &mut io::stdout().lock()),
        Command::Lint(arguments) => lint::run(arguments, &mut io::stdout().lock()),
        Command::Test(arguments) => cases::run(arguments, &mut io::stdout().lock()),
        Command::Replay(arguments) => replay::run(arguments, &mut io::stdout().lock()),
        Command::Diff(arguments) => diff::run(arguments, &mut io::stdout().lock()),
        Command::Suggest(arguments) => suggest::run(arguments, &mut io::stdout().lock()),
        Command::Env(arguments) => env::run(arguments, &mut io::stdout().lock()),
        Command::Ca(arguments) => ca::run(arguments, &mut io::stdout().lock()),
        Command::Schema(arguments) => schema::run(arguments, &mut io::stdout().lock()),
        Command::Completions(arguments) => manual::completions(arguments, Cli::command(), &mut io::stdout().lock()),
        Command::Man(arguments) => manual::man(arguments, Cli::command(), &mut io::stdout().lock()),
    };
    ended.unwrap_or_else(|error| {
        // A reader such as `head` that has seen enough is no failure.
        let broken_pipe = |cause: &(dyn std::error::Error + 'static)| {
            cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
        };
        if error.chain().any(broken_pipe) {
            return Ended::Clean;
        }
        let _ = writeln!(io::stderr(), "exeat: {error:#}");
        Ended::Unusable
    })
}

/// Shows why files were not loaded.
fn show_load_error(error: LoadError) -> anyhow::Result<Ended> {
    match error {
        LoadError::Invalid(found) => show_diagnostics(&found)?,
        other => return Err(other.into()),
    }
    Ok(Ended::Unusable)
}

/// Shows why a gateway does not start.
fn show_start_error(error: StartError) -> anyhow::Result<Ended> {
    match error {
        StartError::Invalid(found) => show_diagnostics(&found)?,
        other => return Err(other.into()),
    }
    Ok(Ended::Unusable)
}

/// Writes diagnostics for people to the standard error.
fn show_diagnostics(found: &[Diagnostic]) -> io::Result<()> {
    let mut err = io::stderr().lock();
    err.write_all(diagnostics::render_text(found, diagnostics::color_wanted(&err)).as_bytes())
}

/// Whether the standard output has colour.
fn stdout_has_color() -> bool {
    diagnostics::color_wanted(&io::stdout())
}

/// Terminal styles, empty without colour.
#[derive(Clone, Copy, Debug)]
struct Style {
    green: &'static str,
    red: &'static str,
    yellow: &'static str,
    dim: &'static str,
    bold: &'static str,
    reset: &'static str,
}

impl Style {
    const fn new(color: bool) -> Self {
        if color {
            Self {
                green: "\x1b[32m",
                red: "\x1b[31m",
                yellow: "\x1b[33m",
                dim: "\x1b[2m",
                bold: "\x1b[1m",
                reset: "\x1b[0m",
            }
        } else {
            Self { green: "", red: "", yellow: "", dim: "", bold: "", reset: "" }
        }
    }
}
