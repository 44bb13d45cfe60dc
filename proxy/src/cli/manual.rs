//! `exeat completions` and `exeat man`, made from the definitions of the commands themselves.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;

use super::Ended;

#[derive(Args, Debug)]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Args, Debug)]
pub(super) struct ManArgs {
    /// Write a page for each command into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    out: Option<PathBuf>,
    /// The command; by default the page of exeat itself
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

pub(super) fn completions(
    arguments: &CompletionsArgs,
    mut command: Command,
    out: &mut impl Write,
) -> anyhow::Result<Ended> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "exeat", &mut script);
    out.write_all(&script)?;
    Ok(Ended::Clean)
}

pub(super) fn man(arguments: &ManArgs, mut command: Command, out: &mut impl Write) -> anyhow::Result<Ended> {
    command.build();
    if let Some(folder) = &arguments.out {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        pages(&command, folder)?;
        return Ok(Ended::Clean);
    }
    let page = match &arguments.command {
        None => &command,
        Some(name) => command
            .find_subcommand(name)
            .with_context(|| format!("there is no command {name:?}; `exeat --help` lists them"))?,
    };
    render(page, out)?;
    Ok(Ended::Clean)
}

/// A page for the command and each below it, as `exeat-check.1`.
fn pages(command: &Command, folder: &Path) -> anyhow::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = folder.join(format!("{name}.1"));
    let mut page = Vec::new();
    render(command, &mut page)?;
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
        pages(command, folder)?;
    }
    Ok(())
}

fn render(command: &Command, out: &mut impl Write) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name).render(&mut page)?;
    out.write_all(&page)
}
