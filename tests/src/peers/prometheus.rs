//! A real Prometheus on loopback.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::program::copy_lines;
use super::{installed, search_path};
use crate::client::{Cmd, RawConn};
use crate::relay::Task;
use crate::wait::{Journal, PROGRAM_DEADLINE};

/// Debian's Prometheus. It is killed when this is dropped.
#[derive(Debug)]
pub struct Prometheus {
    addr: SocketAddr,
    _child: Child,
    _reader: Task,
    _data: TempDir,
}

impl Prometheus {
    /// Starts one with a config file.
    pub async fn start(config: &Path) -> Self {
        let data = TempDir::new().unwrap();
        let mut command = Command::new(program("prometheus"));
        command.arg("--config.file").arg(config).arg("--storage.tsdb.path").arg(data.path());
        command.arg("--web.listen-address=127.0.0.1:0");
        command.env_clear().env("PATH", search_path()).current_dir(data.path()).kill_on_drop(true);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Journal::default();
        let reader = Task::spawn(copy_lines(child.stderr.take().unwrap(), lines.clone()));
        let listening = "msg=\"Listening on\" address=";
        let serves = |all: &[String]| all.iter().any(|line| line.contains("Server is ready to receive web requests"));
        let lines = lines.when_within(PROGRAM_DEADLINE, "Prometheus to serve", serves).await;
        let addr = lines.iter().find_map(|line| line.split_once(listening)).expect("where Prometheus listens").1;
        let addr = addr.split(' ').next().unwrap().parse().unwrap();
        Self { addr, _child: child, _reader: reader, _data: data }
    }

    /// promtool, which comes with it.
    #[must_use]
    pub fn tool() -> Cmd {
        Cmd::new(program("promtool"))
    }

    /// What an expression comes to now: the series of an instant query.
    pub async fn query(&self, expression: &str) -> Vec<Value> {
        let answer = self.api(&format!("query?query={}", encoded(expression))).await;
        assert_eq!(answer["status"], "success", "{expression}: {answer:#}");
        answer["data"]["result"].as_array().expect("series").clone()
    }

    /// The rules that are evaluated, with their health and state.
    pub async fn rules(&self) -> Vec<Value> {
        let answer = self.api("rules").await;
        let groups = answer["data"]["groups"].as_array().expect("groups").clone();
        groups.iter().flat_map(|group| group["rules"].as_array().expect("rules").clone()).collect()
    }

    async fn api(&self, rest: &str) -> Value {
        let mut conn = RawConn::open(self.addr).await;
        conn.get(&format!("/api/v1/{rest}"), &self.addr.to_string()).await.json()
    }
}

/// A program of the package, which is unpacked and not installed: nothing starts it as a service.
fn program(name: &str) -> PathBuf {
    installed("debian").join("usr/bin").join(name)
}

/// A text as a value in a query.
fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
