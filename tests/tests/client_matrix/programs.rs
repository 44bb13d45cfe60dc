//! Programs that have to be built or set up before they ask for anything.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use exeat_tests::origin::{Reply, Site};
use exeat_tests::peers::script;
use exeat_tests::wait::until;
use tempfile::TempDir;

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; run .ci/setup"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A sparse index of crates below `/index/`.
pub(crate) fn crates() -> Site {
    let sum = "0".repeat(64);
    let entry =
        format!(r#"{{"name":"exeat-sample","vers":"1.0.0","deps":[],"cksum":"{sum}","features":{{}},"yanked":false}}"#);
    Site::default()
        .at("/index/config.json", Reply::bytes("application/json", r#"{"dl":"https://peer.example.test/crates"}"#))
        .at("/index/ex/ea/exeat-sample", Reply::bytes("text/plain", entry + "\n"))
        .at("/*", Reply::status(404))
}

/// cargo, asked to resolve a crate of the index at `$u`.
pub(crate) fn cargo(dir: &Path) -> String {
    let project = dir.join("project");
    std::fs::create_dir_all(project.join("src")).unwrap();
    std::fs::write(project.join("src/lib.rs"), "").unwrap();
    let manifest = "[package]\nname = \"user\"\nversion = \"1.0.0\"\nedition = \"2021\"\n\n\
        [dependencies]\nexeat-sample = { version = \"1\", registry = \"sample\" }\n";
    std::fs::write(project.join("Cargo.toml"), manifest).unwrap();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    format!(
        "(cd {} && rm -f Cargo.lock && CARGO_NET_RETRY=0 CARGO_HOME=$(mktemp -d) {cargo} generate-lockfile -q \
         --config \"registries.sample.index='sparse+$u'\")",
        project.display()
    )
}

/// The program in Go, built.
pub(crate) fn go(dir: &Path) -> String {
    let program = dir.join("fetch-go");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(script("clients/fetch.go"));
    run(build.env("GOCACHE", dir.join("gocache")).env("GOFLAGS", "-mod=mod").env("GO111MODULE", "off"));
    program.display().to_string()
}

/// The program in Java, built.
pub(crate) fn java(dir: &Path, library: &str) -> String {
    run(Command::new("javac").arg("-d").arg(dir).arg(script("clients/Fetch.java")));
    // What the JVM says about its options is no answer.
    format!("java -cp {} Fetch {library} \"$@\" 2>/dev/null; :", dir.display())
}

/// Chromium, with the CA in its store, asked for the page at `$u`.
pub(crate) fn chromium(dir: &Path) -> String {
    let store = dir.join(".pki/nssdb");
    let certutil = format!("certutil -d sql:{}", store.display());
    format!(
        "(mkdir -p {store} && {{ test -e {store}/cert9.db || {{ {certutil} -N --empty-password && \
         {certutil} -A -t C,, -n exeat -i $NODE_EXTRA_CA_CERTS; }}; }} && \
         chromium-headless-shell --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir=$(mktemp -d) \
         --dump-dom \"$u\" | grep -q \">GET /\")",
        store = store.display()
    )
}

/// An SSH server of this user, with a repository.
pub(crate) struct SshServer {
    port: u16,
    dir: TempDir,
    server: std::process::Child,
}

impl Drop for SshServer {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl SshServer {
    pub(crate) async fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let file = |name: &str| dir.path().join(name);
        for name in ["host", "user"] {
            run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file(name)));
        }
        std::fs::copy(file("user.pub"), file("authorized")).unwrap();
        let git = |args: &[&str], repository: PathBuf| {
            let mut git = Command::new("git");
            let identity = ["-c", "user.name=T", "-c", "user.email=t@example.test"];
            run(git.args(args).arg(&repository).env("HOME", dir.path()).env("GIT_CONFIG_NOSYSTEM", "1"));
            identity
        };
        let identity = git(&["init", "-q"], file("work"));
        let mut commit = Command::new("git");
        commit.args(identity).args(["commit", "-q", "--allow-empty", "-m", "One"]).current_dir(file("work"));
        run(commit.env("HOME", dir.path()));
        // A port that is free now: the server takes no other's socket.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let option = |name: &str, value: String| ["-o".to_owned(), format!("{name}={value}")];
        let shown = |name: &str| file(name).display().to_string();
        std::fs::create_dir_all("/run/sshd").ok();
        let mut server = Command::new("/usr/sbin/sshd");
        server.args(["-D", "-e", "-f", "/dev/null"]).stderr(Stdio::null());
        for [flag, value] in [
            option("ListenAddress", format!("127.0.0.1:{port}")),
            option("HostKey", shown("host")),
            option("AuthorizedKeysFile", shown("authorized")),
            option("PidFile", "none".to_owned()),
            option("StrictModes", "no".to_owned()),
            option("UsePAM", "no".to_owned()),
        ] {
            server.arg(flag).arg(value);
        }
        let server = server.spawn().unwrap_or_else(|error| panic!("sshd: {error}; run .ci/setup"));
        let this = Self { port, dir, server };
        until("the SSH server to listen", || async {
            std::net::TcpStream::connect(("127.0.0.1", port)).ok().map(drop)
        })
        .await;
        this
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// git, asked to clone over SSH from the host and port of `$u`.
    pub(crate) fn clone_command(&self, dir: &Path) -> String {
        let key = dir.join("key");
        std::fs::copy(self.dir.path().join("user"), &key).unwrap();
        let ssh = format!(
            "ssh -i {} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes -o BatchMode=yes",
            key.display()
        );
        let work = self.dir.path().join("work");
        // The path is the server's; the host and the port are those of the URL.
        format!("GIT_SSH_COMMAND=\"{ssh}\" git clone -q \"${{u%/repo.git}}{}\" \"$(mktemp -d)\"", work.display())
    }
}
