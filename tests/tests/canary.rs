//! One canary in every secret, a scenario that uses all of them in all the ways there are, and a look through everything
//! the gateway says.

use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt as _;

use exeat_tests::peers::{AuthorizationServer, TokenSettings};
use exeat_tests::prelude::*;
use rustix::process::Signal;
use tempfile::TempDir;

const HOST: &str = "mcp.example.test";
const SECRETS: [(&str, &str); 3] = [
    ("FROM_ENV", "Bearer canary-from-env"),
    ("FROM_FILE", "Basic Y2FuYXJ5OmNhbmFyeS1wYXNzd29yZA=="),
    ("FROM_COMMAND", "canary-from-command"),
];

#[tokio::test]
async fn no_secret_is_anywhere_to_be_seen() {
    let server = AuthorizationServer::start(TokenSettings::default()).await;
    let ca = TestCa::new();
    let echo = Reply::computed(|request| async move {
        let fields = ["authorization", "x-api-key"].map(|name| request.values(name).join(" "));
        let reply = Reply::text(&format!("{}\n{}\n", request.head.start, fields.join("\n")));
        fields.iter().filter(|field| !field.is_empty()).fold(reply, |reply, field| reply.header("X-Echo", field))
    });
    let refused = Reply::status(401).header("WWW-Authenticate", "Bearer");
    let broken = Reply::verbatim("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n");
    let site =
        Site::default().at("/401*", refused).at("/broken*", broken).at("/reset*", Reply::reset("")).at("*", echo);
    let origin = Origin::https(site, &ca.leaf(&[HOST])).await;
    let store = TempDir::new().unwrap();
    let mut setup = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[HOST]).env("EXEAT_LOG", "trace");
    let mut paths = Vec::new();
    for (name, secret) in SECRETS {
        setup = match name {
            "FROM_ENV" => setup.bind(name, secret),
            "FROM_FILE" => setup.bind_file(name, secret),
            _ => setup.set("bindings", name, "{ command = [\"cat\", \"@DIR@/command\"] }").file("command", secret),
        };
        let field = if name == "FROM_COMMAND" { "X-Api-Key" } else { "Authorization" };
        for kind in ["echo", "401", "broken", "reset"] {
            let path = format!("/{kind}/{name}");
            setup = setup.inject(&origin.url(HOST, &path), &[(field, &format!("${{{name}}}"))]);
            paths.push(path);
        }
    }
    let oauth = [
        ("grant", "\"refresh_token\"".to_owned()),
        ("token_url", format!("{:?}", server.token_url())),
        ("client_id", "\"user-app\"".to_owned()),
        ("client_secret", "{ env = \"CLIENT_SECRET\" }".to_owned()),
        ("refresh_token", "{ env = \"FIRST\" }".to_owned()),
        ("store", format!("{:?}", store.path().join("token.json").to_str().unwrap())),
    ];
    for (name, proof) in [("FROM_SERVER", "secret-user-app"), ("FROM_NOWHERE", "canary-wrong-secret")] {
        for (key, value) in &oauth {
            let value = if name == "FROM_NOWHERE" {
                value.replace("token.json", "other.json").replace("CLIENT_SECRET", "WRONG_SECRET")
            } else {
                value.clone()
            };
            setup = setup.set(&format!("bindings.{name}.oauth"), key, &value);
        }
        let variable = if name == "FROM_SERVER" { "CLIENT_SECRET" } else { "WRONG_SECRET" };
        setup = setup.secret_env(variable, proof).secret_env("FIRST", server.refresh_token());
        let path = format!("/echo/{name}");
        setup = setup.inject(&origin.url(HOST, &path), &[("Authorization", &format!("${{{name}}}"))]);
        paths.push(path);
    }
    let setup = setup.user("agent", "canary-proxy-password").block(&[origin.url(HOST, "/echo/FROM_ENV/no")]);
    let mut gateway = setup.inject(&origin.url(HOST, "/unbound"), &[("Authorization", "${UNBOUND}")]).start().await;
    paths.extend(["/unbound".to_owned(), "/echo/FROM_ENV/no".to_owned()]);

    let mut said = String::new();
    let login = "Proxy-Authorization: Basic YWdlbnQ6Y2FuYXJ5LXByb3h5LXBhc3N3b3Jk";
    let ask = async |head: String| {
        let mut conn = gateway.open().await;
        let answer = conn.roundtrip(&head).await;
        format!("{}{}", String::from_utf8_lossy(&answer.head.raw), answer.text())
    };
    for path in &paths {
        let url = origin.url(HOST, path);
        said += &ask(format!("GET {url} HTTP/1.1\r\nHost: x\r\n{login}")).await;
        said += &ask(format!("TRACE {url} HTTP/1.1\r\nHost: x\r\n{login}")).await;
        said += &ask(format!("GET {url} HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n{login}")).await;
    }
    said +=
        &ask(format!("GET {} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic canary", origin.url(HOST, "/"))).await;
    assert!(said.contains("GET /echo/FROM_SERVER") && said.contains("***"), "{said}");
    gateway.reload().await;
    gateway.write("exeat.toml", "[bindings]\nA = \"canary-in-the-config\"\n");
    gateway.reload().await;
    for path in ["/metrics", "/readyz", "/livez", "/v1/policy", "/v1/evidence", "/v1/decisions", "/v1/sessions", "/"] {
        said += &gateway.admin_get(path).await.text();
    }
    gateway.signal(Signal::TERM);
    gateway.ended().await;
    said += &gateway.lines().join("\n");

    let carried: Vec<String> = origin.requests().iter().flat_map(|request| request.values("authorization")).collect();
    let token = carried.iter().find(|value| !value.contains("canary") && value.starts_with("Bearer ")).unwrap();
    let stored: serde_json::Value =
        serde_json::from_slice(&std::fs::read(store.path().join("token.json")).unwrap()).unwrap();
    let secrets = ["canary-", "Y2FuYXJ5", "secret-user-app", &token["Bearer ".len()..], server.refresh_token()];
    for secret in secrets.into_iter().chain(stored["refresh_token"].as_str()) {
        // What the last config has in the place of a source is quoted by nobody either.
        let at = said.find(secret);
        assert!(at.is_none(), "{secret}: …{}…", &said[at.unwrap().saturating_sub(200)..at.unwrap() + 100]);
    }
    assert!(said.contains("FROM_NOWHERE") && said.contains("credential not renewed"), "{said}");
}

#[tokio::test]
async fn a_gateway_that_dies_says_nothing_of_its_secrets() {
    let ca = TestCa::new();
    let origin = Origin::https(Site::default().at("*", Reply::text("hello")), &ca.leaf(&[HOST])).await;
    let mut setup = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[HOST]).env("EXEAT_LOG", "trace");
    for (name, secret) in SECRETS {
        setup = setup.bind(name, secret);
        setup = setup.inject(&origin.url(HOST, &format!("/{name}")), &[("Authorization", &format!("${{{name}}}"))]);
    }
    let mut gateway = setup.start().await;
    for (name, secret) in SECRETS {
        assert_eq!(gateway.get(&origin.url(HOST, &format!("/{name}"))).await.status, 200);
        assert!(origin.requests().iter().any(|request| request.values("authorization") == [secret]));
    }
    // Heads that never end take memory until there is none: the allocator gives up, and the process with it.
    gateway.limit_memory(0);
    let head = format!("GET http://{HOST}/ HTTP/1.1\r\nHost: {HOST}\r\nX: {}", "x".repeat(30 << 10));
    let open = || -> std::io::Result<TcpStream> {
        let mut conn = TcpStream::connect(gateway.proxy())?;
        conn.write_all(head.as_bytes())?;
        Ok(conn)
    };
    let heads: Vec<TcpStream> = std::iter::repeat_with(open).map_while(Result::ok).take(10_000).collect();
    let status = gateway.ended().await;
    assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "after {} heads", heads.len());
    let last = gateway.await_line("memory allocation of").await;
    assert!(last.ends_with("failed"), "{last}");
    // That nothing of all it has said holds a secret is what the harness looks for.
}
