//! Which requests carry which fields.
//!
//! An injection belongs to an origin and a path prefix, and is found by the one parsed target that policy judged and
//! that is dialled. Where two prefixes of an origin cover a request, the longer one counts.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use exeat_policy::Reason;
use exeat_policy::manifest::HeaderValueSpec;
use exeat_policy::pattern::Prefix;
use exeat_policy::target::{Authority, Scheme, Target};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use secrecy::{ExposeSecret as _, SecretString};

use super::error::SourceError;
use super::minted::Errand;
use super::source::{Sources, Value};
use super::stored::to_header;
use crate::config::Redact;
use crate::listener::transit::are_alike;
use crate::permit::Origin;
use crate::redact::{Counts, Redactor};

/// The fields of one server or one injected prefix.
#[derive(Debug)]
pub(crate) struct Injection {
    /// The manifest's name of the server, or the URL of the prefix.
    pub(crate) server: Arc<str>,
    /// What it belongs to.
    pub(crate) prefix: Prefix,
    /// The fields.
    pub(crate) fields: Vec<(HeaderName, HeaderValueSpec)>,
    /// What the server goes by in metrics.
    pub(crate) label: Arc<str>,
    /// Whether its placeholders are a user's own: bound by the session and by nothing else.
    pub(crate) user: bool,
    /// Which bindings of the gateway it may use: all, or where a session declares the server itself, those that the
    /// session was given.
    pub(crate) lent: Option<Arc<BTreeSet<String>>>,
    /// Whether the fields may go over plain http: only to a loopback address.
    pub(crate) plain_http: bool,
    /// What of its answers is searched for the values.
    pub(crate) redact: Redact,
    /// What finds the values that were put on last.
    pub(crate) redactor: LastRedactor,
    /// Where what is found is counted, once something was looked for.
    pub(crate) counts: OnceLock<Arc<Counts>>,
}

/// The redactor of the values in use: making one takes longer than a request, and values change rarely.
#[derive(Debug, Default)]
pub(crate) struct LastRedactor(Mutex<Option<Known>>);

type Known = (Vec<Arc<SecretString>>, Option<Arc<Redactor>>);

impl LastRedactor {
    fn of(&self, values: &[Value]) -> Result<Option<Arc<Redactor>>, InjectError> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, redactor)) = &*last
            && known.len() == values.len()
            && known.iter().zip(values).all(|(known, value)| Arc::ptr_eq(known, &value.secret))
        {
            return Ok(redactor.clone());
        }
        let redactor = Redactor::new(values.iter().map(|value| value.secret.expose_secret().as_bytes()));
        let redactor = redactor.map_err(|error| InjectError {
            reason: Reason::CredentialUnavailable,
            detail: "the bound credential could not be searched for in the answer".to_owned(),
            inside: Some(error),
        })?;
        let redactor = redactor.map(Arc::new);
        *last = Some((values.iter().map(|value| Arc::clone(&value.secret)).collect(), redactor.clone()));
        Ok(redactor)
    }
}

impl Injection {
    /// The names of the fields.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.fields.iter().map(|(name, _)| name.as_str().to_owned())
    }
}

/// Values that are ready to be put on one request.
#[derive(Debug)]
pub(crate) struct Credentials {
    fields: Vec<(HeaderName, HeaderValue)>,
    values: Vec<Value>,
    /// What finds them in the answer; none where there is nothing to be found, or nothing is to be searched.
    pub(crate) redactor: Option<Arc<Redactor>>,
}

impl Credentials {
    /// Puts the fields on a request, in the place of whatever the client sent under their names, or under names that
    /// upstream could take for theirs.
    pub(crate) fn put_on(&self, headers: &mut HeaderMap) -> Vec<HeaderName> {
        let names: Vec<HeaderName> = self.fields.iter().map(|(name, _)| name.clone()).collect();
        let taken = |sent: &&HeaderName| names.iter().any(|name| are_alike(name, sent));
        for sent in headers.keys().filter(taken).cloned().collect::<Vec<_>>() {
            headers.remove(sent);
        }
        for (name, value) in &self.fields {
            headers.insert(name.clone(), value.clone());
        }
        names
    }

    /// Credentials of the same form that no server takes, for a request that finds out whether one is asked for.
    pub(crate) fn hopeless(mut self) -> Self {
        for (_, value) in self.fields.iter_mut().filter(|(_, value)| value.is_sensitive()) {
            *value = hopeless_like(value);
        }
        // That they are not taken says nothing about the bound ones.
        self.values.clear();
        self
    }

    /// Takes note that the server did not accept them: what can be renewed is renewed for the next request.
    pub(crate) fn rejected(&self) {
        self.values.iter().for_each(Value::rejected);
    }
}

/// Finds and carries out injections.
#[derive(Debug, Default)]
pub(crate) struct Injector {
    by_origin: HashMap<Origin, Vec<Injection>>,
    /// The gateway's own bindings.
    sources: Arc<Sources>,
    /// Those of the session, which come first; none for the gateway's own session.
    own: Option<Arc<Sources>>,
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
    /// Takes injections, each of which names a place, and the sources of their placeholders: the gateway's and the
    /// session's own.
    pub(crate) fn new(injections: Vec<Injection>, sources: Arc<Sources>, own: Option<Arc<Sources>>) -> Self {
        let mut by_origin: HashMap<Origin, Vec<Injection>> = HashMap::new();
        for injection in injections.into_iter().filter(|injection| !injection.fields.is_empty()) {
            by_origin.entry(origin(&injection.prefix)).or_default().push(injection);
        }
        for injections in by_origin.values_mut() {
            injections.sort_by_key(|injection| std::cmp::Reverse(injection.prefix.path().len()));
        }
        Self { by_origin, sources, own }
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

    /// Where the value of a placeholder comes from. A session's own binding comes before the gateway's of the same name,
    /// and where it has no value nothing takes its place.
    fn source(&self, injection: &Injection, placeholder: &str) -> Result<&Sources, SourceError> {
        if let Some(own) = self.own.as_ref().filter(|own| own.has(placeholder)) {
            return Ok(own);
        }
        if injection.user {
            return Err(SourceError::NoUser(placeholder.to_owned()));
        }
        match &injection.lent {
            Some(lent) if !lent.contains(placeholder) => Err(SourceError::Unbound(placeholder.to_owned())),
            Some(_) | None => Ok(&self.sources),
        }
    }

    /// Gets the values of an injection, for one request.
    ///
    /// # Errors
    /// A value that is not there or cannot be sent: the request must not go out.
    pub(crate) async fn credentials(&self, injection: &Injection, way: &Errand) -> Result<Credentials, InjectError> {
        let (mut fields, mut values) = (Vec::new(), Vec::new());
        for (name, spec) in &injection.fields {
            let field = match spec {
                HeaderValueSpec::Literal(text) => HeaderValue::from_str(text).map_err(|_| InjectError {
                    reason: Reason::CredentialUnavailable,
                    detail: "a literal header value holds a character that no header field may carry".to_owned(),
                    inside: None,
                })?,
                HeaderValueSpec::Placeholder(placeholder) => {
                    let unusable = |error| SourceError::Stored(placeholder.clone(), error);
                    let value = self.source(injection, placeholder)?.value(placeholder, way).await?;
                    let field = to_header(&value.secret).map_err(unusable)?;
                    values.push(value);
                    field
                }
            };
            fields.push((name.clone(), field));
        }
        let redactor = if injection.redact.searches() { injection.redactor.of(&values)? } else { None };
        Ok(Credentials { fields, values, redactor })
    }

    /// What is known to be wrong with the placeholders right now: for the warnings at start and on reload.
    pub(crate) fn problems(&self) -> Vec<(Arc<str>, SourceError)> {
        let placeholders = self.iter().flat_map(|injection| {
            let names = injection.fields.iter().filter_map(|(_, spec)| spec.placeholder());
            names.map(move |name| (injection, name))
        });
        let problem = |(injection, name): (&Injection, &str)| {
            let problem = self.source(injection, name).map_or_else(Some, |sources| sources.problem(name));
            Some((Arc::clone(&injection.server), problem?))
        };
        placeholders.filter_map(problem).collect()
    }

    /// Where the values of the gateway's own bindings come from.
    pub(crate) const fn sources(&self) -> &Arc<Sources> {
        &self.sources
    }
}

impl From<SourceError> for InjectError {
    fn from(error: SourceError) -> Self {
        let reason = match error {
            SourceError::Unbound(_) | SourceError::NoUser(_) => Reason::CredentialUnbound,
            SourceError::Stored(..) | SourceError::Minted(..) => Reason::CredentialUnavailable,
        };
        Self { reason, detail: error.outside(), inside: Some(error.to_string()) }
    }
}

/// A value of a credential's form that is nobody's: its scheme, where it has one, and a new random word.
fn hopeless_like(value: &HeaderValue) -> HeaderValue {
    let scheme = value.to_str().ok().and_then(|text| text.split_once(' ')).map(|(scheme, _)| scheme);
    let scheme = scheme.filter(|scheme| ["basic", "bearer"].contains(&scheme.to_ascii_lowercase().as_str()));
    let word = format!("exeat-probe-{:016x}", random());
    let text = match scheme {
        Some(scheme) => format!("{scheme} {word}"),
        None => word,
    };
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("exeat-probe"))
}

fn random() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0)
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
    use crate::config::{Binding, SecretSource};
    use crate::credentials::minted::tests::way;

    fn injection(server: &str, url: &str, value: HeaderValueSpec) -> Injection {
        let Ok(Pattern::Prefix(prefix)) = Pattern::parse(url) else { panic!("{url}") };
        let plain_http = prefix.host().as_str() == "127.0.0.1";
        let fields = vec![(http::header::AUTHORIZATION, value)];
        let (redact, redactor, counts) = Default::default();
        let (server, label) = (server.into(), server.into());
        Injection { server, label, prefix, fields, user: false, lent: None, plain_http, redact, redactor, counts }
    }

    fn literal(text: &str) -> HeaderValueSpec {
        HeaderValueSpec::Literal(text.to_owned())
    }

    fn injector() -> Injector {
        injector_of(None)
    }

    fn injector_of(own: Option<Sources>) -> Injector {
        let key = Binding::Stored(SecretSource::Env("CARGO_MANIFEST_DIR".to_owned()));
        Injector::new(
            vec![
                injection("outer", "https://api.test/", literal("outer")),
                injection("inner", "https://api.test/mcp", literal("inner")),
                injection("plain", "http://plain.test/mcp", literal("plain")),
                injection("local", "http://127.0.0.1:8080/mcp", literal("local")),
                injection("unbound", "https://unbound.test/", HeaderValueSpec::Placeholder("NOPE".to_owned())),
                injection("bound", "https://bound.test/", HeaderValueSpec::Placeholder("KEY".to_owned())),
                Injection {
                    user: true,
                    ..injection("user", "https://user.test/", HeaderValueSpec::Placeholder("KEY".to_owned()))
                },
            ],
            Arc::new(Sources::new(&BTreeMap::from([("KEY".to_owned(), key)]), None)),
            own.map(Arc::new),
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

    async fn credentials(injector: &Injector, url: &str) -> Result<Credentials, InjectError> {
        let injection = injector.find(&Target::parse(url).unwrap(), &Method::GET).unwrap().unwrap();
        injector.credentials(injection, &way()).await
    }

    #[tokio::test]
    async fn all_copies_of_the_client_are_replaced() {
        let mut headers = HeaderMap::new();
        for value in ["mine", "mine too"] {
            headers.append("AUTHORIZATION", HeaderValue::from_static(value));
        }
        let credentials = credentials(&injector(), "https://api.test/mcp").await.unwrap();
        assert_eq!(credentials.put_on(&mut headers), [http::header::AUTHORIZATION]);
        let values: Vec<_> = headers.get_all("authorization").iter().collect();
        assert_eq!(values, ["inner"]);
        assert!(credentials.redactor.is_none(), "a literal is no secret");
    }

    #[test]
    fn a_hopeless_request_has_the_form_of_a_credential_and_not_the_credential() {
        for (value, scheme) in [("Bearer s3cret", "Bearer "), ("s3cret", ""), ("a s3cret", "")] {
            let hopeless = hopeless_like(&HeaderValue::from_static(value));
            let hopeless = hopeless.to_str().unwrap();
            assert!(hopeless.starts_with(&format!("{scheme}exeat-probe-")), "{hopeless}");
            assert!(!hopeless.contains("s3cret"));
        }
    }

    #[tokio::test]
    async fn nothing_is_forwarded_bare() {
        let injector = injector();
        let error = credentials(&injector, "https://unbound.test/x").await.unwrap_err();
        assert_eq!(error.reason, Reason::CredentialUnbound);
        assert!(error.detail.contains("${NOPE}"), "{}", error.detail);
        assert_eq!(injector.problems().len(), 2);
    }

    fn session(name: &str, variable: &str) -> Sources {
        let own = Binding::Stored(SecretSource::Env(variable.to_owned()));
        Sources::of_session(
            &BTreeMap::from([(name.to_owned(), own)]),
            [("GIVEN".to_owned(), "given".to_owned().into())],
        )
    }

    async fn put_on(injector: &Injector, url: &str) -> Result<String, Reason> {
        let credentials = credentials(injector, url).await.map_err(|error| error.reason)?;
        let mut headers = HeaderMap::new();
        credentials.put_on(&mut headers);
        Ok(headers["authorization"].to_str().unwrap().to_owned())
    }

    #[tokio::test]
    async fn a_users_value_is_the_sessions_own_and_no_other() {
        let error = credentials(&injector(), "https://user.test/").await.unwrap_err();
        assert!(error.reason == Reason::CredentialUnbound && error.detail.contains("user's own"), "{}", error.detail);
        let elsewhere = injector_of(Some(session("OTHER", "CARGO_PKG_NAME")));
        let error = put_on(&elsewhere, "https://user.test/").await.unwrap_err();
        assert_eq!(error, Reason::CredentialUnbound, "no fall-back to the gateway's binding");
        assert_eq!(put_on(&elsewhere, "https://bound.test/").await.as_deref(), Ok(env!("CARGO_MANIFEST_DIR")));
        let own = injector_of(Some(session("KEY", "CARGO_PKG_NAME")));
        for url in ["https://user.test/", "https://bound.test/"] {
            assert_eq!(put_on(&own, url).await.as_deref(), Ok("exeat"), "{url}: its own comes first");
        }
        let without = injector_of(Some(session("KEY", "EXEAT_TEST_NEVER_SET")));
        assert_eq!(put_on(&without, "https://bound.test/").await, Err(Reason::CredentialUnavailable), "no fall-back");
    }

    #[tokio::test]
    async fn a_server_of_a_sessions_own_gets_what_it_was_lent() {
        let lent = |names: &[&str]| Some(Arc::new(names.iter().map(|&name| name.to_owned()).collect()));
        for (names, expected) in
            [(&[][..], Err(Reason::CredentialUnbound)), (&["KEY"], Ok(env!("CARGO_MANIFEST_DIR").to_owned()))]
        {
            let place = HeaderValueSpec::Placeholder("KEY".to_owned());
            let injection = Injection { lent: lent(names), ..injection("s", "https://own.test/", place) };
            let key = Binding::Stored(SecretSource::Env("CARGO_MANIFEST_DIR".to_owned()));
            let sources = Sources::new(&BTreeMap::from([("KEY".to_owned(), key)]), None);
            let injector = Injector::new(vec![injection], Arc::new(sources), None);
            assert_eq!(put_on(&injector, "https://own.test/").await, expected, "{names:?}");
        }
    }

    #[tokio::test]
    async fn a_redactor_is_made_once_for_the_same_values() {
        let injector = injector();
        let first = credentials(&injector, "https://bound.test/").await.unwrap().redactor.unwrap();
        let second = credentials(&injector, "https://bound.test/").await.unwrap().redactor.unwrap();
        assert!(Arc::ptr_eq(&first, &second));
    }

    #[test]
    fn a_tunnel_to_a_bound_origin_is_a_concern() {
        let injector = injector();
        for (authority, expected) in [("api.test:443", true), ("127.0.0.1:8080", true), ("api.test:8443", false)] {
            assert_eq!(injector.concerns(&Authority::parse(authority).unwrap()), expected, "{authority}");
        }
    }
}
