//! The gateway's judgement without a network: policy, guard and injections as they are loaded for serving.
//!
//! Every command of the dry run judges here, by the functions that the gate calls, so that none of them has an opinion
//! of its own. What cannot be known without a network is which addresses a name has; fixed names of `[dns] hosts` and
//! address literals are judged.

use std::sync::Arc;

use exeat_policy::target::{Authority, Target, TargetError};
use exeat_policy::{AuthorityVerdict, Policy, Reason, RuleRef, Verdict};
use http::Method;

use crate::config::{Config, Mode};
use crate::credentials::Injector;
use crate::guard::{Guard, OwnListeners};
use crate::load::Loaded;
use crate::mcp::policy::Policies;
use crate::permit::{self, Judged, Passage};
use crate::snapshot::Snapshot;

/// What somebody wants judged.
#[derive(Debug)]
pub(crate) enum Asked {
    /// A request.
    Url(Target),
    /// A tunnel.
    Authority(Authority),
}

impl Asked {
    /// Reads a URL or `HOST:PORT`.
    ///
    /// # Errors
    /// What is wrong with it, as the one it was probably meant as.
    pub(crate) fn read(input: &str) -> Result<Self, TargetError> {
        if !input.contains("://") {
            match Authority::parse(input) {
                Ok(authority) => return Ok(Self::Authority(authority)),
                Err(error) if is_meant_as_authority(input) => return Err(error),
                Err(_) => {}
            }
        }
        Target::parse(input).map(Self::Url)
    }
}

/// Whether what stands before the first colon is a host and no scheme, or what stands behind it a port.
fn is_meant_as_authority(input: &str) -> bool {
    let Some((host, port)) = input.split_once(':') else { return false };
    host.contains(['.', '[']) || port.starts_with(|first: char| first.is_ascii_digit() || first == '+')
}

/// One judgement.
#[derive(Debug)]
pub(crate) struct Judgement<'j> {
    /// `allow` or `deny` for a request; `permit`, `inspect` or `deny` for a tunnel.
    pub(crate) verdict: &'static str,
    /// Why.
    pub(crate) reason: Reason,
    /// The rule that decided.
    pub(crate) rule: Option<RuleRef<'j>>,
    /// The layer that decided.
    pub(crate) layer: Option<&'j str>,
    /// The names of the fields that would be put on.
    pub(crate) inject: Vec<String>,
    /// What else there is to say to people.
    pub(crate) note: Option<String>,
}

impl Judgement<'_> {
    /// Whether it is a refusal.
    pub(crate) fn is_denied(&self) -> bool {
        self.verdict == Verdict::Deny.as_str()
    }

    /// The judgement of what cannot be read.
    pub(crate) fn unreadable(error: &TargetError) -> Self {
        let verdict = Verdict::Deny.as_str();
        Self {
            verdict,
            reason: error.reason(),
            rule: None,
            layer: None,
            inject: Vec::new(),
            note: Some(error.to_string()),
        }
    }
}

/// What is needed to judge.
#[derive(Debug)]
pub(crate) struct Judge {
    config: Config,
    policy: Policy,
    guard: Guard,
    injector: Injector,
    mcp: Policies,
    addresses: bool,
}

impl Judge {
    /// A judge by what was loaded. With `addresses`, the guard judges the addresses that are known.
    pub(crate) fn new(loaded: Loaded, addresses: bool) -> Self {
        let Loaded { config, policy, injections, mcp, .. } = loaded;
        let guard = Guard::new(config.guard.allow.clone(), config.guard.blocked_ports.clone(), OwnListeners::default());
        let injector = Injector::new(injections, Arc::default(), None);
        Self { guard, injector, mcp: Policies::new(mcp.policies), config, policy, addresses }
    }

    /// The policy that is judged by.
    pub(crate) const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Judges what was read.
    pub(crate) fn judge<'j>(&'j self, asked: &Result<Asked, TargetError>, method: &Method) -> Judgement<'j> {
        self.bench(&self.policy).judge(asked, method)
    }

    /// Judges a request by another policy than the loaded one, all else being equal.
    pub(crate) fn url<'j>(&'j self, policy: &'j Policy, target: &Target, method: &Method) -> Judgement<'j> {
        self.bench(policy).url(target, method)
    }

    /// Judges a tunnel by another policy than the loaded one, all else being equal.
    pub(crate) fn authority<'j>(&'j self, policy: &'j Policy, authority: &Authority) -> Judgement<'j> {
        self.bench(policy).authority(authority)
    }

    fn bench<'j>(&'j self, policy: &'j Policy) -> Bench<'j> {
        let Self { config, guard, injector, mcp, addresses, .. } = self;
        Bench { config, policy, guard, injector, mcp, addresses: *addresses }
    }
}

/// What is judged by, wherever it belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bench<'j> {
    config: &'j Config,
    policy: &'j Policy,
    guard: &'j Guard,
    injector: &'j Injector,
    mcp: &'j Policies,
    addresses: bool,
}

impl<'j> Bench<'j> {
    /// What a gateway judges by under a snapshot.
    pub(crate) fn of(snapshot: &'j Snapshot) -> Self {
        let Snapshot { config, policy, injector, mcp, .. } = snapshot;
        Self { config, policy, guard: &snapshot.route.guard, injector, mcp, addresses: true }
    }

    /// Judges what was read.
    pub(crate) fn judge(self, asked: &Result<Asked, TargetError>, method: &Method) -> Judgement<'j> {
        match asked {
            Ok(Asked::Url(target)) => self.url(target, method),
            Ok(Asked::Authority(authority)) => self.authority(authority),
            Err(error) => Judgement::unreadable(error),
        }
    }

    fn url(self, target: &Target, method: &Method) -> Judgement<'j> {
        let Judged { leave, mut reason, rule, layer } = permit::request(self.policy, Mode::Enforce, self.guard, target);
        let mut verdict = if leave.is_some() { Verdict::Allow } else { Verdict::Deny };
        let mut inject = Vec::new();
        let userinfo = target.had_userinfo().then(|| "userinfo ignored; the proxy refuses it".to_owned());
        let mut note = userinfo.or_else(|| lacking(rule, layer));
        if verdict == Verdict::Allow {
            let refused = self.address(target.authority()).err().map(|reason| (reason, None));
            let refused = refused.or_else(|| match self.injector.find(target, method) {
                Ok(injection) => {
                    inject = injection.map_or_else(Vec::new, |injection| injection.names().collect());
                    None
                }
                Err(error) => Some((error.reason, Some(error.detail))),
            });
            if let Some((why, detail)) = refused {
                (verdict, reason, note) = (Verdict::Deny, why, detail.or(note));
            }
        }
        let note = self.waived(reason).or(note);
        Judgement { verdict: verdict.as_str(), reason, rule, layer, inject, note }
    }

    fn authority(self, authority: &Authority) -> Judgement<'j> {
        let (bound, held) = (self.injector.concerns(authority), self.mcp.concerns(authority));
        let Judged { leave, reason, rule, layer } =
            permit::tunnel(self.policy, Mode::Enforce, self.guard, authority, bound || held);
        let (verdict, note) = match &leave {
            None => (AuthorityVerdict::Deny, lacking(rule, layer)),
            Some(Passage::Inspect) => {
                let why =
                    if bound { Some("credentials are put on") } else { held.then_some("MCP messages are judged") };
                (AuthorityVerdict::Inspect, why.map(str::to_owned))
            }
            Some(Passage::Blind { tls_only, .. }) => {
                (AuthorityVerdict::Permit, tls_only.then(|| "if it opens as TLS to the host".to_owned()))
            }
        };
        let refused = match verdict {
            AuthorityVerdict::Deny => None,
            AuthorityVerdict::Inspect if !self.config.intercept.enabled => Some(Reason::InspectOff),
            _ => self.address(authority).err(),
        };
        let (verdict, reason, note) = match refused {
            None => (verdict, reason, note),
            Some(why) => (AuthorityVerdict::Deny, why, None),
        };
        let note = self.waived(reason).or(note);
        Judgement { verdict: verdict.as_str(), reason, rule, layer, inject: Vec::new(), note }
    }

    /// What a gateway of this config makes of a denial for that reason, if it is not to enforce it. The verdict stays:
    /// it is what the rules say.
    fn waived(self, reason: Reason) -> Option<String> {
        let waived = permit::is_waived(self.config.policy.mode, reason);
        waived.then(|| "in report mode: the gateway lets it out without credentials, and reports it".to_owned())
    }

    /// Judges the addresses that are known without asking.
    fn address(self, authority: &Authority) -> Result<(), Reason> {
        if !self.addresses {
            return Ok(());
        }
        let host = authority.host();
        match host.ip() {
            Some(ip) => self.guard.check(&[ip], authority.port()),
            None => match self.config.dns.hosts.get(host.as_str()) {
                Some(known) => self.guard.check(known, authority.port()),
                None => return Ok(()),
            },
        }
        .map(|_| ())
        .map_err(|(reason, _)| reason)
    }
}

/// Which layer lacks a rule, where one does.
fn lacking(rule: Option<RuleRef<'_>>, layer: Option<&str>) -> Option<String> {
    layer.filter(|_| rule.is_none()).map(|layer| format!("the layer {layer:?} has no rule for it"))
}
