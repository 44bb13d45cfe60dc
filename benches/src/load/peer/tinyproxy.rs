//! Tinyproxy: a thread a connection, a list of hosts, a log line a connection.

use std::ffi::OsString;

use super::{HOST, Peer, Task};

pub(super) fn prepare(task: &Task<'_>) -> anyhow::Result<Vec<OsString>> {
    let hosts: String = task
        .hosts(Peer::Tinyproxy.dialled().unwrap_or(HOST))
        .map(|host| format!("^{}$\n", host.replace('.', "\\.")))
        .collect();
    let hosts = task.write("allowed", &hosts)?;
    let config = format!(
        r#"Listen {}
Port {}
Timeout 600
MaxClients 8000
LogFile "{}"
LogLevel Connect
Filter "{}"
FilterExtended On
FilterDefaultDeny Yes
"#,
        task.listen.ip(),
        task.listen.port(),
        task.dir.join("access.log").display(),
        hosts.display(),
    );
    let config = task.write("tinyproxy.conf", &config)?;
    Ok(vec!["-d".into(), "-c".into(), config.into()])
}
