//! `exeat env`: the variables that point clients at the gateway.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::ca::open_ca;
use super::clients::{self, Proxy, Trust};
use super::{Ended, FileArgs, StateArgs, show_load_error};
use crate::config::Config;
use crate::listener::endpoint::path_of;
use crate::load;

#[derive(Args, Debug)]
pub(super) struct EnvArgs {
    #[command(flatten)]
    files: FileArgs,
    /// The gateway's URL; by default that of the config (https:// where the port speaks TLS), or http://127.0.0.1:3128
    #[arg(long, value_name = "URL")]
    proxy: Option<String>,
    /// The CA's certificate; by default that of the state folder, made if there is none
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// How to write the variables
    #[arg(long, value_enum, default_value_t = Shell::Sh)]
    shell: Shell,
    /// The listener of the local MCP endpoints; by default that of the config, if it has a port there
    #[arg(long, value_name = "ADDR")]
    mcp: Option<SocketAddr>,
    #[command(flatten)]
    state: StateArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shell {
    /// sh, bash, zsh
    Sh,
    /// fish
    Fish,
    /// PowerShell
    Powershell,
    /// One JSON object
    Json,
    /// A file for docker run --env-file
    Docker,
}

pub(super) fn run(arguments: &EnvArgs, out: &mut impl Write) -> anyhow::Result<Ended> {
    let config = match load::config(&arguments.files.inputs()) {
        Ok(config) => config,
        Err(error) => return show_load_error(error),
    };
    let scheme = if config.listen.tls.is_some() { "https" } else { "http" };
    let listener = || format!("{scheme}://{}", reachable(config.listen.proxy));
    let proxy = arguments.proxy.clone().unwrap_or_else(listener);
    let folder = arguments.state.folder();
    let (cert, cert_path) = match &arguments.ca {
        Some(path) => {
            let cert = CertificateDer::from_pem_file(path)
                .map_err(|error| anyhow::anyhow!("{} holds no PEM certificate: {error}", path.display()))?;
            (cert, path.clone())
        }
        None => {
            let ca = open_ca(&config, &folder)?;
            (ca.cert().clone(), ca.cert_path().to_owned())
        }
    };
    let trust = Trust::write(&folder, &cert, &cert_path)?;
    let mut variables = clients::variables(&Proxy { url: proxy, except: "" }, &trust, "");
    variables.extend(endpoints(arguments, &config)?);
    out.write_all(arguments.shell.render(&variables).as_bytes())?;
    Ok(Ended::Clean)
}

/// The address by which clients on this machine reach a listener.
pub(super) fn reachable(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

/// One variable for each MCP server with a local endpoint, where the listener is known.
fn endpoints(arguments: &EnvArgs, config: &Config) -> anyhow::Result<Vec<(String, String)>> {
    let listener = arguments.mcp.or(config.mcp.listen).filter(|listener| listener.port() != 0);
    let Some(listener) = listener else { return Ok(Vec::new()) };
    let servers = load::load(&arguments.files.inputs()).context("cannot name the MCP endpoints")?.mcp.endpoints;
    Ok(endpoint_variables(listener, servers.keys()))
}

/// One variable for each of these servers, whose endpoint is at this listener.
pub(super) fn endpoint_variables<'s>(
    listener: SocketAddr,
    servers: impl Iterator<Item = &'s String>,
) -> Vec<(String, String)> {
    let listener = reachable(listener);
    let variable = |server: &String| {
        let fit =
            |character: char| if character.is_ascii_alphanumeric() { character.to_ascii_uppercase() } else { '_' };
        let name: String = server.chars().map(fit).collect();
        (format!("EXEAT_MCP_{name}"), format!("http://{listener}{}", path_of(server)))
    };
    servers.map(variable).collect()
}

impl Shell {
    fn render(self, variables: &[(String, String)]) -> String {
        if self == Self::Json {
            let object: serde_json::Map<_, _> =
                variables.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
            return serde_json::Value::Object(object).to_string() + "\n";
        }
        variables
            .iter()
            .map(|(name, value)| match self {
                Self::Sh => format!("export {name}='{}'\n", value.replace('\'', r"'\''")),
                Self::Fish => format!("set -gx {name} '{}'\n", value.replace('\\', r"\\").replace('\'', r"\'")),
                Self::Powershell => format!("$env:{name} = '{}'\n", value.replace('\'', "''")),
                Self::Docker | Self::Json => format!("{name}={value}\n"),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_for_each_shell() {
        let variables = [("A".to_owned(), "it's".to_owned()), ("B".to_owned(), "a\\b".to_owned())];
        for (shell, expected) in [
            (Shell::Sh, "export A='it'\\''s'\nexport B='a\\b'\n"),
            (Shell::Fish, "set -gx A 'it\\'s'\nset -gx B 'a\\\\b'\n"),
            (Shell::Powershell, "$env:A = 'it''s'\n$env:B = 'a\\b'\n"),
            (Shell::Docker, "A=it's\nB=a\\b\n"),
            (Shell::Json, "{\"A\":\"it's\",\"B\":\"a\\\\b\"}\n"),
        ] {
            assert_eq!(shell.render(&variables), expected);
        }
    }
}
