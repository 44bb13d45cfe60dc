//! What a server sends: passed, changed or withheld.

use exeat_policy::Reason;
use exeat_policy::manifest::ElicitationPolicy;

use super::elicitation;
use super::json::{self, Edits, Fault, Kind, Object, Value};
use super::message::{Body, Content, Message};
use super::policy::ServerPolicy;
use super::request::Judged;
use super::rpc::{self, RpcError, code};

/// What became of a document that a server sent.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Reviewed {
    /// What goes to the client.
    pub(crate) fate: Fate,
    /// What goes to the server, each as a message of its own, in the place of the client.
    pub(crate) answers: Vec<Vec<u8>>,
    /// What was not passed on as it came, and why.
    pub(crate) notes: Vec<Note>,
}

/// What goes to the client of a document.
#[derive(Debug, Default, PartialEq)]
pub(crate) enum Fate {
    /// All of it.
    #[default]
    Pass,
    /// This in its place.
    Rewrite(Vec<u8>),
    /// Nothing.
    Withhold,
}

/// Something that was not passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// Why.
    pub(crate) reason: Reason,
    /// What there is to say beyond that; nothing the server wrote is in it.
    pub(crate) detail: String,
}

impl Note {
    fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

/// Reviews a document: one message, an array of messages, or something that no client takes for either. `asked` is what
/// the stream or body that it stands in answers.
pub(crate) fn review(policy: &ServerPolicy, asked: &Judged, bytes: &[u8]) -> Reviewed {
    if !json::may_be_message(bytes) {
        return Reviewed::default();
    }
    match json::parse(bytes).and_then(|value| review_value(policy, value, bytes)) {
        Ok(reviewed) => reviewed,
        Err(fault) if fault.is_other_json() && !policy.explicit => Reviewed::default(),
        Err(fault) => unreadable(asked, &fault.to_string()),
    }
}

/// Puts errors in the place of what cannot be judged, for the requests that may wait for it.
pub(crate) fn unreadable(asked: &Judged, detail: &str) -> Reviewed {
    let message = format!("the server's answer was withheld, because it cannot be judged: {detail}");
    let errors: Vec<_> = asked.ids.iter().map(|id| RpcError::new(Some(id), code::ANSWER, message.clone())).collect();
    let fate = if errors.is_empty() {
        Fate::Withhold
    } else {
        Fate::Rewrite(rpc::render(&errors, asked.batch, &[("reason", Reason::McpAnswer.as_str().into())]).into_bytes())
    };
    Reviewed { fate, answers: Vec::new(), notes: vec![Note::new(Reason::McpAnswer, detail)] }
}

fn review_value(policy: &ServerPolicy, value: Value<'_>, bytes: &[u8]) -> Result<Reviewed, Fault> {
    let body = Body::read(value)?;
    let mut review = Review { policy, edits: Edits::default(), reviewed: Reviewed::default() };
    let mut withheld = Vec::new();
    for message in body.messages() {
        withheld.push(review.message(message)?);
    }
    let Review { mut edits, mut reviewed, .. } = review;
    if withheld.iter().all(|withheld| *withheld) {
        reviewed.fate = Fate::Withhold;
        return Ok(reviewed);
    }
    let all = body.messages().iter().zip(&withheld);
    edits.remove(all, |(message, _)| message.object.value().span(), |(_, withheld)| **withheld);
    if !edits.is_empty() {
        reviewed.fate = Fate::Rewrite(edits.apply(bytes));
    }
    Ok(reviewed)
}

struct Review<'a> {
    policy: &'a ServerPolicy,
    edits: Edits,
    reviewed: Reviewed,
}

impl Review<'_> {
    /// Reviews one message, and says whether it is withheld.
    fn message(&mut self, message: &Message<'_>) -> Result<bool, Fault> {
        match &message.content {
            Content::Call { method, params } => self.call(message, method, *params),
            Content::Result(result) => self.result(message, *result).map(|()| false),
            Content::Error(error) => self.error(message, *error).map(|()| false),
        }
    }

    fn call(&mut self, message: &Message<'_>, method: &str, params: Option<Object<'_>>) -> Result<bool, Fault> {
        if let Some(id) = message.request_id() {
            if self.policy.is_stateless() {
                self.note(Reason::McpProtocol, "a request of the server, which its revision does not have");
                return Ok(true);
            }
            if method == "elicitation/create" && !elicitation::permits(self.policy.elicitation, params)? {
                self.note(Reason::McpElicitation, "elicitation/create; the server is answered: cancel");
                self.reviewed.answers.push(rpc::cancelled(id));
                return Ok(true);
            }
        }
        let too_much = params.map_or(Ok(false), |params| self.asks_too_much(params, "task"))?;
        if too_much {
            self.note(Reason::McpElicitation, "inputRequests in a notification");
        }
        Ok(too_much)
    }

    fn result(&mut self, message: &Message<'_>, result: Value<'_>) -> Result<(), Fault> {
        let Some(object) = result.object() else { return Ok(()) };
        if self.asks_too_much(object, "task")? {
            let text = "the server asked the user something that policy does not permit";
            self.replace(message, Reason::McpElicitation, code::ELICITATION, text);
            return Ok(());
        }
        if let Some(pin) = self.policy.session_pin()
            && let Some(version) = object.get("protocolVersion")?
            && object.get("capabilities")?.is_some()
            && version.string().and_then(Result::ok).as_deref() != Some(pin)
        {
            let text = format!("the server is pinned to {pin} and answered in another revision");
            self.replace(message, Reason::McpProtocol, code::REVISION, &text);
            return Ok(());
        }
        if self.policy.restricts_tools() || !self.policy.discovery {
            self.tools(object)?;
        }
        Ok(())
    }

    /// Takes the tools out of a list that may not be seen. One without a name nobody could call.
    fn tools(&mut self, result: Object<'_>) -> Result<(), Fault> {
        let Some(list) = result.get("tools")?.filter(|list| list.kind() == Kind::Array) else { return Ok(()) };
        let mut tools = Vec::new();
        for tool in list.items().into_iter().flatten() {
            let name = tool.object().map_or(Ok(None), |tool| tool.string("name"))?;
            let hidden = !self.policy.discovery || !name.is_some_and(|name| self.policy.permits_tool(&name));
            tools.push((tool, hidden));
        }
        self.edits.remove(tools, |(tool, _)| tool.span(), |(_, hidden)| *hidden);
        Ok(())
    }

    fn error(&mut self, message: &Message<'_>, error: Value<'_>) -> Result<(), Fault> {
        let Some(object) = error.object() else { return Ok(()) };
        if self.policy.elicitation == ElicitationPolicy::UrlAndForm
            || object.get("code")?.and_then(|value| value.integer()) != Some(code::URL_ELICITATION_REQUIRED)
        {
            return Ok(());
        }
        let questions = object.object("data")?.map_or(Ok(None), |data| data.get("elicitations"))?;
        for question in questions.and_then(Value::items).into_iter().flatten() {
            if !elicitation::permits(self.policy.elicitation, question.object())? {
                let text = "the server wants the user first, in a way that policy does not permit";
                self.replace(message, Reason::McpElicitation, code::ELICITATION, text);
                return Ok(());
            }
        }
        Ok(())
    }

    fn asks_too_much(&self, holder: Object<'_>, inner: &'static str) -> Result<bool, Fault> {
        let policy = self.policy.elicitation;
        if policy == ElicitationPolicy::UrlAndForm {
            return Ok(false);
        }
        Ok(elicitation::asks_too_much(policy, holder)?
            || holder.object(inner)?.map_or(Ok(false), |inner| elicitation::asks_too_much(policy, inner))?)
    }

    fn replace(&mut self, message: &Message<'_>, reason: Reason, code: i64, text: &str) {
        let text = format!("{text}, says the gateway's policy for {:?}", self.policy.server);
        let error = RpcError::new(message.id.map(|id| id.raw()), code, text);
        self.edits.replace(message.object.value().span(), error.render(&[("reason", reason.as_str().into())]));
        self.note(reason, error.message);
    }

    fn note(&mut self, reason: Reason, detail: impl Into<String>) {
        self.reviewed.notes.push(Note::new(reason, detail));
    }
}

#[cfg(test)]
mod tests;
