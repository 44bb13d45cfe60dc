//! Real programs, with an environment of their own and a time limit.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Output as ProcessOutput, Stdio};

use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::gateway::Gateway;
use crate::peers::search_path;
use crate::wait::{PROGRAM_DEADLINE, within_time};

/// A program to run. It sees nothing of the surrounding environment but `PATH`; its home is an empty folder.
#[derive(Debug)]
pub struct Cmd {
    command: Command,
    home: TempDir,
    input: Vec<u8>,
    shown: String,
}

/// What a program left behind.
#[derive(Clone, Debug)]
pub struct Output {
    /// The exit code; none where a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// Asserts that the program succeeded, and returns its standard output.
    #[track_caller]
    pub fn success(self) -> String {
        assert_eq!(self.code, Some(0), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self.stdout
    }

    /// Asserts that the program failed, and returns its standard output and error together.
    #[track_caller]
    pub fn failure(self) -> String {
        assert_ne!(self.code, Some(0), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self.stdout + &self.stderr
    }

    /// Standard output as JSON, one value a line.
    #[must_use]
    pub fn json_lines(&self) -> Vec<serde_json::Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.stdout.lines().map(parse).collect()
    }
}

impl Cmd {
    /// A program by name or path.
    #[must_use]
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let home = TempDir::new().unwrap();
        let shown = program.as_ref().to_string_lossy().into_owned();
        let mut command = Command::new(program);
        command.env_clear().kill_on_drop(true);
        command.env("PATH", search_path());
        command.env("HOME", home.path()).env("TMPDIR", home.path()).env("LC_ALL", "C.UTF-8");
        // Where these programs look for settings beside their home.
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0");
        command.env("PIP_CONFIG_FILE", "/dev/null").env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        command.env("npm_config_globalconfig", home.path().join("npmrc")).env("npm_config_update_notifier", "false");
        Self { command, home, input: Vec::new(), shown }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, args: I) -> Self {
        self.command.args(args);
        self
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(self, arg: impl AsRef<OsStr>) -> Self {
        self.args([arg])
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets the working folder.
    #[must_use]
    pub fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Sets what it reads on standard input.
    #[must_use]
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// Points it at a proxy, and at a CA bundle in every variable that one of the programs reads.
    #[must_use]
    pub fn proxied(mut self, proxy: &str, ca: &Path) -> Self {
        for name in
            ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "npm_config_proxy", "npm_config_https_proxy"]
        {
            self.command.env(name, proxy);
        }
        self.trusting(ca)
    }

    /// Makes it trust a CA bundle, through every variable that one of the programs reads.
    #[must_use]
    pub fn trusting(mut self, ca: &Path) -> Self {
        for name in [
            "SSL_CERT_FILE",
            "CURL_CA_BUNDLE",
            "REQUESTS_CA_BUNDLE",
            "PIP_CERT",
            "GIT_SSL_CAINFO",
            "NODE_EXTRA_CA_CERTS",
            "npm_config_cafile",
        ] {
            self.command.env(name, ca);
        }
        self
    }

    /// Points it at a gateway: its proxy, and a bundle of the gateway's CA and whatever the gateway trusts.
    #[must_use]
    pub fn through(self, gateway: &Gateway) -> Self {
        self.proxied(&format!("http://{}", gateway.proxy()), &gateway.bundle())
    }

    /// The folder that is its home.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Runs it to its end.
    pub async fn run(mut self) -> Output {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap_or_else(|error| panic!("cannot start {}: {error}", self.shown));
        let mut stdin = child.stdin.take().unwrap();
        let input = self.input;
        let feed = tokio::spawn(async move {
            // A program may end without reading all of it.
            let _ = stdin.write_all(&input).await;
        });
        let output =
            within_time(PROGRAM_DEADLINE, &format!("{} to end", self.shown), child.wait_with_output()).await.unwrap();
        feed.abort();
        Output::from(&output)
    }
}

impl From<&ProcessOutput> for Output {
    fn from(output: &ProcessOutput) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

/// curl through a gateway, silent, with the status on the last line of its output.
#[must_use]
pub fn curl(gateway: &Gateway, args: &[&str]) -> Cmd {
    Cmd::new("curl").args(["-sS", "-w", "\n%{http_code}"]).args(args).through(gateway)
}
