//! Header fields and environment variables of servers: names, values, placeholders.
//!
//! A value is either literal or one whole placeholder `${NAME}`, which the gateway's config binds to a secret. There is
//! nothing in between, so no secret is ever pasted into a text whose rest an author chose.

use std::collections::HashMap;
use std::fmt;

use crate::diag::{Code, Span};
use crate::doc::{Field, Spanned, quoted};

/// One header field that is put on requests to a server.
#[derive(Clone, Debug)]
pub struct Header {
    /// Its name.
    pub name: Spanned<HeaderName>,
    /// Its value.
    pub value: Spanned<HeaderValueSpec>,
}

/// A field name (RFC 9110, section 5.1), lower-cased.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HeaderName(String);

impl HeaderName {
    /// The name in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HeaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A value before anything is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderValueSpec {
    /// The text itself: a field value of RFC 9110, section 5.5, without control characters other than tabs.
    Literal(String),
    /// The name of a binding, of `A-Z`, `a-z`, `0-9` and `_`.
    Placeholder(String),
}

impl HeaderValueSpec {
    /// The binding it needs, if it needs one.
    #[must_use]
    pub fn placeholder(&self) -> Option<&str> {
        match self {
            Self::Placeholder(name) => Some(name),
            Self::Literal(_) => None,
        }
    }
}

/// Fields that belong to the connection or frame the message (RFC 9110, sections 7.2 and 7.6.1; RFC 9112, section 6):
/// the gateway writes them itself.
const RESERVED: &[&str] = &[
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Reads a table of header fields: the manifest's, or one of the same shape in the gateway's config.
pub fn headers(field: Field<'_>) -> Vec<Header> {
    let problems = field.problems();
    let Some(fields) = field.fields() else { return Vec::new() };
    let mut seen: HashMap<String, Span> = HashMap::new();
    let mut headers = Vec::new();
    for (key, value) in fields.rest() {
        let name = header_name(&key, &value);
        let spec = value_spec(&key.value, &value);
        if let Some(name) = &name
            && let Some(first) = seen.insert(name.0.clone(), key.span)
        {
            let line = problems.source().position(first.start).line;
            let message = format!("{} is the same header as the one on line {line}", quoted(&key.value));
            problems.report(Code::HeaderTwice, key.span, message, "keep one; case makes no difference in a name");
        }
        if let (Some(name), Some(spec)) = (name, spec) {
            headers.push(Header { name: Spanned::new(name, key.span), value: Spanned::new(spec, value.span()) });
        }
    }
    headers
}

fn header_name(key: &Spanned<String>, field: &Field<'_>) -> Option<HeaderName> {
    let name = key.value.to_ascii_lowercase();
    let (message, help) = if name.is_empty() || !name.bytes().all(is_token) {
        let message = format!("{} is not a header name", quoted(&key.value));
        (message, "write letters, digits and hyphens, such as `X-Team`")
    } else if RESERVED.contains(&name.as_str()) {
        let message = format!("{} belongs to the connection, and the gateway writes it itself", quoted(&key.value));
        (message, "remove it")
    } else {
        return Some(HeaderName(name));
    };
    field.problems().report(Code::HeaderName, key.span, message, help);
    None
}

/// `tchar` of RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Reads a value of a header or environment variable called `name`; no header holds a control character.
fn value_spec(name: &str, field: &Field<'_>) -> Option<HeaderValueSpec> {
    let spec = variable(name, field)?;
    if let HeaderValueSpec::Literal(text) = &spec
        && let Some(control) = text.chars().find(|&character| character.is_ascii_control() && character != '\t')
    {
        let message = format!("{} holds U+{:04X}, which no header value may", quoted(name), u32::from(control));
        field.report(Code::HeaderValue, message, "remove line breaks and other control characters");
        return None;
    }
    Some(spec)
}

/// Reads a value that is literal or a placeholder; a name that stands for a credential needs a placeholder.
pub(super) fn variable(name: &str, field: &Field<'_>) -> Option<HeaderValueSpec> {
    let text = field.str()?.value;
    if let Some(inside) = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'))
        && !inside.is_empty()
        && inside.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    {
        return Some(HeaderValueSpec::Placeholder(inside.to_owned()));
    }
    let suggested = format!("${{{}}}", placeholder_name(name));
    if text.contains("${") {
        let message = format!("the value of {} has `${{` in it and is not one whole placeholder", quoted(name));
        let help = format!("write \"{suggested}\" alone, NAME of A-Z a-z 0-9 _, and bind the whole value");
        field.report(Code::Placeholder, message, help);
        return None;
    }
    if names_credential(name) {
        let message = format!("{} holds a credential, and the manifest is no place for one", quoted(name));
        let help = format!("write \"{suggested}\" and bind the name in the gateway's config");
        field.report(Code::LiteralCredential, message, help);
        return None;
    }
    Some(HeaderValueSpec::Literal(text.to_owned()))
}

/// Whether a name says that its value is a credential.
pub(super) fn names_credential(name: &str) -> bool {
    const WHOLE: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];
    const PART: [&str; 7] = ["token", "secret", "password", "api-key", "api_key", "apikey", "auth"];
    let name = name.to_ascii_lowercase();
    WHOLE.contains(&name.as_str()) || PART.iter().any(|part| name.contains(part))
}

/// A binding's name made from a header's: `X-Api-Key` becomes `X_API_KEY`.
fn placeholder_name(name: &str) -> String {
    let letter = |character: char| if character.is_ascii_alphanumeric() { character.to_ascii_uppercase() } else { '_' };
    match name.chars().take(40).map(letter).collect::<String>() {
        name if name.is_empty() => "NAME".to_owned(),
        name => name,
    }
}
