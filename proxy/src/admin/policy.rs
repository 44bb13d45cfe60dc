//! `/v1/policy`: the policy in force, and how often each of its rules has decided.

use exeat_policy::ListKind;
use exeat_policy::policy::DefaultVerdict;
use http::StatusCode;
use serde::Serialize;

use super::answer::{self, Answer};
use super::query::Query;
use super::{Admin, Asked};
use crate::evidence::board::timestamp;
use crate::snapshot::Snapshot;
use crate::view::RuleView;

/// How many rules one answer holds at most, and if nothing is asked for.
const MOST: usize = 10_000;
const DEFAULT: usize = 1000;

#[derive(Serialize)]
struct PolicyView<'a> {
    digest: &'a str,
    generation: u64,
    /// `enforce`, or what else is made of the judgements.
    mode: &'static str,
    /// What happens where no layer restricts.
    default: &'static str,
    /// Whether TLS is intercepted where a rule needs it.
    intercepts: bool,
    /// The layers, outermost first.
    layers: Vec<LayerView<'a>>,
    /// Since when rules are counted.
    counted_since: String,
    /// How many rules there are, and how many have never decided.
    rule_count: usize,
    never_hit: usize,
    /// The rules from `offset` on, in the order of the layers and lists.
    offset: usize,
    rules: Vec<CountedRule<'a>>,
    servers: Vec<ServerView<'a>>,
}

#[derive(Serialize)]
struct LayerView<'a> {
    name: &'a str,
    allowed: usize,
    blocked: usize,
}

#[derive(Serialize)]
struct CountedRule<'a> {
    #[serde(flatten)]
    rule: RuleView<'a>,
    /// Position in its list, from 0: the label of its series.
    index: usize,
    /// How many decisions it made.
    hits: u64,
    /// When it made the last.
    last_hit: Option<String>,
}

#[derive(Serialize)]
struct ServerView<'a> {
    name: &'a str,
    url: Option<String>,
    /// Whether its requests are given a credential.
    bound: bool,
}

pub(super) fn answer(admin: &Admin, asked: &Asked) -> Answer {
    let read = Query::read(&asked.request, &["offset", "limit"])
        .and_then(|query| Ok((query.number("offset", 0, usize::MAX)?, query.number("limit", DEFAULT, MOST)?)));
    match read {
        Ok((offset, limit)) => answer::json(StatusCode::OK, &view(&admin.gate.current.get(), offset, limit)),
        Err(refused) => answer::problem(*refused),
    }
}

fn view(snapshot: &Snapshot, offset: usize, limit: usize) -> PolicyView<'_> {
    let Snapshot { policy, hits, config, servers, .. } = snapshot;
    PolicyView {
        digest: policy.digest(),
        generation: snapshot.generation,
        mode: snapshot.mode().as_str(),
        default: match policy.default_verdict() {
            DefaultVerdict::Allow => "allow",
            DefaultVerdict::Deny => "deny",
        },
        intercepts: config.intercept.enabled,
        layers: layers(snapshot),
        counted_since: timestamp(hits.since()),
        rule_count: policy.rule_count(),
        never_hit: (0..policy.rule_count()).filter(|number| hits.of(*number) == 0).count(),
        offset,
        rules: policy
            .rules()
            .skip(offset)
            .take(limit)
            .map(|rule| CountedRule {
                index: rule.index,
                hits: hits.of(rule.number),
                last_hit: hits.last(rule.number).map(timestamp),
                rule: RuleView::from(rule),
            })
            .collect(),
        servers: servers
            .iter()
            .map(|server| ServerView { name: &server.name, url: server.url_without_query(), bound: server.bound })
            .collect(),
    }
}

fn layers(snapshot: &Snapshot) -> Vec<LayerView<'_>> {
    let mut layers: Vec<LayerView<'_>> =
        snapshot.policy.layers().map(|name| LayerView { name, allowed: 0, blocked: 0 }).collect();
    for rule in snapshot.policy.rules() {
        if let Some(layer) = layers.get_mut(rule.layer_index) {
            match rule.list {
                ListKind::Allowed => layer.allowed += 1,
                ListKind::Blocked => layer.blocked += 1,
            }
        }
    }
    layers
}
