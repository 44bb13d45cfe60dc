//! What a session did, told at its end: in lines for people, and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use exeat_policy::Reason;
use serde::Serialize;

use crate::audit::Outcome;
use crate::cli::Style;
use crate::tally::{Line, Sums};

/// How many lines of a kind people are shown.
const SHOWN: usize = 10;

/// Whether the command could go around the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub(super) enum Confinement {
    /// It could not.
    Enforced,
    /// It could.
    Advisory {
        /// Why.
        why: String,
    },
}

impl Confinement {
    /// The word in reports and in the command's environment.
    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Advisory { .. } => "advisory",
        }
    }
}

/// The report.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    schema: &'static str,
    version: &'static str,
    command: Vec<String>,
    /// The code that `exeat run` ends with.
    exit_code: u8,
    duration_ms: u128,
    confinement: &'a Confinement,
    policy: Policy<'a>,
    mode: &'static str,
    permitted: Vec<Line>,
    /// What the rules deny, and was let out because they were only reported.
    reported: Vec<Line>,
    refused: Vec<Line>,
    failed: Vec<Line>,
    /// Decisions beyond the lines above.
    untold: u64,
    bytes: Bytes,
    /// Requests that carried credentials, by server.
    servers: BTreeMap<String, u64>,
    /// Where the events are.
    events: Option<&'a Path>,
}

#[derive(Debug, Serialize)]
struct Policy<'a> {
    digest: &'a str,
    files: Vec<&'a str>,
}

/// Bytes of bodies and tunnels.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Bytes {
    /// From the command.
    pub(super) up: u64,
    /// To the command.
    pub(super) down: u64,
}

/// What a report is made of.
pub(super) struct Parts<'a> {
    pub(super) command: Vec<String>,
    pub(super) exit_code: u8,
    pub(super) duration: Duration,
    pub(super) confinement: &'a Confinement,
    pub(super) mode: &'static str,
    pub(super) digest: &'a str,
    pub(super) files: Vec<&'a str>,
    pub(super) bytes: Bytes,
    pub(super) events: Option<&'a Path>,
}

impl<'a> Report<'a> {
    pub(super) fn new(parts: Parts<'a>, sums: Sums) -> Self {
        Self {
            schema: "exeat.session",
            version: "1.0",
            command: parts.command,
            exit_code: parts.exit_code,
            duration_ms: parts.duration.as_millis(),
            confinement: parts.confinement,
            policy: Policy { digest: parts.digest, files: parts.files },
            mode: parts.mode,
            permitted: sums.of(Outcome::Allow),
            reported: sums.of(Outcome::Report),
            refused: sums.of(Outcome::Deny),
            failed: sums.of(Outcome::Error),
            untold: sums.untold,
            bytes: parts.bytes,
            servers: sums.servers,
            events: parts.events,
        }
    }

    /// Writes it for people.
    ///
    /// # Errors
    /// The stream is closed.
    pub(super) fn show(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let Style { bold, dim, green, red, yellow, reset } = style;
        let total = |lines: &[Line]| lines.iter().map(|line| line.count).sum::<u64>();
        writeln!(
            out,
            "{bold}exeat{reset}  {green}{} permitted{reset}, {yellow}{} reported{reset}, {red}{} refused{reset}, {} failed; {} up, {} down  {dim}{}{reset}",
            total(&self.permitted),
            total(&self.reported),
            total(&self.refused),
            total(&self.failed),
            Size(self.bytes.up),
            Size(self.bytes.down),
            self.confinement.as_str(),
        )?;
        if let Confinement::Advisory { why } = self.confinement {
            writeln!(out, "  {yellow}not confined{reset}  {why}")?;
        }
        for (lines, color, word) in [
            (&self.permitted, green, "permitted"),
            (&self.reported, yellow, "reported "),
            (&self.refused, red, "refused  "),
            (&self.failed, yellow, "failed   "),
        ] {
            for line in lines.iter().take(SHOWN) {
                write!(out, "  {color}{word}{reset} {:>5}  {}", line.count, line.target)?;
                if line.reason != Reason::Allowed.as_str() && line.reason != Reason::DefaultAllow.as_str() {
                    write!(out, "  {dim}{}{reset}", line.reason)?;
                }
                match (&line.allow, &line.rule) {
                    (Some(allow), _) => writeln!(out, "  to permit it, add {allow:?} to network_access.allowed")?,
                    (None, Some(rule)) if line.reason == Reason::Blocked.as_str() => writeln!(out, "  by {rule}")?,
                    _ => writeln!(out)?,
                }
            }
            if let Some(more) = lines.len().checked_sub(SHOWN).filter(|more| *more > 0) {
                writeln!(out, "  {word} {more} more kinds")?;
            }
        }
        for (server, count) in &self.servers {
            writeln!(out, "  credentials {count:>3}  {server}")?;
        }
        if let Some(events) = self.events {
            writeln!(out, "  events    {}", events.display())?;
        }
        out.flush()
    }
}

/// A number of bytes, for people.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
        let (mut value, mut unit) = (self.0, None);
        let mut tenths = 0;
        for next in UNITS {
            if value < 1000 {
                break;
            }
            (value, tenths, unit) = (value / 1000, value % 1000 / 100, Some(next));
        }
        match unit {
            None => write!(f, "{value} B"),
            Some(unit) => write!(f, "{value}.{tenths} {unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit_that_fits() {
        for (bytes, expected) in [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (1_999_999, "1.9 MB")] {
            assert_eq!(Size(bytes).to_string(), expected);
        }
    }
}
