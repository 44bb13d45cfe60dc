//! What a session is created from: a JSON object, read like any other file, with every problem of it at its place.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use exeat_policy::diag::{Code, Diagnostic, Problems, Source, has_errors};
use exeat_policy::doc::{self, Field, Fields, Format, Spanned, Value, quoted};
use exeat_policy::manifest::Manifest;

use crate::config::{Bound, session_bindings, session_time};
use crate::load::Inner;
use crate::quota::QuotaLimits;

/// What the text goes by in diagnostics.
const NAME: &str = "(session)";
/// The most layers that a session may bring along.
const MAX_MANIFESTS: usize = 16;

/// A session as it was asked for.
#[derive(Debug)]
pub(crate) struct Spec {
    /// What to call it; none for its id.
    pub(crate) name: Option<String>,
    /// Its layers, and what is lent to them.
    pub(crate) inner: Inner,
    /// Its own bindings.
    pub(crate) bound: Bound,
    /// What it may use up.
    pub(crate) limits: QuotaLimits,
    /// How long it lasts; none for the default.
    pub(crate) ttl: Option<Duration>,
    /// How its clients are known.
    pub(crate) ways: Ways,
}

/// How clients of a session are known; at least one way is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ways {
    /// By proxy credentials, which are made for it.
    pub(crate) credentials: bool,
    /// By the name in their certificates.
    pub(crate) certificate: Option<String>,
    /// By the user that they run as, on the Unix socket that all sessions share.
    pub(crate) uid: Option<u32>,
    /// By a proxy port of its own.
    pub(crate) listen: Option<SocketAddr>,
    /// By a listener of local MCP endpoints of its own.
    pub(crate) mcp: Option<SocketAddr>,
    /// By a Unix socket of its own.
    pub(crate) unix: Option<PathBuf>,
}

impl Ways {
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Spec {
    /// Reads the text of a session.
    ///
    /// # Errors
    /// Everything that is wrong with it. No diagnostic quotes a value that was handed over.
    pub(crate) fn read(text: &str) -> Result<Self, Vec<Diagnostic>> {
        let source = Source::new(NAME, text);
        let root = doc::parse(&source, Format::Json)?;
        let problems = Problems::new(&source);
        let mut found = Vec::new();
        let spec = Fields::root(&root, &problems).map(|fields| Self::of(fields, &mut found));
        found.extend(problems.into_vec());
        match spec {
            Some(spec) if !has_errors(&found) => Ok(spec),
            _ => Err(found),
        }
    }

    fn of(mut fields: Fields<'_>, found: &mut Vec<Diagnostic>) -> Self {
        let help = "write letters, digits, `-`, `_` and `.`, at most 64 of them";
        let name = fields.parsed("name", help, name).map(Spanned::into_value);
        let manifests = fields.take("manifests").and_then(Field::items).into_iter().flatten();
        let manifests: Vec<Manifest> = manifests
            .enumerate()
            .filter_map(|(index, field)| {
                if index == MAX_MANIFESTS {
                    let message = format!("expected at most {MAX_MANIFESTS} manifests, found more");
                    field.report(Code::BadValue, message, "join their rules");
                }
                manifest(index + 1, field, found)
            })
            .collect();
        let bound = session_bindings(fields.section("bindings"));
        let lent = fields.strings("gateway_bindings").map(Spanned::into_value).unwrap_or_default();
        let lent: BTreeSet<String> = lent.into_iter().map(Spanned::into_value).collect();
        let limits = limits(fields.section("limits"));
        let ttl = fields.take("ttl").and_then(|field| session_time(&field));
        let ways = ways(fields.section("identity"));
        if ways.is_empty() {
            let message = "nothing says by what the clients of the session are known";
            let help =
                "add at least one of credentials, client_certificate, unix_uid, listen, mcp and unix to `identity`";
            fields.report(Code::MissingKey, message, help);
        }
        fields.finish();
        let inner = Inner { manifests, lent: Arc::new(lent) };
        Self { name, inner, bound, limits, ttl, ways }
    }

    /// What of this takes somebody who has shown that they may run this gateway: whatever reads what the gateway can
    /// read, or opens what others can reach.
    pub(crate) fn needs_trust(&self) -> Option<&'static str> {
        let Ways { listen, mcp, unix, .. } = &self.ways;
        let outside = |address: &Option<SocketAddr>| address.is_some_and(|address| !address.ip().is_loopback());
        if !self.bound.sources.is_empty() {
            return Some("a binding to anything but a value");
        }
        if !self.inner.lent.is_empty() {
            return Some("the use of the gateway's own bindings");
        }
        if outside(listen) || outside(mcp) {
            return Some("a listener that is not on loopback");
        }
        unix.is_some().then_some("a Unix socket of its own")
    }
}

fn name(text: &str) -> Result<String, String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if text.is_empty() || text.len() > 64 || !text.bytes().all(good) {
        return Err(format!("expected a name, found {}", quoted(text)));
    }
    Ok(text.to_owned())
}

/// A manifest: its text, or a table of its text and its format. Its own problems are at places of its own.
fn manifest(number: usize, field: Field<'_>, found: &mut Vec<Diagnostic>) -> Option<Manifest> {
    let (text, format) = match field.node().value {
        Value::String(_) => (field.string()?.value, None),
        _ => {
            let mut fields = field.fields()?;
            let formats = [("toml", Format::Toml), ("yaml", Format::Yaml), ("json", Format::Json)];
            let format = fields.word("format", &formats).map(Spanned::into_value);
            let text = fields.required("text").and_then(Field::string);
            fields.finish();
            (text?.value, format)
        }
    };
    let guess = if text.trim_start().starts_with('{') { Format::Json } else { Format::Toml };
    let source = Source::new(format!("(session manifest {number})"), text);
    let (manifest, mut problems) = Manifest::read(&source, format.unwrap_or(guess));
    found.append(&mut problems);
    manifest
}

fn limits(mut fields: Fields<'_>) -> QuotaLimits {
    let limits = QuotaLimits {
        requests: fields.integer("requests", 0..=u64::MAX >> 1).map(Spanned::into_value),
        bytes: fields.integer("bytes", 0..=u64::MAX >> 1).map(Spanned::into_value),
        rate: fields.integer("rate", 1..=1_000_000).map(Spanned::into_value),
        tunnels: fields.integer("tunnels", 0..=1_048_576).map(Spanned::into_value),
    };
    fields.finish();
    limits
}

fn ways(mut fields: Fields<'_>) -> Ways {
    let help = "write an address and a port, such as \"127.0.0.1:0\"";
    let path = fields.parsed("unix", "write the absolute path of a socket", absolute);
    let certificate = "write the name in the certificates: a DNS name, URI, mail address or common name";
    let ways = Ways {
        credentials: fields.boolean("credentials").is_some_and(Spanned::into_value),
        certificate: fields.parsed("client_certificate", certificate, subject).map(Spanned::into_value),
        uid: fields.integer("unix_uid", 0..=u32::MAX).map(Spanned::into_value),
        listen: fields.parsed("listen", help, listener).map(Spanned::into_value),
        mcp: fields.parsed("mcp", help, listener).map(Spanned::into_value),
        unix: path.map(Spanned::into_value),
    };
    fields.finish();
    ways
}

fn listener(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("expected an IP address with a port, found {}", quoted(text)))
}

fn subject(text: &str) -> Result<String, &'static str> {
    if text.is_empty() { Err("expected a name, found an empty string") } else { Ok(text.to_owned()) }
}

fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err(format!("expected an absolute path, found {}", quoted(text))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let found = Spec::read(text).unwrap_err();
        found.iter().map(|problem| format!("{} {}", problem.code.as_str(), problem.message)).collect()
    }

    #[test]
    fn everything_that_may_be_asked_for_is_read() {
        let spec = Spec::read(
            r#"{
                "name": "run-1",
                "manifests": ["name = \"a\"", {"format": "yaml", "text": "name: b"}, "{\"name\": \"c\"}"],
                "bindings": {"A": {"value": "s3cret"}, "B": {"env": "B"}},
                "gateway_bindings": ["C"],
                "limits": {"requests": 1, "bytes": 2, "rate": 3, "tunnels": 4},
                "ttl": "10m",
                "identity": {"credentials": true, "client_certificate": "ann", "unix_uid": 7, "listen": "127.0.0.1:0",
                             "mcp": "[::1]:0", "unix": "/run/a.sock"}
            }"#,
        )
        .unwrap();
        assert_eq!((spec.name.as_deref(), spec.ttl), (Some("run-1"), Some(Duration::from_secs(600))));
        let names: Vec<_> = spec.inner.manifests.iter().map(|manifest| manifest.name.value.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!((spec.bound.values.len(), spec.bound.sources.len(), spec.inner.lent.len()), (1, 1, 1));
        assert_eq!(spec.limits, QuotaLimits { requests: Some(1), bytes: Some(2), rate: Some(3), tunnels: Some(4) });
        assert_eq!(spec.ways.uid, Some(7));
        assert_eq!(spec.needs_trust(), Some("a binding to anything but a value"));
        assert!(!format!("{spec:?}").contains("s3cret"));
    }

    #[test]
    fn what_reads_nothing_and_opens_nothing_needs_no_trust() {
        for (text, needs) in [
            (r#"{"identity": {"credentials": true}, "bindings": {"A": {"value": "x"}}}"#, false),
            (r#"{"identity": {"listen": "127.0.0.1:0", "mcp": "[::1]:0"}}"#, false),
            (r#"{"identity": {"listen": "0.0.0.0:0"}}"#, true),
            (r#"{"identity": {"mcp": "192.0.2.1:0"}}"#, true),
            (r#"{"identity": {"unix": "/tmp/x"}}"#, true),
            (r#"{"identity": {"credentials": true}, "gateway_bindings": ["A"]}"#, true),
            (r#"{"identity": {"credentials": true}, "bindings": {"A": {"file": "/etc/x"}}}"#, true),
            (r#"{"identity": {"credentials": true}, "bindings": {"A": {"command": ["x"]}}}"#, true),
        ] {
            assert_eq!(Spec::read(text).unwrap().needs_trust().is_some(), needs, "{text}");
        }
    }

    #[test]
    fn all_problems_come_at_once_and_quote_no_value() {
        let found = problems(
            r#"{"name": "a b", "bindings": {"A": {"value": "s3cret\r\nX: y"}, "B": {"value": "s3cret", "env": "X"}, "C": "s3cret"},
                "limits": {"rate": 0}, "manifests": ["nam = \"x\""], "tll": "1m", "identity": {"credentials": false}}"#,
        );
        assert!(found.len() >= 7, "{found:#?}");
        assert!(!found.concat().contains("s3cret"), "{found:#?}");
        for expected in ["name", "limits.rate", "tll", "known"] {
            assert!(found.iter().any(|problem| problem.contains(expected)), "{expected}: {found:#?}");
        }
        assert_eq!(problems("[]").len(), 1);
        assert_eq!(problems("{").len(), 1);
        assert!(problems(r#"{"identity": {"unix": "x", "credentials": true}}"#)[0].contains("absolute"));
    }
}
