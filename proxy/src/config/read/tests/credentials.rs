//! `[bindings]`, `[catalog.NAME]` and `[[inject]]`.

use super::*;
use crate::config::{AuthorizationServer, ClientAuth, Encoded, Grant, OAuthSource, Redact, RedactScope};

#[test]
fn a_binding_has_one_source() {
    let config = good("[bindings]\nA_1 = { env = \"HOME\" }\n2 = { file = \"secrets/b\" }\n");
    assert_eq!(config.bindings["A_1"], Binding::Stored(SecretSource::Env("HOME".to_owned())));
    assert_eq!(config.bindings["2"], Binding::Stored(SecretSource::File(PathBuf::from("etc/secrets/b"))));
    assert_eq!(
        problems("[bindings]\nA = {}\nB = { env = \"B\", file = \"b\" }\nC = { evn = \"C\" }\nD = 5\n"),
        [
            "2:5 E0302 `bindings.A`: expected exactly one source, found none",
            "3:5 E0302 `bindings.B`: expected exactly one source, found two",
            "4:5 E0302 `bindings.C`: expected exactly one source, found none",
            "4:7 E0003 unknown key `evn` in `bindings.C`",
            "5:5 E0004 `bindings.D`: expected a table with the source of the value, found an integer",
        ]
    );
    assert_eq!(
        help("bindings.A = {}"),
        "write { env = \"VARIABLE\" }, { file = \"path\" }, { command = [\"program\", \"argument\"] } or { oauth = { … } }"
    );
}

#[test]
fn a_binding_is_not_the_secret_itself() {
    let (_, problems) = Config::read(&Source::new("exeat.toml", "bindings.A = \"Bearer s3cret\""));
    assert_eq!(
        lines(&problems),
        ["1:14 E0106 `bindings.A`: expected a table with the source of the value, found a string"]
    );
}

#[test]
fn a_command_is_a_program_with_arguments() {
    let config = good(
        "[bindings]\nA = { command = [\"op\", \"read\", \"op://x/y\"] }\n\
         B = { command = [\"bin/get\"], ttl = \"1m\", timeout = \"500ms\", pass_env = [\"OP_TOKEN\"] }\n\
         C = { command = [\"/usr/bin/get\"] }\n",
    );
    let command = |name: &str| match &config.bindings[name] {
        Binding::Command(command) => command.clone(),
        other => panic!("{other:?}"),
    };
    let op = command("A");
    assert_eq!((op.program, op.arguments), ("op".into(), vec!["read".to_owned(), "op://x/y".to_owned()]));
    assert_eq!((op.ttl.as_secs(), op.timeout.as_secs(), op.pass_env.len()), (300, 10, 0));
    let get = command("B");
    assert_eq!((get.program, get.arguments.len()), ("etc/bin/get".into(), 0), "a path starts at the file's folder");
    assert_eq!((get.ttl.as_secs(), get.timeout.as_millis()), (60, 500));
    assert_eq!(get.pass_env, ["OP_TOKEN"]);
    assert_eq!(command("C").program, PathBuf::from("/usr/bin/get"));
    assert_eq!(
        problems(
            "[bindings]\nA = { command = [] }\nB = { command = \"op read\" }\nC = { command = [\"\"], ttl = \"0s\" }\n\
             D = { command = [\"op\"], timeout = \"1h\", pass_env = [\"A=B\"] }\nE = { env = \"E\", ttl = \"1m\" }\n\
             F = { command = [\"op\"], env = \"F\" }\nG = { command = [\"a\\u0000\"] }\n"
        ),
        [
            "2:17 E0006 `bindings.A.command`: expected a program",
            "3:17 E0004 `bindings.B.command`: expected an array of strings, found a string",
            "4:17 E0006 `bindings.C.command`: expected a program",
            "4:29 E0006 `bindings.C.ttl` is 0s, outside 1s to 24h",
            "5:35 E0006 `bindings.D.timeout` is 1h, outside 100ms to 5m",
            "5:53 E0006 `bindings.D.pass_env[0]`: expected the name of an environment variable, found `A=B`",
            "6:18 E0006 `bindings.E.ttl`: only a `command` has `ttl`",
            "7:5 E0302 `bindings.F`: expected exactly one source, found two",
            "8:17 E0006 `bindings.G.command`: a NUL cannot be passed to a program",
        ]
    );
}

const CLIENT: &str = "grant = \"client_credentials\"\ntoken_url = \"https://as.example/token\"\nclient_id = \"me\"\n";

/// The OAuth source of a table's text.
fn oauth(table: &str) -> OAuthSource {
    let config = good(&format!("[bindings.A.oauth]\n{table}"));
    match config.bindings.into_values().next() {
        Some(Binding::OAuth(source)) => *source,
        other => panic!("{other:?}"),
    }
}

#[test]
fn tokens_come_from_authorization_servers() {
    let source = oauth(CLIENT);
    assert_eq!((source.grant, source.client_auth), (Grant::ClientCredentials, ClientAuth::None));
    assert_eq!((source.client_id.as_str(), source.scheme.as_str()), ("me", "Bearer"));
    assert!(source.scopes.is_empty() && source.resource.is_none());
    let source = oauth(&format!(
        "{CLIENT}client_secret = {{ env = \"S\" }}\nscopes = [\"a\", \"b:c\"]\nscheme = \"\"\n\
         resource = \"https://MCP.example/mcp\"\n"
    ));
    assert_eq!(source.client_auth, ClientAuth::Basic(SecretSource::Env("S".to_owned())));
    assert_eq!((source.scopes, source.scheme), (vec!["a".to_owned(), "b:c".to_owned()], String::new()));
    assert_eq!(source.resource.unwrap().written, "https://MCP.example/mcp");
    let source = oauth(
        "grant = \"refresh_token\"\nissuer = \"http://127.0.0.1:9000/\"\nclient_id = \"me\"\nkey_id = \"1\"\n\
         private_key = { file = \"key.pem\" }\nrefresh_token = { file = \"first\" }\nstore = \"kept/token\"\n",
    );
    let first = SecretSource::File("etc/first".into());
    assert_eq!(source.grant, Grant::RefreshToken { first, store: "etc/kept/token".into() });
    let key = SecretSource::File("etc/key.pem".into());
    assert_eq!(source.client_auth, ClientAuth::PrivateKeyJwt { key, key_id: Some("1".to_owned()) });
    assert!(matches!(source.server, AuthorizationServer::Issuer(_)));
}

#[test]
fn an_oauth_source_is_read_with_every_problem() {
    for (table, expected) in [
        (
            "",
            &[
                "E0005 the key `grant` of",
                "E0006 `bindings.A.oauth`: expected `token_url` or `issuer`, found neither",
                "E0005 the key `client_id` of",
            ][..],
        ),
        (
            &format!("{CLIENT}issuer = \"https://as.example\"\n"),
            &["E0006 `bindings.A.oauth`: expected `token_url` or `issuer`, found both"],
        ),
        (
            &format!("{CLIENT}store = \"x\"\n"),
            &["E0006 `bindings.A.oauth.store`: the grant `client_credentials` has none"],
        ),
        (
            &format!("{CLIENT}client_secret = \"s3cret\"\n"),
            &["E0106 `bindings.A.oauth.client_secret`: expected a table"],
        ),
        (
            &format!("{CLIENT}client_secret = {{ command = [\"x\"] }}\n"),
            &["E0302 `bindings.A.oauth.client_secret`: the source `command` is one for"],
        ),
        (
            &format!("{CLIENT}client_auth = \"client_secret_post\"\n"),
            &["E0006 `bindings.A.oauth`: this way of proving it needs `client_secret`"],
        ),
        (
            &format!("{CLIENT}client_auth = \"none\"\nclient_secret = {{ env = \"S\" }}\n"),
            &["E0006 `bindings.A.oauth`: `client_auth` is `none`"],
        ),
        (
            &format!("{CLIENT}scopes = [\"a b\"]\nscheme = \"a b\"\nscope = 1\n"),
            &[
                "E0006 `bindings.A.oauth.scopes[0]`: expected one scope",
                "E0006 `bindings.A.oauth.scheme`: expected the name of a scheme",
                "E0003 unknown key `scope`",
            ],
        ),
        (&CLIENT.replace("https://as", "http://as"), &["E0006 `bindings.A.oauth.token_url`: expected https"]),
        (
            &CLIENT.replace("https://as", "https://u:p@as"),
            &["E0006 `bindings.A.oauth.token_url`: expected a URL without user name"],
        ),
        (
            &CLIENT.replace("token_url = \"https://as.example/token\"", "issuer = \"https://as.example/?x\""),
            &["E0006 `bindings.A.oauth.issuer`: an issuer has no query"],
        ),
        (
            &CLIENT.replace("client_credentials", "password"),
            &["E0006 `bindings.A.oauth.grant` does not take `password`"],
        ),
    ] {
        let found = problems(&format!("[bindings.A.oauth]\n{table}"));
        assert_eq!(found.len(), expected.len(), "{table}: {found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{table}: {found}");
        }
    }
}

#[test]
fn two_bindings_do_not_share_a_store() {
    let binding = |name: &str, store: &str| {
        format!(
            "[bindings.{name}.oauth]\ngrant = \"refresh_token\"\ntoken_url = \"https://as.example/\"\nclient_id = \"me\"\n\
             refresh_token = {{ env = \"R\" }}\nstore = \"{store}\"\n"
        )
    };
    assert_eq!(
        problems(&(binding("A", "x") + &binding("B", "x"))),
        ["7:11 E0006 `bindings.B`: the store is that of `A` too"]
    );
    assert_eq!(good(&(binding("A", "x") + &binding("B", "y"))).bindings.len(), 2);
}

#[test]
fn what_is_searched_is_said_for_each_server() {
    let config = good(
        "[catalog.a]\nurl = \"https://a.example/\"\nredact = \"headers\"\nredact_encoded = \"pass\"\n\
         [catalog.b]\nurl = \"https://b.example/\"\n\
         [[inject]]\nurl = \"https://c.example/\"\nheaders = { X = \"1\" }\nredact = \"off\"\n",
    );
    let expected = Redact { scope: RedactScope::Headers, encoded: Encoded::Pass };
    assert_eq!((config.catalog["a"].redact, config.catalog["b"].redact), (expected, Redact::default()));
    assert_eq!(config.inject[0].redact, Redact { scope: RedactScope::Off, encoded: Encoded::Withhold });
    assert_eq!(
        problems("[catalog.a]\nurl = \"https://a.example/\"\nredact = \"all\"\n"),
        ["3:10 E0006 `catalog.a.redact` does not take `all`"]
    );
}

#[test]
fn names_of_bindings_and_variables_are_checked() {
    assert_eq!(
        problems(
            "[bindings]\nA-B = { env = \"A\" }\n\"\" = { env = \"A\" }\nC = { env = \"\" }\nD = { env = \"${D}\" }\n\
             E = { env = \"A=B\" }\nF = { file = \"\" }\nG = { env = 1 }"
        ),
        [
            "2:1 E0006 the name of a binding is letters, digits and `_`, found `A-B`",
            "3:1 E0006 the name of a binding is letters, digits and `_`, found ``",
            "4:13 E0006 `bindings.C.env`: expected the name of an environment variable, found ``",
            "5:13 E0006 `bindings.D.env`: expected the name of an environment variable, found `${D}`",
            "6:13 E0006 `bindings.E.env`: expected the name of an environment variable, found `A=B`",
            "7:14 E0006 `bindings.F.file`: expected a path, found an empty string",
            "8:13 E0004 `bindings.G.env`: expected a string, found an integer",
        ]
    );
}

#[test]
fn the_catalog_describes_servers() {
    let config = good(
        "[catalog.linear]\nurl = \"https://MCP.Linear.app/mcp\"\nauth_mode = \"oauth\"\n\
         headers = { Authorization = \"${LINEAR}\", X-Team = \"t\" }\n[catalog.plain]\nurl = \"http://a.example\"",
    );
    let linear = &config.catalog["linear"];
    assert_eq!(linear.url.value, "https://mcp.linear.app/mcp");
    assert_eq!(linear.source.position(linear.url.span.start).line, 2);
    assert_eq!(linear.auth_mode, Some(AuthMode::OAuth));
    assert_eq!(linear.headers, [placeholder("authorization", "LINEAR"), literal("x-team", "t")]);
    let plain = &config.catalog["plain"];
    assert_eq!((plain.url.value.as_str(), plain.auth_mode), ("http://a.example/", None));
    assert!(plain.headers.is_empty());
}

#[test]
fn entries_of_the_catalog_are_read_by_the_manifests_rules() {
    assert_eq!(
        problems(
            "[catalog.a]\nheaders = { X = \"1\" }\n\
             [catalog.b]\nurl = \"https://u:p@b.example/\"\nauth_mode = \"token\"\n\
             [catalog.c]\nurl = \"https://c.example/\"\nheaders = { Authorization = \"Bearer x\", Host = \"x\", \"a b\" = \"1\" }\n\
             [catalog.d]\nurl = \"https://${D}/\"\nbearer = 1\n\
             [catalog.\"\"]\nurl = \"https://e.example/\"\n"
        ),
        [
            "1:1 E0005 the key `url` of `catalog.a` is missing",
            "4:7 E0108 `https://u:p@b.example/` carries a user name or password",
            "5:13 E0006 `catalog.b.auth_mode` does not take `token`",
            "8:29 E0106 `Authorization` holds a credential, and the manifest is no place for one",
            "8:41 E0111 `Host` belongs to the connection, and the gateway writes it itself",
            "8:53 E0111 `a b` is not a header name",
            "10:7 E0108 a placeholder in a url is not filled in",
            "11:1 E0003 unknown key `bearer` in `catalog.d`",
            "12:10 E0006 an entry of the catalog has no name",
        ]
    );
}

#[test]
fn fields_are_injected_for_url_prefixes() {
    let config = good(
        "[[inject]]\nurl = \"https://API.github.com:443/repos/**\"\nheaders = { Authorization = \"${GITHUB}\" }\n\
         [[inject]]\nurl = \"http://a.example:8080/\"\nheaders = { X-Team = \"t\" }",
    );
    let [first, second] = &config.inject[..] else { panic!("{:?}", config.inject) };
    assert_eq!(first.url.value, "https://api.github.com/repos");
    assert_eq!(first.source.position(first.url.span.start).line, 2);
    assert_eq!(first.headers, [placeholder("authorization", "GITHUB")]);
    assert_eq!(second.url.value, "http://a.example:8080/");
    assert_eq!(second.headers, [literal("x-team", "t")]);
}

#[test]
fn what_is_no_url_prefix_is_refused() {
    let text = |url: &str| format!("[[inject]]\nurl = \"{url}\"\nheaders = {{ X = \"1\" }}");
    for (url, problem) in [
        ("api.example", "E0306 `inject[0].url`: expected a URL prefix, found `api.example` without scheme and path"),
        ("*.example", "E0306 `inject[0].url`: expected a URL prefix, found `*.example` without scheme and path"),
    ] {
        assert_eq!(problems(&text(url)), [format!("2:7 {problem}")]);
    }
    for url in [
        "https://*.example/",
        "ftp://a.example/",
        "https://a.example/?x=1",
        "https://a.example/#x",
        "",
        "https://u@a.example/",
    ] {
        let found = problems(&text(url));
        assert!(found.len() == 1 && found[0].starts_with("2:7 E0306 `inject[0].url`: "), "{url}: {found:?}");
    }
    assert_eq!(help(&text("api.example")), "write `https://api.example/`");
}

#[test]
fn an_injection_has_a_url_and_fields() {
    assert_eq!(
        problems(
            "[[inject]]\nurl = \"https://a.example/\"\n[[inject]]\nheaders = { Cookie = \"a=b\" }\n\
             [[inject]]\nurl = \"https://b.example/\"\nheaders = {}\nname = \"b\"\n"
        ),
        [
            "1:1 E0005 the key `headers` of `inject[0]` is missing",
            "3:1 E0005 the key `url` of `inject[1]` is missing",
            "4:22 E0106 `Cookie` holds a credential, and the manifest is no place for one",
            "7:11 E0006 `inject[2].headers`: expected header fields, found none",
            "8:1 E0003 unknown key `name` in `inject[2]`",
        ]
    );
}

#[test]
fn credentials_over_plain_http_are_warned_of() {
    let text = "[catalog.a]\nurl = \"http://a.example/mcp\"\nheaders = { Authorization = \"${A}\" }\n\
                [[inject]]\nurl = \"http://b.example/\"\nheaders = { Authorization = \"${B}\" }\n\
                [[inject]]\nurl = \"http://127.0.0.1:8080/\"\nheaders = { Authorization = \"${C}\" }\n";
    let warning = "W0103 a credential is put on requests over TLS only, so this server will be refused";
    assert_eq!(problems(text), [format!("2:7 {warning}"), format!("5:7 {warning}")]);
}
