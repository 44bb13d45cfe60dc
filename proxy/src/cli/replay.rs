//! `exeat replay`: recorded traffic against a manifest.

use std::fs;
use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use exeat_policy::Policy;
use serde::Serialize;

use super::progress::Progress;
use super::{Ended, FileArgs, Style, show_diagnostics, show_load_error, stdout_has_color};
use crate::lines;
use crate::load::{self, Inputs};
use crate::replay::tally::{Baseline, Changed, Group, Key, State, Tally};
use crate::replay::{Format, Input, Piece, Reading};
use crate::view::RuleView;

#[derive(Args, Debug)]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    files: FileArgs,
    /// A manifest to compare with, instead of what was recorded; may be repeated, outermost layer first
    #[arg(long, value_name = "OLD")]
    against: Vec<PathBuf>,
    /// The form of the files
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// What makes the exit code 1; by default, whatever is denied
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    fail_on: Vec<FailOn>,
    /// How many groups of each kind to show
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    top: usize,
    /// Write one JSON object
    #[arg(long)]
    json: bool,
    /// Recorded traffic: logs of exeat, squid and Smokescreen, HAR, flows of mitmproxy, lists of URLs; gzip or not; `-`
    /// for the standard input
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// Something denied before is let out or inspected
    NewlyAllowed,
    /// Something let out or inspected before is denied
    NewlyDenied,
    /// A tunnel that was blind is opened
    NewlyInspected,
    /// A tunnel that was opened is blind
    NoLongerInspected,
    /// Something is denied
    Denied,
    /// A line cannot be read
    Unreadable,
}

impl FailOn {
    fn happened(self, tally: &Tally) -> bool {
        match self {
            Self::NewlyAllowed => tally.changed(Changed::NewlyAllowed) > 0,
            Self::NewlyDenied => tally.changed(Changed::NewlyDenied) > 0,
            Self::NewlyInspected => tally.changed(Changed::NewlyInspected) > 0,
            Self::NoLongerInspected => tally.changed(Changed::NoLongerInspected) > 0,
            Self::Denied => tally.count(State::Denied) > 0,
            Self::Unreadable => tally.unreadable > 0,
        }
    }
}

pub(super) fn run(arguments: &ReplayArgs, out: &mut impl Write) -> anyhow::Result<Ended> {
    let inputs = arguments.files.inputs();
    let new = match load::load(&inputs) {
        Ok(loaded) => loaded,
        Err(error) => return show_load_error(error),
    };
    if io::stderr().is_terminal() {
        show_diagnostics(&new.warnings)?;
    }
    let old = match &*arguments.against {
        [] => None,
        against => match load::load(&Inputs { manifests: against.to_vec(), ..inputs }) {
            Ok(loaded) => Some(loaded.policy),
            Err(error) => return show_load_error(error),
        },
    };
    let baseline = old.as_ref().map_or(Baseline::Recorded, Baseline::Policy);
    let tally = tally(&arguments.logs, arguments.format, &new.policy, baseline)?;
    let report = Report { tally: &tally, policy: &new.policy, against: old.is_some() };
    if arguments.json {
        serde_json::to_writer(&mut *out, &report.view()).map_err(io::Error::from)?;
        out.write_all(b"\n")?;
    } else {
        report.write(out, arguments.top, Style::new(stdout_has_color()))?;
    }
    out.flush()?;
    let fail_on = if arguments.fail_on.is_empty() { &[FailOn::Denied][..] } else { &arguments.fail_on };
    let failed = fail_on.iter().any(|fail_on| fail_on.happened(&tally));
    Ok(if failed { Ended::Found } else { Ended::Clean })
}

/// Counts all files.
fn tally(logs: &[PathBuf], format: Format, new: &Policy, baseline: Baseline<'_>) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let work = |piece: Piece| {
        let mut part = Tally::default();
        piece.records(|reading| part.add(reading, new, baseline));
        part
    };
    read_all(logs, format, work, |part| {
        tally.merge(part);
        tally.records
    })?;
    Ok(tally)
}

/// Reads all files: `work` is done on several threads, `take` takes its results in order and says how many records
/// there have been.
pub(super) fn read_all<T: Send>(
    logs: &[PathBuf],
    format: Format,
    work: impl Fn(Piece) -> T + Sync,
    mut take: impl FnMut(T) -> u64,
) -> anyhow::Result<()> {
    let size = |log: &PathBuf| fs::metadata(log).ok().filter(fs::Metadata::is_file).map(|file| file.len());
    let mut progress = Progress::new(logs.iter().map(size).sum());
    for log in logs {
        let input = Input::open(log, format).map_err(|error| unreadable(log, &error))?;
        progress.file(input.position());
        lines::in_order(input.pieces(), &work, |part| {
            progress.step(take(part));
            Ok(())
        })?;
    }
    Ok(())
}

fn unreadable(log: &Path, error: &io::Error) -> anyhow::Error {
    anyhow::anyhow!("cannot read {}: {error}", log.display())
}

/// Calls for each request and tunnel of a piece; counts what is none.
pub(super) fn each(piece: Piece, mut record: impl FnMut(crate::replay::Record)) -> (u64, u64) {
    let (mut others, mut unreadable) = (0, 0);
    piece.records(|reading| match reading {
        Reading::Record(one) => record(one),
        Reading::Other => others += 1,
        Reading::Unreadable => unreadable += 1,
    });
    (others, unreadable)
}

struct Report<'r> {
    tally: &'r Tally,
    policy: &'r Policy,
    against: bool,
}

/// The report for machines.
#[derive(Serialize)]
struct View<'r> {
    records: u64,
    tunnels: u64,
    compared: u64,
    other_lines: u64,
    unreadable_lines: u64,
    malformed: u64,
    permitted: u64,
    inspected: u64,
    denied: u64,
    newly_allowed: u64,
    newly_denied: u64,
    newly_inspected: u64,
    no_longer_inspected: u64,
    groups: Vec<GroupView<'r>>,
    ungrouped: u64,
    policy: &'r str,
    limitations: Vec<&'static str>,
}

#[derive(Serialize)]
struct GroupView<'r> {
    change: Option<&'static str>,
    state: &'static str,
    host: &'r str,
    reason: &'static str,
    rule: Option<RuleView<'r>>,
    count: u64,
    examples: &'r [Box<str>],
}

impl<'r> Report<'r> {
    fn view(&self) -> View<'r> {
        let tally = self.tally;
        let group = |(key, group): (&'r Key, &'r Group)| GroupView {
            change: key.changed.map(Changed::as_str),
            state: key.state.as_str(),
            host: &key.host,
            reason: key.reason,
            rule: key.rule.and_then(|rule| self.policy.rule(rule)).map(RuleView::from),
            count: group.count,
            examples: &group.examples,
        };
        View {
            records: tally.records,
            tunnels: tally.tunnels,
            compared: tally.compared,
            other_lines: tally.others,
            unreadable_lines: tally.unreadable,
            malformed: tally.malformed,
            permitted: tally.count(State::Permitted),
            inspected: tally.count(State::Inspected),
            denied: tally.count(State::Denied),
            newly_allowed: tally.changed(Changed::NewlyAllowed),
            newly_denied: tally.changed(Changed::NewlyDenied),
            newly_inspected: tally.changed(Changed::NewlyInspected),
            no_longer_inspected: tally.changed(Changed::NoLongerInspected),
            groups: tally.sorted().into_iter().map(group).collect(),
            ungrouped: tally.ungrouped,
            policy: self.policy.digest(),
            limitations: self.limitations(),
        }
    }

    fn write(&self, out: &mut impl Write, top: usize, style: Style) -> io::Result<()> {
        let Style { green, red, yellow, bold, dim, reset } = style;
        let tally = self.tally;
        writeln!(out, "{bold}{}{reset}, {} of them tunnels", plural(tally.records, "record"), tally.tunnels)?;
        for (state, color) in [(State::Permitted, green), (State::Inspected, yellow), (State::Denied, red)] {
            writeln!(out, "  {color}{:<10}{reset} {}", state.as_str(), tally.count(state))?;
        }
        for (count, what) in [
            (tally.malformed, "with a URL that cannot be read, denied"),
            (tally.unreadable, "lines that are nothing known, left out"),
            (tally.ungrouped, "in more groups than are kept, counted above only"),
        ] {
            if count > 0 {
                writeln!(out, "  {dim}{count} {what}{reset}")?;
            }
        }
        let with = if self.against { "the other manifest" } else { "what was recorded" };
        let sorted = tally.sorted();
        for changed in Changed::ALL {
            let count = tally.changed(changed);
            if count > 0 {
                let title = changed.as_str().replace('_', " ");
                writeln!(out, "\n{bold}{title}{reset}: {count}, compared with {with}")?;
                self.groups(out, top, style, sorted.iter().filter(|(key, _)| key.changed == Some(changed)))?;
            }
        }
        if tally.compared > 0 && tally.changes.is_empty() {
            writeln!(out, "\nnothing changes, compared with {with}")?;
        }
        let denied = sorted.iter().filter(|(key, _)| key.state == State::Denied && key.changed.is_none());
        if denied.clone().next().is_some() {
            let known = if tally.compared > 0 { ", as before" } else { "" };
            writeln!(out, "\n{bold}denied{reset}{known}")?;
            self.groups(out, top, style, denied)?;
        }
        for limitation in self.limitations() {
            writeln!(out, "\n{dim}note: {limitation}{reset}")?;
        }
        Ok(())
    }

    fn groups<'g>(
        &self,
        out: &mut impl Write,
        top: usize,
        style: Style,
        groups: impl Iterator<Item = &'g (&'g Key, &'g Group)> + Clone,
    ) -> io::Result<()> {
        let Style { dim, reset, .. } = style;
        for (key, group) in groups.clone().take(top) {
            let host = if key.host.is_empty() { "(no host)" } else { &key.host };
            write!(out, "  {:>8}  {host}  {}", group.count, key.reason)?;
            if let Some(rule) = key.rule.and_then(|rule| self.policy.rule(rule)) {
                let RuleView { layer, list, pattern, file, line, column } = RuleView::from(rule);
                write!(out, "  {dim}{layer} {list} {pattern:?} at {file}:{line}:{column}{reset}")?;
            }
            writeln!(out)?;
            for example in &group.examples {
                writeln!(out, "            {dim}{}{reset}", example.escape_debug())?;
            }
        }
        let rest = groups.skip(top).count();
        if rest > 0 {
            writeln!(out, "  … and {} more (--top)", plural(u64::try_from(rest).unwrap_or(u64::MAX), "group"))?;
        }
        Ok(())
    }

    /// What the count cannot say.
    fn limitations(&self) -> Vec<&'static str> {
        let mut limitations = vec![
            "rules are judged and nothing else: which addresses a name has, blocked ports and credentials may refuse \
             what is permitted here",
        ];
        if self.tally.tunnels > 0 {
            limitations.push(
                "a recorded tunnel has no path: what went through it is not in the record, and where it is inspected \
                 its requests may be denied",
            );
        }
        limitations
    }
}

fn plural(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
