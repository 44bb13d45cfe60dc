//! Where secrets come from, and how they are kept from coming back.

use std::path::{Path, PathBuf};
use std::time::Duration;

use exeat_policy::target::Target;

/// Where a placeholder's value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    /// A place that holds it.
    Stored(SecretSource),
    /// What a program prints.
    Command(CommandSource),
    /// An access token of an authorization server.
    OAuth(Box<OAuthSource>),
}

impl Binding {
    /// The places that hold what it needs.
    pub(super) fn secrets(&self) -> Vec<&SecretSource> {
        match self {
            Self::Stored(source) => vec![source],
            Self::Command(_) => Vec::new(),
            Self::OAuth(source) => source.secrets(),
        }
    }

    /// The variables that its program sees beside the usual ones.
    pub(super) fn passed_variables(&self) -> &[String] {
        match self {
            Self::Command(source) => &source.pass_env,
            Self::Stored(_) | Self::OAuth(_) => &[],
        }
    }

    /// The file that it writes, if it writes one.
    pub(crate) fn store(&self) -> Option<&Path> {
        match self {
            Self::OAuth(source) => match &source.grant {
                Grant::RefreshToken { store, .. } => Some(store),
                Grant::ClientCredentials => None,
            },
            Self::Stored(_) | Self::Command(_) => None,
        }
    }
}

/// A place that holds a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// An environment variable of the gateway, read at start and on reload.
    Env(String),
    /// A file, read again when it changes; one line end at its end is not part of the value.
    File(PathBuf),
}

impl SecretSource {
    /// The file, where it is one.
    pub(crate) fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::Env(_) => None,
            Self::File(path) => Some(path),
        }
    }
}

/// A program that prints a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSource {
    /// The program, by a path or a name that PATH leads to.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// How long what it printed is used.
    pub ttl: Duration,
    /// How long it may take.
    pub timeout: Duration,
    /// Variables of the gateway's environment that it sees beside the usual ones.
    pub pass_env: Vec<String>,
}

/// An access token of an authorization server (RFC 6749).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuthSource {
    /// What is shown for it.
    pub grant: Grant,
    /// Who issues it.
    pub server: AuthorizationServer,
    /// `client_id` (RFC 6749 section 2.2).
    pub client_id: String,
    /// How the gateway proves that it is this client.
    pub client_auth: ClientAuth,
    /// The scopes asked for (RFC 6749 section 3.3); none for the server's default.
    pub scopes: Vec<String>,
    /// The resource the token is for (RFC 8707 section 2).
    pub resource: Option<Place>,
    /// The authentication scheme in front of the token in the field; empty for the token alone.
    pub scheme: String,
}

impl OAuthSource {
    /// The places of the secrets that it is made with.
    fn secrets(&self) -> Vec<&SecretSource> {
        let client = match &self.client_auth {
            ClientAuth::None => None,
            ClientAuth::Basic(secret) | ClientAuth::Post(secret) => Some(secret),
            ClientAuth::PrivateKeyJwt { key, .. } => Some(key),
        };
        let first = match &self.grant {
            Grant::ClientCredentials => None,
            Grant::RefreshToken { first, .. } => Some(first),
        };
        client.into_iter().chain(first).collect()
    }

    /// The files with secrets in them that it depends on.
    pub(crate) fn secret_files(&self) -> Vec<PathBuf> {
        let store = match &self.grant {
            Grant::ClientCredentials => None,
            Grant::RefreshToken { store, .. } => Some(store),
        };
        let files = self.secrets().into_iter().filter_map(|secret| match secret {
            SecretSource::Env(_) => None,
            SecretSource::File(path) => Some(path),
        });
        files.chain(store).cloned().collect()
    }
}

/// A grant that needs nobody to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grant {
    /// The client's own credentials (RFC 6749 section 4.4).
    ClientCredentials,
    /// A refresh token (RFC 6749 section 6).
    RefreshToken {
        /// Holds the first one.
        first: SecretSource,
        /// The file for those that the server replaces it with.
        store: PathBuf,
    },
}

/// Where tokens are issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthorizationServer {
    /// The token endpoint itself.
    TokenUrl(Place),
    /// The issuer, whose metadata names the token endpoint (RFC 8414) and has to spell the issuer as it is written.
    Issuer(Place),
}

/// A URL that a call of the gateway's own goes to: https, or http on a loopback address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// As it was written; servers compare it letter by letter.
    pub written: String,
    /// As it is called.
    pub target: Target,
}

/// How a client authenticates at the token endpoint (RFC 6749 section 2.3.1, RFC 7523 section 2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// It does not: a public client.
    None,
    /// `client_secret_basic`.
    Basic(SecretSource),
    /// `client_secret_post`.
    Post(SecretSource),
    /// `private_key_jwt`.
    PrivateKeyJwt {
        /// Holds the private key: PKCS #8, PEM.
        key: SecretSource,
        /// `kid` of the assertion.
        key_id: Option<String>,
    },
}

/// What of a server's answers is searched for the credentials that its requests carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redact {
    /// `redact`.
    pub scope: RedactScope,
    /// `redact_encoded`.
    pub encoded: Encoded,
}

/// `redact`: how far the search goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RedactScope {
    /// Header fields, bodies and trailers.
    #[default]
    Body,
    /// Header fields alone.
    Headers,
    /// Nowhere.
    Off,
}

/// `redact_encoded`: what becomes of a body that is still compressed, though none was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoded {
    /// The answer is withheld.
    #[default]
    Withhold,
    /// It passes unsearched.
    Pass,
}

/// The keys of [`Redact`], as far as they are written in one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedactKeys {
    /// `redact`.
    pub scope: Option<RedactScope>,
    /// `redact_encoded`.
    pub encoded: Option<Encoded>,
}

impl Redact {
    /// What is said here, under what `keys` say.
    pub(crate) fn under(self, keys: RedactKeys) -> Self {
        Self { scope: keys.scope.unwrap_or(self.scope), encoded: keys.encoded.unwrap_or(self.encoded) }
    }

    /// Whether anything is searched.
    pub(crate) fn searches(self) -> bool {
        self.scope != RedactScope::Off
    }
}
