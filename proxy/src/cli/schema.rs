//! `exeat schema`: the JSON Schemas of what exeat reads and writes, for editors and pipelines.

use std::io::Write;

use clap::{Args, ValueEnum};

use super::Ended;

#[derive(Args, Debug)]
pub(super) struct SchemaArgs {
    /// Of what
    #[arg(value_enum)]
    of: Of,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Of {
    /// An agent manifest (draft-04)
    Manifest,
    /// The gateway's config, `exeat.toml` (draft-07)
    Config,
    /// An event: a line of the file that `[audit] events` names (draft-07)
    Event,
}

impl Of {
    const fn text(self) -> &'static str {
        match self {
            Self::Manifest => include_str!("../../../config/schemas/agent.v1.schema.json"),
            Self::Config => include_str!("../../../config/schemas/exeat.v1.schema.json"),
            Self::Event => include_str!("../../../config/schemas/event.v1.schema.json"),
        }
    }
}

pub(super) fn run(arguments: &SchemaArgs, out: &mut impl Write) -> anyhow::Result<Ended> {
    out.write_all(arguments.of.text().as_bytes())?;
    Ok(Ended::Clean)
}
