//! The side-by-side load bench.
//!
//! Every peer does the same job in the same run: the proxy on CPU 0, origin and clients on CPU 1, both in one event
//! loop that is cheap enough for the proxy to be the limit. Peers take turns, so that what else the machine does hits
//! all of them. What counts is the CPU time that the operating system charged to the peer's processes, for each
//! operation; absolute numbers belong to the machine, ratios within one run are the result.
//!
//! ```text
//! cargo build --release -p exeat -p exeat-benches
//! target/release/load                                          # everything, as Markdown
//! target/release/load --scenario http_keepalive --seconds 10   # one scenario, longer
//! ```
//!
//! Peers that are not installed are left out. All traffic is on the loopback interface, and every run ends by itself.

mod client;
mod engine;
mod floor;
mod growth;
mod h2;
mod imitation;
mod link;
mod origin;
mod peer;
mod report;
mod runner;
mod scenario;
mod stats;
mod system;
mod words;

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand, ValueEnum as _};
use exeat_tests::certs::TestCa;
use tempfile::TempDir;

use growth::Series;
use peer::{Authorities, Peer};
use report::Report;
use runner::{Extent, Field};
use scenario::Scenario;

/// Measures exeat beside other proxies and beside relays without any policy.
#[derive(Debug, Parser)]
#[command(name = "load", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    bench: Bench,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Args, Debug)]
struct Bench {
    /// What to run; all scenarios if none is named
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    scenario: Vec<String>,
    /// Who takes part; everyone who is installed if none is named
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    peers: Vec<Peer>,
    /// How long each peer is measured in a round
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// How many rounds there are; figures are medians
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
    /// Writes every measurement to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The exeat to measure [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    exeat: Option<PathBuf>,
    /// Where a peer's program is, if not on PATH
    #[arg(long, value_name = "PEER=FILE", value_parser = program)]
    program: Vec<(Peer, PathBuf)>,
    /// Names the scenarios and ends
    #[arg(long)]
    list: bool,
}

/// What this program is when it starts itself.
#[derive(Debug, Subcommand)]
enum Role {
    /// Relays without any policy
    #[command(hide = true)]
    Floor {
        /// Which relay
        kind: floor::Kind,
        /// Where it listens
        listen: SocketAddr,
        /// Where bytes go
        origin: SocketAddr,
        /// The authority of the origin's certificates, for a relay that verifies them
        ca: Option<PathBuf>,
    },
}

/// Runs the command.
#[must_use]
pub fn main() -> ExitCode {
    let Cli { bench, role } = Cli::parse();
    let done = match role {
        Some(Role::Floor { kind, listen, origin, ca }) => floor::run(kind, listen, origin, ca.as_deref()),
        None => run(&bench),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing can be done about a standard error that takes nothing.
            let _ = writeln!(io::stderr(), "load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(bench: &Bench) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if bench.list {
        let scenarios = scenario::ALL.iter().map(|one| (one.name, one.about));
        let mut all = scenarios.chain(growth::ALL.iter().map(|one| (one.name, one.about)));
        return Ok(all.try_for_each(|(name, about)| writeln!(out, "{name:16}{about}"))?);
    }
    let (scenarios, series) = chosen(&bench.scenario)?;
    let peers = installed(bench)?;
    let machine = system::machine();
    system::raise_file_limit()?;
    system::pin(system::LOAD_CPU)?;
    let dir = folder()?;
    // Squid reaches its files from an account of its own.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
    let authorities = Authorities { proxy: TestCa::new(), origin: TestCa::new() };
    let extent = Extent { time: Duration::from_secs(bench.seconds), rounds: usize::from(bench.rounds) };
    let field = Field { dir: dir.path(), authorities: &authorities, peers: &peers, extent };

    writeln!(out, "{machine}. {} s a peer and round, {} rounds, medians.\n", bench.seconds, bench.rounds)?;
    for (peer, program) in &peers {
        if let Some(version) = peer.version(program) {
            writeln!(out, "- {}: {version}", peer.name())?;
        }
    }
    let (mut measured, mut grown) = (Vec::new(), Vec::new());
    for scenario in &scenarios {
        measured.extend(field.run(scenario)?);
        write!(out, "\n{}", Report { measured: &measured, grown: &grown }.table(scenario))?;
        out.flush()?;
    }
    for series in &series {
        let one = field.grow(series)?;
        write!(out, "\n{}", report::growth(&one))?;
        out.flush()?;
        grown.push(one);
    }
    let report = Report { measured: &measured, grown: &grown };
    write!(out, "\n{}", report.bounds(&scenarios))?;
    if let Some(path) = &bench.json {
        let text = serde_json::to_string_pretty(&report.json(&machine, &scenarios))?;
        std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// A folder for logs and state, in memory if there is such a place, so that nobody waits for a disk.
fn folder() -> io::Result<TempDir> {
    let prefix = "exeat-load-";
    TempDir::with_prefix_in(prefix, "/dev/shm").or_else(|_| TempDir::with_prefix(prefix))
}

/// What was named, or everything.
fn chosen(names: &[String]) -> anyhow::Result<(Vec<Scenario>, Vec<Series>)> {
    if names.is_empty() {
        return Ok((scenario::ALL.into(), growth::ALL.into()));
    }
    let (mut scenarios, mut series) = (Vec::new(), Vec::new());
    for name in names {
        if let Some(scenario) = scenario::ALL.into_iter().find(|scenario| scenario.name == name) {
            scenarios.push(scenario);
        } else {
            let found = growth::ALL.into_iter().find(|series| series.name == name);
            series.push(found.with_context(|| format!("there is no scenario {name:?}; --list names them"))?);
        }
    }
    Ok((scenarios, series))
}

/// The peers that take part, with their programs.
fn installed(bench: &Bench) -> anyhow::Result<Vec<(Peer, PathBuf)>> {
    let beside = std::env::current_exe()?.with_file_name("exeat");
    let exeat = bench.exeat.as_deref().unwrap_or(&beside);
    let mut found = Vec::new();
    for peer in Peer::ALL {
        let named = bench.program.iter().rev().find(|(of, _)| *of == peer).map(|(_, program)| program.clone());
        match named.or_else(|| peer.program(exeat)) {
            Some(program) if bench.peers.is_empty() || bench.peers.contains(&peer) => found.push((peer, program)),
            None if bench.peers.contains(&peer) => bail!("{} is not installed", peer.name()),
            _ => {}
        }
    }
    Ok(found)
}

/// Reads `PEER=FILE`.
fn program(text: &str) -> Result<(Peer, PathBuf), String> {
    let (peer, file) = text.split_once('=').ok_or("expected PEER=FILE")?;
    let peer = Peer::from_str(peer, false)?;
    let file = PathBuf::from(file);
    if file.is_file() { Ok((peer, file)) } else { Err(format!("there is no file {}", file.display())) }
}
