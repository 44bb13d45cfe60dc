//! Sessions: `exeat run` with a manifest and a config of the test.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::client::Output;
use crate::events;
use crate::gateway::{Setup, binary, profile_dir};
use crate::peers::search_path;
use crate::wait::{PROGRAM_DEADLINE, within_time};

/// The user and group that nobody is on Debian.
const NOBODY: &str = "65534";

/// A session to be started.
#[derive(Debug)]
pub struct Session {
    setup: Setup,
    args: Vec<String>,
    env: Vec<(String, String)>,
    dir: TempDir,
    rootless: bool,
}

/// What a session left behind.
#[derive(Debug)]
pub struct Ended {
    /// What `exeat run` did, and the command inside with it.
    pub output: Output,
    /// The report; null where there is none.
    pub report: Value,
    /// The events.
    pub events: Vec<Value>,
    /// The folder of its files.
    pub dir: TempDir,
}

impl Ended {
    /// The decisions, each as `entry verdict reason target`, the target without its query.
    #[must_use]
    pub fn decisions(&self) -> Vec<String> {
        let decisions = self.events.iter().filter(|event| event["kind"] == "decision");
        let words = |event: &Value| ["entry", "verdict", "reason"].map(|key| event[key].as_str().unwrap().to_owned());
        decisions.map(|event| format!("{} {}", words(event).join(" "), events::asked(event))).collect()
    }

    /// Asserts that the decisions include this one.
    #[track_caller]
    pub fn assert_decided(&self, decision: &str) {
        let decisions = self.decisions();
        assert!(decisions.iter().any(|found| found == decision), "no {decision:?} in {decisions:#?}");
    }
}

/// Whether the tests run as root, who alone can become somebody else.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Session {
    /// One with this manifest and config.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let dir = TempDir::new().unwrap();
        Self { setup, args: Vec::new(), env: Vec::new(), dir, rootless: false }
    }

    /// Says what to do about confinement.
    #[must_use]
    pub fn isolate(self, how: &str) -> Self {
        self.args(&["--isolate", how])
    }

    /// Adds arguments to `exeat run`.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    /// Sets an environment variable of `exeat run`.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs it as somebody who is not root.
    #[must_use]
    pub const fn rootless(mut self) -> Self {
        self.rootless = true;
        self
    }

    /// The folder of its files, in which it runs.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The program of tries, where the session can run it.
    #[must_use]
    pub fn probe(&self) -> PathBuf {
        let copy = self.dir.path().join("probe");
        if !copy.exists() {
            std::fs::copy(profile_dir().join("probe"), &copy).unwrap();
        }
        copy
    }

    /// Starts it, with pipes.
    #[must_use]
    pub fn spawn(&self, line: &[&str]) -> Child {
        let dir = self.dir.path();
        let manifests = self.setup.write_files(dir);
        let mut command = if self.rootless && is_root() {
            // Nobody enters root's folders: the program and its files are where it can.
            let copy = dir.join("exeat");
            std::fs::copy(binary(), &copy).unwrap();
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).unwrap();
            let mut command = Command::new("setpriv");
            command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]).arg(copy);
            command
        } else {
            Command::new(binary())
        };
        command.args(["run", "--state-dir", "state", "--report", "report.json", "--events", "events.jsonl"]);
        command.args(["-c", "exeat.toml"]);
        for name in manifests {
            command.arg("-m").arg(name);
        }
        command.args(&self.args).arg("--").args(line).current_dir(dir).kill_on_drop(true);
        command.env_clear().env("PATH", search_path()).env("HOME", dir).env("LC_ALL", "C.UTF-8").env("TMPDIR", dir);
        command.envs(self.setup.environment()).envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap_or_else(|error| panic!("cannot start a session: {error}"))
    }

    /// Runs a command in it to its end.
    pub async fn run(self, line: &[&str]) -> Ended {
        let mut child = self.spawn(line);
        drop(child.stdin.take());
        self.ended(child).await
    }

    /// Waits for the end of a session that was started.
    pub async fn ended(self, child: Child) -> Ended {
        let output = within_time(PROGRAM_DEADLINE, "a session to end", child.wait_with_output()).await.unwrap();
        let read = |name: &str| std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
        let secrets = self.setup.secrets();
        secrets.assert_absent("what the session has written", &String::from_utf8_lossy(&output.stderr));
        ["report.json", "events.jsonl"].iter().for_each(|name| secrets.assert_absent(name, &read(name)));
        let report = serde_json::from_str(&read("report.json")).unwrap_or(Value::Null);
        let events = events::read(&self.dir.path().join("events.jsonl"));
        Ended { output: Output::from(&output), report, events, dir: self.dir }
    }
}
