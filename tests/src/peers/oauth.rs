//! A real authorization server on loopback.

use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use rcgen::KeyPair;
use serde_json::{Value, json};
use tokio::process::Command;

use super::NodeDir;
use super::program::Program;
use crate::client::RawConn;

/// npm's `oidc-provider`, which replaces refresh tokens with each use and takes a second use of one for theft. Its
/// clients are `basic` (secret [`AuthorizationServer::BASIC_SECRET`]), `post` (`secret-post&x`), `signer` and
/// `user-app` (`secret-user-app`), whose user has consented already. It is killed when this is dropped.
#[derive(Debug)]
pub struct AuthorizationServer {
    program: Program,
    _dir: NodeDir,
}

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct TokenSettings {
    /// How long access tokens live, in seconds.
    pub lifetime: u32,
    /// The resource that tokens may be for.
    pub resource: Option<String>,
    /// The public keys of the client `signer`.
    pub jwks: Value,
}

impl Default for TokenSettings {
    fn default() -> Self {
        Self { lifetime: 600, resource: None, jwks: json!({ "keys": [] }) }
    }
}

/// A key that a client signs with (ES256).
#[derive(Debug)]
pub struct ClientKey(KeyPair);

impl Default for ClientKey {
    fn default() -> Self {
        Self(KeyPair::generate().unwrap())
    }
}

impl ClientKey {
    /// The private key: PKCS #8 in PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.serialize_pem()
    }

    /// The public key as a set of JSON Web Keys (RFC 7517 section 5).
    #[must_use]
    pub fn jwks(&self) -> Value {
        let point = self.0.public_key_raw();
        let coordinate = |from: usize| BASE64URL.encode(&point[from..from + 32]);
        json!({ "keys": [{ "kty": "EC", "crv": "P-256", "kid": "k1", "x": coordinate(1), "y": coordinate(33) }] })
    }
}

impl AuthorizationServer {
    /// The secret of the client `basic`: one that has to be encoded in every way there is.
    pub const BASIC_SECRET: &str = "s e:cret/+%=basic";

    /// Starts one.
    pub async fn start(settings: TokenSettings) -> Self {
        let dir = NodeDir::default();
        let TokenSettings { lifetime, resource, jwks } = settings;
        let settings = json!({ "lifetime": lifetime, "resource": resource, "jwks": jwks });
        let mut command = Command::new("node");
        command.arg(dir.script("authorization_server.mjs")).stderr(Stdio::null());
        let env = [("SETTINGS", &*settings.to_string())];
        let program = Program::start("an authorization server", &mut command, &env).await;
        Self { program, _dir: dir }
    }

    /// Its issuer identifier.
    #[must_use]
    pub fn issuer(&self) -> String {
        format!("http://127.0.0.1:{}", self.program.port())
    }

    /// Its token endpoint.
    #[must_use]
    pub fn token_url(&self) -> String {
        self.issuer() + "/token"
    }

    /// A refresh token of `user-app`, for one use.
    #[must_use]
    pub fn refresh_token(&self) -> &str {
        self.program.started()["refresh_token"].as_str().expect("a refresh token")
    }

    /// What it has answered at its token endpoint so far: `{"grant", "resource", "status", "error"}`.
    #[must_use]
    pub fn token_answers(&self) -> Vec<Value> {
        self.program.said().into_iter().filter(|answer| answer["path"] == "/token").collect()
    }

    /// What it says of a token that it has issued: `{"kind", "client", "audience", "scope"}`.
    pub async fn check(&self, token: &str) -> Value {
        let authority = format!("127.0.0.1:{}", self.program.port());
        let mut conn = RawConn::open(authority.parse().unwrap()).await;
        conn.get(&format!("/check?token={token}"), &authority).await.json()
    }
}
