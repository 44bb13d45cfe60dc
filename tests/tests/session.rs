//! `exeat run`: what passes between a session and its surroundings, confined and not, as root and as somebody else.

use std::process::Stdio;

use exeat_tests::client::Output;
use exeat_tests::gateway::{binary, exeat};
use exeat_tests::prelude::*;
use exeat_tests::session::{Session, is_root};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::Child;

const HOST: &str = "api.example.test";

fn session(isolate: &str) -> Session {
    Session::new(Gateway::setup().unrestricted()).isolate(isolate)
}

fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id().unwrap()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Reads the first line of a child's output; the reader goes on with the rest.
async fn first_line(child: &mut Child) -> (String, BufReader<tokio::process::ChildStdout>) {
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    within("a line of the command", output.read_line(&mut line)).await.unwrap();
    (line.trim_end().to_owned(), output)
}

#[tokio::test]
async fn the_command_ends_the_session_with_its_own_code() {
    for isolate in ["require", "off"] {
        for (line, code) in [
            (&["sh", "-c", "exit 7"][..], 7),
            (&["sh", "-c", "kill -TERM $$"], 143),
            (&["sh", "-c", "kill -KILL $$"], 137),
            (&["/no/such/program"], 127),
            (&["/etc/hostname"], 126),
        ] {
            let ended = session(isolate).run(line).await;
            assert_eq!(ended.output.code, Some(code), "{isolate} {line:?} {:?}", ended.output);
            assert_eq!(ended.report["exit_code"], code);
        }
    }
}

#[tokio::test]
async fn it_runs_as_who_started_it_where_it_was_started() {
    for rootless in [false, true] {
        let session = session("require");
        let session = if rootless { session.rootless() } else { session };
        let folder = session.dir().canonicalize().unwrap();
        let ended =
            session.run(&["sh", "-c", "id -u; pwd; touch here && stat -c %u here; echo $EXEAT_CONFINEMENT"]).await;
        let user = if rootless && is_root() { 65534 } else { rustix::process::geteuid().as_raw() };
        let expected = format!("{user}\n{}\n{user}\nenforced\n", folder.display());
        assert_eq!(ended.output.clone().success(), expected, "{:?}", ended.output);
        assert_eq!(ended.report["confinement"], json!({ "state": "enforced" }));
    }
}

#[tokio::test]
async fn standard_streams_pass_through() {
    for isolate in ["require", "off"] {
        let session = session(isolate);
        let mut child = session.spawn(&["sh", "-c", "cat; echo aside >&2"]);
        child.stdin.take().unwrap().write_all(b"through and through").await.unwrap();
        let Output { code, stdout, stderr } = session.ended(child).await.output;
        assert_eq!((code, stdout.as_str()), (Some(0), "through and through"), "{stderr}");
        assert!(stderr.contains("aside\n"), "{stderr}");
    }
}

#[tokio::test]
async fn signals_are_passed_on() {
    for isolate in ["require", "off"] {
        let session = session(isolate);
        let script = "trap 'echo got it; exit 3' TERM; echo ready; sleep 1000 & wait $!";
        let mut child = session.spawn(&["sh", "-c", script]);
        let (line, mut rest) = first_line(&mut child).await;
        assert_eq!(line, "ready");
        signal(&child, Signal::TERM);
        let mut said = String::new();
        if isolate == "off" {
            // Without a namespace, what the command has started outlives it, and holds the pipe.
            within("the command to answer", rest.read_line(&mut said)).await.unwrap();
            assert_eq!(within("the session to end", child.wait()).await.unwrap().code(), Some(3));
        } else {
            within("the command to answer", rest.read_to_string(&mut said)).await.unwrap();
            assert_eq!(session.ended(child).await.output.code, Some(3));
        }
        assert_eq!(said, "got it\n");
    }
}

#[tokio::test]
async fn everything_inside_ends_with_the_command_and_with_the_gateway() {
    // The pipe of the output is closed when the last process that holds it has ended.
    let ended =
        session("require").run(&["sh", "-c", "setsid sleep 1000 & (trap '' HUP TERM; sleep 1000) & echo left"]).await;
    assert_eq!(ended.output.success(), "left\n");

    let session = session("require");
    let mut child = session.spawn(&["sh", "-c", "setsid sleep 1000 & echo up; sleep 1000"]);
    let (line, mut rest) = first_line(&mut child).await;
    assert_eq!(line, "up");
    signal(&child, Signal::KILL);
    within("everything inside to end", rest.read_to_string(&mut String::new())).await.unwrap();
}

#[tokio::test]
async fn a_terminal_is_passed_on_with_its_keys() {
    let folder = tempfile::TempDir::new().unwrap();
    let script = folder.path().join("inside.sh");
    std::fs::write(
        &script,
        "test -t 0 && test -t 1 && echo terminal\ntrap 'echo interrupted; exit 5' INT\necho ready\nsleep 1000 & wait $!\n",
    )
    .unwrap();
    // In place of the shell that `script` starts, which otherwise hears of the keys too. A terminal forgets what is being
    // said when a key is a signal, unless it is told not to.
    let line = format!("stty noflsh; exec {} run -q --state-dir state -- sh {}", binary().display(), script.display());
    let mut command = tokio::process::Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(folder.path()).env("HOME", folder.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let (line, mut rest) = first_line(&mut child).await;
    assert_eq!(line, "terminal");
    let mut input = child.stdin.take().unwrap();
    let mut said = String::new();
    within("the command to be ready", rest.read_line(&mut said)).await.unwrap();
    input.write_all(b"\x03").await.unwrap();
    within("the command to end", rest.read_to_string(&mut said)).await.unwrap();
    assert_eq!(said.matches("interrupted").count(), 1, "{said}");
    assert_eq!(within("the session to end", child.wait()).await.unwrap().code(), Some(5), "{said}");
}

/// Reads until `text` has come, whatever stands around it.
async fn await_text(output: &mut (impl AsyncReadExt + Unpin), text: &str) {
    let mut said = String::new();
    while !said.contains(text) {
        let byte = within(&format!("{text:?} behind {said:?}"), output.read_u8()).await.unwrap();
        said.push(char::from(byte));
    }
}

#[tokio::test]
async fn a_session_is_stopped_by_its_terminal_and_goes_on() {
    for isolate in ["require", "off"] {
        let folder = tempfile::TempDir::new().unwrap();
        // It reads what is typed, which is for who is in front, from when the shell has brought it there again.
        let inside = "trap 'echo interrupted; exit 5' INT\necho ready\nuntil test -e go; do sleep 0.01; done\n\
            read line\necho got $line\nsleep 1000 & wait $!\n";
        std::fs::write(folder.path().join("inside.sh"), inside).unwrap();
        let mut command = tokio::process::Command::new("script");
        command
            .args(["-qec", "stty noflsh; PS1='next> ' exec bash --norc --noediting -i", "/dev/null"])
            .current_dir(folder.path());
        command.env("HOME", folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut shell = command.spawn().unwrap();
        let (mut input, mut output) = (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()));
        let run = format!("{} run -q --isolate {isolate} --state-dir state -- sh inside.sh\n", binary().display());
        // What is typed before a prompt may be lost: the shell has the terminal forget it.
        for (typed, until) in [
            ("", "next> "),
            (&*run, "ready"),
            ("\x1a", "Stopped"),
            ("", "next> "),
            ("fg\n", "sh inside.sh"),
            ("it\n", "got it"),
            ("\x03", "interrupted"),
            ("", "next> "),
            ("echo code $?\n", "code 5"),
        ] {
            input.write_all(typed.as_bytes()).await.unwrap();
            await_text(&mut output, until).await;
            if typed == "fg\n" {
                std::fs::write(folder.path().join("go"), "").unwrap();
            }
        }
        input.write_all(b"exit\n").await.unwrap();
        within("the shell to end", shell.wait()).await.unwrap();
    }
}

#[tokio::test]
async fn nothing_but_the_standard_descriptors_is_handed_down() {
    for isolate in ["require", "off"] {
        let session = session(isolate);
        let probe = session.probe();
        let inner = format!(
            "{} run --isolate {isolate} -q --state-dir state -- {} descriptors",
            binary().display(),
            probe.display()
        );
        let line = format!("exec 7</etc/hostname; exec {inner}");
        let output = Cmd::new("bash").args(["-c", &line]).dir(session.dir()).run().await;
        assert_eq!(output.success(), "descriptors none\n", "{isolate}");
    }
}

#[tokio::test]
async fn secrets_stay_outside() {
    let setup = Gateway::setup().unrestricted().bind("LINEAR_AUTHORIZATION", "Bearer s3cret-of-env");
    let setup = setup.bind_file("DOCS_AUTHORIZATION", "Bearer s3cret-of-file");
    for rootless in [false, true] {
        let session = Session::new(setup.clone()).isolate("require").env("OTHER", "kept");
        let session = if rootless { session.rootless() } else { session };
        let script =
            "env; cat DOCS_AUTHORIZATION; ls state; cat /proc/*/environ | tr '\\0' '\\n'; cat $NODE_EXTRA_CA_CERTS";
        let said = session.run(&["sh", "-c", script]).await.output.stdout;
        assert!(!said.contains("s3cret") && !said.contains("ca.key"), "{said}");
        assert!(said.contains("OTHER=kept") && said.contains("BEGIN CERTIFICATE"), "{said}");
    }
}

#[tokio::test]
async fn the_session_leaves_no_files_and_says_what_it_did() {
    let ca = TestCa::new();
    let origin = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let setup = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[origin.url(HOST, "/v1/")]);
    for isolate in ["require", "off"] {
        let session = Session::new(setup.clone()).isolate(isolate).args(&["--suggest"]);
        let script = format!(
            "curl -sS {} && curl -sS -o /dev/null -w '%{{http_code}}' {}; curl -s https://other.test/; \
             test -s $SSL_CERT_FILE && echo $SSL_CERT_FILE",
            origin.url(HOST, "/v1/x"),
            origin.url(HOST, "/v2/y?token=abc")
        );
        let ended = session.run(&["sh", "-c", &script]).await;
        let said = ended.output.clone().success();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], "GET /v1/x");
        let bundle = lines[1].strip_prefix("403").unwrap();
        assert!(!std::path::Path::new(bundle).parent().unwrap().exists(), "{bundle}");

        let (report, authority) = (&ended.report, origin.authority(HOST));
        assert_eq!(report["schema"], "exeat.session");
        assert_eq!(report["confinement"]["state"], if isolate == "require" { "enforced" } else { "advisory" });
        let refused = report["refused"].as_array().unwrap();
        let find =
            |target: &str| refused.iter().find(|line| line["target"] == target).unwrap_or_else(|| panic!("{report:#}"));
        let path = find(&format!("https://{authority}/v2/y"));
        assert_eq!((&path["reason"], &path["allow"]), (&json!("not_allowed"), &json!(HOST)));
        assert_eq!(find("other.test:443")["count"], 1);
        assert!(!report["refused"].to_string().contains("abc"), "queries carry secrets");
        assert!(report["bytes"]["down"].as_u64().unwrap() > 0);
        ended.assert_decided(&format!("intercept allow allowed https://{authority}/v1/x"));
        let summary = &ended.output.stderr;
        assert!(summary.contains("add \"other.test\" to network_access.allowed"), "{summary}");
        assert!(summary.contains("events.jsonl"), "{summary}");
        assert!(summary.contains("[network_access]") && summary.contains("\"https://other.test/\""), "{summary}");
    }
}

#[tokio::test]
async fn clients_that_know_of_no_proxy_are_caught_by_name() {
    let ca = TestCa::new();
    let origin = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let plain = Origin::http(Site::default()).await;
    let setup = Gateway::setup().names(&[HOST, "blind.example.test", "other.example.test"]).trust(&ca);
    let setup = setup.allow(&[origin.url(HOST, "/v1/"), plain.url("blind.example.test", "/")]);
    let session = Session::new(setup).isolate("require");
    let bare = "env -u http_proxy -u https_proxy -u HTTP_PROXY -u HTTPS_PROXY -u ALL_PROXY -u all_proxy curl -sS";
    let script = format!(
        "{bare} {}; {bare} -o /dev/null -w '%{{http_code}}\\n' {}; {bare} -6 {}; {bare} {}; {bare} {} 2>&1; {bare} {} 2>&1",
        origin.url(HOST, "/v1/x"),
        origin.url(HOST, "/v2/x"),
        origin.url(HOST, "/v1/six"),
        plain.url("blind.example.test", "/plain"),
        origin.url("other.example.test", "/"),
        origin.url("unknown.test", "/"),
    );
    let ended = session.run(&["sh", "-c", &script]).await;
    let lines: Vec<&str> = ended.output.stdout.lines().collect();
    assert_eq!(lines[..4], ["GET /v1/x", "403", "GET /v1/six", "GET /plain"], "{:?}", ended.output);
    assert!(lines[4..].iter().all(|line| line.contains("Could not resolve host")), "{lines:?}");
    ended.assert_decided(&format!("caught allow allowed {}", origin.authority(HOST)));
    ended.assert_decided(&format!("intercept deny not_allowed https://{}/v2/x", origin.authority(HOST)));
    ended.assert_decided("dns deny not_allowed unknown.test");
    assert!(plain.requests().len() == 1 && origin.requests().len() == 2);
}

#[tokio::test]
async fn the_endpoints_of_mcp_servers_are_inside() {
    let ca = TestCa::new();
    let origin = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let url = origin.url(HOST, "/mcp");
    let setup = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[&url]).mcp_server("peer", &url, &[]);
    let setup = setup.set("mcp", "listen", "\"127.0.0.1:0\"");
    for isolate in ["require", "off"] {
        let script = "echo $EXEAT_MCP_PEER; curl -sS -o /dev/null --json '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}' \
            -H 'Accept: application/json, text/event-stream' $EXEAT_MCP_PEER";
        let ended = Session::new(setup.clone()).isolate(isolate).run(&["sh", "-c", script]).await;
        let said = ended.output.clone().success();
        let endpoint = said.trim().strip_prefix("http://127.0.0.1:").unwrap_or_else(|| panic!("{said}"));
        assert!(endpoint.ends_with("/mcp/peer"), "{endpoint}");
        assert_eq!(isolate == "require", endpoint == "3129/mcp/peer");
        assert!(ended.decisions().iter().any(|decision| decision.starts_with("mcp ")), "{:?}", ended.decisions());
    }
}

#[tokio::test]
async fn loopback_inside_is_the_sessions_own() {
    let script = "import http.server,threading,urllib.request,socketserver\n\
        s=http.server.ThreadingHTTPServer(('127.0.0.1',0),http.server.SimpleHTTPRequestHandler)\n\
        threading.Thread(target=s.serve_forever,daemon=True).start()\n\
        print(urllib.request.urlopen('http://127.0.0.1:%d/'%s.server_port).status)\n";
    let python = exeat_tests::peers::python();
    let ended = session("require").run(&[python.to_str().unwrap(), "-c", script]).await;
    assert_eq!(ended.output.success(), "200\n");
    assert_eq!(ended.report["permitted"], json!([]), "it did not go through the gateway");
}

#[tokio::test]
async fn where_namespaces_are_forbidden_it_is_said_and_insisted_on() {
    let folder = tempfile::TempDir::new().unwrap();
    // The limit is that of the user namespace it is written in, so that it ends with it.
    let forbidden = async |isolate: &str| {
        let run = format!(
            "{} run --isolate {isolate} --state-dir state -- sh -c 'echo $EXEAT_CONFINEMENT'",
            binary().display()
        );
        let script = format!("echo 0 > /proc/sys/user/max_user_namespaces && {run}");
        Cmd::new("unshare").args(["-U", "--map-root-user", "sh", "-c", &script]).dir(folder.path()).run().await
    };
    let auto = forbidden("auto").await;
    assert_eq!((auto.code, auto.stdout.as_str()), (Some(0), "advisory\n"), "{auto:?}");
    assert!(
        auto.stderr.contains("the command is NOT confined: the system does not let namespaces be made"),
        "{auto:?}"
    );
    assert!(auto.stderr.contains("not confined"), "the summary says it too");
    let require = forbidden("require").await;
    assert_eq!((require.code, require.stdout.as_str()), (Some(2), ""), "{require:?}");
    assert!(require.stderr.contains("the command is not run"), "{require:?}");
}

#[tokio::test]
async fn a_session_can_hold_another() {
    let session = session("require").rootless();
    let inner = "./exeat run --isolate require -q --state-dir inner -- sh -c 'echo inner $EXEAT_CONFINEMENT; exit 4'";
    let ended = session.run(&["sh", "-c", inner]).await;
    // Only somebody who is not root runs a copy.
    if is_root() {
        assert_eq!(
            (ended.output.code, ended.output.stdout.as_str()),
            (Some(4), "inner enforced\n"),
            "{:?}",
            ended.output
        );
    }
}

#[tokio::test]
async fn a_manifest_that_cannot_be_read_keeps_the_command_from_running() {
    let session = Session::new(Gateway::setup().manifest("bad.toml", "name = 1\n"));
    let ended = session.run(&["echo", "ran"]).await;
    assert_eq!((ended.output.code, ended.output.stdout.as_str()), (Some(2), ""));
    assert!(ended.output.stderr.contains("bad.toml:1"), "{}", ended.output.stderr);
    assert_eq!(exeat(&["run"]).run().await.code, Some(2), "a command is needed");
}
