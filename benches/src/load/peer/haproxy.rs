//! HAProxy: one thread, a list of hosts, a log line a request, and the origin as its one server.

use std::ffi::OsString;

use super::{HOST, Task};

pub(super) fn prepare(task: &Task<'_>) -> anyhow::Result<Vec<OsString>> {
    let hosts: String = task.hosts(HOST).map(|host| host + "\n").collect();
    let hosts = task.write("allowed", &hosts)?;
    let config = format!(
        r#"global
  nbthread 1
  maxconn 8000
  log stdout format raw local0
defaults
  mode http
  log global
  option httplog
  option http-no-delay
  http-reuse always
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend proxy
  bind {listen}
  acl allowed hdr(host),field(1,:),lower -f {hosts}
  http-request deny unless allowed
  http-request set-uri %[pathq]
  default_backend origin
backend origin
  server origin {origin}
"#,
        listen = task.listen,
        origin = task.origin,
        hosts = hosts.display(),
    );
    let config = task.write("haproxy.cfg", &config)?;
    Ok(vec!["-db".into(), "-f".into(), config.into()])
}
