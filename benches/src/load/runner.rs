//! Runs a scenario: all peers set up side by side, then measured in turn, round after round.

use std::fs;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use exeat_tests::certs::{client_config, client_hello, unchecked_client_config};
use rustls::ClientConfig;
use rustls::client::Resumption;

use super::client::{Goal, Plan};
use super::engine::Engine;
use super::origin::{Behaviour, Service};
use super::peer::{Authorities, HOST, Job, Launch, Peer, Process, Task};
use super::scenario::{Figure, Names, Run, Scenario};
use super::system::{Tree, free_port};
use super::words::{Content, Hosts, Style};

/// How long a peer is busy before it is measured.
pub(super) const WARM_UP: Duration = Duration::from_millis(500);
/// How long a peer may take to answer after its start.
const START_TIME: Duration = Duration::from_secs(60);
/// How many rules [`Peer::ExeatFew`] has.
const FEW_RULES: usize = 10;
/// How long memory gets to settle.
pub(super) const SETTLE: Duration = Duration::from_millis(500);
/// How many starts count as one round.
const STARTS: usize = 5;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// How long each peer is measured in a round.
    pub(crate) time: Duration,
    /// How many rounds there are.
    pub(crate) rounds: usize,
}

/// What one peer showed in one round of a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    /// The scenario's name.
    pub(crate) scenario: &'static str,
    /// The peer.
    pub(crate) peer: Peer,
    /// The round, from 0.
    pub(crate) round: usize,
    /// The figures, or why there are none.
    pub(crate) result: Result<Vec<(Figure, f64)>, String>,
}

/// A peer that is ready to be measured.
pub(super) struct Stand {
    peer: Peer,
    launch: Option<Launch>,
    /// Where its admin listener is, if it is exeat.
    pub(super) admin: SocketAddr,
    /// Its process while it runs.
    pub(super) process: Option<Process>,
    /// What clients do.
    pub(super) plan: Plan,
    /// How long it took to answer for the first time.
    pub(super) started: Duration,
    /// What is wrong with it.
    pub(super) failure: Option<String>,
}

/// The field in which scenarios are run.
pub(crate) struct Field<'a> {
    /// A folder for files.
    pub(crate) dir: &'a Path,
    /// The authorities.
    pub(crate) authorities: &'a Authorities,
    /// The peers with their programs.
    pub(crate) peers: &'a [(Peer, PathBuf)],
    /// How much is measured.
    pub(crate) extent: Extent,
}

impl Field<'_> {
    /// Runs one scenario.
    pub(crate) fn run(&self, scenario: &Scenario) -> anyhow::Result<Vec<Measurement>> {
        let mut engine = Engine::new()?;
        let dir = self.dir.join(scenario.name);
        let mut stands = Vec::new();
        for (peer, program) in self.peers.iter().filter(|(peer, _)| scenario.concerns(*peer)) {
            let dir = dir.join(peer.name());
            fs::create_dir_all(&dir)?;
            stands.push(self.set_up(scenario, *peer, program, &dir, &mut engine)?);
        }
        let failed = stands.iter().filter_map(|stand| Some((stand.peer, stand.failure.clone()?)));
        let failed =
            failed.map(|(peer, error)| Measurement { scenario: scenario.name, peer, round: 0, result: Err(error) });
        let mut measured: Vec<Measurement> = failed.collect();
        for round in 0..if matches!(scenario.run, Run::Idle(_)) { 1 } else { self.extent.rounds } {
            for stand in stands.iter_mut().filter(|stand| stand.failure.is_none()) {
                let result = stand.measure(scenario, self.extent.time, &mut engine);
                engine.hang_up();
                let result = result.map_err(|error| format!("{error:#}"));
                stand.failure = result.as_ref().err().cloned();
                measured.push(Measurement { scenario: scenario.name, peer: stand.peer, round, result });
            }
        }
        drop(stands);
        // Logs grow large.
        fs::remove_dir_all(dir)?;
        Ok(measured)
    }

    /// Starts a peer with an origin of its own, and has it answer once.
    pub(super) fn set_up(
        &self,
        scenario: &Scenario,
        peer: Peer,
        program: &Path,
        dir: &Path,
        engine: &mut Engine,
    ) -> anyhow::Result<Stand> {
        let behaviour = match scenario.run {
            Run::Load(Goal::Bulk, _) => Behaviour::bulk()?,
            Run::Load(Goal::Events, _) => Behaviour::Events,
            Run::Load(..) if scenario.job == Job::InterceptCalls => {
                Behaviour::Call { bound: matches!(peer, Peer::Exeat | Peer::ExeatFew) }
            }
            Run::Load(Goal::Imitate, _) => Behaviour::Imitate(client_hello(HOST).len()),
            _ => Behaviour::Answer,
        };
        let names = [HOST, &format!("*.{HOST}")];
        let tls = scenario.tls.then(|| self.authorities.origin.leaf(&names).server_config(&["http/1.1"]));
        let origin = engine.listen(Service::new(behaviour, tls))?;
        let task = Task {
            dir,
            listen: free_port()?,
            admin: free_port()?,
            origin,
            job: scenario.job,
            rules: if peer == Peer::ExeatFew { FEW_RULES } else { scenario.rules },
            servers: scenario.servers,
            names: self.names(scenario),
            authorities: self.authorities,
        };
        let launch = Launch::prepare(peer, program.to_owned(), &task)?;
        let to = launch.as_ref().map_or(origin, |launch| launch.address);
        let style = style(scenario, peer, origin);
        let hosts = if task.names == 0 { Hosts::one(&style)? } else { Hosts::fresh(style, task.names) };
        let plan = plan(scenario, peer, to, hosts);
        let admin = task.admin;
        let stand = Stand { peer, launch, admin, process: None, plan, started: Duration::ZERO, failure: None };
        self.first_answer(scenario, &style, stand, engine)
    }

    /// How many hosts there have to be that are asked for once.
    fn names(&self, scenario: &Scenario) -> usize {
        match scenario.names {
            Names::One => 0,
            Names::Fresh(count) => count,
            Names::FreshEachSecond(count) => {
                let seconds = (WARM_UP + self.extent.time).as_secs_f64() * self.extent.rounds as f64;
                (seconds * count as f64) as usize
            }
        }
    }

    /// Starts a peer and has it answer once, through TLS that is verified where the peer opens it.
    fn first_answer(
        &self,
        scenario: &Scenario,
        style: &Style,
        mut stand: Stand,
        engine: &mut Engine,
    ) -> anyhow::Result<Stand> {
        // It is asked until it answers, which is no use of hosts that are asked for once.
        let mut first = Plan { hosts: Hosts::one(style)?, ..stand.plan.clone() };
        if let (Some(config), true) = (&mut first.tls, stand.peer.signs() && scenario.job.opens_tls()) {
            *config = Arc::new(client_config(self.authorities.proxy.roots(), alpn(scenario.job)));
        }
        if scenario.run != Run::Start
            && let Err(error) = stand.start(&first, engine)
        {
            stand.failure = Some(format!("{error:#}"));
        }
        if let Some(process) = &stand.process {
            // For who wants to attach a profiler.
            let _ = writeln!(io::stderr(), "{}: {} is process {}", scenario.name, stand.peer.name(), process.id());
        }
        Ok(stand)
    }
}

impl Stand {
    /// Starts the process and waits for its first answer.
    fn start(&mut self, first: &Plan, engine: &mut Engine) -> anyhow::Result<()> {
        self.process = None;
        let Some(launch) = &self.launch else { return Ok(()) };
        let began = Instant::now();
        let mut process = launch.start()?;
        loop {
            let Err(error) = engine.once(first) else { break };
            process.check()?;
            if began.elapsed() > START_TIME {
                return Err(error.context("it does not answer"));
            }
        }
        self.started = began.elapsed();
        self.process = Some(process);
        Ok(())
    }

    fn measure(
        &mut self,
        scenario: &Scenario,
        time: Duration,
        engine: &mut Engine,
    ) -> anyhow::Result<Vec<(Figure, f64)>> {
        match scenario.run {
            Run::Load(goal, connections) => self.load(scenario, goal, connections, time, engine),
            Run::Idle(tunnels) => self.idle(tunnels, engine),
            Run::Start => self.starts(engine),
        }
    }

    fn load(
        &mut self,
        scenario: &Scenario,
        goal: Goal,
        connections: usize,
        time: Duration,
        engine: &mut Engine,
    ) -> anyhow::Result<Vec<(Figure, f64)>> {
        engine.run(&self.plan, connections, WARM_UP)?;
        let tree = self.process.as_ref().map(Process::tree).transpose()?;
        let cpu = || tree.as_ref().map_or(Ok(0.0), Tree::cpu);
        let before = cpu()?;
        let began = Instant::now();
        let tally = engine.run(&self.plan, connections, time)?;
        let seconds = began.elapsed().as_secs_f64();
        let used = cpu()? - before;
        let mut figures = Vec::new();
        if goal == Goal::Bulk {
            let gigabytes = tally.bytes as f64 / 1e9;
            figures.extend([(Figure::Throughput, gigabytes / seconds), (Figure::CpuBulk, used / gigabytes)]);
        } else {
            let operations = tally.operations as f64;
            figures.push((Figure::Rate, operations / seconds));
            if tree.is_some() {
                figures.push((Figure::Cpu, used * 1e6 / operations));
            }
            figures.push((Figure::P50, tally.latency.quantile(0.5).context("nothing was done")?));
            figures.push((Figure::P99, tally.latency.quantile(0.99).context("nothing was done")?));
        }
        if let Some(tree) = &tree {
            figures.push((Figure::Rss, tree.rss()? as f64 / f64::from(1 << 20)));
            figures.push((Figure::Busy, used / seconds * 100.0));
        }
        figures.push((Figure::LoadBusy, (1.0 - engine.idle().as_secs_f64() / seconds) * 100.0));
        if scenario.rules > 1 {
            figures.push((Figure::Start, self.started.as_secs_f64() * 1e3));
        }
        Ok(figures)
    }

    fn idle(&mut self, tunnels: usize, engine: &mut Engine) -> anyhow::Result<Vec<(Figure, f64)>> {
        let process = self.process.as_ref().context("no process has no memory")?;
        engine.settle(&self.plan, SETTLE)?;
        let before = process.tree()?.rss()? as f64;
        engine.open(&self.plan, tunnels)?;
        engine.settle(&self.plan, SETTLE)?;
        let after = process.tree()?.rss()? as f64;
        engine.hang_up();
        engine.settle(&self.plan, SETTLE)?;
        let each = (after - before) / tunnels as f64 / 1024.0;
        Ok(vec![(Figure::Tunnel, each), (Figure::Rss, after / f64::from(1 << 20))])
    }

    fn starts(&mut self, engine: &mut Engine) -> anyhow::Result<Vec<(Figure, f64)>> {
        let first = self.plan.clone();
        let (mut times, mut rss) = (Vec::new(), Vec::new());
        for _ in 0..STARTS {
            self.start(&first, engine)?;
            times.push(self.started.as_secs_f64() * 1e3);
            if let Some(process) = &self.process {
                rss.push(process.tree()?.rss()? as f64 / f64::from(1 << 20));
            }
        }
        self.process = None;
        let median = |values| super::stats::median(values).context("nothing was started");
        Ok(vec![(Figure::Start, median(times)?), (Figure::Rss, median(rss)?)])
    }
}

/// How clients speak.
fn style(scenario: &Scenario, peer: Peer, origin: SocketAddr) -> Style {
    let content = match (scenario.job, scenario.run) {
        (Job::InterceptH2, _) => Content::Stream,
        (Job::InterceptCalls, _) => Content::Call,
        (_, Run::Load(Goal::Imitate, _)) => Content::Hello,
        _ => Content::File,
    };
    Style { opening: peer.opening(scenario.job), content, dialled: peer.dialled(), port: origin.port() }
}

/// What clients do.
fn plan(scenario: &Scenario, peer: Peer, to: SocketAddr, hosts: Hosts) -> Plan {
    let goal = match scenario.run {
        // Tinyproxy closes each connection behind its answer without saying so.
        Run::Load(Goal::Requests, _) if peer == Peer::Tinyproxy => Goal::OneRequest,
        Run::Load(goal, _) => goal,
        Run::Idle(_) => Goal::Idle,
        Run::Start => Goal::OneRequest,
    };
    let tls = scenario.tls.then(|| Arc::new(quick_config(alpn(scenario.job))));
    Plan { to, hosts, tls, goal }
}

/// What clients offer to speak inside TLS. With HTTP/2 they offer both, as clients do; some proxies offer the same to the
/// origin.
fn alpn(job: Job) -> &'static [&'static str] {
    if job == Job::InterceptH2 { &["h2", "http/1.1"] } else { &["http/1.1"] }
}

/// TLS that does only what the other side needs: no verification, as the client is not what is measured, and a full
/// handshake each time.
fn quick_config(alpn: &[&str]) -> ClientConfig {
    let mut config = unchecked_client_config();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().into()).collect();
    config
}
