//! Diagnostics as people and programs read them.
//!
//! [`render_text`] shows each diagnostic with its line of the file under it; [`render_json`] writes one JSON object a
//! line, whose keys scripts rely on. Neither prints: the caller chooses the stream.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::IsTerminal;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use exeat_policy::diag::{Code, Diagnostic, Severity, Span};

use crate::view::DiagnosticView;

/// Whether colour is welcome on a stream: it is a terminal, and the environment does not set `NO_COLOR` to anything
/// but the empty string.
#[must_use]
pub(crate) fn color_wanted(stream: &impl IsTerminal) -> bool {
    color_for(stream.is_terminal(), std::env::var_os("NO_COLOR").as_deref())
}

fn color_for(terminal: bool, no_color: Option<&OsStr>) -> bool {
    terminal && no_color.is_none_or(OsStr::is_empty)
}

/// The diagnostics for people, in the order given, an empty line between two; it ends with a line end unless there are
/// none.
///
/// Each shows its code, place, line and help. Control characters of the file appear as symbols, so that no file can
/// steer the terminal. Of a credential that is written down ([`Code::LiteralCredential`]) only its length is shown,
/// whichever diagnostic shows its line.
#[must_use]
pub(crate) fn render_text(diagnostics: &[Diagnostic], color: bool) -> String {
    let renderer = if color { Renderer::styled() } else { Renderer::plain() };
    let mut out = String::new();
    for diagnostic in diagnostics {
        if !out.is_empty() {
            out.push('\n');
        }
        let secrets = diagnostics
            .iter()
            .filter(|other| other.code == Code::LiteralCredential && Arc::ptr_eq(&other.source, &diagnostic.source));
        out.push_str(&text_of(diagnostic, secrets.map(|secret| secret.span), &renderer));
        out.push('\n');
    }
    out
}

fn text_of(diagnostic: &Diagnostic, secrets: impl Iterator<Item = Span>, renderer: &Renderer) -> String {
    let level = match diagnostic.severity() {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let line = FirstLine::of(diagnostic);
    let title = level.primary_title(printable(&diagnostic.message)).id(diagnostic.code.as_str());
    let snippet = Snippet::source(line.without(secrets))
        .path(printable(diagnostic.source.name()))
        .line_start(usize::try_from(diagnostic.start().line).unwrap_or(usize::MAX))
        .annotation(AnnotationKind::Primary.span(line.start..line.end));
    let mut group = title.element(snippet);
    if !diagnostic.help.is_empty() {
        group = group.element(Level::HELP.message(printable(&diagnostic.help)));
    }
    renderer.render(&[group])
}

/// The line in which a diagnostic begins, and the part of it that is meant.
///
/// Only that line is handed to the renderer: its cost stays that of a line however large the file, and a table of a
/// hundred lines is not printed for a key that it lacks.
struct FirstLine<'d> {
    text: &'d str,
    /// Where the line begins in the file; the next two count from there.
    offset: usize,
    start: usize,
    end: usize,
}

impl<'d> FirstLine<'d> {
    fn of(diagnostic: &'d Diagnostic) -> Self {
        let text = diagnostic.source.text();
        let start = boundary(text, diagnostic.span.start);
        let end = boundary(text, diagnostic.span.end.max(start));
        let (before, behind) = text.split_at_checked(start).unwrap_or((text, ""));
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line_end = start + behind.find('\n').unwrap_or(behind.len());
        let line = text.get(line_start..line_end).unwrap_or_default();
        let line = line.strip_suffix('\r').unwrap_or(line);
        let within = |at: usize| (at - line_start).min(line.len());
        Self { text: line, offset: line_start, start: within(start), end: within(end) }
    }

    /// The line with an asterisk for each byte of the secrets in it.
    fn without(&self, secrets: impl Iterator<Item = Span>) -> Cow<'d, str> {
        let mut text = Cow::Borrowed(self.text);
        for secret in secrets {
            let within = |at: usize| boundary(&text, at.saturating_sub(self.offset));
            let (start, end) = (within(secret.start), within(secret.end));
            if start < end {
                text.to_mut().replace_range(start..end, &"*".repeat(end - start));
            }
        }
        text
    }
}

/// The nearest character boundary of `text` at or before `at`.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// A file's name or a text without what would steer a terminal or reorder what it shows; a file's own line is made
/// harmless by the renderer.
fn printable(text: &str) -> String {
    let steers = |character: char| {
        character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|character| if steers(character) { '\u{fffd}' } else { character }).collect()
}

/// The diagnostics as JSON lines, in the order given: `code`, `severity`, `message`, `file`, `line`, `column`,
/// `end_line`, `end_column`, `help`.
///
/// Lines and columns count from 1, columns in characters; the end is the place behind the last character.
#[must_use]
pub(crate) fn render_json(diagnostics: &[Diagnostic]) -> String {
    let mut out = String::new();
    for diagnostic in diagnostics {
        // Strings and numbers always serialise; there is no map key and no foreign type that could fail.
        if let Ok(line) = serde_json::to_string(&DiagnosticView::from(diagnostic)) {
            out.push_str(&line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use exeat_policy::diag::Source;

    use super::*;

    fn diagnostic(name: &str, text: &str, code: Code, part: &str, message: &str, help: &str) -> Diagnostic {
        let start = text.find(part).unwrap();
        let span = Span::new(start, start + part.len());
        Diagnostic::new(code, &Source::new(name, text), span, message, help)
    }

    #[test]
    fn text_shows_the_line_the_place_and_the_help() {
        let text = "[listen]\nprxoy = \"127.0.0.1:3128\"\n";
        let unknown =
            diagnostic("exeat.toml", text, Code::UnknownKey, "prxoy", "unknown key `prxoy`", "did you mean `proxy`?");
        let wrong = diagnostic("exeat.toml", text, Code::WrongType, "[listen]", "expected x", "");
        let shown = render_text(&[unknown, wrong], false);
        assert_eq!(
            shown,
            "\
error[E0003]: unknown key `prxoy`
 --> exeat.toml:2:1
  |
2 | prxoy = \"127.0.0.1:3128\"
  | ^^^^^
  |
  = help: did you mean `proxy`?

error[E0004]: expected x
 --> exeat.toml:1:1
  |
1 | [listen]
  | ^^^^^^^^
"
        );
    }

    #[test]
    fn nothing_to_say_is_nothing_printed() {
        assert_eq!(render_text(&[], true), "");
        assert_eq!(render_json(&[]), "");
    }

    #[test]
    fn only_the_first_line_of_a_long_span_is_shown() {
        let text = "a = [\r\n  1,\r\n]\r\n";
        let shown = render_text(&[diagnostic("f", text, Code::BadValue, "[\r\n  1,\r\n]", "no", "h")], false);
        assert_eq!(shown, "error[E0006]: no\n --> f:1:5\n  |\n1 | a = [\n  |     ^\n  |\n  = help: h\n");
    }

    #[test]
    fn columns_count_characters() {
        let text = "größe = 1\nx = \"größe\" # z\n";
        let json = render_json(&[diagnostic("f", text, Code::BadValue, "z", "no", "h")]);
        assert!(json.contains(r#""line":2,"column":15,"end_line":2,"end_column":16"#), "{json}");
        let shown = render_text(&[diagnostic("f", text, Code::BadValue, "z", "no", "h")], false);
        assert!(shown.contains(" --> f:2:15\n"), "{shown}");
    }

    #[test]
    fn places_at_the_end_and_in_an_empty_file_are_shown() {
        for (text, at) in [("", 0), ("a = 1", 5), ("a = 1\n", 6), ("a = 1\n", 99)] {
            let diagnostic = Diagnostic::new(Code::MissingKey, &Source::new("f", text), Span::new(at, at), "gone", "h");
            let shown = render_text(std::slice::from_ref(&diagnostic), false);
            let place = diagnostic.start();
            assert!(shown.contains(&format!(" --> f:{}:{}\n", place.line, place.column)), "{text:?} {at}: {shown}");
        }
    }

    #[test]
    fn no_file_steers_the_terminal() {
        let text = "a = \"\u{1b}[2J\u{202e}\"\n";
        let shown = render_text(
            &[diagnostic("f\u{1b}[2J\n", text, Code::BadValue, "a", "m\u{1b}[2J", "h\u{202e}\u{1b}[2J")],
            false,
        );
        assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
    }

    #[test]
    fn a_written_credential_is_not_shown() {
        let text = "ok = 1\nh = { Authorization = \"Bearer s3cret\", x = 1 }\nm = \"\"\"\nline s3cret\n\"\"\"\n";
        let source = Source::new("f", text);
        let at = |part: &str| {
            let start = text.find(part).unwrap();
            Span::new(start, start + part.len())
        };
        let found = [
            (Code::UnknownKey, at("ok")),
            (Code::LiteralCredential, at("\"Bearer s3cret\"")),
            (Code::UnknownKey, at("x")),
            (Code::LiteralCredential, at("\"\"\"\nline s3cret\n\"\"\"")),
        ];
        let found = found.map(|(code, span)| Diagnostic::new(code, &source, span, "m", "h"));
        let shown = render_text(&found, false);
        assert!(!shown.contains("s3cret"), "{shown}");
        let line = "2 | h = { Authorization = ***************, x = 1 }\n";
        assert!(shown.contains(&format!("{line}  |                       ^^^^^^^^^^^^^^^\n")), "{shown}");
        assert!(shown.contains(&format!("{line}  |                                        ^\n")), "{shown}");
        assert!(shown.contains("1 | ok = 1\n") && shown.contains("3 | m = ***\n"), "{shown}");
    }

    #[test]
    fn color_is_for_terminals_that_do_not_refuse_it() {
        let text = "a = 1\n";
        let one = [diagnostic("f", text, Code::BadValue, "a", "m", "h")];
        assert!(render_text(&one, true).contains("\u{1b}["));
        assert!(color_for(true, None));
        assert!(color_for(true, Some(OsStr::new(""))));
        assert!(!color_for(true, Some(OsStr::new("1"))));
        assert!(!color_for(false, None));
    }

    #[test]
    fn json_is_one_object_a_line_with_its_keys_in_order() {
        let text = "[listen]\nprxoy = \"\\n\"\n";
        let one = diagnostic("exeat.toml", text, Code::UnknownKey, "prxoy", "unknown \"prxoy\"\n", "did you?");
        let expected = concat!(
            r#"{"code":"E0003","severity":"error","message":"unknown \"prxoy\"\n","file":"exeat.toml","line":2,"#,
            r#""column":1,"end_line":2,"end_column":6,"help":"did you?"}"#,
            "\n"
        );
        assert_eq!(render_json(std::slice::from_ref(&one)), expected);
        assert_eq!(render_json(&[one.clone(), one]), expected.repeat(2));
    }
}
