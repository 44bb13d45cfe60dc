//! JSON-RPC messages (JSON-RPC 2.0 sections 4 to 6), as far as policy looks at them.

use std::borrow::Cow;

use super::json::{Fault, Kind, Object, Value, folds_to};

/// Methods that policy knows. One that differs from these only in what some servers overlook is refused.
const KNOWN: [&str; 11] = [
    "elicitation/create",
    "initialize",
    "prompts/get",
    "resources/read",
    "server/discover",
    "tasks/cancel",
    "tasks/get",
    "tasks/result",
    "tasks/update",
    "tools/call",
    "tools/list",
];

/// One message, where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Message<'a> {
    /// The whole message.
    pub(crate) object: Object<'a>,
    /// Its id, a string or a number; `null` only in an answer.
    pub(crate) id: Option<Value<'a>>,
    /// What it is.
    pub(crate) content: Content<'a>,
}

/// What a message is.
#[derive(Clone, Debug)]
pub(crate) enum Content<'a> {
    /// A request if the message has an id, else a notification.
    Call {
        /// The method.
        method: Cow<'a, str>,
        /// Its parameters; none where they are missing or `null`.
        params: Option<Object<'a>>,
    },
    /// An answer with a result.
    Result(Value<'a>),
    /// An answer with an error.
    Error(Value<'a>),
}

impl<'a> Message<'a> {
    /// Reads a value as a message.
    ///
    /// # Errors
    /// It is none, or more than one at once.
    pub(crate) fn read(value: Value<'a>) -> Result<Self, Fault> {
        let object = value.object().ok_or(Fault::NotAMessage("expected a message, found no object"))?;
        let id = object.get("id")?;
        let content = match (object.get("method")?, object.get("result")?, object.get("error")?) {
            (Some(method), None, None) => Self::call(object, method)?,
            (None, Some(result), None) => Content::Result(result),
            (None, None, Some(error)) => Content::Error(error),
            (None, None, None) => return Err(Fault::NotAMessage(NO_MESSAGE)),
            _ => return Err(Fault::NotAMessage("expected one of method, result and error, found several")),
        };
        let null_may_be = matches!(content, Content::Error(_));
        match id.map(|id| id.kind()) {
            None | Some(Kind::String | Kind::Number) => {}
            Some(Kind::Null) if null_may_be => {}
            Some(_) => return Err(Fault::NotAMessage("expected a string or a number as id, found something else")),
        }
        Ok(Self { object, id, content })
    }

    fn call(object: Object<'a>, method: Value<'a>) -> Result<Content<'a>, Fault> {
        let method = method.string().ok_or(Fault::NotAMessage("expected the method as a string"))??;
        let overlooked = |character: char| character.is_whitespace() || character.is_control();
        let plain = method.trim_matches(overlooked);
        if KNOWN.iter().any(|known| *known != method && folds_to(plain, known)) {
            return Err(Fault::NotAMessage("the method is a known one in another spelling"));
        }
        let params = match object.get("params")? {
            None => None,
            Some(params) if params.kind() == Kind::Null => None,
            Some(params) => {
                Some(params.object().ok_or(Fault::NotAMessage("expected params as an object, found something else"))?)
            }
        };
        Ok(Content::Call { method, params })
    }

    /// The method, where it is a request or a notification.
    pub(crate) fn method(&self) -> Option<&str> {
        match &self.content {
            Content::Call { method, .. } => Some(method),
            Content::Result(_) | Content::Error(_) => None,
        }
    }

    /// The parameters, where there are any.
    pub(crate) const fn params(&self) -> Option<Object<'a>> {
        match &self.content {
            Content::Call { params, .. } => *params,
            Content::Result(_) | Content::Error(_) => None,
        }
    }

    /// The id as it is written, where an answer is expected.
    pub(crate) fn request_id(&self) -> Option<&'a str> {
        self.method()?;
        self.id.map(|id| id.raw())
    }

    /// `params._meta`.
    ///
    /// # Errors
    /// As [`Object::get`].
    pub(crate) fn meta(&self) -> Result<Option<Object<'a>>, Fault> {
        self.params().map_or(Ok(None), |params| params.object("_meta"))
    }
}

/// What an object is that says nothing of JSON-RPC.
const NO_MESSAGE: &str = "expected a message, found an object without method, result and error";

impl Fault {
    /// Whether the document is good JSON that just is no message, so that nobody could take it for one.
    pub(crate) fn is_other_json(&self) -> bool {
        matches!(self, Self::NotAMessage(NO_MESSAGE))
    }
}

/// What a body holds.
#[derive(Debug)]
pub(crate) enum Body<'a> {
    /// One message.
    One(Message<'a>),
    /// An array of messages, at least one.
    Batch(Vec<Message<'a>>),
}

impl<'a> Body<'a> {
    /// Reads a checked document.
    ///
    /// # Errors
    /// As [`Message::read`], and an array of none.
    pub(crate) fn read(value: Value<'a>) -> Result<Self, Fault> {
        let Some(items) = value.items() else { return Message::read(value).map(Self::One) };
        let messages: Vec<_> = items.map(Message::read).collect::<Result<_, _>>()?;
        if messages.is_empty() {
            return Err(Fault::NotAMessage("expected messages, found an empty array"));
        }
        Ok(Self::Batch(messages))
    }

    /// The messages.
    pub(crate) fn messages(&self) -> &[Message<'a>] {
        match self {
            Self::One(message) => std::slice::from_ref(message),
            Self::Batch(messages) => messages,
        }
    }

    /// Whether it is an array.
    pub(crate) const fn is_batch(&self) -> bool {
        matches!(self, Self::Batch(_))
    }
}

#[cfg(test)]
mod tests {
    use super::super::json::parse;
    use super::*;

    fn read(text: &str) -> Result<String, Fault> {
        let message = Message::read(parse(text.as_bytes())?)?;
        let id = message.id.map_or("none", |id| id.raw()).to_owned();
        Ok(match message.content {
            Content::Call { method, params } => {
                format!("{id} {method} {}", params.map_or("none", |params| params.value().raw()))
            }
            Content::Result(result) => format!("{id} = {}", result.raw()),
            Content::Error(error) => format!("{id} ! {}", error.raw()),
        })
    }

    #[test]
    fn messages_are_told_apart() {
        for (text, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "1 ping none"),
            (
                r#"{"id":"a\u0062","method":"tools\/call","params":{"name":"x"}}"#,
                r#""a\u0062" tools/call {"name":"x"}"#,
            ),
            (r#"{"method":"notifications/initialized","params":null}"#, "none notifications/initialized none"),
            (r#"{"id":1796021250357,"result":{}}"#, "1796021250357 = {}"),
            (r#"{"id":null,"error":{"code":1}}"#, r#"null ! {"code":1}"#),
            (r#"{"\u006dethod":"ping","id":1e0}"#, "1e0 ping none"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_no_message() {
        for text in [
            "1",
            "{}",
            r#"{"id":1}"#,
            r#"{"id":1,"Method":"tools/call"}"#,
            r#"{"id":1,"method":"ping","METHOD":"tools/call"}"#,
            r#"{"id":1,"method":"ping","\u004dethod":"tools/call"}"#,
            r#"{"id":1,"method":"ping","param\u017f":{}}"#,
            r#"{"id":1,"method":"ping","result":{}}"#,
            r#"{"id":1,"method":["tools/call"]}"#,
            r#"{"id":null,"method":"ping"}"#,
            r#"{"id":{},"method":"ping"}"#,
            r#"{"id":null,"result":{}}"#,
            r#"{"id":1,"method":"tools/call","params":["x"]}"#,
            r#"{"id":1,"method":"Tools/Call"}"#,
            r#"{"id":1,"method":"tools/call "}"#,
            r#"{"id":1,"method":"tools/call\u0000"}"#,
            r#"{"id":1,"method":"tools/ca\u212al"}"#.replace("\\u212al", "ll\\u0020").as_str(),
            r#"{"id":1,"method":"tasks\/Get"}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read("{}").unwrap_err().is_other_json() && !read("1").unwrap_err().is_other_json());
    }

    #[test]
    fn a_body_is_one_message_or_some() {
        let body = |text: &'static str| Body::read(parse(text.as_bytes()).unwrap()).map(|body| body.messages().len());
        assert_eq!(body(r#"{"method":"a"}"#), Ok(1));
        assert_eq!(body(r#"[{"method":"a"}, {"method":"b","id":1}]"#), Ok(2));
        assert!(body("[]").is_err());
        assert!(body(r#"[[{"method":"a"}]]"#).is_err());
        assert!(body(r#"[{"method":"a"},1]"#).is_err());
    }
}
