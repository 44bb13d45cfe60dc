//! Small worlds in which rules and requests meet often.

use super::*;

const NAMES: [&str; 6] = ["test", "a.test", "b.a.test", "c.b.a.test", "xa.test", "b.test"];
const ADDRESSES: [&str; 7] =
    ["1.2.3.4", "[::ffff:1.2.3.4]", "[64:ff9b::1.2.3.4]", "[2002:102:304::1]", "[::1]", "[2001:db8::1]", "5.6.7.8"];
const RULE_PATHS: [&str; 10] = ["/", "/a", "/a/", "/a/b", "/ab", "/a/b/c/", "/b", "/a%2Fb", "/a%20b/", "/%C3%BC"];
const PLAIN_PATHS: [&str; 12] =
    ["/", "/a", "/a/", "/a/b", "/ab", "/abc", "/a/b/c/d", "/a/bc", "/b", "/b/a", "/A", "/x"];
const TRICKY_PATHS: [&str; 20] = [
    "/a%2fb",
    "/a%2Fb/c",
    "/a%252fb",
    "/a/..%2fb",
    "/b/..%2fa",
    "/a;x/b",
    "/a;x",
    "/a//b",
    "//a",
    "/%61/b",
    "/a/%252e%252e/b",
    "/a/..;/b",
    "/a%20b/c",
    "/a b/",
    "/ü/x",
    "/x/../a/b",
    "/a/b/..",
    "/a\\b",
    "/a%5cb",
    "/a/..%00",
];

pub(crate) fn host() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => prop::sample::select(&NAMES[..]), 3 => prop::sample::select(&ADDRESSES[..])]
}

fn scheme() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["https", "https", "http"])
}

fn port() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "", "", ":443", ":8443"])
}

pub(crate) fn rule_path(escapes: bool) -> impl Strategy<Value = &'static str> {
    let known = if escapes { &RULE_PATHS[..] } else { &RULE_PATHS[..7] };
    prop::sample::select(known)
}

pub(crate) fn pattern(escapes: bool) -> impl Strategy<Value = String> {
    prop_oneof![
        2 => host().prop_map(str::to_owned),
        2 => prop::sample::select(&NAMES[..]).prop_map(|name| format!("*.{name}")),
        5 => (scheme(), host(), port(), rule_path(escapes))
            .prop_map(|(scheme, host, port, path)| format!("{scheme}://{host}{port}{path}")),
    ]
}

/// The allowed and the blocked patterns of one layer.
pub(crate) type Lists = (Vec<String>, Vec<String>);

pub(crate) fn lists(escapes: bool) -> impl Strategy<Value = Lists> {
    let allowed = prop::collection::vec(pattern(escapes), 0..8);
    let blocked = prop::collection::vec(pattern(escapes), 0..3);
    (allowed, blocked)
}

pub(crate) fn layers(escapes: bool) -> impl Strategy<Value = Vec<Lists>> {
    prop::collection::vec(lists(escapes), 0..4)
}

pub(crate) fn default() -> impl Strategy<Value = DefaultVerdict> {
    prop::sample::select(vec![DefaultVerdict::Allow, DefaultVerdict::Deny])
}

pub(crate) fn url() -> impl Strategy<Value = String> {
    let path = prop_oneof![prop::sample::select(&PLAIN_PATHS[..]), prop::sample::select(&TRICKY_PATHS[..])];
    (scheme(), host(), port(), path).prop_map(|(scheme, host, port, path)| format!("{scheme}://{host}{port}{path}"))
}

pub(crate) fn plain_url() -> impl Strategy<Value = (&'static str, &'static str, &'static str, &'static str)> {
    (scheme(), host(), port(), prop::sample::select(&PLAIN_PATHS[..]))
}

/// A policy of patterns, with layers named a, b, c… from the outermost in.
pub(crate) fn build(layers: &[Lists], default: DefaultVerdict) -> Policy {
    let layers: Vec<Layer> = ('a'..).zip(layers).map(|(name, lists)| layer(name, lists)).collect();
    Policy::build(layers, default).unwrap()
}

fn layer(name: char, (allowed, blocked): &Lists) -> Layer {
    let rules = |patterns: &[String]| rules(&patterns.iter().map(String::as_str).collect::<Vec<_>>());
    Layer { name: name.to_string().into(), allowed: rules(allowed), blocked: rules(blocked) }
}

/// Every URL that could show what is permitted at an authority: with both schemes, the paths of all rules there,
/// below, beside and behind them, and their decoded forms.
pub(crate) fn urls_at(host: &str, port: &str) -> Vec<String> {
    let paths = RULE_PATHS.iter().flat_map(|path| [(*path).to_owned(), format!("{path}zz"), format!("{path}/zz")]);
    let paths: Vec<String> = paths.chain(["/zz".to_owned()]).collect();
    let schemes = ["https", "http"];
    schemes.iter().flat_map(|scheme| paths.iter().map(move |path| format!("{scheme}://{host}{port}{path}"))).collect()
}
