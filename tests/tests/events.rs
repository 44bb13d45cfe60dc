//! Events: what is in them, that nothing goes out before its own is written, and that none is lost.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use exeat_tests::events::{self, FILE, assert_contiguous, await_event, end_of};
use exeat_tests::gateway::exeat;
use exeat_tests::prelude::*;
use exeat_tests::wait::until;
use exeat_tests::ws;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

const HOST: &str = "api.example.test";
const OTHER: &str = "other.example.test";
const SECRET: &str = "Bearer s3cret-of-the-gateway";

/// Asserts that every event keeps to the published schema and has no member that it does not describe.
#[track_caller]
fn assert_valid(events: &[Value]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/schemas/event.v1.schema.json");
    let mut schema: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    schema["additionalProperties"] = json!(false);
    let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
    for event in events {
        let problems: Vec<String> = validator.iter_errors(event).map(|problem| problem.to_string()).collect();
        assert!(problems.is_empty(), "{event}: {problems:?}");
    }
    assert_contiguous(events);
    let ids: BTreeSet<_> = events.iter().map(|event| event["event_id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), events.len());
}

fn decisions(events: &[Value]) -> Vec<Value> {
    events.iter().filter(|event| event["kind"] == "decision").cloned().collect()
}

/// Waits for the decision about a path.
async fn decision(gateway: &Gateway, path: &str) -> Value {
    await_event(gateway, path, |event| event["kind"] == "decision" && event["target"]["path"] == path).await
}

/// Waits for the decision about a tunnel.
async fn opened(gateway: &Gateway, entry: &str) -> Value {
    await_event(gateway, entry, |event| event["kind"] == "decision" && event["entry"] == entry).await
}

#[tokio::test]
async fn whatever_comes_in_makes_events_of_the_schema() {
    let ca = TestCa::new();
    let site = Site::default().at("/v1/echo", Reply::echo()).at("/v1/ws", Reply::websocket());
    let origin = Origin::https(site.clone(), &ca.leaf(&[HOST, OTHER])).await;
    let plain = Origin::http(site).await;
    let setup = Gateway::setup().events().names(&[HOST, OTHER]).trust(&ca).endpoints();
    let setup = setup.allow(&[origin.url(HOST, "/v1/"), plain.url(HOST, "/v1/"), OTHER.to_owned()]);
    let setup = setup.mcp_server("docs", &origin.url(HOST, "/v1/mcp"), &[("Authorization", "${DOCS}")]);
    let mut gateway = setup.bind("DOCS", SECRET).start().await;

    // Forwarded, with a query whose text is nobody's business.
    let body = "x".repeat(1000);
    let mut conn = gateway.open().await;
    let url = plain.url(HOST, "/v1/echo?token=hush-hush");
    conn.send(format!("POST {url} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 1000\r\n\r\n{body}")).await;
    assert_eq!(conn.response().await.status, 200);
    let forwarded = decision(&gateway, "/v1/echo").await;
    let target = json!({ "scheme": "http", "host": HOST, "port": plain.port(), "path": "/v1/echo", "query_bytes": 15 });
    assert_eq!((&forwarded["target"], &forwarded["verdict"]), (&target, &json!("allow")));
    assert_eq!(forwarded["addresses"]["upstream"], format!("127.0.0.1:{}", plain.port()));
    assert!(forwarded["addresses"]["client"].as_str().unwrap().starts_with("tcp 127.0.0.1:"));
    assert_eq!(forwarded["rule"]["file"], "agent.toml");
    let end = end_of(&gateway, &forwarded).await;
    assert_eq!(
        (&end["kind"], &end["cause"], &end["status"]),
        (&json!("request_completed"), &json!("completed"), &json!(200))
    );
    assert_eq!(end["bytes"], json!({ "up": 1000, "down": 1000 }));
    assert_eq!(end["addresses"], forwarded["addresses"]);

    // Refused, and unreadable.
    conn.get(&plain.url(HOST, "/v2/"), HOST).await.assert_refused(403, "not_allowed");
    assert_eq!(decision(&gateway, "/v2/").await["verdict"], "deny");
    gateway.open().await.get("http://user:hush-hush@a.test/", HOST).await.assert_refused(400, "malformed");
    let unread = await_event(&gateway, "an unreadable target", |event| event["reason"] == "malformed").await;
    assert_eq!(unread["limitations"], json!(["target_not_read"]));

    // A blind tunnel by CONNECT, and one by SOCKS5.
    let tunnel = gateway.tunnel(&origin.authority(OTHER)).await;
    let mut tls = tunnel.tls(ca.roots(), OTHER, &["http/1.1"]).await.unwrap();
    tls.get("/blind", OTHER).await.assert_ok("GET /blind");
    drop(tls);
    let blind = opened(&gateway, "connect").await;
    assert_eq!((&blind["tunnel"], &blind["limitations"]), (&json!("blind"), &json!(["tunnel_content_not_observed"])));
    assert_eq!(blind["target"], json!({ "host": OTHER, "port": origin.port() }));
    let end = end_of(&gateway, &blind).await;
    assert_eq!((&end["kind"], &end["tunnel"]), (&json!("tunnel_closed"), &json!("blind")));
    assert!(end["bytes"]["up"].as_u64() > Some(200) && end["bytes"]["down"].as_u64() > Some(500), "{end}");
    drop(gateway.socks_tunnel(&origin.authority(OTHER)).await);
    let socks = opened(&gateway, "socks5").await;
    end_of(&gateway, &socks).await;

    // An inspected tunnel with a request and a WebSocket in it, which carries the credential of a server.
    let mut inside = gateway.intercepted(&origin.authority(HOST)).await;
    inside.get("/v1/mcp", HOST).await.assert_ok("GET /v1/mcp");
    let carried = decision(&gateway, "/v1/mcp").await;
    assert_eq!((&carried["entry"], &carried["server"]), (&json!("intercept"), &json!("docs")));
    assert_eq!(carried["injected"], json!(["authorization"]));
    inside.send(ws::handshake("/v1/ws", HOST)).await;
    assert_eq!(inside.opened("GET").await.response.status, 101);
    assert_eq!(inside.websocket_echo("hello").await, "hello");
    drop(inside);
    let socket = decision(&gateway, "/v1/ws").await;
    assert_eq!(socket["tunnel"], "upgraded");
    let end = end_of(&gateway, &socket).await;
    assert_eq!((&end["kind"], &end["status"]), (&json!("tunnel_closed"), &json!(101)));
    let inspected = await_event(&gateway, "an inspected tunnel", |event| {
        event["kind"] == "decision" && event["tunnel"] == "inspected"
    });
    let inspected = inspected.await;
    assert_eq!(end_of(&gateway, &inspected).await["bytes"], Value::Null);

    // A reload, one that fails, and the end.
    gateway.reload().await;
    gateway.write("agent.toml", "nonsense");
    gateway.reload().await;
    assert_eq!(gateway.terminate().await.code(), Some(0));
    let all = events::of(&gateway);
    assert_valid(&all);
    let kinds: Vec<_> = all.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!((kinds[0], kinds[1], *kinds.last().unwrap()), ("session_started", "policy_loaded", "session_ended"));
    assert!(kinds.contains(&"policy_rejected"));
    let generations: Vec<_> = all.iter().filter(|event| event["kind"] == "policy_loaded").collect();
    assert_eq!(generations.iter().map(|event| &event["policy"]["generation"]).collect::<Vec<_>>(), [1, 2]);
    let text = fs::read_to_string(gateway.dir().join(FILE)).unwrap();
    assert!(!text.contains("hush-hush") && !text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn an_answer_that_never_comes_is_an_end_too() {
    let origin = Origin::http(Site::default().at("/gone", Reply::vanish())).await;
    let gateway = Gateway::setup().events().unrestricted().names(&[HOST]).start().await;
    gateway.get(&origin.url(HOST, "/gone")).await.assert_refused(502, "upstream_protocol");
    let end = end_of(&gateway, &decision(&gateway, "/gone").await).await;
    assert_eq!((&end["cause"], &end["reason"]), (&json!("failed"), &json!("upstream_protocol")));
    let (endless, _) = Reply::flood(1 << 40);
    let origin = Origin::http(Site::default().at("/endless", endless)).await;
    let mut conn = gateway.open().await;
    conn.send(format!("GET {} HTTP/1.1\r\nHost: {HOST}\r\n\r\n", origin.url(HOST, "/endless"))).await;
    conn.opened("GET").await;
    drop(conn);
    let end = end_of(&gateway, &decision(&gateway, "/endless").await).await;
    assert_eq!((&end["cause"], &end["status"]), (&json!("broken_off"), &json!(200)));
}

// --- Nothing is lost ----------------------------------------------------------------------------------------------------

/// Sends requests from several clients, each the next when something has come back, until the gateway is gone.
fn load(gateway: &Gateway, origin: &Origin, clients: usize) -> Vec<JoinHandle<()>> {
    let (proxy, url) = (gateway.proxy(), origin.url(HOST, ""));
    let client = |client: usize| {
        let url = url.clone();
        tokio::spawn(async move {
            let mut stream = TcpStream::connect(proxy).await.unwrap();
            let mut answer = vec![0; 4096];
            for number in 0.. {
                let request = format!("GET {url}/{client}/{number} HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
                if stream.write_all(request.as_bytes()).await.is_err()
                    || stream.read(&mut answer).await.unwrap_or(0) == 0
                {
                    return;
                }
            }
        })
    };
    (0..clients).map(client).collect()
}

#[tokio::test]
async fn a_gateway_that_is_killed_has_written_what_it_sent() {
    for durable in [false, true] {
        let state = TempDir::new().unwrap();
        let file = state.path().join(FILE);
        let setup = || {
            let setup = Gateway::setup().unrestricted().names(&[HOST]).set("audit", "events", &format!("{file:?}"));
            setup.set("audit", "durable", &durable.to_string())
        };
        let origin = Origin::http(Site::default()).await;
        let mut gateway = setup().start().await;
        let clients = load(&gateway, &origin, 8);
        until("requests to be under way", || async { (origin.requests().len() > 300).then_some(()) }).await;
        gateway.signal(Signal::KILL);
        gateway.ended().await;
        for client in clients {
            within("a client to end", client).await.unwrap();
        }
        let written = events::read(&file);
        assert_valid(&written);
        let permitted: BTreeSet<String> = decisions(&written).iter().map(events::asked).collect();
        let sent: Vec<String> = origin.requests().iter().map(|request| origin.url(HOST, &request.target)).collect();
        let lost: Vec<_> = sent.iter().filter(|url| !permitted.contains(*url)).collect();
        assert!(lost.is_empty() && sent.len() > 300, "durable = {durable}: {lost:?} of {}", sent.len());

        // The next one goes on behind what the killed one has left, half a line included.
        let mut text = fs::read(&file).unwrap();
        let whole = text.iter().filter(|byte| **byte == b'\n').count();
        text.extend_from_slice(b"{\"schema\":\"exeat.ev");
        fs::write(&file, text).unwrap();
        let gateway = setup().start().await;
        gateway.get(&origin.url(HOST, "/next")).await.assert_ok("/next");
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[whole], "{\"schema\":\"exeat.ev");
        let next: Vec<Value> = lines[whole + 1..].iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_valid(&next);
        assert_ne!(next[0]["session_id"], written[0]["session_id"]);
        // Whoever reads the file reads over it.
        let read = exeat(&["suggest"]).args([file.to_str().unwrap()]).run().await;
        assert!(read.success().contains(HOST));
    }
}

#[tokio::test]
async fn the_decisions_of_the_log_and_of_the_events_are_the_same() {
    let origin = Origin::http(Site::default()).await;
    let setup = Gateway::setup().events().names(&[HOST]).allow(&[origin.url(HOST, "/v1/")]);
    let gateway = setup.start().await;
    for path in ["/v1/a", "/v2/b", "/v1/c"] {
        gateway.get(&origin.url(HOST, path)).await;
    }
    gateway.await_line("/v1/c").await;
    let logged = gateway.lines().into_iter().filter(|line| line.contains("exeat::decision"));
    let logged: Vec<Value> = logged.map(|line| serde_json::from_str(&line).unwrap()).collect();
    let decided = decisions(&events::of(&gateway));
    assert_eq!(logged.len(), 3);
    for (logged, decided) in logged.iter().zip(&decided) {
        assert_eq!(logged["url"], events::asked(decided));
        assert_eq!((&logged["verdict"], &logged["reason"]), (&decided["verdict"], &decided["reason"]));
    }
    // The file replays without a change against what it was decided by.
    let replay = exeat(&["replay", "--json", "--fail-on", "newly-allowed,newly-denied", "-m", "agent.toml", FILE]);
    let replay = replay.dir(gateway.dir()).run().await;
    assert_eq!(replay.code, Some(0), "{replay:#?}");
    assert_eq!((&replay.json_lines()[0]["records"], &replay.json_lines()[0]["compared"]), (&json!(3), &json!(3)));
    gateway.await_metric("exeat_audit_events_total", &[("result", "written")], 7.0).await;
    gateway.await_metric("exeat_audit_events_total", &[("result", "dropped")], 0.0).await;
}

#[tokio::test]
async fn the_log_can_be_left_to_the_events() {
    let origin = Origin::http(Site::default()).await;
    let gateway = Gateway::setup().events().unrestricted().names(&[HOST]).set("audit", "log", "false").start().await;
    gateway.get(&origin.url(HOST, "/x")).await.assert_ok("/x");
    decision(&gateway, "/x").await;
    gateway.reload().await;
    gateway.await_line("reloaded").await;
    assert!(!gateway.lines().iter().any(|line| line.contains("exeat::decision")));
}

// --- The file -----------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn the_file_is_rotated_by_size_and_left_when_it_is_renamed() {
    let origin = Origin::http(Site::default()).await;
    let setup = Gateway::setup().events().unrestricted().names(&[HOST]);
    let gateway = setup.set("audit", "max_size", "4096").set("audit", "keep", "2").start().await;
    let mut conn = gateway.open().await;
    for number in 0..40 {
        conn.get(&origin.url(HOST, &format!("/{number}")), HOST).await.assert_ok("GET");
    }
    gateway.await_metric("exeat_audit_events_total", &[("result", "written")], 82.0).await;
    let path = |name: &str| gateway.dir().join(name);
    let numbered = |number: usize| events::read(&path(&format!("{FILE}.{number}")));
    assert!(!numbered(1).is_empty() && !numbered(2).is_empty() && !path(&format!("{FILE}.3")).exists());
    let all: Vec<Value> = [numbered(2), numbered(1), events::of(&gateway)].concat();
    let first = all[0]["sequence"].as_u64().unwrap();
    assert!(all.iter().zip(first..).all(|(event, number)| event["sequence"] == number), "{all:#?}");
    for number in [1, 2] {
        assert!(fs::metadata(path(&format!("{FILE}.{number}"))).unwrap().len() <= 4096);
    }

    fs::rename(path(FILE), path("moved")).unwrap();
    conn.get(&origin.url(HOST, "/to-the-old"), HOST).await.assert_ok("GET");
    gateway.reload().await;
    conn.get(&origin.url(HOST, "/to-the-new"), HOST).await.assert_ok("GET");
    let holds = |name: &str, text: &str| fs::read_to_string(path(name)).unwrap().contains(text);
    assert!(holds("moved", "/to-the-old") && !holds("moved", "/to-the-new") && holds(FILE, "/to-the-new"));
}

#[tokio::test]
async fn a_file_that_cannot_be_used_stops_the_start() {
    for (path, says) in
        [("/no/such/folder/events", "cannot write /no/such/folder/events"), ("/dev/null", "expected a regular file")]
    {
        let output = Gateway::setup().set("audit", "events", &format!("{path:?}")).try_start().await.unwrap_err();
        assert!(output.code == Some(2) && output.stderr.contains(says), "{output:#?}");
    }
    let gateway = Gateway::setup().events().start().await;
    let path = gateway.dir().join(FILE);
    let output = Gateway::setup().set("audit", "events", &format!("{path:?}")).try_start().await.unwrap_err();
    assert!(output.code == Some(2) && output.stderr.contains("another process writes to it"), "{output:#?}");
}

/// A disk of 64 kB that a test can fill, in a mount namespace of its own; it goes with the process that holds it.
struct SmallDisk {
    _holder: Child,
    path: PathBuf,
}

impl SmallDisk {
    async fn mount() -> Self {
        let script = "mount -t tmpfs -o size=64k none /mnt && echo mounted && exec sleep 1000";
        let mut holder = Command::new("unshare");
        holder.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        holder.stdout(Stdio::piped()).kill_on_drop(true);
        let mut holder = holder.spawn().unwrap();
        let mut said = String::new();
        let mut output = BufReader::new(holder.stdout.take().unwrap());
        within("a small disk", output.read_line(&mut said)).await.unwrap();
        assert_eq!(said, "mounted\n");
        let path = PathBuf::from(format!("/proc/{}/root/mnt", holder.id().unwrap()));
        Self { _holder: holder, path }
    }

    fn events(&self) -> PathBuf {
        self.path.join("events")
    }

    /// Leaves no room but for what is left of the pages in use.
    fn fill(&self) {
        assert!(fs::write(self.path.join("ballast"), vec![0; 1 << 20]).is_err(), "the disk has no end");
    }

    fn empty(&self) {
        fs::remove_file(self.path.join("ballast")).unwrap();
    }
}

#[tokio::test]
async fn a_full_disk_blocks_and_nothing_goes_out_unrecorded() {
    for durable in ["false", "true"] {
        let disk = SmallDisk::mount().await;
        let origin = Origin::http(Site::default()).await;
        let setup = Gateway::setup().unrestricted().names(&[HOST]).block(&[OTHER]);
        let setup = setup.set("audit", "events", &format!("{:?}", disk.events())).set("audit", "durable", durable);
        let mut gateway = setup.start().await;
        let mut conn = gateway.open().await;
        conn.get(&origin.url(HOST, "/before"), HOST).await.assert_ok("GET");
        disk.fill();
        let mut refused = 0;
        for number in 0..40 {
            let response = conn.get(&origin.url(HOST, &format!("/{number}")), HOST).await;
            if response.status != 200 {
                let problem = response.assert_refused(503, "audit_unavailable");
                assert!(problem["change"].as_str().unwrap().contains("[audit] events"), "{problem}");
                refused += 1;
            }
        }
        assert!(refused > 20, "{refused}");
        // A tunnel is not opened either, and a refusal is still one.
        let (_, response) = gateway.connect(&origin.authority(HOST)).await;
        response.assert_refused(503, "audit_unavailable");
        conn.get(&format!("http://{OTHER}/"), OTHER).await.assert_refused(403, "blocked");
        gateway.await_line("events cannot be written; requests are refused until they can be").await;
        gateway.readyz().await.assert_ok("serving");

        disk.empty();
        conn.get(&origin.url(HOST, "/after"), HOST).await.assert_ok("GET");
        gateway.await_line("events can be written again").await;
        gateway.terminate().await;
        let written = events::read(&disk.events());
        assert_valid(&written);
        // The refusals, that of the tunnel, the blocked one, and the ends of what went out.
        let missing: u64 = written.iter().filter_map(|event| event["dropped"].as_u64()).sum();
        assert!(missing >= refused + 2, "{missing} of {refused}");
        let permitted: BTreeSet<String> = decisions(&written).iter().map(events::asked).collect();
        for request in origin.requests() {
            assert!(permitted.contains(&origin.url(HOST, &request.target)), "{}", request.target);
        }
    }
}

#[tokio::test]
async fn a_full_disk_can_be_gone_without_and_the_gap_is_told() {
    let disk = SmallDisk::mount().await;
    let origin = Origin::http(Site::default()).await;
    let setup = Gateway::setup().unrestricted().names(&[HOST]).set("audit", "on_full", "\"drop\"");
    let mut gateway = setup.set("audit", "events", &format!("{:?}", disk.events())).start().await;
    let mut conn = gateway.open().await;
    disk.fill();
    for number in 0..40 {
        conn.get(&origin.url(HOST, &format!("/{number}")), HOST).await.assert_ok("GET");
    }
    gateway.await_line("events cannot be written; requests go out without").await;
    let dropped = gateway.metrics().await.sum("exeat_audit_events_total", &[("result", "dropped")]);
    assert!(dropped > 20.0, "{dropped}");
    disk.empty();
    conn.get(&origin.url(HOST, "/after"), HOST).await.assert_ok("GET");
    gateway.terminate().await;
    let written = events::read(&disk.events());
    assert_valid(&written);
    let missing: u64 = written.iter().filter_map(|event| event["dropped"].as_u64()).sum();
    assert!(missing as f64 >= dropped, "{missing} {dropped}");
}
