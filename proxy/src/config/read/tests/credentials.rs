//! `[bindings]`, `[catalog.NAME]` and `[[inject]]`.

use super::*;

#[test]
fn a_binding_has_one_source() {
    let config = good("[bindings]\nA_1 = { env = \"HOME\" }\n2 = { file = \"secrets/b\" }\n");
    assert_eq!(config.bindings["A_1"], Binding::Env("HOME".to_owned()));
    assert_eq!(config.bindings["2"], Binding::File(PathBuf::from("etc/secrets/b")));
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
    assert_eq!(help("bindings.A = {}"), "write { env = \"VARIABLE\" } or { file = \"path\" }");
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
fn sources_that_are_not_served_are_named_as_such() {
    assert_eq!(
        problems(
            "[bindings]\nA = { command = [\"op\", \"read\"], ttl = \"10m\" }\nB = { oauth = { grant = \"x\" } }\n\
             C = { env = \"C\", command = [] }\n"
        ),
        [
            "2:7 E0301 `bindings.A`: this version does not serve the source `command`",
            "3:7 E0301 `bindings.B`: this version does not serve the source `oauth`",
            "4:18 E0301 `bindings.C`: this version does not serve the source `command`",
        ]
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
