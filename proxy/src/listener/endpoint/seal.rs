//! Session ids that are good for one client.
//!
//! Who knows the id of a session may use the session. Behind an endpoint that several clients share, an id is therefore
//! given out with a seal over it, the server and the client, and taken from that client alone. Nothing has to be
//! remembered for it, however many sessions there are.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use exeat_policy::Reason;
use http::{HeaderMap, HeaderValue};
use ring::{hmac, rand};

use crate::gate::Refusal;
use crate::mcp::SESSION_ID;

/// Seals session ids.
#[derive(Debug)]
pub(super) struct Seal(hmac::Key);

impl Seal {
    /// A seal like no other.
    pub(super) fn new() -> Self {
        let random = rand::SystemRandom::new();
        let mut bytes = [0; 32];
        // Where the system has no randomness, no TLS works either; the seal of zeros is then as good as none.
        let _ = rand::SecureRandom::fill(&random, &mut bytes);
        Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
    }

    /// Puts a seal to the id that an answer gives out. One that cannot be written again is left out.
    pub(super) fn close(&self, server: &str, owner: Option<&str>, headers: &mut HeaderMap) {
        let Some(id) = headers.remove(&SESSION_ID) else { return };
        let tag = hmac::sign(&self.0, &message(server, owner, id.as_bytes()));
        let sealed = [id.as_bytes(), b".", BASE64.encode(tag).as_bytes()].concat();
        if let Ok(sealed) = HeaderValue::from_bytes(&sealed) {
            headers.insert(SESSION_ID, sealed);
        }
    }

    /// Takes the seal off the id that a request names.
    ///
    /// # Errors
    /// The id was not given out to this client for this server.
    pub(super) fn open(&self, server: &str, owner: Option<&str>, headers: &mut HeaderMap) -> Result<(), Refusal> {
        let mut named = headers.get_all(&SESSION_ID).iter();
        let (Some(sealed), another) = (named.next(), named.next()) else { return Ok(()) };
        if another.is_some() {
            return Err(Refusal::new(Reason::McpHeader, "expected the field mcp-session-id once"));
        }
        let id = self.opened(server, owner, sealed.as_bytes()).and_then(|id| HeaderValue::from_bytes(id).ok());
        match id {
            Some(id) => {
                headers.insert(SESSION_ID, id);
                Ok(())
            }
            None => Err(Refusal::new(Reason::McpSession, "open a session anew: this one is unknown here")),
        }
    }

    fn opened<'s>(&self, server: &str, owner: Option<&str>, sealed: &'s [u8]) -> Option<&'s [u8]> {
        let dot = memchr::memrchr(b'.', sealed)?;
        let (id, tag) = (sealed.get(..dot)?, BASE64.decode(sealed.get(dot + 1..)?).ok()?);
        hmac::verify(&self.0, &message(server, owner, id), &tag).ok().map(|()| id)
    }
}

/// What a seal is over: each part with its length, so that no two mean the same.
fn message(server: &str, owner: Option<&str>, id: &[u8]) -> Vec<u8> {
    let mut message = vec![u8::from(owner.is_some())];
    for part in [server.as_bytes(), owner.unwrap_or_default().as_bytes(), id] {
        message.extend_from_slice(&(part.len() as u64).to_be_bytes());
        message.extend_from_slice(part);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(id: &HeaderValue) -> HeaderMap {
        HeaderMap::from_iter([(SESSION_ID, id.clone())])
    }

    #[test]
    fn an_id_is_good_for_the_client_it_was_given_to() {
        let seal = Seal::new();
        let id = HeaderValue::from_static("abc.def");
        let mut answer = headers(&id);
        seal.close("docs", Some("ann"), &mut answer);
        let sealed = answer[&SESSION_ID].clone();
        assert!(sealed.to_str().unwrap().starts_with("abc.def."));
        let mut request = headers(&sealed);
        seal.open("docs", Some("ann"), &mut request).unwrap();
        assert_eq!(request[&SESSION_ID], id);
        let others = [("docs", Some("bob")), ("docs", None), ("other", Some("ann"))];
        for (server, owner) in others {
            let refusal = seal.open(server, owner, &mut headers(&sealed)).unwrap_err();
            assert_eq!(refusal.reason, Reason::McpSession, "{server} {owner:?}");
        }
        assert!(Seal::new().open("docs", Some("ann"), &mut headers(&sealed)).is_err(), "another gateway's");
        for forged in ["abc.def", "abc.def.", "", ".", "abc.xyz.AAAA"] {
            assert!(seal.open("docs", Some("ann"), &mut headers(&HeaderValue::from_static(forged))).is_err());
        }
        assert!(seal.open("docs", None, &mut HeaderMap::new()).is_ok());
        let mut twice = headers(&sealed);
        twice.append(SESSION_ID, sealed);
        assert_eq!(seal.open("docs", Some("ann"), &mut twice).unwrap_err().reason, Reason::McpHeader);
    }

    #[test]
    fn parts_are_kept_apart() {
        assert_ne!(message("a", Some("bc"), b"d"), message("ab", Some("c"), b"d"));
        assert_ne!(message("a", Some("b"), b"cd"), message("a", Some("bc"), b"d"));
        assert_ne!(message("a", None, b"d"), message("a", Some(""), b"d"));
    }
}
