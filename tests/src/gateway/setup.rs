//! Describing and starting a gateway.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::PipeReader;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::canary::{CANARY, Readers};
use super::{Gateway, Secrets, binary};
use crate::certs::{Leaf, TestCa};
use crate::client::Output;
use crate::wait::{Journal, until};

/// What a gateway is started with. Unless told otherwise the guard grants 127.0.0.1, where all origins are.
#[derive(Clone, Debug)]
pub struct Setup {
    allowed: Vec<String>,
    blocked: Vec<String>,
    servers: String,
    manifests: Vec<(String, String)>,
    sections: BTreeMap<String, BTreeMap<String, String>>,
    injects: String,
    files: Vec<(String, String)>,
    trusted: Vec<String>,
    env: Vec<(String, String)>,
    args: Vec<String>,
    under: Vec<String>,
    config: Option<String>,
    state_dir: Option<PathBuf>,
    admin: Option<String>,
    secrets: Secrets,
    secret_files: Vec<String>,
}

impl Default for Setup {
    fn default() -> Self {
        let setup = Self {
            allowed: Vec::new(),
            blocked: Vec::new(),
            servers: String::new(),
            manifests: Vec::new(),
            sections: BTreeMap::new(),
            injects: String::new(),
            files: Vec::new(),
            trusted: Vec::new(),
            env: Vec::new(),
            args: Vec::new(),
            under: Vec::new(),
            config: None,
            state_dir: None,
            admin: None,
            secrets: Secrets::default(),
            secret_files: Vec::new(),
        };
        // Servers see the requests of the test and no others, unless it asks for them.
        let setup = setup.set("admin", "readiness_interval", "\"0s\"");
        setup.set("guard", "allow", r#"["127.0.0.1/32"]"#).bind("HARNESS_CANARY", CANARY)
    }
}

impl Setup {
    /// Adds patterns to `network_access.allowed` of `agent.toml`.
    #[must_use]
    pub fn allow<S: AsRef<str>>(mut self, patterns: &[S]) -> Self {
        self.allowed.extend(patterns.iter().map(|pattern| pattern.as_ref().to_owned()));
        self
    }

    /// Adds patterns to `network_access.blocked` of `agent.toml`.
    #[must_use]
    pub fn block<S: AsRef<str>>(mut self, patterns: &[S]) -> Self {
        self.blocked.extend(patterns.iter().map(|pattern| pattern.as_ref().to_owned()));
        self
    }

    /// Adds an MCP server to `agent.toml`, with header values as they stand in the manifest.
    #[must_use]
    pub fn mcp_server(mut self, name: &str, url: &str, headers: &[(&str, &str)]) -> Self {
        let headers = inline(headers);
        self.servers += &format!("\n[mcpServers.{name}]\ntype = \"http\"\nurl = {url:?}\nheaders = {headers}\n");
        self
    }

    /// Adds lines to the MCP server that was added last.
    #[must_use]
    pub fn server_keys(mut self, lines: &str) -> Self {
        self.servers += &format!("{lines}\n");
        self
    }

    /// Serves the local endpoints of MCP servers on a free port.
    #[must_use]
    pub fn endpoints(self) -> Self {
        self.set("mcp", "listen", "\"127.0.0.1:0\"")
    }

    /// Adds a layer that restricts nothing: without any manifest the gateway enforces its built-in example.
    #[must_use]
    pub fn unrestricted(self) -> Self {
        self.manifest("unrestricted.toml", "name = \"unrestricted\"\n")
    }

    /// Adds a layer: a manifest of its own, outside of those added later and of `agent.toml`.
    #[must_use]
    pub fn manifest(mut self, name: &str, text: &str) -> Self {
        self.manifests.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Sets a key of a section of `exeat.toml`, its value as TOML.
    #[must_use]
    pub fn set(mut self, section: &str, key: &str, value: &str) -> Self {
        self.sections.entry(section.to_owned()).or_default().insert(key.to_owned(), value.to_owned());
        self
    }

    /// Uses this text as `exeat.toml`, whatever else was set.
    #[must_use]
    pub fn config(mut self, text: &str) -> Self {
        self.config = Some(text.to_owned());
        self
    }

    /// Keeps the events in a file of the gateway's folder.
    #[must_use]
    pub fn events(self) -> Self {
        self.set("audit", "events", &format!("{:?}", crate::events::FILE))
    }

    /// Denies by rules only to report it.
    #[must_use]
    pub fn report_only(self) -> Self {
        self.set("policy", "mode", "\"report\"")
    }

    /// Lets names lead to 127.0.0.1.
    #[must_use]
    pub fn names(self, names: &[&str]) -> Self {
        names.iter().fold(self, |setup, name| setup.host(name, "127.0.0.1"))
    }

    /// Lets a name lead to an address.
    #[must_use]
    pub fn host(self, name: &str, address: &str) -> Self {
        self.set("dns.hosts", &format!("{name:?}"), &format!("{address:?}"))
    }

    /// Trusts an authority for upstream certificates.
    #[must_use]
    pub fn trust(mut self, ca: &TestCa) -> Self {
        self.trusted.push(std::fs::read_to_string(ca.pem_path()).unwrap());
        self
    }

    /// Has the proxy port speak TLS with this certificate.
    #[must_use]
    pub fn listen_tls(self, leaf: &Leaf) -> Self {
        let setup = self.file("proxy.pem", &leaf.cert_pem()).file("proxy.key", &leaf.key_pem());
        setup.set("listen", "tls_cert", "\"proxy.pem\"").set("listen", "tls_key", "\"proxy.key\"")
    }

    /// Lets a user in with this password, and nobody without one.
    #[must_use]
    pub fn user(self, name: &str, password: &str) -> Self {
        let file = format!("password-of-{name}");
        self.secret(password)
            .set("listen.auth.users", name, &format!("{{ file = \"@DIR@/{file}\" }}"))
            .file(&file, password)
    }

    /// Lets a bearer of this token in, and nobody without one.
    #[must_use]
    pub fn token(self, name: &str, token: &str) -> Self {
        let file = format!("token-of-{name}");
        self.secret(token).set("listen.auth.tokens", name, &format!("{{ file = \"@DIR@/{file}\" }}")).file(&file, token)
    }

    /// Binds `name` to an environment variable of the same name that holds `secret`.
    #[must_use]
    pub fn bind(self, name: &str, secret: &str) -> Self {
        self.secret(secret).set("bindings", name, &format!("{{ env = {name:?} }}")).env(name, secret)
    }

    /// Sets an environment variable that is a secret.
    #[must_use]
    pub fn secret_env(self, name: &str, secret: &str) -> Self {
        self.secret(secret).env(name, secret)
    }

    /// Says that this must not be in anything that the gateway says: bindings and passwords are secrets already.
    #[must_use]
    pub fn secret(mut self, secret: &str) -> Self {
        self.secrets.add(secret);
        self
    }

    /// Binds `name` to a file called so in the gateway's folder that holds `secret`.
    #[must_use]
    pub fn bind_file(mut self, name: &str, secret: &str) -> Self {
        self.secret_files.push(name.to_owned());
        self.secret(secret).set("bindings", name, &format!("{{ file = \"@DIR@/{name}\" }}")).file(name, secret)
    }

    /// Injects header values, which may be placeholders, into requests below `url`.
    #[must_use]
    pub fn inject(mut self, url: &str, headers: &[(&str, &str)]) -> Self {
        self.injects += &format!("\n[[inject]]\nurl = {url:?}\nheaders = {}\n", inline(headers));
        self
    }

    /// Sets an environment variable; the gateway sees nothing of the test's own but `PATH`.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Writes a file into the gateway's folder. `@DIR@` in a config stands for that folder.
    #[must_use]
    pub fn file(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Adds arguments to `exeat serve`.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    /// Keeps its state in this folder, so that another gateway can go on with it.
    #[must_use]
    pub fn state_dir(mut self, dir: &Path) -> Self {
        self.state_dir = Some(dir.to_owned());
        self
    }

    /// Listens for admin requests there instead of on a free port: an address, or `unix:` and a path.
    #[must_use]
    pub fn admin(mut self, listen: impl ToString) -> Self {
        self.admin = Some(listen.to_string());
        self
    }

    /// The text of `agent.toml`; none where nothing was put into it.
    #[must_use]
    pub fn agent_toml(&self) -> Option<String> {
        if self.allowed.is_empty() && self.blocked.is_empty() && self.servers.is_empty() {
            return None;
        }
        let (allowed, blocked) = (&self.allowed, &self.blocked);
        let access = format!("[network_access]\nallowed = {allowed:?}\nblocked = {blocked:?}\n");
        Some(format!("name = \"harness\"\n\n{access}{}", self.servers))
    }

    /// The text of `exeat.toml`, for a gateway whose files are in `dir`.
    #[must_use]
    pub fn exeat_toml(&self, dir: &Path) -> String {
        let mut sections = self.sections.clone();
        if !self.trusted.is_empty() {
            sections.entry("upstream".to_owned()).or_default().insert("ca".to_owned(), r#"["trusted.pem"]"#.to_owned());
        }
        let mut text = String::new();
        for (section, keys) in &sections {
            text += &format!("[{section}]\n");
            keys.iter().for_each(|(key, value)| text += &format!("{key} = {value}\n"));
            text += "\n";
        }
        let text = self.config.clone().unwrap_or(text + &self.injects);
        text.replace("@DIR@", dir.to_str().unwrap())
    }

    /// Has a program run the gateway: its name and its arguments, behind which the gateway's come. The process has to
    /// become the gateway.
    #[must_use]
    pub fn under(mut self, command: &[&str]) -> Self {
        self.under.extend(command.iter().map(ToString::to_string));
        self
    }

    /// Starts the gateway and waits until it serves.
    pub async fn start(self) -> Gateway {
        self.try_start().await.unwrap_or_else(|output| panic!("the gateway ended: {output:#?}"))
    }

    /// Starts the gateway; gives back what it left behind where it ends instead of serving.
    pub async fn try_start(self) -> Result<Gateway, Output> {
        let dir = TempDir::new().unwrap();
        let ready_file = dir.path().join("ready.json");
        let (mut child, pipes) = self.spawn(dir.path(), &ready_file);
        let lines = Journal::default();
        let readers = Readers::start(pipes, &lines);
        let waiting = until("the gateway to be ready", || {
            let (ended, ready) = (child.try_wait().unwrap(), read_ready(&ready_file));
            async move { ended.map(Err).or(ready.map(Ok)) }
        });
        match waiting.await {
            Ok(ready) => {
                let (proxy, admin) = (address(&ready["proxy"]), address(&ready["admin"]));
                let ca = PathBuf::from(ready["ca"].as_str().unwrap_or_default());
                assert_eq!(ready["pid"].as_u64(), child.id().map(u64::from), "{ready}");
                let own = std::fs::read_to_string(&ca).unwrap();
                std::fs::write(dir.path().join("bundle.pem"), own + &self.trusted.concat()).unwrap();
                let endpoints = ready["mcp"].as_object().expect("the endpoints by name").clone();
                let (secrets, secret_files) = (self.secrets.into(), self.secret_files);
                Ok(Gateway { child, proxy, admin, endpoints, ca, dir, lines, readers, secrets, secret_files })
            }
            Err(status) => {
                readers.wait();
                let said = lines.all().join("\n");
                self.secrets.assert_absent("what the gateway has written", &said);
                Err(Output { code: status.code(), stdout: String::new(), stderr: said })
            }
        }
    }

    /// Writes its files into a folder, and returns the names of the manifests, outermost first.
    pub(crate) fn write_files(&self, dir: &Path) -> Vec<String> {
        std::fs::write(dir.join("exeat.toml"), self.exeat_toml(dir)).unwrap();
        std::fs::write(dir.join("trusted.pem"), self.trusted.concat()).unwrap();
        let agent = self.agent_toml().map(|text| ("agent.toml".to_owned(), text));
        let manifests: Vec<_> = self.manifests.iter().cloned().chain(agent).collect();
        for (name, text) in manifests.iter().chain(&self.files) {
            std::fs::write(dir.join(name), text).unwrap();
        }
        manifests.into_iter().map(|(name, _)| name).collect()
    }

    /// The variables that the gateway is to see.
    pub(crate) fn environment(&self) -> impl Iterator<Item = (&String, &String)> {
        self.env.iter().map(|(name, value)| (name, value))
    }

    /// The secrets that it knows.
    pub(crate) const fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    fn spawn(&self, dir: &Path, ready_file: &Path) -> (Child, [PipeReader; 2]) {
        let manifests = self.write_files(dir);
        let mut words = self.under.iter().map(OsString::from).chain([binary().into()]);
        let mut command = Command::new(words.next().expect("there is the gateway at least"));
        command.args(words);
        let admin = self.admin.clone().unwrap_or_else(|| "127.0.0.1:0".to_owned());
        command.arg("serve").args(["--listen", "127.0.0.1:0", "--admin", &admin]);
        let state = self.state_dir.clone().unwrap_or_else(|| dir.join("state"));
        command.arg("--ready-file").arg(ready_file).arg("--state-dir").arg(state).args(["-c", "exeat.toml"]);
        for name in &manifests {
            command.arg("-m").arg(name);
        }
        command.args(&self.args).current_dir(dir);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", dir);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        let [(said, stdout), (told, stderr)] = [(); 2].map(|()| std::io::pipe().unwrap());
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).kill_on_drop(true);
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {}: {error}", binary().display()));
        (child, [said, told])
    }
}

fn inline(fields: &[(&str, &str)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name:?} = {value:?}")).collect();
    format!("{{ {} }}", fields.join(", "))
}

fn read_ready(path: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn address(value: &Value) -> SocketAddr {
    // A Unix socket has none; whoever asks for one knows its path.
    let text = value.as_str().map(|text| if text.starts_with("unix:") { "0.0.0.0:0" } else { text });
    text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("not an address: {value}"))
}
