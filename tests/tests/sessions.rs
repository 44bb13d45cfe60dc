//! Sessions beside the gateway's own: by what their clients are known, what they may not see of each other, what they may
//! use up, and how they end.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use exeat_tests::client::curl;
use exeat_tests::client::socks::{NO_AUTH, PASSWORD};
use exeat_tests::prelude::*;
use exeat_tests::wait::until;
use serde_json::{Value, json};
use tokio::task::JoinSet;

const HOST: &str = "mcp.example.test";
const OTHER: &str = "other.example.test";

/// A gateway that permits two hosts, in front of one server that wants its users' own credentials.
async fn scene(site: Site, change: impl FnOnce(Setup) -> Setup) -> (Origin, Gateway) {
    let origin = Origin::http(site).await;
    let setup = Gateway::setup().names(&[HOST, OTHER]).allow(&[HOST, OTHER]).endpoints();
    let setup = setup.mcp_server("docs", &origin.url(HOST, "/mcp"), &[("Authorization", "${DOCS}")]);
    (origin, change(setup.server_keys("actsAs = \"user\"")).start().await)
}

/// A session by proxy credentials, with a credential of its own.
fn by_credentials(secret: &str) -> Value {
    json!({ "identity": { "credentials": true }, "bindings": { "DOCS": { "value": format!("Bearer {secret}") } } })
}

/// The field that clients of a session show.
fn basic(session: &Value) -> String {
    let credentials = &session["credentials"];
    let pair = format!("{}:{}", text(&credentials["user"]), text(&credentials["password"]));
    format!("Proxy-Authorization: Basic {}", BASE64.encode(pair))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no string: {value}"))
}

fn get(url: &str, field: &str) -> String {
    let field = if field.is_empty() { String::new() } else { format!("\r\n{field}") };
    format!("GET {url} HTTP/1.1\r\nHost: x{field}")
}

async fn ask(gateway: &Gateway, url: &str, field: &str) -> Response {
    gateway.open().await.roundtrip(&get(url, field)).await
}

async fn end(gateway: &Gateway, session: &Value) {
    let response = gateway.admin_ask("DELETE", &format!("/v1/sessions/{}", text(&session["id"])), None).await;
    assert_eq!(response.status, 200, "{}", response.text());
}

async fn closed(gateway: &Gateway, cause: &str, count: f64) {
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", cause)], count).await;
}

/// The address in `http://ADDRESS`.
fn address(url: &Value) -> std::net::SocketAddr {
    text(url).strip_prefix("http://").unwrap().split('/').next().unwrap().parse().unwrap()
}

// --- What sessions may not see of each other ------------------------------------------------------------------------------

#[tokio::test]
async fn a_hundred_sessions_at_once_never_carry_each_others_credential() {
    const SESSIONS: usize = 100;
    let (origin, gateway) = scene(Site::default(), |setup| setup).await;
    let url = origin.url(HOST, "/mcp/x");
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        sessions.push(gateway.session(by_credentials(&format!("secret-{number}"))).await);
    }
    gateway.await_metric("exeat_sessions_active", &[], 100.0).await;
    let mut asking = JoinSet::new();
    for (number, session) in sessions.iter().enumerate() {
        let (proxy, url, field) = (gateway.proxy(), url.clone(), basic(session));
        asking.spawn(async move {
            let mut conn = RawConn::open(proxy).await;
            for round in 0..5 {
                conn.roundtrip(&get(&format!("{url}?{number}-{round}"), &field)).await.assert_ok("GET /mcp/x");
            }
        });
    }
    asking.join_all().await;
    let requests = origin.await_requests(SESSIONS * 5).await;
    let mut of_connection = vec![None; origin.connections()];
    for request in &requests {
        let number = request.query().split('-').next().unwrap();
        assert_eq!(request.values("authorization"), [format!("Bearer secret-{number}")]);
        assert!(!request.has("proxy-authorization"));
        // A connection serves one session and no other.
        let owner = of_connection[request.connection].get_or_insert_with(|| number.to_owned());
        assert_eq!(owner, number, "one connection for two sessions");
    }
    // Another would be one too many.
    let refused = gateway.admin_ask("POST", "/v1/sessions", Some(&by_credentials("x"))).await;
    assert_eq!(refused.status, 429, "{}", refused.text());
    for session in &sessions {
        end(&gateway, session).await;
    }
    gateway.await_metric("exeat_sessions_active", &[], 0.0).await;
}

#[tokio::test]
async fn one_connection_may_carry_the_requests_of_two_sessions_and_keeps_them_apart() {
    let ca = TestCa::new();
    let origin = Origin::h2(Site::default(), &ca.leaf(&[HOST])).await;
    let url = origin.url(HOST, "/mcp");
    let setup = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[HOST]);
    let setup = setup.mcp_server("docs", &url, &[("Authorization", "${DOCS}")]).server_keys("actsAs = \"user\"");
    let gateway = setup.start().await;
    let [ann, bob] = [gateway.session(by_credentials("ann")).await, gateway.session(by_credentials("bob")).await];
    let mut conn = gateway.open().await;
    for (session, secret) in [(&ann, "ann"), (&bob, "bob"), (&ann, "ann")] {
        conn.roundtrip(&get(&url, &basic(session))).await.assert_ok("GET /mcp");
        let last = origin.requests().pop().unwrap();
        assert_eq!(last.values("authorization"), [format!("Bearer {secret}")]);
    }
    assert_eq!(origin.connections(), 2, "a shared connection of HTTP/2 is shared within one session");
    // Who is in no session has no user's credential, and the session's is no fall-back.
    conn.roundtrip(&get(&url, "")).await.assert_refused(403, "credential_unbound");
    assert_eq!(origin.requests().len(), 3);
}

#[tokio::test]
async fn a_session_of_mcp_is_good_for_the_session_that_opened_it() {
    let reply = Reply::json(&json!({ "jsonrpc": "2.0", "id": 1, "result": {} })).header("Mcp-Session-Id", "upstream-1");
    let (origin, gateway) = scene(Site::default().at("/mcp", reply), |setup| setup).await;
    let [ann, bob] = [gateway.session(by_credentials("ann")).await, gateway.session(by_credentials("bob")).await];
    let own =
        gateway.session(json!({ "identity": { "mcp": "127.0.0.1:0" }, "bindings": { "DOCS": { "value": "own" } } }));
    let own = own.await;
    let shared = gateway.endpoint("docs").to_owned();
    assert_eq!(text(&ann["addresses"]["mcp"]["docs"]), shared);
    let post = async |endpoint: &str, field: &str, id: &str| {
        let rest = endpoint.strip_prefix("http://").unwrap();
        let (host, path) = rest.split_once('/').unwrap();
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let id = if id.is_empty() { String::new() } else { format!("Mcp-Session-Id: {id}\r\n") };
        let field = if field.is_empty() { String::new() } else { format!("{field}\r\n") };
        let mut conn = RawConn::open(host.parse().unwrap()).await;
        let head = format!("POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{field}{id}");
        conn.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).await;
        conn.response_to("POST").await
    };
    let opened = post(&shared, &basic(&ann), "").await;
    let id = opened.value("mcp-session-id").unwrap();
    assert!(id.starts_with("upstream-1."), "{id}");
    post(&shared, &basic(&ann), &id).await.assert_ok("result");
    post(&shared, &basic(&bob), &id).await.assert_refused(404, "mcp_session");
    post(text(&own["addresses"]["mcp"]["docs"]), "", &id).await.assert_refused(404, "mcp_session");
    let own_id = post(text(&own["addresses"]["mcp"]["docs"]), "", "").await.value("mcp-session-id").unwrap();
    post(text(&own["addresses"]["mcp"]["docs"]), "", &own_id).await.assert_ok("result");
    post(&shared, &basic(&ann), &own_id).await.assert_refused(404, "mcp_session");
    // Not even for the next session of the same name.
    let named = |secret: &str| {
        let mut session = by_credentials(secret);
        session["name"] = "again".into();
        session
    };
    let first = gateway.session(named("one")).await;
    let id = post(&shared, &basic(&first), "").await.value("mcp-session-id").unwrap();
    end(&gateway, &first).await;
    let second = gateway.session(named("two")).await;
    post(&shared, &basic(&second), &id).await.assert_refused(404, "mcp_session");
    let carried: Vec<_> = origin.requests().iter().flat_map(|request| request.values("authorization")).collect();
    assert_eq!(carried, ["Bearer ann", "Bearer ann", "own", "own", "Bearer one"]);
}

#[tokio::test]
async fn a_secret_is_in_the_answer_to_its_creator_and_nowhere_else() {
    const SECRET: &str = "canary-of-a-session";
    let (origin, gateway) = scene(Site::default(), |setup| setup).await;
    let session = gateway.session(by_credentials(SECRET)).await;
    assert!(!session.to_string().contains(SECRET), "{session}");
    ask(&gateway, &origin.url(HOST, "/mcp"), &basic(&session)).await.assert_ok("GET");
    let own = [text(&session["credentials"]["password"]), text(&session["credentials"]["token"])];
    let mut told = String::new();
    let path = format!("/v1/sessions/{}", text(&session["id"]));
    for path in ["/v1/sessions", &path, "/metrics", "/v1/evidence", "/v1/reload", "/readyz"] {
        told += &gateway.admin_get(path).await.text();
    }
    let mut broken = by_credentials(SECRET);
    broken["bindings"]["DOCS"]["value"] = json!(format!("{SECRET}\n"));
    broken["bindings"]["OTHER"] = json!(SECRET);
    let refused = gateway.admin_ask("POST", "/v1/sessions", Some(&broken)).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert_eq!(refused.json()["diagnostics"].as_array().unwrap().len(), 2, "{}", refused.text());
    told += &refused.text();
    end(&gateway, &session).await;
    told += &gateway.lines().join("\n");
    for secret in [SECRET, own[0], own[1]] {
        assert!(!told.contains(secret), "{secret}: {told}");
    }
    assert!(told.contains(text(&session["id"])), "the session itself is told of");
}

#[tokio::test]
async fn what_comes_from_sessions_adds_no_series() {
    let (origin, gateway) = scene(Site::default(), |setup| setup).await;
    let session = async |number: usize| {
        let url = origin.url(OTHER, &format!("/own-{number}"));
        let manifest = format!(
            "name = \"s{number}\"\n[mcpServers.own-{number}]\nurl = \"{url}\"\nheaders = {{ Authorization = \"${{T{number}}}\" }}\n"
        );
        let session = json!({
            "identity": { "credentials": true },
            "manifests": [manifest],
            "bindings": { format!("T{number}"): { "value": format!("t-{number}") } },
        });
        let session = gateway.session(session).await;
        ask(&gateway, &url, &basic(&session)).await.assert_ok("GET");
        assert_eq!(origin.requests().pop().unwrap().values("authorization"), [format!("t-{number}")]);
        session
    };
    session(0).await;
    let before = gateway.metrics().await.len();
    for number in 1..5 {
        session(number).await;
    }
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.len(), before);
    let labels = [("server", "(session)"), ("outcome", "injected")];
    assert_eq!(metrics.sum("exeat_injections_total", &labels), 5.0);
}

// --- By what clients are known ----------------------------------------------------------------------------------------------

#[tokio::test]
async fn credentials_lead_to_their_session_over_every_protocol_and_wrong_ones_nowhere() {
    let ca = TestCa::new();
    let origin = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let url = origin.url(HOST, "/mcp");
    let setup = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[HOST]);
    let setup = setup.mcp_server("docs", &url, &[("Authorization", "${DOCS}")]).server_keys("actsAs = \"user\"");
    let gateway = setup.start().await;
    // As long as there is no session, nobody needs to show anything, but for who claims to be in one.
    let ended = format!("Proxy-Authorization: Basic {}", BASE64.encode("session-0123:x"));
    ask(&gateway, &url, &ended).await.assert_refused(407, "proxy_auth");
    ask(&gateway, &url, "Proxy-Authorization: Bearer exeat-session-x").await.assert_refused(407, "proxy_auth");
    ask(&gateway, &url, "Proxy-Authorization: Basic eDp5").await.assert_refused(403, "credential_unbound");
    let session = gateway.session(by_credentials("ann")).await;
    let (user, password) = (text(&session["credentials"]["user"]), text(&session["credentials"]["password"]));
    let token = format!("Proxy-Authorization: Bearer {}", text(&session["credentials"]["token"]));
    ask(&gateway, &url, &token).await.assert_ok("GET /mcp");
    let pair = format!("{user}:{password}");
    for args in [
        &["--proxy-user", &pair][..],
        &["-x", &format!("http://{pair}@{}", gateway.proxy())],
        &["-x", &format!("socks5h://{pair}@{}", gateway.proxy())],
        &["-x", text(&session["environment"]["HTTPS_PROXY"])],
    ] {
        let output = curl(&gateway, &[args, &[&url]].concat()).run().await;
        assert_eq!(output.success(), "GET /mcp\n\n200", "{args:?}");
    }
    assert!(origin.requests().iter().all(|request| request.values("authorization") == ["Bearer ann"]));
    assert_eq!(origin.requests().len(), 5);
    // Unknown ones are refused, also where none are needed.
    for field in ["Basic eDp5", "Bearer x", "Nonsense"] {
        let refused = ask(&gateway, &url, &format!("Proxy-Authorization: {field}")).await;
        refused.assert_refused(407, "proxy_auth");
        assert_eq!(refused.head.values("proxy-authenticate").len(), 2);
    }
    let mut socks = gateway.open().await;
    assert_eq!(socks.socks_greet(&[NO_AUTH, PASSWORD]).await, PASSWORD);
    assert_eq!(socks.socks_login(user, "wrong").await, 1);
    // Who shows none is in the gateway's own session.
    ask(&gateway, &url, "").await.assert_refused(403, "credential_unbound");
    let mut socks = gateway.open().await;
    assert_eq!(socks.socks_greet(&[NO_AUTH]).await, NO_AUTH);
}

#[tokio::test]
async fn where_the_gateway_itself_asks_for_credentials_those_of_sessions_do_too() {
    let (origin, gateway) = scene(Site::default(), |setup| setup.user("alice", "wonderland").bind("DOCS", "x")).await;
    let url = origin.url(HOST, "/else");
    ask(&gateway, &url, "").await.assert_refused(407, "proxy_auth");
    let session = gateway.session(by_credentials("ann")).await;
    ask(&gateway, &url, "").await.assert_refused(407, "proxy_auth");
    ask(&gateway, &url, &basic(&session)).await.assert_ok("GET /else");
    let alice = format!("Proxy-Authorization: Basic {}", BASE64.encode("alice:wonderland"));
    ask(&gateway, &url, &alice).await.assert_ok("GET /else");
    end(&gateway, &session).await;
    ask(&gateway, &url, &basic(&session)).await.assert_refused(407, "proxy_auth");
}

#[tokio::test]
async fn a_listener_of_its_own_needs_nothing_of_its_clients() {
    let (origin, gateway) = scene(Site::default(), |setup| setup.user("alice", "wonderland")).await;
    let url = origin.url(HOST, "/mcp");
    let mut session = by_credentials("own");
    session["identity"] = json!({ "listen": "127.0.0.1:0" });
    let session = gateway.session(session).await;
    assert_eq!(session["credentials"], Value::Null);
    let proxy = text(&session["addresses"]["proxy"]);
    assert_eq!(text(&session["environment"]["HTTPS_PROXY"]), proxy);
    // Whatever a client shows there, it is in that session.
    for args in [&["-x", proxy][..], &["-x", &proxy.replace("http", "socks5h")], &["-x", proxy, "-U", "x:y"]] {
        let output = curl(&gateway, &[args, &[&url]].concat()).run().await;
        assert_eq!(output.success(), "GET /mcp\n\n200", "{args:?}");
    }
    assert!(origin.requests().iter().all(|request| request.values("authorization") == ["Bearer own"]));
    // Nothing goes back into it through a gateway.
    let own = format!("http://{}/", address(&session["addresses"]["proxy"]));
    let mut through = RawConn::open(address(&session["addresses"]["proxy"])).await;
    through.roundtrip(&get(&own, "")).await.assert_refused(403, "not_allowed");
    end(&gateway, &session).await;
    let address = address(&session["addresses"]["proxy"]);
    until("the listener to be gone", || async { tokio::net::TcpStream::connect(address).await.is_err().then_some(()) })
        .await;
}

#[tokio::test]
async fn the_listeners_of_sessions_are_the_gateways_own() {
    let (_origin, gateway) = scene(Site::default(), |setup| setup.allow(&["127.0.0.1"])).await;
    let session = gateway.session(json!({ "identity": { "listen": "127.0.0.1:0", "mcp": "127.0.0.1:0" } })).await;
    let listens = [&session["addresses"]["proxy"], &session["addresses"]["mcp"]["docs"]].map(address);
    for address in listens {
        gateway.get(&format!("http://{address}/")).await.assert_refused(403, "guard_self");
        gateway.connect(&address.to_string()).await.1.assert_refused(403, "guard_self");
    }
}

#[tokio::test]
async fn the_user_of_the_shared_unix_socket_and_a_certificate_lead_to_their_sessions() {
    let ca = TestCa::new();
    let site = Site::default();
    let origin = Origin::http(site).await;
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("proxy.sock");
    let setup = Gateway::setup().names(&[HOST]).allow(&[HOST]).listen_tls(&ca.leaf(&["proxy.example.test"]));
    let setup = setup.file("clients.pem", &std::fs::read_to_string(ca.pem_path()).unwrap());
    let setup = setup.set("listen", "client_ca", "\"clients.pem\"").set("listen", "unix", &format!("{path:?}"));
    let setup = setup.mcp_server("docs", &origin.url(HOST, "/mcp"), &[("Authorization", "${DOCS}")]);
    let gateway = setup.server_keys("actsAs = \"user\"").start().await;
    let url = origin.url(HOST, "/mcp");
    let session =
        |secret: &str, identity: Value| json!({ "identity": identity, "bindings": { "DOCS": { "value": secret } } });
    let uid = rustix::process::getuid().as_raw();
    let unix = gateway.session(session("of-the-user", json!({ "unix_uid": uid }))).await;
    let certificate = gateway.session(session("of-ann", json!({ "client_certificate": "ann" }))).await;
    RawConn::open_unix(&path).await.roundtrip(&get(&url, "")).await.assert_ok("GET /mcp");
    for (name, expected) in [("ann", 200), ("bob", 403)] {
        let config = ca.client(name).client_config(ca.roots());
        let mut conn = gateway.open().await.tls_with(config, "proxy.example.test").await.unwrap();
        assert_eq!(conn.roundtrip(&get(&url, "")).await.status, expected, "{name}");
    }
    let carried: Vec<_> = origin.requests().iter().flat_map(|request| request.values("authorization")).collect();
    assert_eq!(carried, ["of-the-user", "of-ann"]);
    // What is one session's already cannot be another's.
    for identity in [json!({ "unix_uid": uid }), json!({ "client_certificate": "ann" })] {
        let refused = gateway.admin_ask("POST", "/v1/sessions", Some(&session("x", identity))).await;
        assert_eq!(refused.status, 409, "{}", refused.text());
    }
    end(&gateway, &unix).await;
    end(&gateway, &certificate).await;
    RawConn::open_unix(&path).await.roundtrip(&get(&url, "")).await.assert_refused(403, "credential_unbound");
}

// --- Their policy -----------------------------------------------------------------------------------------------------------

fn narrowed(rules: &str) -> Value {
    json!({ "identity": { "listen": "127.0.0.1:0" }, "manifests": [format!("name = \"s\"\nnetwork_access = {rules}\n")] })
}

#[tokio::test]
async fn a_session_narrows_and_never_widens() {
    let (origin, gateway) = scene(Site::default(), |setup| setup.block(&["http://other.example.test/admin/"])).await;
    let wide = gateway.session(narrowed("{ allowed = [\"*.example.test\", \"outside.test\"] }")).await;
    let narrow = gateway.session(narrowed("{ allowed = [\"other.example.test\"] }")).await;
    let port = origin.authority(OTHER).rsplit_once(':').unwrap().1.to_owned();
    for (session, host, path, expected) in [
        (&wide, OTHER, "/x", Ok(())),
        (&wide, HOST, "/x", Ok(())),
        (&wide, "outside.test", "/x", Err("not_allowed")),
        (&wide, "third.example.test", "/x", Err("not_allowed")),
        (&narrow, OTHER, "/x", Ok(())),
        (&narrow, HOST, "/x", Err("not_allowed")),
    ] {
        let mut conn = RawConn::open(address(&session["addresses"]["proxy"])).await;
        let response = conn.roundtrip(&get(&format!("http://{host}:{port}{path}"), "")).await;
        match expected {
            Ok(()) => response.assert_ok("GET /x"),
            Err(reason) => drop(response.assert_refused(403, reason)),
        }
    }
    let mut conn = RawConn::open(address(&narrow["addresses"]["proxy"])).await;
    let problem = conn.roundtrip(&get(&origin.url(HOST, "/x"), "")).await.assert_refused(403, "not_allowed");
    assert_eq!(problem["layer"], "session");
    assert_eq!(problem["policy"]["digest"], narrow["policy"]["digest"]);
    assert_ne!(narrow["policy"]["digest"], wide["policy"]["digest"]);
}

#[tokio::test]
async fn a_server_that_a_session_declares_gets_the_gateways_binding_only_where_it_was_lent() {
    let (origin, gateway) = scene(Site::default(), |setup| setup.bind("SERVICE", "of-the-gateway")).await;
    let url = origin.url(OTHER, "/own");
    let manifest =
        format!("name = \"s\"\n[mcpServers.own]\nurl = \"{url}\"\nheaders = {{ Authorization = \"${{SERVICE}}\" }}\n");
    let mut session = json!({ "identity": { "credentials": true }, "manifests": [manifest] });
    let without = gateway.session(session.clone()).await;
    ask(&gateway, &url, &basic(&without)).await.assert_refused(403, "credential_unbound");
    session["bindings"] = json!({ "SERVICE": { "value": "its-own" } });
    let own = gateway.session(session.clone()).await;
    ask(&gateway, &url, &basic(&own)).await.assert_ok("GET");
    // To lend it takes trust that a port on loopback does not show.
    session["bindings"] = json!({});
    session["gateway_bindings"] = json!(["SERVICE"]);
    let refused = gateway.admin_ask("POST", "/v1/sessions", Some(&session)).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    let carried: Vec<_> = origin.requests().iter().flat_map(|request| request.values("authorization")).collect();
    assert_eq!(carried, ["its-own"]);
}

#[tokio::test]
async fn a_reload_builds_every_session_anew_or_none() {
    let echo = Echo::tcp().await;
    let (origin, gateway) = scene(Site::default(), |setup| setup).await;
    let catalog = "[catalog.linear]\nurl = \"http://mcp.example.test/linear\"\n";
    let config = std::fs::read_to_string(gateway.dir().join("exeat.toml")).unwrap();
    gateway.write("exeat.toml", &format!("{config}\n{catalog}"));
    gateway.reload().await;
    let manifest = "name = \"s\"\n[mcpServers.linear]\nuse = \"catalog:linear\"\n";
    let session = json!({ "name": "needs-linear", "identity": { "listen": "127.0.0.1:0" }, "manifests": [manifest] });
    let session = gateway.session(session).await;
    let mut tunnel = RawConn::open(address(&session["addresses"]["proxy"])).await;
    assert_eq!(tunnel.connect(&echo.authority(OTHER)).await.status, 200);
    tunnel.exchange(b"one").await;
    // Without the entry the session could not go on, so nothing changes.
    let agent = std::fs::read_to_string(gateway.dir().join("agent.toml")).unwrap();
    gateway.write("exeat.toml", &config);
    gateway.write("agent.toml", &agent.replace(OTHER, "nothing.example.test"));
    let refused = gateway.admin_ask("POST", "/v1/reload", None).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.text().contains("needs-linear"), "{}", refused.text());
    tunnel.exchange(b"two").await;
    gateway.get(&origin.url(OTHER, "/x")).await.assert_ok("GET /x");
    // With it, what the gateway narrows is narrowed for the session.
    gateway.write("exeat.toml", &format!("{config}\n{catalog}"));
    let reloaded = gateway.admin_ask("POST", "/v1/reload", None).await;
    assert_eq!((reloaded.status, &reloaded.json()["sessions"]), (200, &1.into()), "{}", reloaded.text());
    assert!(tunnel.to_end().await.is_empty());
    closed(&gateway, "policy_changed", 1.0).await;
    let mut conn = RawConn::open(address(&session["addresses"]["proxy"])).await;
    conn.roundtrip(&get(&origin.url(OTHER, "/x"), "")).await.assert_refused(403, "not_allowed");
    conn.roundtrip(&get(&origin.url(HOST, "/x"), "")).await.assert_ok("GET /x");
}

// --- What they may use up ---------------------------------------------------------------------------------------------------

async fn limited(gateway: &Gateway, limits: Value) -> Value {
    gateway.session(json!({ "identity": { "credentials": true }, "limits": limits })).await
}

#[tokio::test]
async fn requests_are_used_up_by_the_session_and_not_by_others() {
    let (origin, gateway) = scene(Site::default(), |setup| setup).await;
    let url = origin.url(OTHER, "/x");
    let session = limited(&gateway, json!({ "requests": 2 })).await;
    let other = limited(&gateway, json!({})).await;
    ask(&gateway, &url, &basic(&session)).await.assert_ok("GET");
    // One that is refused is a request too.
    ask(&gateway, "http://outside.test/", &basic(&session)).await.assert_refused(403, "not_allowed");
    for _ in 0..2 {
        ask(&gateway, &url, &basic(&session)).await.assert_refused(429, "session_quota");
    }
    let mut conn = gateway.open().await;
    let head = format!("CONNECT {} HTTP/1.1\r\nHost: x\r\n{}", origin.authority(OTHER), basic(&session));
    conn.roundtrip(&head).await.assert_refused(429, "session_quota");
    ask(&gateway, &url, &basic(&other)).await.assert_ok("GET");
    gateway.get(&url).await.assert_ok("GET");
    gateway.await_metric("exeat_session_limits_total", &[("limit", "requests")], 3.0).await;
    let shown = gateway.admin_get(&format!("/v1/sessions/{}", text(&session["id"]))).await.json();
    assert_eq!((&shown["used"]["requests"], &shown["limits"]["requests"]), (&2.into(), &2.into()), "{shown:#}");
    assert_eq!(origin.requests().len(), 3);
}

#[tokio::test]
async fn who_is_too_fast_is_told_when_to_come_back() {
    let (origin, gateway) = scene(Site::default(), |setup| setup).await;
    let session = limited(&gateway, json!({ "rate": 1 })).await;
    let mut conn = gateway.open().await;
    let head = get(&origin.url(OTHER, "/x"), &basic(&session));
    let mut last = conn.roundtrip(&head).await;
    last.assert_ok("GET");
    // One of the next is sooner than in a second.
    for _ in 0..1000 {
        last = conn.roundtrip(&head).await;
        if last.status == 429 {
            break;
        }
    }
    last.assert_refused(429, "session_rate");
    assert_eq!(last.value("retry-after").as_deref(), Some("1"));
    until("the next request to be let through", || {
        let (gateway, head) = (&gateway, &head);
        async move { (gateway.open().await.roundtrip(head).await.status == 200).then_some(()) }
    })
    .await;
}

#[tokio::test]
async fn bytes_that_are_used_up_end_bodies_and_tunnels() {
    let echo = Echo::tcp().await;
    let large = "x".repeat(100_000);
    let site = Site::default().at("/large", Reply::text(&large)).at("/echo", Reply::echo());
    let (origin, gateway) = scene(site, |setup| setup).await;
    // A download.
    let session = limited(&gateway, json!({ "bytes": 150_000 })).await;
    ask(&gateway, &origin.url(OTHER, "/large"), &basic(&session)).await.assert_ok(&large);
    let mut conn = gateway.open().await;
    conn.send(format!("{}\r\n\r\n", get(&origin.url(OTHER, "/large"), &basic(&session)))).await;
    let opened = conn.opened("GET").await;
    assert!(conn.rest(opened).await.is_err(), "the body is cut short, and looks it");
    ask(&gateway, &origin.url(OTHER, "/large"), &basic(&session)).await.assert_refused(429, "session_quota");
    // An upload.
    let session = limited(&gateway, json!({ "bytes": 1000 })).await;
    let mut conn = gateway.open().await;
    let (url, field) = (origin.url(OTHER, "/echo"), basic(&session));
    conn.send(format!("POST {url} HTTP/1.1\r\nHost: x\r\n{field}\r\nContent-Length: 2000\r\n\r\n{}", "y".repeat(2000)))
        .await;
    conn.response_to("POST").await.assert_refused(429, "session_quota");
    // A tunnel.
    let session = limited(&gateway, json!({ "bytes": 1000 })).await;
    let mut conn = gateway.open().await;
    let head = format!("CONNECT {} HTTP/1.1\r\nHost: x\r\n{}", echo.authority(OTHER), basic(&session));
    assert_eq!(conn.roundtrip(&head).await.status, 200);
    conn.exchange(&[7; 400]).await;
    conn.send([7; 400]).await;
    assert!(conn.to_end().await.len() <= 400);
    closed(&gateway, "session_quota", 1.0).await;
    gateway.await_metric("exeat_session_limits_total", &[("limit", "bytes")], 3.0 + 1.0).await;
}

#[tokio::test]
async fn a_session_holds_as_many_tunnels_as_it_may() {
    let echo = Echo::tcp().await;
    let (_origin, gateway) = scene(Site::default(), |setup| setup).await;
    let session = limited(&gateway, json!({ "tunnels": 1 })).await;
    let head = format!("CONNECT {} HTTP/1.1\r\nHost: x\r\n{}", echo.authority(OTHER), basic(&session));
    let mut first = gateway.open().await;
    assert_eq!(first.roundtrip(&head).await.status, 200);
    gateway.open().await.roundtrip(&head).await.assert_refused(429, "session_quota");
    drop(first);
    until("a place to be free again", || {
        let (gateway, head) = (&gateway, &head);
        async move { (gateway.open().await.roundtrip(head).await.status == 200).then_some(()) }
    })
    .await;
}

// --- How they end -----------------------------------------------------------------------------------------------------------

/// One of each kind of what can be under way in a session that is known by credentials.
struct UnderWay {
    blind: RawConn,
    socks: RawConn,
    inspected: RawConn,
    upgraded: RawConn,
    streaming: (RawConn, exeat_tests::origin::EventSource),
}

impl UnderWay {
    async fn begin(
        gateway: &Gateway,
        [plain, tls]: [&Origin; 2],
        echo: &Echo,
        events: exeat_tests::origin::EventSource,
        session: &Value,
    ) -> Self {
        let field = basic(session);
        let tunnel = async |authority: String| {
            let mut conn = gateway.open().await;
            let head = format!("CONNECT {authority} HTTP/1.1\r\nHost: x\r\n{field}");
            assert_eq!(conn.roundtrip(&head).await.status, 200);
            conn
        };
        let mut blind = tunnel(echo.authority(OTHER)).await;
        blind.exchange(b"one").await;
        let mut socks = gateway.open().await;
        assert_eq!(socks.socks_greet(&[PASSWORD]).await, PASSWORD);
        let credentials = &session["credentials"];
        assert_eq!(socks.socks_login(text(&credentials["user"]), text(&credentials["password"])).await, 0);
        assert_eq!(socks.socks_connect(&echo.authority(OTHER)).await, 0);
        socks.exchange(b"one").await;
        let inspected = tunnel(tls.authority(HOST)).await;
        let mut inspected = inspected.tls(gateway.roots(), HOST, &[]).await.unwrap();
        inspected.get("/v1/x", HOST).await.assert_ok("GET /v1/x");
        let mut upgraded = gateway.open().await;
        let handshake = exeat_tests::ws::handshake(&plain.url(HOST, "/v1/ws"), HOST);
        upgraded.send(handshake.replacen("\r\n", &format!("\r\n{field}\r\n"), 1)).await;
        assert_eq!(upgraded.response().await.status, 101);
        let mut streaming = gateway.open().await;
        streaming.send(format!("{}\r\n\r\n", get(&plain.url(HOST, "/v1/events"), &field))).await;
        let mut opened = streaming.opened("GET").await;
        events.send("one").await;
        assert!(streaming.piece(&mut opened).await.is_some());
        Self { blind, socks, inspected, upgraded, streaming: (streaming, events) }
    }

    /// Everything has ended.
    async fn over(self) {
        let Self { blind, socks, inspected, upgraded, streaming: (streaming, events) } = self;
        for mut conn in [blind, socks, inspected, upgraded, streaming] {
            assert!(conn.to_end().await.is_empty());
        }
        events.abandoned().await;
    }
}

async fn under_way(ttl: &str) -> (Gateway, [Origin; 2], Value, UnderWay, RawConn) {
    let ca = TestCa::new();
    let (events, source) = Reply::events();
    let plain = Origin::http(Site::default().at("/v1/ws", Reply::websocket()).at("/v1/events", events)).await;
    let tls = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
    let echo = Echo::tcp().await;
    let rules = [plain.url(HOST, "/v1/"), tls.url(HOST, "/v1/"), OTHER.to_owned()];
    let gateway = Gateway::setup().names(&[HOST, OTHER]).trust(&ca).allow(&rules).start().await;
    let mut session = by_credentials("ann");
    session["ttl"] = ttl.into();
    // Whoever is in no session is not concerned.
    let mut others = gateway.tunnel(&echo.authority(OTHER)).await;
    others.exchange(b"one").await;
    let session = gateway.session(session).await;
    let under_way = UnderWay::begin(&gateway, [&plain, &tls], &echo, source, &session).await;
    (gateway, [plain, tls], session, under_way, others)
}

#[tokio::test]
async fn a_session_that_is_ended_takes_everything_with_it_and_nothing_else() {
    let (gateway, [plain, _tls], session, under_way, mut others) = under_way("10m").await;
    end(&gateway, &session).await;
    under_way.over().await;
    closed(&gateway, "revoked", 4.0).await;
    gateway.await_metric("exeat_sessions_ended_total", &[("cause", "revoked")], 1.0).await;
    gateway.await_metric("exeat_sessions_active", &[], 0.0).await;
    ask(&gateway, &plain.url(HOST, "/v1/x"), &basic(&session)).await.assert_refused(407, "proxy_auth");
    others.exchange(b"two").await;
    let path = format!("/v1/sessions/{}", text(&session["id"]));
    assert_eq!(gateway.admin_get(&path).await.status, 404);
    assert_eq!(gateway.admin_ask("DELETE", &path, None).await.status, 404);
    gateway.await_metric("exeat_tunnels_active", &[], 1.0).await;
}

#[tokio::test]
async fn a_session_whose_time_is_over_ends_by_itself() {
    let (gateway, [plain, _tls], session, under_way, mut others) = under_way("5s").await;
    under_way.over().await;
    gateway.await_metric("exeat_sessions_ended_total", &[("cause", "expired")], 1.0).await;
    ask(&gateway, &plain.url(HOST, "/v1/x"), &basic(&session)).await.assert_refused(407, "proxy_auth");
    others.exchange(b"two").await;
}

// --- What may be asked for --------------------------------------------------------------------------------------------------

#[tokio::test]
async fn what_cannot_be_is_refused_and_leaves_nothing() {
    let (_origin, gateway) = scene(Site::default(), |setup| setup.set("sessions", "max_ttl", "\"1h\"")).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let mut named = by_credentials("x");
    named["name"] = "one".into();
    gateway.session(named.clone()).await;
    let with = |key: &str, value: Value| {
        let mut session = by_credentials("x");
        session[key] = value;
        session
    };
    for (session, status) in [
        (named, 409),
        (json!({}), 422),
        (json!([]), 422),
        (with("ttl", "2h".into()), 422),
        (with("ttl", "soon".into()), 422),
        (with("limit", json!({})), 422),
        (with("manifests", json!(["name = \"s\"\nnetwork_access.allowed = [\"a b\"]"])), 422),
        (with("manifests", json!(["name = \"s\"\n[mcpServers.x]\nuse = \"catalog:none\""])), 422),
        (with("gateway_bindings", json!(["NONE"])), 403),
        (with("bindings", json!({ "A": { "file": "/etc/hostname" } })), 403),
        (with("bindings", json!({ "A": { "command": ["id"] } })), 403),
        (with("identity", json!({ "listen": "0.0.0.0:0" })), 403),
        (with("identity", json!({ "unix": "/tmp/exeat-none.sock" })), 403),
        (with("identity", json!({ "listen": taken })), 409),
        (with("identity", json!({ "client_certificate": "ann" })), 422),
        (with("identity", json!({ "unix_uid": 0 })), 422),
    ] {
        let refused = gateway.admin_ask("POST", "/v1/sessions", Some(&session)).await;
        assert_eq!(refused.status, status, "{session} {}", refused.text());
        assert_eq!(refused.value("content-type").as_deref(), Some("application/problem+json"));
    }
    assert!(!Path::new("/tmp/exeat-none.sock").exists());
    let all = gateway.admin_get("/v1/sessions").await.json();
    assert_eq!(all["sessions"].as_array().unwrap().len(), 1, "{all:#}");
    gateway.await_metric("exeat_sessions_active", &[], 1.0).await;
    let mut conn = RawConn::open(gateway.admin()).await;
    let head = format!(
        "POST /v1/sessions HTTP/1.1\r\nHost: {}\r\nContent-Type: text/plain\r\nContent-Length: 2",
        gateway.admin()
    );
    conn.send(format!("{head}\r\n\r\n{{}}")).await;
    assert_eq!(conn.response_to("POST").await.status, 415);
}
