//! `oauth = { … }`: tokens that an authorization server issues.

use exeat_policy::diag::Code;
use exeat_policy::doc::{Field, Fields, Spanned, quoted};
use exeat_policy::target::{Scheme, Target};

use super::{Layer, refuse, sources};
use crate::config::{AuthorizationServer, ClientAuth, Grant, OAuthSource, Place};

#[derive(Clone, Copy, PartialEq, Eq)]
enum GrantWord {
    ClientCredentials,
    RefreshToken,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AuthWord {
    None,
    Basic,
    Post,
    PrivateKeyJwt,
}

const GRANTS: &[(&str, GrantWord)] =
    &[("client_credentials", GrantWord::ClientCredentials), ("refresh_token", GrantWord::RefreshToken)];
const AUTHS: &[(&str, AuthWord)] = &[
    ("none", AuthWord::None),
    ("client_secret_basic", AuthWord::Basic),
    ("client_secret_post", AuthWord::Post),
    ("private_key_jwt", AuthWord::PrivateKeyJwt),
];

/// Reads an OAuth source.
pub(super) fn source(field: Field<'_>, layer: &Layer<'_>) -> Option<OAuthSource> {
    let mut fields = field.fields()?;
    let grant = fields.required("grant").and_then(|field| field.word(GRANTS));
    let grant = self::grant(grant.map(Spanned::into_value), &mut fields, layer);
    let server = server(&mut fields);
    let client_id = fields.required("client_id").and_then(Field::string).filter(|id| visible(id, &fields));
    let client_auth = client_auth(&mut fields, layer);
    let scopes = fields.take("scopes").and_then(Field::items);
    let scopes = scopes.into_iter().flatten().filter_map(scope).collect();
    let resource = fields.take("resource").map(|field| place(&field));
    let scheme = fields.take("scheme").map(scheme);
    fields.finish();
    Some(OAuthSource {
        grant: grant?,
        server: server?,
        client_id: client_id?.value,
        client_auth: client_auth?,
        scopes,
        resource: match resource {
            Some(resource) => Some(resource?),
            None => None,
        },
        scheme: scheme.unwrap_or_else(|| Some("Bearer".to_owned()))?,
    })
}

fn grant(word: Option<GrantWord>, fields: &mut Fields<'_>, layer: &Layer<'_>) -> Option<Grant> {
    match word {
        Some(GrantWord::RefreshToken) => {
            let first = fields.required("refresh_token").and_then(|field| sources::secret(field, layer));
            let store = fields.required("store").and_then(|field| layer.path(field));
            Some(Grant::RefreshToken { first: first?, store: store? })
        }
        word => {
            for key in ["refresh_token", "store"] {
                if let Some(field) = fields.take(key).filter(|_| word.is_some()) {
                    let message = format!("{}: the grant `client_credentials` has none", quoted(field.path()));
                    field.problems().report(Code::BadValue, field.key_span(), message, format!("remove `{key}`"));
                }
            }
            word.map(|_| Grant::ClientCredentials)
        }
    }
}

fn server(fields: &mut Fields<'_>) -> Option<AuthorizationServer> {
    match (fields.take("token_url"), fields.take("issuer")) {
        (Some(field), None) => place(&field).map(AuthorizationServer::TokenUrl),
        (None, Some(field)) => {
            let place = place(&field)?;
            if place.target.query().is_some() {
                // RFC 8414 section 2.
                refuse(&field, Code::BadValue, "an issuer has no query", "remove `?` and what follows");
                return None;
            }
            Some(AuthorizationServer::Issuer(place))
        }
        (written, _) => {
            let found = if written.is_some() { "both" } else { "neither" };
            let message = format!("{}: expected `token_url` or `issuer`, found {found}", quoted(fields.path()));
            let help = "write `token_url`, the endpoint, or `issuer`, whose metadata names the endpoint";
            fields.report(Code::BadValue, message, help);
            None
        }
    }
}

fn client_auth(fields: &mut Fields<'_>, layer: &Layer<'_>) -> Option<ClientAuth> {
    let written = fields.take("client_auth");
    let word = written.clone().map(|field| field.word(AUTHS).map(Spanned::into_value));
    let secret = fields.take("client_secret");
    let key = fields.take("private_key");
    let key_id = fields.string("key_id").map(Spanned::into_value);
    let is_secret = secret.is_some();
    if secret.is_some() && key.is_some() {
        let message = format!("{}: `client_secret` and `private_key` are both written", quoted(fields.path()));
        fields.report(Code::BadValue, message, "keep the one that the server knows the client by");
        return None;
    }
    let word = match word {
        Some(word) => word?,
        None if is_secret => AuthWord::Basic,
        None if key.is_some() => AuthWord::PrivateKeyJwt,
        None => AuthWord::None,
    };
    let missing = |needed: &str| {
        let message = format!("{}: this way of proving it needs `{needed}` and nothing else", quoted(fields.path()));
        fields.report(Code::BadValue, message, format!("write `{needed}`, or another `client_auth`"));
        None
    };
    match (word, secret, key) {
        (AuthWord::None, None, None) => Some(ClientAuth::None),
        (AuthWord::Basic, Some(secret), None) => sources::secret(secret, layer).map(ClientAuth::Basic),
        (AuthWord::Post, Some(secret), None) => sources::secret(secret, layer).map(ClientAuth::Post),
        (AuthWord::PrivateKeyJwt, None, Some(key)) => {
            sources::secret(key, layer).map(|key| ClientAuth::PrivateKeyJwt { key, key_id })
        }
        (AuthWord::PrivateKeyJwt, ..) => missing("private_key"),
        (AuthWord::Basic | AuthWord::Post, ..) => missing("client_secret"),
        (AuthWord::None, ..) => {
            let message = format!("{}: `client_auth` is `none`, and a secret is written", quoted(fields.path()));
            fields.report(Code::BadValue, message, "remove the secret, or write how it is shown");
            None
        }
    }
}

/// Reads a URL that the gateway itself calls: https, or http to a loopback address.
fn place(field: &Field<'_>) -> Option<Place> {
    const HELP: &str = "write a whole https URL, such as \"https://login.example.com/oauth2/token\"";
    let text = field.str()?.value;
    let target = match Target::parse(text) {
        Ok(target) => target,
        Err(error) => {
            refuse(field, Code::BadValue, error, HELP);
            return None;
        }
    };
    let plain = target.scheme() == Scheme::Http
        && !target.host().ip().is_some_and(|address| address.to_canonical().is_loopback());
    let fault = if target.had_userinfo() {
        "expected a URL without user name and password"
    } else if target.had_fragment() {
        "expected a URL without a fragment"
    } else if target.is_websocket() || plain {
        "expected https: tokens and secrets go over TLS, or to a loopback address"
    } else {
        return Some(Place { written: text.to_owned(), target });
    };
    refuse(field, Code::BadValue, fault, HELP);
    None
}

/// `VSCHAR` of RFC 6749 appendix A.
fn visible(text: &Spanned<String>, fields: &Fields<'_>) -> bool {
    let good = !text.value.is_empty() && text.value.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if !good {
        let message = format!("{}: expected an identifier of visible ASCII characters", quoted(fields.path()));
        fields.problems().report(
            Code::BadValue,
            text.span,
            message,
            "write the id that the server knows the client by",
        );
    }
    good
}

/// `scope-token` of RFC 6749 section 3.3.
fn scope(field: Field<'_>) -> Option<String> {
    let good = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
    let token = |text: &str| {
        if !text.is_empty() && text.bytes().all(good) {
            Ok(text.to_owned())
        } else {
            Err(format!("expected one scope, found {}", quoted(text)))
        }
    };
    field.parsed("write each scope as an item of the list", token).map(Spanned::into_value)
}

/// `auth-scheme` of RFC 9110 section 11.1, or nothing.
fn scheme(field: Field<'_>) -> Option<String> {
    let token = |text: &str| {
        if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)) {
            Ok(text.to_owned())
        } else {
            Err(format!("expected the name of a scheme, found {}", quoted(text)))
        }
    };
    field.parsed("write \"Bearer\", or \"\" for the token alone", token).map(Spanned::into_value)
}
