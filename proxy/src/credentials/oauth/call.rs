//! Calls to an authorization server: over TLS, to a checked address, with no redirect followed and an answer of bounded
//! size.

use std::time::Duration;

use bytes::Bytes;
use exeat_policy::target::Target;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use zeroize::Zeroizing;

use super::super::error::MintError;
use crate::permit;
use crate::upstream::{self, Route};

/// The largest answer, in bytes.
const MAX_ANSWER: usize = 256 * 1024;
/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A form (WHATWG URL standard, `application/x-www-form-urlencoded`), which is forgotten when it has been sent.
pub(super) struct Form(Zeroizing<Vec<u8>>);

/// An answer.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Zeroizing<Vec<u8>>,
}

impl Form {
    pub(super) fn new(fields: &[(&str, &str)]) -> Self {
        let mut form = Self(Zeroizing::new(Vec::with_capacity(4096)));
        fields.iter().for_each(|(name, value)| form.push(name, value));
        form
    }

    pub(super) fn push(&mut self, name: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push(b'&');
        }
        encode(name, &mut self.0);
        self.0.push(b'=');
        encode(value, &mut self.0);
    }

    pub(super) fn into_bytes(self) -> Zeroizing<Vec<u8>> {
        self.0
    }
}

/// A text in the encoding of forms.
pub(super) fn form_encoded(text: &str) -> Zeroizing<String> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(3 * text.len()));
    encode(text, &mut bytes);
    Zeroizing::new(bytes.iter().map(|&byte| char::from(byte)).collect())
}

fn encode(text: &str, to: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |value: u8| HEX.get(usize::from(value)).copied().unwrap_or(b'0');
    for byte in text.bytes() {
        match byte {
            b'*' | b'-' | b'.' | b'_' => to.push(byte),
            byte if byte.is_ascii_alphanumeric() => to.push(byte),
            b' ' => to.push(b'+'),
            byte => to.extend([b'%', digit(byte >> 4), digit(byte & 15)]),
        }
    }
}

/// Sends a form.
pub(super) async fn post(
    route: &Route,
    target: &Target,
    form: Form,
    mut headers: HeaderMap,
) -> Result<Answer, MintError> {
    let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
    headers.insert(header::CONTENT_TYPE, kind);
    call(route, target, Method::POST, headers, Bytes::from_owner(form.into_bytes())).await
}

/// Asks for a document.
pub(super) async fn get(route: &Route, target: &Target) -> Result<Answer, MintError> {
    call(route, target, Method::GET, HeaderMap::new(), Bytes::new()).await
}

async fn call(
    route: &Route,
    target: &Target,
    method: Method,
    mut headers: HeaderMap,
    body: Bytes,
) -> Result<Answer, MintError> {
    let refused = |reason: exeat_policy::Reason| MintError::new(format_args!("{target}: {}", reason.text()));
    let permit = permit::own_call(&route.guard, target).map_err(refused)?;
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let bounds = upstream::Bounds { bytes: MAX_ANSWER, time: PATIENCE };
    let answer = upstream::fetch(route, &permit, upstream::Message { method, target, headers, body }, bounds).await;
    let (status, body) = answer.map_err(|failure| {
        MintError::new(format_args!("{}://{}: {}", target.scheme(), target.authority(), failure.inside))
    })?;
    if status.is_redirection() {
        return Err(MintError::new(format_args!("{target} answered {status}, and redirects are not followed")));
    }
    Ok(Answer { status, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_encoded_as_servers_decode_them() {
        let form = Form::new(&[("a b", "1+1=2&x"), ("ü", "*-._~%")]);
        assert_eq!(form.into_bytes().as_slice(), b"a+b=1%2B1%3D2%26x&%C3%BC=*-._%7E%25");
        assert_eq!(*form_encoded("p:w d"), "p%3Aw+d");
    }
}
