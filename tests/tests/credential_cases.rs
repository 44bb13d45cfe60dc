//! The tables in `data/credentials.toml`: secrets that no field can carry, and answers that give a secret away.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use exeat_tests::prelude::*;
use serde_json::Value;

const CASES: &str = include_str!("../data/credentials.toml");
const HOST: &str = "mcp.example.test";
const TOKEN: &str = "canary-5ecret/+tok\"en";
const PLACEHOLDER: &[(&str, &str)] = &[("Authorization", "${TOKEN}")];

fn cases(kind: &str) -> Vec<Value> {
    let table: Value = toml::from_str(CASES).unwrap();
    table[kind].as_array().unwrap().clone()
}

fn texts(case: &Value, key: &str) -> Vec<String> {
    let texts = case.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    texts.iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_secret_that_no_field_can_carry_refuses() {
    let ca = TestCa::new();
    for case in cases("secret") {
        let (id, value) = (&case["id"], case["value"].as_str().unwrap());
        let mut sources = texts(&case, "sources");
        if sources.is_empty() {
            sources = ["env", "file", "command"].map(String::from).into();
        }
        for source in sources {
            let origin = Origin::https(Site::default(), &ca.leaf(&[HOST])).await;
            let setup = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[HOST]);
            let setup = setup.mcp_server("docs", &origin.url(HOST, "/mcp"), PLACEHOLDER);
            let setup = match source.as_str() {
                "env" => setup.bind("TOKEN", value),
                "file" => setup.bind_file("TOKEN", value),
                _ => setup.set("bindings", "TOKEN", "{ command = [\"cat\", \"@DIR@/secret\"] }").file("secret", value),
            };
            let gateway = setup.start().await;
            let answer = gateway.get(&origin.url(HOST, "/mcp")).await;
            match case.get("reason").and_then(Value::as_str) {
                Some(reason) => {
                    answer.assert_refused(403, reason);
                    assert!(origin.requests().is_empty(), "{id} from {source}");
                }
                None => {
                    answer.assert_ok("GET");
                    let sent = origin.only_request().await.values("authorization");
                    assert_eq!(sent, [case["sent"].as_str().unwrap()], "{id} from {source}");
                }
            }
            let said = answer.text() + &gateway.lines().join("\n");
            assert!(!said.contains("canary"), "{id} from {source}: {said}");
        }
    }
}

/// The forms of the secret by the names that the table has for them.
fn forms() -> Vec<(&'static str, String)> {
    let json = serde_json::to_string(TOKEN).unwrap();
    let json = json[1..json.len() - 1].to_owned();
    vec![
        ("raw", TOKEN.to_owned()),
        ("slash", json.replace('/', "\\/")),
        ("json", json),
        ("percent", "canary-5ecret%2F%2Btok%22en".to_owned()),
        ("lower", "canary-5ecret%2f%2btok%22en".to_owned()),
        ("base64", BASE64.encode(TOKEN)),
        ("basic", BASE64.encode(format!("user:{TOKEN}"))),
    ]
}

fn filled(text: &str) -> String {
    forms().iter().fold(text.to_owned(), |text, (name, form)| {
        let (one, two) = form.split_at(form.len() / 2);
        let text = text.replace(&format!("{{{name}}}"), form);
        text.replace(&format!("{{{name}:1}}"), one).replace(&format!("{{{name}:2}}"), two)
    })
}

#[tokio::test]
async fn no_answer_gives_the_secret_away() {
    let ca = TestCa::new();
    let mut site = Site::default();
    for (at, case) in cases("echo").iter().enumerate() {
        let pieces: Vec<String> = texts(case, "pieces").iter().map(|piece| filled(piece)).collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let mut reply = match &pieces[..] {
            [whole] => Reply::bytes("text/plain", *whole),
            pieces => Reply::chunked(pieces),
        };
        for field in texts(case, "fields") {
            let (name, value) = field.split_once(": ").unwrap();
            reply = reply.header(name, &filled(value));
        }
        for trailer in texts(case, "trailers") {
            let (name, value) = trailer.split_once(": ").unwrap();
            reply = reply.header("Trailer", name).trailer(name, &filled(value));
        }
        let status = case.get("reason").map_or_else(|| case["status"].as_u64().unwrap_or(200), |_| 200);
        site = site.at(&format!("/{at}"), reply.with_status(u16::try_from(status).unwrap()));
    }
    let origin = Origin::https(site, &ca.leaf(&[HOST])).await;
    let setup = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[HOST]).bind("TOKEN", &format!("Bearer {TOKEN}"));
    let gateway = setup.inject(&origin.url(HOST, "/"), PLACEHOLDER).start().await;
    for (at, case) in cases("echo").iter().enumerate() {
        let id = &case["id"];
        let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
        let fields = "TE: trailers\r\nConnection: TE";
        let answer = conn.roundtrip(&format!("GET /{at} HTTP/1.1\r\nHost: {HOST}\r\n{fields}")).await;
        match case.get("reason").and_then(Value::as_str) {
            Some(reason) => drop(answer.assert_refused(502, reason)),
            None => {
                assert_eq!(u64::from(answer.status), case["status"].as_u64().unwrap_or(200), "{id}");
                let length: usize = texts(case, "pieces").iter().map(|piece| filled(piece).len()).sum();
                assert_eq!(answer.body.len(), length, "{id}: the length stays");
            }
        }
        let head = String::from_utf8_lossy(&answer.head.raw).into_owned();
        let seen = format!("{head}\n{}\n{}", answer.text(), answer.trailers.join("\n"));
        for (name, form) in forms() {
            // At the ends of base64 a character may stay that says nothing of the secret alone.
            let core = if name == "basic" { &form[8..form.len() - 4] } else { &form[..form.len() - 4] };
            assert!(!seen.to_lowercase().contains(&core.to_lowercase()), "{id}: {name} in {seen}");
        }
    }
}
