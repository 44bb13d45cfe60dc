//! What was checked and what came of it, in the words that users see.
//!
//! The types here are the JSON of `/v1/evidence` and of `exeat ready --json`; their schema is published as
//! `config/schemas/evidence.v1.schema.json`. A value says what was observed, when, and under which policy, and beside
//! it what was not looked at: nothing that was not checked is ever reported as if it were.

use serde::Serialize;

/// Everything that is known about the readiness of a gateway's policy and servers.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Evidence {
    /// Always `exeat.evidence`.
    pub(crate) schema: &'static str,
    /// The version of the schema.
    pub(crate) version: &'static str,
    /// When the newest check ended: RFC 3339, UTC.
    pub(crate) checked_at: Option<String>,
    /// The policy that everything was checked under.
    pub(crate) policy: PolicyView,
    /// Whether the agent can go around the gateway: `enforced` or `advisory`.
    pub(crate) confinement: Confinement,
    /// Whether everything that the manifests declare was checked.
    pub(crate) completeness: Completeness,
    /// What the evidence does not say, a sentence each.
    pub(crate) limitations: Vec<String>,
    /// The sum of it.
    pub(crate) readiness: Readiness,
    /// What was checked of each server, in the order of the manifests.
    pub(crate) servers: Vec<ServerEvidence>,
}

/// The policy in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PolicyView {
    /// The digest, as in events and refusals.
    pub(crate) digest: String,
    /// The generation, as in events and refusals.
    pub(crate) generation: u64,
    /// Whether what its rules deny is refused or only reported: `enforce` or `report`.
    pub(crate) mode: &'static str,
}

/// Whether an agent can reach the network by another way than the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Confinement {
    /// It can: the gateway sees what clients send it.
    Advisory,
}

/// Whether everything declared was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Completeness {
    /// All of it was.
    Complete,
    /// Something was not, as the limitations say.
    Partial,
}

/// Whether an agent with these manifests can work.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Readiness {
    /// Whether no capability is unavailable.
    pub(crate) ready: bool,
    /// Why, in one word: `ready`, `degraded`, `unavailable`, or `not_checked`.
    pub(crate) reason: &'static str,
    /// What the agent may count on: the servers first, then the named capabilities of the manifests.
    pub(crate) capabilities: Vec<Capability>,
}

/// One thing that an agent may count on, or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Capability {
    /// The name: `mcp:NAME` for a server, else as the manifest has it.
    pub(crate) name: String,
    /// What is to be expected of it.
    pub(crate) status: Status,
    /// Why, in one word.
    pub(crate) reason: String,
    /// What the server calls itself, with its version. It is the server's own word.
    pub(crate) detected_version: Option<String>,
    /// The revision of MCP that was spoken.
    pub(crate) protocol_version: Option<String>,
    /// How it is reached: `streamable_http`, or `stdio`.
    pub(crate) transport: Option<&'static str>,
}

/// What is to be expected of a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// Everything that can be checked was, and passed.
    Ready,
    /// It answers, and something about it failed or could not be told.
    Degraded,
    /// It does not work.
    Unavailable,
    /// The gateway has no part in it, so it can say nothing.
    Unsupported,
    /// Nobody looked yet.
    Unknown,
}

impl Status {
    /// Every status, in the order of the enum.
    pub(crate) const ALL: [Self; 5] =
        [Self::Ready, Self::Degraded, Self::Unavailable, Self::Unsupported, Self::Unknown];

    /// The word in metrics and reports.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Unavailable => "unavailable",
            Self::Unsupported => "unsupported",
            Self::Unknown => "unknown",
        }
    }
}

/// What a manifest asks of the protocol to a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ProtocolConstraint {
    /// The pinned revision; none where both sides choose.
    pub(crate) revision: Option<&'static str>,
    /// How the server is reached.
    pub(crate) transport: &'static str,
}

/// What was checked of one server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ServerEvidence {
    /// Its name in the manifest.
    pub(crate) server: String,
    /// Its URL without its query; none for a server that is not reached by one.
    pub(crate) url: Option<String>,
    /// What the manifest asks of the protocol.
    pub(crate) constraint: ProtocolConstraint,
    /// When the check began: RFC 3339, UTC.
    pub(crate) started_at: Option<String>,
    /// The same, in seconds since 1970; 0 for never.
    #[serde(skip)]
    pub(crate) checked_at_seconds: f64,
    /// How long it took, in milliseconds.
    pub(crate) duration_ms: u64,
    /// The checks, each of [`Check::ALL`], in that order.
    pub(crate) checks: Vec<CheckResult>,
    /// The capabilities of a client that the probe declared: tool lists depend on them.
    pub(crate) declared_capabilities: serde_json::Value,
    /// How many tools the server lists.
    pub(crate) tools: Option<usize>,
    /// The SHA-256 of the tools' names, sorted and each ended by a line feed.
    pub(crate) tools_digest: Option<String>,
    /// The sum of it.
    pub(crate) capability: Capability,
}

/// What is checked of a server, in the order it is checked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Check {
    /// The transport is one that the gateway carries.
    Declared,
    /// A rule permits the URL.
    Policy,
    /// Every placeholder resolves.
    Credential,
    /// The name resolves, to addresses that the guard lets be reached.
    Resolve,
    /// An address accepts the connection.
    Connect,
    /// The TLS handshake and the certificate are acceptable.
    Tls,
    /// The server speaks MCP.
    Handshake,
    /// It speaks the pinned revision.
    Protocol,
    /// It takes the bound credential, and not a hopeless one.
    Authorised,
    /// It lists its tools.
    Tools,
}

impl Check {
    /// Every check, in the order it is made in.
    pub(crate) const ALL: [Self; 10] = [
        Self::Declared,
        Self::Policy,
        Self::Credential,
        Self::Resolve,
        Self::Connect,
        Self::Tls,
        Self::Handshake,
        Self::Protocol,
        Self::Authorised,
        Self::Tools,
    ];

    /// The word in metrics and reports.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Declared => "declared",
            Self::Policy => "policy",
            Self::Credential => "credential",
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Handshake => "handshake",
            Self::Protocol => "protocol",
            Self::Authorised => "authorised",
            Self::Tools => "tools",
        }
    }
}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CheckStatus {
    /// It holds.
    Passed,
    /// It does not hold.
    Failed,
    /// It could not be made.
    Error,
    /// It was made, and its outcome says neither.
    Inconclusive,
    /// It was not reached.
    NotRun,
}

impl CheckStatus {
    /// Every status, in the order of the enum.
    pub(crate) const ALL: [Self; 5] = [Self::Passed, Self::Failed, Self::Error, Self::Inconclusive, Self::NotRun];

    /// The word in metrics and reports.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Error => "error",
            Self::Inconclusive => "inconclusive",
            Self::NotRun => "not_run",
        }
    }
}

/// One check and its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CheckResult {
    /// What was checked.
    pub(crate) check: Check,
    /// How it went.
    pub(crate) status: CheckStatus,
    /// Why, in one word; empty where there is nothing to say.
    pub(crate) reason: String,
    /// Why, in a sentence for people; empty where there is nothing to say.
    pub(crate) detail: String,
}

/// The checks of one server as they are made; those that were not reached stay `not_run`.
#[derive(Clone, Debug)]
pub(crate) struct Checks(Vec<CheckResult>);

impl Default for Checks {
    fn default() -> Self {
        let not_run =
            |check| CheckResult { check, status: CheckStatus::NotRun, reason: String::new(), detail: String::new() };
        Self(Check::ALL.into_iter().map(not_run).collect())
    }
}

impl Checks {
    /// Notes the outcome of a check.
    pub(crate) fn note(
        &mut self,
        check: Check,
        status: CheckStatus,
        reason: impl Into<String>,
        detail: impl Into<String>,
    ) {
        if let Some(result) = self.0.iter_mut().find(|result| result.check == check) {
            *result = CheckResult { check, status, reason: reason.into(), detail: detail.into() };
        }
    }

    /// Notes that a check passed.
    pub(crate) fn pass(&mut self, check: Check, reason: impl Into<String>) {
        self.note(check, CheckStatus::Passed, reason, "");
    }

    /// How a check went.
    pub(crate) fn status(&self, check: Check) -> CheckStatus {
        self.find(|result| result.check == check).map_or(CheckStatus::NotRun, |result| result.status)
    }

    /// The first outcome of a kind.
    pub(crate) fn find(&self, wanted: impl Fn(&CheckResult) -> bool) -> Option<&CheckResult> {
        self.0.iter().find(|result| wanted(result))
    }

    /// All outcomes, in order.
    pub(crate) fn into_vec(self) -> Vec<CheckResult> {
        self.0
    }

    /// What the outcomes say about the server, and why.
    pub(crate) fn sum(&self) -> (Status, String) {
        let worst = |status| self.find(move |result: &CheckResult| result.status == status);
        if self.0.iter().all(|result| result.status == CheckStatus::NotRun) {
            return (Status::Unknown, "not_checked".to_owned());
        }
        // A server whose tools cannot be listed still serves what the agent knows to call.
        let (broken, lame): (Vec<_>, Vec<_>) = [CheckStatus::Failed, CheckStatus::Error]
            .into_iter()
            .filter_map(worst)
            .partition(|result| result.check != Check::Tools);
        if let Some(result) = broken.into_iter().min_by_key(|result| result.check) {
            let status = if result.check == Check::Declared { Status::Unsupported } else { Status::Unavailable };
            return (status, said(result));
        }
        if let Some(result) = lame.first() {
            return (Status::Degraded, said(result));
        }
        match worst(CheckStatus::Inconclusive) {
            Some(result) => (Status::Degraded, said(result)),
            None => (Status::Ready, "ready".to_owned()),
        }
    }
}

fn said(result: &CheckResult) -> String {
    if result.reason.is_empty() { result.check.as_str().to_owned() } else { result.reason.clone() }
}

impl Readiness {
    /// Sums capabilities up.
    pub(crate) fn of(capabilities: Vec<Capability>) -> Self {
        let any = |status| capabilities.iter().any(|capability| capability.status == status);
        let (ready, reason) = if any(Status::Unavailable) {
            (false, "unavailable")
        } else if any(Status::Unknown) {
            (false, "not_checked")
        } else if any(Status::Degraded) {
            (true, "degraded")
        } else {
            (true, "ready")
        };
        Self { ready, reason, capabilities }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(noted: &[(Check, CheckStatus, &str)]) -> (Status, String) {
        let mut checks = Checks::default();
        for (check, status, reason) in noted {
            checks.note(*check, *status, *reason, "");
        }
        checks.sum()
    }

    #[test]
    fn checks_sum_up_to_a_status_with_its_reason() {
        use Check::{Authorised, Connect, Declared, Handshake, Policy, Tools};
        use CheckStatus::{Error, Failed, Inconclusive, Passed};
        for (noted, expected) in [
            (&[][..], (Status::Unknown, "not_checked")),
            (&[(Declared, Failed, "stdio")], (Status::Unsupported, "stdio")),
            (&[(Declared, Passed, ""), (Policy, Failed, "blocked")], (Status::Unavailable, "blocked")),
            (&[(Connect, Error, "")], (Status::Unavailable, "connect")),
            (&[(Handshake, Passed, ""), (Tools, Failed, "tools_error")], (Status::Degraded, "tools_error")),
            (&[(Authorised, Inconclusive, "any_credential")], (Status::Degraded, "any_credential")),
            (
                &[(Handshake, Inconclusive, "answer"), (Authorised, Failed, "rejected")],
                (Status::Unavailable, "rejected"),
            ),
            (&[(Declared, Passed, ""), (Tools, Passed, "")], (Status::Ready, "ready")),
        ] {
            let (status, reason) = sum(noted);
            assert_eq!((status, &*reason), expected, "{noted:?}");
        }
    }

    #[test]
    fn what_was_not_reached_is_not_run() {
        let mut checks = Checks::default();
        checks.pass(Check::Declared, "");
        let results = checks.into_vec();
        assert_eq!(results.iter().map(|result| result.check).collect::<Vec<_>>(), Check::ALL);
        assert!(results.iter().skip(1).all(|result| result.status == CheckStatus::NotRun));
    }

    #[test]
    fn one_unavailable_capability_is_enough() {
        let capability = |status| Capability {
            name: "mcp:a".to_owned(),
            status,
            reason: String::new(),
            detected_version: None,
            protocol_version: None,
            transport: None,
        };
        for (statuses, expected) in [
            (&[][..], (true, "ready")),
            (&[Status::Ready, Status::Unsupported], (true, "ready")),
            (&[Status::Ready, Status::Degraded], (true, "degraded")),
            (&[Status::Unknown, Status::Degraded], (false, "not_checked")),
            (&[Status::Degraded, Status::Unavailable, Status::Unknown], (false, "unavailable")),
        ] {
            let Readiness { ready, reason, .. } =
                Readiness::of(statuses.iter().map(|status| capability(*status)).collect());
            assert_eq!((ready, reason), expected, "{statuses:?}");
        }
    }
}
