//! The sources of secrets: `env`, `file`, `command` and `oauth`.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use exeat_policy::diag::Code;
use exeat_policy::doc::{Field, Fields, Spanned, Value, quoted};

use super::{Layer, duration, oauth, refuse};
use crate::config::{Binding, CommandSource, SecretSource};

/// What a binding may look like, for help.
const BINDINGS: &str = "write { env = \"VARIABLE\" }, { file = \"path\" }, { command = [\"program\", \"argument\"] } or \
                        { oauth = { … } }";
/// What a secret may look like where nothing but a stored one is taken.
const SECRETS: &str = "write { env = \"VARIABLE\" } or { file = \"path\" }";

const TTL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 3600);
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(300);

/// Reads a binding: a table with exactly one source.
pub(super) fn binding(field: Field<'_>, layer: &Layer<'_>) -> Option<Binding> {
    let mut fields = table(&field, BINDINGS)?;
    let sources = [fields.take("env"), fields.take("file"), fields.take("command"), fields.take("oauth")];
    let of_command = match &sources {
        [_, _, Some(_), _] => Some([fields.take("ttl"), fields.take("timeout"), fields.take("pass_env")]),
        // They are keys of a command alone, and would be called unknown beside another source.
        _ => {
            for key in ["ttl", "timeout", "pass_env"] {
                beside_command(&mut fields, key);
            }
            None
        }
    };
    fields.finish();
    match (one(&field, sources, BINDINGS)?, of_command) {
        ((0, env), _) => variable(env).map(SecretSource::Env).map(Binding::Stored),
        ((1, file), _) => layer.path(file).map(SecretSource::File).map(Binding::Stored),
        ((2, argv), Some(of_command)) => command(argv, of_command, layer).map(Binding::Command),
        ((_, source), _) => oauth::source(source, layer).map(Box::new).map(Binding::OAuth),
    }
}

/// Reads the source of a secret that is only looked up.
pub(super) fn secret(field: Field<'_>, layer: &Layer<'_>) -> Option<SecretSource> {
    let mut fields = table(&field, SECRETS)?;
    let sources = [fields.take("env"), fields.take("file")];
    for source in ["command", "oauth"] {
        if let Some(taken) = fields.take_reserved(source) {
            let message = format!("{}: the source `{source}` is one for [bindings] alone", quoted(field.path()));
            layer.problems.report(Code::BindingSource, taken.key_span(), message, SECRETS);
            return None;
        }
    }
    fields.finish();
    match one(&field, sources, SECRETS)? {
        (0, env) => variable(env).map(SecretSource::Env),
        (_, file) => layer.path(file).map(SecretSource::File),
    }
}

/// The table of a source; a string in its place is most likely the secret itself, and is treated as one.
fn table<'d>(field: &Field<'d>, help: &str) -> Option<Fields<'d>> {
    let value = &field.node().value;
    if matches!(value, Value::Table(_)) {
        return field.clone().fields();
    }
    let code = if matches!(value, Value::String(_)) { Code::LiteralCredential } else { Code::WrongType };
    refuse(field, code, format!("expected a table with the source of the value, found {}", value.kind()), help);
    None
}

/// The one source that is written, with its place among `sources`.
fn one<'d, const N: usize>(
    field: &Field<'d>,
    sources: [Option<Field<'d>>; N],
    help: &str,
) -> Option<(usize, Field<'d>)> {
    let mut written = sources.into_iter().enumerate().filter_map(|(index, source)| Some((index, source?)));
    let found = match (written.next(), written.next()) {
        (Some(source), None) => return Some(source),
        (None, _) => "none",
        (Some(_), Some(_)) if written.next().is_none() => "two",
        _ => "more",
    };
    refuse(field, Code::BindingSource, format!("expected exactly one source, found {found}"), help);
    None
}

fn beside_command(fields: &mut Fields<'_>, key: &'static str) {
    if let Some(field) = fields.take(key) {
        let message = format!("{}: only a `command` has `{key}`", quoted(field.path()));
        field.problems().report(Code::BadValue, field.key_span(), message, format!("remove `{key}`"));
    }
}

/// Reads the name of an environment variable.
pub(super) fn variable(field: Field<'_>) -> Option<String> {
    let help = "write the variable's name alone, such as \"DOCS_AUTHORIZATION\"";
    let name = |text: &str| {
        let odd = |character: char| character.is_whitespace() || character.is_control() || "=$".contains(character);
        if text.is_empty() || text.contains(odd) {
            Err(format!("expected the name of an environment variable, found {}", quoted(text)))
        } else {
            Ok(text.to_owned())
        }
    };
    field.parsed(help, name).map(|name| name.value)
}

fn command(
    argv: Field<'_>,
    [ttl, timeout, pass_env]: [Option<Field<'_>>; 3],
    layer: &Layer<'_>,
) -> Option<CommandSource> {
    let ttl = ttl.and_then(|field| duration::field(&field, &TTL));
    let timeout = timeout.and_then(|field| duration::field(&field, &TIMEOUT));
    let pass_env = pass_env.and_then(Field::items);
    let pass_env = pass_env.into_iter().flatten().filter_map(variable).collect();
    let words = argv.clone().strings()?.value;
    let mut words = words.into_iter().map(Spanned::into_value);
    let Some(program) = words.next().filter(|program| !program.is_empty()) else {
        let help = "write the program and its arguments, such as [\"op\", \"read\", \"op://vault/item/field\"]";
        refuse(&argv, Code::BadValue, "expected a program", help);
        return None;
    };
    let arguments: Vec<String> = words.collect();
    if program.contains('\0') || arguments.iter().any(|argument| argument.contains('\0')) {
        refuse(&argv, Code::BadValue, "a NUL cannot be passed to a program", "remove it");
        return None;
    }
    // A name goes through PATH; a path is one like every other in the config.
    let program = if program.contains('/') { layer.folder.join(program) } else { PathBuf::from(program) };
    Some(CommandSource {
        program,
        arguments,
        ttl: ttl.unwrap_or(Duration::from_secs(300)),
        timeout: timeout.unwrap_or(Duration::from_secs(10)),
        pass_env,
    })
}
