//! The clients, as data.

use std::path::Path;

use exeat_tests::peers::{self, GrpcServer, McpServer, Packages};
use exeat_tests::prelude::*;
use tempfile::TempDir;

use super::programs::{self, SshServer};
use super::{AUTHORIZATION, HOST};

/// A client and what it asks for.
pub(crate) struct Client {
    pub(crate) name: &'static str,
    pub(crate) scheme: &'static str,
    server: Server,
    /// The paths that are permitted; the whole host where there are none.
    pub(crate) rules: &'static [&'static str],
    /// What it asks for that is permitted, on its host and on another.
    pub(crate) permitted: &'static str,
    /// What it asks for that no rule permits.
    pub(crate) refused: &'static str,
    /// The prefix whose requests carry the credential.
    pub(crate) bound: Option<&'static str>,
    /// What it says of a request that was answered.
    pub(crate) good: &'static str,
    line: Line,
    /// What the table says beside.
    pub(crate) cure: &'static str,
}

/// What is on the other side.
#[derive(Clone, Copy)]
enum Server {
    Pages,
    Git,
    Ssh,
    Pypi,
    Npm,
    Crates,
    Grpc,
    Mcp,
    McpModern,
    McpPython2,
    McpNode2,
}

/// How its requests are made.
#[derive(Clone, Copy)]
enum Line {
    /// By a script that is told all URLs.
    All(fn(&Outside, &Path) -> String),
    /// By a command for the one URL in `$u`; it says whether that went well.
    Each(fn(&Outside, &Path) -> String),
}

impl Client {
    /// What it asks for that carries the credential.
    pub(crate) fn carrying(&self) -> &'static str {
        match self.server {
            Server::Pages if self.good == "101" => "/bound/ws",
            Server::Pages => "/bound/x",
            _ => self.permitted,
        }
    }

    /// The script that makes its requests, whose arguments are the URLs.
    pub(crate) fn script(&self, outside: &Outside, dir: &Path) -> String {
        match self.line {
            Line::All(line) => format!("{} \"$@\" 2>/dev/null", line(outside, dir)),
            Line::Each(line) => {
                format!("for u; do if {} >log 2>&1; then echo 200; else echo failed; fi; done", line(outside, dir))
            }
        }
    }
}

/// The other side, running.
pub(crate) enum Outside {
    /// With the folder that it serves from, which has to be kept.
    Origin(Origin, #[expect(dead_code, reason = "kept until the end")] Option<TempDir>),
    Grpc(GrpcServer),
    Mcp(McpServer),
    Ssh(SshServer),
}

impl Outside {
    pub(crate) async fn start(client: &Client, ca: &TestCa) -> Self {
        let leaf = ca.leaf(&[HOST]);
        let pages = Site::default().at("/v1/ws", Reply::websocket()).at("/bound/ws", Reply::websocket());
        match client.server {
            Server::Pages => Self::Origin(Origin::https(pages, &leaf).await, None),
            Server::Git => {
                let (site, repositories) = peers::git_server().await;
                Self::Origin(Origin::https(site, &leaf).await, Some(repositories))
            }
            Server::Pypi => Self::Origin(Origin::https(Packages::default().pypi(), &leaf).await, None),
            Server::Npm => Self::Origin(Origin::https(Packages::default().npm(), &leaf).await, None),
            Server::Crates => Self::Origin(Origin::https(programs::crates(), &leaf).await, None),
            Server::Grpc => Self::Grpc(GrpcServer::start(Some(&leaf)).await),
            Server::Mcp => Self::Mcp(McpServer::python(&leaf, AUTHORIZATION).await),
            Server::McpModern => Self::Mcp(McpServer::modern(&leaf, AUTHORIZATION).await),
            Server::McpPython2 => Self::Mcp(McpServer::python_2(&leaf, AUTHORIZATION).await),
            Server::McpNode2 => Self::Mcp(McpServer::node_2(&leaf, AUTHORIZATION).await),
            Server::Ssh => Self::Ssh(SshServer::start().await),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::Origin(origin, _) => origin.port(),
            Self::Grpc(server) => server.port(),
            Self::Mcp(server) => server.port(),
            Self::Ssh(server) => server.port(),
        }
    }

    /// The credentials that came with requests for `path` and below.
    pub(crate) fn carried(&self, path: &str) -> Vec<String> {
        match self {
            Self::Origin(origin, _) => {
                let requests = origin.requests().into_iter().filter(|request| request.target.starts_with(path));
                requests.flat_map(|request| request.values("authorization")).collect()
            }
            Self::Mcp(server) => server.authorizations().concat(),
            Self::Grpc(_) | Self::Ssh(_) => Vec::new(),
        }
    }

    /// The folder of the keys of SSH.
    pub(crate) fn ssh(&self) -> &SshServer {
        match self {
            Self::Ssh(server) => server,
            _ => panic!("no SSH server"),
        }
    }
}

const PAGES: Client = Client {
    name: "",
    scheme: "https",
    server: Server::Pages,
    rules: &["/v1/", "/bound/"],
    permitted: "/v1/x",
    refused: "/v2/x",
    bound: Some("/bound/"),
    good: "200",
    line: Line::All(|_, _| String::new()),
    cure: "",
};

const SOCKETS: Client = Client { scheme: "wss", permitted: "/v1/ws", refused: "/v2/ws", good: "101", ..PAGES };

const MCP: Client = Client {
    server: Server::Mcp,
    rules: &["/mcp"],
    permitted: "/mcp",
    refused: "/other",
    bound: Some("/mcp"),
    ..PAGES
};

const NO_VARIABLES: &str = "reads no variables of proxies; caught where the session is confined";

fn script(name: &str) -> String {
    peers::script(name).display().to_string()
}

/// A script where Node finds the packages from.
fn node_script(name: &str, dir: &Path) -> String {
    let copy = dir.join("script.mjs");
    std::fs::copy(peers::script(name), &copy).unwrap();
    std::os::unix::fs::symlink(peers::node_modules(), dir.join("node_modules")).unwrap();
    copy.display().to_string()
}

fn python(library: &str) -> String {
    format!("{} {} {library}", peers::python().display(), script("clients/fetch.py"))
}

fn node(library: &str, dir: &Path) -> String {
    format!("node {} {library}", node_script("clients/fetch.mjs", dir))
}

/// An MCP client, asked to call the tool `echo` of the server at `$u`.
fn mcp(client: &str) -> String {
    format!("{client} \"$u\" echo '{{\"text\":\"hi\"}}'")
}

/// Every client, in the order of the table.
pub(crate) const CLIENTS: &[Client] = &[
    Client {
        name: "curl",
        line: Line::Each(|_, _| "curl -sS --fail \"$u\"".to_owned()),
        cure: "reads `http_proxy` in lower case only",
        ..PAGES
    },
    Client {
        name: "wget",
        line: Line::Each(|_, _| "wget -q -O - \"$u\"".to_owned()),
        cure: "takes no CA from a variable; `exeat run` gives it a `WGETRC` that goes on from the user's own",
        ..PAGES
    },
    Client {
        name: "git over https",
        server: Server::Git,
        rules: &["/team/"],
        permitted: "/team/repo.git",
        refused: "/secret/repo.git",
        bound: Some("/team/"),
        line: Line::Each(|_, _| "git clone -q \"$u\" \"$(mktemp -d)\"".to_owned()),
        cure: "takes its CA from `GIT_SSL_CAINFO` alone",
        ..PAGES
    },
    Client {
        name: "git over ssh",
        scheme: "ssh",
        server: Server::Ssh,
        rules: &[],
        permitted: "/repo.git",
        refused: "/repo.git",
        bound: None,
        line: Line::Each(|outside, dir| outside.ssh().clone_command(dir)),
        cure: "knows of no proxy; caught by name on port 22 and the ports of `[sessions] catch`, and judged by host alone",
        ..PAGES
    },
    Client {
        name: "pip",
        server: Server::Pypi,
        rules: &["/simple/", "/files/"],
        permitted: "/simple/",
        refused: "/private/",
        bound: Some("/simple/"),
        line: Line::Each(|_, _| {
            let pip = format!("{} -m pip download -q --retries 0 --no-deps --no-cache-dir", peers::python().display());
            format!("{pip} -d \"$(mktemp -d)\" --index-url \"$u\" exeat-sample")
        }),
        ..PAGES
    },
    Client {
        name: "uv",
        server: Server::Pypi,
        rules: &["/simple/", "/files/"],
        permitted: "/simple/",
        refused: "/private/",
        bound: Some("/simple/"),
        line: Line::Each(|_, _| {
            let python = peers::python();
            let uv = python.with_file_name("uv");
            let install = format!("{} pip install -q --no-cache --no-deps --python {}", uv.display(), python.display());
            format!("env UV_HTTP_RETRIES=0 {install} --target \"$(mktemp -d)\" --index-url \"$u\" exeat-sample")
        }),
        ..PAGES
    },
    Client {
        name: "npm",
        server: Server::Npm,
        rules: &["/exeat-sample"],
        permitted: "/exeat-sample",
        refused: "/other-package",
        bound: Some("/exeat-sample"),
        line: Line::Each(|_, _| {
            "npm pack --silent --fetch-retries=0 --pack-destination \"$(mktemp -d)\" --registry \"${u%/*}/\" \"${u##*/}\""
                .to_owned()
        }),
        cure: "a `cafile` in an npmrc would win over `NODE_EXTRA_CA_CERTS`; `npm_config_cafile` wins over both",
        ..PAGES
    },
    Client {
        name: "cargo",
        server: Server::Crates,
        rules: &["/index/"],
        permitted: "/index/",
        refused: "/private/",
        bound: Some("/index/"),
        line: Line::Each(|_, dir| programs::cargo(dir)),
        ..PAGES
    },
    Client {
        name: "apt",
        line: Line::Each(|_, _| {
            "/usr/lib/apt/apt-helper -o APT::Sandbox::User=$(id -un) -o Acquire::Retries=0 download-file \"$u\" \
             \"$(mktemp -d)/file\""
                .to_owned()
        }),
        cure: "takes no CA from a variable; `exeat run` gives it an `APT_CONFIG` where none is set",
        ..PAGES
    },
    Client { name: "Python urllib", line: Line::All(|_, _| python("urllib")), cure: "reads no `ALL_PROXY`", ..PAGES },
    Client {
        name: "Python requests",
        line: Line::All(|_, _| python("requests")),
        cure: "takes its CA from `REQUESTS_CA_BUNDLE`, not from `SSL_CERT_FILE`",
        ..PAGES
    },
    Client { name: "Python httpx", line: Line::All(|_, _| python("httpx")), ..PAGES },
    Client { name: "Python aiohttp", line: Line::All(|_, _| python("aiohttp")), cure: NO_VARIABLES, ..PAGES },
    Client {
        name: "Python aiohttp, `trust_env=True`",
        line: Line::All(|_, _| python("aiohttp-env")),
        cure: "reads no `ALL_PROXY`",
        ..PAGES
    },
    Client {
        name: "Python websockets",
        line: Line::All(|_, _| python("websockets")),
        cure: "asks for a tunnel even for `ws://`",
        ..SOCKETS
    },
    Client {
        name: "Python grpcio",
        server: Server::Grpc,
        rules: &["/test.Echo/"],
        permitted: "/test.Echo/Unary",
        refused: "/secret.Echo/Unary",
        bound: None,
        line: Line::All(|_, _| python("grpc")),
        cure: "needs HTTP/2; reads proxy variables in lower case only, and its CA from `GRPC_DEFAULT_SSL_ROOTS_FILE_PATH`",
        ..PAGES
    },
    Client {
        name: "Node 20 fetch",
        line: Line::All(|_, dir| node("fetch", dir)),
        cure: "reads them from Node 24 on, with `NODE_USE_ENV_PROXY=1`; caught where the session is confined",
        ..PAGES
    },
    Client {
        name: "Node 20 https",
        line: Line::All(|_, dir| node("https", dir)),
        cure: "reads them from Node 24 on, with `NODE_USE_ENV_PROXY=1`; caught where the session is confined",
        ..PAGES
    },
    Client { name: "Node undici, `EnvHttpProxyAgent`", line: Line::All(|_, dir| node("undici", dir)), ..PAGES },
    Client { name: "Node axios", line: Line::All(|_, dir| node("axios", dir)), ..PAGES },
    Client { name: "Node ws", line: Line::All(|_, dir| node("ws", dir)), cure: NO_VARIABLES, ..SOCKETS },
    Client {
        name: "Go net/http",
        line: Line::All(|_, dir| programs::go(dir)),
        cure: "never asks a proxy for loopback addresses",
        ..PAGES
    },
    Client {
        name: "Java HttpClient",
        line: Line::All(|_, dir| programs::java(dir, "HttpClient")),
        cure: "reads `JAVA_TOOL_OPTIONS`, which the JVM reports in a line of its standard error",
        ..PAGES
    },
    Client {
        name: "Java HttpURLConnection",
        line: Line::All(|_, dir| programs::java(dir, "URLConnection")),
        cure: "as HttpClient",
        ..PAGES
    },
    Client {
        name: "Chromium",
        line: Line::Each(|_, dir| programs::chromium(dir)),
        cure: "takes no CA from a variable: put it into `~/.pki/nssdb` with `certutil -A -t C,, -n exeat -i ca.pem`",
        ..PAGES
    },
    Client {
        name: "MCP SDK for Python 1",
        line: Line::Each(|_, _| mcp(&format!("{} {}", peers::python().display(), script("mcp_client.py")))),
        ..MCP
    },
    Client {
        name: "MCP SDK for Python 2",
        server: Server::McpPython2,
        line: Line::Each(|_, _| mcp(&format!("{} {}", peers::modern_python().display(), script("mcp_client_2.py")))),
        ..MCP
    },
    Client {
        name: "MCP fastmcp 4",
        server: Server::McpModern,
        line: Line::Each(|_, _| mcp(&format!("{} {}", peers::modern_python().display(), script("fastmcp_client.py")))),
        ..MCP
    },
    Client {
        name: "MCP SDK for TypeScript 1, Node 20",
        line: Line::Each(|_, dir| mcp(&format!("node {}", node_script("mcp_client.mjs", dir)))),
        cure: "as Node's fetch",
        ..MCP
    },
    Client {
        name: "MCP SDK for TypeScript 2, Node 20",
        server: Server::McpNode2,
        line: Line::Each(|_, dir| mcp(&format!("node {} --auto", node_script("mcp_client_2.mjs", dir)))),
        cure: "as Node's fetch",
        ..MCP
    },
    Client {
        name: "MCP SDK for Rust",
        server: Server::McpPython2,
        line: Line::Each(|_, _| mcp(&format!("{} --auto", peers::rust_client().display()))),
        ..MCP
    },
];
