//! The three-valued decision about `host:port`.
//!
//! What a tunnel carries is not known when it is asked for: https in the usual case, plain http perhaps. So both are
//! measured: of the requests that http, and https, could make at that host and port, is every one permitted, some, or
//! none? The measure is exact. Allowed prefixes of several layers leave something in common if a prefix of one layer
//! lies under prefixes of all the others, and of that something survives unless a blocked prefix holds in it already.
//! It takes time in the number of the origin's rules, so it is taken when the policy is built; a decision combines
//! two measures:
//!
//! | https | http | verdict |
//! |---|---|---|
//! | every | every | permit |
//! | every | none | permit, for TLS only |
//! | none | none | deny |
//! | none, the whole https origin being blocked | any | deny |
//! | otherwise | | inspect |

use super::build::PathRule;
use super::index::{Extent, Found, NONE, Origin};
use super::{DefaultVerdict, Policy};
use crate::decision::{AuthorityDecision, AuthorityVerdict, ListKind};
use crate::path;
use crate::reason::Reason;
use crate::target::{Authority, Scheme};

impl Policy {
    /// What becomes of a tunnel to `authority`.
    ///
    /// Deny means that no request there is permitted, with one exception: a block of a whole https origin denies the
    /// tunnel to its port, even if plain http there would be permitted. Permit means that every request is, and
    /// permit-TLS that every https request is.
    #[must_use]
    pub fn decide_authority(&self, authority: &Authority) -> AuthorityDecision<'_> {
        let found = self.index.find(authority.host());
        let https = self.extent(&found, Scheme::Https, authority.port());
        let http = self.extent(&found, Scheme::Http, authority.port());
        match (https, http) {
            (Extent::Every(rule), Extent::Every(_)) => self.tunnel(AuthorityVerdict::Permit, rule),
            (Extent::BlockedOrigin(_), _) => self.no_tunnel(https),
            (Extent::Every(_), Extent::Some(rule)) => self.tunnel(AuthorityVerdict::Inspect, rule),
            (Extent::Every(rule), _) => self.tunnel(AuthorityVerdict::PermitTls, rule),
            (Extent::Some(rule), _) | (_, Extent::Some(rule) | Extent::Every(rule)) => {
                self.tunnel(AuthorityVerdict::Inspect, rule)
            }
            _ => self.no_tunnel(https),
        }
    }

    fn tunnel(&self, verdict: AuthorityVerdict, rule: u32) -> AuthorityDecision<'_> {
        let reason = if self.restricts() { Reason::Allowed } else { Reason::DefaultAllow };
        let rule = self.rule(rule as usize);
        AuthorityDecision { verdict, reason, rule, layer: rule.map(|rule| rule.layer) }
    }

    fn no_tunnel(&self, extent: Extent) -> AuthorityDecision<'_> {
        let (reason, rule, layer) = match extent {
            Extent::Blocked(rule) | Extent::BlockedOrigin(rule) => {
                let rule = self.rule(rule as usize);
                (Reason::Blocked, rule, rule.map(|rule| rule.layer))
            }
            Extent::NotAllowed(layer) => (Reason::NotAllowed, None, self.layer_name(layer)),
            Extent::DefaultDeny | Extent::Every(_) | Extent::Some(_) => (Reason::DefaultDeny, None, None),
        };
        AuthorityDecision { verdict: AuthorityVerdict::Deny, reason, rule, layer }
    }

    /// How many of the requests at a scheme and port are permitted.
    fn extent(&self, found: &Found, scheme: Scheme, port: u16) -> Extent {
        match self.index.origin(found.own, scheme, port) {
            Some(origin) => origin.extent,
            None => self.measure(found, scheme, port, None, &[]),
        }
    }

    /// Measures every origin; `rules` are their path rules, in the order of the origins.
    pub(super) fn measure_origins(&mut self, rules: &[&[PathRule]]) {
        for (at, rules) in rules.iter().enumerate() {
            let Some(origin) = self.index.origins.get(at) else { return };
            let found = self.index.found_of(origin.entry);
            let extent = self.measure(&found, origin.scheme, origin.port, Some(origin), rules);
            if let Some(origin) = self.index.origins.get_mut(at) {
                origin.extent = extent;
            }
        }
    }

    fn measure(&self, found: &Found, scheme: Scheme, port: u16, origin: Option<&Origin>, rules: &[PathRule]) -> Extent {
        let host = self.index.blocking_host(found);
        if host != NONE {
            return Extent::Blocked(host);
        }
        let views = found.views().filter_map(|view| self.index.origin(view, scheme, port));
        let sets = origin.into_iter().chain(views).flat_map(|origin| self.index.sets(origin));
        let blocked = sets.filter(|set| set.list == ListKind::Blocked);
        let first_blocking = |path: &[u8]| {
            blocked.clone().map(|set| self.index.prefixes.first_prefix(set.root, path)).min().unwrap_or(NONE)
        };
        let whole = first_blocking(b"/");
        if whole != NONE {
            return Extent::BlockedOrigin(whole);
        }
        let narrowing = blocked.clone().map(|set| set.first).min().unwrap_or(NONE);

        let covering = |layer: u32, path: &[u8]| {
            let set = origin.and_then(|origin| self.index.allowed_set(origin, layer));
            let path = set.map_or(NONE, |set| self.index.prefixes.first_allowed_prefix(set.root, path, &[]));
            self.index.allowing_host(found, layer).min(path)
        };
        // The first rule of the first layer that allows some paths only, and the rule of the last one that allows all.
        let mut partial = None;
        let mut allowing = NONE;
        for &layer in &self.restricting {
            allowing = covering(layer, b"/");
            if allowing == NONE {
                match origin.and_then(|origin| self.index.allowed_set(origin, layer)) {
                    None => return Extent::NotAllowed(layer),
                    Some(set) => partial = partial.or(Some(set.first)),
                }
            }
        }
        if !self.restricts() && self.default == DefaultVerdict::Deny {
            return Extent::DefaultDeny;
        }
        let Some(partial) = partial else {
            return if narrowing == NONE { Extent::Every(allowing) } else { Extent::Some(narrowing) };
        };

        // Whatever is permitted lies under a longest allowed prefix, which then is permitted itself.
        let mut blocking = NONE;
        let mut deepest = 0;
        for candidate in rules.iter().filter(|rule| rule.list() == ListKind::Allowed).map(PathRule::path) {
            let refusing = self.restricting.iter().position(|layer| covering(*layer, candidate) == NONE);
            if let Some(refusing) = refusing {
                deepest = deepest.max(refusing);
                continue;
            }
            let decoded = path::decoded(candidate);
            let rule = first_blocking(candidate).min(decoded.map_or(NONE, |decoded| first_blocking(&decoded)));
            if rule == NONE {
                return Extent::Some(if narrowing == NONE { partial } else { narrowing });
            }
            blocking = blocking.min(rule);
        }
        if blocking != NONE {
            return Extent::Blocked(blocking);
        }
        Extent::NotAllowed(self.restricting.get(deepest).copied().unwrap_or_default())
    }
}
