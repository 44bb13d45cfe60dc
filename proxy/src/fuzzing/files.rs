//! Configs and manifests.

use exeat_policy::diag::{Diagnostic, Severity, Source, has_errors};
use exeat_policy::doc::Format;
use exeat_policy::{DefaultVerdict, Manifest, Policy};

use crate::config::Config;

/// What every problem of a text has: a place in it, and something to say.
fn check(text: &str, diagnostics: &[Diagnostic]) {
    for diagnostic in diagnostics {
        let (start, end) = (diagnostic.span.start, diagnostic.span.end);
        assert!(start <= end && end <= text.len(), "{diagnostic} at {start} to {end}");
        assert!(text.is_char_boundary(start) && text.is_char_boundary(end), "{diagnostic} at {start} to {end}");
        assert!(!diagnostic.message.is_empty() && !diagnostic.help.is_empty(), "{diagnostic:?}");
        let (from, to) = (diagnostic.start(), diagnostic.end());
        assert!(from.line >= 1 && from.column >= 1 && (to.line, to.column) >= (from.line, from.column));
    }
}

fn errors(diagnostics: &[Diagnostic]) -> usize {
    diagnostics.iter().filter(|diagnostic| diagnostic.code.severity() == Severity::Error).count()
}

/// A config is read or refused, never both and never neither, and twice the same.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let source = Source::new("exeat.toml", text);
    let (config, diagnostics) = Config::read(&source);
    assert_eq!(config.is_none(), has_errors(&diagnostics), "{diagnostics:?}");
    check(text, &diagnostics);
    let (again, more) = Config::read(&source);
    assert_eq!(format!("{config:?} {diagnostics:?}"), format!("{again:?} {more:?}"));
    // Each key can be written as an override too.
    let (_, overridden) = Config::read_with(None, &[text.to_owned()]);
    assert!(overridden.iter().all(|diagnostic| !diagnostic.help.is_empty()));
}

/// A manifest is read or refused in each format; one that is read makes a policy whose digest is its own.
pub fn manifest(data: &[u8]) {
    let Some((&format, data)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(data) else { return };
    let format = [Format::Toml, Format::Yaml, Format::Json][usize::from(format) % 3];
    let source = Source::new("agent", text);
    let (manifest, diagnostics) = Manifest::read(&source, format);
    assert_eq!(manifest.is_none(), errors(&diagnostics) > 0, "{diagnostics:?}");
    check(text, &diagnostics);
    let Some(manifest) = manifest else { return };
    let policy = || Policy::build(vec![manifest.layer("agent")], DefaultVerdict::Allow).unwrap();
    assert_eq!(policy().digest(), policy().digest());
    for rule in policy().rules() {
        let (line, column) = (rule.rule.line as usize, rule.rule.column as usize);
        let written = text.lines().nth(line - 1).unwrap_or_default();
        assert!(column >= 1 && column <= written.chars().count(), "line {line}, column {column} of {written:?}");
        assert!(exeat_policy::Pattern::parse(&rule.rule.pattern).is_ok(), "{:?}", rule.rule);
    }
}
