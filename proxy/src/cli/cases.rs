//! `exeat test`: expectations about a manifest, as a file of cases.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use exeat_policy::analyse::layers_of;
use exeat_policy::diag::{Diagnostic, has_errors};
use exeat_policy::policy::Layer;
use exeat_policy::{Policy, RuleRef};
use serde::Serialize;

use super::{Ended, FileArgs, Style, show_diagnostics, show_load_error, stdout_has_color};
use crate::cases::{Case, Cases};
use crate::judge::{Asked, Judge, Judgement};
use crate::load;

#[derive(Args, Debug)]
pub(super) struct TestArgs {
    #[command(flatten)]
    files: FileArgs,
    /// How to write what came of it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Leave address classes out of the verdicts
    #[arg(long)]
    no_guard: bool,
    /// Files of cases
    #[arg(required = true, value_name = "CASES.toml")]
    cases: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One JSON object a line, for each case
    Json,
    /// JUnit XML
    Junit,
}

/// What came of one case.
#[derive(Debug, Serialize)]
struct Outcome {
    name: String,
    file: String,
    line: u32,
    passed: bool,
    /// What was not as expected; empty where it passed.
    failures: Vec<String>,
}

pub(super) fn run(arguments: &TestArgs, out: &mut impl Write) -> anyhow::Result<Ended> {
    let mut outcomes = Vec::new();
    for path in &arguments.cases {
        let (cases, found) = Cases::read(&load::read_source(path)?);
        show(&found)?;
        let Some(cases) = cases.filter(|_| !has_errors(&found)) else { return Ok(Ended::Unusable) };
        match suite(arguments, path, &cases) {
            Ok(mut suite) => outcomes.append(&mut suite),
            Err(SuiteError::Load(error)) => return show_load_error(error),
            Err(SuiteError::Other(error)) => return Err(error),
        }
    }
    match arguments.format {
        Format::Text => write_text(out, &outcomes, Style::new(stdout_has_color()))?,
        Format::Json => {
            for outcome in &outcomes {
                serde_json::to_writer(&mut *out, outcome).map_err(io::Error::from)?;
                out.write_all(b"\n")?;
            }
        }
        Format::Junit => out.write_all(junit(&outcomes).as_bytes())?,
    }
    out.flush()?;
    Ok(if outcomes.iter().all(|outcome| outcome.passed) { Ended::Clean } else { Ended::Found })
}

fn show(found: &[Diagnostic]) -> io::Result<()> {
    if found.is_empty() { Ok(()) } else { show_diagnostics(found) }
}

enum SuiteError {
    Load(load::LoadError),
    Other(anyhow::Error),
}

/// Runs the cases of one file, by the manifests of the command line or else by those that the file names.
fn suite(arguments: &TestArgs, path: &Path, cases: &Cases) -> Result<Vec<Outcome>, SuiteError> {
    let mut inputs = arguments.files.inputs();
    let folder = path.parent().unwrap_or(Path::new(""));
    if inputs.manifests.is_empty() {
        inputs.manifests = cases.manifests.iter().map(|manifest| folder.join(manifest)).collect();
    }
    if inputs.config.is_none() {
        inputs.config = cases.config.as_ref().map(|config| folder.join(config));
    }
    let loaded = load::load(&inputs).map_err(SuiteError::Load)?;
    let judge = Judge::new(loaded, !arguments.no_guard);
    let outcome = |case: &Case| {
        let start = cases.source.position(case.span.start);
        let failures = match &case.session {
            None => failures(case, &judge, judge.policy()),
            Some(session) => failures(case, &judge, &with_session(judge.policy(), session)?),
        };
        let file = cases.source.name().to_string();
        Ok(Outcome { name: case.name.clone(), file, line: start.line, passed: failures.is_empty(), failures })
    };
    cases.cases.iter().map(outcome).collect::<anyhow::Result<_>>().map_err(SuiteError::Other)
}

/// The policy with the session's layer within it.
fn with_session(policy: &Policy, session: &Layer) -> anyhow::Result<Policy> {
    let mut layers = layers_of(policy);
    layers.push(session.clone());
    Policy::build(layers, policy.default_verdict()).context("the session's rules are too many")
}

fn failures(case: &Case, judge: &Judge, policy: &Policy) -> Vec<String> {
    let judgement = match &case.asked {
        Ok(Asked::Url(target)) => judge.url(policy, target, &case.method),
        Ok(Asked::Authority(authority)) => judge.authority(policy, authority),
        Err(error) => Judgement::unreadable(error),
    };
    let mut failures = Vec::new();
    if judgement.verdict != case.expect {
        let (reason, rule) = (judgement.reason, judgement.rule.map_or_else(String::new, described));
        failures.push(format!("expected {}, got {} ({reason}{rule})", case.expect, judgement.verdict));
    }
    if let Some(reason) = case.reason.filter(|reason| *reason != judgement.reason) {
        failures.push(format!("expected the reason {reason}, got {}", judgement.reason));
    }
    if let Some(pattern) = &case.rule {
        let is_it = judgement.rule.is_some_and(|rule| *rule.rule.pattern == **pattern);
        if !is_it {
            let got = judgement.rule.map_or_else(|| ", got none".to_owned(), described);
            failures.push(format!("expected the rule {pattern:?}{got}"));
        }
    }
    if let Some(layer) = &case.layer
        && judgement.layer != Some(layer)
    {
        failures.push(format!("expected the layer {layer:?}, got {:?}", judgement.layer.unwrap_or("none")));
    }
    failures
}

fn described(rule: RuleRef<'_>) -> String {
    let exeat_policy::Rule { pattern, file, line, .. } = rule.rule;
    format!(", {} {pattern:?} at {file}:{line}", rule.list)
}

fn write_text(out: &mut impl Write, outcomes: &[Outcome], style: Style) -> io::Result<()> {
    let Style { green, red, dim, reset, .. } = style;
    for Outcome { name, file, line, passed, failures } in outcomes {
        if *passed {
            writeln!(out, "{green}ok{reset}    {name}")?;
            continue;
        }
        writeln!(out, "{red}FAIL{reset}  {name}  {dim}{file}:{line}{reset}")?;
        for failure in failures {
            writeln!(out, "        {failure}")?;
        }
    }
    let failed = outcomes.iter().filter(|outcome| !outcome.passed).count();
    writeln!(out, "{} passed, {failed} failed", outcomes.len() - failed)
}

/// The outcomes in the format that CI systems read: suites for files, each with its cases.
fn junit(outcomes: &[Outcome]) -> String {
    let failed = |outcomes: &[Outcome]| outcomes.iter().filter(|outcome| !outcome.passed).count();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string cannot fail.
    let _ = writeln!(xml, "<testsuites name=\"exeat\" tests=\"{}\" failures=\"{}\">", outcomes.len(), failed(outcomes));
    for suite in outcomes.chunk_by(|a, b| a.file == b.file) {
        let file = suite.first().map_or_else(String::new, |outcome| escaped(&outcome.file));
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{file}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"0\">",
            suite.len(),
            failed(suite)
        );
        for Outcome { name, line, passed, failures, .. } in suite {
            let name = escaped(name);
            let case = format!("    <testcase classname=\"{file}\" name=\"{name}\" file=\"{file}\" line=\"{line}\"");
            if *passed {
                let _ = writeln!(xml, "{case}/>");
                continue;
            }
            let first = failures.first().map_or_else(String::new, |failure| escaped(failure));
            let all = escaped(&failures.join("\n"));
            let _ = writeln!(xml, "{case}>\n      <failure message=\"{first}\">{all}</failure>\n    </testcase>");
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

/// A text as XML 1.0 takes it, in an attribute too; characters that it cannot hold are replaced.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(character),
            character if character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            character => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junit_holds_whatever_a_case_is_called() {
        let outcome = |name: &str, failures: &[&str]| Outcome {
            name: name.to_owned(),
            file: "a&b.toml".to_owned(),
            line: 3,
            passed: failures.is_empty(),
            failures: failures.iter().map(|text| (*text).to_owned()).collect(),
        };
        let xml = junit(&[outcome("<ok>", &[]), outcome("\"bad\"\u{1}", &["expected \"a\" & <b>", "two"])]);
        assert_eq!(
            xml,
            "\
<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuites name=\"exeat\" tests=\"2\" failures=\"1\">
  <testsuite name=\"a&amp;b.toml\" tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"0\">
    <testcase classname=\"a&amp;b.toml\" name=\"&lt;ok&gt;\" file=\"a&amp;b.toml\" line=\"3\"/>
    <testcase classname=\"a&amp;b.toml\" name=\"&quot;bad&quot;\u{fffd}\" file=\"a&amp;b.toml\" line=\"3\">
      <failure message=\"expected &quot;a&quot; &amp; &lt;b&gt;\">expected &quot;a&quot; &amp; &lt;b&gt;
two</failure>
    </testcase>
  </testsuite>
</testsuites>
"
        );
    }
}
