//! A server that is a program of its own.

use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

use super::search_path;
use crate::relay::Task;
use crate::wait::{Journal, PROGRAM_DEADLINE};

/// A running program that writes JSON objects, one a line: first `{"port": n}` once it listens, then whatever there is to
/// say. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Program {
    started: Value,
    lines: Journal<String>,
    _child: Child,
    _reader: Task,
}

impl Program {
    /// Starts it, with an environment that holds `PATH` and `env` alone, and waits for its first line; `what` says of
    /// whom.
    pub(super) async fn start(what: &str, command: &mut Command, env: &[(&str, &str)]) -> Self {
        command.env_clear().env("PATH", search_path()).env("PYTHONDONTWRITEBYTECODE", "1").kill_on_drop(true);
        command.envs(env.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = Journal::default();
        let reader = Task::spawn(copy_lines(child.stdout.take().unwrap(), lines.clone()));
        let first = lines.when_within(PROGRAM_DEADLINE, &format!("{what} to listen"), |all| !all.is_empty()).await;
        let started = serde_json::from_str(&first[0]).unwrap();
        Self { started, lines, _child: child, _reader: reader }
    }

    /// The port that it listens on.
    pub(super) fn port(&self) -> u16 {
        u16::try_from(self.started["port"].as_u64().expect("a port")).unwrap()
    }

    /// The first line.
    pub(super) const fn started(&self) -> &Value {
        &self.started
    }

    /// The lines after the first one, so far.
    pub(super) fn said(&self) -> Vec<Value> {
        self.lines.all().into_iter().skip(1).map(|line| serde_json::from_str(&line).unwrap()).collect()
    }
}

/// Appends the lines of a pipe to a journal until it ends.
pub(super) async fn copy_lines(pipe: impl AsyncRead + Unpin, lines: Journal<String>) {
    let mut reader = BufReader::new(pipe).lines();
    while let Ok(Some(line)) = reader.next_line().await {
        lines.push(line);
    }
}
