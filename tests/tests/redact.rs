//! Credentials that a server sends back: none reaches the client, in whatever form and wherever in the answer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use exeat_tests::prelude::*;

const HOST: &str = "mcp.example.test";
const TOKEN: &str = "canary-5ecret/+tok\"en";
const PLACEHOLDER: &[(&str, &str)] = &[("Authorization", "${DOCS_AUTHORIZATION}")];

fn mask() -> String {
    "*".repeat(TOKEN.len())
}

async fn origin(site: Site) -> (Origin, Setup) {
    let ca = TestCa::new();
    let origin = Origin::https(site, &ca.leaf(&[HOST])).await;
    (
        origin,
        Gateway::setup()
            .names(&[HOST])
            .trust(&ca)
            .allow(&[HOST])
            .bind("DOCS_AUTHORIZATION", &format!("Bearer {TOKEN}")),
    )
}

/// A gateway that puts [`TOKEN`] on every request to a site.
async fn scene(site: Site) -> (Origin, Gateway) {
    let (origin, setup) = origin(site).await;
    let gateway = setup.mcp_server("docs", &origin.url(HOST, "/"), PLACEHOLDER).start().await;
    (origin, gateway)
}

/// The token as servers spell it.
fn forms() -> Vec<String> {
    vec![
        TOKEN.to_owned(),
        serde_json::to_string(TOKEN).unwrap().trim_matches('"').to_owned(),
        TOKEN.replace('"', "\\\"").replace('/', "\\/"),
        "canary-5ecret%2F%2Btok%22en".to_owned(),
        "canary-5ecret%2f%2btok%22en".to_owned(),
        BASE64.encode(TOKEN),
        BASE64.encode(format!("u:{TOKEN}")),
        BASE64.encode(format!("user:{TOKEN}")),
        BASE64.encode(format!("another:{TOKEN} and more")),
    ]
}

/// What of a form is left where the token was: of base64 a few characters at its ends may stay.
fn assert_gone(text: &str) {
    for form in forms() {
        let core = &form[form.len() / 4..form.len() / 4 * 3];
        assert!(!text.contains(core), "{core} of {form} in {text}");
    }
}

#[tokio::test]
async fn every_form_is_gone_from_bodies_of_known_length() {
    let text = format!("you sent: {}\n", forms().join(" | "));
    let (origin, gateway) = scene(Site::default().at("/echo", Reply::text(&text))).await;
    let answer = gateway.get(&origin.url(HOST, "/echo")).await;
    answer.assert_ok("you sent: ");
    assert_gone(&answer.text());
    assert_eq!(answer.value("content-length").unwrap(), text.len().to_string(), "the mask is as long as the form");
    assert!(answer.text().starts_with(&format!("you sent: {} | ", mask())), "{}", answer.text());
    gateway
        .await_metric("exeat_redactions_total", &[("server", "docs"), ("place", "body")], forms().len() as f64)
        .await;
}

#[tokio::test]
async fn every_border_of_chunks_is_looked_across() {
    let text = format!("<{TOKEN}>");
    let mut site = Site::default();
    for at in 0..=text.len() {
        let (one, two) = text.split_at(at);
        let reply = if at == 0 || at == text.len() { Reply::chunked(&[&text]) } else { Reply::chunked(&[one, two]) };
        site = site.at(&format!("/{at}"), reply);
    }
    let bytes: Vec<String> = text.chars().map(String::from).collect();
    site = site.at("/bytes", Reply::chunked(&bytes.iter().map(String::as_str).collect::<Vec<_>>()));
    let (origin, gateway) = scene(site).await;
    let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
    for path in (0..=text.len()).map(|at| at.to_string()).chain(["bytes".to_owned()]) {
        let answer = conn.get(&format!("/{path}"), HOST).await;
        assert_eq!((answer.status, answer.text()), (200, format!("<{}>", mask())), "{path}");
    }
}

#[tokio::test]
async fn fields_and_trailers_and_interim_answers_are_clean() {
    let reply = Reply::chunked(&["x"])
        .interim("103 Early Hints", &[&format!("Link: </?t={TOKEN}>")])
        .header("X-Echo", &format!("Bearer {TOKEN}"))
        .header("Set-Cookie", &format!("t={}", BASE64.encode(TOKEN)))
        .header("Trailer", "x-sum")
        .trailer("x-sum", TOKEN);
    let location = "https://mcp.example.test/next?token=canary-5ecret%2F%2Btok%22en&x=1";
    let site = Site::default().at("/fields", reply).at("/moved", Reply::redirect(location));
    let (origin, gateway) = scene(site).await;
    let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
    conn.send(format!("GET /fields HTTP/1.1\r\nHost: {HOST}\r\nTE: trailers\r\nConnection: TE\r\n\r\n")).await;
    let answer = conn.response().await;
    assert_eq!(answer.value("x-echo").unwrap(), format!("Bearer {}", mask()));
    assert_gone(&answer.value("set-cookie").unwrap());
    assert_eq!(answer.interim[0].value("link").unwrap(), format!("</?t={}>", mask()));
    assert_eq!(answer.trailers, [format!("x-sum: {}", mask())]);
    let moved = conn.get("/moved", HOST).await;
    let masked = format!("https://mcp.example.test/next?token={}&x=1", "*".repeat(27));
    assert_eq!((moved.status, moved.value("location").unwrap()), (302, masked));
    gateway.await_metric("exeat_redactions_total", &[("server", "docs"), ("place", "header")], 4.0).await;
    gateway.await_metric("exeat_redactions_total", &[("server", "docs"), ("place", "trailer")], 1.0).await;
}

#[tokio::test]
async fn the_phrase_of_a_status_is_clean() {
    let verbatim = format!("HTTP/1.1 400 no {TOKEN} here\r\nContent-Length: 0\r\n\r\n");
    let (origin, gateway) = scene(Site::default().at("/phrase", Reply::verbatim(&verbatim))).await;
    let answer = gateway.get(&origin.url(HOST, "/phrase")).await;
    assert_eq!(answer.head.start, "HTTP/1.1 400 Bad Request");
}

#[tokio::test]
async fn events_pass_the_moment_they_are_whole() {
    let (reply, source) = Reply::events();
    let (origin, gateway) = scene(Site::default().at("/events", reply)).await;
    let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
    conn.send(format!("GET /events HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await;
    let mut opened = conn.opened("GET").await;
    // The next event is not sent before the one before it has arrived.
    for (data, expected) in [
        ("canary", "data: canary\n\n".to_owned()),
        (TOKEN, format!("data: {}\n\n", mask())),
        ("{\"a\":1}", "data: {\"a\":1}\n\n".to_owned()),
    ] {
        source.send(data).await;
        let mut event = Vec::new();
        while !event.ends_with(b"\n\n") {
            event.extend(conn.piece(&mut opened).await.expect("the stream goes on"));
        }
        assert_eq!(String::from_utf8(event).unwrap(), expected);
    }
}

#[tokio::test]
async fn http2_answers_are_clean() {
    let ca = TestCa::new();
    let origin = Origin::h2(Site::default().at("/echo", Reply::text(&format!("<{TOKEN}>"))), &ca.leaf(&[HOST])).await;
    let setup = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[HOST]);
    let setup = setup.mcp_server("docs", &origin.url(HOST, "/"), PLACEHOLDER);
    let gateway = setup.bind("DOCS_AUTHORIZATION", &format!("Bearer {TOKEN}")).start().await;
    let tunnel = gateway.tunnel(&origin.authority(HOST)).await;
    let mut conn = tunnel.tls(gateway.roots(), HOST, &["h2"]).await.unwrap().h2().await;
    let answer = conn.get(&origin.url(HOST, "/echo")).await;
    assert_eq!((answer.status, answer.text()), (200, format!("<{}>", mask())));
}

#[tokio::test]
async fn answers_are_asked_for_whole_and_uncoded() {
    let (origin, gateway) = scene(Site::default()).await;
    let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
    let fields = "Accept-Encoding: gzip, br\r\nRange: bytes=0-3\r\nIf-Range: \"x\"";
    conn.roundtrip(&format!("GET /x HTTP/1.1\r\nHost: {HOST}\r\n{fields}")).await.assert_ok("GET /x");
    let request = origin.only_request().await;
    assert_eq!(request.values("accept-encoding"), ["identity"]);
    assert!(!request.has("range") && !request.has("if-range"));
}

#[tokio::test]
async fn what_is_coded_all_the_same_is_withheld() {
    let coded = Reply::bytes("text/plain", vec![0x1f, 0x8b, 8, 0]).header("Content-Encoding", "gzip");
    let empty = Reply::status(304).header("Content-Encoding", "gzip");
    let (origin, gateway) = scene(Site::default().at("/coded", coded).at("/empty", empty)).await;
    gateway.get(&origin.url(HOST, "/coded")).await.assert_refused(502, "upstream_encoded");
    assert_eq!(gateway.get(&origin.url(HOST, "/empty")).await.status, 304, "there is nothing in it");
    let mut conn = gateway.open().await;
    let head = conn.roundtrip(&format!("HEAD {} HTTP/1.1\r\nHost: x", origin.url(HOST, "/coded"))).await;
    assert_eq!(head.status, 200);
    gateway.await_metric("exeat_redactions_total", &[("server", "docs"), ("place", "withheld")], 1.0).await;
}

#[tokio::test]
async fn how_far_the_search_goes_is_the_configs_to_say() {
    let echo = || Reply::text(TOKEN).header("X-Echo", TOKEN);
    let coded = Reply::bytes("text/plain", TOKEN).header("Content-Encoding", "x-none");
    let site = Site::default().at("/off", echo()).at("/headers", echo()).at("/pass", coded);
    let (origin, setup) = origin(site).await;
    let mut text = String::new();
    for (path, key) in
        [("off", "redact = \"off\""), ("headers", "redact = \"headers\""), ("pass", "redact_encoded = \"pass\"")]
    {
        let url = origin.url(HOST, &format!("/{path}"));
        text +=
            &format!("[[inject]]\nurl = {url:?}\nheaders = {{ Authorization = \"${{DOCS_AUTHORIZATION}}\" }}\n{key}\n");
    }
    let gateway = setup.clone().start().await;
    let config = setup.exeat_toml(gateway.dir()) + &text;
    gateway.write("exeat.toml", &config);
    gateway.reload().await;
    let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
    for (path, field, body, coding) in [
        ("off", Some(TOKEN.to_owned()), TOKEN.to_owned(), "gzip"),
        ("headers", Some(mask()), TOKEN.to_owned(), "gzip"),
        ("pass", None, TOKEN.to_owned(), "identity"),
    ] {
        let head = format!("GET /{path} HTTP/1.1\r\nHost: {HOST}\r\nAccept-Encoding: gzip");
        let answer = conn.roundtrip(&head).await;
        assert_eq!((answer.value("x-echo"), answer.text()), (field, body), "{path}");
        let request = origin.requests().pop().unwrap();
        assert_eq!(request.values("accept-encoding"), [coding], "{path}");
    }
}

#[tokio::test]
async fn answers_that_mcp_policy_changes_are_clean_too() {
    let tools = serde_json::json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": [
        { "name": "get_x", "description": format!("sends {TOKEN}"), "inputSchema": {} },
        { "name": "delete_x", "inputSchema": {} },
    ] } });
    let event = format!("event: message\ndata: {tools}\n\n");
    let (one, two) = event.split_at(event.find("5ecret").unwrap());
    let events = Reply::chunked(&[one, two]).header("Content-Type", "text/event-stream");
    let site = Site::default().at("/mcp", Reply::json(&tools)).at("/events", events);
    let (origin, setup) = origin(site).await;
    let setup = setup.mcp_server("docs", &origin.url(HOST, "/mcp"), PLACEHOLDER);
    let setup = setup.mcp_server("more", &origin.url(HOST, "/events"), PLACEHOLDER);
    let deny = "{ deny = [\"delete_*\"] }";
    let gateway = setup.set("mcp.docs", "tools", deny).set("mcp.more", "tools", deny).start().await;
    for path in ["/mcp", "/events"] {
        let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        let fields = "Content-Type: application/json\r\nAccept: application/json, text/event-stream";
        let head = format!("POST {path} HTTP/1.1\r\nHost: {HOST}\r\n{fields}\r\nContent-Length: {}", body.len());
        conn.send(format!("{head}\r\n\r\n{body}")).await;
        let answer = conn.response_to("POST").await;
        answer.assert_ok("get_x");
        assert!(!answer.text().contains("delete_x"), "{}", answer.text());
        assert_gone(&answer.text());
    }
}

#[tokio::test]
async fn a_servers_answers_are_searched_as_the_config_says_for_it() {
    let (origin, setup) = origin(Site::default().at("/mcp", Reply::text(TOKEN).header("X-Echo", TOKEN))).await;
    let setup = setup.mcp_server("docs", &origin.url(HOST, "/mcp"), PLACEHOLDER);
    let gateway = setup.set("mcp.docs", "redact", "\"headers\"").start().await;
    let answer = gateway.get(&origin.url(HOST, "/mcp")).await;
    assert_eq!((answer.value("x-echo").unwrap(), answer.text()), (mask(), TOKEN.to_owned()));
}

#[tokio::test]
async fn requests_without_credentials_are_left_alone() {
    let (origin, setup) = origin(Site::default().at("/other", Reply::text("x"))).await;
    let gateway = setup.mcp_server("docs", &origin.url(HOST, "/mcp"), PLACEHOLDER).start().await;
    let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
    let head = format!("GET /other HTTP/1.1\r\nHost: {HOST}\r\nAccept-Encoding: gzip\r\nRange: bytes=0-1");
    conn.roundtrip(&head).await.assert_ok("x");
    let request = origin.only_request().await;
    assert_eq!(
        (request.values("accept-encoding"), request.values("range")),
        (vec!["gzip".to_owned()], vec!["bytes=0-1".to_owned()])
    );
}

#[tokio::test]
async fn a_large_body_passes_unchanged_but_for_the_secret() {
    let filler: String = (0..200_000).map(|number| format!("{number:06} canary-5ecre\n")).collect();
    let (one, two) = filler.split_at(1_234_567);
    let body = format!("{one}{TOKEN}{two}");
    let (origin, gateway) = scene(Site::default().at("/large", Reply::text(&body))).await;
    let answer = gateway.get(&origin.url(HOST, "/large")).await;
    assert_eq!(answer.body.len(), body.len());
    assert!(answer.text() == format!("{one}{}{two}", mask()));
}
