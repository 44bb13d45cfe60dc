//! Mitmproxy: mitmdump with an addon that has the list of hosts and writes a line a request.

use std::ffi::OsString;
use std::fs;

use super::{HOST, Job, Peer, Task};

/// What the proxy is told to do beside being one. Certificates and names are the proxy's own affair.
const ADDON: &str = r#"import pathlib

from mitmproxy import http

HERE = pathlib.Path(__file__).parent
ALLOWED = frozenset((HERE / "allowed").read_text().split())
PREFIX, DOMAIN = (HERE / "served").read_text().split()


class Gate:
    def __init__(self):
        self.log = open(HERE / "access.log", "w", buffering=1)

    def judge(self, flow, prefix):
        host = flow.request.pretty_host
        if not ((host in ALLOWED or host.endswith(DOMAIN)) and flow.request.path.startswith(prefix)):
            flow.response = http.Response.make(403)

    def http_connect(self, flow):
        self.judge(flow, "")
        self.log.write(f"CONNECT {flow.request.pretty_host}\n")

    def requestheaders(self, flow):
        self.judge(flow, PREFIX)

    def responseheaders(self, flow):
        if "event-stream" in flow.response.headers.get("content-type", ""):
            flow.response.stream = True

    def response(self, flow):
        self.log.write(f"{flow.request.method} {flow.request.pretty_url} {flow.response.status_code}\n")


addons = [Gate()]
"#;

pub(super) fn prepare(task: &Task<'_>) -> anyhow::Result<Vec<OsString>> {
    let hosts = task.hosts(HOST).chain(Peer::Mitmproxy.dialled().map(str::to_owned));
    task.write("allowed", &hosts.map(|host| host + "\n").collect::<String>())?;
    let prefix = if task.job.opens_tls() { "/served/" } else { "/" };
    task.write("served", &format!("{prefix} .{HOST}\n"))?;
    let addon = task.write("addon.py", ADDON)?;
    let (proxy, origin) = (&task.authorities.proxy, &task.authorities.origin);
    let pem = fs::read_to_string(proxy.key_path())? + &fs::read_to_string(proxy.pem_path())?;
    task.write("mitmproxy-ca.pem", &pem)?;
    let mut settings = vec![
        format!("confdir={}", task.dir.display()),
        format!("listen_host={}", task.listen.ip()),
        format!("listen_port={}", task.listen.port()),
        format!("ssl_verify_upstream_trusted_ca={}", origin.pem_path().display()),
        "stream_large_bodies=1m".to_owned(),
        "ssl_insecure=false".to_owned(),
    ];
    if task.job == Job::Tunnel {
        settings.push("ignore_hosts=.*".to_owned());
    }
    if task.job == Job::InterceptH2 {
        // Or it has the client speak what it finds the origin to speak, which is HTTP/1.1.
        settings.push("connection_strategy=lazy".to_owned());
    }
    let mut args: Vec<OsString> = vec!["--quiet".into(), "-s".into(), addon.into()];
    args.extend(settings.into_iter().flat_map(|setting| ["--set".into(), setting.into()]));
    Ok(args)
}
