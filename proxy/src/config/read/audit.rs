//! `[audit]`: what is kept of decisions.

use std::ops::RangeInclusive;

use exeat_policy::doc::Fields;

use super::{Layer, set};
use crate::config::{Audit, OnFull};

/// Up to a tebibyte.
const SIZE: RangeInclusive<u64> = 0..=1 << 40;
const FILES: RangeInclusive<u32> = 0..=1_000;

pub(super) fn audit(mut fields: Fields<'_>, layer: &Layer<'_>, to: &mut Audit) {
    if let Some(path) = fields.take("events").and_then(|field| layer.path(field)) {
        to.events = Some(path);
    }
    set(&mut to.on_full, fields.word("on_full", &[("block", OnFull::Block), ("drop", OnFull::Drop)]));
    set(&mut to.durable, fields.boolean("durable"));
    set(&mut to.max_size, fields.integer("max_size", SIZE));
    set(&mut to.keep, fields.integer("keep", FILES));
    set(&mut to.log, fields.boolean("log"));
    fields.finish();
}
