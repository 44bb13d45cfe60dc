//! A server as the manifests declare it, and its checks from the first to the last.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use exeat_policy::Reason;
use exeat_policy::manifest::{ElicitationPolicy, ProtocolMode};
use exeat_policy::target::{Scheme, Target};
use tokio::time::Instant;

use super::carrier::{Enter, Inner};
use super::probe::{self, Expectation};
use super::report::{Capability, Check, CheckStatus, Checks, ProtocolConstraint, ServerEvidence};
use crate::config::Mode;
use crate::permit;
use crate::snapshot::Snapshot;

/// How long the checks of one server may take.
const PROBE_TIME: Duration = Duration::from_secs(30);

/// A server as a manifest declares it.
#[derive(Clone, Debug)]
pub(crate) struct ServerSpec {
    /// Its name.
    pub(crate) name: Arc<str>,
    /// Where it is; none for a server that is no part of the network.
    pub(crate) url: Option<Target>,
    /// `protocol_mode`.
    pub(crate) mode: ProtocolMode,
    /// `elicitation_policy`.
    pub(crate) elicitation: ElicitationPolicy,
    /// `tool_discovery`.
    pub(crate) tool_discovery: bool,
    /// Whether one of its header fields is a placeholder.
    pub(crate) bound: bool,
}

impl ServerSpec {
    const fn transport(&self) -> &'static str {
        if self.url.is_some() { "streamable_http" } else { "stdio" }
    }

    /// Where it is, without a query, which may hold a credential.
    pub(crate) fn url_without_query(&self) -> Option<String> {
        Some(self.url.as_ref()?.to_string().split('?').next().unwrap_or_default().to_owned())
    }

    /// What is known of a server that nobody looked at.
    pub(crate) fn unchecked(&self) -> ServerEvidence {
        self.evidence(Checks::default(), probe::Findings::default(), None, Duration::ZERO)
    }

    /// Makes the checks under a snapshot.
    pub(crate) async fn check(&self, snapshot: &Snapshot, enter: &Enter) -> ServerEvidence {
        let (began, clock) = (SystemTime::now(), Instant::now());
        let mut checks = Checks::default();
        let findings = match self.before_the_network(snapshot, &mut checks) {
            None => probe::Findings { checks, ..probe::Findings::default() },
            Some((url, tls)) => {
                let expectation = Expectation {
                    mode: self.mode,
                    elicitation: self.elicitation,
                    tool_discovery: self.tool_discovery,
                    bound: self.bound,
                    tls,
                };
                let mut carrier = Inner::new(Arc::clone(enter), url, clock + PROBE_TIME);
                probe::run(&mut carrier, &expectation, checks).await
            }
        };
        let checks = findings.checks.clone();
        self.evidence(checks, findings, Some(began), clock.elapsed())
    }

    /// The checks that need no network; none where there is no going on.
    fn before_the_network(&self, snapshot: &Snapshot, checks: &mut Checks) -> Option<(http::Uri, bool)> {
        let Some(target) = &self.url else {
            let detail = "a stdio server is a child of the agent's host; the gateway has no part in it";
            checks.note(Check::Declared, CheckStatus::Failed, "stdio", detail);
            return None;
        };
        checks.pass(Check::Declared, "");
        let judged = permit::request(&snapshot.policy, Mode::Enforce, &snapshot.route.guard, target);
        if judged.leave.is_none() {
            let detail = match judged.rule {
                Some(rule) => format!("{:?} at {}:{}", rule.rule.pattern, rule.rule.file, rule.rule.line),
                None => judged.reason.text().to_owned(),
            };
            let check = match judged.reason {
                Reason::GuardAddress
                | Reason::GuardMetadata
                | Reason::GuardSelf
                | Reason::GuardPort
                | Reason::GuardName => {
                    checks.pass(Check::Policy, "");
                    Check::Resolve
                }
                _ => Check::Policy,
            };
            checks.note(check, CheckStatus::Failed, judged.reason.as_str(), detail);
            return None;
        }
        let place = judged.rule.map(|rule| format!("{}:{}", rule.rule.file, rule.rule.line)).unwrap_or_default();
        checks.note(Check::Policy, CheckStatus::Passed, judged.reason.as_str(), place);
        let problems = snapshot.injector.problems();
        if let Some((_, problem)) = problems.into_iter().find(|(server, _)| *server == self.name) {
            checks.note(Check::Credential, CheckStatus::Failed, "credential_unavailable", problem.outside());
            return None;
        }
        checks.pass(Check::Credential, if self.bound { "" } else { "none_needed" });
        let url = target.to_string().parse().ok()?;
        Some((url, target.scheme() == Scheme::Https))
    }

    fn evidence(
        &self,
        checks: Checks,
        findings: probe::Findings,
        began: Option<SystemTime>,
        took: Duration,
    ) -> ServerEvidence {
        let (status, reason) = checks.sum();
        ServerEvidence {
            server: self.name.to_string(),
            url: self.url_without_query(),
            constraint: ProtocolConstraint { revision: self.mode.pinned(), transport: self.transport() },
            started_at: began.map(super::board::timestamp),
            checked_at_seconds: began
                .map_or(0.0, |began| began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()),
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            checks: checks.into_vec(),
            declared_capabilities: probe::declared(self.elicitation),
            tools: findings.tools,
            tools_digest: findings.tools_digest,
            capability: Capability {
                name: format!("mcp:{}", self.name),
                status,
                reason,
                detected_version: findings.detected_version,
                protocol_version: findings.revision,
                transport: Some(self.transport()),
            },
        }
    }
}
