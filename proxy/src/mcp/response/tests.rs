use exeat_policy::globs::NameGlobs;
use exeat_policy::manifest::ProtocolMode;
use serde_json::{Value as Tree, json};

use super::super::policy::tests::open;
use super::*;

fn policy(change: impl FnOnce(&mut ServerPolicy)) -> ServerPolicy {
    let mut policy = ServerPolicy { explicit: true, ..open("https://mcp.test/mcp") };
    change(&mut policy);
    policy
}

fn elicitation(elicitation: ElicitationPolicy) -> ServerPolicy {
    policy(|policy| policy.elicitation = elicitation)
}

fn of(policy: &ServerPolicy, body: &str) -> Reviewed {
    review(policy, &Judged::default(), body.as_bytes())
}

/// What a body becomes; itself where it passes.
fn rewritten(reviewed: &Reviewed, body: &str) -> String {
    match &reviewed.fate {
        Fate::Pass => body.to_owned(),
        Fate::Rewrite(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        Fate::Withhold => "(withheld)".to_owned(),
    }
}

#[test]
fn tools_are_taken_out_of_lists() {
    let globs = NameGlobs::new(&[] as &[&str], &["*delete*"]).unwrap();
    let policy = policy(|policy| policy.tools = vec![globs]);
    for (body, expected) in [
        (
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a"}, {"name":"delete","x":{"name":"a"}} ,{"name":"b","v":1.0}],"nextCursor":"c"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a"} ,{"name":"b","v":1.0}],"nextCursor":"c"}}"#,
        ),
        (
            r#"{"id":1,"result":{"tools":[{"n\u0061me":"d\u0065lete"},{"title":"nameless"},"delete"]}}"#,
            r#"{"id":1,"result":{"tools":[]}}"#,
        ),
        (r#"{"id":1,"result":{"tools":[{"name":"a"}]}}"#, r#"{"id":1,"result":{"tools":[{"name":"a"}]}}"#),
        (r#"{"id":1,"result":{"content":[],"tools":{}}}"#, r#"{"id":1,"result":{"content":[],"tools":{}}}"#),
        (
            r#"[{"id":1,"result":{"tools":[{"name":"delete"}]}},{"id":2,"result":{}}]"#,
            r#"[{"id":1,"result":{"tools":[]}},{"id":2,"result":{}}]"#,
        ),
    ] {
        assert_eq!(rewritten(&of(&policy, body), body), expected);
    }
    let hidden = super::tests::policy(|policy| policy.discovery = false);
    let body = r#"{"id":1,"result":{"tools":[{"name":"a"}],"nextCursor":"c"}}"#;
    assert_eq!(rewritten(&of(&hidden, body), body), r#"{"id":1,"result":{"tools":[],"nextCursor":"c"}}"#);
}

#[test]
fn a_question_beyond_policy_is_answered_in_the_clients_place() {
    let form = r#"{"jsonrpc":"2.0","id":"e\u0031","method":"elicitation/create","params":{"message":"?"}}"#;
    let url =
        r#"{"jsonrpc":"2.0","id":5,"method":"elicitation/create","params":{"mode":"url","url":"https://a.test/"}}"#;
    for (name, policy, form_passes, url_passes) in [
        ("none", elicitation(ElicitationPolicy::None), false, false),
        ("url", elicitation(ElicitationPolicy::Url), false, true),
        ("both", elicitation(ElicitationPolicy::UrlAndForm), true, true),
    ] {
        for (body, id, passes) in [(form, r#""e\u0031""#, form_passes), (url, "5", url_passes)] {
            let reviewed = of(&policy, body);
            if passes {
                assert_eq!(reviewed, Reviewed::default(), "{name}");
                continue;
            }
            assert_eq!(reviewed.fate, Fate::Withhold, "{name}");
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"cancel"}}}}"#);
            assert_eq!(reviewed.answers, [answer.into_bytes()], "{name}");
            assert_eq!(reviewed.notes[0].reason, Reason::McpElicitation);
        }
    }
    let batch = format!("[{form}, {{\"method\":\"notifications/x\"}}]");
    let reviewed = of(&elicitation(ElicitationPolicy::Url), &batch);
    assert_eq!(rewritten(&reviewed, &batch), "[{\"method\":\"notifications/x\"}]");
    assert_eq!(reviewed.answers.len(), 1);
}

#[test]
fn questions_in_results_and_errors_become_errors() {
    let ask = |mode: &str| json!({"method": "elicitation/create", "params": {"mode": mode}});
    let required = |mode: &str| json!({"id": 3, "error": {"code": -32042, "message": "", "data": {"elicitations": [{"mode": mode}]}}});
    for (what, body, url) in [
        (
            "input_required",
            json!({"id": 3, "result": {"resultType": "input_required", "inputRequests": {"a": ask("form")}}}),
            false,
        ),
        (
            "input_required by url",
            json!({"id": 3, "result": {"resultType": "input_required", "inputRequests": {"a": ask("url")}}}),
            true,
        ),
        (
            "a task",
            json!({"id": 3, "result": {"status": "input_required", "inputRequests": {"a": ask("form")}}}),
            false,
        ),
        ("a task inside", json!({"id": 3, "result": {"task": {"inputRequests": {"a": ask("form")}}}}), false),
        ("-32042", required("form"), false),
        ("-32042 by url", required("url"), true),
    ] {
        let text = body.to_string();
        for (policy, passes) in
            [(ElicitationPolicy::None, false), (ElicitationPolicy::Url, url), (ElicitationPolicy::UrlAndForm, true)]
        {
            let reviewed = of(&elicitation(policy), &text);
            assert_eq!(reviewed.fate == Fate::Pass, passes, "{what} {policy:?}");
            if !passes {
                let error: Tree = serde_json::from_str(&rewritten(&reviewed, &text)).unwrap();
                assert_eq!((&error["id"], &error["error"]["code"]), (&json!(3), &json!(code::ELICITATION)), "{what}");
                assert_eq!(reviewed.notes.len(), 1);
            }
        }
    }
    let spelt = r#"{"id":3,"error":{"code":-3.2042e4,"data":{"elicitations":[{}]}}}"#;
    assert_ne!(of(&elicitation(ElicitationPolicy::Url), spelt).fate, Fate::Pass);
    let notified = r#"{"method":"notifications/tasks/status","params":{"task":{"inputRequests":{"a":{"method":"elicitation/create"}}}}}"#;
    assert_eq!(of(&elicitation(ElicitationPolicy::Url), notified).fate, Fate::Withhold);
}

#[test]
fn a_pinned_server_answers_in_its_revision() {
    let june = policy(|policy| policy.protocol = ProtocolMode::V2025June);
    let answer =
        |version: &str| format!(r#"{{"id":0,"result":{{"protocolVersion":"{version}","capabilities":{{}}}}}}"#);
    assert_eq!(of(&june, &answer("2025-06-18")).fate, Fate::Pass);
    let body = answer("2025-11-25");
    let reviewed = of(&june, &body);
    let error: Tree = serde_json::from_str(&rewritten(&reviewed, &body)).unwrap();
    assert_eq!((&error["id"], &error["error"]["code"]), (&json!(0), &json!(code::REVISION)));
    assert_eq!(reviewed.notes[0].reason, Reason::McpProtocol);
    let stateless = policy(|policy| policy.protocol = ProtocolMode::V2026July);
    let reviewed = of(&stateless, r#"{"id":1,"method":"roots/list"}"#);
    assert_eq!((reviewed.fate, reviewed.answers.len()), (Fate::Withhold, 0));
    assert_eq!(of(&stateless, r#"{"method":"notifications/message"}"#).fate, Fate::Pass);
}

#[test]
fn what_cannot_be_judged_becomes_an_error_for_who_waits() {
    let policy = elicitation(ElicitationPolicy::Url);
    for body in [
        r#"{"id":1,"method":"x","method":"elicitation/create"}"#,
        r#"{"id":1,"Method":"elicitation/create"}"#,
        r#"{"x":NaN,"id":1,"method":"elicitation/create"}"#,
        "\u{feff}{\"id\":1,\"method\":\"elicitation/create\"}",
        r#"{"id":1,"method":"Elicitation/Create"}"#,
        r#"{"id":1,"result":{"inputRequests":{"a":{"Method":"elicitation/create"}}}}"#,
    ] {
        let asked = Judged { ids: vec!["7".to_owned()], ..Judged::default() };
        let reviewed = review(&policy, &asked, body.as_bytes());
        let error: Tree = serde_json::from_str(&rewritten(&reviewed, body)).unwrap();
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!(7), &json!(code::ANSWER)), "{body}");
        assert_eq!(reviewed.notes[0].reason, Reason::McpAnswer);
        assert_eq!(of(&policy, body).fate, Fate::Withhold, "{body}");
    }
    assert_eq!(of(&policy, "pong").fate, Fate::Pass);
    let other = r#"{"issuer":"https://a.test"}"#;
    assert_eq!(of(&open("https://mcp.test/mcp"), other).fate, Fate::Pass);
    let asked = Judged { ids: vec!["7".to_owned(), "8".to_owned()], batch: true, ..Judged::default() };
    let reviewed = review(&policy, &asked, b"[");
    let errors: Tree = serde_json::from_str(&rewritten(&reviewed, "")).unwrap();
    assert_eq!(errors.as_array().unwrap().len(), 2);
}
