//! Overrides of the command line, `section.key=value`, each turned into a small TOML document.

use std::fmt::Write;
use std::sync::Arc;

use exeat_policy::diag::{Code, Diagnostic, Source, Span};
use exeat_policy::doc::{self, Format};

/// The document that an override is read as: its value as TOML or, if that is no TOML, as a string.
pub(super) fn source_of(text: &str) -> Result<Arc<Source>, Diagnostic> {
    let Some((key, value)) = text.split_once('=') else {
        return Err(malformed(text, "expected `section.key=value`, found no `=`"));
    };
    let (key, value) = (key.trim(), value.trim());
    if text.contains(['\n', '\r']) {
        return Err(malformed(text, "expected `section.key=value` on one line, found a line break"));
    }
    let name = format!("--set {key}");
    let written = Source::new(name.as_str(), format!("{key} = {value}"));
    if doc::parse(&written, Format::Toml).is_ok() {
        return Ok(written);
    }
    let as_string = Source::new(name, format!("{key} = {}", basic_string(value)));
    match doc::parse(&as_string, Format::Toml) {
        Ok(_) => Ok(as_string),
        Err(_) => Err(malformed(text, "expected a dotted key in front of `=`, such as `listen.proxy`")),
    }
}

fn malformed(text: &str, message: &str) -> Diagnostic {
    let span = Span::new(0, text.find('=').unwrap_or(text.len()));
    let help = "write the key with its section, such as `--set limits.idle_timeout=5m`";
    Diagnostic::new(Code::BadOverride, &Source::new("--set", text), span, message, help)
}

/// A text as a TOML basic string.
fn basic_string(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            control if control.is_control() => {
                // Writing to a string does not fail.
                let _ = write!(out, "\\u{:04X}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_as(text: &str) -> String {
        source_of(text).unwrap().text().to_owned()
    }

    #[test]
    fn values_are_toml_or_else_strings() {
        for (text, document) in [
            ("intercept.enabled=false", "intercept.enabled = false"),
            (" guard.blocked_ports = [25, 465] ", "guard.blocked_ports = [25, 465]"),
            ("bindings.X={ env = \"A=B\" }", "bindings.X = { env = \"A=B\" }"),
            ("admin.listen=off", "admin.listen = \"off\""),
            ("admin.listen=\"off\"", "admin.listen = \"off\""),
            ("listen.proxy=127.0.0.1:0", "listen.proxy = \"127.0.0.1:0\""),
            ("dns.hosts.\"a.example\"=127.0.0.1", "dns.hosts.\"a.example\" = \"127.0.0.1\""),
            ("bindings.X.file=C:\\a \"b\"\t", "bindings.X.file = \"C:\\\\a \\\"b\\\"\""),
            ("bindings.X.file=a\tb\u{7f}", "bindings.X.file = \"a\\u0009b\\u007F\""),
            ("bindings.X.file=", "bindings.X.file = \"\""),
        ] {
            assert_eq!(read_as(text), document);
            assert!(doc::parse(&source_of(text).unwrap(), Format::Toml).is_ok(), "{text:?}");
        }
        assert_eq!(&**source_of("a.b=1").unwrap().name(), "--set a.b");
    }

    #[test]
    fn what_is_no_key_and_value_is_refused_at_its_place() {
        for (text, end, message) in [
            ("", 0, "expected `section.key=value`, found no `=`"),
            ("listen.proxy", 12, "expected `section.key=value`, found no `=`"),
            ("=1", 0, "expected a dotted key in front of `=`, such as `listen.proxy`"),
            ("a b=1", 3, "expected a dotted key in front of `=`, such as `listen.proxy`"),
            ("[listen]=1", 8, "expected a dotted key in front of `=`, such as `listen.proxy`"),
            ("a#b=1", 3, "expected a dotted key in front of `=`, such as `listen.proxy`"),
            ("a.b=1\nc.d=2", 3, "expected `section.key=value` on one line, found a line break"),
        ] {
            let problem = source_of(text).unwrap_err();
            assert_eq!((problem.code, problem.message.as_str()), (Code::BadOverride, message), "{text:?}");
            assert_eq!((problem.span, &**problem.source.name()), (Span::new(0, end), "--set"), "{text:?}");
        }
    }
}
