//! `exeat lint`.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use exeat_policy::diag::has_errors;

use super::{Ended, diagnostics, stdout_has_color};
use crate::load;

#[derive(Args, Debug)]
pub(super) struct LintArgs {
    /// How to write what was found
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Manifests (TOML, YAML or JSON) and configs (`exeat.toml`); `-` reads a TOML manifest from the standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// With the source line under each
    Text,
    /// One JSON object a line
    Json,
}

pub(super) fn run(arguments: &LintArgs, out: &mut impl Write) -> anyhow::Result<Ended> {
    let mut found = Vec::new();
    for path in &arguments.files {
        found.append(&mut load::lint(path)?);
    }
    let text = if arguments.json || arguments.format == Format::Json {
        diagnostics::render_json(&found)
    } else {
        diagnostics::render_text(&found, stdout_has_color())
    };
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(if has_errors(&found) { Ended::Found } else { Ended::Clean })
}
