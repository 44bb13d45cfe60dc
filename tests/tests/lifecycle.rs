//! From start to end: what is printed, reloads that are all or nothing, and a shutdown that finishes what is under way.

use exeat_tests::origin::Gate;
use exeat_tests::prelude::*;
use rustix::process::Signal;

const HOST: &str = "api.example.test";
const OTHER: &str = "other.example.test";

fn manifest(allowed: &[&str]) -> String {
    format!("name = \"agent\"\n\n[network_access]\nallowed = {allowed:?}\n")
}

fn setup(allowed: &[&str]) -> Setup {
    Gateway::setup().names(&[HOST, OTHER]).manifest("agent.toml", &manifest(allowed))
}

// --- Start --------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn the_start_tells_where_it_listens_and_what_it_enforces() {
    let gateway = setup(&[HOST]).start().await;
    for text in [gateway.proxy().to_string(), gateway.admin().to_string(), "agent.toml".into(), "exeat env".into()] {
        gateway.await_line(&text).await;
    }
}

#[tokio::test]
async fn it_starts_with_nothing_at_all() {
    let gateway = Gateway::setup().config("").start().await;
    assert_eq!(gateway.readyz().await.status, 200);
    assert_eq!(gateway.get("http://169.254.169.254/").await.status, 403);
}

#[tokio::test]
async fn an_unrestricted_policy_is_warned_of() {
    let gateway = Gateway::setup().unrestricted().start().await;
    gateway.await_line("warning").await;
}

#[tokio::test]
async fn files_that_cannot_be_used_stop_the_start() {
    let broken = "name = \"agent\"\n[network_access]\nallowed = [\"*\"]\nblockd = []\n";
    for (case, setup, code, says) in [
        (
            "pattern",
            Gateway::setup().manifest("agent.toml", broken),
            2,
            &["agent.toml:3:12", "agent.toml:4:1", "blocked"][..],
        ),
        ("config key", setup(&[HOST]).set("limits", "header_byte", "1"), 2, &["exeat.toml", "header_bytes"]),
        ("config section", setup(&[HOST]).config("[gaurd]\n"), 2, &["exeat.toml", "guard"]),
        ("manifest", setup(&[HOST]).args(&["-m", "absent.toml"]), 2, &["absent.toml"]),
        ("CA", setup(&[HOST]).set("upstream", "ca", r#"["absent.pem"]"#), 2, &["absent.pem"]),
        ("usage", setup(&[HOST]).args(&["--no-such-flag"]), 2, &["--no-such-flag"]),
    ] {
        let output = setup.try_start().await.expect_err(case);
        assert_eq!(output.code, Some(code), "{case}: {output:#?}");
        for text in says {
            assert!(output.stderr.contains(text), "{case}: {text} is not in:\n{}", output.stderr);
        }
    }
}

#[tokio::test]
async fn a_taken_port_is_said() {
    let taken = Origin::http(Site::default()).await;
    let output = setup(&[HOST]).admin(taken.addr()).try_start().await.expect_err("the port is taken");
    assert!(output.stderr.contains(&taken.addr().to_string()), "{output:#?}");
}

// --- Reload -------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_reload_takes_the_new_manifest_into_force() {
    let origin = Origin::http(Site::default()).await;
    let gateway = setup(&[HOST]).start().await;
    gateway.get(&origin.url(OTHER, "/")).await.assert_refused(403, "not_allowed");
    let before = gateway.readyz().await.json();
    gateway.write("agent.toml", &manifest(&[HOST, OTHER]));
    gateway.reload().await;
    gateway.get(&origin.url(OTHER, "/")).await.assert_ok("GET /");
    let after = gateway.readyz().await.json();
    assert_ne!(before["policy"]["digest"], after["policy"]["digest"]);
    assert_eq!(gateway.metrics().await.sum("exeat_policy_generation", &[]), 2.0);
    gateway.await_metric("exeat_policy_reload_total", &[("result", "success")], 1.0).await;
}

#[tokio::test]
async fn a_reload_that_fails_changes_nothing_and_says_why() {
    let origin = Origin::http(Site::default()).await;
    let gateway = setup(&[HOST]).start().await;
    let before = gateway.readyz().await.json();
    let huge = format!("name = \"agent\"\n#{}", "x".repeat(11 << 20));
    let mut failures = 0.0;
    for broken in ["name = ", "", "name = \"a\"\nname = \"b\"\n", &manifest(&["*"]), "name = \"a\"\nnope = 1\n", &huge]
    {
        gateway.write("agent.toml", broken);
        gateway.reload().await;
        failures += 1.0;
        gateway.await_metric("exeat_policy_reload_total", &[("result", "failure")], failures).await;
        gateway.get(&origin.url(HOST, "/")).await.assert_ok("GET /");
        gateway.get(&origin.url(OTHER, "/")).await.assert_refused(403, "not_allowed");
        assert_eq!(gateway.readyz().await.json()["policy"], before["policy"]);
    }
    gateway.await_line("agent.toml:1:").await;
}

#[tokio::test]
async fn a_good_manifest_is_not_taken_with_a_bad_config() {
    let origin = Origin::http(Site::default()).await;
    let gateway = setup(&[HOST]).start().await;
    gateway.write("agent.toml", &manifest(&[OTHER]));
    gateway.write("exeat.toml", "[guard]\nnope = 1\n");
    gateway.reload().await;
    gateway.get(&origin.url(HOST, "/")).await.assert_ok("GET /");
    gateway.get(&origin.url(OTHER, "/")).await.assert_refused(403, "not_allowed");
}

#[tokio::test]
async fn a_narrowing_reload_closes_the_tunnels_it_no_longer_permits() {
    let echo = Echo::tcp().await;
    let gateway = setup(&[HOST, OTHER]).start().await;
    let mut closing = gateway.tunnel(&echo.authority(HOST)).await;
    let mut staying = gateway.tunnel(&echo.authority(OTHER)).await;
    closing.exchange(b"one").await;
    staying.exchange(b"one").await;
    gateway.write("agent.toml", &manifest(&[OTHER]));
    gateway.reload().await;
    assert!(closing.to_end().await.is_empty());
    staying.exchange(b"two").await;
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "policy_changed")], 1.0).await;
}

#[tokio::test]
async fn a_kept_connection_and_a_pooled_one_do_not_outlive_a_narrowed_policy() {
    let ca = TestCa::new();
    let origin = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let rule = |path: &str| manifest(&[&origin.url(HOST, path)]);
    let gateway = Gateway::setup().names(&[HOST]).trust(&ca).manifest("agent.toml", &rule("/v1/")).start().await;
    let mut inside = gateway.intercepted(&origin.authority(HOST)).await;
    let mut outside = gateway.open().await;
    inside.get("/v1/x", HOST).await.assert_ok("GET /v1/x");
    outside.get(&origin.url(HOST, "/v1/x"), HOST).await.assert_ok("GET /v1/x");
    gateway.write("agent.toml", &rule("/v2/"));
    gateway.reload().await;
    inside.get("/v1/x", HOST).await.assert_refused(403, "not_allowed");
    outside.get(&origin.url(HOST, "/v1/x"), HOST).await.assert_refused(403, "not_allowed");
    inside.get("/v2/x", HOST).await.assert_ok("GET /v2/x");
}

#[tokio::test]
async fn a_request_under_way_keeps_the_policy_it_began_with() {
    let gate = Gate::default();
    let origin = Origin::http(Site::default().at("/slow", Reply::text("done\n").after(&gate))).await;
    let gateway = setup(&[HOST]).start().await;
    let mut conn = gateway.open().await;
    conn.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", origin.url(HOST, "/slow"))).await;
    origin.await_requests(1).await;
    gateway.write("agent.toml", &manifest(&[OTHER]));
    gateway.reload().await;
    gate.open();
    conn.response().await.assert_ok("done");
}

#[tokio::test]
async fn a_reload_brings_new_bindings_and_guards() {
    let origin = Origin::http(Site::default()).await;
    let gateway = setup(&[HOST]).start().await;
    gateway.get(&origin.url(HOST, "/")).await.assert_ok("GET /");
    let config = std::fs::read_to_string(gateway.dir().join("exeat.toml")).unwrap();
    gateway.write("exeat.toml", &config.replace("127.0.0.1/32", "10.0.0.0/8"));
    gateway.reload().await;
    gateway.get(&origin.url(HOST, "/")).await.assert_refused(403, "guard_address");
}

// --- Shutdown -----------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_shutdown_finishes_what_is_under_way() {
    for signal in [Signal::TERM, Signal::INT] {
        let gate = Gate::default();
        let origin = Origin::http(Site::default().at("/slow", Reply::text("done\n").after(&gate))).await;
        let mut gateway = setup(&[HOST]).start().await;
        let mut idle = gateway.open().await;
        let mut busy = gateway.open().await;
        busy.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", origin.url(HOST, "/slow"))).await;
        origin.await_requests(1).await;
        gateway.signal(signal);
        assert!(idle.to_end().await.is_empty(), "an idle connection is closed at once");
        gate.open();
        let answer = busy.response().await;
        answer.assert_ok("done");
        assert!(answer.head.lists("connection", "close"), "{:?}", answer.head.lines);
        assert!(gateway.ended().await.success());
    }
}

#[tokio::test]
async fn a_draining_gateway_is_live_but_not_ready() {
    let gate = Gate::default();
    let origin = Origin::http(Site::default().at("/slow", Reply::text("done\n").after(&gate))).await;
    let mut gateway = setup(&[HOST]).start().await;
    let mut busy = gateway.open().await;
    busy.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", origin.url(HOST, "/slow"))).await;
    origin.await_requests(1).await;
    let mut idle = gateway.open().await;
    gateway.signal(Signal::TERM);
    idle.to_end().await;
    assert_eq!((gateway.livez().await.status, gateway.readyz().await.status), (200, 503));
    gate.open();
    busy.response().await.assert_ok("done");
    assert!(gateway.ended().await.success());
}

#[tokio::test]
async fn a_shutdown_waits_for_tunnels_no_longer_than_it_may() {
    let echo = Echo::tcp().await;
    let mut gateway = setup(&[HOST]).set("limits", "drain_timeout", r#""1s""#).start().await;
    let mut tunnel = gateway.tunnel(&echo.authority(HOST)).await;
    gateway.signal(Signal::TERM);
    tunnel.exchange(b"still").await;
    assert!(tunnel.to_end().await.is_empty());
    assert!(gateway.ended().await.success());
}

#[tokio::test]
async fn an_idle_gateway_ends_at_once() {
    let mut gateway = setup(&[HOST]).start().await;
    assert!(gateway.terminate().await.success());
}
