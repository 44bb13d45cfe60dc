//! `exeat diff`: what a change of manifest opens and closes.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use exeat_policy::analyse::diff::{Change, Diff, Difference, TunnelChange, diff};
use exeat_policy::{Decision, Policy};
use serde::Serialize;

use super::{Ended, Style, show_load_error, stdout_has_color};
use crate::load::{self, Inputs};
use crate::view::RuleView;

#[derive(Args, Debug)]
pub(super) struct DiffArgs {
    /// The gateway's config, for both
    #[arg(short, long, value_name = "EXEAT.TOML")]
    config: Option<PathBuf>,
    /// A manifest around both; may be repeated, outermost layer first
    #[arg(short = 'm', long = "manifest", value_name = "OUTER")]
    outer: Vec<PathBuf>,
    /// A manifest within both, such as a session's; may be repeated, outermost layer first
    #[arg(long, value_name = "INNER")]
    inner: Vec<PathBuf>,
    /// Override a key of the config
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    overrides: Vec<String>,
    /// How to write what was found
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// What makes the exit code 1
    #[arg(long, value_enum, default_value_t = FailOn::Any)]
    fail_on: FailOn,
    /// The manifest as it was
    old: PathBuf,
    /// The manifest as it will be
    new: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One JSON object
    Json,
    /// Markdown, for a pull request
    Markdown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// Something is opened
    Opened,
    /// Something is closed
    Closed,
    /// Something is opened or closed
    Any,
    /// Nothing does
    None,
}

pub(super) fn run(arguments: &DiffArgs, out: &mut impl Write) -> anyhow::Result<Ended> {
    let (old, new) = match (arguments.load(&arguments.old), arguments.load(&arguments.new)) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(error), _) | (_, Err(error)) => return show_load_error(error),
    };
    let found = diff(&old, &new);
    match arguments.format {
        Format::Text => write_text(out, &found, Style::new(stdout_has_color()))?,
        Format::Json => {
            serde_json::to_writer(&mut *out, &View::of(&found, &old, &new)).map_err(io::Error::from)?;
            out.write_all(b"\n")?;
        }
        Format::Markdown => write_markdown(out, &found, arguments)?,
    }
    out.flush()?;
    let (opened, closed) = (found.has(Change::Opened), found.has(Change::Closed));
    let failed = match arguments.fail_on {
        FailOn::Opened => opened,
        FailOn::Closed => closed,
        FailOn::Any => opened || closed,
        FailOn::None => false,
    };
    Ok(if failed { Ended::Found } else { Ended::Clean })
}

impl DiffArgs {
    fn load(&self, manifest: &std::path::Path) -> Result<Policy, load::LoadError> {
        let manifests = self.outer.iter().cloned().chain([manifest.to_owned()]).chain(self.inner.iter().cloned());
        let inputs =
            Inputs { config: self.config.clone(), manifests: manifests.collect(), overrides: self.overrides.clone() };
        Ok(load::load(&inputs)?.policy)
    }
}

/// The report for machines.
#[derive(Serialize)]
struct View<'d> {
    old: &'d str,
    new: &'d str,
    differences: Vec<DifferenceView<'d>>,
    tunnels: Vec<TunnelView>,
}

#[derive(Serialize)]
struct DifferenceView<'d> {
    change: &'static str,
    pattern: &'d str,
    except: &'d [String],
    witness: String,
    old: Side<'d>,
    new: Side<'d>,
}

#[derive(Serialize)]
struct Side<'d> {
    verdict: &'static str,
    reason: &'static str,
    rule: Option<RuleView<'d>>,
    layer: Option<&'d str>,
}

#[derive(Serialize)]
struct TunnelView {
    authority: String,
    old: &'static str,
    new: &'static str,
}

impl<'d> View<'d> {
    fn of(found: &'d Diff<'d>, old: &'d Policy, new: &'d Policy) -> Self {
        let difference = |one: &'d Difference<'d>| DifferenceView {
            change: one.change.as_str(),
            pattern: &one.pattern,
            except: &one.except,
            witness: one.witness.to_string(),
            old: Side::of(&one.old),
            new: Side::of(&one.new),
        };
        let tunnel = |TunnelChange { authority, old, new }: &TunnelChange| TunnelView {
            authority: authority.to_string(),
            old: old.as_str(),
            new: new.as_str(),
        };
        Self {
            old: old.digest(),
            new: new.digest(),
            differences: found.differences.iter().map(difference).collect(),
            tunnels: found.tunnels.iter().map(tunnel).collect(),
        }
    }
}

impl<'d> Side<'d> {
    fn of(decision: &Decision<'d>) -> Self {
        Self {
            verdict: decision.verdict.as_str(),
            reason: decision.reason.as_str(),
            rule: decision.rule.map(RuleView::from),
            layer: decision.layer,
        }
    }
}

/// Why a side decided as it did, in a few words.
fn why(decision: &Decision<'_>) -> String {
    match (decision.rule.map(RuleView::from), decision.layer) {
        (Some(RuleView { list, pattern, file, line, column, .. }), _) => {
            format!("{list} {pattern:?} at {file}:{line}:{column}")
        }
        (None, Some(layer)) => format!("{}, the layer {layer:?} has no rule for it", decision.reason),
        (None, None) => decision.reason.to_string(),
    }
}

/// How many exceptions are written out.
const MOST_EXCEPT: usize = 5;

fn except(difference: &Difference<'_>) -> String {
    let shown: Vec<&str> = difference.except.iter().take(MOST_EXCEPT).map(String::as_str).collect();
    let more = difference.except.len().saturating_sub(MOST_EXCEPT);
    match (shown.as_slice(), more) {
        ([], _) => String::new(),
        (_, 0) => shown.join(", "),
        _ => format!("{} and {more} more", shown.join(", ")),
    }
}

fn write_text(out: &mut impl Write, found: &Diff<'_>, style: Style) -> io::Result<()> {
    let Style { green, red, dim, reset, .. } = style;
    if found.differences.is_empty() {
        writeln!(out, "both permit the same")?;
    }
    for one in &found.differences {
        // What is opened deserves the look.
        let (sign, color) = match one.change {
            Change::Opened => ("+ opened", red),
            Change::Closed => ("- closed", green),
        };
        write!(out, "{color}{sign}{reset} {}", one.pattern)?;
        if !one.except.is_empty() {
            write!(out, "  {dim}but not {}{reset}", except(one))?;
        }
        writeln!(out, "\n    {}", one.witness)?;
        writeln!(out, "    {dim}old: {:<5} {}{reset}", one.old.verdict.as_str(), why(&one.old))?;
        writeln!(out, "    {dim}new: {:<5} {}{reset}", one.new.verdict.as_str(), why(&one.new))?;
    }
    for TunnelChange { authority, old, new } in &found.tunnels {
        writeln!(out, "~ tunnels to {authority}: {} before, {} now", old.as_str(), new.as_str())?;
    }
    Ok(())
}

fn write_markdown(out: &mut impl Write, found: &Diff<'_>, arguments: &DiffArgs) -> io::Result<()> {
    let name = |path: &PathBuf| code(&path.to_string_lossy());
    writeln!(out, "### Network access: {} → {}\n", name(&arguments.old), name(&arguments.new))?;
    if found.differences.is_empty() {
        writeln!(out, "Both permit the same.")?;
    } else {
        writeln!(out, "| | What | Example | Old | New |")?;
        writeln!(out, "|---|---|---|---|---|")?;
    }
    for one in &found.differences {
        let change = match one.change {
            Change::Opened => "**opened**",
            Change::Closed => "closed",
        };
        let except = if one.except.is_empty() { String::new() } else { format!(" but not {}", code(&except(one))) };
        writeln!(
            out,
            "| {change} | {}{except} | {} | {} | {} |",
            code(&one.pattern),
            code(&one.witness.to_string()),
            code(&why(&one.old)),
            code(&why(&one.new))
        )?;
    }
    for (index, TunnelChange { authority, old, new }) in found.tunnels.iter().enumerate() {
        let gap = if index == 0 { "\n" } else { "" };
        let authority = code(&authority.to_string());
        writeln!(out, "{gap}- Tunnels to {authority}: {} before, {} now.", old.as_str(), new.as_str())?;
    }
    Ok(())
}

/// A text as code in a cell of a table, which nothing in it can end.
fn code(text: &str) -> String {
    let text: String = text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
    let ticks = text.split(|character| character != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(ticks + 1);
    let pad = if ticks > 0 { " " } else { "" };
    format!("{fence}{pad}{}{pad}{fence}", text.replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_in_a_table_is_not_left() {
        assert_eq!(code("a"), "`a`");
        assert_eq!(code("a|b\nc"), "`a\\|b c`");
        assert_eq!(code("a`b``c"), "``` a`b``c ```");
    }
}
