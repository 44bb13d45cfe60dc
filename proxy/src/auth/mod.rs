//! Proxy authentication: who may use the gateway.
//!
//! Of a password or token only its digest is kept, and only digests are compared: each presented one with every known
//! one, in constant time, so that neither the time nor the order of the comparison tells anything about a name or a
//! secret.

mod limiter;

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::{HeaderMap, HeaderValue, header};
use ring::digest::{Context, SHA256};
use ring::rand::{SecureRandom as _, SystemRandom};
use secrecy::{ExposeSecret as _, SecretString};
use subtle::{ConditionallySelectable as _, ConstantTimeEq as _};
use zeroize::Zeroizing;

pub(crate) use limiter::Limiter;

use crate::config::Auth;
use crate::credentials::Stored;

/// Base64 with its padding or without: both are in use.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

type Digest = [u8; 32];

/// Who may use the gateway.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    users: Vec<Arc<Account>>,
    tokens: Vec<Arc<Account>>,
}

/// A name and the digest of what proves it. Two are equal where both are.
pub(crate) struct Account {
    name: Arc<str>,
    digest: Digest,
}

impl Account {
    /// What it is called in the log.
    pub(crate) const fn name(&self) -> &Arc<str> {
        &self.name
    }
}

impl PartialEq for Account {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && bool::from(self.digest.ct_eq(&other.digest))
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

/// What the names of sessions' users and sessions' tokens begin with, whichever gateway made them: who shows some is to
/// be in that session or nowhere.
const SESSION_USER: &str = "session-";
const SESSION_TOKEN: &str = "exeat-session-";

/// What proves somebody's identity, as a digest.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Proof {
    /// Of a name and a password.
    Password(Digest),
    /// Of a bearer token.
    Token(Digest),
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof")
    }
}

/// Proxy credentials that were made for a session.
pub(crate) struct SessionCredentials {
    /// The name that goes with the password.
    pub(crate) user: String,
    /// The password.
    pub(crate) password: SecretString,
    /// A bearer token, in place of both.
    pub(crate) token: SecretString,
}

impl SessionCredentials {
    /// Credentials that nobody can guess, for the session of this name.
    ///
    /// # Errors
    /// The system has no randomness.
    pub(crate) fn new(session: &str) -> Result<Self, ring::error::Unspecified> {
        let random = SystemRandom::new();
        let secret = |prefix: &str| -> Result<SecretString, ring::error::Unspecified> {
            let mut bytes = Zeroizing::new([0; 32]);
            random.fill(&mut *bytes)?;
            Ok(SecretString::from(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(*bytes))))
        };
        Ok(Self { user: format!("{SESSION_USER}{session}"), password: secret("")?, token: secret(SESSION_TOKEN)? })
    }

    /// What they are known by.
    pub(crate) fn proofs(&self) -> [Proof; 2] {
        let password = self.password.expose_secret().as_bytes();
        let token = self.token.expose_secret().as_bytes();
        [Proof::Password(password_digest(self.user.as_bytes(), password)), Proof::Token(digest(&[token]))]
    }
}

/// Credentials as a client presented them.
pub(crate) struct Credentials {
    /// None where they cannot be read.
    proof: Option<Proof>,
    of_a_session: bool,
}

impl Accounts {
    /// Reads every secret.
    ///
    /// # Errors
    /// Which one cannot be read, and why.
    pub(crate) fn load(config: &Auth) -> Result<Self, String> {
        let failed = |kind: &str, name: &str, error: &dyn fmt::Display| format!("[listen.auth] {kind}.{name}: {error}");
        let mut accounts = Self::default();
        for (name, source) in &config.users {
            let password = Stored::new(source).secret().map_err(|error| failed("users", name, &error))?;
            let digest = password_digest(name.as_bytes(), password.expose_secret().as_bytes());
            accounts.users.push(Arc::new(Account { name: name.as_str().into(), digest }));
        }
        for (name, source) in &config.tokens {
            let token = Stored::new(source).secret().map_err(|error| failed("tokens", name, &error))?;
            let digest = digest(&[token.expose_secret().as_bytes()]);
            accounts.tokens.push(Arc::new(Account { name: name.as_str().into(), digest }));
        }
        Ok(accounts)
    }

    /// Whether clients have to authenticate at all.
    pub(crate) fn required(&self) -> bool {
        !(self.users.is_empty() && self.tokens.is_empty())
    }

    /// The challenges of a 407 (RFC 9110 section 11.7.1): those that can be met, by users of the config or of `sessions`.
    pub(crate) fn challenges(&self, sessions: bool) -> impl Iterator<Item = HeaderValue> {
        let basic = sessions || !self.users.is_empty();
        let bearer = sessions || !self.tokens.is_empty();
        let basic = basic.then_some(HeaderValue::from_static(r#"Basic realm="exeat""#));
        let bearer = bearer.then_some(HeaderValue::from_static(r#"Bearer realm="exeat""#));
        basic.into_iter().chain(bearer)
    }

    /// The account that the credentials belong to.
    pub(crate) fn find(&self, credentials: &Credentials) -> Option<Arc<Account>> {
        match credentials.proof()? {
            Proof::Password(digest) => find(&self.users, digest),
            Proof::Token(digest) => find(&self.tokens, digest),
        }
    }

    /// Whether a client that was let in as `account`, by an earlier state of the config, would be let in now: its name
    /// and what proved it are still known, or nobody has to authenticate.
    pub(crate) fn admit(&self, account: Option<&Account>) -> bool {
        let known = || self.users.iter().chain(&self.tokens);
        !self.required() || account.is_some_and(|account| known().any(|other| **other == *account))
    }
}

/// Compares with all accounts, whichever is the right one.
fn find(accounts: &[Arc<Account>], digest: &Digest) -> Option<Arc<Account>> {
    let mut found = u64::MAX;
    for (index, account) in (0_u64..).zip(accounts) {
        found.conditional_assign(&index, account.digest.ct_eq(digest));
    }
    accounts.get(usize::try_from(found).ok()?).cloned()
}

impl Credentials {
    /// The credentials in Proxy-Authorization (RFC 9110 section 11.7.2): Basic (RFC 7617) or Bearer (RFC 6750). None
    /// where the field is not there.
    pub(crate) fn in_fields(headers: &HeaderMap) -> Option<Self> {
        let mut fields = headers.get_all(header::PROXY_AUTHORIZATION).iter();
        let field = fields.next()?.as_bytes();
        if fields.next().is_some() {
            return Some(Self::unreadable());
        }
        let end = field.iter().position(|&byte| byte == b' ').unwrap_or(field.len());
        let (scheme, rest) = field.split_at(end);
        let value = rest.trim_ascii();
        Some(if scheme.eq_ignore_ascii_case(b"Bearer") {
            Self {
                proof: Some(Proof::Token(digest(&[value]))),
                of_a_session: value.starts_with(SESSION_TOKEN.as_bytes()),
            }
        } else if scheme.eq_ignore_ascii_case(b"Basic") {
            match BASE64.decode(value).map(Zeroizing::new) {
                // The first colon ends the name (RFC 7617 section 2), and no name that is known has one.
                Ok(pair) if pair.contains(&b':') => Self {
                    proof: Some(Proof::Password(digest(&[&pair]))),
                    of_a_session: pair.starts_with(SESSION_USER.as_bytes()),
                },
                _ => Self::unreadable(),
            }
        } else {
            Self::unreadable()
        })
    }

    /// A name and a password as SOCKS5 carries them.
    pub(crate) fn password(name: &[u8], password: &[u8]) -> Self {
        // What comes in two parts must not be taken for another division of the same bytes.
        if name.contains(&b':') {
            return Self::unreadable();
        }
        let proof = Some(Proof::Password(password_digest(name, password)));
        Self { proof, of_a_session: name.starts_with(SESSION_USER.as_bytes()) }
    }

    const fn unreadable() -> Self {
        Self { proof: None, of_a_session: false }
    }

    /// What they prove.
    pub(crate) const fn proof(&self) -> Option<&Proof> {
        self.proof.as_ref()
    }

    /// Whether they were made for a session, be it one of this gateway or not.
    pub(crate) const fn are_of_a_session(&self) -> bool {
        self.of_a_session
    }
}

fn password_digest(name: &[u8], password: &[u8]) -> Digest {
    digest(&[name, b":", password])
}

fn digest(parts: &[&[u8]]) -> Digest {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(part);
    }
    let mut digest = Digest::default();
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::SecretSource;

    fn accounts() -> Accounts {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, secret: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, secret).unwrap();
            (name.to_owned(), SecretSource::File(path))
        };
        let config = Auth {
            users: BTreeMap::from([file("alice", "wonder:land\n"), file("bob", "builder")]),
            tokens: BTreeMap::from([file("ci", "t0ken")]),
        };
        Accounts::load(&config).unwrap()
    }

    fn found(fields: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(header::PROXY_AUTHORIZATION, HeaderValue::from_str(field).unwrap());
        }
        accounts().find(&Credentials::in_fields(&headers).unwrap()).map(|account| account.name.to_string())
    }

    fn basic(pair: &str) -> String {
        format!("Basic {}", BASE64.encode(pair))
    }

    #[test]
    fn right_credentials_have_a_name() {
        for (field, name) in [
            (basic("alice:wonder:land"), "alice"),
            (basic("bob:builder"), "bob"),
            (basic("bob:builder").replace('=', ""), "bob"),
            (basic("bob:builder").replace("Basic ", "bASIC  "), "bob"),
            ("Bearer t0ken".to_owned(), "ci"),
            ("bearer  t0ken ".to_owned(), "ci"),
        ] {
            assert_eq!(found(&[&field]).as_deref(), Some(name), "{field}");
        }
        let socks = |name: &str, password: &str| {
            let credentials = Credentials::password(name.as_bytes(), password.as_bytes());
            accounts().find(&credentials).map(|account| account.name.to_string())
        };
        assert_eq!(socks("alice", "wonder:land").as_deref(), Some("alice"));
        assert_eq!(socks("alice:wonder", "land"), None);
        assert_eq!(socks("ci", "t0ken"), None);
    }

    #[test]
    fn anything_else_has_none() {
        for field in [
            basic("alice:builder"),
            basic("alice:"),
            basic("alice"),
            basic("Bob:builder"),
            basic("bob:builder "),
            basic("ci:t0ken"),
            basic(":"),
            "Basic".to_owned(),
            "Basic !!!".to_owned(),
            "Basic bob:builder".to_owned(),
            "Bearer".to_owned(),
            "Bearer T0ken".to_owned(),
            "Bearer builder".to_owned(),
            "Digest username=bob".to_owned(),
            String::new(),
        ] {
            assert_eq!(found(&[&field]), None, "{field}");
        }
        assert_eq!(found(&["Bearer t0ken", "Bearer t0ken"]), None, "two fields are one too many");
    }

    #[test]
    fn what_can_be_met_is_asked_for_and_secrets_are_not_shown() {
        let accounts = accounts();
        assert_eq!(
            accounts.challenges(false).collect::<Vec<_>>(),
            [r#"Basic realm="exeat""#, r#"Bearer realm="exeat""#]
        );
        assert!(accounts.required() && !Accounts::default().required());
        assert_eq!(format!("{accounts:?}"), r#"Accounts { users: ["alice", "bob"], tokens: ["ci"] }"#);
        let missing = Auth {
            users: BTreeMap::from([("eve".to_owned(), SecretSource::File("absent".into()))]),
            ..Auth::default()
        };
        let error = Accounts::load(&missing).unwrap_err();
        assert!(error.starts_with("[listen.auth] users.eve: the file absent cannot be read"), "{error}");
    }
}
