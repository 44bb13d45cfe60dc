//! Who is asking, and in which session, before anything is judged.

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
        self.session.is_base() && self.current.get().accounts.required()
    }

    /// Whether credentials say which session a client belongs to, where it has some.
    pub(crate) fn credentials_matter(&self) -> bool {
        self.session.is_base() && (self.directory.is_used() || self.current.get().accounts.required())
    }

    /// The gate of the session that all of a connection belongs to: by the user at the other end of a Unix socket, or by
    /// the name in a certificate, which is all that `client` can be known by so far.
    pub(crate) fn of_connection(self: &Arc<Self>, client: &Client) -> Arc<Self> {
        let found = if self.session.is_base() { self.directory.by_connection(client) } else { None };
        found.unwrap_or_else(|| Arc::clone(self))
    }

    /// Finds out who a client is, where clients have to say so or do, and gives the gate of its session. Who comes to a
    /// session's own listener is of that session, whatever it presents. Nothing that an address presents is looked at
    /// while too much of it was wrong.
    ///
    /// # Errors
    /// The credentials are missing or wrong, or not looked at.
    pub(crate) fn authenticate(
        self: &Arc<Self>,
        client: &mut Client,
        presented: impl FnOnce() -> Option<Credentials>,
    ) -> Result<Arc<Self>, Box<Unauthenticated>> {
        let own = || Ok(Arc::clone(self));
        if !self.session.is_base() || matches!(client.address, Address::Inner(_)) {
            return own();
        }
        let snapshot = self.current.get();
        let accounts = &snapshot.accounts;
        let mut fields = HeaderMap::new();
        let now = Instant::now();
        let missing = match presented() {
            None if !accounts.required() => return own(),
            None => true,
            Some(credentials) => {
                if !(accounts.required() || self.directory.is_used() || credentials.are_of_a_session()) {
                    return own();
                }
                if let Some(wait) = self.wrong_credentials.wait(&client.address, now) {
                    fields.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
                    return Err(Box::new(Unauthenticated { refusal: Reason::AuthLimited.into(), fields }));
                }
                if let Some(gate) = self.directory.by_credentials(&credentials) {
                    client.user = Some(gate.session.user());
                    return Ok(gate);
                }
                if let Some(account) = accounts.find(&credentials) {
                    client.user = Some(Arc::clone(account.name()));
                    client.account = Some(account);
                    return own();
                }
                self.wrong_credentials.wrong(&client.address, now);
                false
            }
        };
        for challenge in accounts.challenges(self.directory.is_used()) {
            fields.append(header::PROXY_AUTHENTICATE, challenge);
        }
        let detail = if missing { "the gateway needs proxy credentials" } else { "the proxy credentials are wrong" };
        Err(Box::new(Unauthenticated { refusal: Refusal::new(Reason::ProxyAuth, detail), fields }))
    }
}
