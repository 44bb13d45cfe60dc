//! Messages that broke gateways in front of MCP servers: the table in `data/mcp-attacks.toml`, through an intercepted
//! tunnel, of HTTP/1.1 and of HTTP/2, and the local endpoint. A refusal reaches no server, is counted once, and is in the words its client reads.

use exeat_tests::prelude::*;
use serde_json::{Value, json};

const CASES: &str = include_str!("../data/mcp-attacks.toml");
const HOST: &str = "mcp.example.test";
const SERVERS: [(&str, &str); 4] = [
    ("tools", "elicitation_policy = \"url_and_form\""),
    ("june", "protocol_mode = \"2025-06-18\""),
    ("stateless", "protocol_mode = \"2026-07-28\""),
    ("default", ""),
];

struct Case(Value);

impl Case {
    fn text(&self, key: &str) -> Option<String> {
        let text = self.0.get(key)?.as_str().unwrap_or_else(|| panic!("{key} is text"));
        Some(text.replace("{pad}", &" ".repeat(3000)).replace("{deep}", &"[".repeat(200)))
    }

    fn server(&self) -> String {
        self.text("server").unwrap_or_else(|| "tools".to_owned())
    }

    fn carried_by(&self, entry: &str) -> bool {
        // What holds for a tunnel holds for either version inside.
        let entry = if entry == "h2" { "intercept" } else { entry };
        self.0["entries"].as_array().is_none_or(|entries| entries.iter().any(|name| name == entry))
    }

    fn message(&self, path: &str, host: &str) -> String {
        let [method, fields, body] = ["method", "fields", "body"].map(|key| self.text(key));
        let (fields, body) = (fields.unwrap_or_default(), body.unwrap_or_default());
        let method = method.unwrap_or_else(|| "POST".to_owned());
        let host = self.text("host").unwrap_or_else(|| host.to_owned());
        let framed = if fields.contains("chunked") {
            format!("{fields}\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
        } else if method == "GET" && body.is_empty() {
            format!("{fields}\r\n")
        } else {
            format!("{fields}Content-Length: {}\r\n\r\n{body}", body.len())
        };
        format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{framed}")
    }
}

impl Case {
    /// The message in HTTP/2, which frames it by itself (RFC 9113 section 8.2.2).
    fn request(&self, authority: &str) -> (http::Request<()>, String) {
        let [method, fields, body] = ["method", "fields", "body"].map(|key| self.text(key));
        let url = format!("https://{authority}/{}", self.server());
        let request = http::Request::builder().method(&*method.unwrap_or_else(|| "POST".to_owned())).uri(url);
        let fields = fields.unwrap_or_default();
        let kept = fields.lines().filter(|line| !line.starts_with("Transfer-Encoding"));
        let request = kept.fold(request, |request, line| {
            let (name, value) = line.split_once(": ").unwrap();
            request.header(name, value)
        });
        (request.body(()).unwrap(), body.unwrap_or_default())
    }
}

fn cases() -> Vec<Case> {
    let table: Value = toml::from_str(CASES).unwrap();
    table["case"].as_array().unwrap().iter().cloned().map(Case).collect()
}

async fn scene(site: Site) -> (Gateway, Origin) {
    let ca = TestCa::new();
    let origin = Origin::h2(site, &ca.leaf(&[HOST])).await;
    let setup = Gateway::setup().trust(&ca).names(&[HOST]).allow(&[HOST]).endpoints().set("mcp", "max_body", "2048");
    let setup = setup.set("mcp.tools", "tools", r#"{ deny = ["bad"] }"#);
    let setup = SERVERS.iter().fold(setup, |setup, (name, keys)| {
        setup.mcp_server(name, &origin.url(HOST, &format!("/{name}")), &[]).server_keys(keys)
    });
    (setup.start().await, origin)
}

/// Says a case to the gateway by one entry point.
async fn ask(gateway: &Gateway, origin: &Origin, entry: &str, case: &Case) -> Response {
    if entry == "h2" {
        let authority = origin.authority(HOST);
        let (request, body) = case.request(&authority);
        let mut conn = gateway.intercepted_h2(&authority).await;
        let mut stream = conn.open(request, body.is_empty()).await;
        if !body.is_empty() {
            stream.send(body.as_bytes()).await.unwrap();
            stream.finish();
        }
        return stream.whole().await.unwrap();
    }
    let (mut conn, message) = if entry == "endpoint" {
        let url = gateway.endpoint(&case.server());
        let (host, path) = url.strip_prefix("http://").and_then(|url| url.split_once('/')).unwrap();
        (RawConn::open(host.parse().unwrap()).await, case.message(&format!("/{path}"), host))
    } else {
        let authority = origin.authority(HOST);
        (gateway.intercepted(&authority).await, case.message(&format!("/{}", case.server()), &authority))
    };
    conn.send(message).await;
    conn.response_to(&case.text("method").unwrap_or_default()).await
}

fn check_refusal(case: &Case, response: &Response) {
    let (reason, id) = (case.text("reason").unwrap(), &case.0["id"]);
    let status = case.0["status"].as_u64().unwrap_or(400);
    assert_eq!(response.reason().as_deref(), Some(&*reason), "{id}: {}", response.text());
    assert_eq!(u64::from(response.status), status, "{id}");
    assert_eq!(response.value("allow").is_some(), status == 405, "{id}");
    if case.0["code"].is_null() {
        let kind = response.value("content-type").unwrap();
        assert_eq!(kind == "application/problem+json", status != 200, "{id}: {kind}");
        return;
    }
    let error = response.json();
    assert_eq!(error["error"]["code"], case.0["code"], "{id}: {error}");
    assert_eq!(error["error"]["data"]["reason"], reason, "{id}");
    assert_eq!(error["jsonrpc"], "2.0", "{id}");
    let null_id = case.0["null_id"].as_bool().unwrap_or(false);
    assert_eq!(error["id"], if null_id { Value::Null } else { json!(7) }, "{id}");
    assert_eq!(response.value("content-type").as_deref(), Some("application/json"));
}

async fn drive(entry: &str) {
    let site = Site::default().at("*", Reply::json(&json!({"jsonrpc": "2.0", "id": 7, "result": {}})));
    let (gateway, origin) = scene(site).await;
    let word = if entry == "endpoint" { "mcp" } else { "intercept" };
    for case in cases().iter().filter(|case| case.carried_by(entry)) {
        let id = &case.0["id"];
        let (before, seen) = (gateway.metrics().await, origin.requests().len());
        let response = ask(&gateway, &origin, entry, case).await;
        let decisions = |metrics: &exeat_tests::gateway::Metrics, labels: &[(&str, &str)]| {
            metrics.sum("exeat_requests_total", &[&[("entry", word)], labels].concat())
        };
        let after = gateway.metrics().await;
        assert_eq!(decisions(&after, &[]) - decisions(&before, &[]), 1.0, "{id}: one decision");
        if case.0["allow"].as_bool().unwrap_or(false) {
            assert_eq!((response.status, response.reason()), (200, None), "{id}: {}", response.text());
            let request = origin.await_requests(seen + 1).await.remove(seen);
            let expected = case.text("content").or(case.text("body")).unwrap();
            assert_eq!(String::from_utf8(request.body).unwrap(), expected, "{id}");
        } else {
            check_refusal(case, &response);
            assert_eq!(origin.requests().len(), seen, "{id}: nothing goes out");
            let reason = case.text("reason").unwrap();
            let labels = [("verdict", "deny"), ("reason", &*reason)];
            assert_eq!(decisions(&after, &labels) - decisions(&before, &labels), 1.0, "{id}");
        }
    }
}

#[tokio::test]
async fn attacks_through_an_intercepted_tunnel() {
    drive("intercept").await;
}

#[tokio::test]
async fn attacks_through_an_intercepted_tunnel_of_http2() {
    drive("h2").await;
}

#[tokio::test]
async fn attacks_through_the_local_endpoint() {
    drive("endpoint").await;
}

/// M7: the oldest transport's stream begins with the place that messages go to; a server that has been taken over, or
/// that lies, names one where no policy is in force.
#[tokio::test]
async fn an_endpoint_event_that_leads_elsewhere_names_nothing() {
    const ELSEWHERE: [&str; 5] =
        ["https://evil.test/tools", "//evil.test/tools", "\\\\evil.test", "http://mcp.example.test/tools", "/other"];
    let event = |place: &str| format!("event: endpoint\r\ndata: {place}\r\n\r\n");
    let stream = |places: &[&str]| {
        let text: String = places.iter().map(|place| event(place)).collect();
        let pieces: Vec<&str> = text.split_inclusive('e').collect();
        Reply::chunked(&pieces).header("Content-Type", "text/event-stream")
    };
    let own = "/tools/messages?session=1";
    let site =
        Site::default().at("/tools/own", stream(&[own])).at("/tools/sse", stream(&[&ELSEWHERE[..], &[own]].concat()));
    let (gateway, origin) = scene(site).await;
    let authority = origin.authority(HOST);
    for version in ["HTTP/1.1", "HTTP/2"] {
        let get = async |path: &str| match version {
            "HTTP/2" => gateway.intercepted_h2(&authority).await.get(&format!("https://{authority}{path}")).await,
            _ => gateway.intercepted(&authority).await.get(path, &authority).await,
        };
        assert_eq!(get("/tools/own").await.text(), event(own), "{version}");
        let before = gateway.metrics().await.sum("exeat_requests_total", &[("reason", "mcp_answer")]);
        let heard = get("/tools/sse").await;
        assert_eq!(heard.status, 200);
        let named: Vec<_> =
            heard.text().lines().filter_map(|line| Some(line.strip_prefix("data: ")?.to_owned())).collect();
        assert_eq!(named, [own], "{version}: {}", heard.text());
        let counted = before + ELSEWHERE.len() as f64;
        gateway.await_metric("exeat_requests_total", &[("reason", "mcp_answer")], counted).await;
    }
}

#[test]
fn every_group_is_there_and_every_case_has_a_name() {
    let cases = cases();
    for group in ["M1 ", "M2 ", "M4 ", "M5 ", "M6 "] {
        assert!(cases.iter().any(|case| case.0["id"].as_str().unwrap().starts_with(group)), "{group}");
    }
    let mut names: Vec<_> = cases.iter().map(|case| case.0["id"].as_str().unwrap()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), cases.len());
}
