//! Metadata: what an authorization server says about itself (RFC 8414) and a resource about its servers (RFC 9728).
//!
//! The issuer is the config's and never learnt: metadata that spells another one is refused, and so is a resource that
//! does not name the issuer among its servers. So neither can lead a client's secret elsewhere.

use exeat_policy::target::{Scheme, Target};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::super::error::MintError;
use super::call::{self, Answer};
use crate::config::Place;
use crate::upstream::Route;

/// Of RFC 8414 section 2.
#[derive(Deserialize)]
struct ServerMetadata {
    issuer: String,
    token_endpoint: Option<String>,
}

/// Of RFC 9728 section 2.
#[derive(Deserialize)]
struct ResourceMetadata {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
}

/// The token endpoint of an issuer: by RFC 8414, or where there is nothing at its place by OpenID Connect Discovery.
pub(super) async fn token_endpoint(route: &Route, issuer: &Place) -> Result<Target, MintError> {
    let mut answer = call::get(route, &inserted("oauth-authorization-server", &issuer.target)?).await?;
    if answer.status.is_client_error() {
        answer = call::get(route, &appended("openid-configuration", &issuer.target)?).await?;
    }
    let metadata: ServerMetadata = read(&answer, "the issuer's metadata")?;
    endpoint_of(&metadata, issuer)
}

fn endpoint_of(metadata: &ServerMetadata, issuer: &Place) -> Result<Target, MintError> {
    if metadata.issuer != issuer.written {
        return Err(MintError::new("the metadata names another issuer than the config, letter by letter"));
    }
    let Some(endpoint) = &metadata.token_endpoint else {
        return Err(MintError::new("the issuer's metadata names no token endpoint"));
    };
    let target = Target::parse(endpoint).map_err(|_| MintError::new("the token endpoint is no URL"))?;
    let loopback = target.host().ip().is_some_and(|address| address.to_canonical().is_loopback());
    if target.is_websocket() || target.had_userinfo() || (target.scheme() == Scheme::Http && !loopback) {
        return Err(MintError::new("the token endpoint is no https URL"));
    }
    Ok(target)
}

/// Asks the resource whether the issuer serves it. One that publishes nothing has nothing to contradict.
pub(super) async fn check_resource(route: &Route, resource: &Place, issuer: &Place) -> Result<(), MintError> {
    let answer = call::get(route, &inserted("oauth-protected-resource", &resource.target)?).await?;
    if answer.status.is_client_error() {
        return Ok(());
    }
    serves(&read(&answer, "the resource's metadata")?, resource, issuer)
}

fn serves(metadata: &ResourceMetadata, resource: &Place, issuer: &Place) -> Result<(), MintError> {
    if metadata.resource != resource.written {
        return Err(MintError::new("the resource's metadata is that of another resource, letter by letter"));
    }
    if !metadata.authorization_servers.contains(&issuer.written) {
        return Err(MintError::new("the resource does not name the issuer among its authorization servers"));
    }
    Ok(())
}

fn read<T: DeserializeOwned>(answer: &Answer, what: &str) -> Result<T, MintError> {
    if !answer.status.is_success() {
        return Err(MintError::new(format_args!("{what}: the server answered {}", answer.status)));
    }
    serde_json::from_slice(&answer.body).map_err(|_| MintError::new(format_args!("{what} cannot be read")))
}

/// The place of metadata between host and path (RFC 8414 section 3.1, RFC 9728 section 3.1).
fn inserted(suffix: &str, of: &Target) -> Result<Target, MintError> {
    let path = of.path().trim_end_matches('/');
    let query = of.query().map(|query| format!("?{query}")).unwrap_or_default();
    at(of, &format!("/.well-known/{suffix}{path}{query}"))
}

/// The place of metadata behind the path (OpenID Connect Discovery 1.0 section 4.1).
fn appended(suffix: &str, to: &Target) -> Result<Target, MintError> {
    at(to, &format!("{}/.well-known/{suffix}", to.path().trim_end_matches('/')))
}

fn at(of: &Target, path: &str) -> Result<Target, MintError> {
    Target::from_parts(of.scheme(), of.authority(), path).map_err(MintError::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str) -> Place {
        Place { written: url.to_owned(), target: Target::parse(url).unwrap() }
    }

    #[test]
    fn metadata_has_its_place() {
        for (url, inside, behind) in [
            ("https://a.test", "https://a.test/.well-known/x", "https://a.test/.well-known/x"),
            ("https://a.test/", "https://a.test/.well-known/x", "https://a.test/.well-known/x"),
            (
                "https://a.test:8443/t/1/",
                "https://a.test:8443/.well-known/x/t/1",
                "https://a.test:8443/t/1/.well-known/x",
            ),
            ("https://a.test/mcp?k=v", "https://a.test/.well-known/x/mcp?k=v", "https://a.test/mcp/.well-known/x"),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!(inserted("x", &target).unwrap().to_string(), inside);
            assert_eq!(appended("x", &target).unwrap().to_string(), behind);
        }
    }

    #[test]
    fn the_issuer_is_the_configs_own() {
        let endpoint = |issuer: &str, endpoint: Option<&str>| {
            let metadata = ServerMetadata { issuer: issuer.to_owned(), token_endpoint: endpoint.map(str::to_owned) };
            endpoint_of(&metadata, &place("https://as.test/t")).map(|target| target.to_string())
        };
        assert_eq!(endpoint("https://as.test/t", Some("https://b.test/x")).as_deref(), Ok("https://b.test/x"));
        assert!(endpoint("https://as.test/t", Some("http://127.0.0.1:1/x")).is_ok());
        for issuer in ["https://as.test/t/", "https://AS.test/t", "https://evil.test/t", "http://as.test/t", ""] {
            assert!(endpoint(issuer, Some("https://b.test/x")).is_err(), "{issuer}");
        }
        for url in ["http://b.test/x", "wss://b.test/x", "https://u:p@b.test/x", "/x", ""] {
            assert!(endpoint("https://as.test/t", Some(url)).is_err(), "{url}");
        }
        assert!(endpoint("https://as.test/t", None).is_err());
    }

    #[test]
    fn a_resource_names_itself_and_the_issuer() {
        let (resource, issuer) = (place("https://r.test/mcp"), place("https://as.test"));
        let check = |named: &str, servers: &[&str]| {
            let authorization_servers = servers.iter().map(|server| (*server).to_owned()).collect();
            serves(&ResourceMetadata { resource: named.to_owned(), authorization_servers }, &resource, &issuer).is_ok()
        };
        assert!(check("https://r.test/mcp", &["https://other.test", "https://as.test"]));
        assert!(!check("https://r.test/", &["https://as.test"]));
        assert!(!check("https://r.test/mcp", &["https://as.test/"]));
        assert!(!check("https://r.test/mcp", &[]));
    }
}
