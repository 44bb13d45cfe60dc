//! Every client that agents use, in a session: pointed at the gateway by its variables alone, and confined. Each asks for
//! what is permitted, for a host that is not, for a path that is not, and for what carries a bound credential; and each
//! is a row of the table in docs/clients.md, which has to say what was measured.

mod clients;
mod programs;

use exeat_tests::prelude::*;
use exeat_tests::session::Session;

use clients::{CLIENTS, Client, Outside};

const HOST: &str = "peer.example.test";
const OTHER: &str = "other.example.test";
const AUTHORIZATION: &str = "Bearer s3cret-of-the-session";
const TABLE: &str = include_str!("../../../docs/clients.md");

/// What became of a client's four requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Each was judged as its rule says.
    Judged,
    /// None reached the gateway.
    Around,
}

impl Outcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Judged => "judged",
            Self::Around => "not sent to the gateway",
        }
    }
}

/// Has a client make its requests, and tells what became of them.
async fn measure(client: &Client, isolate: &str) -> Outcome {
    let ca = TestCa::new();
    let outside = Outside::start(client, &ca).await;
    let url = |host: &str, path: &str| format!("{}://{host}:{}{path}", client.scheme, outside.port());
    let rules: Vec<String> = client.rules.iter().map(|path| url(HOST, path).replace("wss:", "https:")).collect();
    let rules = if client.rules.is_empty() { vec![HOST.to_owned()] } else { rules };
    let mut setup = Gateway::setup().names(&[HOST, OTHER]).trust(&ca).allow(&rules).bind("CREDENTIAL", AUTHORIZATION);
    if let Some(bound) = client.bound {
        setup = setup.inject(&url(HOST, bound).replace("wss:", "https:"), &[("Authorization", "${CREDENTIAL}")]);
    }
    if client.rules.is_empty() {
        setup = setup.set("sessions", "catch", &format!("[443, {}]", outside.port()));
    }
    let (permitted, refused) = (url(HOST, client.permitted), url(HOST, client.refused));
    let session = Session::new(setup).isolate(isolate);
    let script = client.script(&outside, session.dir());
    let line =
        ["sh", "-c", &script, "sh", &permitted, &url(OTHER, client.permitted), &refused, &url(HOST, client.carrying())];
    let ended = session.run(&line).await;
    let said: Vec<&str> = ended.output.stdout.lines().collect();
    let decisions = ended.decisions();
    if decisions.is_empty() {
        assert!(!said.contains(&client.good), "{said:?}");
        println!("{} {isolate}: {:#?}", client.name, ended.output);
        return Outcome::Around;
    }
    assert_eq!(said.len(), 4, "{} {isolate}: {:#?} {decisions:#?}", client.name, ended.output);
    let good: Vec<bool> = said.iter().map(|line| *line == client.good).collect();
    let path = client.rules.is_empty();
    assert_eq!(good, [true, false, path, true], "{} {isolate}: {:#?} {decisions:#?}", client.name, ended.output);
    assert!(decisions.iter().any(|line| line.contains(" deny ") && line.contains(OTHER)), "{decisions:#?}");
    if !path {
        let refused = decisions.iter().any(|line| line.contains(" deny ") && line.contains(client.refused));
        assert!(refused, "{decisions:#?}");
    }
    if client.bound.is_some() {
        let carried = outside.carried(client.carrying());
        assert!(carried.contains(&AUTHORIZATION.to_owned()), "{} {isolate}: {carried:?}", client.name);
    }
    assert!(!ended.output.stdout.contains("s3cret"));
    Outcome::Judged
}

/// Measures a client in both ways, and compares its row of the table.
async fn check(name: &str) {
    let client = CLIENTS.iter().find(|client| client.name == name).unwrap();
    let alone = measure(client, "off").await;
    let confined = measure(client, "require").await;
    assert_eq!(confined, Outcome::Judged, "{name}: nothing goes around a session that is confined");
    let row = format!("| {name} | {} | {} | {} |", alone.as_str(), confined.as_str(), client.cure);
    assert!(TABLE.lines().any(|line| line == row), "docs/clients.md has no row\n{row}");
}

macro_rules! rows {
    ($($test:ident: $name:literal,)*) => {
        $(#[tokio::test]
        async fn $test() {
            check($name).await;
        })*

        #[test]
        fn the_table_has_a_row_for_each_client_and_no_other() {
            let rows = TABLE.lines().filter(|line| line.ends_with(" |") && line.contains("judged | "));
            let rows: Vec<&str> = rows.filter_map(|line| line.split(" | ").next()?.strip_prefix("| ")).collect();
            assert_eq!(rows, [$($name),*]);
            assert_eq!(rows, CLIENTS.iter().map(|client| client.name).collect::<Vec<_>>());
        }
    };
}

rows! {
    curl: "curl",
    wget: "wget",
    git: "git over https",
    git_ssh: "git over ssh",
    pip: "pip",
    uv: "uv",
    npm: "npm",
    cargo: "cargo",
    apt: "apt",
    urllib: "Python urllib",
    requests: "Python requests",
    httpx: "Python httpx",
    aiohttp: "Python aiohttp",
    aiohttp_env: "Python aiohttp, `trust_env=True`",
    websockets: "Python websockets",
    grpc: "Python grpcio",
    node_fetch: "Node 20 fetch",
    node_https: "Node 20 https",
    undici: "Node undici, `EnvHttpProxyAgent`",
    axios: "Node axios",
    ws: "Node ws",
    go: "Go net/http",
    java_client: "Java HttpClient",
    java_connection: "Java HttpURLConnection",
    chromium: "Chromium",
    mcp_python: "MCP SDK for Python 1",
    mcp_python_2: "MCP SDK for Python 2",
    mcp_fastmcp: "MCP fastmcp 4",
    mcp_node: "MCP SDK for TypeScript 1, Node 20",
    mcp_node_2: "MCP SDK for TypeScript 2, Node 20",
    mcp_rust: "MCP SDK for Rust",
}
