//! Report mode: what the rules deny goes out and is reported, through every way in; everything else is enforced.

use exeat_tests::events::{self, await_event};
use exeat_tests::gateway::exeat;
use exeat_tests::prelude::*;
use exeat_tests::session::Session;
use serde_json::{Value, json};

const HOST: &str = "api.example.test";
const OTHER: &str = "other.example.test";
const SECRET: &str = "Bearer s3cret-of-the-gateway";

/// Waits for the decision that was let out and reported.
async fn reported(gateway: &Gateway, entry: &str, reason: &str) -> Value {
    let what = format!("{entry} report {reason}");
    let is_it = |event: &Value| event["entry"] == entry && event["verdict"] == "report" && event["reason"] == reason;
    let found = await_event(gateway, &what, is_it).await;
    assert_eq!(found["policy"]["mode"], "report");
    let labels = [("entry", entry), ("verdict", "report"), ("reason", reason)];
    assert!(gateway.metrics().await.sum("exeat_requests_total", &labels) >= 1.0, "{labels:?}");
    found
}

#[tokio::test]
async fn what_the_rules_deny_goes_out_by_every_way_in() {
    let ca = TestCa::new();
    let secure = Origin::https(Site::default(), &ca.leaf(&[HOST, OTHER])).await;
    let plain = Origin::http(Site::default()).await;
    let setup = Gateway::setup().events().report_only().names(&[HOST, OTHER]).trust(&ca);
    let setup = setup.allow(&[secure.url(HOST, "/v1/")]).block(&[plain.url(HOST, "/blocked/")]);
    let gateway = setup.start().await;

    gateway.get(&plain.url(HOST, "/blocked/x")).await.assert_ok("GET /blocked/x");
    let found = reported(&gateway, "forward", "blocked").await;
    assert_eq!(found["rule"]["list"], "blocked");
    gateway.get(&plain.url(OTHER, "/y")).await.assert_ok("GET /y");
    reported(&gateway, "forward", "not_allowed").await;

    // A tunnel to a host where nothing is permitted is blind: all in it would be reported.
    let tunnel = gateway.tunnel(&secure.authority(OTHER)).await;
    let mut tls = tunnel.tls(ca.roots(), OTHER, &["http/1.1"]).await.unwrap();
    tls.get("/blind", OTHER).await.assert_ok("GET /blind");
    assert_eq!(reported(&gateway, "connect", "not_allowed").await["tunnel"], "blind");
    let tunnel = gateway.socks_tunnel(&secure.authority(OTHER)).await;
    let mut tls = tunnel.tls(ca.roots(), OTHER, &["http/1.1"]).await.unwrap();
    tls.get("/socks", OTHER).await.assert_ok("GET /socks");
    reported(&gateway, "socks5", "not_allowed").await;

    // One where it depends is inspected, and each request in it judged.
    let mut inside = gateway.intercepted(&secure.authority(HOST)).await;
    inside.get("/v1/x", HOST).await.assert_ok("GET /v1/x");
    inside.get("/v2/x", HOST).await.assert_ok("GET /v2/x");
    reported(&gateway, "intercept", "not_allowed").await;
    let inside = |event: &&Value| event["kind"] == "decision" && event["entry"] == "intercept";
    let verdicts: Vec<Value> = events::of(&gateway).iter().filter(inside).map(|it| it["verdict"].clone()).collect();
    assert_eq!(verdicts, ["allow", "report"]);

    // It is plain to see in which mode that was.
    let readyz = gateway.readyz().await.json();
    assert_eq!(readyz["policy"]["mode"], "report");
    assert_eq!(gateway.admin_get("/v1/evidence").await.json()["policy"]["mode"], "report");
    assert_eq!(gateway.metrics().await.sum("exeat_policy_info", &[("mode", "report")]), 1.0);
    let warning = gateway.await_line("denials by rules are reported and not enforced").await;
    assert!(warning.contains("mode"), "{warning}");
}

#[tokio::test]
async fn what_is_no_matter_of_rules_is_enforced() {
    let ca = TestCa::new();
    let secure = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let setup = Gateway::setup().report_only().names(&[HOST]).host(OTHER, "10.1.2.3").trust(&ca);
    let setup = setup.set("guard", "blocked_ports", "[2525]").set("intercept", "enabled", "false");
    let gateway = setup.allow(&[secure.url(HOST, "/v1/")]).start().await;
    for (url, status, reason) in [
        (format!("http://{OTHER}/"), 403, "guard_address"),
        ("http://169.254.169.254/".to_owned(), 403, "guard_metadata"),
        (format!("http://{}/", gateway.admin()), 403, "guard_self"),
        (format!("http://{HOST}:2525/"), 403, "guard_port"),
        ("ftp://files.test/".to_owned(), 400, "unsupported_scheme"),
        ("http://a..b/".to_owned(), 400, "malformed"),
    ] {
        let refused = gateway.get(&url).await;
        assert_eq!((refused.status, refused.reason().as_deref()), (status, Some(reason)), "{url}");
    }
    let (_, refused) = gateway.connect(&secure.authority(HOST)).await;
    refused.assert_refused(403, "inspect_off");
    assert_eq!(secure.connections(), 0);
}

#[tokio::test]
async fn a_credential_goes_out_only_by_a_rule() {
    let ca = TestCa::new();
    let origin = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let setup = |allowed: &str| {
        let setup = Gateway::setup().events().report_only().names(&[HOST]).trust(&ca).endpoints();
        let setup = setup.allow(&[origin.url(HOST, allowed)]).bind("DOCS", SECRET);
        setup.mcp_server("docs", &origin.url(HOST, "/mcp"), &[("Authorization", "${DOCS}")])
    };
    let get = |gateway: &Gateway| {
        let endpoint = gateway.endpoint("docs").to_owned();
        let host = endpoint.strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();
        async move { RawConn::open(host.parse().unwrap()).await.get("/mcp/docs", &host).await }
    };

    // Permitted, it is put on; denied, the request is let out as the client sent it, from the endpoint and the tunnel.
    let gateway = setup("/mcp").start().await;
    get(&gateway).await.assert_ok("GET /mcp");
    assert_eq!(origin.requests().last().unwrap().value("authorization").as_deref(), Some(SECRET));
    let gateway = setup("/elsewhere/").start().await;
    get(&gateway).await.assert_ok("GET /mcp");
    assert_eq!(reported(&gateway, "mcp", "not_allowed").await["injected"], Value::Null);
    let mut inside = gateway.intercepted(&origin.authority(HOST)).await;
    let own = format!("GET /mcp HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer own");
    assert_eq!(inside.roundtrip(&own).await.status, 200);
    let seen: Vec<_> = origin.requests().iter().skip(1).map(|request| request.value("authorization")).collect();
    assert_eq!(seen, [None, Some("Bearer own".to_owned())]);
    reported(&gateway, "intercept", "not_allowed").await;
}

#[tokio::test]
async fn what_an_mcp_server_is_held_to_is_enforced() {
    let ca = TestCa::new();
    let origin = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let setup = Gateway::setup().report_only().names(&[HOST]).trust(&ca).allow(&["elsewhere.test"]);
    let setup = setup.mcp_server("docs", &origin.url(HOST, "/mcp"), &[]);
    let gateway = setup.set("mcp.docs", "tools", "{ deny = [\"*\"] }").start().await;
    let mut inside = gateway.intercepted(&origin.authority(HOST)).await;
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "rm", "arguments": {} } });
    let body = body.to_string();
    let fields = format!("Host: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {}", body.len());
    inside.send(format!("POST /mcp HTTP/1.1\r\n{fields}\r\n\r\n{body}")).await;
    assert_eq!(inside.response_to("POST").await.reason().as_deref(), Some("mcp_tool"));
    assert!(origin.requests().is_empty());
}

#[tokio::test]
async fn enforcing_again_closes_what_was_only_reported() {
    let echo = Echo::tcp().await;
    let setup = Gateway::setup().report_only().names(&[HOST]).allow(&[OTHER]);
    let gateway = setup.start().await;
    let mut tunnel = gateway.tunnel(&echo.authority(HOST)).await;
    tunnel.exchange(b"open").await;
    let config = std::fs::read_to_string(gateway.dir().join("exeat.toml")).unwrap();
    gateway.write("exeat.toml", &config.replace("\"report\"", "\"enforce\""));
    gateway.reload().await;
    tunnel.to_end().await;
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "policy_changed")], 1.0).await;
    let (_, refused) = gateway.connect(&echo.authority(HOST)).await;
    refused.assert_refused(403, "not_allowed");
}

#[tokio::test]
async fn the_dry_run_says_what_the_rules_say_and_what_becomes_of_it() {
    let gateway = Gateway::setup().report_only().allow(&[HOST]).start().await;
    let url = format!("https://{OTHER}/");
    let args = ["check", "-c", "exeat.toml", "-m", "agent.toml", &url];
    let output = exeat(&args).dir(gateway.dir()).run().await;
    assert_eq!(output.code, Some(1));
    assert!(output.stdout.contains("deny") && output.stdout.contains("in report mode"), "{output:#?}");
}

#[tokio::test]
async fn a_session_learns_first_and_suggests_what_would_permit_it() {
    let origin = Origin::http(Site::default()).await;
    for isolate in ["require", "off"] {
        let ports = format!("[{}]", origin.port());
        let setup = Gateway::setup().names(&[HOST, OTHER]).allow(&[OTHER]).set("sessions", "catch", &ports);
        let session = Session::new(setup).isolate(isolate).args(&["--mode", "report", "--suggest"]);
        let url = origin.url(HOST, "/x");
        let ended = session.run(&["curl", "-sS", &url]).await;
        assert!(ended.output.stdout.contains("GET /x"), "{:?}", ended.output);
        ended.assert_decided(&format!("forward report not_allowed {url}"));
        assert_eq!(ended.report["mode"], "report");
        assert_eq!(
            (&ended.report["reported"][0]["target"], &ended.report["reported"][0]["allow"]),
            (&json!(url), &json!(HOST))
        );
        assert!(ended.output.stderr.contains("1 reported") && ended.output.stderr.contains(HOST), "{:?}", ended.output);
        if isolate == "require" {
            // And so does one that knows of no proxy.
            let session =
                Session::new(Gateway::setup().names(&[HOST]).allow(&[OTHER]).set("sessions", "catch", &ports));
            let session = session.isolate(isolate).args(&["--mode", "report"]);
            let ended = session.run(&["curl", "-sS", "--noproxy", "*", &url]).await;
            assert!(ended.output.stdout.contains("GET /x"), "{:?}", ended.output);
            ended.assert_decided(&format!("caught report not_allowed {}", origin.authority(HOST)));
        }
    }
}
