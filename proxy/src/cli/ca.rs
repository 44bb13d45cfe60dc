//! `exeat ca`: the interception CA for clients and people.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::{Args, Subcommand};
use ring::digest::{SHA256, digest};
use rustls_pki_types::CertificateDer;

use super::{Ended, FileArgs, StateArgs, show_load_error};
use crate::config::Config;
use crate::intercept::Ca;
use crate::load;

#[derive(Args, Debug)]
pub(super) struct CaArgs {
    #[command(subcommand)]
    command: CaCommand,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    state: StateArgs,
}

#[derive(Debug, Subcommand)]
enum CaCommand {
    /// Show where the CA is and its fingerprint; makes it if there is none
    Show,
    /// Write the certificate, PEM
    Export {
        /// To this file instead of the standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Write the system's roots and the certificate, PEM: what clients take that replace their roots
    Bundle {
        /// To this file instead of the standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

pub(super) fn run(arguments: &CaArgs, out: &mut impl Write) -> anyhow::Result<Ended> {
    let ca = match load::config(&arguments.files.inputs()) {
        Ok(config) => open_ca(&config, &arguments.state.folder())?,
        Err(error) => return show_load_error(error),
    };
    match &arguments.command {
        CaCommand::Show => {
            let fingerprint = digest(&SHA256, ca.cert());
            let fingerprint: Vec<String> = fingerprint.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
            writeln!(out, "certificate  {}", ca.cert_path().display())?;
            writeln!(out, "SHA-256      {}", fingerprint.join(":"))?;
        }
        CaCommand::Export { output } => write_to(output.as_deref(), &pem(ca.cert()), out)?,
        CaCommand::Bundle { output } => write_to(output.as_deref(), &pem_of(&roots(ca.cert())?), out)?,
    }
    Ok(Ended::Clean)
}

/// The CA that a gateway with this config and state folder signs with.
pub(super) fn open_ca(config: &Config, folder: &Path) -> anyhow::Result<Ca> {
    Ok(match &config.intercept.ca {
        Some(files) => Ca::load(&files.cert, &files.key)?,
        None => Ca::open(folder)?,
    })
}

fn write_to(path: Option<&Path>, text: &str, out: &mut impl Write) -> anyhow::Result<()> {
    match path {
        None => out.write_all(text.as_bytes())?,
        Some(path) => write_whole(path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?,
    }
    Ok(())
}

/// Replaces a file whole: a client that reads it meanwhile sees the old or the new one.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let partial = path.with_extension(format!("partial-{}", std::process::id()));
    fs::write(&partial, content)?;
    fs::rename(&partial, path)
}

/// The system's roots, and `ca` behind them.
pub(super) fn roots(ca: &CertificateDer<'_>) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let native = rustls_native_certs::load_native_certs();
    if native.certs.is_empty()
        && let Some(error) = native.errors.into_iter().next()
    {
        return Err(error).context("cannot read the system's roots");
    }
    let mut roots = native.certs;
    roots.push(ca.clone().into_owned());
    Ok(roots)
}

/// Certificates in one PEM text.
pub(super) fn pem_of(certificates: &[CertificateDer<'_>]) -> String {
    certificates.iter().map(pem).collect()
}

/// One certificate as PEM (RFC 7468 section 5.1).
fn pem(cert: &CertificateDer<'_>) -> String {
    let text = BASE64.encode(cert);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().copied().map(char::from));
        pem.push('\n');
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}
