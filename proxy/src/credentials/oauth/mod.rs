//! Access tokens of an authorization server (RFC 6749).
//!
//! Two grants need nobody to be there: the client's own credentials (section 4.4) and a refresh token (section 6). A
//! server may replace the refresh token with each use, and the old one is then worth nothing: the new one is on disk
//! before the access token that came with it is used. What cannot be written is kept and written before anything else
//! is asked of the server. One moment is beyond reach: a gateway that is killed after the server has replaced the token
//! and before its answer has arrived knows only the old one.

mod assertion;
mod call;
mod metadata;
mod store;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use exeat_policy::target::Target;
use http::{HeaderMap, HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use zeroize::Zeroizing;

use self::call::{Answer, Form, form_encoded};
use self::store::{Locked, Store};
use super::error::MintError;
use super::minted::Fresh;
use super::stored::{Stored, to_header};
use crate::config::{AuthorizationServer, ClientAuth, Grant, OAuthSource};
use crate::upstream::Route;

/// The life of a token whose server does not say (RFC 6749 section 5.1 only recommends it).
const UNSAID_LIFETIME: Duration = Duration::from_secs(300);
/// The longest life that is believed.
const LONGEST_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long the metadata of an issuer is believed.
const METADATA_LIFETIME: Duration = Duration::from_secs(3600);

/// A client of an authorization server.
#[derive(Debug)]
pub(super) struct OAuth {
    source: OAuthSource,
    /// The client's secret or private key.
    proof: Option<Stored>,
    /// The first refresh token, and where the later ones are.
    refresh: Option<(Stored, Store)>,
    /// The endpoint that metadata named, until when it is believed.
    endpoint: Mutex<Option<(Endpoint, Instant)>>,
    /// A refresh token that could not be written.
    unwritten: tokio::sync::Mutex<Option<SecretString>>,
}

/// Where tokens are asked for.
#[derive(Clone, Debug)]
struct Endpoint {
    target: Target,
    /// What an assertion names as its audience.
    audience: String,
}

/// An answer of a token endpoint (RFC 6749 sections 5.1 and 5.2).
#[derive(Deserialize)]
struct TokenAnswer {
    access_token: Option<String>,
    token_type: Option<String>,
    expires_in: Option<Value>,
    refresh_token: Option<String>,
    error: Option<String>,
}

impl OAuth {
    pub(super) fn new(source: &OAuthSource) -> Self {
        let proof = match &source.client_auth {
            ClientAuth::None => None,
            ClientAuth::Basic(secret) | ClientAuth::Post(secret) => Some(Stored::new(secret)),
            ClientAuth::PrivateKeyJwt { key, .. } => Some(Stored::new(key)),
        };
        let refresh = match &source.grant {
            Grant::ClientCredentials => None,
            Grant::RefreshToken { first, store } => Some((Stored::new(first), Store::new(store.clone()))),
        };
        let (endpoint, unwritten) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { source: source.clone(), proof, refresh, endpoint, unwritten }
    }

    /// Gets a token.
    pub(super) async fn mint(&self, route: &Route) -> Result<Fresh, MintError> {
        let endpoint = self.endpoint(route).await?;
        let Some((first, store)) = &self.refresh else {
            let form = Form::new(&[("grant_type", "client_credentials")]);
            return self.token(route, &endpoint, form).await.map(|(fresh, _)| fresh);
        };
        let lock = store.lock().await?;
        let mut unwritten = self.unwritten.lock().await;
        if let Some(token) = unwritten.as_ref() {
            lock.write(token, first).await?;
            *unwritten = None;
        }
        let current = lock.read(first)?;
        let mut form = Form::new(&[("grant_type", "refresh_token")]);
        form.push("refresh_token", current.expose_secret());
        let (fresh, next) = self.token(route, &endpoint, form).await?;
        if let Some(next) = next.filter(|next| next.expose_secret() != current.expose_secret()) {
            self.keep(&lock, next, first, &mut unwritten).await?;
        }
        Ok(fresh)
    }

    async fn keep(
        &self,
        lock: &Locked,
        next: SecretString,
        first: &Stored,
        unwritten: &mut Option<SecretString>,
    ) -> Result<(), MintError> {
        let written = lock.write(&next, first).await;
        if written.is_err() {
            *unwritten = Some(next);
        }
        written
    }

    /// Asks for a token: gives it, and the refresh token that the server wants to be used from now on.
    async fn token(
        &self,
        route: &Route,
        endpoint: &Endpoint,
        mut form: Form,
    ) -> Result<(Fresh, Option<SecretString>), MintError> {
        let OAuthSource { scopes, resource, .. } = &self.source;
        if !scopes.is_empty() {
            form.push("scope", &scopes.join(" "));
        }
        if let Some(resource) = resource {
            form.push("resource", &resource.written);
        }
        let mut headers = HeaderMap::new();
        self.authenticate(endpoint, &mut form, &mut headers)?;
        let answer = call::post(route, &endpoint.target, form, headers).await?;
        self.read(&answer)
    }

    /// Shows who the client is (RFC 6749 section 2.3.1, RFC 7523 section 2.2).
    fn authenticate(&self, endpoint: &Endpoint, form: &mut Form, headers: &mut HeaderMap) -> Result<(), MintError> {
        let id = &self.source.client_id;
        let proof = match &self.proof {
            Some(proof) => {
                Some(proof.secret().map_err(|error| MintError::new(format_args!("the client's own secret: {error}")))?)
            }
            None => None,
        };
        match (&self.source.client_auth, proof) {
            (ClientAuth::Basic(_), Some(secret)) => {
                let (id, secret) = (form_encoded(id), form_encoded(secret.expose_secret()));
                let pair = Zeroizing::new(format!("{}:{}", &*id, &*secret));
                let value = Zeroizing::new(format!("Basic {}", BASE64.encode(pair.as_bytes())));
                let mut value = HeaderValue::from_str(&value).map_err(MintError::new)?;
                value.set_sensitive(true);
                headers.insert(header::AUTHORIZATION, value);
            }
            (ClientAuth::Post(_), Some(secret)) => {
                form.push("client_id", id);
                form.push("client_secret", secret.expose_secret());
            }
            (ClientAuth::PrivateKeyJwt { key_id, .. }, Some(key)) => {
                let assertion = assertion::signed(key.expose_secret(), key_id.as_deref(), id, &endpoint.audience)?;
                form.push("client_id", id);
                form.push("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
                form.push("client_assertion", &assertion);
            }
            _ => form.push("client_id", id),
        }
        Ok(())
    }

    fn read(&self, answer: &Answer) -> Result<(Fresh, Option<SecretString>), MintError> {
        let parsed: Result<TokenAnswer, _> = serde_json::from_slice(&answer.body);
        // What serde says about an error may quote what it read.
        let Ok(TokenAnswer { access_token, token_type, expires_in, refresh_token, error }) = parsed else {
            return Err(MintError::new(format_args!(
                "the token endpoint answered {}, and no JSON of a token",
                answer.status
            )));
        };
        let access_token = access_token.map(Zeroizing::new).filter(|_| answer.status.is_success());
        let refresh_token = refresh_token.map(SecretString::from);
        let Some(access_token) = access_token.filter(|token| !token.is_empty()) else {
            let error =
                error.filter(|error| is_error_code(error)).map(|error| format!(" ({error})")).unwrap_or_default();
            return Err(MintError::new(format_args!("the token endpoint answered {}{error}", answer.status)));
        };
        if !token_type.is_some_and(|kind| kind.eq_ignore_ascii_case("Bearer")) {
            return Err(MintError::new("the token is not of the type Bearer"));
        }
        let scheme = &self.source.scheme;
        let value = Zeroizing::new(format!("{scheme}{}{}", if scheme.is_empty() { "" } else { " " }, &*access_token));
        let secret = SecretString::from(value.as_str());
        to_header(&secret).map_err(|_| MintError::new("the token holds a character that no header field may carry"))?;
        Ok((Fresh { secret, lifetime: lifetime(expires_in.as_ref()) }, refresh_token))
    }

    async fn endpoint(&self, route: &Route) -> Result<Endpoint, MintError> {
        let issuer = match &self.source.server {
            AuthorizationServer::TokenUrl(url) => {
                return Ok(Endpoint { target: url.target.clone(), audience: url.written.clone() });
            }
            AuthorizationServer::Issuer(issuer) => issuer,
        };
        let known = self.endpoint.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((endpoint, _)) = known.filter(|(_, until)| Instant::now() < *until) {
            return Ok(endpoint);
        }
        if let Some(resource) = &self.source.resource {
            metadata::check_resource(route, resource, issuer).await?;
        }
        let target = metadata::token_endpoint(route, issuer).await?;
        let endpoint = Endpoint { target, audience: issuer.written.clone() };
        let until = Instant::now() + METADATA_LIFETIME;
        *self.endpoint.lock().unwrap_or_else(PoisonError::into_inner) = Some((endpoint.clone(), until));
        Ok(endpoint)
    }
}

/// `expires_in` is a number of seconds; some servers write it as a string.
fn lifetime(written: Option<&Value>) -> Duration {
    let seconds = match written {
        Some(Value::Number(number)) => number.as_u64().or_else(|| number.as_f64().map(|seconds| seconds as u64)),
        Some(Value::String(text)) => text.parse().ok(),
        _ => None,
    };
    seconds.map_or(UNSAID_LIFETIME, Duration::from_secs).min(LONGEST_LIFETIME)
}

/// Whether a text is a code such as those of RFC 6749 section 5.2, and nothing that only stands in its place.
fn is_error_code(text: &str) -> bool {
    text.len() <= 40 && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::config::{Place, SecretSource};

    fn oauth() -> OAuth {
        let written = "https://as.test/token".to_owned();
        let place = Place { target: Target::parse(&written).unwrap(), written };
        OAuth::new(&OAuthSource {
            grant: Grant::ClientCredentials,
            server: AuthorizationServer::TokenUrl(place),
            client_id: "a b:c".to_owned(),
            client_auth: ClientAuth::Basic(SecretSource::Env("CARGO_PKG_NAME".to_owned())),
            scopes: Vec::new(),
            resource: None,
            scheme: "Bearer".to_owned(),
        })
    }

    fn read(status: u16, body: &str) -> Result<(String, u64), String> {
        let answer =
            Answer { status: StatusCode::from_u16(status).unwrap(), body: Zeroizing::new(body.as_bytes().to_vec()) };
        let read = oauth().read(&answer);
        read.map(|(fresh, _)| (fresh.secret.expose_secret().to_owned(), fresh.lifetime.as_secs()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn answers_are_read_as_the_standard_has_them() {
        for (body, expected) in [
            (r#"{"access_token":"t","token_type":"bearer","expires_in":60}"#, ("Bearer t", 60)),
            (r#"{"access_token":"t","token_type":"Bearer","expires_in":"60","scope":"x"}"#, ("Bearer t", 60)),
            (r#"{"access_token":"t","token_type":"Bearer","expires_in":59.9}"#, ("Bearer t", 59)),
            (r#"{"access_token":"t","token_type":"Bearer"}"#, ("Bearer t", 300)),
            (r#"{"access_token":"t","token_type":"Bearer","expires_in":99999999999}"#, ("Bearer t", 2_592_000)),
            (r#"{"access_token":"t","token_type":"Bearer","expires_in":-5}"#, ("Bearer t", 0)),
        ] {
            assert_eq!(read(200, body), Ok((expected.0.to_owned(), expected.1)), "{body}");
        }
    }

    #[test]
    fn anything_else_is_no_token_and_is_not_quoted() {
        for (status, body, expected) in [
            (
                400,
                r#"{"error":"invalid_grant","error_description":"canary"}"#,
                "answered 400 Bad Request (invalid_grant)",
            ),
            (400, r#"{"error":"canary canary"}"#, "answered 400 Bad Request"),
            (401, r#"{"access_token":"canary","token_type":"Bearer"}"#, "answered 401 Unauthorized"),
            (200, r#"{"access_token":"","token_type":"Bearer"}"#, "answered 200 OK"),
            (200, r#"{"access_token":"canary","token_type":"DPoP"}"#, "not of the type Bearer"),
            (200, r#"{"access_token":"canary"}"#, "not of the type Bearer"),
            (200, r#"{"access_token":"canary\nx","token_type":"Bearer"}"#, "no header field may carry"),
            (200, r#"{"access_token":"canary","access_token":"canary"}"#, "no JSON of a token"),
            (200, "access_token=canary", "no JSON of a token"),
            (302, "", "answered 302 Found, and no JSON of a token"),
        ] {
            let error = read(status, body).unwrap_err();
            assert!(error.contains(expected) && !error.contains("canary"), "{body}: {error}");
        }
    }

    #[test]
    fn a_client_shows_itself_form_encoded_in_basic() {
        let endpoint = Endpoint { target: Target::parse("https://as.test/").unwrap(), audience: String::new() };
        let (mut form, mut headers) = (Form::new(&[]), HeaderMap::new());
        oauth().authenticate(&endpoint, &mut form, &mut headers).unwrap();
        let value = headers.remove(header::AUTHORIZATION).unwrap();
        assert!(value.is_sensitive());
        assert_eq!(value, format!("Basic {}", BASE64.encode("a+b%3Ac:exeat")));
        assert_eq!(form.into_bytes().as_slice(), b"");
    }
}
