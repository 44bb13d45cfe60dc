//! Tunnels: judged by host and port, opened blind or to be inspected, and asked about again when the policy changes.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exeat_policy::Reason;
use exeat_policy::host::Host;
use exeat_policy::target::{Authority, Target};
use http::{Method, Response};
use hyper::ext::ReasonPhrase;

use super::refusal::{Leaving, Refusal, Subject};
use super::{Blind, Caller, Gate, Inspect, Slot, Switch};
use crate::audit::{AskedFor, Outcome};
use crate::auth::Account;
use crate::client::Client;
use crate::listener::http1::{Reply, ResponseBody};
use crate::metrics::TunnelResult;
use crate::permit::{self, Judged, Passage};
use crate::respond::EXEAT_REASON;
use crate::snapshot::Snapshot;
use crate::tunnel::{Cause, Kind, NameCheck};

impl Gate {
    /// Judges a CONNECT and opens the tunnel if it may be.
    pub(crate) async fn tunnel(self: &Arc<Self>, caller: Caller, authority: Authority) -> Reply<Switch> {
        match self.open_or(&caller, &authority, |subject, refusal| self.explain(subject, refusal)).await {
            Ok(switch) => Reply::Switch(established(), switch),
            Err(mut response) => {
                name_reason(&mut response);
                Reply::Response(response)
            }
        }
    }

    /// Judges a tunnel that was asked for in another protocol than HTTP, and opens it if it may be.
    ///
    /// # Errors
    /// Why it may not or cannot be opened; that has been taken down.
    pub(crate) async fn tunnel_or_reason(
        self: &Arc<Self>,
        caller: &Caller,
        authority: &Authority,
    ) -> Result<Switch, Reason> {
        self.open_or(caller, authority, |_, refusal| refusal.reason).await
    }

    /// Judges a tunnel, opens it if it may be, and takes down what became of it.
    async fn open_or<E>(
        self: &Arc<Self>,
        caller: &Caller,
        authority: &Authority,
        explain: impl FnOnce(&Subject<'_>, Refusal) -> E,
    ) -> Result<Switch, E> {
        let began = Instant::now();
        let snapshot = self.current.get();
        let Judged { leave, reason, rule, layer } = judge(&snapshot, authority);
        if !caller.is_self_test() {
            self.metrics.decision_seconds.observe(began.elapsed().as_secs_f64());
        }
        let subject = Subject {
            caller,
            snapshot: &snapshot,
            method: Method::CONNECT.as_str(),
            url: authority,
            target: AskedFor::Authority(authority),
            rule,
            layer,
            server: None,
            pattern: Some(&WholeHost(authority.host())),
        };
        let kind = match &leave {
            Some(Passage::Inspect) => Kind::Inspected,
            _ => Kind::Blind,
        };
        let opened = match (self.session.take(), leave) {
            (Err(limit), _) => Err(limit.into()),
            (Ok(()), None) => Err(Refusal::from(reason)),
            (Ok(()), Some(passage)) => {
                let owed = self.owe(&subject, reason);
                let opened = self.open(&snapshot, &caller.client, authority, passage).await;
                owed.settle();
                opened
            }
        };
        let refusal = match opened {
            Ok(mut switch) => {
                let upstream = match &switch {
                    Switch::Blind(blind) => blind.peer,
                    Switch::Inspect(_) | Switch::Upgraded(_) => None,
                };
                let leaving = Leaving { upstream, tunnel: Some(kind), ..Leaving::default() };
                match self.permitted(&subject, reason, &leaving).await {
                    Ok(end) => {
                        switch.end_with(end);
                        self.metrics.count_tunnel(kind, TunnelResult::Opened);
                        return Ok(switch);
                    }
                    Err(refusal) => refusal,
                }
            }
            Err(refusal) => {
                self.turned_away(&subject, &refusal);
                refusal
            }
        };
        let result = match Outcome::of(refusal.reason) {
            Outcome::Error => TunnelResult::Failed,
            Outcome::Allow | Outcome::Report | Outcome::Deny => TunnelResult::Refused,
        };
        if !caller.is_self_test() {
            self.metrics.count_tunnel(kind, result);
        }
        Err(explain(&subject, refusal))
    }

    async fn open(
        self: &Arc<Self>,
        snapshot: &Snapshot,
        client: &Client,
        authority: &Authority,
        passage: Passage,
    ) -> Result<Switch, Refusal> {
        match passage {
            Passage::Inspect if !snapshot.config.intercept.enabled => Err(Reason::InspectOff.into()),
            Passage::Inspect => {
                let (gate, slot) = (Arc::clone(self), self.slot()?);
                let (authority, client) = (authority.clone(), client.clone());
                Ok(Switch::Inspect(Box::new(Inspect { gate, authority, client, slot, ending: None })))
            }
            Passage::Blind { permit, tls_only } => {
                let slot = self.slot()?;
                let upstream = self.upstream.dial(&snapshot.route, &permit).await?;
                let check = NameCheck::new(authority.host().clone(), snapshot.config.intercept.sni_check, tls_only);
                let (authority, account) = (authority.clone(), client.account.clone());
                let (gate, peer) = (Arc::clone(self), upstream.peer_addr().ok());
                let blind = Blind { gate, authority, upstream, peer, check, account, slot, ending: None };
                Ok(Switch::Blind(Box::new(blind)))
            }
        }
    }

    /// A place among the tunnels.
    pub(super) fn slot(&self) -> Result<Slot, Refusal> {
        let of_session = self.session.quota().map_or(Ok(None), |quota| quota.tunnel())?;
        let of_all = Arc::clone(&self.tunnel_slots).try_acquire_owned().map_err(|_| Reason::TunnelLimit)?;
        Ok(Slot { _of_all: of_all, _of_session: of_session })
    }

    /// Resolves when a blind tunnel has to end: the policy no longer permits it as it is, the guard no longer lets its
    /// upstream's `address` be reached, `account` no longer lets a client in, or the gateway goes down.
    pub(crate) fn blind_tunnel_ends<'a>(
        &'a self,
        authority: &'a Authority,
        address: Option<IpAddr>,
        account: Option<&'a Account>,
    ) -> impl Future<Output = Cause> + 'a {
        self.ends(move |snapshot| {
            let permitted = matches!(judge(snapshot, authority).leave, Some(Passage::Blind { .. }));
            objection(snapshot, authority, address, account, permitted)
        })
    }

    /// Resolves when an upgraded connection has to end, for the same reasons.
    pub(crate) fn upgraded_ends<'a>(
        &'a self,
        target: &'a Target,
        address: Option<IpAddr>,
        account: Option<&'a Account>,
    ) -> impl Future<Output = Cause> + 'a {
        self.ends(move |snapshot| {
            let permitted =
                permit::request(&snapshot.policy, snapshot.mode(), &snapshot.route.guard, target).leave.is_some();
            objection(snapshot, target.authority(), address, account, permitted)
        })
    }

    /// Resolves when `account` no longer lets a client in, or the session has ended.
    pub(crate) async fn revoked(&self, account: Option<&Account>) {
        let mut generation = self.current.watch();
        while !self.session.has_ended() && self.current.get().accounts.admit(account) {
            if generation.changed().await.is_err() {
                return;
            }
        }
    }

    /// Resolves when the gateway goes down, the session ends, or a snapshot comes into force under which there is an
    /// objection.
    async fn ends(&self, objection: impl Fn(&Snapshot) -> Option<Cause>) -> Cause {
        let mut generation = self.current.watch();
        let mut drain = self.drain.clone();
        // A snapshot that came in between the judgement and this watch is asked about at once.
        generation.mark_changed();
        loop {
            tokio::select! {
                changed = generation.changed() => {
                    if changed.is_err() {
                        return Cause::Drained;
                    }
                    if self.session.has_ended() {
                        return Cause::Revoked;
                    }
                    if let Some(cause) = objection(&self.current.get()) {
                        return cause;
                    }
                }
                () = drain.begun() => {
                    tokio::time::sleep(self.tunnel_grace()).await;
                    return Cause::Drained;
                }
            }
        }
    }

    /// How long a tunnel may go on while the gateway goes down: a little less than the shutdown waits.
    fn tunnel_grace(&self) -> Duration {
        self.current.get().config.limits.drain_time.mul_f32(0.9)
    }
}

/// Why what was opened under an earlier snapshot would not be opened under this one.
fn objection(
    snapshot: &Snapshot,
    authority: &Authority,
    address: Option<IpAddr>,
    account: Option<&Account>,
    permitted: bool,
) -> Option<Cause> {
    if !snapshot.accounts.admit(account) {
        return Some(Cause::Revoked);
    }
    let reaches = address.is_some_and(|address| snapshot.route.still_reaches(authority, address));
    (!permitted || !reaches).then_some(Cause::PolicyChanged)
}

pub(super) fn judge<'s>(snapshot: &'s Snapshot, authority: &Authority) -> Judged<'s, Passage> {
    let concerned = snapshot.injector.concerns(authority) || snapshot.mcp.concerns(authority);
    permit::tunnel(&snapshot.policy, snapshot.mode(), &snapshot.route.guard, authority, concerned)
}

/// The pattern that would permit a tunnel.
struct WholeHost<'a>(&'a Host);

impl fmt::Display for WholeHost<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (the whole host) or a URL prefix of it", self.0.as_str())
    }
}

/// Puts the reason into the status line: of a refused CONNECT many clients show nothing else.
fn name_reason(response: &mut Response<ResponseBody>) {
    let reason = response.headers().get(EXEAT_REASON).and_then(|reason| reason.to_str().ok());
    let phrase = format!("exeat: {}", reason.unwrap_or_default());
    if let Ok(phrase) = ReasonPhrase::try_from(phrase.as_bytes()) {
        response.extensions_mut().insert(phrase);
    }
}

fn established() -> Response<()> {
    let mut response = Response::new(());
    response.extensions_mut().insert(ReasonPhrase::from_static(b"Connection established"));
    response
}
