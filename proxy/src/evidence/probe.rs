//! The checks of one server, in order, over whatever carries the messages.
//!
//! Nothing here knows a socket: messages go out and answers come in through [`Carrier`], which the gateway's own
//! listener implements and tests do with a script. The sequence has no side effect on a server but one short session of
//! its own, which it ends. It calls no tool, reads no resource, opens no stream and follows no redirect.

use exeat_policy::Reason;
use exeat_policy::manifest::{ElicitationPolicy, ProtocolMode};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::answer::{Answer, Content, HttpAnswer, Message};
use super::report::{Check, CheckStatus, Checks};

/// The newest revision, which has no handshake.
const MODERN: &str = "2026-07-28";
/// The revision that is proposed in a handshake where none is pinned.
const LEGACY: &str = "2025-11-25";
/// How many pages of tools are read.
const MAX_PAGES: usize = 20;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");

/// A message of the probe.
#[derive(Debug)]
pub(crate) struct Ask {
    /// `POST`, or `DELETE` to end a session.
    pub(crate) method: Method,
    /// The fields, those of the credential excepted.
    pub(crate) headers: HeaderMap,
    /// The body; none for `DELETE`.
    pub(crate) body: Option<Value>,
    /// The id that its answer carries; null for a notification.
    pub(crate) id: Value,
    /// Whether it carries a credential that no server takes, in place of the bound one.
    pub(crate) hopeless: bool,
}

/// Carries messages to a server.
pub(crate) trait Carrier {
    /// Sends one and waits for its answer.
    fn ask(&mut self, ask: Ask) -> impl Future<Output = Answer> + Send;
}

/// What a manifest says about the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expectation {
    /// The pinned revision.
    pub(crate) mode: ProtocolMode,
    /// Which capabilities an agent would declare.
    pub(crate) elicitation: ElicitationPolicy,
    /// Whether tools may be listed.
    pub(crate) tool_discovery: bool,
    /// Whether a placeholder is put on requests.
    pub(crate) bound: bool,
    /// Whether the server is reached over TLS.
    pub(crate) tls: bool,
}

/// What the checks found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The checks, those before the network included where the caller noted them.
    pub(crate) checks: Checks,
    /// What the server calls itself.
    pub(crate) detected_version: Option<String>,
    /// The revision that was spoken.
    pub(crate) revision: Option<String>,
    /// How many tools there are.
    pub(crate) tools: Option<usize>,
    /// The digest of their names.
    pub(crate) tools_digest: Option<String>,
}

/// The capabilities that the probe declares: those an agent behind the policy would.
pub(crate) fn declared(elicitation: ElicitationPolicy) -> Value {
    match elicitation {
        ElicitationPolicy::None => json!({}),
        ElicitationPolicy::Url => json!({ "elicitation": { "url": {} } }),
        ElicitationPolicy::UrlAndForm => json!({ "elicitation": { "form": {}, "url": {} } }),
    }
}

/// Makes the checks from `resolve` on; `checks` has what was found before.
pub(crate) async fn run(carrier: &mut impl Carrier, expectation: &Expectation, checks: Checks) -> Findings {
    let findings = Findings { checks, ..Findings::default() };
    let mut probe = Probe { carrier, expectation, findings, session: None, next: 0 };
    let opened = probe.open().await;
    if let Some(opened) = opened {
        probe.after(&opened).await;
    }
    probe.close().await;
    probe.findings
}

/// How the server is spoken to.
#[derive(Clone, Debug)]
enum Opened {
    /// Without a handshake.
    Modern,
    /// After one.
    Legacy { revision: String },
}

/// What the answer to the first message of an era means.
enum Verdict {
    Opened {
        opened: Opened,
        result: Value,
    },
    /// It is of the other era, or of none.
    Legacy,
    Stop,
}

struct Probe<'a, C> {
    carrier: &'a mut C,
    expectation: &'a Expectation,
    findings: Findings,
    session: Option<(HeaderValue, String)>,
    next: u64,
}

impl<C: Carrier> Probe<'_, C> {
    /// Checks the way and the handshake; none where there is no going on.
    async fn open(&mut self) -> Option<Opened> {
        let pinned = self.expectation.mode.pinned();
        let legacy = match pinned {
            Some(revision) if revision != MODERN => Some(revision),
            _ => None,
        };
        let verdict = match legacy {
            Some(revision) => self.initialize(revision).await,
            None => match self.discover().await {
                Verdict::Legacy if pinned.is_none() => self.initialize(LEGACY).await,
                other => other,
            },
        };
        match verdict {
            Verdict::Opened { opened, result } => {
                self.opened(&opened, &result);
                Some(opened)
            }
            Verdict::Legacy => {
                self.findings.checks.pass(Check::Handshake, "");
                let detail = format!("the server does not speak {MODERN}");
                self.findings.checks.note(Check::Protocol, CheckStatus::Failed, "pin_mismatch", detail);
                None
            }
            Verdict::Stop => None,
        }
    }

    fn opened(&mut self, opened: &Opened, result: &Value) {
        let info = match opened {
            Opened::Modern => result.pointer("/_meta/io.modelcontextprotocol~1serverInfo").or(result.get("serverInfo")),
            Opened::Legacy { .. } => result.get("serverInfo"),
        };
        self.findings.detected_version = info.and_then(server_version);
        let revision = match opened {
            Opened::Modern => MODERN,
            Opened::Legacy { revision } => revision,
        };
        self.findings.revision = Some(revision.to_owned());
        let checks = &mut self.findings.checks;
        checks.pass(Check::Handshake, "");
        match self.expectation.mode.pinned() {
            Some(pinned) if pinned != revision => {
                let detail = format!("pinned to {pinned}, the server speaks {revision}");
                checks.note(Check::Protocol, CheckStatus::Failed, "pin_mismatch", detail);
            }
            _ => checks.pass(Check::Protocol, revision),
        }
    }

    /// Asks a server of the newest era what it is.
    async fn discover(&mut self) -> Verdict {
        let answer = self.send(&Opened::Modern, "server/discover", json!({}), false).await;
        let Some(answer) = self.arrived(&answer, Check::Handshake) else { return Verdict::Stop };
        if let Some(result) = answer.result() {
            let offers = result.get("supportedVersions").and_then(Value::as_array);
            return match offers {
                Some(offers) if offers.iter().any(|offer| offer == MODERN) => {
                    Verdict::Opened { opened: Opened::Modern, result: result.clone() }
                }
                _ => Verdict::Legacy,
            };
        }
        if self.turned_away(answer) {
            return Verdict::Stop;
        }
        match (answer.status.as_u16(), answer.error_code()) {
            // The server is of this era and found fault with the message, which is as the specification has it.
            (_, Some(code @ (-32020 | -32021))) => {
                let detail = format!("the server answered error {code}: was the message altered on its way?");
                self.findings.checks.note(Check::Handshake, CheckStatus::Error, "probe_rejected", detail);
                Verdict::Stop
            }
            (300..400, _) => self.redirected(answer),
            (500.., _) => self.unusable(answer),
            _ => Verdict::Legacy,
        }
    }

    /// Opens a session with a handshake.
    async fn initialize(&mut self, revision: &str) -> Verdict {
        let params = json!({
            "protocolVersion": revision,
            "capabilities": declared(self.expectation.elicitation),
            "clientInfo": client_info(),
        });
        let ask = self.initialize_with(&params, false);
        let answer = self.carrier.ask(ask).await;
        let Some(answer) = self.arrived(&answer, Check::Handshake) else { return Verdict::Stop };
        let answer = answer.clone();
        if let Some(result) = answer.result() {
            let Some(spoken) = result.get("protocolVersion").and_then(Value::as_str) else {
                return self.unusable(&answer);
            };
            let opened = Opened::Legacy { revision: spoken.to_owned() };
            if let Some(id) = answer.headers.get(&SESSION_ID) {
                self.session = Some((id.clone(), spoken.to_owned()));
            }
            return Verdict::Opened { opened, result: result.clone() };
        }
        if self.turned_away(&answer) {
            return Verdict::Stop;
        }
        match (answer.status.as_u16(), answer.error_code()) {
            (_, Some(-32022 | -32004)) => {
                self.findings.checks.pass(Check::Handshake, "");
                let detail = format!("the server does not speak {revision} but {}", answer.supported().join(", "));
                self.findings.checks.note(Check::Protocol, CheckStatus::Failed, "pin_mismatch", detail);
                Verdict::Stop
            }
            (300..400, _) => self.redirected(&answer),
            _ => self.unusable(&answer),
        }
    }

    /// What is left once the server is spoken to.
    async fn after(&mut self, opened: &Opened) {
        if let Opened::Legacy { .. } = opened {
            self.notify(opened).await;
        }
        if self.findings.checks.status(Check::Protocol) != CheckStatus::Passed {
            return;
        }
        self.authorised(opened).await;
        if self.findings.checks.status(Check::Authorised) != CheckStatus::Failed {
            self.tools(opened).await;
        }
    }

    /// Whether the bound credential is the reason that the server answers: one that no server takes must not do.
    async fn authorised(&mut self, opened: &Opened) {
        let checks = &mut self.findings.checks;
        if !self.expectation.bound {
            checks.pass(Check::Authorised, "no_credential_bound");
            return;
        }
        let ask = match opened {
            Opened::Modern => self.modern("server/discover", json!({}), true),
            Opened::Legacy { revision } => {
                let params = json!({ "protocolVersion": revision, "capabilities": {}, "clientInfo": client_info() });
                self.initialize_with(&params, true)
            }
        };
        let answer = self.carrier.ask(ask).await;
        if let (Answer::Http(answer), Opened::Legacy { revision }) = (&answer, opened)
            && let Some(id) = answer.headers.get(&SESSION_ID)
        {
            // It was let in: the session is ended, with the same credential.
            let mut ask = self.plain(Method::DELETE, None, Value::Null);
            ask.hopeless = true;
            ask.headers.insert(SESSION_ID, id.clone());
            if let Ok(revision) = HeaderValue::from_str(revision) {
                ask.headers.insert(PROTOCOL_VERSION, revision);
            }
            self.carrier.ask(ask).await;
        }
        let checks = &mut self.findings.checks;
        match answer {
            Answer::Http(answer) if matches!(answer.status.as_u16(), 401 | 403) => checks.pass(Check::Authorised, ""),
            Answer::Http(answer) if answer.status.is_success() => checks.note(
                Check::Authorised,
                CheckStatus::Inconclusive,
                "any_credential",
                "the server takes a credential that cannot be right, so that it takes the bound one says nothing",
            ),
            Answer::Http(answer) => checks.note(
                Check::Authorised,
                CheckStatus::Inconclusive,
                "unclear",
                format!("a credential that cannot be right was answered with status {}", answer.status.as_u16()),
            ),
            Answer::Refused { reason, detail } => {
                checks.note(Check::Authorised, CheckStatus::Error, reason.as_str(), detail);
            }
            Answer::Timeout => checks.note(Check::Authorised, CheckStatus::Error, "timeout", "no answer came in time"),
            Answer::Broken(detail) => checks.note(Check::Authorised, CheckStatus::Error, "broken", detail),
        }
    }

    /// Lists the tools, all pages of them.
    async fn tools(&mut self, opened: &Opened) {
        if !self.expectation.tool_discovery {
            let detail = "the manifest has tool_discovery = false";
            self.findings.checks.note(Check::Tools, CheckStatus::NotRun, "tool_discovery_off", detail);
            return;
        }
        let mut names: Vec<String> = Vec::new();
        let mut cursor: Option<Value> = None;
        for _ in 0..MAX_PAGES {
            let params = cursor.take().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let answer = self.send(opened, "tools/list", params, false).await;
            let Some(answer) = self.arrived(&answer, Check::Tools) else { return };
            let Some(page) = answer.result().and_then(|result| result.get("tools")).and_then(Value::as_array) else {
                let (reason, detail) = match &answer.content {
                    Content::Message(Message::Error { code: -32601, .. }) => {
                        let detail = "the server has no tools/list";
                        self.findings.checks.note(Check::Tools, CheckStatus::NotRun, "no_tools", detail);
                        return;
                    }
                    Content::Message(Message::Error { code, .. }) => {
                        ("tools_error", format!("tools/list was answered with error {code}"))
                    }
                    _ => ("tools_error", describe(answer)),
                };
                self.findings.checks.note(Check::Tools, CheckStatus::Failed, reason, detail);
                return;
            };
            names.extend(page.iter().filter_map(|tool| tool.get("name")?.as_str().map(str::to_owned)));
            cursor = answer.result().and_then(|result| result.get("nextCursor")).filter(|it| !it.is_null()).cloned();
            if cursor.is_none() {
                break;
            }
        }
        names.sort_unstable();
        self.findings.tools = Some(names.len());
        let joined: String = names.iter().flat_map(|name| [name.as_str(), "\n"]).collect();
        let digest = digest(&SHA256, joined.as_bytes());
        self.findings.tools_digest = Some(digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        match cursor {
            None => self.findings.checks.pass(Check::Tools, ""),
            Some(_) => {
                let detail = format!("only {MAX_PAGES} pages were read");
                self.findings.checks.note(Check::Tools, CheckStatus::Inconclusive, "too_many_pages", detail);
            }
        }
    }

    async fn notify(&mut self, opened: &Opened) {
        let body = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let mut ask = self.plain(Method::POST, Some(body), Value::Null);
        self.sign(&mut ask, opened);
        self.carrier.ask(ask).await;
    }

    /// Ends the session that the probe began.
    async fn close(&mut self) {
        if let Some((_, revision)) = &self.session {
            let opened = Opened::Legacy { revision: revision.clone() };
            let mut ask = self.plain(Method::DELETE, None, Value::Null);
            self.sign(&mut ask, &opened);
            self.carrier.ask(ask).await;
        }
    }

    async fn send(&mut self, opened: &Opened, method: &'static str, params: Value, hopeless: bool) -> Answer {
        let ask = match opened {
            Opened::Modern => self.modern(method, params, hopeless),
            Opened::Legacy { .. } => {
                let id = self.id();
                let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
                let mut ask = self.plain(Method::POST, Some(body), id);
                self.sign(&mut ask, opened);
                ask
            }
        };
        self.carrier.ask(ask).await
    }

    fn modern(&mut self, method: &'static str, mut params: Value, hopeless: bool) -> Ask {
        if let Some(params) = params.as_object_mut() {
            params.insert(
                "_meta".to_owned(),
                json!({
                    "io.modelcontextprotocol/protocolVersion": MODERN,
                    "io.modelcontextprotocol/clientInfo": client_info(),
                    "io.modelcontextprotocol/clientCapabilities": declared(self.expectation.elicitation),
                }),
            );
        }
        let id = self.id();
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let mut ask = self.plain(Method::POST, Some(body), id);
        ask.headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(MODERN));
        ask.headers.insert(MCP_METHOD, HeaderValue::from_static(method));
        ask.hopeless = hopeless;
        ask
    }

    fn initialize_with(&mut self, params: &Value, hopeless: bool) -> Ask {
        let id = self.id();
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": params });
        Ask { hopeless, ..self.plain(Method::POST, Some(body), id) }
    }

    fn plain(&self, method: Method, body: Option<Value>, id: Value) -> Ask {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if body.is_some() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        Ask { method, headers, body, id, hopeless: false }
    }

    /// Adds what a message after the handshake carries.
    fn sign(&self, ask: &mut Ask, opened: &Opened) {
        if let Opened::Legacy { revision } = opened
            && let Ok(revision) = HeaderValue::from_str(revision)
        {
            ask.headers.insert(PROTOCOL_VERSION, revision);
        }
        if let Some((id, _)) = &self.session {
            ask.headers.insert(SESSION_ID, id.clone());
        }
    }

    fn id(&mut self) -> Value {
        self.next += 1;
        Value::from(format!("exeat-probe-{}", self.next))
    }

    /// The server's answer, where one came; the checks of the way are noted by it.
    fn arrived<'r>(&mut self, answer: &'r Answer, asking: Check) -> Option<&'r HttpAnswer> {
        let tls = self.expectation.tls;
        let checks = &mut self.findings.checks;
        let mut reached = |until: Check| {
            for check in [Check::Resolve, Check::Connect, Check::Tls] {
                if check >= until {
                    break;
                }
                match check {
                    Check::Tls if !tls => checks.note(check, CheckStatus::NotRun, "plain_http", ""),
                    _ => checks.pass(check, ""),
                }
            }
        };
        match answer {
            Answer::Http(answer) => {
                reached(Check::Handshake);
                Some(answer)
            }
            Answer::Refused { reason, detail } => {
                let (check, status) = place(*reason, asking);
                reached(check);
                checks.note(check, status, reason.as_str(), detail.clone());
                None
            }
            Answer::Timeout => {
                checks.note(asking, CheckStatus::Error, "timeout", "no answer came in time");
                None
            }
            Answer::Broken(detail) => {
                checks.note(asking, CheckStatus::Error, "broken", detail.clone());
                None
            }
        }
    }

    /// Whether the server wants another credential than it got, or none of this caller for now.
    fn turned_away(&mut self, answer: &HttpAnswer) -> bool {
        let challenge = answer.field(header::WWW_AUTHENTICATE).unwrap_or_default();
        let checks = &mut self.findings.checks;
        let (reason, detail) = match answer.status {
            StatusCode::UNAUTHORIZED if !self.expectation.bound => {
                ("credential_required", "the server wants a credential, and none is bound".to_owned())
            }
            StatusCode::UNAUTHORIZED => {
                ("credential_rejected", "the server does not take the bound credential".to_owned())
            }
            StatusCode::FORBIDDEN if challenge.contains("insufficient_scope") => {
                ("insufficient_scope", "the bound credential is not good for this server".to_owned())
            }
            StatusCode::FORBIDDEN => ("forbidden", "the server refuses this caller".to_owned()),
            StatusCode::TOO_MANY_REQUESTS => {
                let detail = match answer.field(header::RETRY_AFTER) {
                    Some(after) => format!("the server wants no more requests; Retry-After: {after}"),
                    None => "the server wants no more requests".to_owned(),
                };
                checks.note(Check::Handshake, CheckStatus::Inconclusive, "rate_limited", detail);
                return true;
            }
            _ => return false,
        };
        checks.note(Check::Handshake, CheckStatus::Inconclusive, reason, "");
        checks.note(Check::Authorised, CheckStatus::Failed, reason, detail);
        true
    }

    fn redirected(&mut self, answer: &HttpAnswer) -> Verdict {
        let to = answer.field(header::LOCATION).unwrap_or_default();
        let to = to.split('?').next().unwrap_or_default();
        let detail = format!("status {}, to {to:?}; redirects are not followed", answer.status.as_u16());
        self.findings.checks.note(Check::Handshake, CheckStatus::Failed, "redirected", detail);
        Verdict::Stop
    }

    fn unusable(&mut self, answer: &HttpAnswer) -> Verdict {
        let (status, reason) = match answer.status.as_u16() {
            500.. => (CheckStatus::Error, "server_error"),
            404 | 405 => (CheckStatus::Failed, "not_mcp"),
            _ => match answer.content {
                Content::Message(Message::Error { .. }) => (CheckStatus::Failed, "mcp_error"),
                Content::TooLarge => (CheckStatus::Error, "too_large"),
                Content::Broken => (CheckStatus::Failed, "malformed"),
                _ => (CheckStatus::Failed, "not_mcp"),
            },
        };
        self.findings.checks.note(Check::Handshake, status, reason, describe(answer));
        Verdict::Stop
    }
}

/// Which check a refusal of the gateway belongs to, and how that went.
fn place(reason: Reason, asking: Check) -> (Check, CheckStatus) {
    use CheckStatus::{Error, Failed};
    match reason {
        Reason::NotAllowed | Reason::Blocked | Reason::DefaultDeny | Reason::Malformed | Reason::UnsupportedScheme => {
            (Check::Policy, Failed)
        }
        Reason::CredentialUnbound | Reason::CredentialUnavailable | Reason::CredentialInsecure => {
            (Check::Credential, Failed)
        }
        Reason::GuardAddress
        | Reason::GuardMetadata
        | Reason::GuardSelf
        | Reason::GuardPort
        | Reason::GuardName
        | Reason::DnsNotFound => (Check::Resolve, Failed),
        Reason::DnsFailed => (Check::Resolve, Error),
        Reason::ConnectRefused | Reason::ConnectFailed | Reason::UpstreamProxy => (Check::Connect, Failed),
        Reason::ConnectTimeout => (Check::Connect, Error),
        Reason::UpstreamTls => (Check::Tls, Failed),
        Reason::UpstreamProtocol | Reason::UpstreamTimeout => (asking, Error),
        _ => (asking, Error),
    }
}

/// Says what an answer was.
fn describe(answer: &HttpAnswer) -> String {
    let content = match &answer.content {
        Content::Message(Message::Result(_)) => "a result of another shape".to_owned(),
        Content::Message(Message::Error { code, .. }) => format!("error {code}"),
        Content::Empty => "no content".to_owned(),
        Content::OtherJson => "JSON that is no answer to the message".to_owned(),
        Content::Broken => "content that cannot be read".to_owned(),
        Content::Other => {
            let kind = answer.field(header::CONTENT_TYPE).unwrap_or("no content type");
            format!("content of another kind: {}", kind.chars().take(60).collect::<String>())
        }
        Content::TooLarge => "more content than is read".to_owned(),
    };
    format!("status {}, {content}", answer.status.as_u16())
}

fn client_info() -> Value {
    json!({ "name": "exeat-readiness", "version": env!("CARGO_PKG_VERSION") })
}

/// A server's name and version, cut to a length that fits a table.
fn server_version(info: &Value) -> Option<String> {
    let part = |key: &str| {
        let text = info.get(key)?.as_str()?;
        Some(text.chars().filter(|character| !character.is_control()).take(64).collect::<String>())
    };
    match (part("name"), part("version")) {
        (Some(name), Some(version)) => Some(format!("{name} {version}")),
        (name, version) => name.or(version),
    }
}

#[cfg(test)]
mod tests;
