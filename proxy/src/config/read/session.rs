//! What is bound for one session, in the words of `[bindings]`, by who creates it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use exeat_policy::diag::Code;
use exeat_policy::doc::{Field, Fields, Spanned, Value};
use http::HeaderValue;
use secrecy::SecretString;

use super::sessions::TTL;
use super::{Layer, credentials, duration, refuse};
use crate::config::Binding;

/// The bindings of one session.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    /// Those that say where a value comes from.
    pub(crate) sources: BTreeMap<String, Binding>,
    /// Values themselves.
    pub(crate) values: BTreeMap<String, SecretString>,
}

/// Reads the bindings of a session: those of the config, and `{ "value": "…" }` for a value that is kept nowhere else.
pub(crate) fn bindings(fields: Fields<'_>) -> Bound {
    let layer = Layer { problems: fields.problems(), folder: Path::new("") };
    let mut bound = Bound::default();
    for (name, field) in fields.rest() {
        match value(&field) {
            Some(value) => {
                if credentials::is_name(&name, &layer)
                    && let Some(value) = given(value)
                {
                    bound.values.insert(name.value, value);
                }
            }
            None => credentials::bind(name, field, &layer, &mut bound.sources),
        }
    }
    bound
}

/// The value itself, where that is what is written.
fn value<'d>(field: &Field<'d>) -> Option<Field<'d>> {
    if !matches!(field.node().value, Value::Table(_)) {
        return None;
    }
    let mut fields = field.clone().fields()?;
    if !fields.has("value") {
        return None;
    }
    let value = fields.take("value");
    fields.finish();
    value
}

/// Takes a value over, and shows it to nobody.
fn given(field: Field<'_>) -> Option<SecretString> {
    let Spanned { value, .. } = field.str()?;
    if value.trim().is_empty() || HeaderValue::from_str(value).is_err() {
        let help = "write one line of text, without control characters";
        refuse(&field, Code::BadValue, "the value cannot stand in a header field", help);
        return None;
    }
    Some(SecretString::from(value))
}

/// Reads how long a session lasts.
pub(crate) fn time(field: &Field<'_>) -> Option<Duration> {
    duration::field(field, &TTL)
}
