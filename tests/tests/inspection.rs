//! What operators are told of the policy in force: its rules with their counts, and what it would make of a request.

use exeat_tests::gateway::exeat;
use exeat_tests::prelude::*;
use serde_json::{Value, json};

const HOST: &str = "api.example.test";

async fn post(gateway: &Gateway, path: &str, body: &Value) -> Response {
    let body = body.to_string();
    let (admin, length) = (gateway.admin(), body.len());
    let fields = format!("Host: {admin}\r\nContent-Type: application/json\r\nContent-Length: {length}");
    let head = format!("POST {path} HTTP/1.1\r\n{fields}\r\n\r\n{body}");
    let mut conn = RawConn::open(admin).await;
    conn.send(head).await;
    conn.response().await
}

#[tokio::test]
async fn the_policy_is_shown_with_places_counts_and_servers() {
    let origin = Origin::http(Site::default()).await;
    let url = "https://mcp.example.test/mcp?key=canary";
    let gateway = Gateway::setup().names(&[HOST]).allow(&[HOST, "unused.test"]).block(&["bad.test"]);
    let gateway =
        gateway.mcp_server("docs", url, &[("Authorization", "${X}")]).bind("X", "Bearer canary").start().await;
    gateway.get(&origin.url(HOST, "/")).await.assert_ok("GET /");
    gateway.get("http://bad.test/").await.assert_refused(403, "blocked");
    gateway.await_metric("exeat_rule_hits_total", &[], 2.0).await;
    let policy = gateway.admin_get("/v1/policy").await.json();
    let ready = gateway.readyz().await.json();
    assert_eq!((&policy["digest"], &policy["generation"]), (&ready["policy"]["digest"], &1.into()));
    assert_eq!((&policy["mode"], &policy["default"]), (&"enforce".into(), &"allow".into()));
    assert_eq!(policy["layers"], json!([{ "name": "agent", "allowed": 2, "blocked": 1 }]));
    assert_eq!((&policy["rule_count"], &policy["never_hit"]), (&3.into(), &1.into()));
    let rules = policy["rules"].as_array().unwrap();
    let short: Vec<_> = rules.iter().map(|rule| (&rule["pattern"], &rule["list"], &rule["hits"])).collect();
    assert_eq!(
        short,
        [
            (&HOST.into(), &"allowed".into(), &1.into()),
            (&"unused.test".into(), &"allowed".into(), &0.into()),
            (&"bad.test".into(), &"blocked".into(), &1.into()),
        ]
    );
    assert_eq!((&rules[1]["last_hit"], &rules[1]["index"], &rules[2]["index"]), (&Value::Null, &1.into(), &0.into()));
    assert!(rules[0]["last_hit"].as_str().unwrap() >= policy["counted_since"].as_str().unwrap());
    assert_eq!((&rules[2]["file"], &rules[2]["line"]), (&"agent.toml".into(), &5.into()));
    let servers = json!([{ "name": "docs", "url": "https://mcp.example.test/mcp", "bound": true }]);
    assert_eq!(policy["servers"], servers);
    assert!(!policy.to_string().contains("canary"), "{policy:#}");

    let page = gateway.admin_get("/v1/policy?offset=1&limit=1").await.json();
    assert_eq!((page["rules"].as_array().unwrap().len(), &page["rule_count"]), (1, &3.into()));
    assert_eq!(page["rules"][0]["pattern"], "unused.test");
    for query in ["limit=x", "limit=10001", "page=1", "limit=1&limit=2"] {
        gateway.admin_get(&format!("/v1/policy?{query}")).await.assert_refused(400, "bad_request");
    }
}

#[tokio::test]
async fn a_question_has_the_answer_of_the_dry_run_and_of_the_gateway() {
    let inputs = [
        "https://api.example.test/x?secret=1",
        "https://api.example.test/never/x",
        "api.example.test:443",
        "http://elsewhere.test/",
        "elsewhere.test:443",
        "http://127.0.0.1:9180/",
        "http://169.254.169.254/latest",
        "http://bad_\u{0}",
        "ftp://api.example.test/",
        "bad.test:443",
    ];
    let gateway = Gateway::setup().allow(&[HOST, "127.0.0.1", "169.254.169.254", "bad.test"]);
    let gateway = gateway.block(&["bad.test", "https://api.example.test/never/"]).start().await;
    let dir = gateway.dir();
    let asked = exeat(&["check", "-c", "exeat.toml", "-m", "agent.toml", "--json", "-"]).dir(dir);
    let expected = asked.input(inputs.join("\n")).run().await.json_lines();
    let answer = post(&gateway, "/v1/check", &json!({ "inputs": inputs })).await;
    assert_eq!((answer.status, answer.value("content-type").as_deref()), (200, Some("application/x-ndjson")));
    let answers: Vec<Value> = answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), inputs.len());
    for (input, (answer, expected)) in inputs.iter().zip(answers.iter().zip(&expected)) {
        for (member, value) in expected.as_object().unwrap() {
            assert_eq!(&answer[member], value, "{input}: {member}");
        }
    }
    for (url, answer) in inputs.iter().zip(&answers).filter(|(url, _)| url.starts_with("http://")).take(1) {
        assert_eq!(gateway.get(url).await.reason().as_deref(), answer["reason"].as_str());
    }
    let reason = |at: usize| answers[at]["reason"].as_str().unwrap().to_owned();
    assert_eq!((reason(5), reason(6)), ("allowed".to_owned(), "guard_metadata".to_owned()));

    let one = gateway.admin_get("/v1/check?input=https%3A%2F%2Fapi.example.test%2Fnever%2Fx&method=POST").await.json();
    assert_eq!(
        (&one["verdict"], &one["method"], &one["rule"]["list"]),
        (&"deny".into(), &"POST".into(), &"blocked".into())
    );
    let suggestion = &one["suggestion"];
    assert_eq!(suggestion["blocked_by"]["pattern"], "https://api.example.test/never/", "{one:#}");
}

#[tokio::test]
async fn a_refusal_comes_with_a_rule_that_would_permit_it() {
    let gateway = Gateway::setup().allow(&[HOST]).start().await;
    for (input, allow) in [
        ("https://docs.example.test/guide/x", "https://docs.example.test/"),
        ("db.example.test:5432", "db.example.test"),
    ] {
        let answer = post(&gateway, "/v1/check", &json!({ "inputs": [input] })).await.json();
        assert_eq!(answer["suggestion"]["layer"], "agent", "{answer:#}");
        assert_eq!(answer["suggestion"]["allow"], json!([allow]), "{answer:#}");
        let manifest = format!("name = \"a\"\n[network_access]\nallowed = [{allow:?}]\n");
        gateway.write("new.toml", &manifest);
        let check = exeat(&["check", "-m", "new.toml", input]).dir(gateway.dir());
        check.run().await.success();
    }
    let answer = gateway.admin_get(&format!("/v1/check?input=https://{HOST}/")).await.json();
    assert_eq!((&answer["verdict"], &answer["suggestion"]), (&"allow".into(), &Value::Null));
    for (path, says) in [
        ("/v1/check", "expected input="),
        ("/v1/check?input=https://a.test/&method=a%20b", "expected a method"),
        ("/v1/check?url=https://a.test/", "input, method"),
    ] {
        let problem = gateway.admin_get(path).await.assert_refused(400, "bad_request");
        assert!(problem["detail"].as_str().unwrap().contains(says), "{problem:#}");
    }
    for body in [json!({ "inputs": "x" }), json!({ "inputs": [], "more": 1 }), json!([])] {
        post(&gateway, "/v1/check", &body).await.assert_refused(400, "bad_request");
    }
}
