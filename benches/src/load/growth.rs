//! How cost grows: exeat alone, with more and more of one thing.
//!
//! What a config lists is there from the start, so the gateway starts anew for each size. What comes with traffic is
//! added to one gateway, and memory is read when it has settled.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context as _, bail, ensure};
use serde_json::json;

use super::client::Goal;
use super::engine::Engine;
use super::origin::CREDENTIAL;
use super::peer::{Job, Peer, Process};
use super::runner::{Field, SETTLE, Stand, WARM_UP};
use super::scenario::{BASE, Figure, Names, Run, Scenario};
use super::system::Tree;

/// How many hosts there are beyond those that are counted: for connections that are begun and not waited for.
const SPARE: usize = 64;

/// What there is more and more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    /// Permitted hosts.
    Rules,
    /// MCP servers, each with a credential and a policy of its tools.
    Servers,
    /// Sessions beside the gateway's own, each with a policy and a credential.
    Sessions,
    /// Client connections that have had one plain request and are idle.
    Clients,
    /// Tunnels that have been used once and are idle.
    Tunnels,
    /// Tunnels whose TLS is opened, that have had one request and are idle.
    Opened,
    /// Hosts for which TLS was opened and nothing was asked for.
    Leaves,
    /// Hosts that were asked for something once, so that a connection to each is kept.
    Origins,
}

/// A series of measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Series {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What it is, in a few words.
    pub(crate) about: &'static str,
    /// What is counted, as the head of a column.
    pub(crate) unit: &'static str,
    thing: Thing,
    sizes: &'static [usize],
}

/// Every series.
pub(crate) const ALL: [Series; 8] = [
    Series {
        name: "grow_rules",
        about: "http_keepalive with more and more permitted hosts",
        unit: "rules",
        thing: Thing::Rules,
        sizes: &[10, 1000, 10_000, 50_000, 100_000],
    },
    Series {
        name: "grow_servers",
        about: "mcp_call with more and more MCP servers, each with a credential and a policy of its tools",
        unit: "servers",
        thing: Thing::Servers,
        sizes: &[1, 10, 100, 1000],
    },
    Series {
        name: "grow_sessions",
        about: "sessions of one gateway, each with ten permitted hosts, an MCP server and a credential for it",
        unit: "sessions",
        thing: Thing::Sessions,
        sizes: &[10, 100, 500, 1000],
    },
    Series {
        name: "grow_clients",
        about: "client connections that have had one plain request and are idle",
        unit: "connections",
        thing: Thing::Clients,
        sizes: &[500, 1000, 2500, 5000],
    },
    Series {
        name: "grow_tunnels",
        about: "tunnels that have been used once and are idle",
        unit: "tunnels",
        thing: Thing::Tunnels,
        sizes: &[500, 1000, 2500, 5000],
    },
    Series {
        name: "grow_opened",
        about: "tunnels whose TLS is opened, that have had one request and are idle",
        unit: "tunnels",
        thing: Thing::Opened,
        sizes: &[500, 1000, 2500, 5000],
    },
    Series {
        name: "grow_hosts",
        about: "hosts for which TLS was opened, one after the other, and nothing was asked for",
        unit: "hosts",
        thing: Thing::Leaves,
        sizes: &[500, 1000, 2000, 4000],
    },
    Series {
        name: "grow_origins",
        about: "hosts that were asked for something once, plain, so that a connection to each is kept",
        unit: "hosts",
        thing: Thing::Origins,
        sizes: &[500, 1000, 2000, 4000],
    },
];

/// What was measured at one size.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// How many there were.
    pub(crate) size: usize,
    /// The figures.
    pub(crate) figures: Vec<(Figure, f64)>,
}

/// A series and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Grown {
    /// The series.
    pub(crate) series: Series,
    /// The steps, or why there are none.
    pub(crate) result: Result<Vec<Step>, String>,
}

impl Series {
    /// The scenario in which there are `size`, or all there will be.
    fn scenario(&self, size: usize) -> Scenario {
        let base = Scenario { name: self.name, ..BASE };
        let names = Names::Fresh(size + SPARE);
        let opened = Scenario { tls: true, ..base };
        match self.thing {
            Thing::Rules => Scenario { rules: size, ..base },
            Thing::Servers => Scenario { job: Job::InterceptCalls, servers: size, ..opened },
            Thing::Sessions => base,
            Thing::Clients => Scenario { run: Run::Idle(size), ..base },
            Thing::Tunnels => Scenario { job: Job::Tunnel, run: Run::Idle(size), ..base },
            Thing::Opened => Scenario { job: Job::Intercept, run: Run::Idle(size), ..opened },
            Thing::Leaves => Scenario { job: Job::InterceptHosts, names, run: Run::Load(Goal::Handshake, 1), ..opened },
            Thing::Origins => Scenario { names, run: Run::Load(Goal::OneRequest, 1), ..base },
        }
    }
}

impl Field<'_> {
    /// Runs a series.
    pub(crate) fn grow(&self, series: &Series) -> anyhow::Result<Grown> {
        let result = match series.thing {
            Thing::Rules | Thing::Servers => self.listed(series),
            Thing::Sessions | Thing::Clients | Thing::Tunnels | Thing::Opened => self.added(series),
            Thing::Leaves | Thing::Origins => self.added(series),
        };
        fs::remove_dir_all(self.dir.join(series.name))?;
        Ok(Grown { series: *series, result: result.map_err(|error| format!("{error:#}")) })
    }

    /// A gateway for each size.
    fn listed(&self, series: &Series) -> anyhow::Result<Vec<Step>> {
        let (mut steps, mut before) = (Vec::new(), None);
        for &size in series.sizes {
            let scenario = series.scenario(size);
            let mut engine = Engine::new()?;
            let stand = self.stand(&scenario, &mut engine)?;
            engine.settle(&stand.plan, SETTLE)?;
            let tree = tree(&stand)?;
            let rss = tree.rss()?;
            let mut figures = vec![(Figure::Start, stand.started.as_secs_f64() * 1e3)];
            figures.extend(memory(before.replace((size, rss)), size, rss));
            let connections = if let Run::Load(_, connections) = scenario.run { connections } else { 1 };
            engine.run(&stand.plan, connections, WARM_UP)?;
            let used = tree.cpu()?;
            let tally = engine.run(&stand.plan, connections, self.extent.time)?;
            figures.push((Figure::Cpu, (tree.cpu()? - used) * 1e6 / tally.operations as f64));
            engine.hang_up();
            steps.push(Step { size, figures });
        }
        Ok(steps)
    }

    /// One gateway, to which more and more is added.
    fn added(&self, series: &Series) -> anyhow::Result<Vec<Step>> {
        let last = series.sizes.last().copied().context("a series without sizes")?;
        let scenario = series.scenario(last);
        let mut engine = Engine::new()?;
        let stand = self.stand(&scenario, &mut engine)?;
        engine.settle(&stand.plan, SETTLE)?;
        let tree = tree(&stand)?;
        let mut before = (0, tree.rss()?);
        let mut steps = vec![Step { size: 0, figures: memory(None, 0, before.1) }];
        for &size in series.sizes {
            let used = tree.cpu()?;
            match scenario.run {
                Run::Load(..) if series.thing == Thing::Sessions => {
                    (before.0..size).try_for_each(|number| create_session(stand.admin, number))?;
                }
                Run::Idle(_) => engine.open(&stand.plan, size)?,
                Run::Load(..) => engine.complete(&stand.plan, size - before.0)?,
                Run::Start => bail!("nothing grows by starting"),
            }
            let used = tree.cpu()? - used;
            engine.settle(&stand.plan, SETTLE)?;
            let rss = tree.rss()?;
            let mut figures = memory(Some(before), size, rss);
            figures.push((Figure::Cpu, used * 1e6 / (size - before.0) as f64));
            before = (size, rss);
            steps.push(Step { size, figures });
        }
        Ok(steps)
    }

    fn stand(&self, scenario: &Scenario, engine: &mut Engine) -> anyhow::Result<Stand> {
        let (_, program) = self.peers.iter().find(|(peer, _)| *peer == Peer::Exeat).context("exeat takes no part")?;
        let dir = self.dir.join(scenario.name);
        fs::create_dir_all(&dir)?;
        let stand = self.set_up(scenario, Peer::Exeat, program, &dir, engine)?;
        match &stand.failure {
            Some(failure) => bail!("{failure}"),
            None => Ok(stand),
        }
    }
}

/// Has a gateway make a session, with what a session is made of.
#[allow(clippy::disallowed_methods, reason = "a gateway that the bench has started itself")]
fn create_session(admin: SocketAddr, number: usize) -> anyhow::Result<()> {
    let hosts: Vec<String> = (0..10).map(|host| format!("host-{host}.session-{number}.example")).collect();
    let manifest = json!({
        "name": format!("agent-{number}"),
        "network_access": { "allowed": hosts },
        "mcpServers": {
            "tools": {
                "url": format!("https://host-0.session-{number}.example/mcp"),
                "headers": { "Authorization": "${MCP_AUTHORIZATION}" },
            },
        },
    });
    let body = json!({
        "name": format!("session-{number}"),
        "manifests": [{ "format": "json", "text": manifest.to_string() }],
        "bindings": { "MCP_AUTHORIZATION": { "value": CREDENTIAL } },
        "identity": { "credentials": true },
    })
    .to_string();
    let mut stream = TcpStream::connect(admin)?;
    write!(
        stream,
        "POST /v1/sessions HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 201 "), "no session was made: {answer}");
    Ok(())
}

fn tree(stand: &Stand) -> anyhow::Result<Tree> {
    stand.process.as_ref().map(Process::tree).context("nothing was started")?
}

/// Memory in all, and for each one more than there were before.
fn memory(before: Option<(usize, u64)>, size: usize, rss: u64) -> Vec<(Figure, f64)> {
    let mut figures = vec![(Figure::Rss, rss as f64 / f64::from(1 << 20))];
    if let Some((fewer, less)) = before {
        figures.push((Figure::Each, (rss as f64 - less as f64) / 1024.0 / (size - fewer) as f64));
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shared_out_among_what_was_added() {
        assert_eq!(memory(None, 10, 3 << 20), [(Figure::Rss, 3.0)]);
        assert_eq!(memory(Some((10, 3 << 20)), 20, 4 << 20), [(Figure::Rss, 4.0), (Figure::Each, 102.4)]);
    }

    #[test]
    fn sizes_grow() {
        for series in ALL {
            assert!(series.sizes.is_sorted_by(|a, b| a < b), "{}", series.name);
        }
    }
}
