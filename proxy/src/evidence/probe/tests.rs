//! The probe against scripted servers: what each answer is taken for, and what is sent after it.

use std::collections::VecDeque;

use super::*;

/// Answers in order, and the messages that were answered.
#[derive(Default)]
struct Script {
    answers: VecDeque<Answer>,
    asked: Vec<String>,
}

impl Carrier for Script {
    async fn ask(&mut self, ask: Ask) -> Answer {
        let method = ask.body.as_ref().and_then(|body| body.get("method")?.as_str().map(str::to_owned));
        let mut said = method.unwrap_or_else(|| ask.method.to_string());
        for (field, sign) in [(&SESSION_ID, "@"), (&PROTOCOL_VERSION, " ")] {
            if let Some(value) = ask.headers.get(field) {
                said.push_str(sign);
                said.push_str(value.to_str().unwrap());
            }
        }
        if ask.hopeless {
            said.insert(0, '!');
        }
        self.asked.push(said);
        match self.answers.pop_front().unwrap_or(Answer::Timeout) {
            // A script cannot know the id.
            Answer::Http(mut answer) => {
                if let Content::Message(_) = answer.content {
                } else if ask.id.is_null() {
                    answer.content = Content::Empty;
                }
                Answer::Http(answer)
            }
            other => other,
        }
    }
}

fn http(status: u16, content: Content, fields: &[(&'static str, &'static str)]) -> Answer {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    Answer::Http(HttpAnswer { status: StatusCode::from_u16(status).unwrap(), headers, content })
}

fn status(code: u16) -> Answer {
    http(code, Content::Other, &[])
}

fn result(value: Value) -> Answer {
    http(200, Content::Message(Message::Result(value)), &[])
}

fn error(status: u16, code: i64, data: Value) -> Answer {
    http(status, Content::Message(Message::Error { code, data }), &[])
}

fn refused(reason: Reason) -> Answer {
    Answer::Refused { reason, detail: String::new() }
}

fn discovered() -> Answer {
    result(json!({
        "supportedVersions": [MODERN],
        "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "docs", "version": "3" } },
    }))
}

fn initialized(revision: &str) -> Value {
    json!({ "protocolVersion": revision, "serverInfo": { "name": "old", "version": "1" } })
}

fn session(revision: &str) -> Answer {
    let content = Content::Message(Message::Result(initialized(revision)));
    http(200, content, &[("mcp-session-id", "s1")])
}

fn tools(names: &[&str]) -> Answer {
    result(json!({ "tools": names.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>() }))
}

const EXPECTATION: Expectation = Expectation {
    mode: ProtocolMode::Auto,
    elicitation: ElicitationPolicy::Url,
    tool_discovery: true,
    bound: true,
    tls: true,
};

async fn run_with(expectation: Expectation, answers: Vec<Answer>) -> (Findings, Vec<String>) {
    let mut script = Script { answers: answers.into(), asked: Vec::new() };
    let findings = run(&mut script, &expectation, Checks::default()).await;
    (findings, script.asked)
}

/// The check that did not pass first, with its status and reason.
fn first_bad(findings: &Findings) -> Option<(Check, CheckStatus, String)> {
    let bad = |result: &super::super::report::CheckResult| {
        !matches!(result.status, CheckStatus::Passed | CheckStatus::NotRun)
    };
    findings.checks.find(bad).map(|result| (result.check, result.status, result.reason.clone()))
}

#[tokio::test]
async fn a_server_of_the_newest_era_is_ready() {
    let answers = vec![discovered(), status(401), tools(&["b", "a"])];
    let (findings, asked) = run_with(EXPECTATION, answers).await;
    let sent = ["server/discover 2026-07-28", "!server/discover 2026-07-28", "tools/list 2026-07-28"];
    assert_eq!(asked, sent);
    assert_eq!(first_bad(&findings), None);
    for check in [Check::Resolve, Check::Connect, Check::Tls, Check::Handshake, Check::Protocol, Check::Authorised] {
        assert_eq!(findings.checks.status(check), CheckStatus::Passed, "{check:?}");
    }
    assert_eq!((findings.tools, findings.revision.as_deref()), (Some(2), Some(MODERN)));
    assert_eq!(findings.detected_version.as_deref(), Some("docs 3"));
    let of_a_and_b = digest(&SHA256, b"a\nb\n").as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(findings.tools_digest, Some(of_a_and_b));
}

#[tokio::test]
async fn a_session_is_opened_where_it_takes_one_and_ended_again() {
    let answers = vec![status(404), session("2025-06-18"), status(202), status(401), tools(&["a"]), status(200)];
    let (findings, asked) = run_with(EXPECTATION, answers).await;
    assert_eq!(
        asked,
        [
            "server/discover 2026-07-28",
            "initialize",
            "notifications/initialized@s1 2025-06-18",
            "!initialize",
            "tools/list@s1 2025-06-18",
            "DELETE@s1 2025-06-18",
        ]
    );
    assert_eq!(first_bad(&findings), None);
    assert_eq!((findings.tools, findings.revision.as_deref()), (Some(1), Some("2025-06-18")));
}

#[tokio::test]
async fn a_session_is_ended_whatever_went_wrong_in_it() {
    let answers =
        vec![status(400), session("2025-11-25"), status(202), session("2025-11-25"), status(200), status(500)];
    let (findings, asked) = run_with(EXPECTATION, answers).await;
    assert_eq!(asked.last().map(String::as_str), Some("DELETE@s1 2025-11-25"));
    assert!(asked.contains(&"!DELETE@s1 2025-11-25".to_owned()), "the hopeless session is ended too: {asked:?}");
    let expected = (Check::Authorised, CheckStatus::Inconclusive, "any_credential".to_owned());
    assert_eq!(first_bad(&findings), Some(expected));
    assert_eq!(findings.checks.status(Check::Tools), CheckStatus::Failed);
}

/// What one answer to the first message is taken for.
#[tokio::test]
async fn first_answers_are_told_apart() {
    use CheckStatus::{Error, Failed, Inconclusive};
    let events = http(200, Content::Broken, &[("content-type", "text/event-stream")]);
    let slow = http(429, Content::Empty, &[("retry-after", "5")]);
    let scope = http(403, Content::Empty, &[("www-authenticate", "Bearer error=\"insufficient_scope\"")]);
    let moved = http(302, Content::Empty, &[("location", "https://elsewhere.test/?code=1")]);
    for (first, expected) in [
        (status(401), (Check::Handshake, Inconclusive, "credential_rejected")),
        (status(403), (Check::Handshake, Inconclusive, "forbidden")),
        (scope, (Check::Handshake, Inconclusive, "insufficient_scope")),
        (slow, (Check::Handshake, Inconclusive, "rate_limited")),
        (moved, (Check::Handshake, Failed, "redirected")),
        (status(500), (Check::Handshake, Error, "server_error")),
        (status(503), (Check::Handshake, Error, "server_error")),
        (error(400, -32020, Value::Null), (Check::Handshake, Error, "probe_rejected")),
        (Answer::Timeout, (Check::Handshake, Error, "timeout")),
        (refused(Reason::NotAllowed), (Check::Policy, Failed, "not_allowed")),
        (refused(Reason::CredentialUnavailable), (Check::Credential, Failed, "credential_unavailable")),
        (refused(Reason::DnsNotFound), (Check::Resolve, Failed, "dns_not_found")),
        (refused(Reason::DnsFailed), (Check::Resolve, Error, "dns_failed")),
        (refused(Reason::GuardAddress), (Check::Resolve, Failed, "guard_address")),
        (refused(Reason::ConnectRefused), (Check::Connect, Failed, "connect_refused")),
        (refused(Reason::ConnectTimeout), (Check::Connect, Error, "connect_timeout")),
        (refused(Reason::UpstreamTls), (Check::Tls, Failed, "upstream_tls")),
        (refused(Reason::UpstreamProtocol), (Check::Handshake, Error, "upstream_protocol")),
        (refused(Reason::Draining), (Check::Handshake, Error, "draining")),
    ] {
        let shown = format!("{first:?}");
        let (findings, asked) = run_with(EXPECTATION, vec![first]).await;
        let (check, status, reason) = expected;
        assert_eq!(first_bad(&findings), Some((check, status, reason.to_owned())), "{shown}");
        assert_eq!(asked.len(), 1, "{shown}");
        let reached = |before: Check| findings.checks.status(before) == CheckStatus::Passed;
        for before in [Check::Resolve, Check::Connect, Check::Tls] {
            let answered = check > Check::Tls && !matches!(reason, "timeout");
            assert_eq!(reached(before), answered || (before < check && check <= Check::Tls), "{before:?} {shown}");
        }
    }
    // These say nothing but that the server is of another era.
    for first in
        [status(404), status(405), status(406), status(415), status(421), events, error(200, -32601, json!({}))]
    {
        let (_, asked) = run_with(EXPECTATION, vec![first]).await;
        assert_eq!(asked, ["server/discover 2026-07-28", "initialize"]);
    }
}

#[tokio::test]
async fn what_is_no_mcp_server_is_said_to_be_none() {
    use CheckStatus::{Error, Failed};
    for (second, status, reason) in [
        (status(200), Failed, "not_mcp"),
        (status(404), Failed, "not_mcp"),
        (status(405), Failed, "not_mcp"),
        (http(200, Content::Broken, &[]), Failed, "malformed"),
        (http(200, Content::TooLarge, &[]), Error, "too_large"),
        (error(400, -32600, Value::Null), Failed, "mcp_error"),
        (self::status(502), Error, "server_error"),
        (result(json!({ "no": "version" })), Failed, "not_mcp"),
    ] {
        let shown = format!("{second:?}");
        let (findings, _) = run_with(EXPECTATION, vec![self::status(404), second]).await;
        assert_eq!(first_bad(&findings), Some((Check::Handshake, status, reason.to_owned())), "{shown}");
    }
}

#[tokio::test]
async fn a_pinned_revision_is_asked_for_and_nothing_else() {
    let pinned = |mode| Expectation { mode, ..EXPECTATION };
    let legacy = pinned(ProtocolMode::V2025June);
    let (findings, asked) = run_with(legacy, vec![session("2025-06-18"), status(202), status(401), tools(&[])]).await;
    assert_eq!(asked.first().map(String::as_str), Some("initialize"));
    assert_eq!(first_bad(&findings), None);
    let (findings, asked) = run_with(legacy, vec![session("2025-03-26")]).await;
    assert_eq!(first_bad(&findings), Some((Check::Protocol, CheckStatus::Failed, "pin_mismatch".to_owned())));
    assert_eq!(asked.last().map(String::as_str), Some("DELETE@s1 2025-03-26"));
    let offers = json!({ "supported": [MODERN] });
    let (findings, asked) = run_with(legacy, vec![error(400, -32022, offers)]).await;
    assert_eq!(first_bad(&findings), Some((Check::Protocol, CheckStatus::Failed, "pin_mismatch".to_owned())));
    assert_eq!(asked.len(), 1);
    let (findings, asked) = run_with(pinned(ProtocolMode::V2026July), vec![status(404)]).await;
    assert_eq!(first_bad(&findings), Some((Check::Protocol, CheckStatus::Failed, "pin_mismatch".to_owned())));
    assert_eq!(asked, ["server/discover 2026-07-28"], "a handshake is not tried");
}

#[tokio::test]
async fn without_a_credential_there_is_no_hopeless_one() {
    let free = Expectation { bound: false, tls: false, ..EXPECTATION };
    let (findings, asked) = run_with(free, vec![discovered(), tools(&["a"])]).await;
    assert_eq!(asked, ["server/discover 2026-07-28", "tools/list 2026-07-28"]);
    assert_eq!(first_bad(&findings), None);
    assert_eq!(findings.checks.status(Check::Tls), CheckStatus::NotRun);
    let (findings, _) = run_with(free, vec![status(401)]).await;
    assert_eq!(findings.checks.status(Check::Authorised), CheckStatus::Failed);
    let (_, reason) = findings.checks.sum();
    assert_eq!(reason, "credential_required");
}

#[tokio::test]
async fn tools_are_listed_to_the_last_page_and_not_for_ever() {
    let page = |name: &str| result(json!({ "tools": [{ "name": name }], "nextCursor": "more" }));
    let answers = vec![discovered(), status(401), page("a"), page("b"), tools(&["c"])];
    let (findings, asked) = run_with(EXPECTATION, answers).await;
    assert_eq!((findings.tools, asked.len()), (Some(3), 5));
    let endless = [discovered(), status(401)].into_iter().chain((0..100).map(|_| page("x"))).collect();
    let (findings, asked) = run_with(EXPECTATION, endless).await;
    assert_eq!(asked.len(), 2 + MAX_PAGES);
    assert_eq!(findings.checks.status(Check::Tools), CheckStatus::Inconclusive);
    let off = Expectation { tool_discovery: false, ..EXPECTATION };
    let (findings, asked) = run_with(off, vec![discovered(), status(401)]).await;
    assert_eq!((findings.checks.status(Check::Tools), asked.len()), (CheckStatus::NotRun, 2));
    let (findings, _) = run_with(EXPECTATION, vec![discovered(), status(401), error(404, -32601, Value::Null)]).await;
    assert_eq!(findings.checks.status(Check::Tools), CheckStatus::NotRun);
}
