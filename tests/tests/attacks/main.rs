//! Requests that broke systems of this kind: the table in `data/attacks.toml`, through every entry point that can carry
//! them, and the attacks of hostile upstreams, which no table of requests holds.
//!
//! An entry point is a driver: it says a case to the gateway in its own way and gives back the refusal, if there was
//! one. What is asserted of it is the same for all: verdict, reason and status, that nothing refused was resolved or
//! dialled, and what upstream saw.

mod http2;

use std::collections::HashMap;
use std::fmt::Write as _;

use exeat_tests::gateway::exeat;
use exeat_tests::prelude::*;
use exeat_tests::wait::until;
use serde_json::{Value, json};

const CASES: &str = include_str!("../../data/attacks.toml");
const NAMES: [&str; 9] = [
    "api.example.test",
    "in.example.test",
    "bound.example.test",
    "wild.test",
    "blocked.wild.test",
    "a.blocked.wild.test",
    "self.wild.test",
    "outside.test",
    "evil.test",
];
const SECRETS: [(&str, &str); 2] = [("BOUND_AUTHORIZATION", "Bearer canary-5ecret"), ("BOUND_KEY", "canary-k3y")];

/// A gateway with origins and a name server.
struct Scene {
    gateway: Gateway,
    plain: Origin,
    tls: Origin,
    dns: Dns,
}

impl Scene {
    async fn start(name: &str) -> Self {
        let ca = TestCa::new();
        let plain = Origin::http(Site::default()).await;
        let tls = Origin::https(Site::default(), &ca.leaf(&NAMES)).await;
        let dns = Dns::start().await;
        for name in NAMES {
            dns.set(name, Answer::addresses(&["127.0.0.1"]));
        }
        dns.set("metadata.google.internal", Answer::addresses(&["127.0.0.1"]));
        dns.set("loopback.names.test", Answer::addresses(&["127.0.0.1"]));
        dns.set("mixed.names.test", Answer::addresses(&["93.184.216.34", "127.0.0.1"]));
        dns.set("alias.names.test", Answer::Alias("metadata.google.internal".to_owned()));
        let setup = Gateway::setup().trust(&ca).set("dns", "servers", &format!("[{:?}]", dns.addr().to_string()));
        let setup = match name {
            "open" => setup.unrestricted().set("guard", "allow", "[]"),
            "rules" => {
                let acme = tls.url("in.example.test", "/acme");
                let (mcp, secret) = (tls.url("bound.example.test", "/mcp"), tls.url("in.example.test", "/acme/secret"));
                let headers = [("Authorization", "${BOUND_AUTHORIZATION}"), ("X-Api-Key", "${BOUND_KEY}")];
                let setup = SECRETS.iter().fold(setup, |setup, (name, secret)| setup.bind(name, secret));
                setup
                    .set("guard", "allow", r#"["127.0.0.0/8"]"#)
                    .allow(&["api.example.test", "*.wild.test", "127.0.0.1", "0.0.0.0", "bound.example.test", &acme])
                    .block(&["blocked.wild.test", &secret])
                    .mcp_server("bound", &mcp, &headers)
                    .inject(&tls.url("bound.example.test", "/api"), &headers)
            }
            other => panic!("no scene {other}"),
        };
        Self { gateway: setup.start().await, plain, tls, dns }
    }

    fn connections(&self) -> usize {
        self.plain.connections() + self.tls.connections()
    }

    /// Puts in the ports.
    fn fill(&self, text: &str) -> String {
        let ports = [
            ("{tls}", self.tls.port()),
            ("{plain}", self.plain.port()),
            ("{proxy}", self.gateway.proxy().port()),
            ("{admin}", self.gateway.admin().port()),
        ];
        ports.iter().fold(text.to_owned(), |text, (name, port)| text.replace(name, &port.to_string()))
    }
}

/// One entry of the table, with the ports put in.
struct Case {
    values: Value,
}

impl Case {
    fn new(scene: &Scene, values: &Value) -> Self {
        Self { values: serde_json::from_str(&scene.fill(&values.to_string())).unwrap() }
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(|value| value.as_str().unwrap_or_else(|| panic!("{key} is text")))
    }

    fn is(&self, key: &str) -> bool {
        self.values[key].as_bool().unwrap_or(false)
    }

    fn host(&self) -> &str {
        self.text("host").unwrap_or("in.example.test")
    }

    fn method(&self) -> &str {
        self.text("method").unwrap_or("GET")
    }

    /// The whole request for `target`.
    fn message(&self, target: &str, host: &str) -> String {
        if let Some(raw) = self.text("raw") {
            return raw.replace("{target}", target);
        }
        let [host_field, fields, body] = ["host_field", "fields", "body"].map(|key| self.text(key).unwrap_or_default());
        let host = if host_field.is_empty() { host } else { host_field };
        let number = |key: &str| usize::try_from(self.values[key].as_u64().unwrap_or(0)).unwrap();
        let mut more: String = (0..number("flood")).map(|number| format!("X-{number}: 1\r\n")).collect();
        if number("giant") > 0 {
            writeln!(more, "X-Giant: {}\r", "x".repeat(number("giant"))).unwrap();
        }
        format!("{} {target} HTTP/1.1\r\nHost: {host}\r\n{fields}{more}\r\n{body}", self.method())
    }

    /// The URL that it asks for.
    fn url(&self, scene: &Scene) -> String {
        match (self.text("url"), self.text("authority")) {
            (Some(url), _) => url.to_owned(),
            (None, Some(authority)) => format!("http://{authority}/"),
            (None, None) => scene.tls.url(self.host(), self.text("path").unwrap_or("/")),
        }
    }

    /// The authority that it asks for a tunnel to.
    fn authority(&self) -> String {
        authority_of(&self.values).expect("a case of this kind names one")
    }
}

/// What a gateway answered: a refusal, or that it lets the request out.
#[derive(Debug, PartialEq)]
enum Answered {
    Refused { status: u64, reason: String },
    Allowed,
}

impl Answered {
    fn from_response(response: &Response) -> Self {
        match response.reason() {
            Some(reason) => Self::Refused { status: response.status.into(), reason },
            None => Self::Allowed,
        }
    }

    fn expected(case: &Case) -> Self {
        match case.text("reason") {
            Some(reason) => {
                Self::Refused { status: case.values["status"].as_u64().unwrap_or(403), reason: reason.to_owned() }
            }
            None => Self::Allowed,
        }
    }
}

/// The authority of a case, where a tunnel to it stands for all that the case asks for.
fn authority_of(case: &Value) -> Option<String> {
    if let Some(authority) = case["authority"].as_str() {
        return Some(authority.to_owned());
    }
    let (scheme, rest) = case["url"].as_str()?.split_once("://")?;
    let host = rest.strip_suffix('/').filter(|host| !host.contains(['/', '\\', '@', '?', '#']))?;
    let port = match scheme {
        "http" | "ws" => ":80",
        "https" | "wss" => ":443",
        _ => return None,
    };
    let end = host.rfind(']').unwrap_or(0);
    Some(if host[end..].contains(':') { host.to_owned() } else { format!("{host}{port}") })
}

/// The cases of an entry point: those that name it, or those of a kind that it carries. What is refused for its host is
/// refused as a URL and as an authority.
fn cases(entry: &str, kinds: &[&str]) -> Vec<Value> {
    let table: Value = toml::from_str(CASES).unwrap();
    let mut cases = table["case"].as_array().unwrap().clone();
    cases.retain(|case| match case["entries"].as_array() {
        Some(entries) => entries.contains(&json!(entry)),
        None => {
            let refused = case.get("reason").is_some();
            let carried = |kind: &&str| match *kind {
                "url" if refused => case.get("url").or(case.get("authority")).is_some(),
                // Characters beyond ASCII are for people; the wire has none.
                "authority" if refused => authority_of(case).is_some_and(|authority| authority.is_ascii()),
                kind => case.get(kind).is_some(),
            };
            kinds.iter().any(carried)
        }
    });
    if entry.starts_with("http2") {
        cases = http2::carried(entry, table["case"].as_array().unwrap());
    }
    if entry == "socks" {
        // The port is a number there, and cannot be written oddly.
        cases.retain(|case| socks_request(&authority_of(case).unwrap()).is_some());
    }
    let least = table["least"][entry].as_u64().unwrap();
    // A dial is noticed a moment after the refusal that it comes with, and is not to be laid at the next case's door.
    cases.sort_by_key(|case| case["dialled"].as_bool().unwrap_or(false));
    println!("{entry}: {} cases", cases.len());
    assert!(cases.len() as u64 >= least, "{entry} carries {} cases, and not {least}", cases.len());
    cases
}

/// Says every case of an entry point, and compares what came of it.
async fn run(entry: &str, kinds: &[&str], say: impl AsyncFn(&Scene, &Case) -> Answered) {
    let cases = cases(entry, kinds);
    let mut scenes = HashMap::new();
    let mut wrong = String::new();
    for values in &cases {
        let name = values["scene"].as_str().unwrap_or("rules").to_owned();
        if !scenes.contains_key(&name) {
            scenes.insert(name.clone(), Scene::start(&name).await);
        }
        let scene = &scenes[&name];
        let case = Case::new(scene, values);
        let (dials, queries) = (scene.connections(), scene.dns.queries().len());
        let requests = (scene.plain.requests().len(), scene.tls.requests().len());
        let answered = say(scene, &case).await;
        let expected = Answered::expected(&case);
        let mut complain = |what: String| writeln!(wrong, "{}: {what}", case.values["id"]).unwrap();
        if answered != expected {
            complain(format!("expected {expected:?}, found {answered:?}"));
        }
        if expected != Answered::Allowed {
            if scene.connections() != dials && !case.is("dialled") {
                complain("upstream was dialled".to_owned());
            }
            if scene.dns.queries().len() != queries && !case.is("dialled") && !case.is("resolves") {
                complain("the name was resolved".to_owned());
            }
            continue;
        }
        // A tunnel by itself shows upstream no request.
        let seen = scene.plain.requests().split_off(requests.0);
        let seen = seen.into_iter().chain(scene.tls.requests().split_off(requests.1)).collect::<Vec<_>>();
        match seen.as_slice() {
            [] if ["connect", "socks", "check"].contains(&entry) || case.text("authority").is_some() => {}
            [request] => compare(&case, request, &mut complain),
            _ => complain(format!("upstream saw {} requests", seen.len())),
        }
    }
    for scene in scenes.values() {
        for (_, secret) in SECRETS {
            let leaks: Vec<_> = scene.gateway.lines().into_iter().filter(|line| line.contains(secret)).collect();
            assert!(leaks.is_empty(), "a secret was logged: {leaks:#?}");
        }
        let panics: Vec<_> = scene.gateway.lines().into_iter().filter(|line| line.contains("panicked")).collect();
        assert!(panics.is_empty(), "{panics:#?}");
    }
    assert!(wrong.is_empty(), "{entry}:\n{wrong}");
}

/// Compares what upstream saw of a request.
fn compare(case: &Case, request: &exeat_tests::origin::Request, complain: &mut impl FnMut(String)) {
    if let Some(target) = case.text("target")
        && request.target != target
    {
        complain(format!("upstream saw the target {}", request.target));
    }
    for (name, values) in case.values["seen"].as_object().into_iter().flatten() {
        let found = json!(request.values(name));
        if found != *values {
            complain(format!("upstream saw {name}: {found}"));
        }
    }
    if let Some(content) = case.text("content")
        && request.body != content.as_bytes()
    {
        complain(format!("upstream saw the content {:?}", String::from_utf8_lossy(&request.body)));
    }
    let trailers = json!(request.trailers);
    if let Some(expected) = case.values.get("trailers")
        && trailers != *expected
    {
        complain(format!("upstream saw the trailers {trailers}"));
    }
}

// --- Entry points -------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn absolute_form() {
    run("absolute", &["url", "path"], async |scene, case| {
        let mut conn = scene.gateway.open().await;
        conn.send(case.message(&case.url(scene), "a.test")).await;
        Answered::from_response(&conn.response_to(case.method()).await)
    })
    .await;
}

#[tokio::test]
async fn connect() {
    run("connect", &["authority"], async |scene, case| {
        let mut conn = scene.gateway.open().await;
        match case.text("raw") {
            Some(raw) => conn.send(raw).await,
            None => conn.send(format!("CONNECT {} HTTP/1.1\r\nHost: x\r\n\r\n", case.authority())).await,
        }
        Answered::from_response(&conn.response_to("CONNECT").await)
    })
    .await;
}

/// A SOCKS5 request for an authority whose port is plain, or one of the placeholders.
fn socks_request(authority: &str) -> Option<Vec<u8>> {
    let (host, port) = authority.rsplit_once(':')?;
    let port = if port.starts_with('{') { 1 } else { port.parse().ok().filter(|_| !port.starts_with(['0', '+']))? };
    // An address goes without its brackets; what only looks like one is a name.
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = bare.filter(|host| host.parse::<std::net::Ipv6Addr>().is_ok()).unwrap_or(host);
    (host.len() < 256).then(|| exeat_tests::client::socks::request(1, host, port))
}

#[tokio::test]
async fn socks5() {
    run("socks", &["authority"], async |scene, case| {
        let mut conn = scene.gateway.open().await;
        let records = decisions(&scene.gateway).len();
        conn.send([&[5, 1, 0], &*socks_request(&case.authority()).unwrap()].concat()).await;
        assert_eq!(conn.exact(2).await, [5, 0]);
        let code = conn.socks_reply().await;
        // A code says little; the record has the reason.
        let reason = until("the decision's record", || {
            let reason = decisions(&scene.gateway).into_iter().nth(records);
            async { reason }
        })
        .await;
        match code {
            0 => Answered::Allowed,
            _ => Answered::Refused { status: case.values["status"].as_u64().unwrap_or(403), reason },
        }
    })
    .await;
}

/// The reasons of all decisions on SOCKS5 requests, in order.
fn decisions(gateway: &Gateway) -> Vec<String> {
    let lines = gateway.lines();
    let records = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let records = records.filter(|record| record["entry"] == "socks5");
    records.map(|record| record["reason"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn inside_an_inspected_tunnel() {
    run("intercept", &["path"], async |scene, case| {
        let authority = scene.tls.authority(case.host());
        inside(scene.gateway.tunnel(&authority).await, case, &authority).await
    })
    .await;
}

#[tokio::test]
async fn inside_an_inspected_tunnel_of_socks5() {
    run("intercept", &["path"], async |scene, case| {
        let authority = scene.tls.authority(case.host());
        inside(scene.gateway.socks_tunnel(&authority).await, case, &authority).await
    })
    .await;
}

async fn inside(tunnel: RawConn, case: &Case, authority: &str) -> Answered {
    let name = case.text("sni").unwrap_or_else(|| case.host());
    let mut conn = tunnel.tls_unchecked(name).await.expect("TLS of the gateway's own");
    conn.send(case.message(case.text("path").unwrap_or("/"), authority)).await;
    Answered::from_response(&conn.response_to(case.method()).await)
}

#[tokio::test]
async fn dry_run() {
    run("check", &["url", "authority", "path"], async |scene, case| {
        let input = case.text("url").or(case.text("authority")).map(str::to_owned);
        let input = input.unwrap_or_else(|| scene.tls.url(case.host(), case.text("path").unwrap()));
        let manifest = if case.text("scene") == Some("open") { "unrestricted.toml" } else { "agent.toml" };
        let args = ["check", "--json", "-c", "exeat.toml", "-m", manifest, "--method", case.method(), "--", &input];
        let output = exeat(&args).dir(scene.gateway.dir()).run().await;
        let lines = output.json_lines();
        let [line] = lines.as_slice() else { panic!("{output:?}") };
        assert_eq!(output.code, Some(i32::from(line["verdict"] == "deny")), "{input}");
        match line["verdict"].as_str() {
            // The dry run has no status, so it takes the expected one.
            Some("deny") => Answered::Refused {
                status: case.values["status"].as_u64().unwrap_or(403),
                reason: line["reason"].as_str().unwrap().to_owned(),
            },
            _ => Answered::Allowed,
        }
    })
    .await;
}

// --- Hostile upstreams --------------------------------------------------------------------------------------------------

/// An origin at `api.example.test`, plain or over TLS in an inspected tunnel, and a connection to ask it on.
async fn hostile(site: Site, tls: bool) -> (Gateway, Origin, RawConn) {
    const HOST: &str = "api.example.test";
    let ca = TestCa::new();
    let origin = if tls { Origin::https(site, &ca.leaf(&[HOST])).await } else { Origin::http(site).await };
    let setup = Gateway::setup().trust(&ca).names(&[HOST]).allow(&[origin.url(HOST, "/")]);
    let setup = setup.inject(&origin.url(HOST, "/bound"), &[("X-Team", "a")]);
    let gateway = setup.start().await;
    let conn = if tls { gateway.intercepted(&origin.authority(HOST)).await } else { gateway.open().await };
    (gateway, origin, conn)
}

async fn ask(conn: &mut RawConn, origin: &Origin, path: &str) -> Response {
    conn.get(&origin.url("api.example.test", path), &origin.authority("api.example.test")).await
}

#[tokio::test]
async fn an_answer_puts_no_other_answer_behind_itself() {
    let smuggled = "abcHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nowned";
    let chunk = format!("{:x}\r\n{smuggled}\r\n0\r\n\r\n", smuggled.len());
    for (fields, body, expected) in [
        ("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", chunk.as_str(), Some(smuggled)),
        ("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", &chunk, Some(smuggled)),
        ("Content-Length: 3\r\nContent-Length: 3\r\n", smuggled, Some("abc")),
        ("Content-Length: 3, 3\r\n", smuggled, Some("abc")),
        ("Content-Length: 3\r\nContent-Length: 4\r\n", smuggled, None),
        ("Content-Length: +3\r\n", smuggled, None),
        ("Transfer-Encoding: gzip\r\nContent-Length: 3\r\n", smuggled, None),
        ("Transfer-Encoding: gzip, chunked\r\n", &chunk, None),
    ] {
        for tls in [false, true] {
            let reply = Reply::verbatim(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n{body}"));
            let (_gateway, origin, mut conn) = hostile(Site::default().at("/evil", reply), tls).await;
            let response = ask(&mut conn, &origin, "/evil").await;
            match expected {
                Some(expected) => response.assert_ok(expected),
                None => drop(response.assert_refused(502, "upstream_protocol")),
            }
            assert!(response.head.values("content-length").len() < 2, "{fields:?}");
            ask(&mut conn, &origin, "/next").await.assert_ok("GET /next");
        }
    }
}

#[tokio::test]
async fn interim_answers_and_trailers_carry_no_framing_and_no_reason() {
    let reply = Reply::chunked(&["body"])
        .interim("103 Early Hints", &["Content-Length: 5", "Exeat-Reason: blocked", "Link: </a>"])
        .trailer("Exeat-Reason", "blocked")
        .trailer("Content-Length", "9")
        .trailer("Set-Cookie", "a=b")
        .trailer("X-Sum", "1");
    for tls in [false, true] {
        let (_gateway, origin, mut conn) = hostile(Site::default().at("/x", reply.clone()), tls).await;
        let response = ask(&mut conn, &origin, "/x").await;
        response.assert_ok("body");
        assert_eq!(response.interim.len(), 1);
        assert_eq!(response.interim[0].lines, ["link: </a>"]);
        assert_eq!(response.trailers, ["x-sum: 1"]);
        ask(&mut conn, &origin, "/next").await.assert_ok("GET /next");
    }
}

#[tokio::test]
async fn an_unasked_switch_of_protocols_is_no_tunnel() {
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nowned";
    for tls in [false, true] {
        let (_gateway, origin, mut conn) = hostile(Site::default().at("/x", Reply::verbatim(switch)), tls).await;
        ask(&mut conn, &origin, "/x").await.assert_refused(502, "upstream_protocol");
        ask(&mut conn, &origin, "/next").await.assert_ok("GET /next");
    }
}

#[tokio::test]
async fn what_follows_a_refused_upgrade_is_judged() {
    for tls in [false, true] {
        let (_gateway, origin, mut conn) = hostile(Site::default(), tls).await;
        let [first, second] = ["/x", "/y"].map(|path| origin.url("api.example.test", path));
        let host = origin.authority("api.example.test");
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        let refused = "GET http://evil.test/ HTTP/1.1\r\nHost: api.example.test\r\n\r\n";
        conn.send(format!("GET {first} HTTP/1.1\r\nHost: {host}\r\n{upgrade}\r\n{refused}")).await;
        conn.response().await.assert_ok("GET /x");
        let (status, reason) = if tls { (421, "misdirected") } else { (403, "not_allowed") };
        conn.response().await.assert_refused(status, reason);
        conn.get(&second, &host).await.assert_ok("GET /y");
    }
}

// --- Hostile clients ----------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_body_that_stops_arriving_is_given_up() {
    let origin = Origin::http(Site::default()).await;
    let setup = Gateway::setup().names(&["api.example.test"]).allow(&["api.example.test"]);
    let gateway = setup.set("limits", "idle_timeout", "\"1s\"").start().await;
    for fields in ["Content-Length: 10\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"] {
        let mut conn = gateway.open().await;
        let url = origin.url("api.example.test", "/x");
        conn.send(format!("POST {url} HTTP/1.1\r\nHost: x\r\n{fields}")).await;
        conn.response().await.assert_refused(400, "bad_request");
        assert!(conn.to_end().await.is_empty());
    }
    assert!(origin.requests().iter().all(|request| !request.complete));
}

#[tokio::test]
async fn a_body_that_keeps_arriving_may_take_longer_than_an_answer() {
    let origin = Origin::http(Site::default()).await;
    let setup = Gateway::setup().names(&["api.example.test"]).allow(&["api.example.test"]);
    let gateway = setup.set("limits", "idle_timeout", "\"1s\"").start().await;
    let mut conn = gateway.open().await;
    let url = origin.url("api.example.test", "/x");
    conn.send(format!("POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n")).await;
    for _ in 0..8 {
        // The pace is what is tested.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        conn.send("x").await;
    }
    conn.response().await.assert_ok("POST /x");
    assert_eq!(origin.only_request().await.body, b"xxxxxxxx");
}

#[tokio::test]
async fn a_client_that_leaves_early_leaves_a_record() {
    let dns = Dns::start().await;
    dns.set("api.example.test", Answer::Silence);
    let setup = Gateway::setup().allow(&["api.example.test"]);
    let gateway = setup.set("dns", "servers", &format!("[{:?}]", dns.addr().to_string())).start().await;
    for (count, head) in
        [(1.0, "GET http://api.example.test/x HTTP/1.1"), (2.0, "CONNECT api.example.test:443 HTTP/1.1")]
    {
        let queries = dns.queries().len();
        let mut conn = gateway.open().await;
        conn.send(format!("{head}\r\nHost: x\r\n\r\n")).await;
        until("the name to be asked for", || async { (dns.queries().len() > queries).then_some(()) }).await;
        drop(conn);
        gateway.await_metric("exeat_requests_total", &[("verdict", "allow")], count).await;
    }
    gateway.await_line("the client left before anything was sent").await;
}

#[tokio::test]
async fn a_target_that_cannot_be_read_is_not_quoted_in_the_log() {
    let gateway = Gateway::setup().allow(&["api.example.test"]).start().await;
    for target in [
        "http:/user:canary@api.example.test/x?t=canary",
        "http://user:canary@api.example.test/",
        "http://user:p/canary@api.example.test/",
        "http://api.example.test:0/?t=canary",
        "http://api.example.test/#canary",
        "user:canary@api.example.test",
        "/x?t=canary",
    ] {
        let refused = gateway.get(target).await;
        assert_eq!(refused.status, 400, "{target}");
        gateway.open().await.connect(&format!("u:canary@{target}:443")).await;
    }
    gateway.await_metric("exeat_requests_total", &[("verdict", "deny")], 14.0).await;
    let lines = gateway.lines();
    assert!(lines.iter().all(|line| !line.contains("canary")), "{lines:#?}");
}
