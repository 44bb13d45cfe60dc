//! Diagnostics as annotations of a GitHub workflow: one command a line, which the runner shows beside the code.

use exeat_policy::diag::{Diagnostic, Severity};

/// The diagnostics as workflow commands, in the order given.
pub(super) fn render(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(command).collect()
}

fn command(diagnostic: &Diagnostic) -> String {
    let kind = match diagnostic.severity() {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "notice",
    };
    let (start, end) = (diagnostic.start(), diagnostic.end());
    // Columns are shown for one line only.
    let columns =
        if start.line == end.line { format!(",col={},endColumn={}", start.column, end.column) } else { String::new() };
    let help = if diagnostic.help.is_empty() { String::new() } else { format!("\nhelp: {}", diagnostic.help) };
    format!(
        "::{kind} file={},line={},endLine={}{columns},title={}::{}\n",
        property(diagnostic.source.name()),
        start.line,
        end.line,
        property(diagnostic.code.as_str()),
        data(&format!("{}{help}", diagnostic.message))
    )
}

/// A message as the runner decodes it.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property, in which the separators of properties are escaped too.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use exeat_policy::diag::{Code, Source, Span};

    use super::*;

    #[test]
    fn nothing_in_a_file_ends_a_command_or_begins_another() {
        let source = Source::new("a,b:c%\n.toml", "x = 1\ny = 2\n");
        let one = Diagnostic::new(Code::UnknownKey, &source, Span::new(0, 1), "un\r\n::error::known 100%", "did,you:");
        let many = Diagnostic::new(Code::Covered, &source, Span::new(0, 8), "m", "");
        let note = Diagnostic::new(Code::OpenPrefix, &source, Span::new(6, 7), "m", "");
        let text = render(&[one, many, note]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "::error file=a%2Cb%3Ac%25%0A.toml,line=1,endLine=1,col=1,endColumn=2,title=E0003::un%0D%0A::error::known 100%25%0Ahelp: did,you:",
                "::warning file=a%2Cb%3Ac%25%0A.toml,line=1,endLine=2,title=W0202::m",
                "::notice file=a%2Cb%3Ac%25%0A.toml,line=2,endLine=2,col=1,endColumn=2,title=N0201::m",
            ]
        );
    }
}
