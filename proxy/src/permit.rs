//! Leave to use the network: a value that only the judgement in this module makes.
//!
//! Whatever dials takes a [`Permit`], so code that forgot to ask cannot be written. A permit names one origin, scheme,
//! host and port, and is good for that alone.

use exeat_policy::host::Host;
use exeat_policy::target::{Authority, Scheme, Target};
use exeat_policy::{AuthorityVerdict, Policy, Reason, RuleRef, Verdict};

use crate::config::Mode;
use crate::guard::Guard;

/// Where a permitted request or tunnel goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// The scheme; a tunnel counts as https.
    pub(crate) scheme: Scheme,
    /// The host.
    pub(crate) host: Host,
    /// The port.
    pub(crate) port: u16,
}

/// Leave to reach one origin.
#[derive(Debug)]
pub(crate) struct Permit {
    origin: Origin,
}

impl Permit {
    /// The origin it is good for.
    pub(crate) const fn origin(&self) -> &Origin {
        &self.origin
    }
}

/// A judgement: leave or refusal, and why. Leave for the reason of a denial is what is reported and not enforced.
#[derive(Debug)]
pub(crate) struct Judged<'p, P> {
    /// Leave, where it is given.
    pub(crate) leave: Option<P>,
    /// Why it is given or refused.
    pub(crate) reason: Reason,
    /// The rule that decided.
    pub(crate) rule: Option<RuleRef<'p>>,
    /// The layer that decided.
    pub(crate) layer: Option<&'p str>,
}

/// Leave for a tunnel.
#[derive(Debug)]
pub(crate) enum Passage {
    /// Its bytes may be relayed unread; with `tls_only`, if they open as TLS to the host.
    Blind { permit: Permit, tls_only: bool },
    /// Each request in it has to ask for its own leave.
    Inspect,
}

/// Whether a denial by rules counts. What only reports gives leave with the reason of the denial.
pub(crate) const fn is_waived(mode: Mode, reason: Reason) -> bool {
    matches!(mode, Mode::Report) && matches!(reason, Reason::DefaultDeny | Reason::NotAllowed | Reason::Blocked)
}

/// Judges a request by policy, port and name.
pub(crate) fn request<'p>(policy: &'p Policy, mode: Mode, guard: &Guard, target: &Target) -> Judged<'p, Permit> {
    let decision = policy.decide(target);
    let mut judged = Judged { leave: None, reason: decision.reason, rule: decision.rule, layer: decision.layer };
    if decision.verdict == Verdict::Allow || is_waived(mode, decision.reason) {
        match guard.check_name(target.host(), target.port()) {
            Ok(()) => judged.leave = Some(permit(target.scheme(), target.authority())),
            Err(reason) => judged.reason = reason,
        }
    }
    judged
}

/// Judges a tunnel by policy, port and name. `concerned` says that requests in it may need credentials, so that it
/// cannot stay blind.
pub(crate) fn tunnel<'p>(
    policy: &'p Policy,
    mode: Mode,
    guard: &Guard,
    authority: &Authority,
    concerned: bool,
) -> Judged<'p, Passage> {
    let decision = policy.decide_authority(authority);
    let mut judged = Judged { leave: None, reason: decision.reason, rule: decision.rule, layer: decision.layer };
    if decision.verdict == AuthorityVerdict::Deny && !is_waived(mode, decision.reason) {
        return judged;
    }
    if let Err(reason) = guard.check_name(authority.host(), authority.port()) {
        judged.reason = reason;
        return judged;
    }
    judged.leave = Some(match decision.verdict {
        // No request there is permitted: each would be reported, so that there is nothing to look for in it.
        AuthorityVerdict::Permit | AuthorityVerdict::PermitTls | AuthorityVerdict::Deny if !concerned => {
            Passage::Blind {
                permit: permit(Scheme::Https, authority),
                tls_only: decision.verdict == AuthorityVerdict::PermitTls,
            }
        }
        _ => Passage::Inspect,
    });
    judged
}

/// Leave for a call of the gateway's own, to a place that its config or an issuer that its config names. Manifests say
/// what an agent may reach and have no say in it; the guard lies below it all the same.
///
/// # Errors
/// The guard's reason.
pub(crate) fn own_call(guard: &Guard, target: &Target) -> Result<Permit, Reason> {
    guard.check_name(target.host(), target.port())?;
    Ok(permit(target.scheme(), target.authority()))
}

fn permit(scheme: Scheme, authority: &Authority) -> Permit {
    Permit { origin: Origin { scheme, host: authority.host().clone(), port: authority.port() } }
}
