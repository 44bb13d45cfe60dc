//! Squid: no cache, one process, an access log; ssl-bump with the certificate helper where TLS is to be opened.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use super::{HOST, Task, fresh_host};

const CERTIFICATE_HELPER: &str = "/usr/lib/squid/security_file_certgen";

pub(super) fn prepare(task: &Task<'_>) -> anyhow::Result<Vec<OsString>> {
    // With the dot it is the domain as well.
    let own = if task.names > 0 { format!(".{HOST}") } else { HOST.to_owned() };
    let hosts: String = task.hosts(&own).map(|host| host + "\n").collect();
    let hosts = task.write("allowed", &hosts)?;
    let names = [HOST.to_owned()].into_iter().chain((0..task.names).map(fresh_host));
    let names: String = names.map(|name| format!("{} {name}\n", task.origin.ip())).collect();
    let names = task.write("hosts", &names)?;
    let dir = task.dir.display();
    let (port, bump) = if task.job.opens_tls() { bump(task)? } else { (String::new(), String::new()) };
    let config = format!(
        r#"http_port {listen}{port}
{bump}acl allowed dstdomain "{hosts}"
http_access allow allowed
http_access deny all
hosts_file {names}
cache deny all
cache_mem 0
access_log stdio:{dir}/access.log
buffered_logs on
cache_log {dir}/cache.log
pid_filename {dir}/squid.pid
coredump_dir {dir}
visible_hostname squid.test
max_filedescriptors 20000
shutdown_lifetime 0 seconds
pinger_enable off
"#,
        listen = task.listen,
        hosts = hosts.display(),
        names = names.display(),
    );
    let config = task.write("squid.conf", &config)?;
    open_to_all(task.dir)?;
    Ok(vec!["-N".into(), "-f".into(), config.into()])
}

/// The options of the port, and the lines that have TLS opened.
fn bump(task: &Task<'_>) -> anyhow::Result<(String, String)> {
    let (proxy, origin) = (&task.authorities.proxy, &task.authorities.origin);
    let pem = fs::read_to_string(proxy.pem_path())? + &fs::read_to_string(proxy.key_path())?;
    let pem = task.write("ca.pem", &pem)?;
    let origin_ca = task.write("origin-ca.pem", &fs::read_to_string(origin.pem_path())?)?;
    let database = task.dir.join("certificates");
    let made = Command::new(CERTIFICATE_HELPER)
        .args(["-c".as_ref(), "-s".as_ref(), database.as_os_str(), "-M".as_ref(), "16MB".as_ref()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {CERTIFICATE_HELPER}"))?;
    ensure!(made.success(), "{CERTIFICATE_HELPER} made no database");
    let options =
        format!(" ssl-bump tls-cert={} generate-host-certificates=on dynamic_cert_mem_cache_size=16MB", pem.display());
    let lines = format!(
        r#"sslcrtd_program {CERTIFICATE_HELPER} -s {} -M 16MB
sslcrtd_children 2
tls_outgoing_options cafile={}
acl hello at_step SslBump1
ssl_bump peek hello
ssl_bump bump all
acl served urlpath_regex ^/served/
acl opening method CONNECT
http_access deny !opening !served
"#,
        database.display(),
        origin_ca.display()
    );
    Ok((options, lines))
}

/// Squid gives up root for an account of its own, which has to reach its files.
fn open_to_all(dir: &Path) -> anyhow::Result<()> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_to_all(&entry.path())?;
        } else {
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o666))?;
        }
    }
    Ok(())
}
