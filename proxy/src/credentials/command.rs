//! Values that a program prints.
//!
//! The program is started as it is written, by no shell, in a process group of its own, with nothing on its standard
//! input and an environment of a few usual variables and those that the config names. What it prints is the value; one
//! line end behind it is not. What it writes to standard error is dropped, since it may be anything.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::error::MintError;
use super::minted::Fresh;
use super::stored::{MAX_SECRET, one_line};
use crate::config::CommandSource;

/// The variables that a program sees without their being named.
const USUAL: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "XDG_RUNTIME_DIR"];

/// Runs the program and takes what it prints.
pub(super) async fn run(source: &CommandSource) -> Result<Fresh, MintError> {
    let program = source.program.display();
    let mut command = Command::new(&source.program);
    command.args(&source.arguments).env_clear();
    let seen = USUAL.into_iter().chain(source.pass_env.iter().map(String::as_str));
    command.envs(seen.filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0).kill_on_drop(true);
    let child =
        command.spawn().map_err(|error| MintError::new(format_args!("{program} cannot be started: {error}")))?;
    let mut running = Running::new(child);
    match timeout(source.timeout, running.output()).await {
        Ok(output) => {
            let value = output.and_then(|output| one_line(output).map_err(|error| format!("what it printed: {error}")));
            let secret = value.map_err(|error| MintError::new(format_args!("{program}: {error}")))?;
            Ok(Fresh { secret, lifetime: source.ttl })
        }
        Err(_) => {
            let limit = source.timeout.as_secs_f32();
            Err(MintError::new(format_args!("{program} was stopped: it took longer than {limit} s")))
        }
    }
}

/// A program under way. Dropping it kills the program and whatever it has started.
struct Running {
    child: Child,
    /// Gone when the program has ended, so that no other group is killed that got its number.
    group: Option<Pid>,
}

impl Running {
    fn new(child: Child) -> Self {
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Self { child, group }
    }

    async fn output(&mut self) -> Result<Zeroizing<Vec<u8>>, String> {
        let failed = |error: std::io::Error| error.to_string();
        let mut output = Zeroizing::new(Vec::with_capacity(MAX_SECRET + 1));
        if let Some(pipe) = self.child.stdout.take() {
            pipe.take(MAX_SECRET as u64 + 1).read_to_end(&mut output).await.map_err(failed)?;
        }
        if output.len() > MAX_SECRET {
            return Err(format!("it printed more than {MAX_SECRET} bytes"));
        }
        let status = self.child.wait().await.map_err(failed)?;
        self.group = None;
        if status.success() { Ok(output) } else { Err(format!("it failed ({status})")) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            // One that has ended meanwhile needs no killing.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use secrecy::ExposeSecret as _;

    use super::*;

    fn shell(script: &str) -> CommandSource {
        CommandSource {
            program: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            ttl: Duration::from_secs(60),
            timeout: Duration::from_secs(30),
            pass_env: Vec::new(),
        }
    }

    async fn printed(source: &CommandSource) -> Result<String, String> {
        let fresh = run(source).await;
        fresh.map(|fresh| fresh.secret.expose_secret().to_owned()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn what_is_printed_is_the_value() {
        assert_eq!(printed(&shell("printf 'Bearer x\\n'; echo no >&2")).await.as_deref(), Ok("Bearer x"));
        assert_eq!(printed(&shell("cat; printf y")).await.as_deref(), Ok("y"), "standard input is empty");
        assert_eq!(run(&shell("echo x")).await.unwrap().lifetime, Duration::from_secs(60));
    }

    #[tokio::test]
    async fn arguments_reach_the_program_as_they_are_written() {
        let arguments =
            vec!["-c".to_owned(), "printf '%s' \"$1\"".to_owned(), "sh".to_owned(), "$(id) `id` ;".to_owned()];
        let source = CommandSource { arguments, ..shell("") };
        assert_eq!(printed(&source).await.as_deref(), Ok("$(id) `id` ;"));
    }

    #[tokio::test]
    async fn the_environment_is_what_is_usual_and_what_is_named() {
        let mut source = shell("printf '%s|%s|%s' \"$PATH\" \"$CARGO_PKG_NAME\" \"$CARGO_MANIFEST_DIR\"");
        source.pass_env.push("CARGO_PKG_NAME".to_owned());
        let path = std::env::var("PATH").unwrap();
        assert_eq!(printed(&source).await.unwrap(), format!("{path}|exeat|"));
    }

    #[tokio::test]
    async fn failures_say_what_happened_and_not_what_was_printed() {
        for (script, expected) in [
            ("echo canary; exit 3", "/bin/sh: it failed (exit status: 3)"),
            ("echo canary; kill -9 $$", "/bin/sh: it failed (signal: 9 (SIGKILL))"),
            ("head -c 70000 /dev/zero", "/bin/sh: it printed more than 65536 bytes"),
            ("printf '\\377'", "/bin/sh: what it printed: it is not UTF-8"),
        ] {
            assert_eq!(printed(&shell(script)).await, Err(expected.to_owned()), "{script}");
        }
        let missing = CommandSource { program: "/nonexistent/program".into(), ..shell("") };
        assert!(printed(&missing).await.unwrap_err().starts_with("/nonexistent/program cannot be started"));
    }

    #[tokio::test]
    async fn what_takes_too_long_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("alive");
        // The child holds the writing end for as long as it lives, so that reading ends with it.
        let script = format!("mkfifo {0}; (exec 3>{0}; sleep 600) & sleep 600", fifo.display());
        let source = CommandSource { timeout: Duration::from_secs(2), ..shell(&script) };
        let reading = tokio::task::spawn_blocking(move || {
            while !Path::new(&fifo).exists() {
                std::thread::yield_now();
            }
            std::fs::read(&fifo)
        });
        assert_eq!(printed(&source).await, Err("/bin/sh was stopped: it took longer than 2 s".to_owned()));
        assert_eq!(reading.await.unwrap().unwrap(), b"");
    }
}
