//! The metrics of rules and of what must be denied, and how many series there are.

use std::path::Path;

use exeat_tests::prelude::*;

const HOST: &str = "api.example.test";
const MUST_DENY: &str = "must-deny.exeat.invalid";

fn hits<'l>(layer: &'l str, list: &'l str, rule: &'l str) -> [(&'static str, &'l str); 3] {
    [("layer", layer), ("list", list), ("rule", rule)]
}

#[tokio::test]
async fn each_rule_is_counted_where_it_decides() {
    let origin = Origin::http(Site::default()).await;
    let gateway = Gateway::setup()
        .names(&[HOST])
        .manifest("org.toml", "name = \"org\"\n[network_access]\nblocked = [\"bad.test\"]\n");
    let gateway = gateway.allow(&["unused.test", HOST, "bad.test"]).start().await;
    let name = "exeat_rule_hits_total";
    let metrics = gateway.metrics().await;
    for labels in [hits("harness", "blocked", "0"), hits("agent", "allowed", "0"), hits("agent", "allowed", "2")] {
        assert!(metrics.has(name, &labels) && metrics.sum(name, &labels) == 0.0, "{labels:?}");
    }
    for _ in 0..2 {
        gateway.get(&origin.url(HOST, "/")).await.assert_ok("GET /");
    }
    gateway.get("http://bad.test/").await.assert_refused(403, "blocked");
    gateway.connect("bad.test:443").await.1.assert_refused(403, "blocked");
    gateway.get("http://elsewhere.test/").await.assert_refused(403, "not_allowed");
    gateway.await_metric(name, &hits("agent", "allowed", "1"), 2.0).await;
    gateway.await_metric(name, &hits("harness", "blocked", "0"), 2.0).await;
    assert_eq!(gateway.metrics().await.sum(name, &[]), 4.0);

    // Rules that stay as they are keep their counts; others begin anew.
    gateway.reload().await;
    assert_eq!(gateway.metrics().await.sum(name, &[]), 4.0);
    let text = std::fs::read_to_string(gateway.dir().join("agent.toml")).unwrap();
    gateway.write("agent.toml", &text.replace("\"unused.test\", ", ""));
    gateway.reload().await;
    let metrics = gateway.metrics().await;
    assert!(metrics.has(name, &hits("agent", "allowed", "1")) && !metrics.has(name, &hits("agent", "allowed", "2")));
    assert_eq!(metrics.sum(name, &[]), 0.0);
}

/// A gateway that is asked for the name that must be denied reads like any other in the metrics.
async fn assert_refuses_everywhere(gateway: &Gateway, entries: &[&str]) {
    let ready = gateway.readyz().await;
    assert_eq!((ready.status, &ready.json()["reason"]), (200, &"serving".into()), "{}", ready.text());
    let metrics = gateway.metrics().await;
    let all = ["forward", "connect", "http2", "socks5", "intercept", "mcp"];
    for entry in all {
        let labels = [("entry", entry)];
        assert_eq!(metrics.has("exeat_must_deny", &labels), entries.contains(&entry), "{entry}");
        assert_eq!(metrics.sum("exeat_must_deny", &labels), f64::from(entries.contains(&entry)), "{entry}");
    }
    for name in ["exeat_requests_total", "exeat_tunnels_total", "exeat_decision_seconds_count", "exeat_rule_hits_total"]
    {
        assert_eq!(metrics.sum(name, &[]), 0.0, "the gateway's own question is no traffic: {name}");
    }
    assert!(!gateway.lines().iter().any(|line| line.contains(MUST_DENY)), "{:#?}", gateway.lines());
}

#[tokio::test]
async fn what_must_be_denied_is_refused_at_every_way_in_whatever_the_manifest_says() {
    let dns = Dns::start().await;
    dns.set(MUST_DENY, Answer::addresses(&["127.0.0.1"]));
    let servers = format!("[{:?}]", dns.addr().to_string());
    let everything = ["forward", "connect", "http2", "socks5", "intercept", "mcp"];
    let allowing = Gateway::setup().unrestricted().set("dns", "servers", &servers).endpoints().start().await;
    assert_refuses_everywhere(&allowing, &everything).await;
    allowing.get(&format!("http://{MUST_DENY}/")).await.assert_refused(403, "guard_name");
    allowing.connect(&format!("{MUST_DENY}:443")).await.1.assert_refused(403, "guard_name");

    let naming =
        Gateway::setup().set("dns", "servers", &servers).allow(&["*.invalid", &format!("https://{MUST_DENY}/x/")]);
    let naming = naming.host(MUST_DENY, "127.0.0.1").user("agent", "s3cret").start().await;
    assert_refuses_everywhere(&naming, &["forward", "connect", "http2", "socks5", "intercept"]).await;

    let sealed = Gateway::setup().set("dns", "servers", &servers).block(&[MUST_DENY]).allow(&[HOST]);
    let sealed = sealed.set("intercept", "enabled", "false").start().await;
    assert_refuses_everywhere(&sealed, &["forward", "connect", "http2", "socks5"]).await;
    assert_eq!(dns.queries_for(MUST_DENY), 0);
}

#[tokio::test]
async fn what_must_be_denied_is_asked_for_again_under_a_new_policy() {
    let gateway = Gateway::setup().allow(&[HOST]).start().await;
    gateway.write("agent.toml", "name = \"harness\"\n");
    gateway.reload().await;
    gateway.await_metric("exeat_must_deny", &[], 5.0).await;
    assert_eq!(gateway.readyz().await.status, 200);
}

/// A manifest with this many servers, each with a credential of its own.
fn servers(count: usize) -> Setup {
    (0..count).fold(Gateway::setup().allow(&["*.example.test"]), |setup, number| {
        let (name, binding) = (format!("server-{number}"), format!("TOKEN_{number}"));
        let url = format!("https://s{number}.example.test/mcp");
        let bound = format!("${{{binding}}}");
        setup.mcp_server(&name, &url, &[("Authorization", &bound)]).bind(&binding, "Bearer x")
    })
}

#[tokio::test]
async fn a_hundred_thousand_hosts_add_no_series() {
    const CONNECTIONS: usize = 20;
    const EACH: usize = 5_000;
    let gateway = servers(20).env("RUST_LOG", "error").start().await;
    let before = gateway.metrics().await.len();
    let mut tasks = tokio::task::JoinSet::new();
    for connection in 0..CONNECTIONS {
        let proxy = gateway.proxy();
        tasks.spawn(async move {
            let mut conn = RawConn::open(proxy).await;
            for number in 0..EACH {
                let host = format!("h{connection}-{number}.outside.test");
                assert_eq!(conn.get(&format!("http://{host}/p{number}"), &host).await.status, 403);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let total = (CONNECTIONS * EACH) as f64;
    gateway.await_metric("exeat_requests_total", &[("reason", "not_allowed")], total).await;
    let after = gateway.metrics().await.len();
    assert_eq!(after, before);
    // 20 servers with ten checks of five statuses each are half of them.
    assert!(after < 2_500, "{after} series");
    println!("{after} series with 20 servers, after {total} hosts");
}

#[tokio::test]
async fn the_page_for_operators_lists_every_metric() {
    let gateway = servers(1).start().await;
    let text = gateway.admin_get("/metrics").await.text();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let names = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next());
    let missing: Vec<&str> = names.filter(|name| !readme.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "README.md does not name {missing:?}");
}
