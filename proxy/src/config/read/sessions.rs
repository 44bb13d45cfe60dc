//! `[sessions]`: how many there may be and for how long, and what `exeat run` closes in.

use std::ops::RangeInclusive;
use std::time::Duration;

use exeat_policy::doc::{Field, Fields, Spanned};

use super::{Layer, duration, set};
use crate::config::{Isolate, Sessions};

/// From a time in which something can be done to a month.
pub(super) const TTL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(31 * 24 * 3600);

pub(super) fn sessions(mut fields: Fields<'_>, layer: &Layer<'_>, to: &mut Sessions) {
    set(&mut to.max, fields.integer("max", 0..=10_000));
    for (key, time) in [("ttl", &mut to.ttl), ("max_ttl", &mut to.max_ttl)] {
        if let Some(written) = fields.take(key).and_then(|field| duration::field(&field, &TTL)) {
            *time = written;
        }
    }
    let words = [("auto", Isolate::Auto), ("require", Isolate::Require), ("off", Isolate::Off)];
    set(&mut to.isolate, fields.word("isolate", &words));
    if let Some(ports) = fields.take("catch").and_then(Field::items) {
        to.catch = ports.filter_map(|port| port.integer(1..=u16::MAX)).map(Spanned::into_value).collect();
    }
    if let Some(sockets) = fields.take("sockets").and_then(|field| layer.paths(field)) {
        to.sockets = sockets;
    }
    fields.finish();
}
