//! Git over smart HTTP: `git http-backend` behind an origin, as a CGI program (RFC 3875).

use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::origin::{Reply, Request, Site};
use crate::wire::field_values;

/// A site with repositories below `/team/` and `/secret/`, each called `repo.git` with one commit that adds
/// `hello.txt`. Pushing is allowed. The folder holds the repositories and has to be kept.
pub async fn git_server() -> (Site, TempDir) {
    let root = TempDir::new().unwrap();
    for group in ["team", "secret"] {
        make_repository(root.path(), &root.path().join(group).join("repo.git")).await;
    }
    let path = root.path().to_owned();
    let answer = Reply::computed(move |request| {
        let path = path.clone();
        async move { backend(&path, request).await }
    });
    (Site::default().at("/*", answer), root)
}

fn git(root: &Path) -> Command {
    let mut command = Command::new("git");
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", root).env("GIT_CONFIG_NOSYSTEM", "1");
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "Tester").env(format!("GIT_{role}_EMAIL"), "tester@example.test");
    }
    command
}

async fn run(command: &mut Command) {
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "git failed: {}", String::from_utf8_lossy(&output.stderr));
}

async fn make_repository(root: &Path, bare: &Path) {
    let work = TempDir::new().unwrap();
    std::fs::write(work.path().join("hello.txt"), "hello from git\n").unwrap();
    let here = |args: &[&str]| {
        let mut command = git(root);
        command.current_dir(work.path()).args(args);
        command
    };
    run(&mut here(&["init", "-q", "-b", "main"])).await;
    run(&mut here(&["add", "hello.txt"])).await;
    run(&mut here(&["commit", "-q", "-m", "Add a greeting"])).await;
    run(git(root).args(["clone", "-q", "--bare"]).arg(work.path()).arg(bare)).await;
    run(git(root).arg("-C").arg(bare).args(["config", "http.receivepack", "true"])).await;
}

async fn backend(root: &Path, request: Request) -> Reply {
    let mut command = git(root);
    command.arg("http-backend").env("GIT_PROJECT_ROOT", root).env("GIT_HTTP_EXPORT_ALL", "1");
    command.env("REQUEST_METHOD", &request.method).env("PATH_INFO", request.path());
    command.env("QUERY_STRING", request.query()).env("CONTENT_LENGTH", request.body.len().to_string());
    for (variable, field) in [
        ("CONTENT_TYPE", "content-type"),
        ("HTTP_CONTENT_ENCODING", "content-encoding"),
        ("HTTP_GIT_PROTOCOL", "git-protocol"),
    ] {
        command.env(variable, request.value(field).unwrap_or_default());
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let (_, output) = tokio::join!(
        async move {
            let _ = stdin.write_all(&request.body).await;
        },
        child.wait_with_output()
    );
    cgi_reply(&output.unwrap().stdout)
}

/// A CGI answer: header lines, `Status` among them unless it is 200, an empty line and the body.
fn cgi_reply(output: &[u8]) -> Reply {
    let end = output.windows(4).position(|window| window == b"\r\n\r\n").expect("a CGI header section");
    let lines: Vec<String> = String::from_utf8_lossy(&output[..end]).lines().map(str::to_owned).collect();
    let status = field_values(&lines, "status").first().and_then(|status| status.get(..3)?.parse().ok());
    let content_type = field_values(&lines, "content-type").pop().unwrap_or_default();
    Reply::bytes(&content_type, &output[end + 4..]).with_status(status.unwrap_or(200))
}
