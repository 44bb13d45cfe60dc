//! Which requests carry which fields.
//!
//! An injection belongs to an origin and a path prefix, and is found by the one parsed target that policy judged and
//! that is dialled. Where two prefixes of an origin cover a request, the longer one counts.

use std::collections::HashMap;
use std::sync::Arc;

use exeat_policy::Reason;
use exeat_policy::manifest::HeaderValueSpec;
use exeat_policy::pattern::Prefix;
use exeat_policy::target::{Authority, Scheme, Target};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::source::{SourceError, Sources};
use crate::listener::transit::are_alike;
use crate::permit::Origin;

/// The fields of one server or one injected prefix.
#[derive(Debug)]
pub(crate) struct Injection {
    /// The manifest's name of the server, or the URL of the prefix.
    pub(crate) server: Arc<str>,
    /// What it belongs to.
    pub(crate) prefix: Prefix,
    /// The fields.
    pub(crate) fields: Vec<(HeaderName, HeaderValueSpec)>,
    /// Whether its placeholders are a user's own, which this version cannot bind.
    pub(crate) user: bool,
    /// Whether the fields may go over plain http: only to a loopback address.
    pub(crate) plain_http: bool,
}

impl Injection {
    /// The names of the fields.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.fields.iter().map(|(name, _)| name.as_str().to_owned())
    }
}

/// Finds and carries out injections.
#[derive(Debug, Default)]
pub(crate) struct Injector {
    by_origin: HashMap<Origin, Vec<Injection>>,
    sources: Sources,
}

/// Why a request must not go out, since it could only go bare.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InjectError {
    pub(crate) reason: Reason,
    /// What is wrong, fit for the client.
    pub(crate) detail: String,
    /// What is wrong, for the log: it may name files.
    pub(crate) inside: Option<String>,
}

impl Injector {
    /// Takes injections, each of which names a place, and the sources of their placeholders.
    pub(crate) fn new(injections: Vec<Injection>, sources: Sources) -> Self {
        let mut by_origin: HashMap<Origin, Vec<Injection>> = HashMap::new();
        for injection in injections.into_iter().filter(|injection| !injection.fields.is_empty()) {
            by_origin.entry(origin(&injection.prefix)).or_default().push(injection);
        }
        for injections in by_origin.values_mut() {
            injections.sort_by_key(|injection| std::cmp::Reverse(injection.prefix.path().len()));
        }
        Self { by_origin, sources }
    }

    /// All injections.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Injection> {
        self.by_origin.values().flatten()
    }

    /// Whether a tunnel to `authority` may carry requests that need fields, so that it has to be inspected.
    pub(crate) fn concerns(&self, authority: &Authority) -> bool {
        if self.by_origin.is_empty() {
            return false;
        }
        [Scheme::Https, Scheme::Http].into_iter().any(|scheme| {
            let origin = Origin { scheme, host: authority.host().clone(), port: authority.port() };
            self.by_origin.contains_key(&origin)
        })
    }

    /// The injection for a request.
    ///
    /// # Errors
    /// The request is for a bound place, but in a way in which it may not carry the fields.
    pub(crate) fn find(&self, target: &Target, method: &Method) -> Result<Option<&Injection>, InjectError> {
        if self.by_origin.is_empty() {
            return Ok(None);
        }
        let origin = Origin { scheme: target.scheme(), host: target.host().clone(), port: target.port() };
        let Some(injection) = self.within(&origin, target) else {
            return if target.scheme() == Scheme::Http && self.is_downgrade(target) {
                Err(insecure("the same place is bound over https; use https"))
            } else {
                Ok(None)
            };
        };
        if target.scheme() == Scheme::Http && !injection.plain_http {
            return Err(insecure("its URL is plain http; credentials go over https, or to a loopback address"));
        }
        if *method == Method::TRACE {
            // TRACE sends back what it got, the injected fields included (RFC 9110 section 9.3.8).
            return Err(InjectError {
                reason: Reason::MethodRefused,
                detail: "TRACE would send the bound credential back".to_owned(),
                inside: None,
            });
        }
        Ok(Some(injection))
    }

    fn within(&self, origin: &Origin, target: &Target) -> Option<&Injection> {
        self.by_origin.get(origin)?.iter().find(|injection| target.is_within(&injection.prefix))
    }

    /// Whether a plain request asks for a path that is bound on the same host over https.
    fn is_downgrade(&self, target: &Target) -> bool {
        self.iter().any(|injection| {
            let prefix = &injection.prefix;
            prefix.scheme() == Scheme::Https
                && prefix.host() == target.host()
                && (prefix.port() == target.port() || target.port() == Scheme::Http.default_port())
                && target.has_path_within(prefix)
        })
    }

    /// Puts the fields on a request, in the place of whatever the client sent under their names, or under names that
    /// upstream could take for theirs.
    ///
    /// # Errors
    /// A value that is not there or cannot be sent; `headers` are then as they were.
    pub(crate) fn apply(&self, injection: &Injection, headers: &mut HeaderMap) -> Result<Vec<HeaderName>, InjectError> {
        let values: Vec<HeaderValue> =
            injection.fields.iter().map(|(_, value)| self.value(injection, value)).collect::<Result<_, _>>()?;
        let names: Vec<HeaderName> = injection.fields.iter().map(|(name, _)| name.clone()).collect();
        let taken = |sent: &&HeaderName| names.iter().any(|name| are_alike(name, sent));
        for sent in headers.keys().filter(taken).cloned().collect::<Vec<_>>() {
            headers.remove(sent);
        }
        for ((name, _), value) in injection.fields.iter().zip(values) {
            headers.insert(name.clone(), value);
        }
        Ok(names)
    }

    fn value(&self, injection: &Injection, spec: &HeaderValueSpec) -> Result<HeaderValue, InjectError> {
        match spec {
            HeaderValueSpec::Literal(text) => HeaderValue::from_str(text).map_err(|_| InjectError {
                reason: Reason::CredentialUnavailable,
                detail: "a literal header value holds a character that no header field may carry".to_owned(),
                inside: None,
            }),
            HeaderValueSpec::Placeholder(name) => self.bound(injection, name).map_err(|error| InjectError {
                reason: match error {
                    SourceError::Unbound(_) | SourceError::NoUser(_) => Reason::CredentialUnbound,
                    _ => Reason::CredentialUnavailable,
                },
                detail: error.outside(),
                inside: Some(error.to_string()),
            }),
        }
    }

    fn bound(&self, injection: &Injection, name: &str) -> Result<HeaderValue, SourceError> {
        if injection.user { Err(SourceError::NoUser(name.to_owned())) } else { self.sources.header_value(name) }
    }

    /// What is wrong with the placeholders right now: for the warnings at start and on reload.
    pub(crate) fn problems(&self) -> Vec<(Arc<str>, SourceError)> {
        let mut problems = Vec::new();
        for injection in self.iter() {
            for (_, spec) in &injection.fields {
                if let HeaderValueSpec::Placeholder(name) = spec
                    && let Err(error) = self.bound(injection, name)
                {
                    problems.push((Arc::clone(&injection.server), error));
                }
            }
        }
        problems
    }
}

fn insecure(detail: &str) -> InjectError {
    InjectError { reason: Reason::CredentialInsecure, detail: detail.to_owned(), inside: None }
}

fn origin(prefix: &Prefix) -> Origin {
    Origin { scheme: prefix.scheme(), host: prefix.host().clone(), port: prefix.port() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use exeat_policy::pattern::Pattern;

    use super::*;
    use crate::config::Binding;

    fn injection(server: &str, url: &str, value: HeaderValueSpec) -> Injection {
        let Ok(Pattern::Prefix(prefix)) = Pattern::parse(url) else { panic!("{url}") };
        let plain_http = prefix.host().as_str() == "127.0.0.1";
        let fields = vec![(http::header::AUTHORIZATION, value)];
        Injection { server: server.into(), prefix, fields, user: false, plain_http }
    }

    fn literal(text: &str) -> HeaderValueSpec {
        HeaderValueSpec::Literal(text.to_owned())
    }

    fn injector() -> Injector {
        Injector::new(
            vec![
                injection("outer", "https://api.test/", literal("outer")),
                injection("inner", "https://api.test/mcp", literal("inner")),
                injection("plain", "http://plain.test/mcp", literal("plain")),
                injection("local", "http://127.0.0.1:8080/mcp", literal("local")),
                injection("unbound", "https://unbound.test/", HeaderValueSpec::Placeholder("NOPE".to_owned())),
            ],
            Sources::new(&BTreeMap::from([("GONE".to_owned(), Binding::File("/nonexistent/secret".into()))])),
        )
    }

    fn find(injector: &Injector, url: &str) -> Result<Option<String>, Reason> {
        let target = Target::parse(url).unwrap();
        injector.find(&target, &Method::POST).map(|found| found.map(|it| it.server.to_string())).map_err(|e| e.reason)
    }

    #[test]
    fn an_injection_belongs_to_scheme_host_port_and_path() {
        let injector = injector();
        for (url, expected) in [
            ("https://api.test/mcp", Ok(Some("inner"))),
            ("https://API.test:443/mcp/x?y", Ok(Some("inner"))),
            ("https://api.test/mcp2", Ok(Some("outer"))),
            ("https://api.test/mcp/../x", Ok(Some("outer"))),
            ("https://api.test:8443/mcp", Ok(None)),
            ("https://other.test/mcp", Ok(None)),
            ("https://api.test.evil.test/mcp", Ok(None)),
            ("http://127.0.0.1:8080/mcp", Ok(Some("local"))),
            ("http://plain.test/mcp", Err(Reason::CredentialInsecure)),
            ("http://plain.test/else", Ok(None)),
            ("http://api.test/mcp", Err(Reason::CredentialInsecure)),
        ] {
            assert_eq!(find(&injector, url), expected.map(|server| server.map(str::to_owned)), "{url}");
        }
    }

    #[test]
    fn trace_never_carries_credentials() {
        let target = Target::parse("https://api.test/mcp").unwrap();
        let refused = injector().find(&target, &Method::TRACE).map(|_| ()).unwrap_err();
        assert_eq!(refused.reason, Reason::MethodRefused);
    }

    #[test]
    fn all_copies_of_the_client_are_replaced() {
        let injector = injector();
        let mut headers = HeaderMap::new();
        for value in ["mine", "mine too"] {
            headers.append("AUTHORIZATION", HeaderValue::from_static(value));
        }
        let target = Target::parse("https://api.test/mcp").unwrap();
        let injection = injector.find(&target, &Method::GET).unwrap().unwrap();
        assert_eq!(injector.apply(injection, &mut headers).unwrap(), [http::header::AUTHORIZATION]);
        let values: Vec<_> = headers.get_all("authorization").iter().collect();
        assert_eq!(values, ["inner"]);
    }

    #[test]
    fn nothing_is_forwarded_bare() {
        let injector = injector();
        let target = Target::parse("https://unbound.test/x").unwrap();
        let injection = injector.find(&target, &Method::GET).unwrap().unwrap();
        let error = injector.apply(injection, &mut HeaderMap::new()).unwrap_err();
        assert_eq!(error.reason, Reason::CredentialUnbound);
        assert!(error.detail.contains("${NOPE}"), "{}", error.detail);
        assert_eq!(injector.problems().len(), 1);
    }

    #[test]
    fn a_tunnel_to_a_bound_origin_is_a_concern() {
        let injector = injector();
        for (authority, expected) in [("api.test:443", true), ("127.0.0.1:8080", true), ("api.test:8443", false)] {
            assert_eq!(injector.concerns(&Authority::parse(authority).unwrap()), expected, "{authority}");
        }
    }
}
