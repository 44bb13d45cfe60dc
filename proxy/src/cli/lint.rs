//! `exeat lint`.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use exeat_policy::diag::{Code, has_errors};

use super::{Ended, annotations, codes, diagnostics, sarif, stdout_has_color};
use crate::lint::{self, Inputs};

#[derive(Args, Debug)]
pub(super) struct LintArgs {
    /// How to write what was found
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// The gateway's config that the manifests are for
    #[arg(short, long, value_name = "EXEAT.TOML")]
    config: Option<PathBuf>,
    /// Override a key of the config
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    overrides: Vec<String>,
    /// Take the manifests as the layers of one policy, outermost first
    #[arg(long)]
    layers: bool,
    /// Say what is merely worth knowing, too
    #[arg(long)]
    notes: bool,
    /// Make the exit code 1 for warnings, too
    #[arg(long)]
    strict: bool,
    /// Explain a code, such as E0101, with an example
    #[arg(long, value_name = "CODE", exclusive = true)]
    explain: Option<Code>,
    /// Manifests (TOML, YAML or JSON) and configs (names that end in `exeat.toml`); `-` reads a TOML manifest from the
    /// standard input
    #[arg(required_unless_present = "explain", value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// With the source line under each
    Text,
    /// One JSON object a line
    Json,
    /// One SARIF 2.1.0 document
    Sarif,
    /// Annotations of a GitHub workflow
    Github,
}

pub(super) fn run(arguments: &LintArgs, out: &mut impl Write) -> anyhow::Result<Ended> {
    if let Some(code) = arguments.explain {
        writeln!(out, "{}", codes::explain(code))?;
        return Ok(Ended::Clean);
    }
    let found = lint::lint(&Inputs {
        files: arguments.files.clone(),
        config: arguments.config.clone(),
        overrides: arguments.overrides.clone(),
        layered: arguments.layers,
        notes: arguments.notes,
    })?;
    let format = if arguments.json { Format::Json } else { arguments.format };
    let text = match format {
        Format::Text => diagnostics::render_text(&found, stdout_has_color()),
        Format::Json => diagnostics::render_json(&found),
        Format::Sarif => sarif::render(&found),
        Format::Github => annotations::render(&found),
    };
    out.write_all(text.as_bytes())?;
    out.flush()?;
    let warned = arguments.strict && found.iter().any(|problem| problem.severity() > exeat_policy::Severity::Note);
    Ok(if has_errors(&found) || warned { Ended::Found } else { Ended::Clean })
}
