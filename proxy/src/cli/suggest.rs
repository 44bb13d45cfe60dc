//! `exeat suggest`: a `network_access` that fits what was seen.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use exeat_policy::analyse::suggest::{Detail, Observations, Options, SuggestedRule, Suggestion};
use exeat_policy::doc;
use serde::Serialize;

use super::replay::{each, read_all};
use super::{Ended, merge, show_load_error};
use crate::judge::Asked;
use crate::load::{self, Inputs};
use crate::replay::Format;

#[derive(Args, Debug)]
pub(super) struct SuggestArgs {
    /// How far the rules go
    #[arg(long, value_enum, default_value_t = Level::Auto)]
    level: Level,
    /// Write one wildcard for several hosts of a domain
    #[arg(long)]
    wildcards: bool,
    /// Leave out what the record says was denied
    #[arg(long)]
    only_permitted: bool,
    /// A manifest that is there already: only what it denies is suggested, and the whole of it is written with the
    /// rules added
    #[arg(long, value_name = "AGENT.TOML")]
    merge: Option<PathBuf>,
    /// Change the manifest of --merge in place
    #[arg(long, requires = "merge")]
    write: bool,
    /// The form of the files
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
    /// Write one JSON object
    #[arg(long, conflicts_with_all = ["merge", "write"])]
    json: bool,
    /// Recorded traffic, as `exeat replay` takes it
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Level {
    /// Origins, and path prefixes where paths repeat
    Auto,
    /// Whole hosts
    Host,
    /// Origins
    Origin,
    /// Path prefixes wherever the paths share one
    Path,
}

impl From<Level> for Detail {
    fn from(level: Level) -> Self {
        match level {
            Level::Auto => Self::Auto,
            Level::Host => Self::Host,
            Level::Origin => Self::Origin,
            Level::Path => Self::Path,
        }
    }
}

/// What was seen, and what could not be.
#[derive(Default)]
struct Seen {
    observations: Observations,
    records: u64,
    malformed: u64,
    unreadable: u64,
}

pub(super) fn run(arguments: &SuggestArgs, out: &mut impl Write) -> anyhow::Result<Ended> {
    let beside = match &arguments.merge {
        None => None,
        Some(path) if doc::Format::of(&path.to_string_lossy()) != doc::Format::Toml => {
            anyhow::bail!("cannot merge into {}: only TOML keeps its comments; add the rules by hand", path.display())
        }
        Some(path) => match load::load(&Inputs { manifests: vec![path.clone()], ..Inputs::default() }) {
            Ok(loaded) => Some(loaded.policy),
            Err(error) => return show_load_error(error),
        },
    };
    let seen = arguments.read()?;
    let options = Options { detail: arguments.level.into(), wildcards: arguments.wildcards };
    let suggestion = seen.observations.suggest(options, beside.as_ref());
    if let Some(example) = suggestion.denied.first() {
        anyhow::bail!("no rule could be written for {example}, which would be denied: please report this");
    }
    match &arguments.merge {
        Some(path) => {
            if beside.is_some_and(|policy| !policy.restricts()) {
                anyhow::bail!("{} allows everything that it does not block: nothing has to be added", path.display());
            }
            write_merged(path, &suggestion, arguments.write, out)?;
            write_remarks(&mut io::stderr(), &seen, &suggestion)?;
        }
        None if arguments.json => {
            serde_json::to_writer(&mut *out, &View::of(&seen, &suggestion)).map_err(io::Error::from)?;
            out.write_all(b"\n")?;
        }
        None => {
            write_remarks(out, &seen, &suggestion)?;
            write_toml(out, &suggestion)?;
        }
    }
    out.flush()?;
    // What stays denied is for a person to look at.
    Ok(if suggestion.blocked.is_empty() && suggestion.hosts_left_out == 0 { Ended::Clean } else { Ended::Found })
}

/// Suggests rules for what a session asked for, as its events tell.
#[cfg(target_os = "linux")]
pub(super) fn of_session(events: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    let arguments = SuggestArgs {
        level: Level::Auto,
        wildcards: false,
        only_permitted: false,
        merge: None,
        write: false,
        format: Format::Auto,
        json: false,
        logs: vec![events.to_owned()],
    };
    run(&arguments, out).map(drop)
}

impl SuggestArgs {
    fn read(&self) -> anyhow::Result<Seen> {
        let mut all = Seen::default();
        let work = |piece| {
            let mut seen = Seen::default();
            let (_, unreadable) = each(piece, |record| {
                if self.only_permitted && record.recorded == Some(false) {
                    return;
                }
                seen.records += 1;
                match Asked::read(&record.asked) {
                    Ok(Asked::Url(target)) => seen.observations.request(&target),
                    Ok(Asked::Authority(authority)) => seen.observations.tunnel(&authority),
                    Err(_) => seen.malformed += 1,
                }
            });
            seen.unreadable = unreadable;
            seen
        };
        read_all(&self.logs, self.format, work, |seen| {
            all.observations.merge(seen.observations);
            all.records += seen.records;
            all.malformed += seen.malformed;
            all.unreadable += seen.unreadable;
            all.records
        })?;
        Ok(all)
    }
}

/// What is to be known about the suggestion, as comments.
fn write_remarks(out: &mut impl Write, seen: &Seen, suggestion: &Suggestion) -> io::Result<()> {
    writeln!(out, "# {} requests and tunnels were seen.", seen.records)?;
    if seen.malformed + seen.unreadable > 0 {
        writeln!(out, "# {} could not be read and are not covered.", seen.malformed + seen.unreadable)?;
    }
    if suggestion.hosts_left_out > 0 {
        let (out_of, most) = (suggestion.hosts_left_out, Observations::MOST_HOSTS);
        writeln!(out, "# {out_of} hosts are left out: no more than {most} are kept.")?;
    }
    for (asked, rule) in suggestion.blocked.iter().take(10) {
        writeln!(out, "# stays blocked: {asked} by {:?} at {}:{}", rule.pattern, rule.file, rule.line)?;
    }
    if suggestion.blocked.len() > 10 {
        writeln!(out, "# and {} more", suggestion.blocked.len() - 10)?;
    }
    Ok(())
}

fn write_toml(out: &mut impl Write, suggestion: &Suggestion) -> io::Result<()> {
    if suggestion.rules.is_empty() {
        return writeln!(out, "# Nothing has to be added. (An empty list would restrict nothing.)");
    }
    writeln!(out, "\n[network_access]\nallowed = [")?;
    for rule in &suggestion.rules {
        writeln!(out, "  # {}", remark(rule))?;
        writeln!(out, "  {},", merge::quoted(&rule.pattern.to_string()))?;
    }
    writeln!(out, "]")
}

/// What a rule is for, and what it permits beside that.
fn remark(rule: &SuggestedRule) -> String {
    format!("{} times ({}); would also permit {}", rule.seen, rule.saw, rule.also)
}

fn write_merged(path: &Path, suggestion: &Suggestion, in_place: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let rules: Vec<(String, String)> =
        suggestion.rules.iter().map(|rule| (rule.pattern.to_string(), remark(rule))).collect();
    let merged = merge::merge(&text, &rules).with_context(|| format!("cannot merge into {}", path.display()))?;
    if !in_place {
        return Ok(out.write_all(merged.as_bytes())?);
    }
    if merged != text {
        // A manifest that is cut short by a full disk would permit something else, so it is replaced as a whole.
        let partial = path.with_extension("toml.partial");
        fs::write(&partial, merged).with_context(|| format!("cannot write {}", partial.display()))?;
        fs::rename(&partial, path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(writeln!(out, "{}: {} rules added", path.display(), rules.len())?)
}

/// The suggestion for machines.
#[derive(Serialize)]
struct View {
    seen: u64,
    unreadable: u64,
    hosts_left_out: u64,
    rules: Vec<RuleView>,
}

#[derive(Serialize)]
struct RuleView {
    pattern: String,
    seen: u64,
    saw: String,
    also_permits: String,
}

impl View {
    fn of(seen: &Seen, suggestion: &Suggestion) -> Self {
        let rule = |rule: &SuggestedRule| RuleView {
            pattern: rule.pattern.to_string(),
            seen: rule.seen,
            saw: rule.saw.clone(),
            also_permits: rule.also.clone(),
        };
        Self {
            seen: seen.records,
            unreadable: seen.malformed + seen.unreadable,
            hosts_left_out: suggestion.hosts_left_out,
            rules: suggestion.rules.iter().map(rule).collect(),
        }
    }
}
