//! Who is asking: proxy credentials, before anything is judged.

use std::sync::Arc;
use std::time::Instant;

use exeat_policy::Reason;
use http::{HeaderMap, HeaderValue, header};

use super::{Gate, Refusal};
use crate::auth::Credentials;
use crate::client::{Address, Client};

/// A client that is not let in.
#[derive(Debug)]
pub(crate) struct Unauthenticated {
    /// Why.
    pub(crate) refusal: Refusal,
    /// The fields that go with an answer of HTTP: how to authenticate, or when to try again.
    pub(crate) fields: HeaderMap,
}

impl Gate {
    /// Whether clients have to authenticate.
    pub(crate) fn authentication_required(&self) -> bool {
        self.current.get().accounts.required()
    }

    /// Finds out who a client is, where clients have to say so. Nothing that an address presents is looked at while
    /// too much of it was wrong.
    ///
    /// # Errors
    /// The credentials are missing or wrong, or not looked at.
    pub(crate) fn authenticate(
        &self,
        client: &mut Client,
        presented: impl FnOnce() -> Option<Credentials>,
    ) -> Result<(), Box<Unauthenticated>> {
        let snapshot = self.current.get();
        let accounts = &snapshot.accounts;
        if !accounts.required() || matches!(client.address, Address::Inner(_)) {
            return Ok(());
        }
        let mut fields = HeaderMap::new();
        let now = Instant::now();
        let missing = match presented() {
            None => true,
            Some(credentials) => {
                if let Some(wait) = self.wrong_credentials.wait(&client.address, now) {
                    fields.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
                    return Err(Box::new(Unauthenticated { refusal: Reason::AuthLimited.into(), fields }));
                }
                if let Some(account) = accounts.find(&credentials) {
                    client.user = Some(Arc::clone(account.name()));
                    client.account = Some(account);
                    return Ok(());
                }
                self.wrong_credentials.wrong(&client.address, now);
                false
            }
        };
        for challenge in accounts.challenges() {
            fields.append(header::PROXY_AUTHENTICATE, challenge);
        }
        let detail = if missing { "the gateway needs proxy credentials" } else { "the proxy credentials are wrong" };
        Err(Box::new(Unauthenticated { refusal: Refusal::new(Reason::ProxyAuth, detail), fields }))
    }
}
