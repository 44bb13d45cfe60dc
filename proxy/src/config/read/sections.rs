//! `[policy]`, `[intercept]` and `[guard]`.

use exeat_policy::diag::Code;
use exeat_policy::doc::{Field, Fields, Spanned, Value};
use exeat_policy::guard::{GrantError, Grants};
use exeat_policy::policy::DefaultVerdict;

use super::{Layer, WrittenFile, refuse, set};
use crate::config::{GuardSection, Intercept, Mode, PolicySection, SniCheck};

pub(super) fn policy(mut fields: Fields<'_>, layer: &Layer<'_>, to: &mut PolicySection) {
    let verdicts = [("allow", DefaultVerdict::Allow), ("deny", DefaultVerdict::Deny)];
    set(&mut to.default, fields.word("default", &verdicts));
    set(&mut to.mode, fields.word("mode", &[("enforce", Mode::Enforce), ("report", Mode::Report)]));
    if let Some(manifests) = fields.take("manifests").and_then(|field| layer.paths(field)) {
        to.manifests = manifests;
    }
    set(&mut to.watch, fields.boolean("watch"));
    fields.finish();
}

/// Reads the section; the files of the CA are kept apart until all layers are read.
pub(super) fn intercept(
    mut fields: Fields<'_>,
    layer: &Layer<'_>,
    to: &mut Intercept,
    (cert, key): (&mut Option<WrittenFile>, &mut Option<WrittenFile>),
) {
    set(&mut to.enabled, fields.boolean("enabled"));
    for (name, file) in [("ca_cert", cert), ("ca_key", key)] {
        if let Some(field) = fields.take(name) {
            *file = Some(WrittenFile::read(field, layer));
        }
    }
    set(&mut to.sni_check, fields.take("sni_check").and_then(sni_check));
    fields.finish();
}

fn sni_check(field: Field<'_>) -> Option<Spanned<SniCheck>> {
    match field.node().value {
        Value::Bool(true) => Some(Spanned::new(SniCheck::Require, field.span())),
        Value::Bool(false) => Some(Spanned::new(SniCheck::Off, field.span())),
        _ => field.word(&[("require", SniCheck::Require), ("match", SniCheck::Match), ("off", SniCheck::Off)]),
    }
}

pub(super) fn guard(mut fields: Fields<'_>, to: &mut GuardSection) {
    if let Some(entries) = fields.take("allow").and_then(Field::items) {
        to.allow = grants(entries);
    }
    if let Some(ports) = fields.take("blocked_ports").and_then(Field::items) {
        to.blocked_ports = ports.filter_map(|port| port.integer(1..=u16::MAX)).map(Spanned::into_value).collect();
    }
    fields.finish();
}

fn grants<'d>(entries: impl Iterator<Item = Field<'d>>) -> Grants {
    let mut grants = Grants::default();
    for entry in entries {
        let Some(text) = entry.str() else { continue };
        if let Err(error) = grants.add(text.value) {
            let help = grant_help(&error);
            refuse(&entry, Code::Grant, error, help);
        }
    }
    grants
}

fn grant_help(error: &GrantError) -> String {
    match error {
        GrantError::Metadata | GrantError::Global(_) => "remove it".to_owned(),
        GrantError::HostBits { range, .. } => format!("write \"{range}\""),
        GrantError::TooWide(_) => "write each range, such as \"10.0.0.0/8\", or class, such as \"private\"".to_owned(),
        GrantError::Mapped(_) => "write it as IPv4, such as \"127.0.0.1\"".to_owned(),
        GrantError::Unreadable(_) => {
            "write an address, a range such as \"10.1.0.0/16\", or a class such as \"loopback\"".to_owned()
        }
    }
}
