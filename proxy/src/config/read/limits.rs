//! `[limits]`.

use std::ops::RangeInclusive;
use std::time::Duration;

use exeat_policy::doc::Fields;

use super::{duration, set};
use crate::config::Limits;

/// From a size below which ordinary requests are refused to one that no client needs.
const HEADER_BYTES: RangeInclusive<usize> = 1_024..=1_048_576;
/// As many as a client may reasonably want on one connection.
const STREAMS: RangeInclusive<u32> = 1..=1_000;
const COUNT: RangeInclusive<usize> = 1..=1_048_576;
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest silence that Linux counts is 32,767 seconds.
const LONGEST_SILENCE: Duration = Duration::from_secs(60 * 60);

pub(super) fn limits(mut fields: Fields<'_>, to: &mut Limits) {
    set(&mut to.header_bytes, fields.integer("header_bytes", HEADER_BYTES));
    time(&mut fields, "header_timeout", SHORTEST, &mut to.header_time);
    time(&mut fields, "idle_timeout", SHORTEST, &mut to.idle);
    let mut keepalive = to.tcp_keepalive.unwrap_or_default();
    bounded(&mut fields, "tcp_keepalive", &(Duration::ZERO..=LONGEST_SILENCE), &mut keepalive);
    to.tcp_keepalive = (!keepalive.is_zero()).then_some(keepalive);
    time(&mut fields, "connect_timeout", SHORTEST, &mut to.connect_time);
    set(&mut to.connections, fields.integer("connections", COUNT));
    set(&mut to.streams, fields.integer("streams", STREAMS));
    set(&mut to.tunnels, fields.integer("tunnels", COUNT));
    let mut lifetime = to.tunnel_lifetime.unwrap_or_default();
    time(&mut fields, "tunnel_lifetime", Duration::ZERO, &mut lifetime);
    to.tunnel_lifetime = (!lifetime.is_zero()).then_some(lifetime);
    time(&mut fields, "drain_timeout", Duration::ZERO, &mut to.drain_time);
    fields.finish();
}

fn time(fields: &mut Fields<'_>, key: &'static str, shortest: Duration, to: &mut Duration) {
    bounded(fields, key, &(shortest..=LONGEST), to);
}

fn bounded(fields: &mut Fields<'_>, key: &'static str, range: &RangeInclusive<Duration>, to: &mut Duration) {
    if let Some(time) = fields.take(key).and_then(|field| duration::field(&field, range)) {
        *to = time;
    }
}
