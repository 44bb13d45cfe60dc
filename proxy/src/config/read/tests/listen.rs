//! `[listen]`: the ways in.

use super::*;
use crate::config::{Auth, ListenTls};

#[test]
fn every_way_in_is_read_with_paths_from_the_files_folder() {
    let text = r#"
[listen]
proxy = "0.0.0.0:3128"
unix = "proxy.sock"
tls_cert = "proxy.pem"
tls_key = "/keys/proxy.key"
client_ca = "clients.pem"
proxy_protocol = ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"]
[listen.auth.users]
alice = { env = "ALICE" }
"bob builder" = { file = "bob" }
[listen.auth.tokens]
ci = { env = "CI_TOKEN" }
"#;
    let listen = good(text).listen;
    assert_eq!(listen.unix, Some(PathBuf::from("etc/proxy.sock")));
    let tls = ListenTls {
        cert: "etc/proxy.pem".into(),
        key: "/keys/proxy.key".into(),
        client_ca: Some("etc/clients.pem".into()),
    };
    assert_eq!(listen.tls, Some(tls));
    assert!(listen.proxy_protocol[0].contains("10.1.2.3".parse().unwrap()) && listen.proxy_protocol.len() == 3);
    let users = [
        ("alice".to_owned(), SecretSource::Env("ALICE".to_owned())),
        ("bob builder".to_owned(), SecretSource::File("etc/bob".into())),
    ];
    let tokens = [("ci".to_owned(), SecretSource::Env("CI_TOKEN".to_owned()))];
    assert_eq!(listen.auth, Auth { users: users.into(), tokens: tokens.into() });
}

#[test]
fn files_for_tls_need_each_other() {
    for (text, message) in [
        ("tls_cert = \"a\"", "`listen.tls_cert` is written without `listen.tls_key`"),
        ("tls_key = \"a\"", "`listen.tls_key` is written without `listen.tls_cert`"),
        ("client_ca = \"a\"", "`listen.client_ca` is written without `listen.tls_cert`"),
        ("client_ca = \"a\"\ntls_cert = \"a\"", "`listen.tls_cert` is written without `listen.tls_key`"),
    ] {
        let found = problems(&format!("[listen]\n{text}"));
        assert!(matches!(&found[..], [only] if only.ends_with(&format!("E0308 {message}"))), "{found:?}");
    }
}

#[test]
fn nobody_in_the_section_and_names_that_nobody_can_say_are_errors() {
    for text in ["", "users = {}", "users = {}\ntokens = {}"] {
        let found = problems(&format!("[listen.auth]\n{text}"));
        assert!(matches!(&found[..], [only] if only.ends_with("expected a user or a token, found none")), "{found:?}");
    }
    for name in ["", "a:b", "a\\u0007b", &"a".repeat(256)] {
        let found = problems(&format!("[listen.auth.users]\n\"{name}\" = {{ env = \"A\" }}"));
        let said = |problem: &str| problem.contains(" E0006 ") && problem.contains("no name of a user");
        assert!(matches!(&found[..], [only] if said(only)), "{found:?}");
    }
    assert_eq!(
        problems("[listen.auth]\nusers = { alice = \"secret\" }"),
        ["2:19 E0106 `listen.auth.users.alice`: expected a table with the source of the value, found a string"]
    );
}

#[test]
fn sources_of_proxy_headers_are_addresses_and_ranges() {
    for (source, message) in [
        ("lb.test", "expected an address or a range such as `10.1.0.0/16`, found \"lb.test\""),
        ("10.0.0.1/8", "expected the first address of a range, found \"10.0.0.1/8\"; the range is `10.0.0.0/8`"),
        ("::ffff:10.0.0.1", "expected IPv4 addresses in their usual form, found \"::ffff:10.0.0.1\""),
    ] {
        let found = problems(&format!("[listen]\nproxy_protocol = [\"{source}\"]"));
        assert_eq!(found, [format!("2:19 E0006 `listen.proxy_protocol[0]`: {message}")]);
    }
}
