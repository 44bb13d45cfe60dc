//! `exeat ready`: readiness evidence, probed now.

use std::io::{self, Write};

use anyhow::Context as _;
use clap::Args;

use super::{Ended, FileArgs, StateArgs, Style, show_start_error, stdout_has_color};
use crate::evidence::report::{Check, CheckStatus, Evidence, ServerEvidence, Status};
use crate::server::{self, Options};

#[derive(Args, Debug)]
pub(super) struct ReadyArgs {
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    state: StateArgs,
    /// Write the evidence as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &ReadyArgs, out: &mut impl Write) -> anyhow::Result<Ended> {
    let options = Options {
        config: arguments.files.config.clone(),
        manifests: arguments.files.manifests.clone(),
        overrides: arguments.files.overrides.clone(),
        state_dir: arguments.state.folder(),
        // Only its own checks come in.
        private: true,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let evidence = match runtime.block_on(server::check_readiness(&options)) {
        Ok(evidence) => evidence,
        Err(error) => return show_start_error(error),
    };
    if arguments.json {
        serde_json::to_writer_pretty(&mut *out, &evidence).map_err(io::Error::from)?;
        out.write_all(b"\n")?;
    } else {
        table(&evidence, Style::new(stdout_has_color()), out)?;
    }
    out.flush()?;
    Ok(if evidence.readiness.ready { Ended::Clean } else { Ended::Found })
}

/// A line a capability with its checks, and what did not pass under it.
fn table(evidence: &Evidence, style: Style, out: &mut impl Write) -> io::Result<()> {
    let Style { green, red, yellow, dim, bold, reset } = style;
    let color = |status| match status {
        Status::Ready => green,
        Status::Unavailable => red,
        _ => yellow,
    };
    let capabilities = &evidence.readiness.capabilities;
    let width = capabilities.iter().map(|capability| capability.name.chars().count()).max().unwrap_or_default();
    for capability in capabilities {
        let server = evidence.servers.iter().find(|server| server.capability == *capability);
        let (name, status) = (&capability.name, capability.status);
        write!(out, "{}{:<11}{reset} {bold}{name:<width$}{reset}", color(status), status.as_str())?;
        if let Some(server) = server.filter(|server| server.url.is_some()) {
            write!(out, "  {}", marks(server, style))?;
        }
        let known = [&capability.detected_version, &capability.protocol_version];
        for known in known.into_iter().flatten() {
            write!(out, "  {}", known.escape_debug())?;
        }
        if let Some(tools) = server.and_then(|server| server.tools) {
            write!(out, "  {tools} tools")?;
        }
        if server.is_none() || capability.transport == Some("stdio") {
            write!(out, "  {dim}{}{reset}", capability.reason.escape_debug())?;
        }
        writeln!(out)?;
        for result in server.into_iter().filter(|server| server.url.is_some()).flat_map(|server| &server.checks) {
            if matches!(result.status, CheckStatus::Passed | CheckStatus::NotRun) {
                continue;
            }
            let (check, status) = (result.check.as_str(), result.status.as_str());
            write!(out, "              {yellow}{check} {status}{reset}: {}", result.reason)?;
            if !result.detail.is_empty() {
                write!(out, "  {dim}{}{reset}", result.detail.escape_debug())?;
            }
            writeln!(out)?;
        }
    }
    let digest = evidence.policy.digest.get(..19).unwrap_or(&evidence.policy.digest);
    let verdict = if evidence.readiness.ready { "ready" } else { "not ready" };
    let complete = match evidence.completeness {
        crate::evidence::report::Completeness::Complete => "complete",
        crate::evidence::report::Completeness::Partial => "partial",
    };
    let mode = evidence.policy.mode;
    writeln!(
        out,
        "{bold}{verdict}{reset}  {dim}policy {digest}…, mode {mode}, evidence {complete}, confinement advisory{reset}"
    )?;
    for limitation in &evidence.limitations {
        writeln!(out, "  {dim}not said: {limitation}{reset}")?;
    }
    Ok(())
}

/// The checks as one letter each, in order: those that passed in capitals' place of their name, others as a sign.
fn marks(server: &ServerEvidence, Style { green, red, yellow, dim, reset, .. }: Style) -> String {
    debug_assert_eq!(server.checks.len(), Check::ALL.len());
    let mark = |status| match status {
        CheckStatus::Passed => format!("{green}✓{reset}"),
        CheckStatus::Failed => format!("{red}✗{reset}"),
        CheckStatus::Error => format!("{red}!{reset}"),
        CheckStatus::Inconclusive => format!("{yellow}?{reset}"),
        CheckStatus::NotRun => format!("{dim}·{reset}"),
    };
    server.checks.iter().map(|result| mark(result.status)).collect()
}
