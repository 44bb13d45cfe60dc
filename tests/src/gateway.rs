//! The built binary, started with a manifest and a config of the test.

mod canary;
mod metrics;
mod setup;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, Once};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use rustls::RootCertStore;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Child;

pub(crate) use canary::Secrets;
pub use metrics::Metrics;
pub use setup::Setup;

use crate::certs::roots_of;
use crate::client::{Cmd, H2Conn, Output, RawConn, Response};
use crate::wait::{Journal, until, within};
use canary::Readers;

/// The path of the built `exeat`: `EXEAT_BIN`, or the binary beside the tests in the target folder, which is built
/// once where it is missing.
#[must_use]
pub fn binary() -> PathBuf {
    static BUILD: Once = Once::new();
    if let Some(path) = std::env::var_os("EXEAT_BIN") {
        return path.into();
    }
    let path = profile_dir().join("exeat");
    BUILD.call_once(|| {
        if !path.exists() {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let built = std::process::Command::new(cargo).args(["build", "-p", "exeat", "--bin", "exeat"]).status();
            assert!(built.is_ok_and(|status| status.success()), "cargo build -p exeat failed");
        }
    });
    path
}

/// The folder of the build profile: the one above `deps`, where the test itself stands.
pub(crate) fn profile_dir() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).expect("a test stands in target/PROFILE/deps").to_owned()
}

/// An `exeat` command that is no gateway: `check`, `lint`, `ca`, `env`.
#[must_use]
pub fn exeat(args: &[&str]) -> Cmd {
    Cmd::new(binary()).args(args)
}

/// Runs such a command in a folder with the given files, by name and text, and with `input` to read.
pub async fn exeat_in(files: &[(&str, &str)], args: &[&str], input: &str) -> Output {
    let dir = TempDir::new().unwrap();
    write_files(dir.path(), files);
    exeat(args).dir(dir.path()).input(input).run().await
}

/// Writes files, by name and text, into a folder.
pub fn write_files(dir: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        std::fs::write(dir.join(name), text).unwrap();
    }
}

/// A running gateway. It is killed when this is dropped, and it is an error if it has given away a secret by then.
#[derive(Debug)]
pub struct Gateway {
    child: Child,
    proxy: SocketAddr,
    admin: SocketAddr,
    endpoints: serde_json::Map<String, Value>,
    ca: PathBuf,
    dir: TempDir,
    lines: Journal<String>,
    readers: Readers,
    secrets: Mutex<Secrets>,
    /// The files that hold a secret of a binding.
    secret_files: Vec<String>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let running = matches!(self.child.try_wait(), Ok(None));
        let answers = if running { canary::admin_answers(self.admin) } else { String::new() };
        // The child is reaped by whoever started it.
        let _ = self.child.start_kill();
        self.readers.wait();
        let said = self.lines.all().join("\n");
        let secrets = self.secrets.lock().unwrap();
        secrets.assert_absent("what the gateway has written", &said);
        secrets.assert_absent("an answer of the admin listener", &answers);
        for (file, text) in canary::written_files(self.dir.path()) {
            secrets.assert_absent(&file, &text);
        }
        let panicked = said.lines().find(|line| line.contains("panicked at"));
        assert!(panicked.is_none(), "the gateway has panicked:\n{said}");
    }
}

impl Gateway {
    /// Begins to describe a gateway.
    #[must_use]
    pub fn setup() -> Setup {
        Setup::default()
    }

    /// The proxy listener.
    #[must_use]
    pub const fn proxy(&self) -> SocketAddr {
        self.proxy
    }

    /// The admin listener.
    #[must_use]
    pub const fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The URL of the local endpoint of an MCP server.
    #[must_use]
    pub fn endpoint(&self, server: &str) -> &str {
        self.endpoints[server].as_str().expect("a URL")
    }

    /// The certificate of the interception CA, a PEM file.
    #[must_use]
    pub fn ca(&self) -> &Path {
        &self.ca
    }

    /// The folder of its files: `exeat.toml`, the manifests, `state`.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The interception CA and the CAs that the gateway trusts, as one PEM file.
    #[must_use]
    pub fn bundle(&self) -> PathBuf {
        self.dir.path().join("bundle.pem")
    }

    /// A root store that holds only the interception CA.
    #[must_use]
    pub fn roots(&self) -> Arc<RootCertStore> {
        roots_of(&self.ca)
    }

    /// What it has written to standard output and error so far.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lines.all()
    }

    /// Waits for a line of output that holds `text`, and returns it.
    pub async fn await_line(&self, text: &str) -> String {
        let holds = |all: &[String]| all.iter().any(|line| line.contains(text));
        let lines = self.lines.when(&format!("a line with {text:?} from the gateway"), holds).await;
        lines.into_iter().find(|line| line.contains(text)).unwrap()
    }

    // --- Clients ---------------------------------------------------------------------------------------------------

    /// A connection to the proxy.
    pub async fn open(&self) -> RawConn {
        RawConn::open(self.proxy).await
    }

    /// GETs a URL in absolute form over a connection of its own.
    pub async fn get(&self, url: &str) -> Response {
        self.open().await.get(url, host_of(url)).await
    }

    /// Asks for a tunnel over a connection of its own.
    pub async fn connect(&self, authority: &str) -> (RawConn, Response) {
        let mut conn = self.open().await;
        let response = conn.connect(authority).await;
        (conn, response)
    }

    /// Opens a tunnel that has to be granted.
    pub async fn tunnel(&self, authority: &str) -> RawConn {
        let (conn, response) = self.connect(authority).await;
        assert_eq!(response.status, 200, "{}", response.text());
        conn
    }

    /// Opens a tunnel and TLS in it, trusting only the interception CA: works where the tunnel is inspected.
    pub async fn intercepted(&self, authority: &str) -> RawConn {
        let (host, _) = authority.rsplit_once(':').unwrap();
        let host = host.trim_matches(['[', ']']);
        let conn = self.tunnel(authority).await;
        conn.tls(self.roots(), host, &["http/1.1"]).await.expect("TLS with the interception CA")
    }

    /// Speaks HTTP/2 with prior knowledge to the proxy.
    pub async fn h2(&self) -> H2Conn {
        self.open().await.h2().await
    }

    /// Opens a tunnel and HTTP/2 over TLS in it, trusting only the interception CA.
    pub async fn intercepted_h2(&self, authority: &str) -> H2Conn {
        let (host, _) = authority.rsplit_once(':').unwrap();
        let conn = self.tunnel(authority).await.tls(self.roots(), host, &["h2"]).await;
        let conn = conn.expect("TLS with the interception CA");
        assert_eq!(conn.alpn(), Some("h2"));
        conn.h2().await
    }

    // --- Admin -----------------------------------------------------------------------------------------------------

    /// GETs a path of the admin listener.
    pub async fn admin_get(&self, path: &str) -> Response {
        RawConn::open(self.admin).await.get(path, &self.admin.to_string()).await
    }

    /// Asks the admin listener for something, with a body of JSON where there is one.
    pub async fn admin_ask(&self, method: &str, path: &str, body: Option<&Value>) -> Response {
        let mut conn = RawConn::open(self.admin).await;
        let (fields, body) = match body {
            None => (String::new(), String::new()),
            Some(body) => {
                let body = body.to_string();
                (format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()), body)
            }
        };
        conn.send(format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n{body}", self.admin)).await;
        conn.response_to(method).await
    }

    /// Creates a session, and returns what its creator is told.
    pub async fn session(&self, session: Value) -> Value {
        let response = self.admin_ask("POST", "/v1/sessions", Some(&session)).await;
        assert_eq!(response.status, 201, "{}", response.text());
        response.json()
    }

    /// The metrics as they are.
    pub async fn metrics(&self) -> Metrics {
        let response = self.admin_get("/metrics").await;
        assert_eq!(response.status, 200);
        Metrics::parse(&response.text())
    }

    /// Waits until the series of `name` that carry `labels` add up to `value`. A counter may move just after the
    /// answer it counts.
    pub async fn await_metric(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        let what = format!("{name}{labels:?} to be {value}");
        until(&what, || async { (self.metrics().await.sum(name, labels) == value).then_some(()) }).await;
    }

    /// The answer of `/readyz`.
    pub async fn readyz(&self) -> Response {
        self.admin_get("/readyz").await
    }

    /// The answer of `/livez`.
    pub async fn livez(&self) -> Response {
        self.admin_get("/livez").await
    }

    // --- Life ------------------------------------------------------------------------------------------------------

    /// The process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        let pid = self.child.id().expect("the gateway is running");
        Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
    }

    /// What its open descriptors lead to, as the kernel names it: `socket:[…]`, `pipe:[…]`, paths.
    #[must_use]
    pub fn descriptors(&self) -> Vec<String> {
        let links = self.links().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        links.map(|link| link.to_string_lossy().into_owned()).collect()
    }

    fn links(&self) -> impl Iterator<Item = std::fs::DirEntry> {
        let folder = format!("/proc/{}/fd", self.pid().as_raw_nonzero());
        std::fs::read_dir(folder).unwrap().map(Result::unwrap)
    }

    /// How many sockets it has open.
    #[must_use]
    pub fn sockets(&self) -> usize {
        self.descriptors().iter().filter(|link| link.starts_with("socket:")).count()
    }

    /// Waits until no client and no tunnel is left, drops the pooled connections with a reload, and waits until as many
    /// sockets are open as before.
    pub async fn await_sockets(&self, before: usize) {
        self.await_metric("exeat_tunnels_active", &[], 0.0).await;
        self.await_metric("exeat_connections_active", &[], 0.0).await;
        self.reload().await;
        let what = format!("{before} sockets to be left open");
        until(&what, || async { (self.sockets() <= before).then_some(()) }).await;
    }

    /// Lets it open `more` descriptors beside those it has, or as many as the test itself may have.
    pub fn limit_descriptors(&self, more: Option<usize>) {
        let maximum = getrlimit(Resource::Nofile).maximum;
        // The limit is on the numbers of descriptors, of which the lowest free one is always taken.
        let used: HashSet<usize> =
            self.links().map(|entry| entry.file_name().to_str().unwrap().parse().unwrap()).collect();
        let free = |more| (0..).filter(|number| !used.contains(number)).nth(more).unwrap() as u64;
        let current = more.map_or(maximum, |more| Some(free(more)));
        prlimit(Some(self.pid()), Resource::Nofile, Rlimit { current, maximum }).unwrap();
    }

    /// Its memory in use, in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// Gives it no more memory than `more` bytes beside what it has.
    pub fn limit_memory(&self, more: u64) {
        let limit = Some(self.status("VmData:") + more);
        prlimit(Some(self.pid()), Resource::Data, Rlimit { current: limit, maximum: limit }).unwrap();
    }

    fn status(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid().as_raw_nonzero())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line of that name");
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Replaces one of its files.
    pub fn write(&self, name: &str, text: &str) {
        if self.secret_files.iter().any(|file| file == name) {
            self.secrets.lock().unwrap().add(text);
        }
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }

    /// Sends SIGHUP and waits until the reload has been carried out or refused.
    pub async fn reload(&self) {
        let name = "exeat_policy_reload_total";
        let before = self.metrics().await.sum(name, &[]);
        self.signal(Signal::HUP);
        self.await_metric(name, &[], before + 1.0).await;
    }

    /// Waits until it has ended by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        within("the gateway to end", self.child.wait()).await.unwrap()
    }

    /// Sends SIGTERM and waits until it has ended.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.ended().await
    }
}

/// The authority of an absolute URL.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?']).next().unwrap_or_default()
}
