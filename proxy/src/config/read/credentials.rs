//! `[bindings]`, `[catalog.NAME]` and `[[inject]]`: secrets, and where they are put.

use std::collections::BTreeMap;
use std::sync::Arc;

use exeat_policy::diag::Code;
use exeat_policy::doc::{Field, Fields, Spanned, Value, quoted};
use exeat_policy::manifest::{AuthMode, Header, HeaderValueSpec, credential_over_http, headers, server_url};
use exeat_policy::pattern::Pattern;
use http::HeaderName;

use super::{Layer, refuse, sources};
use crate::config::{Binding, CatalogEntry, Encoded, Inject, Redact, RedactKeys, RedactScope};

pub(super) fn bindings(fields: Fields<'_>, layer: &Layer<'_>, to: &mut BTreeMap<String, Binding>) {
    for (name, field) in fields.rest() {
        bind(name, field, layer, to);
    }
}

/// Reads one binding.
pub(super) fn bind(name: Spanned<String>, field: Field<'_>, layer: &Layer<'_>, to: &mut BTreeMap<String, Binding>) {
    let good = is_name(&name, layer);
    let Some(binding) = sources::binding(field.clone(), layer).filter(|_| good) else { return };
    if let Some(other) = shares_store(&name.value, &binding, to) {
        let message = format!("{}: the store is that of {} too", quoted(field.path()), quoted(other));
        layer.problems.report(Code::BadValue, name.span, message, "give each binding a file of its own");
        return;
    }
    to.insert(name.value, binding);
}

/// Whether a binding may be called so; what may not is reported.
pub(super) fn is_name(name: &Spanned<String>, layer: &Layer<'_>) -> bool {
    let good = !name.value.is_empty() && name.value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !good {
        let message = format!("the name of a binding is letters, digits and `_`, found {}", quoted(&name.value));
        let help = "write the NAME of the placeholder ${NAME}";
        layer.problems.report(Code::BadValue, name.span, message, help);
    }
    good
}

/// The other binding that keeps its refresh tokens in the same file: either would overwrite what the other needs.
fn shares_store<'b>(name: &str, binding: &Binding, others: &'b BTreeMap<String, Binding>) -> Option<&'b str> {
    let store = binding.store()?;
    let other = others.iter().find(|(other, binding)| *other != name && binding.store() == Some(store));
    other.map(|(other, _)| other.as_str())
}

pub(super) fn catalog(fields: Fields<'_>, layer: &Layer<'_>, to: &mut BTreeMap<String, CatalogEntry>) {
    for (name, field) in fields.rest() {
        if name.value.is_empty() {
            let help = "write the NAME of `use = \"catalog:NAME\"`";
            layer.problems.report(Code::BadValue, name.span, "an entry of the catalog has no name", help);
        }
        let Some(fields) = field.fields() else { continue };
        let earlier = to.get(&name.value);
        if let Some(entry) = catalog_entry(fields, layer, earlier) {
            to.insert(name.value, entry);
        }
    }
}

/// Reads an entry; keys that are not written stay as an earlier layer left them.
fn catalog_entry(mut fields: Fields<'_>, layer: &Layer<'_>, earlier: Option<&CatalogEntry>) -> Option<CatalogEntry> {
    const AUTH_MODES: [(&str, AuthMode); 3] =
        [("none", AuthMode::None), ("api_key", AuthMode::ApiKey), ("oauth", AuthMode::OAuth)];
    let url_field = if earlier.is_some() { fields.take("url") } else { fields.required("url") };
    let url = url_field.and_then(|field| server_url(&field));
    let auth_mode = fields.word("auth_mode", &AUTH_MODES).map(Spanned::into_value);
    let written = fields.take("headers").map(headers);
    let redact = earlier.map(|entry| entry.redact).unwrap_or_default().under(redact(&mut fields));
    if let (Some(url), Some(headers)) = (&url, &written) {
        credential_over_http(url, headers, &fields);
    }
    fields.finish();
    let mut entry = match (url, earlier) {
        (Some(url), earlier) => CatalogEntry {
            url: url.map(String::from),
            source: Arc::clone(layer.problems.source()),
            auth_mode: earlier.and_then(|entry| entry.auth_mode),
            headers: earlier.map(|entry| entry.headers.clone()).unwrap_or_default(),
            redact,
        },
        (None, earlier) => earlier?.clone(),
    };
    entry.auth_mode = auth_mode.or(entry.auth_mode);
    entry.redact = redact;
    if let Some(written) = written {
        entry.headers = typed(&written);
    }
    Some(entry)
}

/// Reads what of answers is searched.
pub(super) fn redact(fields: &mut Fields<'_>) -> RedactKeys {
    const SCOPES: [(&str, RedactScope); 3] =
        [("headers", RedactScope::Headers), ("body", RedactScope::Body), ("off", RedactScope::Off)];
    const ENCODED: [(&str, Encoded); 2] = [("withhold", Encoded::Withhold), ("pass", Encoded::Pass)];
    RedactKeys {
        scope: fields.word("redact", &SCOPES).map(Spanned::into_value),
        encoded: fields.word("redact_encoded", &ENCODED).map(Spanned::into_value),
    }
}

pub(super) fn inject(list: Field<'_>, layer: &Layer<'_>) -> Vec<Inject> {
    let items = list.items().into_iter().flatten().filter_map(Field::fields);
    items.filter_map(|fields| inject_entry(fields, layer)).collect()
}

fn inject_entry(mut fields: Fields<'_>, layer: &Layer<'_>) -> Option<Inject> {
    let url_field = fields.required("url");
    let prefix = url_field.as_ref().and_then(url_prefix);
    let headers_field = fields.required("headers");
    let redact = Redact::default().under(redact(&mut fields));
    let written = headers_field.clone().map(headers);
    if let Some(field) = headers_field.filter(|field| field.node().value == Value::Table(Vec::new())) {
        let help = "write at least one field, such as { Authorization = \"${NAME}\" }";
        refuse(&field, Code::BadValue, "expected header fields, found none", help);
    }
    // A prefix is a URL too; reading it as one finds what only the server's URL is asked.
    let url = url_field.filter(|_| prefix.is_some()).and_then(|field| server_url(&field));
    if let (Some(url), Some(headers)) = (&url, &written) {
        credential_over_http(url, headers, &fields);
    }
    fields.finish();
    let url = url.and_then(|url| Some(Spanned::new(prefix?, url.span)))?;
    Some(Inject { url, source: Arc::clone(layer.problems.source()), headers: typed(&written?), redact })
}

/// Reads a URL prefix in its canonical spelling; patterns of other kinds are reported.
fn url_prefix(field: &Field<'_>) -> Option<String> {
    let text = field.str()?.value;
    match Pattern::parse(text) {
        Ok(pattern @ Pattern::Prefix(_)) => Some(pattern.to_string()),
        Ok(pattern) => {
            let message = format!("expected a URL prefix, found {} without scheme and path", quoted(text));
            refuse(field, Code::InjectUrl, message, format!("write `https://{}/`", pattern.host()));
            None
        }
        Err(error) => {
            refuse(field, Code::InjectUrl, &error.message, error.help.clone());
            None
        }
    }
}

/// The fields in the type that requests carry.
fn typed(headers: &[Header]) -> Vec<(HeaderName, HeaderValueSpec)> {
    // The manifest's names are lower-case tokens, which is what `http` takes.
    let name = |header: &Header| HeaderName::from_bytes(header.name.value.as_str().as_bytes()).ok();
    headers.iter().filter_map(|header| Some((name(header)?, header.value.value.clone()))).collect()
}
