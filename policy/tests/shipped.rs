//! The manifests under `config/`: they load without a word, keep to the schema, and do what their comments say.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use exeat_policy::diag::Source;
use exeat_policy::doc::Format;
use exeat_policy::{DefaultVerdict, Manifest, Policy, Target, Verdict};

const SCHEMA: &str = include_str!("../../config/schemas/agent.v1.schema.json");
const AGENT: &str = include_str!("../../config/agent.toml");
const CODING: &str = include_str!("../../config/examples/coding.agent.toml");
const RESEARCH: &str = include_str!("../../config/examples/research.agent.toml");
const SUPPORT: &str = include_str!("../../config/examples/support.agent.toml");

fn load(text: &str) -> Manifest {
    let (manifest, diagnostics) = Manifest::read(&Source::new("agent.toml", text), Format::Toml);
    let lines: Vec<_> = diagnostics.iter().map(ToString::to_string).collect();
    assert!(diagnostics.is_empty(), "{}", lines.join("\n"));
    manifest.expect("a manifest without diagnostics loads")
}

/// Judges each URL by the manifest alone, where nothing restricts allowing.
fn judge(text: &str, expected: &[(&str, Verdict)]) {
    let policy = Policy::build(vec![load(text).layer("agent")], DefaultVerdict::Allow).expect("a small policy");
    for (url, verdict) in expected {
        let target = Target::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(policy.decide(&target).verdict, *verdict, "{url}");
    }
}

#[test]
fn they_keep_to_the_schema() {
    let schema = serde_json::from_str(SCHEMA).expect("the schema is JSON");
    let schema = jsonschema::draft4::new(&schema).expect("the schema is a schema");
    for text in [AGENT, CODING, RESEARCH, SUPPORT] {
        let value: serde_json::Value = toml::from_str(text).expect("the manifest is TOML");
        assert!(schema.is_valid(&value), "{value}");
        load(text);
    }
}

#[test]
fn the_safe_example_lets_out_documentation() {
    use Verdict::{Allow, Deny};
    judge(
        AGENT,
        &[
            ("https://docs.rs/serde", Allow),
            ("https://docs.python.org/3/", Allow),
            ("https://python.org/", Allow),
            ("https://nodejs.org/api/", Allow),
            ("https://github.com/rust-lang/rust.git/info/refs?service=git-upload-pack", Allow),
            ("https://github.com/somebody/else", Deny),
            ("http://github.com/rust-lang/rust", Deny),
            ("https://mail.python.org/", Deny),
            ("https://example.com/", Deny),
        ],
    );
}

#[test]
fn the_examples_reach_their_servers_and_little_else() {
    use Verdict::{Allow, Deny};
    for text in [CODING, RESEARCH, SUPPORT] {
        let manifest = load(text);
        for server in &manifest.servers {
            if let exeat_policy::manifest::Transport::Http { url, .. } = &server.transport {
                judge(text, &[(url.value.as_str(), Allow), ("https://example.com/", Deny)]);
            }
        }
    }
    judge(
        CODING,
        &[
            ("https://github.com/acme/website.git/info/refs", Allow),
            ("https://github.com/other/website.git/info/refs", Deny),
            ("https://packages.acme.example/simple/", Allow),
            ("https://api.github.com/repos/acme/website/issues", Allow),
            ("https://api.github.com/repos/acme/production/issues", Deny),
        ],
    );
    judge(RESEARCH, &[("https://en.wikipedia.org/wiki/Exeat", Allow), ("https://login.wikipedia.org/", Deny)]);
    judge(
        SUPPORT,
        &[
            ("https://shop.acme.example/api/orders/17", Allow),
            ("https://shop.acme.example/api/orders/export?all", Deny),
        ],
    );
}
