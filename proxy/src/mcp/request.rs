//! What a client sends: passed, changed or refused.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use exeat_policy::Reason;
use http::{HeaderMap, HeaderName, Method, header};

use super::json::{self, Edits, Fault, Object};
use super::message::{Body, Message};
use super::policy::{Found, ServerPolicy};
use super::rpc::{Answer, Refused, RpcError, code};
use super::{
    BATCHES, META_CAPABILITIES, META_VERSION, METHOD, NAME, PROTOCOL_VERSION, SESSION_ID, STATELESS, elicitation,
};

/// The head of a request, as far as policy looks at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// The method.
    pub(crate) method: &'a Method,
    /// The fields.
    pub(crate) headers: &'a HeaderMap,
}

/// A body that may go on.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// What it was changed to; none where it goes on as it is.
    pub(crate) changed: Option<Vec<u8>>,
    /// The ids of its requests as they were written, for those whose answer turns out to be none.
    pub(crate) ids: Vec<String>,
    /// Whether it is an array.
    pub(crate) batch: bool,
}

/// Judges a request by its head.
///
/// # Errors
/// The refusal.
pub(crate) fn judge_head(found: &Found, asked: Asked<'_>, has_body: bool) -> Result<(), Refused> {
    let policy = &*found.policy;
    let version = version(asked)?;
    if *asked.method == Method::POST {
        return judge_encoding(policy, asked);
    }
    if policy.is_stateless() && matches!(*asked.method, Method::GET | Method::DELETE) && found.exact {
        let detail = format!("revision {STATELESS}, which the server is pinned to, has POST alone");
        return Err(Refused::problem(Reason::McpMethod, detail));
    }
    if let (Some(pin), Some(version)) = (policy.session_pin(), version)
        && version != pin
    {
        let error = RpcError::unsupported_version(None, pin, version);
        return Err(Refused::error(Reason::McpProtocol, true, error));
    }
    if !found.is_strict() {
        return Ok(());
    }
    if !matches!(*asked.method, Method::GET | Method::DELETE | Method::OPTIONS | Method::HEAD) {
        return Err(Refused::problem(Reason::McpMethod, format!("MCP has no method {}", asked.method)));
    }
    if has_body {
        let detail = format!("expected a {} without a body, as MCP has it", asked.method);
        return Err(Refused::problem(Reason::McpMalformed, detail));
    }
    Ok(())
}

/// Refuses a body that is coded where all that is written has to hold.
fn judge_encoding(policy: &ServerPolicy, asked: Asked<'_>) -> Result<(), Refused> {
    let coded = asked.headers.get_all(header::CONTENT_ENCODING).iter().any(|value| !is_identity(value.as_bytes()));
    if coded && policy.explicit {
        let detail = "expected a body without a content coding, found Content-Encoding";
        return Err(Refused::problem(Reason::McpEncoding, detail));
    }
    Ok(())
}

/// Whether a Content-Encoding codes nothing.
pub(crate) fn is_identity(coding: &[u8]) -> bool {
    let coding = coding.trim_ascii();
    coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")
}

/// Judges the body of a POST.
///
/// # Errors
/// The refusal.
pub(crate) fn judge_body(found: &Found, asked: Asked<'_>, bytes: &[u8]) -> Result<Judged, Refused> {
    let policy = &*found.policy;
    let malformed = |fault: &Fault| Refused::problem(Reason::McpMalformed, fault.to_string());
    if !found.is_strict() && !json::may_be_message(bytes) {
        return Ok(Judged::default());
    }
    let body = match json::parse(bytes).and_then(Body::read) {
        Err(fault) if fault.is_other_json() && !found.is_strict() => return Ok(Judged::default()),
        read => read.map_err(|fault| malformed(&fault))?,
    };
    let judge = Judge { policy, asked, version: version(asked)?, batch: body.is_batch() };
    if body.is_batch() {
        judge.batch_may_be(&body).map_err(|error| error.into_refused())?;
    }
    let mut edits = Edits::default();
    let mut refused = None;
    for message in body.messages() {
        if let Err(error) = judge.message(message, &mut edits) {
            refused.get_or_insert((error, message.request_id()));
        }
    }
    let ids: Vec<String> = body.messages().iter().filter_map(Message::request_id).map(str::to_owned).collect();
    match refused {
        None => {
            let changed = (!edits.is_empty()).then(|| edits.apply(bytes));
            Ok(Judged { changed, ids, batch: body.is_batch() })
        }
        Some((error, _)) if !body.is_batch() => Err(error.into_refused()),
        Some((error, id)) => Err(of_batch(error, id, &ids)),
    }
}

/// Refuses a whole batch for one of its messages.
fn of_batch(error: Wrong, culprit: Option<&str>, ids: &[String]) -> Refused {
    let mut refused = error.into_refused();
    if ids.is_empty() {
        return Refused { answer: Answer::Problem, ..refused };
    }
    let own = match refused.answer {
        Answer::Errors { errors, .. } => errors.into_iter().next(),
        Answer::Problem => None,
    };
    let others = |id: &String| {
        let message = format!("refused with the rest of its batch: {}", refused.detail);
        match &own {
            Some(own) if culprit == Some(id) => own.clone(),
            _ => RpcError::new(Some(id), code::BATCH, message),
        }
    };
    refused.answer = Answer::Errors { rejected: false, errors: ids.iter().map(others).collect(), batch: true };
    refused
}

/// What is wrong with a message.
#[derive(Debug)]
enum Wrong {
    Fault(Fault),
    Refused(Box<Refused>),
}

impl Wrong {
    fn into_refused(self) -> Refused {
        match self {
            Self::Fault(fault) => Refused::problem(Reason::McpMalformed, fault.to_string()),
            Self::Refused(refused) => *refused,
        }
    }
}

impl From<Fault> for Wrong {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Refused> for Wrong {
    fn from(refused: Refused) -> Self {
        Self::Refused(Box::new(refused))
    }
}

/// What the messages of one body are judged under.
struct Judge<'a> {
    policy: &'a ServerPolicy,
    asked: Asked<'a>,
    version: Option<&'a str>,
    batch: bool,
}

impl Judge<'_> {
    /// Batches were in one revision only. A session of that revision has no field for it, so none is asked for.
    fn batch_may_be(&self, body: &Body<'_>) -> Result<(), Wrong> {
        let refuse = |detail: &str| Err(Refused::problem(Reason::McpBatch, detail).into());
        let pin = self.policy.protocol.pinned();
        if pin.is_some_and(|pin| pin != BATCHES) || self.version.is_some_and(|version| version > BATCHES) {
            return refuse("expected one message, found an array: batches were in revision 2025-03-26 only");
        }
        if [&METHOD, &NAME].iter().any(|name| self.asked.headers.contains_key(*name)) {
            return refuse("expected one message under Mcp-Method or Mcp-Name, found an array");
        }
        for message in body.messages() {
            if message.method() == Some("initialize") {
                return refuse("expected initialize by itself, found it in a batch");
            }
            if message.meta()?.map_or(Ok(None), |meta| meta.get(META_VERSION))?.is_some() {
                return refuse("expected one message of a revision without sessions, found an array");
            }
        }
        Ok(())
    }

    fn message(&self, message: &Message<'_>, edits: &mut Edits) -> Result<(), Wrong> {
        if !self.batch {
            self.mirrored(message)?;
        }
        self.revision(message, edits)?;
        let (Some(method), id) = (message.method(), message.request_id()) else { return Ok(()) };
        match method {
            "tools/list" if !self.policy.discovery => {
                return Err(self.refused(Reason::McpDiscovery, code::DISCOVERY, id, "tools may not be listed").into());
            }
            "tools/call" if self.policy.restricts_tools() => self.tool(message, id)?,
            "initialize" => {
                if let Some(capabilities) = message.params().map_or(Ok(None), |it| it.object("capabilities"))? {
                    elicitation::cut_capabilities(self.policy.elicitation, capabilities, edits)?;
                }
            }
            _ => {}
        }
        if let Some(capabilities) = message.meta()?.map_or(Ok(None), |meta| meta.object(META_CAPABILITIES))? {
            elicitation::cut_capabilities(self.policy.elicitation, capabilities, edits)?;
        }
        Ok(())
    }

    fn refused(&self, reason: Reason, code: i64, id: Option<&str>, what: &str) -> Refused {
        let message = format!("{what}, by the gateway's policy for {:?}", self.policy.server);
        match id {
            Some(_) => Refused::error(reason, false, RpcError::new(id, code, message)),
            None => Refused::problem(reason, message),
        }
    }

    fn tool(&self, message: &Message<'_>, id: Option<&str>) -> Result<(), Wrong> {
        let name = message.params().map_or(Ok(None), |params| params.string("name"))?;
        let name = name.ok_or(Fault::NotAMessage("expected the name of a tool as a string"))?;
        if self.policy.permits_tool(&name) {
            return Ok(());
        }
        let name: String = name.chars().take(128).collect();
        let what = format!("the tool {name:?} may not be called");
        Err(self.refused(Reason::McpTool, code::TOOL, id, &what).into())
    }

    /// Holds a message to the pinned revision.
    fn revision(&self, message: &Message<'_>, edits: &mut Edits) -> Result<(), Wrong> {
        let Some(pin) = self.policy.protocol.pinned() else { return Ok(()) };
        let id = message.request_id();
        let refuse = |requested: &str| {
            let error = RpcError::unsupported_version(id, pin, requested);
            Err(Refused::error(Reason::McpProtocol, true, error).into())
        };
        let stated = message.meta()?.map_or(Ok(None), |meta| meta.get(META_VERSION))?;
        let stated = stated.map(|stated| stated.string().and_then(Result::ok).unwrap_or(Cow::Borrowed("unreadable")));
        if self.policy.is_stateless() {
            return match (message.method(), self.version) {
                (None, _) => Err(Fault::NotAMessage("expected a request or a notification, found an answer").into()),
                (Some("initialize"), _) => {
                    let proposed = message.params().map_or(Ok(None), |params| params.string("protocolVersion"))?;
                    refuse(proposed.as_deref().unwrap_or("none"))
                }
                (_, version) if version != Some(pin) => refuse(version.or(stated.as_deref()).unwrap_or("none")),
                (_, _) if self.asked.headers.contains_key(&SESSION_ID) => refuse("a revision with sessions"),
                (_, _) if id.is_some() && stated.as_deref() != Some(pin) => {
                    refuse(stated.as_deref().unwrap_or("none in _meta"))
                }
                (_, _) if stated.is_some_and(|stated| stated != pin) => refuse("another revision in _meta"),
                _ => Ok(()),
            };
        }
        if stated.is_some() || message.method() == Some("server/discover") {
            return refuse(stated.as_deref().or(self.version).unwrap_or(STATELESS));
        }
        if let Some(version) = self.version.filter(|version| *version != pin) {
            return refuse(version);
        }
        if message.method() == Some("initialize") {
            let proposed = message.params().map_or(Ok(None), |params| params.get("protocolVersion"))?;
            let proposed = proposed.filter(|proposed| proposed.kind() == json::Kind::String);
            let proposed = proposed.ok_or(Fault::NotAMessage("expected protocolVersion as a string"))?;
            if *proposed.string().ok_or(Fault::NotAMessage("expected a string"))?? != *pin {
                edits.replace(proposed.span(), format!("\"{pin}\""));
            }
        }
        Ok(())
    }

    /// Compares the fields that repeat what the message says. They are looked at whatever revision is spoken: who
    /// routes by them does not ask for it.
    fn mirrored(&self, message: &Message<'_>) -> Result<(), Wrong> {
        let mismatch = |name: &HeaderName, what: &str| {
            let text = format!("the field {name} does not say what the message says: {what}");
            let error = RpcError::new(message.request_id(), code::HEADER_MISMATCH, text);
            Err(Refused::error(Reason::McpHeader, true, error).into())
        };
        let (method, name) = (only(self.asked, &METHOD)?, only(self.asked, &NAME)?);
        if method.is_some() && method != message.method() {
            return mismatch(&METHOD, "another method");
        }
        let Some(name) = name else { return Ok(()) };
        let Some(key) = message.method().and_then(named_by) else {
            // What names things in a method that is not known cannot be compared.
            return match message.method() {
                Some("initialize" | "tools/list" | "server/discover") | None => mismatch(&NAME, "it names nothing"),
                Some(_) => Ok(()),
            };
        };
        let said = message.params().map_or(Ok(None), |params: Object<'_>| params.string(key))?;
        match (decoded(name), said) {
            (Some(name), Some(said)) if name == said => Ok(()),
            _ => mismatch(&NAME, "another name"),
        }
    }
}

/// The parameter that `Mcp-Name` repeats.
fn named_by(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" | "tasks/result" => Some("taskId"),
        _ => None,
    }
}

/// A field value, taken out of `=?base64?…?=` where it is in it; none where that cannot be read.
fn decoded(value: &str) -> Option<Cow<'_, str>> {
    match value.strip_prefix("=?base64?") {
        None => Some(Cow::Borrowed(value)),
        Some(coded) => {
            let bytes = BASE64.decode(coded.strip_suffix("?=")?).ok()?;
            String::from_utf8(bytes).ok().map(Cow::Owned)
        }
    }
}

/// The revision that the head names.
fn version<'a>(asked: Asked<'a>) -> Result<Option<&'a str>, Refused> {
    only(asked, &PROTOCOL_VERSION)
}

/// The value of a field that may be there once.
fn only<'a>(asked: Asked<'a>, name: &HeaderName) -> Result<Option<&'a str>, Refused> {
    let mut values = asked.headers.get_all(name).iter();
    match (values.next().map(|value| value.to_str()), values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value.trim())),
        _ => Err(Refused::problem(Reason::McpHeader, format!("expected the field {name} once and in ASCII"))),
    }
}

#[cfg(test)]
mod tests;
