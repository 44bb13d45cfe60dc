//! The metrics, by name. No other module knows one.
//!
//! Label values come from closed lists, and every series exists from the start with its zero, so that a rate is right
//! from the first event on and the number of series never grows with traffic.

mod rules;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use exeat_policy::Reason;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{
    Encoder as _, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use crate::audit::{Entry, Outcome};
use crate::config::Mode;
use crate::evidence::must_deny::Way;
use crate::evidence::report::{Capability, CheckStatus, Evidence, Status};
use crate::hits::RuleHits;
use crate::quota::Limit;
use crate::tunnel::{Cause, Kind};

/// Why something is denied by policy alone, so that it goes out where the gateway only reports.
const REPORTED: [Reason; 3] = [Reason::DefaultDeny, Reason::NotAllowed, Reason::Blocked];

/// All metrics of one gateway.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    /// Held while series are replaced by others, so that nobody is shown half of them.
    replacing: Mutex<()>,
    requests: Vec<IntCounter>,
    reported: Vec<IntCounter>,
    pub(crate) decision_seconds: Histogram,
    pub(crate) request_seconds: Histogram,
    pub(crate) tunnels_active: IntGauge,
    tunnels: Vec<IntCounter>,
    tunnels_closed: Vec<IntCounter>,
    pub(crate) bytes_up: IntCounter,
    pub(crate) bytes_down: IntCounter,
    pub(crate) connections_active: IntGauge,
    tasks: IntGauge,
    injections: IntCounterVec,
    redactions: IntCounterVec,
    refreshes: IntCounterVec,
    expiries: IntGaugeVec,
    events: Vec<IntCounter>,
    policy_info: IntGaugeVec,
    rules: rules::RuleCollector,
    must_deny: IntGaugeVec,
    pub(crate) policy_generation: IntGauge,
    reload_success: IntCounter,
    reload_failure: IntCounter,
    pub(crate) ready: IntGauge,
    capability_status: IntGaugeVec,
    readiness: IntGauge,
    readiness_check: IntGaugeVec,
    readiness_time: GaugeVec,
    protocol_info: IntGaugeVec,
    pub(crate) sessions_active: IntGauge,
    sessions_ended: Vec<IntCounter>,
    session_limits: Vec<IntCounter>,
}

/// What stands in the place of names that come from sessions: there is no end to those.
pub(crate) const SESSION_LABEL: &str = "(session)";

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// Somebody ended it.
    Revoked,
    /// Its time was over.
    Expired,
}

impl SessionEnd {
    const ALL: [Self; 2] = [Self::Revoked, Self::Expired];

    /// The word in metrics and the log.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Revoked => "revoked",
            Self::Expired => "expired",
        }
    }
}

/// How a tunnel request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TunnelResult {
    /// It was opened.
    Opened,
    /// Policy, guard or a limit refused it.
    Refused,
    /// Upstream could not be reached.
    Failed,
}

impl TunnelResult {
    const ALL: [Self; 3] = [Self::Opened, Self::Refused, Self::Failed];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl Metrics {
    /// Registers everything; `servers` are the names of the manifest's MCP servers and injected prefixes.
    ///
    /// # Errors
    /// Two metrics of one name.
    pub(crate) fn new() -> prometheus::Result<Arc<Self>> {
        let registry = Registry::new_custom(Some("exeat".to_owned()), None)?;
        let requests = counters(
            &registry,
            "requests_total",
            "Decisions on requests and tunnels.",
            &["entry", "verdict", "reason"],
        )?;
        let series = |verdict: fn(Reason) -> Outcome, reasons: &[Reason]| -> Vec<IntCounter> {
            let pairs = Entry::ALL.iter().flat_map(|entry| reasons.iter().map(move |reason| (entry, *reason)));
            let labels = |(entry, reason): (&Entry, Reason)| {
                requests.with_label_values(&[entry.as_str(), verdict(reason).as_str(), reason.as_str()])
            };
            pairs.map(labels).collect()
        };
        let reported = series(Outcome::let_out, &REPORTED);
        let requests = series(Outcome::of, Reason::ALL);
        let tunnels = counters(&registry, "tunnels_total", "Tunnels asked for.", &["kind", "result"])?;
        let tunnels = Kind::ALL
            .iter()
            .flat_map(|kind| TunnelResult::ALL.map(|result| (kind, result)))
            .map(|(kind, result)| tunnels.with_label_values(&[kind.as_str(), result.as_str()]))
            .collect();
        let closed = counters(&registry, "tunnels_closed_total", "Tunnels that ended, by cause.", &["cause"])?;
        let closed = Cause::ALL.iter().map(|cause| closed.with_label_values(&[cause.as_str()])).collect();
        let events = counters(&registry, "audit_events_total", "Events, by what became of them.", &["result"])?;
        let events = EventResult::ALL.iter().map(|result| events.with_label_values(&[result.as_str()])).collect();
        let bytes = counters(&registry, "bytes_total", "Bytes relayed between clients and upstream.", &["direction"])?;
        let reloads = counters(&registry, "policy_reload_total", "Reloads of manifests and config.", &["result"])?;
        let sessions_ended = counters(&registry, "sessions_ended_total", "Sessions that ended, by cause.", &["cause"])?;
        let sessions_ended =
            SessionEnd::ALL.iter().map(|end| sessions_ended.with_label_values(&[end.as_str()])).collect();
        let session_limits = counters(
            &registry,
            "session_limits_total",
            "What was refused or closed because a session had reached a limit of its own.",
            &["limit"],
        )?;
        let session_limits =
            Limit::ALL.iter().map(|limit| session_limits.with_label_values(&[limit.as_str()])).collect();
        let build = gauges(&registry, "build_info", "The gateway's version; always 1.", &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Ok(Arc::new(Self {
            requests,
            reported,
            decision_seconds: histogram(
                &registry,
                "decision_seconds",
                "Time to decide by policy, without resolving or dialling.",
                &[1e-7, 2.5e-7, 5e-7, 1e-6, 2.5e-6, 5e-6, 1e-5, 1e-4, 1e-3],
            )?,
            request_seconds: histogram(
                &registry,
                "request_seconds",
                "Time from a request's head to the head of its answer.",
                &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0],
            )?,
            tunnels_active: gauge(&registry, "tunnels_active", "Tunnels that are open.")?,
            tunnels,
            tunnels_closed: closed,
            bytes_up: bytes.with_label_values(&["up"]),
            bytes_down: bytes.with_label_values(&["down"]),
            connections_active: gauge(&registry, "connections_active", "Client connections that are open.")?,
            tasks: gauge(&registry, "tasks", "Tasks of the gateway that have not ended.")?,
            injections: counters(
                &registry,
                "injections_total",
                "Requests that carry bound credentials.",
                &["server", "outcome"],
            )?,
            redactions: counters(
                &registry,
                "redactions_total",
                "Bound credentials that were taken out of answers, by where they stood, and answers withheld.",
                &["server", "place"],
            )?,
            refreshes: counters(
                &registry,
                "credential_refresh_total",
                "Attempts to mint the value of a binding.",
                &["binding", "outcome"],
            )?,
            expiries: gauges(
                &registry,
                "credential_expiry_timestamp_seconds",
                "When the minted value of a binding ends; 0 while there is none.",
                &["binding"],
            )?,
            events,
            rules: register(&registry, rules::RuleCollector::new()?)?,
            must_deny: gauges(
                &registry,
                "must_deny",
                "Whether a name that must never be let out is refused, by the way in that it was asked for at.",
                &["entry"],
            )?,
            policy_info: gauges(&registry, "policy_info", "The policy in force; always 1.", &["digest", "mode"])?,
            policy_generation: gauge(&registry, "policy_generation", "Counts the policies loaded since start.")?,
            reload_success: reloads.with_label_values(&["success"]),
            reload_failure: reloads.with_label_values(&["failure"]),
            ready: gauge(&registry, "ready", "Whether the gateway serves traffic.")?,
            capability_status: gauges(
                &registry,
                "capability_status",
                "What is to be expected of a capability: 1 for its status, 0 for the others.",
                &["capability", "status"],
            )?,
            readiness: gauge(&registry, "readiness", "Whether no capability of the manifests is unavailable.")?,
            readiness_check: gauges(
                &registry,
                "readiness_check",
                "How a check of a server went: 1 for its status, 0 for the others.",
                &["server", "check", "status"],
            )?,
            readiness_time: register(
                &registry,
                GaugeVec::new(
                    Opts::new("readiness_check_timestamp_seconds", "When a server was last checked; 0 for never."),
                    &["server"],
                )?,
            )?,
            protocol_info: gauges(
                &registry,
                "protocol_info",
                "The revision of MCP that a server was spoken to in; always 1.",
                &["server", "revision", "transport"],
            )?,
            sessions_active: gauge(&registry, "sessions_active", "Sessions beside the gateway's own.")?,
            sessions_ended,
            session_limits,
            replacing: Mutex::default(),
            registry,
        }))
    }

    /// Counts one decision.
    pub(crate) fn count_decision(&self, entry: Entry, outcome: Outcome, reason: Reason) {
        let counter = match (outcome, REPORTED.iter().position(|reported| *reported == reason)) {
            (Outcome::Report, Some(at)) => self.reported.get(entry.index() * REPORTED.len() + at),
            _ => self.requests.get(entry.index() * Reason::ALL.len() + reason.index()),
        };
        if let Some(counter) = counter {
            counter.inc();
        }
    }

    /// Counts events.
    pub(crate) fn count_events(&self, result: EventResult, number: u64) {
        if let Some(counter) = self.events.get(result as usize) {
            counter.inc_by(number);
        }
    }

    /// Counts one tunnel that was asked for.
    pub(crate) fn count_tunnel(&self, kind: Kind, result: TunnelResult) {
        if let Some(counter) = self.tunnels.get(kind as usize * TunnelResult::ALL.len() + result as usize) {
            counter.inc();
        }
    }

    /// Counts one tunnel that ended.
    pub(crate) fn count_closed(&self, cause: Cause) {
        if let Some(counter) = self.tunnels_closed.get(cause as usize) {
            counter.inc();
        }
    }

    /// Counts one session that ended.
    pub(crate) fn count_session_end(&self, end: SessionEnd) {
        if let Some(counter) = self.sessions_ended.get(end as usize) {
            counter.inc();
        }
    }

    /// Counts one time that a session reached a limit of its own.
    pub(crate) fn count_session_limit(&self, limit: Limit) {
        if let Some(counter) = self.session_limits.get(limit as usize) {
            counter.inc();
        }
    }

    /// Counts one request to a bound server.
    pub(crate) fn count_injection(&self, server: &str, injected: bool) {
        self.injections.with_label_values(&[server, injection_outcome(injected)]).inc();
    }

    /// The counter of what was taken out of answers of a server at a place.
    pub(crate) fn redactions(&self, server: &str, place: Place) -> IntCounter {
        self.redactions.with_label_values(&[server, place.as_str()])
    }

    /// Counts one attempt to mint the value of a binding.
    pub(crate) fn count_refresh(&self, binding: &str, success: bool) {
        self.refreshes.with_label_values(&[binding, success_or_failure(success)]).inc();
    }

    /// Shows when the value of a binding ends.
    pub(crate) fn show_expiry(&self, binding: &str, at: SystemTime) {
        let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.expiries.with_label_values(&[binding]).set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }

    /// Registers the bindings whose values are minted.
    pub(crate) fn register_minted<'b>(&self, bindings: impl Iterator<Item = &'b str>) {
        for binding in bindings {
            for success in [true, false] {
                self.refreshes.with_label_values(&[binding, success_or_failure(success)]);
            }
            self.expiries.with_label_values(&[binding]);
        }
    }

    /// Counts one reload.
    pub(crate) fn count_reload(&self, success: bool) {
        if success { self.reload_success.inc() } else { self.reload_failure.inc() }
    }

    /// Shows the policy in force, and registers the servers whose requests it injects into.
    pub(crate) fn show_policy<'s>(
        &self,
        generation: u64,
        digest: &str,
        mode: Mode,
        servers: impl Iterator<Item = &'s str>,
    ) {
        let _replacing = self.replacing();
        self.policy_info.reset();
        self.policy_info.with_label_values(&[digest, mode.as_str()]).set(1);
        self.policy_generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
        for server in servers {
            for injected in [true, false] {
                self.injections.with_label_values(&[server, injection_outcome(injected)]);
            }
            for place in Place::ALL {
                self.redactions.with_label_values(&[server, place.as_str()]);
            }
        }
    }

    /// Shows how often the rules in force have decided.
    pub(crate) fn show_rules(&self, hits: &Arc<RuleHits>) {
        self.rules.show(Arc::clone(hits));
    }

    /// Shows whether a way in refuses what it must.
    pub(crate) fn show_must_deny(&self, way: Way, refused: bool) {
        self.must_deny.with_label_values(&[way.as_str()]).set(i64::from(refused));
    }

    /// Shows evidence: each status as a set of series of which one is 1.
    pub(crate) fn show_evidence(&self, evidence: &Evidence) {
        let _replacing = self.replacing();
        self.readiness.set(i64::from(evidence.readiness.ready));
        self.capability_status.reset();
        for Capability { name, status, .. } in &evidence.readiness.capabilities {
            for other in Status::ALL {
                let series = self.capability_status.with_label_values(&[name, other.as_str()]);
                series.set(i64::from(other == *status));
            }
        }
        self.readiness_check.reset();
        self.readiness_time.reset();
        self.protocol_info.reset();
        for server in &evidence.servers {
            for result in &server.checks {
                for other in CheckStatus::ALL {
                    let labels = [&*server.server, result.check.as_str(), other.as_str()];
                    self.readiness_check.with_label_values(&labels).set(i64::from(other == result.status));
                }
            }
            self.readiness_time.with_label_values(&[&server.server]).set(server.checked_at_seconds);
            let Capability { protocol_version, transport, .. } = &server.capability;
            let revision = protocol_version.as_deref().unwrap_or("unknown");
            let labels = [&*server.server, revision, transport.unwrap_or("unknown")];
            self.protocol_info.with_label_values(&labels).set(1);
        }
    }

    /// All metrics in the text format of Prometheus.
    pub(crate) fn render(&self) -> Vec<u8> {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            self.tasks.set(i64::try_from(runtime.metrics().num_alive_tasks()).unwrap_or(i64::MAX));
        }
        let mut text = Vec::new();
        // Writing to memory fails only for a metric without a name, which registering refuses.
        let _ = TextEncoder::new().encode(&self.gather(), &mut text);
        text
    }

    fn gather(&self) -> Vec<MetricFamily> {
        let _replacing = self.replacing();
        self.registry.gather()
    }

    fn replacing(&self) -> MutexGuard<'_, ()> {
        self.replacing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventResult {
    /// It is in the file.
    Written,
    /// It is missing in the file.
    Dropped,
    /// It could not be written or synced, and what it was about did not happen.
    Failed,
}

impl EventResult {
    const ALL: [Self; 3] = [Self::Written, Self::Dropped, Self::Failed];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Dropped => "dropped",
            Self::Failed => "failed",
        }
    }
}

/// Where in an answer a credential stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the status line or a header field, of interim answers too.
    Header,
    /// In the body.
    Body,
    /// In a trailer field.
    Trailer,
    /// The answer was withheld, because its coding could not be searched.
    Withheld,
}

impl Place {
    const ALL: [Self; 4] = [Self::Header, Self::Body, Self::Trailer, Self::Withheld];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Body => "body",
            Self::Trailer => "trailer",
            Self::Withheld => "withheld",
        }
    }
}

const fn success_or_failure(success: bool) -> &'static str {
    if success { "success" } else { "failure" }
}

const fn injection_outcome(injected: bool) -> &'static str {
    if injected { "injected" } else { "refused" }
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> prometheus::Result<C> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntCounterVec> {
    register(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
}

fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
    register(registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
}

fn gauge(registry: &Registry, name: &str, help: &str) -> prometheus::Result<IntGauge> {
    register(registry, IntGauge::new(name, help)?)
}

fn histogram(registry: &Registry, name: &str, help: &str, buckets: &[f64]) -> prometheus::Result<Histogram> {
    register(registry, Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec()))?)
}
