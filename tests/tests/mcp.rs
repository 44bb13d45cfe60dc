//! MCP servers held to a policy: what becomes of their answers and streams, and the local endpoints.

use exeat_tests::origin::{EventSource, Request};
use exeat_tests::prelude::*;
use exeat_tests::wait::until;
use serde_json::{Value, json};

const HOST: &str = "mcp.example.test";
const SECRET: &str = "Bearer s3cret-of-the-gateway";

/// A gateway in front of one server.
struct Scene {
    gateway: Gateway,
    origin: Origin,
}

impl Scene {
    /// A server with these keys in the manifest, and these tools in the config.
    async fn start(site: Site, keys: &str, tools: &str) -> Self {
        Self::with(site, keys, tools, |setup| setup).await
    }

    async fn with(site: Site, keys: &str, tools: &str, change: impl FnOnce(Setup) -> Setup) -> Self {
        Self::begin(site, keys, tools, &[], change).await
    }

    /// A server to which the gateway has the credential.
    async fn bound(site: Site, keys: &str) -> Self {
        let headers = [("Authorization", "${DOCS}")];
        Self::begin(site, keys, "", &headers, |setup| setup.bind("DOCS", SECRET)).await
    }

    async fn begin(
        site: Site,
        keys: &str,
        tools: &str,
        headers: &[(&str, &str)],
        change: impl FnOnce(Setup) -> Setup,
    ) -> Self {
        let ca = TestCa::new();
        let origin = Origin::https(site, &ca.leaf(&[HOST])).await;
        let url = origin.url(HOST, "/mcp");
        let setup =
            Gateway::setup().trust(&ca).names(&[HOST]).allow(&[HOST]).endpoints().set("mcp", "max_body", "4096");
        let setup = setup.mcp_server("docs", &url, headers).server_keys(keys);
        let setup = if tools.is_empty() { setup } else { setup.set("mcp.docs", "tools", tools) };
        let gateway = change(setup).start().await;
        Self { gateway, origin }
    }

    /// A connection to the server through an intercepted tunnel.
    async fn intercepted(&self) -> RawConn {
        self.gateway.intercepted(&self.origin.authority(HOST)).await
    }

    /// A connection to the local endpoints.
    async fn local(&self) -> RawConn {
        RawConn::open(self.local_host().parse().unwrap()).await
    }

    fn local_host(&self) -> &str {
        self.gateway.endpoint("docs").strip_prefix("http://").unwrap().split('/').next().unwrap()
    }

    /// POSTs to the local endpoint.
    async fn post(&self, body: &Value) -> Response {
        post(&mut self.local().await, self.local_host(), "/mcp/docs", "", &body.to_string()).await
    }

    async fn reasons(&self, reason: &str) -> f64 {
        self.gateway.metrics().await.sum("exeat_requests_total", &[("reason", reason)])
    }
}

async fn post(conn: &mut RawConn, host: &str, path: &str, fields: &str, body: &str) -> Response {
    send_post(conn, host, path, fields, body).await;
    conn.response_to("POST").await
}

async fn send_post(conn: &mut RawConn, host: &str, path: &str, fields: &str, body: &str) {
    let accept = "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n";
    let length = body.len();
    conn.send(format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\n{accept}{fields}Content-Length: {length}\r\n\r\n{body}"
    ))
    .await;
}

fn request(method: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method})
}

fn sse(pieces: &[&str]) -> Reply {
    Reply::chunked(pieces).header("Content-Type", "text/event-stream")
}

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"get"},{"name":"delete"}],"nextCursor":"n"}}"#;
const LISTED: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"get"}],"nextCursor":"n"}}"#;
const FORM: &str = r#"{"jsonrpc":"2.0","id":"e-1","method":"elicitation/create","params":{"message":"?"}}"#;

#[tokio::test]
async fn tools_are_taken_out_of_lists_in_json_and_in_streams_split_anywhere() {
    let stream = format!("id: 1\nevent: message\ndata: {LIST}\n\n");
    let pieces: Vec<&str> = (0..stream.len()).map(|at| &stream[at..=at]).collect();
    let site = Site::default()
        .at("/mcp", Reply::bytes("application/json", LIST).header("ETag", "\"x\""))
        .at("/mcp/stream", sse(&pieces))
        .at("/mcp/odd", Reply::bytes("text/plain", LIST));
    let scene = Scene::start(site, "", r#"{ allow = ["*"], deny = ["del*"] }"#).await;
    let response = scene.post(&request("tools/list")).await;
    assert_eq!(response.text(), LISTED);
    assert_eq!(response.value("content-length"), Some(LISTED.len().to_string()));
    assert_eq!((response.value("etag"), response.reason()), (None, None));
    let authority = scene.origin.authority(HOST);
    let mut conn = scene.intercepted().await;
    let body = request("tools/list").to_string();
    let streamed = post(&mut conn, &authority, "/mcp/stream", "", &body).await;
    assert_eq!(streamed.text(), format!("id: 1\nevent: message\ndata: {LISTED}\n\n"));
    assert_eq!(post(&mut conn, &authority, "/mcp/odd", "", &body).await.text(), LISTED, "whatever it calls itself");
    let asked = scene.origin.requests();
    assert!(asked.iter().all(|request| request.value("accept-encoding").as_deref() == Some("identity")), "{asked:#?}");
}

/// Reads pieces of a stream until what came ends as `end` does.
async fn until_ends(conn: &mut RawConn, opened: &mut exeat_tests::client::Opened, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        text += std::str::from_utf8(&conn.piece(opened).await.expect("the stream goes on")).unwrap();
    }
    text
}

#[tokio::test]
async fn events_pass_at_once_and_untouched_and_a_client_that_leaves_is_noticed() {
    let (reply, events): (Reply, EventSource) = Reply::events();
    let scene = Scene::start(Site::default().at("/mcp", reply), "tool_discovery = false", "").await;
    let mut conn = scene.local().await;
    send_post(&mut conn, scene.local_host(), "/mcp/docs", "", &request("ping").to_string()).await;
    let mut opened = conn.opened("POST").await;
    for text in [r#"{"jsonrpc":"2.0","method":"notifications/progress" ,"params":{"n":1.0}}"#, "", "not json"] {
        events.send(text).await;
        assert_eq!(until_ends(&mut conn, &mut opened, "\n\n").await, format!("data: {text}\n\n"));
    }
    drop(conn);
    events.abandoned().await;
}

/// A server that asks a form on its streams, and takes down what it is answered.
fn asking() -> Site {
    let answer = |request: Request| async move {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if request.method == "POST" && body["method"].is_null() {
            return Reply::status(202);
        }
        let events =
            format!(": here\n\nid: 7\nretry: 10\ndata: {FORM}\n\ndata: {{\"method\":\"notifications/x\"}}\n\n");
        sse(&[&events])
    };
    Site::default().at("/mcp", Reply::computed(answer))
}

#[tokio::test]
async fn questions_on_both_kinds_of_streams_are_answered_in_the_clients_place() {
    let expected = ": here\n\nid: 7\nretry: 10\n\ndata: {\"method\":\"notifications/x\"}\n\n";
    for method in ["GET", "POST"] {
        let scene = Scene::bound(asking(), "elicitation_policy = \"none\"").await;
        let authority = scene.origin.authority(HOST);
        let mut conn = scene.intercepted().await;
        let fields = "Mcp-Session-Id: s-1\r\nMCP-Protocol-Version: 2025-06-18\r\nCookie: c=1\r\nLast-Event-ID: 3\r\n";
        let response = if method == "GET" {
            conn.send(format!("GET /mcp HTTP/1.1\r\nHost: {authority}\r\n{fields}\r\n")).await;
            conn.response().await
        } else {
            post(&mut conn, &authority, "/mcp", fields, &request("tools/call").to_string()).await
        };
        assert_eq!(response.text(), expected, "{method}");
        let requests = scene.origin.await_requests(2).await;
        let answer = &requests[1];
        assert_eq!(answer.method, "POST");
        assert_eq!(answer.body, br#"{"jsonrpc":"2.0","id":"e-1","result":{"action":"cancel"}}"#);
        for (name, value) in [
            ("mcp-session-id", "s-1"),
            ("mcp-protocol-version", "2025-06-18"),
            ("authorization", SECRET),
            ("content-type", "application/json"),
            ("cookie", "c=1"),
        ] {
            assert_eq!(answer.value(name).as_deref(), Some(value), "{method} {name}");
        }
        assert!(!answer.has("last-event-id"));
        assert_eq!(scene.reasons("mcp_elicitation").await, 1.0, "{method}");
        scene.gateway.await_line("\"reason\":\"mcp_elicitation\"").await;
    }
}

#[tokio::test]
async fn by_default_a_server_may_not_ask_forms() {
    let scene = Scene::start(asking(), "", "").await;
    assert!(!scene.post(&request("tools/call")).await.text().contains("elicitation"));
    let scene = Scene::start(asking(), "elicitation_policy = \"url_and_form\"", "").await;
    assert!(scene.post(&request("tools/call")).await.text().contains("elicitation"));
    assert_eq!(scene.origin.requests().len(), 1);
    assert_ne!(scene.origin.requests()[0].value("accept-encoding").as_deref(), Some("identity"), "nothing to judge");
}

#[tokio::test]
async fn answers_that_want_the_user_become_errors() {
    let form = json!({"method": "elicitation/create", "params": {"mode": "form"}});
    let wants = [
        json!({"jsonrpc": "2.0", "id": 1, "result": {"resultType": "input_required", "inputRequests": {"a": form}}}),
        json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32042, "message": "", "data": {"elicitations": [{}]}}}),
    ];
    for want in wants {
        let scene = Scene::start(Site::default().at("/mcp", Reply::json(&want)), "", "").await;
        let response = scene.post(&request("tools/call")).await;
        let error = response.json();
        assert_eq!((response.status, &error["id"], &error["error"]["code"]), (200, &json!(1), &json!(-31003)));
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_judged_is_withheld() {
    let long = format!("{{\"id\":1,\"result\":{{\"x\":\"{}\"}}}}", "x".repeat(5000));
    let twice = r#"{"id":1,"result":{},"result":{"tools":[{"name":"delete"}]}}"#;
    let site = Site::default()
        .at("/mcp/long", Reply::bytes("application/json", &*long))
        .at("/mcp/event", sse(&[&format!("data: {long}\n\ndata: {LIST}\n\n")]))
        .at("/mcp/twice", Reply::bytes("application/json", twice))
        .at("/mcp/coded", Reply::bytes("application/json", "x").header("Content-Encoding", "gzip"))
        .at("/mcp/types", Reply::bytes("application/json; text/event-stream", LIST))
        .at("/mcp/cut", Reply::verbatim("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"id\":1,"));
    let scene = Scene::start(site, "", r#"{ deny = ["delete"] }"#).await;
    let authority = scene.origin.authority(HOST);
    for path in ["/mcp/long", "/mcp/event", "/mcp/twice", "/mcp/coded", "/mcp/types"] {
        let mut conn = scene.intercepted().await;
        let response = post(&mut conn, &authority, path, "", &request("tools/list").to_string()).await;
        let text = response.text();
        let error: Value = serde_json::from_str(text.trim().trim_start_matches("data: ")).unwrap();
        assert_eq!(
            (response.status, &error["id"], &error["error"]["code"]),
            (200, &json!(1), &json!(-31005)),
            "{path}"
        );
        assert!(!text.contains("delete"), "{path}");
        let silent = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
        let mut conn = scene.intercepted().await;
        let response = post(&mut conn, &authority, path, "", silent).await;
        if path == "/mcp/event" {
            assert_eq!(response.text(), "");
        } else {
            response.assert_refused(502, "mcp_answer");
        }
    }
    assert_eq!(scene.reasons("mcp_answer").await, 10.0);
    let mut conn = scene.intercepted().await;
    let response = post(&mut conn, &authority, "/mcp/cut", "", &request("ping").to_string()).await;
    response.assert_refused(502, "upstream_protocol");
}

#[tokio::test]
async fn a_pinned_server_that_answers_otherwise_is_not_heard() {
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "2025-11-25", "capabilities": {}}});
    let scene = Scene::start(Site::default().at("/mcp", Reply::json(&answer)), "protocol_mode = \"stable\"", "").await;
    let mut body = request("initialize");
    body["params"] = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    assert_eq!(scene.post(&body).await.json()["error"]["code"], -31006);
    let sent: Value = serde_json::from_slice(&scene.origin.only_request().await.body).unwrap();
    assert_eq!(sent["params"]["protocolVersion"], "2025-06-18");
    let session = Reply::json(&json!({"id": 1, "result": {}})).header("Mcp-Session-Id", "s");
    let scene = Scene::start(Site::default().at("/mcp", session), "protocol_mode = \"rc\"", "").await;
    let body = json!({"id": 1, "method": "tools/list", "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}});
    let mut conn = scene.intercepted().await;
    let fields = "MCP-Protocol-Version: 2026-07-28\r\n";
    let response = post(&mut conn, &scene.origin.authority(HOST), "/mcp", fields, &body.to_string()).await;
    assert_eq!((response.status, response.value("mcp-session-id")), (200, None));
}

#[tokio::test]
async fn a_host_that_is_permitted_whole_is_opened_for_a_policy_and_closed_where_it_cannot_be() {
    let scene = Scene::with(Site::default(), "", r#"{ deny = ["bad"] }"#, |setup| {
        setup.mcp_server("blind", "https://blind.example.test/mcp", &[]).allow(&["blind.example.test"])
    });
    let scene = scene.await;
    let mut conn = scene.intercepted().await;
    let call = json!({"id": 1, "method": "tools/call", "params": {"name": "bad"}}).to_string();
    // However its path is spelt.
    for path in ["/mcp", "/MCP/", "/x/..%2fmcp", "//mcp"] {
        let response = post(&mut conn, &scene.origin.authority(HOST), path, "", &call).await;
        assert_eq!(response.reason().as_deref(), Some("mcp_tool"), "{path}");
    }
    assert!(scene.origin.requests().is_empty());
    let off = |setup: Setup| setup.set("intercept", "enabled", "false");
    let scene = Scene::with(Site::default(), "", r#"{ deny = ["bad"] }"#, off).await;
    let (_, response) = scene.gateway.connect(&scene.origin.authority(HOST)).await;
    response.assert_refused(403, "inspect_off");
}

#[tokio::test]
async fn a_reload_brings_other_tools() {
    let scene = Scene::start(Site::default().at("/mcp", Reply::bytes("application/json", LIST)), "", "").await;
    assert_eq!(scene.post(&request("tools/list")).await.text(), LIST);
    let path = scene.gateway.dir().join("exeat.toml");
    let config = std::fs::read_to_string(path).unwrap();
    scene.gateway.write("exeat.toml", &format!("{config}\n[mcp.docs]\ntools = {{ deny = [\"delete\"] }}\n"));
    scene.gateway.reload().await;
    assert_eq!(scene.post(&request("tools/list")).await.text(), LISTED);
}

// --- The local endpoints ---------------------------------------------------------------------------------------------

#[tokio::test]
async fn an_endpoint_is_the_servers_url_with_its_credential() {
    let session = Reply::json(&json!({"id": 1, "result": {}})).header("Mcp-Session-Id", "s-1");
    let scene = Scene::bound(Site::default().at("/mcp", session), "").await;
    let mut conn = scene.local().await;
    let fields = "Authorization: Bearer mine\r\n";
    let response = post(&mut conn, scene.local_host(), "/mcp/docs", fields, &request("ping").to_string()).await;
    assert_eq!(response.status, 200);
    let session = response.value("mcp-session-id").unwrap();
    for method in ["GET", "DELETE"] {
        let fields = format!("Mcp-Session-Id: {session}\r\nLast-Event-ID: e/4\r\nAccept: text/event-stream");
        let head = format!("{method} /mcp/docs HTTP/1.1\r\nHost: {}\r\n{fields}", scene.local_host());
        assert_eq!(conn.roundtrip(&head).await.status, 200, "{method}");
    }
    let requests = scene.origin.requests();
    let seen: Vec<_> = requests.iter().map(|request| (&*request.method, &*request.target)).collect();
    assert_eq!(seen, [("POST", "/mcp"), ("GET", "/mcp"), ("DELETE", "/mcp")]);
    for request in &requests {
        assert_eq!(request.values("authorization"), [SECRET]);
        assert_eq!(request.value("host"), Some(scene.origin.authority(HOST)));
    }
    assert_eq!(requests[1].value("mcp-session-id").as_deref(), Some("s-1"));
    assert_eq!(requests[1].value("last-event-id").as_deref(), Some("e/4"));
    for path in ["/mcp/other", "/mcp/docs/x", "/", "/mcp/docs?x"] {
        let response = conn.roundtrip(&format!("GET {path} HTTP/1.1\r\nHost: {}", scene.local_host())).await;
        response.assert_refused(404, "not_found");
    }
    assert_eq!(scene.gateway.metrics().await.sum("exeat_requests_total", &[("entry", "mcp")]), 7.0);
}

#[tokio::test]
async fn an_endpoint_of_a_server_that_policy_does_not_permit_answers_so() {
    let scene = Scene::with(Site::default(), "", "", |setup| {
        setup.block(&[HOST]).mcp_server("\"a b\"", "https://other.example.test/", &[])
    });
    let scene = scene.await;
    let mut conn = scene.local().await;
    let response = post(&mut conn, scene.local_host(), "/mcp/docs", "", &request("ping").to_string()).await;
    response.assert_refused(403, "blocked");
    assert!(scene.gateway.endpoint("a b").ends_with("/mcp/a%20b"));
    assert!(scene.origin.requests().is_empty());
}

#[tokio::test]
async fn sessions_of_two_clients_are_kept_apart() {
    let session = Reply::json(&json!({"id": 1, "result": {}})).header("Mcp-Session-Id", "s-1");
    let site = Site::default().at("/mcp", session);
    let scene = Scene::with(site, "", "", |setup| setup.user("ann", "a").user("bob", "b")).await;
    let mut conn = scene.local().await;
    let auth = |credentials: &str| {
        use base64::Engine as _;
        let coded = base64::engine::general_purpose::STANDARD.encode(credentials);
        format!("Proxy-Authorization: Basic {coded}\r\n")
    };
    let ping = request("ping").to_string();
    let host = scene.local_host();
    post(&mut conn, host, "/mcp/docs", "", &ping).await.assert_refused(407, "proxy_auth");
    let opened = post(&mut conn, host, "/mcp/docs", &auth("ann:a"), &ping).await;
    let session = format!("Mcp-Session-Id: {}\r\n", opened.value("mcp-session-id").unwrap());
    let own = post(&mut conn, host, "/mcp/docs", &(auth("ann:a") + &session), &ping).await;
    assert_eq!(own.status, 200);
    let other = post(&mut conn, host, "/mcp/docs", &(auth("bob:b") + &session), &ping).await;
    other.assert_refused(404, "mcp_session");
    assert_eq!(scene.origin.requests().len(), 2);
    assert!(scene.origin.requests().iter().all(|request| !request.has("proxy-authorization")));
}

#[tokio::test]
async fn the_endpoints_are_listed_and_not_reached_through_the_proxy() {
    let scene = Scene::start(Site::default(), "", "").await;
    let listed = until("the line of the endpoint", || async {
        scene.gateway.lines().into_iter().find(|line| line.contains("/mcp/docs"))
    });
    assert!(listed.await.contains(scene.gateway.endpoint("docs")));
    let response = scene.gateway.get(scene.gateway.endpoint("docs")).await;
    response.assert_refused(403, "not_allowed");
    let env = exeat_tests::gateway::exeat(&["env", "-c"]).arg(scene.gateway.dir().join("exeat.toml"));
    let env = env.arg("-m").arg(scene.gateway.dir().join("agent.toml"));
    let env = env.args(["--mcp", scene.local_host(), "--state-dir"]).arg(scene.gateway.dir().join("state"));
    let expected = format!("export EXEAT_MCP_DOCS='{}'", scene.gateway.endpoint("docs"));
    let output = env.run().await.success();
    assert!(output.lines().any(|line| line == expected), "{output}");
}

#[tokio::test]
async fn what_a_server_says_over_http2_is_as_long_as_it_is_said_to_be() {
    let ca = TestCa::new();
    let origin = Origin::h2(Site::default(), &ca.leaf(&[HOST])).await;
    let url = origin.url(HOST, "/mcp");
    let gateway = Gateway::setup().trust(&ca).names(&[HOST]).allow(&[HOST]).mcp_server("docs", &url, &[]).start().await;
    let response = gateway.get(&url).await;
    response.assert_ok("GET /mcp");
    let length = response.value("content-length").map(|length| length.parse::<usize>().unwrap());
    assert!(length.is_none_or(|length| length == response.body.len()), "{response:?}");
}
