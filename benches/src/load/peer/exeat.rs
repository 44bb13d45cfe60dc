//! exeat: a manifest with the hosts, or with a path of the origin where TLS is to be opened.

use std::ffi::OsString;
use std::fmt::Write as _;

use super::{HOST, Job, Task};

pub(super) fn prepare(task: &Task<'_>) -> anyhow::Result<Vec<OsString>> {
    let origin = match task.job {
        Job::Forward | Job::Tunnel => HOST.to_owned(),
        Job::Intercept => format!("https://{HOST}:{}/served/", task.origin.port()),
    };
    let mut manifest = "name = \"bench\"\n\n[network_access]\nallowed = [\n".to_owned();
    for host in task.hosts(&origin) {
        writeln!(manifest, "  {host:?},")?;
    }
    manifest += "]\n";
    let (proxy, origin) = (&task.authorities.proxy, &task.authorities.origin);
    let config = format!(
        r#"[guard]
allow = ["127.0.0.0/8"]

[dns.hosts]
"{HOST}" = "{}"

[intercept]
ca_cert = {:?}
ca_key = {:?}

[upstream]
ca = {:?}
"#,
        task.origin.ip(),
        proxy.pem_path(),
        proxy.key_path(),
        origin.pem_path(),
    );
    let manifest = task.write("agent.toml", &manifest)?;
    let config = task.write("exeat.toml", &config)?;
    let listen = task.listen.to_string();
    let mut args: Vec<OsString> = ["serve", "--admin", "off", "--listen", &listen].map(OsString::from).into();
    let paths = [("-c", config), ("-m", manifest), ("--state-dir", task.dir.join("state"))];
    args.extend(paths.into_iter().flat_map(|(flag, path)| [flag.into(), path.into()]));
    Ok(args)
}
