use super::*;
use crate::diag::Severity;

fn load(text: &str) -> (Option<Manifest>, Vec<Diagnostic>) {
    Manifest::read(&Source::new("agent.toml", text), Format::Toml)
}

fn loaded(text: &str) -> Manifest {
    let (manifest, diagnostics) = load(text);
    manifest.unwrap_or_else(|| panic!("{}", rendered(&diagnostics)))
}

/// Each diagnostic with the help under it.
fn rendered(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(|diagnostic| format!("{diagnostic}\n  help: {}\n", diagnostic.help)).collect()
}

fn codes(text: &str) -> Vec<&'static str> {
    load(text).1.iter().map(|diagnostic| diagnostic.code.as_str()).collect()
}

/// The codes that a server of these lines gets.
fn server_codes(lines: &str) -> Vec<&'static str> {
    codes(&format!("name = \"a\"\n[mcpServers.s]\n{lines}\n"))
}

fn server(lines: &str) -> Server {
    loaded(&format!("name = \"a\"\n[mcpServers.s]\n{lines}\n")).servers.remove(0)
}

#[test]
fn the_smallest_manifest_is_a_name() {
    let manifest = loaded("name = \"a\"\n");
    assert_eq!(manifest.name.value, "a");
    assert!(manifest.network_access.is_none() && manifest.servers.is_empty());
}

#[test]
fn all_problems_of_a_file_are_reported_with_place_and_cure() {
    let text = r#"name = "Research Agent"
network_acess = { allowed = [] }
max_iterations = 0
tags = ["a", 1]

[mcpServers.linear]
url = "https://user@mcp.linear.app/mcp"
protcol_mode = "auto"
headers = { Authorization = "Bearer abc", "X-Team" = "ops\n" }

[mcpServers.linear.extra]
"#;
    let (manifest, diagnostics) = load(text);
    assert!(manifest.is_none());
    assert_eq!(
        rendered(&diagnostics),
        r#"agent.toml:1:8: error[E0102]: `Research Agent` is not a name: only a-z, 0-9 and inner hyphens are taken
  help: write `research-agent`
agent.toml:2:1: error[E0003]: unknown key `network_acess`
  help: did you mean `network_access`?
agent.toml:3:18: error[E0006]: `max_iterations` is 0, outside 1 to 1000
  help: write a number from 1 to 1000
agent.toml:4:14: error[E0004]: `tags[1]`: expected a string, found an integer
  help: write a string
agent.toml:7:7: error[E0108]: `https://user@mcp.linear.app/mcp` carries a user name or password
  help: remove what stands before `@`; put credentials in `headers` as a placeholder
agent.toml:8:1: error[E0003]: unknown key `protcol_mode` in `mcpServers.linear`
  help: did you mean `protocol_mode`?
agent.toml:9:29: error[E0106]: `Authorization` holds a credential, and the manifest is no place for one
  help: write "${AUTHORIZATION}" and bind the name in the gateway's config
agent.toml:9:54: error[E0112]: `X-Team` holds U+000A, which no header value may
  help: remove line breaks and other control characters
agent.toml:11:20: error[E0003]: unknown key `extra` in `mcpServers.linear`
  help: known keys are `type`, `use`, `url`, `headers`, `command`, `args`, `env`, `auth_mode`, `actsAs`, `protocol_mode`, `elicitation_policy`, `tool_discovery`, `oauth_provider_id`
"#
    );
}

#[test]
fn a_duplicate_key_names_both_places_in_every_format() {
    let read = |text: &str, format| rendered(&Manifest::read(&Source::new("f", text), format).1);
    let expected = |at: &str| {
        format!(
            "f:{at}: error[E0002]: `name` is written twice; it stands at line 1, column {} already\n  help: keep one of the two\n",
            if at == "1:15" { 2 } else { 1 }
        )
    };
    assert_eq!(read("name = \"a\"\nname = \"b\"\n", Format::Toml), expected("2:1"));
    assert_eq!(read("name: a\nname: b\n", Format::Yaml), expected("2:1"));
    assert_eq!(read(r#"{"name": "a", "name": "b"}"#, Format::Json), expected("1:15"));
}

#[test]
fn an_unreadable_file_says_where_and_why() {
    let read = |text: &str, format| rendered(&Manifest::read(&Source::new("f", text), format).1);
    assert_eq!(
        read("name = \"a\ntags = [\n", Format::Toml),
        "f:1:10: error[E0001]: invalid basic string\n  help: expected `\"`\nf:2:9: error[E0001]: unclosed array\n  help: expected `]`\n"
    );
    assert_eq!(
        read("{\n  // no\n  \"name\": 'a',\n  \"tags\": [],\n}", Format::Json),
        "f:2:3: error[E0001]: JSON has no comments\n  help: remove the comment, or write the file as TOML or YAML\n\
         f:3:11: error[E0001]: strings of JSON stand in double quotes\n  help: replace `'` by `\"`\n\
         f:4:13: error[E0001]: JSON has no comma behind the last item\n  help: remove the comma\n"
    );
    assert_eq!(
        read("name: &n a\ntags: [*n]\n<<: {a: 1}\n---\nb: 1\n", Format::Yaml),
        "f:1:7: error[E0010]: a YAML anchor is not read\n  help: write the value out where it is needed\n\
         f:2:8: error[E0010]: a YAML alias is not read\n  help: write the value again\n\
         f:3:1: error[E0010]: a YAML merge key is not read\n  help: write the merged keys out\n\
         f:4:1: error[E0010]: a second YAML document is not read\n  help: keep one document\n"
    );
    assert_eq!(
        read("- name: a\n", Format::Yaml),
        "f:1:1: error[E0004]: expected a table, found an array\n  help: write a table\n"
    );
}

#[test]
fn names() {
    for name in ["a", "0", "a-b", "a--b", &"x".repeat(255)] {
        assert_eq!(codes(&format!("name = {name:?}")), [""; 0], "{name}");
    }
    for name in ["", "-a", "a-", "A", "a b", "a_b", "é", "-", &"x".repeat(256)] {
        assert_eq!(codes(&format!("name = {name:?}")), ["E0102"], "{name}");
    }
    assert_eq!(codes("tags = []"), ["E0005"]);
}

#[test]
fn older_spellings_load_and_both_at_once_do_not() {
    let text = "name = \"a\"\nsystem_prompt = \"p\"\n[mcp_servers.s]\nurl = \"https://x.test/\"\nacts_as = \"user\"\n";
    let manifest = loaded(text);
    assert_eq!(manifest.instructions.map(Spanned::into_value).as_deref(), Some("p"));
    assert_eq!(manifest.servers[0].acts_as.map(Spanned::into_value), Some(ActsAs::User));
    for (word, mode) in [("legacy", "2025-03-26"), ("stable", "2025-06-18"), ("rc", "2026-07-28")] {
        let old = server(&format!("url = \"https://x.test/\"\nprotocol_mode = \"{word}\""));
        let new = server(&format!("url = \"https://x.test/\"\nprotocol_mode = \"{mode}\""));
        assert_eq!((old.protocol_mode, old.protocol_mode.as_str()), (new.protocol_mode, mode));
        assert_eq!(old.protocol_mode.pinned(), Some(mode));
    }
    assert_eq!(codes("name = \"a\"\ninstructions = \"p\"\nsystem_prompt = \"p\"\n"), ["E0007"]);
    assert_eq!(codes("name = \"a\"\nmcpServers = {}\nmcp_servers = {}\n"), ["E0007"]);
    assert_eq!(server_codes("url = \"https://x.test/\"\nacts_as = \"user\"\nactsAs = \"user\""), ["E0007"]);
}

#[test]
fn instructions_stand_here_or_in_a_file() {
    assert_eq!(codes("name = \"a\"\ninstructions = \"p\"\ninstructions_file = \"f\""), ["E0103"]);
    assert_eq!(codes("name = \"a\"\ninstructions = \"\"\ninstructions_file = \"f\""), [""; 0]);
    assert_eq!(codes("name = \"a\"\nsystem_prompt = \"p\"\ninstructions_file = \"\""), ["E0103"]);
}

#[test]
fn network_access_keeps_patterns_as_written_with_their_places() {
    let manifest = loaded("name = \"a\"\n[network_access]\nallowed = [\"B.example\",\n  \"a.example\"]\n");
    let access = manifest.network_access.unwrap();
    let places: Vec<_> = access
        .allowed
        .iter()
        .map(|entry| (&*entry.written.value, manifest.source.position(entry.written.span.start)))
        .map(|(pattern, at)| (pattern, at.line, at.column))
        .collect();
    assert_eq!(places, [("B.example", 3, 12), ("a.example", 4, 3)]);
    assert!(access.blocked.is_empty());
    let null = Manifest::read(&Source::new("f", r#"{"name": "a", "network_access": null}"#), Format::Json);
    assert!(null.0.unwrap().network_access.is_none());
}

#[test]
fn every_bad_pattern_is_reported_at_its_place() {
    let text = "name = \"a\"\n[network_access]\nallowed = [\n  \"example.com\",\n  \"exa mple\",\n]\nblocked = [\"ftp://x.test/\"]\n";
    let (manifest, diagnostics) = load(text);
    assert!(manifest.is_none());
    let places: Vec<_> =
        diagnostics.iter().map(|found| (found.code, found.start().line, found.start().column)).collect();
    assert_eq!(places, [(Code::Pattern, 5, 3), (Code::Pattern, 7, 12)]);
    assert!(diagnostics.iter().all(|found| !found.help.is_empty()));
}

#[test]
fn doubtful_patterns_are_warned_about() {
    let text = r#"name = "a"
[network_access]
allowed = ["*.com", "a.test", "A.TEST.", "b.test"]
blocked = ["b.test", "*.net"]
"#;
    let (manifest, diagnostics) = load(text);
    assert!(manifest.is_some());
    assert_eq!(
        rendered(&diagnostics),
        "agent.toml:3:12: warning[W0108]: `*.com` covers names that anybody can register\n  help: write the domains that are needed, such as `*.example.com`\n\
         agent.toml:3:31: warning[W0106]: `A.TEST.` is allowed on line 3 already\n  help: remove it\n\
         agent.toml:3:42: warning[W0107]: `b.test` is blocked on line 4, so nothing it names is let out\n  help: keep it in one of the lists\n"
    );
}

#[test]
fn a_manifest_is_a_layer_of_rules_with_places() {
    let layer =
        loaded("name = \"a\"\nnetwork_access = { allowed = [\"*.A.test\"], blocked = [\"b.test\"] }\n").layer("agent");
    let (pattern, rule) = &layer.allowed[0];
    assert_eq!(pattern, &crate::Pattern::parse("*.a.test").unwrap());
    assert_eq!((&*rule.pattern, &*rule.file, rule.line, rule.column), ("*.A.test", "agent.toml", 2, 31));
    assert_eq!((&*layer.name, layer.blocked.len()), ("agent", 1));
    assert!(loaded("name = \"a\"").layer("agent").allowed.is_empty());
}

#[test]
fn servers_say_where_they_are() {
    assert_eq!(server_codes(""), ["E0107"]);
    assert_eq!(server_codes("type = \"http\""), ["E0107"]);
    assert_eq!(server_codes("url = \"\""), ["E0107"]);
    assert_eq!(server_codes("type = \"stdio\""), ["E0107"]);
    assert_eq!(server_codes("type = \"stdio\"\ncommand = \"\""), ["E0107"]);
    assert_eq!(server_codes("type = \"sse\"\ncommand = \"x\""), ["E0006"]);
    assert_eq!(server_codes("url = 1"), ["E0004"]);
    assert_eq!(server_codes("command = 1"), ["E0004"]);

    let http = server("url = \"https://x.test/mcp\"");
    assert!(matches!(&http.transport, Transport::Http { url, .. } if url.value.as_str() == "https://x.test/mcp"));
    assert!(http.tool_discovery && http.protocol_mode == ProtocolMode::Auto && http.auth_mode.is_none());
    assert_eq!(http.elicitation_policy, ElicitationPolicy::Url);
    let stdio = server("command = \"npx\"\nargs = [\"-y\", \"x\"]\nenv = { A = \"1\", B_TOKEN = \"${B}\" }");
    let Transport::Stdio { command, args, env } = stdio.transport else { panic!() };
    assert_eq!((command.value.as_str(), args.len()), ("npx", 2));
    assert_eq!(env[0].value.value, HeaderValueSpec::Literal("1".into()));
    assert_eq!(env[1].value.value.placeholder(), Some("B"));
}

#[test]
fn a_catalog_reference_stands_alone() {
    assert!(matches!(
        server("use = \"catalog:linear\"").transport,
        Transport::Catalog { name } if name.value == "linear"
    ));
    for beside in ["type = \"http\"", "url = \"https://x.test/\"", "headers = {}"] {
        assert_eq!(server_codes(&format!("use = \"catalog:x\"\n{beside}")), ["E0110"], "{beside}");
    }
    for reference in ["linear", "catalog:", "Catalog:x", ""] {
        assert_eq!(server_codes(&format!("use = \"{reference}\"")), ["E0109"], "{reference}");
    }
}

#[test]
fn urls_of_servers() {
    for url in ["http://x.test", "HTTPS://x.test:8443/a?b=c", "https://[::1]/", "https://größe.test/", "https://1/"] {
        assert_eq!(server_codes(&format!("url = \"{url}\"")), [""; 0], "{url}");
    }
    for url in [
        "x.test",
        "ftp://x.test/",
        "https:x.test",
        "https:/x.test",
        "ws://x.test/",
        "https://",
        "https://:80/",
        "https://u@x.test/",
        "https://u:p@x.test/",
        "https://@x.test/",
        "https://x.test\\\\@y.test/#f",
        "https://x.test/#",
        "https://x.test/#f",
        "https://x.test/${A}",
        "${URL}",
        " https://x.test/",
        "https://x.te\\tst/",
        "https://x.test/a b",
        "https://x.test:99999/",
        "https://a b/",
        "https://[::1/",
    ] {
        assert_eq!(server_codes(&format!("url = \"{url}\"")), ["E0108"], "{url}");
    }
    assert_eq!(server_codes("command = \"x\"\ntype = \"stdio\"\nurl = \"https://${A}/\""), ["W0101", "E0108"]);
}

#[test]
fn header_names_are_field_names_that_the_gateway_does_not_write() {
    let with = |name: &str| server_codes(&format!("url = \"https://x.test/\"\nheaders = {{ {name:?} = \"v\" }}"));
    for name in ["X-Team", "x", "X_Y", "!#$%&'*+-.^_`|~9"] {
        assert_eq!(with(name), [""; 0], "{name}");
    }
    for name in ["", "a b", "a:", ":path", "é", "a\nb", "Host", "CONTENT-LENGTH", "Transfer-Encoding", "connection"] {
        assert_eq!(with(name), ["E0111"], "{name}");
    }
    for name in ["Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Upgrade"] {
        assert_eq!(with(name), ["E0111"], "{name}");
    }
    assert_eq!(server_codes("url = \"https://x.test/\"\nheaders = { X-A = \"1\", x-a = \"2\" }"), ["E0113"]);
    let Transport::Http { headers, .. } = server("url = \"https://x.test/\"\nheaders = { X-A = \"1\" }").transport
    else {
        panic!()
    };
    assert_eq!(headers[0].name.value.as_str(), "x-a");
}

#[test]
fn header_values_are_literal_or_one_placeholder() {
    let with = |value: &str| server_codes(&format!("url = \"https://x.test/\"\nheaders = {{ X-A = {value:?} }}"));
    for value in ["", "plain", "a\tb", "größe", "$A", "{A}", "$ {A}", "${A}", "${a_1}", "${1}"] {
        assert_eq!(with(value), [""; 0], "{value}");
    }
    for value in ["Bearer ${A}", "${A} ", "${}", "${A-B}", "${A.B}", "${A}${B}", "${", "${A", "${é}", "${${A}}"] {
        assert_eq!(with(value), ["E0105"], "{value}");
    }
    for value in ["a\r\nX: y", "a\u{0}b", "\u{7f}", "\u{1b}[31m"] {
        let text = format!("name: a\nmcpServers: {{s: {{url: 'https://x.test/', headers: {{X-A: {:?}}}}}}}", value);
        let json = text.replace("\\u{0}", "\\u0000").replace("\\u{7f}", "\\u007f").replace("\\u{1b}", "\\u001b");
        let (_, diagnostics) = Manifest::read(&Source::new("f", json), Format::Yaml);
        assert_eq!(diagnostics.iter().map(|d| d.code).collect::<Vec<_>>(), [Code::HeaderValue], "{value:?}");
    }
}

#[test]
fn credentials_need_a_placeholder() {
    let names = [
        "Authorization",
        "PROXY-AUTHORIZATION",
        "cookie",
        "X-Token",
        "my-tokens",
        "Client-Secret",
        "X-Password",
        "X-Api-Key",
        "api_key",
        "ApiKey",
        "X-Auth",
        "X-Author",
    ];
    for name in names {
        let header = |value: &str| format!("url = \"https://x.test/\"\nheaders = {{ {name} = \"{value}\" }}");
        assert_eq!(server_codes(&header("abc")), ["E0106"], "{name}");
        assert_eq!(server_codes(&header("")), ["E0106"], "{name}");
        assert_eq!(server_codes(&header("${A}")), [""; 0], "{name}");
        let env = |value: &str| format!("command = \"x\"\nenv = {{ {name} = \"{value}\" }}");
        assert_eq!(server_codes(&env("abc")), ["E0106"], "{name}");
        assert_eq!(server_codes(&env("Bearer ${A}")), ["E0105"], "{name}");
        assert_eq!(server_codes(&env("${A}")), [""; 0], "{name}");
    }
    for name in ["X-Team", "Cookies-Eaten", "Accept", "X-Key"] {
        let header = format!("url = \"https://x.test/\"\nheaders = {{ {name} = \"abc\" }}");
        assert_eq!(server_codes(&header), [""; 0], "{name}");
    }
}

#[test]
fn capability_names() {
    let with = |list: &str| codes(&format!("name = \"a\"\ncapabilities = {list}"));
    assert_eq!(with("[\"web_fetch\", \"_x\", { ref = \"a:b.c-d\", config = { x = 1 } }]"), [""; 0]);
    assert_eq!(with(&format!("[\"{}\"]", "x".repeat(128))), [""; 0]);
    for name in ["", "1a", "-a", ".a", "a b", "é", "mcp:linear", "skill:x", &"x".repeat(129)] {
        assert_eq!(with(&format!("[\"{name}\"]")), ["E0114"], "{name}");
        assert_eq!(with(&format!("[{{ ref = \"{name}\" }}]")), ["E0114"], "{name}");
    }
    assert_eq!(with("[\"a\", \"b\", { ref = \"a\" }]"), ["E0115"]);
    assert_eq!(with("[{ config = {} }]"), ["E0005"]);
    assert_eq!(with("[{ ref = \"a\", config = [] }]"), ["E0004"]);
    assert_eq!(with("[1]"), ["E0004"]);
}

#[test]
fn files_are_paths_sources_or_embedded() {
    let with = |list: &str| codes(&format!("name = \"a\"\nfiles = {list}"));
    let read = |list: &str| loaded(&format!("name = \"a\"\nfiles = {list}")).files.remove(0);
    assert!(matches!(read("[\"docs/*.md\"]"), File::Path(path) if path.value == "docs/*.md"));
    assert!(matches!(read("[{ source = \"a\" }]"), File::Source { is_readonly: true, path: None, .. }));
    let embedded = read("[{ path = \"a\", content = \"b\", encoding = \"base64\" }]");
    assert!(matches!(embedded, File::Embedded { is_readonly: false, encoding: Encoding::Base64, .. }));
    assert_eq!(with("[{ source = \"a\", content = \"b\" }]"), ["E0003"]);
    assert_eq!(with("[{ path = \"a\" }]"), ["E0005"]);
    assert_eq!(with("[{}]"), ["E0005", "E0005"]);
    assert_eq!(with(&format!("[{}]", "\"a\",".repeat(100))), [""; 0]);
    assert_eq!(with(&format!("[{}]", "\"a\",".repeat(101))), ["E0104"]);
}

#[test]
fn channels_are_counted() {
    let channels = |count: usize| -> String {
        (0..count).fold("name = \"a\"\n".to_owned(), |text, at| text + &format!("[channels.c{at}]\ntype = \"slack\"\n"))
    };
    assert_eq!(loaded(&channels(32)).channels.len(), 32);
    assert_eq!(codes(&channels(33)), ["E0104"]);
}

#[test]
fn tools_and_starters_are_read_whole() {
    let manifest = loaded(
        r#"name = "a"
starters = [{ text = "hi", icon = "zap", colour = "red" }]
[model]
provider = "openai"
model = "gpt"
[[tools]]
type = "client_side"
name = "t"
description = "d"
parameters = { type = "object" }
deferrable = "always"
hints = { readonly = true, side_effect_class = "AtMostOnce", own = 1 }
"#,
    );
    let tool = &manifest.tools[0];
    assert_eq!(tool.deferrable, Some(Deferrable::Always));
    let hints = tool.hints.as_ref().unwrap();
    assert_eq!((hints.readonly, hints.destructive), (Some(true), None));
    assert_eq!(hints.side_effect_class, Some(SideEffectClass::AtMostOnce));
    assert_eq!(hints.other[0].0.value, "own");
    assert_eq!(manifest.starters[0].other[0].0.value, "colour");
    assert_eq!(manifest.model.unwrap().model.value, "gpt");
}

#[test]
fn warnings_do_not_keep_a_manifest_from_loading() {
    let text = r#"name = "a"
[mcpServers."my server"]
type = "http"
url = "http://x.test/?api_key=1"
command = "x"
actsAs = "none"
headers = { X-A = "${A}" }
"#;
    let (manifest, diagnostics) = load(text);
    assert!(manifest.unwrap().server("my server").is_some());
    assert!(diagnostics.iter().all(|diagnostic| diagnostic.severity() == Severity::Warning));
    assert_eq!(
        rendered(&diagnostics),
        "agent.toml:2:13: warning[W0105]: the server name `my server` has to be escaped in its local address\n  help: write letters, digits, `-`, `_` and `.`\n\
         agent.toml:4:7: warning[W0102]: the query parameter `api_key` looks like a credential\n  help: a url ends up in logs; use a header with a placeholder if the server takes one\n\
         agent.toml:4:7: warning[W0103]: a credential is put on requests over TLS only, so this server will be refused\n  help: write `https://`\n\
         agent.toml:5:1: warning[W0101]: `mcpServers.\"my server\".command` means nothing for an http server\n  help: remove it\n\
         agent.toml:6:10: warning[W0104]: the server acts as nobody, so `A` is never filled in\n  help: write `service` or `user`, or remove the placeholder\n"
    );
    for quiet in ["http://localhost:1/", "http://127.0.0.1:1/", "http://[::1]:1/"] {
        assert_eq!(server_codes(&format!("url = \"{quiet}\"\nheaders = {{ X-A = \"${{A}}\" }}")), [""; 0]);
    }
}

#[test]
fn formats_differ_in_nothing_but_spelling() {
    let toml = "name = \"a\"\n[network_access]\nallowed = [\"x\"]\n";
    let yaml = "\u{feff}name: a\r\nnetwork_access:\r\n  allowed:\r\n    - x # y\r\n";
    let json = "\u{feff}{\"name\": \"a\", \"network_access\": {\"allowed\": [\"x\"]}}";
    for (text, format, line, column) in
        [(toml, Format::Toml, 3, 12), (yaml, Format::Yaml, 4, 7), (json, Format::Json, 1, 46)]
    {
        let source = Source::new("f", text);
        let (manifest, diagnostics) = Manifest::read(&source, format);
        let access = manifest.unwrap_or_else(|| panic!("{}", rendered(&diagnostics))).network_access.unwrap();
        let at = source.position(access.allowed[0].written.span.start);
        assert_eq!((at.line, at.column), (line, column), "{format:?}");
    }
}
