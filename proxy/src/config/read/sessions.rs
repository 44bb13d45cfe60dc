//! `[sessions]`: what `exeat run` closes in.

use exeat_policy::doc::{Field, Fields, Spanned};

use super::{Layer, set};
use crate::config::{Isolate, Sessions};

pub(super) fn sessions(mut fields: Fields<'_>, layer: &Layer<'_>, to: &mut Sessions) {
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
