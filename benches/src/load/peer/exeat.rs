//! exeat: a manifest with the hosts, or with a path of the origin where TLS is to be opened.

use std::ffi::OsString;
use std::fmt::Write as _;

use super::{HOST, Job, Task, fresh_host};
use crate::load::origin::CREDENTIAL;

pub(super) fn prepare(task: &Task<'_>) -> anyhow::Result<Vec<OsString>> {
    let manifest = task.write("agent.toml", &manifest(task)?)?;
    let config = task.write("exeat.toml", &config(task)?)?;
    let (listen, admin) = (task.listen.to_string(), task.admin.to_string());
    let mut args: Vec<OsString> = ["serve", "--admin", &admin, "--listen", &listen].map(OsString::from).into();
    let paths = [("-c", config), ("-m", manifest), ("--state-dir", task.dir.join("state"))];
    args.extend(paths.into_iter().flat_map(|(flag, path)| [flag.into(), path.into()]));
    Ok(args)
}

fn manifest(task: &Task<'_>) -> anyhow::Result<String> {
    let served = |host: &str| format!("https://{host}:{}/served/", task.origin.port());
    let own = if task.job.opens_tls() { served(HOST) } else { HOST.to_owned() };
    let mut text = "name = \"bench\"\n\n[network_access]\nallowed = [\n".to_owned();
    for host in task.hosts(&own) {
        writeln!(text, "  {host:?},")?;
    }
    for name in (0..task.names).map(fresh_host) {
        writeln!(text, "  {:?},", if task.job.opens_tls() { served(&name) } else { name })?;
    }
    if task.job == Job::InterceptCalls {
        for number in 1..task.servers {
            writeln!(text, "  {:?},", other(number))?;
        }
        text += "]\n";
        for number in 0..task.servers {
            let url = if number == 0 { served(HOST) + "mcp" } else { format!("https://{}/mcp", other(number)) };
            writeln!(
                text,
                "\n[mcpServers.s{number}]\nurl = {url:?}\nheaders = {{ Authorization = \"${{MCP_AUTHORIZATION}}\" }}"
            )?;
        }
    } else {
        text += "]\n";
    }
    Ok(text)
}

/// An MCP server that nobody calls.
fn other(number: usize) -> String {
    format!("server-{number}.zone-{}.example", number % 977)
}

fn config(task: &Task<'_>) -> anyhow::Result<String> {
    let (proxy, origin) = (&task.authorities.proxy, &task.authorities.origin);
    let mut text = format!(
        r#"[guard]
allow = ["127.0.0.0/8"]

[intercept]
ca_cert = {:?}
ca_key = {:?}

[upstream]
ca = {:?}

[audit]
# The one line for each request that the others write, too.
events = {:?}
log = false

[admin]
# The origin answers every request alike, so a check of its readiness would fail over and over.
readiness_interval = "0s"

[sessions]
max = 1000

[dns.hosts]
"{HOST}" = "{}"
"#,
        proxy.pem_path(),
        proxy.key_path(),
        origin.pem_path(),
        task.dir.join("events.jsonl"),
        task.origin.ip(),
    );
    for name in (0..task.names).map(fresh_host) {
        writeln!(text, "{name:?} = \"{}\"", task.origin.ip())?;
    }
    if task.job == Job::InterceptCalls {
        let credential = task.write("credential", CREDENTIAL)?;
        writeln!(text, "\n[bindings]\nMCP_AUTHORIZATION = {{ file = {credential:?} }}")?;
        for number in 0..task.servers {
            writeln!(
                text,
                "\n[mcp.s{number}]\ntools = {{ allow = [\"search_*\", \"get_*\"], deny = [\"*delete*\"] }}"
            )?;
        }
    }
    Ok(text)
}
