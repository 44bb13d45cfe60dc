//! The scenarios: what is asked of every peer that can do it.

use super::client::Goal;
use super::peer::{Job, Peer};

/// One measured property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    /// Operations a second.
    Rate,
    /// CPU time of the peer for one operation, in microseconds.
    Cpu,
    /// Gigabytes (10⁹) a second.
    Throughput,
    /// CPU time of the peer for a gigabyte, in seconds.
    CpuBulk,
    /// The median time of an operation, in microseconds; of an event, from origin to client.
    P50,
    /// The time that 99 of 100 operations do not exceed, in microseconds.
    P99,
    /// Resident memory, in MiB.
    Rss,
    /// From the start of the process to the first answered request, in milliseconds.
    Start,
    /// Resident memory for each tunnel, in KiB.
    Tunnel,
    /// Resident memory for each thing more than at the size before, in KiB.
    Each,
    /// The share of its CPU that the peer used, in percent.
    Busy,
    /// The share of the time in which origin and clients had something to do, in percent.
    LoadBusy,
}

impl Figure {
    /// The head of its column.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Rate => "ops/s",
            Self::Cpu => "CPU µs/op",
            Self::Throughput => "GB/s",
            Self::CpuBulk => "CPU s/GB",
            Self::P50 => "p50 µs",
            Self::P99 => "p99 µs",
            Self::Rss => "RSS MiB",
            Self::Start => "start ms",
            Self::Tunnel => "KiB/tunnel",
            Self::Each => "KiB each",
            Self::Busy => "peer CPU %",
            Self::LoadBusy => "load busy %",
        }
    }
}

/// How a scenario is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// So many connections work towards a goal for some seconds.
    Load(Goal, usize),
    /// So many tunnels are opened and left alone.
    Idle(usize),
    /// The proxy is started until it answers.
    Start,
}

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What it is, in a few words.
    pub(crate) about: &'static str,
    /// What the proxy does.
    pub(crate) job: Job,
    /// Whether the origin speaks TLS.
    pub(crate) tls: bool,
    /// How many hosts are permitted.
    pub(crate) rules: usize,
    /// How many MCP servers there are, where their calls are judged.
    pub(crate) servers: usize,
    /// Which hosts connections ask for.
    pub(crate) names: Names,
    /// How it is run.
    pub(crate) run: Run,
    /// The figure that peers are compared by; less is better.
    pub(crate) headline: Figure,
    /// What exeat is held to.
    pub(crate) bounds: &'static [Bound],
    /// The scenario that exeat's own figure is set beside.
    pub(crate) beside: Option<&'static str>,
}

/// Which hosts connections ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// All for one.
    One,
    /// Each for another one, of so many.
    Fresh(usize),
    /// Each for another one, of so many for each second that is measured.
    FreshEachSecond(usize),
}

/// What a figure of exeat should not exceed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// So many times the headline figure of a peer in the same scenario.
    Peer(f64, Peer),
    /// So much.
    Fixed(Figure, f64),
}

/// What most scenarios are like.
pub(crate) const BASE: Scenario = Scenario {
    name: "",
    about: "",
    job: Job::Forward,
    tls: false,
    rules: 1,
    servers: 1,
    names: Names::One,
    run: Run::Load(Goal::Requests, 64),
    headline: Figure::Cpu,
    bounds: &[],
    beside: None,
};

/// Every scenario.
pub(crate) const ALL: [Scenario; 20] = [
    Scenario {
        name: "http_keepalive",
        about: "plain requests, 64 connections, answers of 1 KiB",
        bounds: &[Bound::Peer(1.0, Peer::Haproxy)],
        ..BASE
    },
    Scenario {
        name: "http_newconn",
        about: "a new connection for each plain request, 64 at once",
        run: Run::Load(Goal::OneRequest, 64),
        bounds: &[Bound::Peer(1.25, Peer::Relay)],
        ..BASE
    },
    Scenario {
        name: "latency_c1",
        about: "plain requests over one connection",
        run: Run::Load(Goal::Requests, 1),
        headline: Figure::P50,
        ..BASE
    },
    Scenario {
        name: "sse",
        about: "8 streams with 1,000 events a second together; the time is from origin to client",
        run: Run::Load(Goal::Events, 8),
        headline: Figure::P50,
        bounds: &[Bound::Peer(1.5, Peer::Direct), Bound::Peer(1.25, Peer::Relay)],
        ..BASE
    },
    Scenario {
        name: "connect_bare",
        about: "CONNECT and its answer on a new connection, 64 at once",
        job: Job::Tunnel,
        run: Run::Load(Goal::Tunnel, 64),
        bounds: &[Bound::Peer(1.25, Peer::Relay)],
        ..BASE
    },
    Scenario {
        name: "connect_tls",
        about: "CONNECT, a TLS handshake with the origin and one request on a new connection, 64 at once",
        job: Job::Tunnel,
        run: Run::Load(Goal::Imitate, 64),
        bounds: &[Bound::Peer(1.15, Peer::Relay)],
        ..BASE
    },
    Scenario {
        name: "tunnel_1",
        about: "bytes without end through one tunnel",
        job: Job::Tunnel,
        run: Run::Load(Goal::Bulk, 1),
        headline: Figure::CpuBulk,
        ..BASE
    },
    Scenario {
        name: "tunnel_8",
        about: "bytes without end through 8 tunnels",
        job: Job::Tunnel,
        run: Run::Load(Goal::Bulk, 8),
        headline: Figure::CpuBulk,
        bounds: &[Bound::Peer(1.1, Peer::Splice)],
        ..BASE
    },
    Scenario {
        name: "mitm_keepalive",
        about: "requests inside opened TLS, 64 connections, answers of 1 KiB",
        job: Job::Intercept,
        tls: true,
        bounds: &[Bound::Peer(1.5, Peer::TlsRelay), Bound::Peer(0.5, Peer::Squid)],
        ..BASE
    },
    Scenario {
        name: "mitm_newconn",
        about: "CONNECT, TLS that is opened, and one request on a new connection, 32 at once",
        job: Job::Intercept,
        tls: true,
        run: Run::Load(Goal::OneRequest, 32),
        bounds: &[Bound::Peer(1.2, Peer::TlsRelay)],
        ..BASE
    },
    Scenario {
        name: "mitm_newhost",
        about: "the same, each time for a host that was not asked for before, 32 at once",
        job: Job::InterceptHosts,
        tls: true,
        names: Names::FreshEachSecond(5000),
        run: Run::Load(Goal::OneRequest, 32),
        bounds: &[Bound::Peer(0.85, Peer::HostRelay)],
        ..BASE
    },
    Scenario {
        name: "mitm_h2",
        about: "requests over HTTP/2 inside opened TLS, 16 connections with 8 streams each, answers of 1 KiB",
        job: Job::InterceptH2,
        tls: true,
        run: Run::Load(Goal::Streams, 16),
        bounds: &[Bound::Peer(0.6, Peer::Envoy)],
        ..BASE
    },
    Scenario {
        name: "mitm_bulk",
        about: "an answer without end inside opened TLS, 8 connections",
        job: Job::Intercept,
        tls: true,
        run: Run::Load(Goal::Bulk, 8),
        headline: Figure::CpuBulk,
        bounds: &[Bound::Peer(1.0, Peer::Envoy)],
        ..BASE
    },
    Scenario {
        name: "mcp_call",
        about: "calls of an MCP server's tool inside opened TLS, with a credential put on, 64 connections, answers of 1 KiB",
        job: Job::InterceptCalls,
        tls: true,
        beside: Some("mitm_keepalive"),
        ..BASE
    },
    Scenario { name: "rules_10", about: "http_keepalive with 10 permitted hosts", rules: 10, ..BASE },
    Scenario { name: "rules_1k", about: "http_keepalive with 1,000 permitted hosts", rules: 1000, ..BASE },
    Scenario {
        name: "rules_100k",
        about: "http_keepalive with 100,000 permitted hosts",
        rules: 100_000,
        bounds: &[
            Bound::Peer(1.03, Peer::ExeatFew),
            Bound::Fixed(Figure::Start, 300.0),
            Bound::Fixed(Figure::Rss, 40.0),
        ],
        ..BASE
    },
    Scenario {
        name: "idle_1k",
        about: "1,000 tunnels that have been used once and are idle",
        job: Job::Tunnel,
        run: Run::Idle(1000),
        headline: Figure::Tunnel,
        ..BASE
    },
    Scenario {
        name: "idle_5k",
        about: "5,000 tunnels that have been used once and are idle",
        job: Job::Tunnel,
        run: Run::Idle(5000),
        headline: Figure::Tunnel,
        bounds: &[Bound::Fixed(Figure::Tunnel, 8.0)],
        ..BASE
    },
    Scenario {
        name: "cold_start",
        about: "from the start of the process to its first answer",
        run: Run::Start,
        headline: Figure::Start,
        bounds: &[Bound::Fixed(Figure::Start, 10.0)],
        ..BASE
    },
];

impl Scenario {
    /// Whether a peer takes part.
    pub(crate) fn concerns(&self, peer: Peer) -> bool {
        let judged = self.rules > 1 || self.run == Run::Start;
        // Tinyproxy goes through its list from top to bottom: minutes for what others do in seconds.
        let endless = self.rules > 10_000 && peer == Peer::Tinyproxy;
        // Four ends of pipes for each tunnel come to more files than systems allow.
        let piped = matches!(self.run, Run::Idle(_)) && peer == Peer::Splice;
        let few = peer != Peer::ExeatFew || self.rules > 10_000;
        let direct = peer != Peer::Direct || self.headline == Figure::P50;
        peer.does(self.job) && (peer.has_policy() || !judged) && !endless && !piped && few && direct
    }
}
