//! Answers in the words of JSON-RPC.

use exeat_policy::Reason;
use serde_json::{Map, Value, json};

/// The codes of errors that are the gateway's own. The specification keeps -32768 to -32000 for others; clients show
/// code and message as they are.
pub(crate) mod code {
    /// The policy does not permit the tool.
    pub(crate) const TOOL: i64 = -31001;
    /// The policy does not let tools be listed.
    pub(crate) const DISCOVERY: i64 = -31002;
    /// The server asked the user something that the policy does not permit.
    pub(crate) const ELICITATION: i64 = -31003;
    /// The message stands in a batch that is refused.
    pub(crate) const BATCH: i64 = -31004;
    /// The server's answer cannot be judged.
    pub(crate) const ANSWER: i64 = -31005;
    /// The server answered in another revision than the one it is pinned to.
    pub(crate) const REVISION: i64 = -31006;

    /// The specification's own code for header fields that contradict the body.
    pub(crate) const HEADER_MISMATCH: i64 = -32020;
    /// The specification's own code for a revision that is not spoken.
    pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;
    /// The specification's own code for a request that needs the user first.
    pub(crate) const URL_ELICITATION_REQUIRED: i64 = -32042;
}

/// One error.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RpcError {
    /// The id of the request as it was written; `null` where there is none.
    pub(crate) id: String,
    /// See [`code`].
    pub(crate) code: i64,
    /// One sentence.
    pub(crate) message: String,
    /// What the specification has the error carry.
    pub(crate) data: Map<String, Value>,
}

impl RpcError {
    /// An error for the request `id`, or for one without.
    pub(crate) fn new(id: Option<&str>, code: i64, message: impl Into<String>) -> Self {
        Self { id: id.unwrap_or("null").to_owned(), code, message: message.into(), data: Map::new() }
    }

    /// The revision asked for is not spoken here: the answer by which clients of either era find the other one.
    pub(crate) fn unsupported_version(id: Option<&str>, supported: &str, requested: &str) -> Self {
        let message = format!("unsupported protocol version: this server is pinned to {supported}");
        let mut error = Self::new(id, code::UNSUPPORTED_VERSION, message);
        error.data.insert("supported".to_owned(), json!([supported]));
        error.data.insert("requested".to_owned(), json!(requested));
        error
    }

    /// The message, with `more` in its data.
    pub(crate) fn render(&self, more: &[(&str, Value)]) -> String {
        let mut data = self.data.clone();
        data.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
        let error = json!({ "code": self.code, "message": self.message, "data": data });
        format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, self.id)
    }
}

/// A refusal of what a client sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refused {
    /// Why.
    pub(crate) reason: Reason,
    /// What there is to say beyond that, fit for the client.
    pub(crate) detail: String,
    /// How it is answered.
    pub(crate) answer: Answer,
}

/// How a refusal is answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// As any other refusal, with the status of its reason: where no request waits, or none could be read.
    Problem,
    /// In JSON-RPC.
    Errors {
        /// Whether the HTTP request is refused too, as the specification has it for what fields and revision say; else
        /// the answer is one like any other.
        rejected: bool,
        /// One for each request.
        errors: Vec<RpcError>,
        /// Whether they go into an array.
        batch: bool,
    },
}

impl Refused {
    /// A refusal that is answered as any other.
    pub(crate) fn problem(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into(), answer: Answer::Problem }
    }

    /// A refusal that is answered with one error.
    pub(crate) fn error(reason: Reason, rejected: bool, error: RpcError) -> Self {
        let detail = error.message.clone();
        Self { reason, detail, answer: Answer::Errors { rejected, errors: vec![error], batch: false } }
    }
}

/// The bodies of several errors.
pub(crate) fn render(errors: &[RpcError], batch: bool, more: &[(&str, Value)]) -> String {
    let bodies: Vec<String> = errors.iter().map(|error| error.render(more)).collect();
    let bodies = bodies.join(",");
    if batch { format!("[{bodies}]") } else { bodies }
}

/// What the gateway answers a server in the place of the user, who is not asked.
pub(crate) fn cancelled(id: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"cancel"}}}}"#).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_the_id_as_it_was_written() {
        let error = RpcError::new(Some("1796021250357e-0"), code::TOOL, "no \"x\"");
        let text = error.render(&[("reason", json!("mcp_tool"))]);
        assert_eq!(
            text,
            r#"{"jsonrpc":"2.0","id":1796021250357e-0,"error":{"code":-31001,"message":"no \"x\"","data":{"reason":"mcp_tool"}}}"#
        );
        assert!(RpcError::new(None, code::TOOL, "x").render(&[]).contains(r#""id":null"#));
    }

    #[test]
    fn codes_of_our_own_are_outside_the_specification() {
        for code in [code::TOOL, code::DISCOVERY, code::ELICITATION, code::BATCH, code::ANSWER, code::REVISION] {
            assert!(!(-32768..=-32000).contains(&code), "{code}");
        }
    }

    #[test]
    fn an_unspoken_revision_is_answered_with_what_is_spoken() {
        let error = RpcError::unsupported_version(Some("\"a\""), "2025-06-18", "2026-07-28");
        let value: Value = serde_json::from_str(&error.render(&[])).unwrap();
        assert_eq!(value["id"], "a");
        assert_eq!(value["error"]["data"], json!({"supported": ["2025-06-18"], "requested": "2026-07-28"}));
    }
}
