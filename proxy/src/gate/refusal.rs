//! A refusal on its way to becoming a record and an answer.

use std::fmt;
use std::net::SocketAddr;

use exeat_policy::target::TargetError;
use exeat_policy::{ListKind, Reason, RuleRef};
use http::{HeaderName, Response};

use super::{Caller, Gate};
use crate::audit::{AskedFor, Ending, Outcome, PolicyView, Record, Unrecorded};
use crate::credentials::InjectError;
use crate::listener::http1::ResponseBody;
use crate::quota::Limit;
use crate::respond::{Problem, ProblemPolicy};
use crate::snapshot::Snapshot;
use crate::tunnel::Kind;
use crate::upstream::Failure;

/// Why a request does not go out.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    /// What there is to say beyond the reason, fit for the client.
    pub(crate) outside: Option<String>,
    /// What there is to say to people with access to the log.
    pub(crate) inside: String,
}

impl Refusal {
    pub(crate) fn new(reason: Reason, detail: impl fmt::Display) -> Self {
        let detail = detail.to_string();
        Self { reason, outside: Some(detail.clone()), inside: detail }
    }
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self { reason, outside: None, inside: String::new() }
    }
}

impl From<Limit> for Refusal {
    fn from(limit: Limit) -> Self {
        Self::new(limit.reason(), format_args!("the session has reached its limit of {}", limit.as_str()))
    }
}

impl From<TargetError> for Refusal {
    /// A target that cannot be read is quoted to who sent it and not to the log: it may be anything, a secret included.
    fn from(error: TargetError) -> Self {
        let outside = error.to_string();
        let inside = outside.split(", found").next().unwrap_or_default().to_owned();
        Self { reason: error.reason(), outside: Some(outside), inside }
    }
}

impl From<Failure> for Refusal {
    fn from(Failure { reason, outside, inside }: Failure) -> Self {
        Self { reason, outside: Some(outside), inside }
    }
}

impl From<InjectError> for Refusal {
    fn from(InjectError { reason, detail, inside }: InjectError) -> Self {
        let inside = inside.unwrap_or_else(|| detail.clone());
        Self { reason, outside: Some(detail), inside }
    }
}

/// A request as the record and the answer speak of it.
pub(crate) struct Subject<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) method: &'a str,
    /// What was asked for, as the answer shows it.
    pub(crate) url: &'a (dyn fmt::Display + Sync),
    /// What was asked for, as records show it.
    pub(crate) target: AskedFor<'a>,
    pub(crate) rule: Option<RuleRef<'a>>,
    pub(crate) layer: Option<&'a str>,
    pub(crate) server: Option<&'a str>,
    /// The patterns that would permit it.
    pub(crate) pattern: Option<&'a (dyn fmt::Display + Sync)>,
}

impl<'a> Subject<'a> {
    /// The same once more, to speak of it otherwise.
    pub(super) const fn again(&self) -> Self {
        let Self { caller, snapshot, method, url, target, rule, layer, server, pattern } = *self;
        Self { caller, snapshot, method, url, target, rule, layer, server, pattern }
    }

    /// A request that could not be read far enough to be judged.
    pub(crate) fn unjudged(
        caller: &'a Caller,
        snapshot: &'a Snapshot,
        method: &'a str,
        shown: &'a (dyn fmt::Display + Sync),
    ) -> Self {
        Self {
            caller,
            snapshot,
            method,
            url: shown,
            target: AskedFor::Shown(shown),
            rule: None,
            layer: None,
            server: None,
            pattern: None,
        }
    }
}

/// How a permitted request leaves.
#[derive(Default)]
pub(super) struct Leaving<'a> {
    /// The names of the fields that were put on it.
    pub(super) injected: &'a [HeaderName],
    /// Where its connection leads.
    pub(super) upstream: Option<SocketAddr>,
    /// What it opens, if that is a tunnel.
    pub(super) tunnel: Option<Kind>,
}

/// A permitted request that has not been taken down yet. One whose client leaves while the way out is being made is
/// taken down all the same: its name may have been resolved, and its server dialled.
pub(super) struct Owed<'a, 's> {
    gate: &'a Gate,
    subject: &'a Subject<'s>,
    reason: Reason,
    settled: bool,
}

impl Owed<'_, '_> {
    /// The request will be taken down by who asked.
    pub(super) fn settle(mut self) {
        self.settled = true;
    }
}

impl Drop for Owed<'_, '_> {
    fn drop(&mut self) {
        if !self.settled {
            let outcome = Outcome::let_out(self.reason);
            let record = self.gate.record_of(self.subject, (outcome, self.reason), &Leaving::default());
            count_rule(self.subject);
            self.gate.audit.record(&Record { detail: "the client left before anything was sent", ..record });
        }
    }
}

impl Gate {
    /// Watches over the record of a permitted request until it is settled.
    pub(super) const fn owe<'a, 's>(&'a self, subject: &'a Subject<'s>, reason: Reason) -> Owed<'a, 's> {
        Owed { gate: self, subject, reason, settled: false }
    }

    /// Takes down that a request goes out. Only when that has been done may it.
    ///
    /// # Errors
    /// That could not be done; it has been taken down as far as it can be.
    pub(super) async fn permitted(
        &self,
        subject: &Subject<'_>,
        reason: Reason,
        leaving: &Leaving<'_>,
    ) -> Result<Option<Box<Ending>>, Refusal> {
        let record = self.record_of(subject, (Outcome::let_out(reason), reason), leaving);
        let permitted = self.audit.permit(&record).await.map_err(|unrecorded| {
            let refusal = Refusal::from(Reason::AuditUnavailable);
            if unrecorded == Unrecorded::NotWritten {
                self.turned_away(subject, &refusal);
            }
            refusal
        })?;
        count_rule(subject);
        Ok(permitted)
    }

    /// Takes a refusal down that is answered in no words, or in those of another protocol than HTTP.
    pub(crate) fn turned_away(&self, subject: &Subject<'_>, refusal: &Refusal) {
        if subject.caller.is_self_test() {
            return;
        }
        count_rule(subject);
        let outcome = Outcome::of(refusal.reason);
        let record = self.record_of(subject, (outcome, refusal.reason), &Leaving::default());
        self.audit.record(&Record { detail: &refusal.inside, ..record });
    }

    /// Takes a refusal down and answers it.
    pub(crate) fn refused(&self, subject: &Subject<'_>, refusal: Refusal) -> Response<ResponseBody> {
        self.turned_away(subject, &refusal);
        self.explain(subject, refusal)
    }

    /// Answers with what became of a request that was taken down already.
    pub(super) fn explain(&self, subject: &Subject<'_>, refusal: Refusal) -> Response<ResponseBody> {
        let Subject { snapshot, rule, layer, .. } = *subject;
        let mut problem = Problem::new(refusal.reason).with_rule(rule, layer);
        problem.detail = refusal.outside.unwrap_or(problem.detail);
        problem.url = Some(subject.url.to_string());
        problem.change = change(refusal.reason, subject);
        problem.policy = Some(ProblemPolicy { digest: snapshot.policy.digest(), generation: snapshot.generation });
        problem.into_response()
    }

    fn record_of<'r>(
        &'r self,
        subject: &Subject<'r>,
        (outcome, reason): (Outcome, Reason),
        leaving: &Leaving<'r>,
    ) -> Record<'r> {
        let Subject { caller, snapshot, method, target, rule, server, .. } = *subject;
        let Leaving { injected, upstream, tunnel } = *leaving;
        Record {
            entry: caller.entry,
            client: &caller.client,
            method,
            target,
            outcome,
            reason,
            rule,
            policy: PolicyView::of(snapshot),
            server,
            injected,
            upstream,
            tunnel,
            detail: "",
        }
    }
}

/// Counts the rule that decided, where one did.
fn count_rule(subject: &Subject<'_>) {
    if let Some(rule) = subject.rule {
        subject.snapshot.hits.count(rule);
    }
}

/// What would have to change for the request to pass.
fn change(reason: Reason, subject: &Subject<'_>) -> Option<String> {
    Some(match reason {
        Reason::NotAllowed => {
            let layer = subject.layer.unwrap_or("agent");
            format!("add {} to network_access.allowed of the layer {layer:?}", subject.pattern?)
        }
        Reason::Blocked => {
            let RuleRef { rule, layer, .. } = subject.rule.filter(|rule| rule.list == ListKind::Blocked)?;
            let exeat_policy::Rule { pattern, file, line, .. } = rule;
            format!("the rule {pattern:?} of the layer {layer:?} at {file}:{line} would have to go or be narrowed")
        }
        Reason::DefaultDeny => "name what may be reached in network_access.allowed of a manifest".to_owned(),
        Reason::GuardAddress => "the gateway's config would have to grant the address in [guard] allow".to_owned(),
        Reason::GuardPort => "the gateway's config would have to take the port off [guard] blocked_ports".to_owned(),
        Reason::InspectOff => {
            "the gateway's config would have to set [intercept] enabled = true, or a rule would have to permit the \
             whole host"
                .to_owned()
        }
        Reason::CredentialUnbound => "the gateway's config has to bind the credential in [bindings]".to_owned(),
        Reason::CredentialUnavailable => {
            "the source that the gateway's config names in [bindings] has to give a value".to_owned()
        }
        Reason::CredentialInsecure => "use https".to_owned(),
        Reason::AuditUnavailable => {
            "the file that the gateway's config names in [audit] events has to be writable, or on_full be \"drop\""
                .to_owned()
        }
        Reason::ProxyAuth => {
            "put name and password into the proxy's URL, as in http://NAME:PASSWORD@HOST:PORT".to_owned()
        }
        _ => return None,
    })
}
