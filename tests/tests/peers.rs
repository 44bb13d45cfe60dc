//! The real programs reach their servers through a proxy without a policy, and are turned away without the credential:
//! the control for the suites that put the gateway in between.

use exeat_tests::peers::{self, McpClient, McpServer, NodeDir, Packages};
use exeat_tests::prelude::*;
use exeat_tests::relay::PlainProxy;
use serde_json::Value;

const HOST: &str = "peer.example.test";
const AUTHORIZATION: &str = "Bearer s3cret";

struct World {
    ca: TestCa,
    leaf: Leaf,
    proxy: PlainProxy,
}

impl World {
    async fn new() -> Self {
        let ca = TestCa::new();
        let leaf = ca.leaf(&[HOST]);
        Self { ca, leaf, proxy: PlainProxy::start().await }
    }

    fn through(&self, command: Cmd) -> Cmd {
        command.proxied(&format!("http://{}", self.proxy.addr()), &self.ca.pem_path())
    }

    /// That each request came as a CONNECT to the host.
    #[track_caller]
    fn assert_used(&self) {
        let requests = self.proxy.requests();
        let connect = format!("CONNECT {HOST}:");
        assert!(!requests.is_empty() && requests.iter().all(|line| line.starts_with(&connect)), "{requests:?}");
    }
}

#[tokio::test]
async fn git_clones_and_pushes() {
    let world = World::new().await;
    let (site, _repositories) = peers::git_server().await;
    let origin = Origin::https(site, &world.leaf).await;
    let dir = tempfile::TempDir::new().unwrap();
    let url = origin.url(HOST, "/team/repo.git");
    world.through(Cmd::new("git").args(["clone", "-q", &url, "repo"]).dir(dir.path())).run().await.success();
    let repo = dir.path().join("repo");
    assert_eq!(std::fs::read_to_string(repo.join("hello.txt")).unwrap(), "hello from git\n");
    let commit =
        ["-c", "user.name=T", "-c", "user.email=t@example.test", "commit", "-q", "--allow-empty", "-m", "Say no more"];
    Cmd::new("git").args(commit).dir(&repo).run().await.success();
    world.through(Cmd::new("git").args(["push", "-q"]).dir(&repo)).run().await.success();
    world.assert_used();
}

#[tokio::test]
async fn pip_downloads_a_wheel() {
    let world = World::new().await;
    let origin = Origin::https(Packages::default().pypi(), &world.leaf).await;
    let pip = Cmd::new(peers::python()).args(["-m", "pip", "install", "--no-deps", "--target", "out"]);
    let pip = pip.args(["--index-url", &origin.url(HOST, "/simple/"), "exeat-sample"]);
    let dir = tempfile::TempDir::new().unwrap();
    world.through(pip.dir(dir.path())).run().await.success();
    assert!(dir.path().join("out/exeat_sample.py").exists());
    world.assert_used();
}

#[tokio::test]
async fn npm_installs_plain_and_scoped_packages() {
    let world = World::new().await;
    let origin = Origin::https(Packages::default().npm(), &world.leaf).await;
    let npm = Cmd::new("npm").args(["install", "--no-audit", "--no-fund", "--registry", &origin.url(HOST, "/")]);
    let dir = tempfile::TempDir::new().unwrap();
    let npm = npm.args(["exeat-sample", "@exeat/scoped"]).dir(dir.path());
    world.through(npm).run().await.success();
    assert!(dir.path().join("node_modules/@exeat/scoped/index.js").exists());
    assert!(origin.requests().iter().any(|request| request.target == "/@exeat%2fscoped"));
    world.assert_used();
}

#[tokio::test]
async fn requests_and_node_fetch_a_page() {
    let world = World::new().await;
    let origin = Origin::https(Site::default(), &world.leaf).await;
    let url = origin.url(HOST, "/page");
    let node = NodeDir::default();
    for command in [Cmd::new(peers::python()).arg(peers::script("get.py")), node.command("fetch.mjs")] {
        let answer = world.through(command.arg(&url)).run().await.success();
        assert_eq!(serde_json::from_str::<Value>(&answer).unwrap()["text"], "GET /page\n");
    }
    world.assert_used();
}

#[tokio::test]
async fn mcp_clients_are_turned_away_without_the_credential() {
    let world = World::new().await;
    let server = McpServer::python(&world.leaf, AUTHORIZATION).await;
    let node = NodeDir::default();
    for client in McpClient::ALL {
        let command = client.command(&node).args([&server.url(HOST), "echo", r#"{"text":"hi"}"#]);
        world.through(command).run().await.failure();
    }
    assert!(server.authorizations().iter().all(Vec::is_empty));
    world.assert_used();
}

#[tokio::test]
async fn mcp_clients_list_and_call_where_nothing_is_asked() {
    let world = World::new().await;
    let node = NodeDir::default();
    let everything = McpServer::everything(&world.leaf, "").await;
    for client in McpClient::ALL {
        let command = client.command(&node).args([&everything.url(HOST), "echo", r#"{"message":"hi"}"#]);
        let answer: Value = serde_json::from_str(&world.through(command).run().await.success()).unwrap();
        assert_eq!(answer["text"], "Echo: hi", "{client:?}");
        assert!(answer["tools"].as_array().unwrap().iter().any(|tool| tool == "echo"), "{client:?}");
    }
    world.assert_used();
}
