//! What a server answered to one message of the probe.

use exeat_policy::Reason;
use http::{HeaderMap, StatusCode, header};
use serde_json::Value;

/// What came back for one message.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The gateway did not send it, or could not bring the answer.
    Refused {
        /// Why.
        reason: Reason,
        /// Why, for people.
        detail: String,
    },
    /// The server answered.
    Http(HttpAnswer),
    /// Nothing came in time.
    Timeout,
    /// The connection to the gateway itself failed.
    Broken(String),
}

/// A server's answer.
#[derive(Clone, Debug)]
pub(crate) struct HttpAnswer {
    /// Its status.
    pub(crate) status: StatusCode,
    /// Its fields.
    pub(crate) headers: HeaderMap,
    /// What its body is.
    pub(crate) content: Content,
}

/// What a body turned out to be.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// The answer to the message.
    Message(Message),
    /// Nothing.
    Empty,
    /// JSON that is no answer to the message.
    OtherJson,
    /// JSON or an event stream that breaks its own rules.
    Broken,
    /// A page, a text, or anything else.
    Other,
    /// More than the probe reads.
    TooLarge,
}

/// A JSON-RPC response.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// With a result.
    Result(Value),
    /// With an error.
    Error {
        /// The code.
        code: i64,
        /// What goes with it.
        data: Value,
    },
}

impl HttpAnswer {
    /// Reads an answer to the message of `id`; `body` is all of it, and none where it was too large.
    pub(crate) fn read(status: StatusCode, headers: HeaderMap, body: Option<&[u8]>, id: &Value) -> Self {
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let content = match body {
            None => Content::TooLarge,
            Some(body) if body.trim_ascii().is_empty() => Content::Empty,
            Some(body) if kind == "text/event-stream" => match EventStream::message(body, id) {
                Some(message) => Content::Message(message),
                None => Content::Broken,
            },
            Some(body) if kind == "application/json" || kind.ends_with("+json") || kind.is_empty() => json(body, id),
            Some(_) => Content::Other,
        };
        Self { status, headers, content }
    }

    /// The result in it.
    pub(crate) const fn result(&self) -> Option<&Value> {
        match &self.content {
            Content::Message(Message::Result(result)) => Some(result),
            _ => None,
        }
    }

    /// The code of the error in it.
    pub(crate) const fn error_code(&self) -> Option<i64> {
        match &self.content {
            Content::Message(Message::Error { code, .. }) => Some(*code),
            _ => None,
        }
    }

    /// The revisions that the error in it offers.
    pub(crate) fn supported(&self) -> Vec<&str> {
        let Content::Message(Message::Error { data, .. }) = &self.content else { return Vec::new() };
        let offers = data.get("supported").and_then(Value::as_array);
        offers.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// A field's text.
    pub(crate) fn field(&self, name: impl header::AsHeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

fn json(body: &[u8], id: &Value) -> Content {
    match serde_json::from_slice::<Value>(body) {
        Ok(value) => response_to(&value, id).map_or(Content::OtherJson, Content::Message),
        Err(_) => Content::Broken,
    }
}

/// The response to the message of `id`: an object that carries it, or an error that could not tell which message it is
/// for and so carries none or null.
fn response_to(value: &Value, id: &Value) -> Option<Message> {
    let object = value.as_object()?;
    if object.get("jsonrpc")?.as_str()? != "2.0" || object.contains_key("method") {
        return None;
    }
    let own = object.get("id").filter(|found| !found.is_null());
    if let Some(error) = object.get("error") {
        let code = error.get("code")?.as_i64()?;
        let data = error.get("data").cloned().unwrap_or_default();
        return (own.is_none() || own == Some(id)).then_some(Message::Error { code, data });
    }
    (own == Some(id)).then(|| object.get("result").cloned().map(Message::Result))?
}

/// Server-sent events (WHATWG HTML section 9.2), read as far as the probe needs them.
#[derive(Debug, Default)]
pub(crate) struct EventStream {
    line: Vec<u8>,
    data: String,
    after_carriage_return: bool,
}

impl EventStream {
    /// The response to the message of `id` in a whole stream.
    fn message(body: &[u8], id: &Value) -> Option<Message> {
        let mut stream = Self::default();
        stream.push(body, id).or_else(|| stream.push(b"\n\n", id))
    }

    /// Takes bytes in; gives the response to the message of `id` once it is there. Other messages are passed over:
    /// notifications, and requests of the server, which the probe does not answer.
    pub(crate) fn push(&mut self, bytes: &[u8], id: &Value) -> Option<Message> {
        for &byte in bytes {
            let follows = std::mem::replace(&mut self.after_carriage_return, byte == b'\r');
            match byte {
                b'\n' if follows => {}
                b'\n' | b'\r' => {
                    let line = std::mem::take(&mut self.line);
                    if let Some(message) = self.end_line(&line, id) {
                        return Some(message);
                    }
                }
                _ => self.line.push(byte),
            }
        }
        None
    }

    fn end_line(&mut self, line: &[u8], id: &Value) -> Option<Message> {
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            return response_to(&serde_json::from_str(&data).ok()?, id);
        }
        let line = String::from_utf8_lossy(line);
        if let Some(data) = line.strip_prefix("data:") {
            if !self.data.is_empty() {
                self.data.push('\n');
            }
            self.data.push_str(data.strip_prefix(' ').unwrap_or(data));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(content_type: &'static str, body: &str) -> Content {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        HttpAnswer::read(StatusCode::OK, headers, Some(body.as_bytes()), &"probe".into()).content
    }

    #[test]
    fn the_answer_is_found_in_json_and_in_events() {
        let answer = r#"{"jsonrpc":"2.0","id":"probe","result":{"x":1}}"#;
        let events = ": hello\r\nid: 1\r\ndata:\r\n\r\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"note\"}\n\n\
             data: {\"jsonrpc\":\"2.0\",\"id\":\"probe\",\ndata: \"result\":{\"x\":1}}\r\r";
        for (content_type, body) in
            [("application/json", answer), ("application/json; charset=utf-8", answer), ("text/event-stream", events)]
        {
            let Content::Message(Message::Result(result)) = read(content_type, body) else { panic!("{body}") };
            assert_eq!(result["x"], 1);
        }
    }

    #[test]
    fn events_are_read_wherever_they_are_split() {
        let body = b"data: {\"jsonrpc\":\"2.0\",\r\ndata: \"id\":\"probe\",\"result\":{}}\r\n\r\n";
        for split in 0..body.len() {
            let mut stream = EventStream::default();
            let (front, back) = body.split_at(split);
            let found = stream.push(front, &"probe".into()).or_else(|| stream.push(back, &"probe".into()));
            assert!(matches!(found, Some(Message::Result(_))), "{split}");
        }
    }

    #[test]
    fn what_is_no_answer_is_told_apart() {
        assert!(matches!(read("application/json", " "), Content::Empty));
        assert!(matches!(
            read("application/json", r#"{"jsonrpc":"2.0","id":"other","result":{}}"#),
            Content::OtherJson
        ));
        assert!(matches!(read("application/json", r#"{"error":"nope"}"#), Content::OtherJson));
        assert!(matches!(read("application/json", "<html>"), Content::Broken));
        assert!(matches!(read("text/event-stream", "data: {}\n\n"), Content::Broken));
        assert!(matches!(read("text/html", "<html>"), Content::Other));
        for id in ["null", "\"probe\""] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"no"}}}}"#);
            assert!(matches!(read("application/json", &body), Content::Message(Message::Error { code: -32601, .. })));
        }
        let body = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}"#;
        assert!(matches!(read("application/json", body), Content::OtherJson));
    }
}
