use std::sync::Arc;

use exeat_policy::globs::NameGlobs;
use exeat_policy::manifest::{ElicitationPolicy, ProtocolMode};
use serde_json::{Value as Tree, json};

use super::super::policy::tests::open;
use super::*;

/// A policy with something written, and its server's URL asked for.
fn strict(change: impl FnOnce(&mut ServerPolicy)) -> Found {
    let mut policy = ServerPolicy { explicit: true, ..open("https://mcp.test/mcp") };
    change(&mut policy);
    Found { policy: Arc::new(policy), exact: true }
}

fn with_tools(allow: &[&str], deny: &[&str]) -> Found {
    strict(|policy| policy.tools = vec![NameGlobs::new(allow, deny).unwrap()])
}

fn pinned(protocol: ProtocolMode) -> Found {
    strict(|policy| policy.protocol = protocol)
}

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    fields.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
}

fn judge(found: &Found, fields: &[(&'static str, &str)], body: &str) -> Result<Judged, Refused> {
    let headers = headers(fields);
    let asked = Asked { method: &Method::POST, headers: &headers };
    judge_head(found, asked, true)?;
    judge_body(found, asked, body.as_bytes())
}

/// What a body becomes; itself where nothing changes.
fn passed(found: &Found, fields: &[(&'static str, &str)], body: &str) -> String {
    let judged = judge(found, fields, body).unwrap_or_else(|refused| panic!("{body}: {refused:?}"));
    judged.changed.map_or(body.to_owned(), |changed| String::from_utf8(changed).unwrap())
}

fn reason(found: &Found, fields: &[(&'static str, &str)], body: &str) -> Option<Reason> {
    judge(found, fields, body).err().map(|refused| refused.reason)
}

/// The HTTP status and the body of a refusal in JSON-RPC.
fn errors(refused: Refused) -> (u16, Tree) {
    match refused.answer {
        Answer::Errors { rejected, errors, batch } => (
            if rejected { 400 } else { 200 },
            serde_json::from_str(&super::super::rpc::render(&errors, batch, &[])).unwrap(),
        ),
        Answer::Problem => panic!("no JSON-RPC: {refused:?}"),
    }
}

fn call(name: &str) -> String {
    json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": name, "arguments": {}}}).to_string()
}

const LIST: &str = r#"{"jsonrpc":"2.0","id":"l-1","method":"tools/list"}"#;

#[test]
fn a_tool_is_called_if_the_globs_permit_it() {
    let found = with_tools(&["search_*", "get"], &["*delete*"]);
    for (name, permitted) in [
        ("search_x", true),
        ("get", true),
        ("get_x", false),
        ("search_delete", false),
        ("Search_x", false),
        ("", false),
    ] {
        let expected = (!permitted).then_some(Reason::McpTool);
        assert_eq!(reason(&found, &[], &call(name)), expected, "{name}");
    }
    assert_eq!(passed(&found, &[], &call("get")), call("get"));
    let refused = judge(&found, &[], &call("delete_all")).unwrap_err();
    assert!(refused.detail.contains("delete_all") && refused.detail.contains("docs"), "{}", refused.detail);
    let (status, error) = errors(refused);
    assert_eq!((status, &error["id"], &error["error"]["code"]), (200, &json!(7), &json!(code::TOOL)));
}

#[test]
fn a_call_is_known_by_its_meaning() {
    let found = with_tools(&[], &["bad"]);
    for body in [
        r#"{"id":1,"\u006dethod":"tools/call","params":{"name":"bad"}}"#,
        r#"{"id":1,"method":"tools\/call","params":{"name":"bad"}}"#,
        r#"{"id":1,"method":"tools/call","params":{"n\u0061me":"b\u0061d"}}"#,
        r#"{"params":{"arguments":{"name":"good"},"name":"bad"},"method":"tools/call","id":1}"#,
    ] {
        assert_eq!(reason(&found, &[], body), Some(Reason::McpTool), "{body}");
    }
    for body in [
        "",
        "hello",
        "\u{feff}{}",
        "{}",
        r#"{"id":1,"method":"tools/call","method":"ping","params":{"name":"bad"}}"#,
        r#"{"id":1,"method":"ping","Method":"tools/call","params":{"name":"bad"}}"#,
        r#"{"id":1,"method":"tools/call","params":{"name":"good","name":"bad"}}"#,
        r#"{"id":1,"method":"tools/call","params":{"name":"good","Name":"bad"}}"#,
        r#"{"id":1,"method":"tools/call","params":{"name":["bad"]}}"#,
        r#"{"id":1,"method":"tools/call","params":{}}"#,
        r#"{"id":1,"method":"tools/call"}"#,
        r#"{"id":1,"method":"TOOLS/CALL","params":{"name":"bad"}}"#,
        r#"{"id":1,"method":"ping"}{"id":1,"method":"tools/call","params":{"name":"bad"}}"#,
    ] {
        assert_eq!(reason(&found, &[], body), Some(Reason::McpMalformed), "{body}");
    }
}

#[test]
fn a_notification_that_is_refused_gets_no_json_rpc() {
    let found = with_tools(&[], &["bad"]);
    let refused = judge(&found, &[], r#"{"method":"tools/call","params":{"name":"bad"}}"#).unwrap_err();
    assert_eq!((refused.reason, refused.answer), (Reason::McpTool, Answer::Problem));
}

#[test]
fn without_discovery_tools_are_not_listed() {
    let found = strict(|policy| policy.discovery = false);
    let (status, error) = errors(judge(&found, &[], LIST).unwrap_err());
    assert_eq!((status, &error["id"], &error["error"]["code"]), (200, &json!("l-1"), &json!(code::DISCOVERY)));
    assert_eq!(passed(&found, &[], &call("any")), call("any"));
}

#[test]
fn fields_that_repeat_the_message_have_to_agree() {
    let found = with_tools(&["good", "h\u{e9}"], &[]);
    let good = call("good");
    for fields in [
        &[("mcp-method", "tools/call")][..],
        &[("mcp-method", "tools/call"), ("mcp-name", "good"), ("mcp-protocol-version", "2026-07-28")],
        &[("mcp-name", "=?base64?Z29vZA==?=")],
    ] {
        assert_eq!(reason(&found, fields, &good), None, "{fields:?}");
    }
    assert_eq!(reason(&found, &[("mcp-name", "=?base64?aMOp?=")], &call("h\u{e9}")), None);
    for fields in [
        &[("mcp-method", "tools/list")][..],
        &[("mcp-method", "Tools/Call")],
        &[("mcp-name", "bad")],
        &[("mcp-name", "=?base64?Z29vZA==")],
        &[("mcp-name", "=?base64?!?=")],
        &[("mcp-name", "=?base64?/w==?=")],
        &[("mcp-name", "=?BASE64?Z29vZA==?=")],
        &[("mcp-name", "Good"), ("mcp-protocol-version", "2025-03-26")],
    ] {
        let refused = judge(&found, fields, &good).unwrap_err();
        assert_eq!(refused.reason, Reason::McpHeader, "{fields:?}");
        let (status, error) = errors(refused);
        assert_eq!((status, &error["error"]["code"]), (400, &json!(code::HEADER_MISMATCH)));
    }
    assert_eq!(reason(&found, &[("mcp-name", "x")], LIST), Some(Reason::McpHeader));
    assert_eq!(reason(&found, &[("mcp-name", "x")], r#"{"id":1,"method":"vendor/x"}"#), None);
    let read = r#"{"id":1,"method":"resources/read","params":{"uri":"file:///a"}}"#;
    assert_eq!(reason(&found, &[("mcp-name", "file:///a")], read), None);
    assert_eq!(reason(&found, &[("mcp-name", "file:///b")], read), Some(Reason::McpHeader));
    let mut twice = headers(&[("mcp-method", "tools/call")]);
    twice.append("mcp-method", "tools/list".parse().unwrap());
    let asked = Asked { method: &Method::POST, headers: &twice };
    assert_eq!(judge_body(&found, asked, good.as_bytes()).unwrap_err().reason, Reason::McpHeader);
}

#[test]
fn each_message_of_a_batch_is_judged() {
    let found = with_tools(&[], &["bad"]);
    let batch = format!("[{LIST}, {}]", call("good"));
    assert_eq!(passed(&found, &[], &batch), batch);
    assert_eq!(passed(&found, &[("mcp-protocol-version", "2025-03-26")], &batch), batch);
    let judged = judge(&found, &[], &batch).unwrap();
    assert!(judged.batch && judged.ids == ["\"l-1\"", "7"]);
    let batch = format!("[{LIST},{},{}]", r#"{"method":"notifications/x"}"#, call("bad"));
    let refused = judge(&found, &[], &batch).unwrap_err();
    assert_eq!(refused.reason, Reason::McpTool);
    let (status, errors) = errors(refused);
    assert_eq!(status, 200);
    assert_eq!((&errors[0]["id"], &errors[0]["error"]["code"]), (&json!("l-1"), &json!(code::BATCH)));
    assert_eq!((&errors[1]["id"], &errors[1]["error"]["code"]), (&json!(7), &json!(code::TOOL)));
    assert_eq!(errors.as_array().unwrap().len(), 2);
    let silent = judge(&found, &[], r#"[{"method":"tools/call","params":{"name":"bad"}}]"#).unwrap_err();
    assert_eq!(silent.answer, Answer::Problem);
}

#[test]
fn batches_are_of_one_revision() {
    let list = format!("[{LIST}]");
    for version in ["2025-06-18", "2025-11-25", "2026-07-28", "DRAFT"] {
        let refused = reason(&with_tools(&["*"], &[]), &[("mcp-protocol-version", version)], &list);
        assert_eq!(refused, Some(Reason::McpBatch), "{version}");
    }
    assert_eq!(reason(&pinned(ProtocolMode::V2025June), &[], &list), Some(Reason::McpBatch));
    assert_eq!(reason(&pinned(ProtocolMode::V2025March), &[], &list), None);
    let found = with_tools(&["*"], &[]);
    let modern = r#"[{"id":1,"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"x"}}}]"#;
    for body in [modern, r#"[{"id":1,"method":"initialize"}]"#] {
        assert_eq!(reason(&found, &[], body), Some(Reason::McpBatch), "{body}");
    }
    assert_eq!(reason(&found, &[("mcp-method", "tools/list")], &list), Some(Reason::McpBatch));
    assert_eq!(reason(&found, &[], "[]"), Some(Reason::McpMalformed));
}

fn initialize(version: &str, capabilities: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":{version}, "capabilities":{capabilities},"clientInfo":{{"name":"c","version":"1.0"}}}}}}"#
    )
}

fn modern(method: &str, version: &str, capabilities: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1.0,"method":"{method}","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}","io.modelcontextprotocol/clientCapabilities":{capabilities}}},"x":1e2}}}}"#
    )
}

#[test]
fn a_pinned_revision_is_proposed_in_the_place_of_another() {
    let found = pinned(ProtocolMode::V2025June);
    for proposed in ["\"2025-11-25\"", "\"2026-07-28\"", "\"2025-06-1\\u0039\""] {
        let expected = initialize("\"2025-06-18\"", "{}");
        assert_eq!(passed(&found, &[], &initialize(proposed, "{}")), expected, "{proposed}");
    }
    let same = initialize("\"2025-06-1\\u0038\"", "{}");
    assert_eq!(passed(&found, &[], &same), same);
    for odd in ["1", "null", "[\"2025-06-18\"]"] {
        assert_eq!(reason(&found, &[], &initialize(odd, "{}")), Some(Reason::McpMalformed), "{odd}");
    }
}

#[test]
fn a_session_pin_turns_everything_else_away() {
    let found = pinned(ProtocolMode::V2025June);
    for (fields, body, requested) in [
        (&[][..], modern("server/discover", "2026-07-28", "{}"), "2026-07-28"),
        (&[], r#"{"id":1,"method":"server/discover"}"#.to_owned(), "2026-07-28"),
        (&[("mcp-protocol-version", "2026-07-28")], modern("tools/list", "2026-07-28", "{}"), "2026-07-28"),
        (&[("mcp-protocol-version", "2025-06-18")], modern("tools/list", "2026-07-28", "{}"), "2026-07-28"),
        (&[("mcp-protocol-version", "2025-11-25")], LIST.to_owned(), "2025-11-25"),
        (&[("mcp-protocol-version", "2025-03-26")], LIST.to_owned(), "2025-03-26"),
    ] {
        let refused = judge(&found, fields, &body).unwrap_err();
        assert_eq!(refused.reason, Reason::McpProtocol, "{body}");
        let (status, error) = errors(refused);
        assert_eq!((status, &error["error"]["code"]), (400, &json!(-32022)), "{body}");
        assert_eq!(error["error"]["data"], json!({"supported": ["2025-06-18"], "requested": requested}));
    }
    assert_eq!(reason(&found, &[("mcp-protocol-version", "2025-06-18")], LIST), None);
    assert_eq!(reason(&found, &[], LIST), None);
}

#[test]
fn a_stateless_pin_turns_sessions_away() {
    let found = pinned(ProtocolMode::V2026July);
    let version = ("mcp-protocol-version", "2026-07-28");
    let good = modern("tools/list", "2026-07-28", "{}");
    assert_eq!(passed(&found, &[version], &good), good);
    assert_eq!(reason(&found, &[version], r#"{"method":"notifications/cancelled"}"#), None);
    for (fields, body) in [
        (&[][..], initialize("\"2025-06-18\"", "{}")),
        (&[version], initialize("\"2026-07-28\"", "{}")),
        (&[], good.clone()),
        (&[("mcp-protocol-version", "2025-06-18")], good.clone()),
        (&[version, ("mcp-session-id", "s")], good.clone()),
        (&[version], modern("tools/list", "2025-06-18", "{}")),
        (&[version], LIST.to_owned()),
    ] {
        let (status, error) = errors(judge(&found, fields, &body).unwrap_err());
        assert_eq!((status, &error["error"]["data"]["supported"]), (400, &json!(["2026-07-28"])), "{body}");
    }
    assert_eq!(reason(&found, &[version], r#"{"id":1,"result":{}}"#), Some(Reason::McpMalformed));
}

#[test]
fn requests_without_a_message_are_judged_by_their_heads() {
    let judge = |found: &Found, method: Method, fields: &[(&'static str, &str)], has_body: bool| {
        let headers = headers(fields);
        judge_head(found, Asked { method: &method, headers: &headers }, has_body).err().map(|refused| refused.reason)
    };
    let stateless = pinned(ProtocolMode::V2026July);
    assert_eq!(judge(&stateless, Method::GET, &[], false), Some(Reason::McpMethod));
    assert_eq!(judge(&stateless, Method::DELETE, &[], false), Some(Reason::McpMethod));
    let june = pinned(ProtocolMode::V2025June);
    assert_eq!(judge(&june, Method::GET, &[], false), None);
    assert_eq!(judge(&june, Method::DELETE, &[("mcp-protocol-version", "2025-06-18")], false), None);
    let other = [("mcp-protocol-version", "2025-11-25")];
    assert_eq!(judge(&june, Method::GET, &other, false), Some(Reason::McpProtocol));
    let tools = with_tools(&["x"], &[]);
    assert_eq!(judge(&tools, Method::GET, &other, false), None);
    assert_eq!(judge(&tools, Method::GET, &[], true), Some(Reason::McpMalformed));
    for method in [Method::PUT, Method::PATCH, Method::from_bytes(b"post").unwrap()] {
        assert_eq!(judge(&tools, method, &[], true), Some(Reason::McpMethod));
    }
    let below = Found { exact: false, ..tools.clone() };
    assert_eq!(judge(&below, Method::PUT, &[], true), None);
    assert_eq!(judge(&tools, Method::POST, &[("content-encoding", "gzip")], true), Some(Reason::McpEncoding));
    assert_eq!(judge(&tools, Method::POST, &[("content-encoding", " Identity")], true), None);
}

#[test]
fn what_a_client_declares_is_cut_to_the_policy() {
    for (policy, expected) in [
        (ElicitationPolicy::None, r#"{"roots":{}}"#),
        (ElicitationPolicy::Url, r#"{"roots":{},"elicitation":{"url":{}}}"#),
        (ElicitationPolicy::UrlAndForm, r#"{"roots":{},"elicitation":{"form":{},"url":{}}}"#),
    ] {
        let found = strict(|it| it.elicitation = policy);
        let declared = r#"{"roots":{},"elicitation":{"form":{},"url":{}}}"#;
        let version = "\"2025-11-25\"";
        assert_eq!(passed(&found, &[], &initialize(version, declared)), initialize(version, expected));
        let body = |capabilities: &str| {
            modern("tools/call", "2026-07-28", capabilities).replace("\"x\":1e2", "\"name\":\"a\"")
        };
        assert_eq!(passed(&found, &[], &body(declared)), body(expected));
    }
    let found = strict(|it| it.elicitation = ElicitationPolicy::None);
    let odd = initialize("\"2025-11-25\"", r#"{"Elicitation":{}}"#);
    assert_eq!(reason(&found, &[], &odd), Some(Reason::McpMalformed));
}

#[test]
fn by_default_what_is_no_message_passes() {
    let default = open("https://mcp.test/mcp");
    let default =
        Found { policy: Arc::new(ServerPolicy { elicitation: ElicitationPolicy::Url, ..default }), exact: true };
    let below = Found { exact: false, ..with_tools(&["x"], &[]) };
    for found in [&default, &below] {
        for body in ["", "grant_type=client_credentials", "<x/>", r#"{"redirect_uris":[]}"#] {
            assert_eq!(passed(found, &[], body), body);
        }
        for body in [r#"{"id":1,"method":"a","method":"b"}"#, "{", r#"{"id":1,"Method":"tools/call"}"#] {
            assert_eq!(reason(found, &[], body), Some(Reason::McpMalformed), "{body}");
        }
    }
    assert_eq!(reason(&below, &[], &call("bad")), Some(Reason::McpTool));
    assert_eq!(reason(&default, &[("content-encoding", "gzip")], ""), None);
    assert_eq!(reason(&below, &[("content-encoding", "gzip")], ""), Some(Reason::McpEncoding));
}

#[test]
fn numbers_ids_and_order_stay_as_they_are() {
    let found = strict(|it| {
        it.elicitation = ElicitationPolicy::None;
        it.protocol = ProtocolMode::V2025March;
    });
    let body = "{ \"id\" : 1796021250357.0e0,\t\"params\":{\"z\":1.10,\"protocolVersion\" :\"x\",\"capabilities\":{ \"elicitation\":{} },\"a\":-0}, \"method\":\"initialize\" }\n";
    let expected = "{ \"id\" : 1796021250357.0e0,\t\"params\":{\"z\":1.10,\"protocolVersion\" :\"2025-03-26\",\"capabilities\":{  },\"a\":-0}, \"method\":\"initialize\" }\n";
    assert_eq!(passed(&found, &[], body), expected);
    assert_eq!(judge(&found, &[], body).unwrap().ids, ["1796021250357.0e0"]);
}
