//! The gate: the one way from a client's request to the network.
//!
//! Every listener hands its requests to [`Gate::request`] and its tunnels to [`Gate::tunnel`]. The order is the same
//! for all: judge by name, find the credentials, resolve and check, connect, take the decision down, and only then
//! send.

mod admitted;
mod authenticate;
mod directory;
mod fields;
mod mcp;
mod name;
mod outgoing;
mod redaction;
mod refusal;
mod request;
mod session;
mod tunnel;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use exeat_policy::target::Authority;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use admitted::Admitted;
pub(crate) use authenticate::Unauthenticated;
pub(crate) use directory::{Directory, Identity};
pub(crate) use fields::{Pseudonym, clean_answer};
pub(crate) use mcp::ReviewedBody;
pub(crate) use refusal::{Refusal, Subject};
pub(crate) use session::{Session, SessionId};

use crate::audit::{Audit, Ending, Entry};
use crate::auth::{Account, Limiter};
use crate::client::{Address, Client};
use crate::drain::Drain;
use crate::evidence::{Board, MustDeny, Purpose};
use crate::intercept::Leaves;
use crate::metrics::Metrics;
use crate::snapshot::Current;
use crate::tunnel::NameCheck;
use crate::upstream::{Raw, Upstream};

/// Everything a request of one session meets. What could carry a credential from one session to another is its own: the
/// snapshot, the connections, the record. The rest is shared with the gates of the other sessions.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The session.
    pub(crate) session: Session,
    /// The snapshot in force.
    pub(crate) current: Current,
    /// The way out.
    pub(crate) upstream: Upstream,
    /// Where decisions are taken down.
    pub(crate) audit: Audit,
    /// The metrics.
    pub(crate) metrics: Arc<Metrics>,
    /// The certificates for inspected tunnels.
    pub(crate) leaves: Arc<Leaves>,
    /// Counts wrong proxy credentials.
    pub(crate) wrong_credentials: Arc<Limiter>,
    /// What was checked of the manifests' servers.
    pub(crate) board: Board,
    /// The other sessions, by what their clients show.
    pub(crate) directory: Arc<Directory>,
    /// Whether every way in refuses what it must.
    pub(crate) must_deny: MustDeny,
    /// How this gateway signs Via.
    pub(crate) pseudonym: Arc<Pseudonym>,
    /// One permit for each tunnel there may be.
    pub(crate) tunnel_slots: Arc<Semaphore>,
    /// The shutdown.
    pub(crate) drain: Drain,
}

impl Gate {
    /// After how much silence the other end of a connection is asked for a sign of life; none for never.
    pub(crate) fn keepalive(&self) -> Option<Duration> {
        self.current.get().config.limits.tcp_keepalive
    }
}

/// Where a request comes from.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The client.
    pub(crate) client: Client,
    /// Which way the request came in.
    pub(crate) entry: Entry,
}

/// A place among the tunnels of the gateway, and among those of a session that has a limit of its own.
#[derive(Debug)]
pub(crate) struct Slot {
    _of_all: OwnedSemaphorePermit,
    _of_session: Option<OwnedSemaphorePermit>,
}

impl Caller {
    /// Whether it is the gateway, asking for what it must refuse. That is no traffic: it is not counted, and leaves no
    /// event and no line in the log.
    pub(crate) fn is_self_test(&self) -> bool {
        self.client.address == Address::Inner(Purpose::MustDeny)
    }
}

/// What a connection turns into behind its last HTTP answer.
#[derive(Debug)]
pub(crate) enum Switch {
    /// A tunnel whose bytes are relayed unread.
    Blind(Box<Blind>),
    /// A tunnel in which each request is judged.
    Inspect(Box<Inspect>),
    /// A WebSocket to the target of the request that opened it.
    Upgraded(Box<UpgradedTunnel>),
}

impl Switch {
    /// The gate that it goes through.
    pub(crate) const fn gate(&self) -> &Arc<Gate> {
        match self {
            Self::Blind(blind) => &blind.gate,
            Self::Inspect(inspect) => &inspect.gate,
            Self::Upgraded(upgraded) => &upgraded.gate,
        }
    }

    /// Has its end taken down.
    pub(crate) fn end_with(&mut self, end: Option<Box<Ending>>) {
        match self {
            Self::Blind(blind) => blind.ending = end,
            Self::Inspect(inspect) => inspect.ending = end,
            Self::Upgraded(upgraded) => upgraded.ending = end,
        }
    }
}

/// A blind tunnel that is about to begin.
#[derive(Debug)]
pub(crate) struct Blind {
    /// The gate that it goes through.
    pub(crate) gate: Arc<Gate>,
    /// Where it leads.
    pub(crate) authority: Authority,
    /// The connection.
    pub(crate) upstream: TcpStream,
    /// The address at its other end.
    pub(crate) peer: Option<SocketAddr>,
    /// What its first bytes have to be.
    pub(crate) check: NameCheck,
    /// Who was let in to ask for it.
    pub(crate) account: Option<Arc<Account>>,
    /// Its place among the tunnels.
    pub(crate) slot: Slot,
    /// Where its end is taken down.
    pub(crate) ending: Option<Box<Ending>>,
}

/// An inspected tunnel that is about to begin.
#[derive(Debug)]
pub(crate) struct Inspect {
    /// The gate that each request goes through.
    pub(crate) gate: Arc<Gate>,
    /// Where it leads.
    pub(crate) authority: Authority,
    /// Who asked for it.
    pub(crate) client: Client,
    /// Its place among the tunnels.
    pub(crate) slot: Slot,
    /// Where its end is taken down.
    pub(crate) ending: Option<Box<Ending>>,
}

/// An upgraded connection that is about to begin.
#[derive(Debug)]
pub(crate) struct UpgradedTunnel {
    /// The gate that it goes through.
    pub(crate) gate: Arc<Gate>,
    /// What was asked for.
    pub(crate) target: exeat_policy::target::Target,
    /// The connection.
    pub(crate) upstream: Raw,
    /// Who was let in to ask for it.
    pub(crate) account: Option<Arc<Account>>,
    /// Its place among the tunnels.
    pub(crate) slot: Slot,
    /// Where its end is taken down.
    pub(crate) ending: Option<Box<Ending>>,
}
