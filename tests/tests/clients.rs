//! The programs that agents use, through the gateway and its path rules.

use exeat_tests::client::curl;
use exeat_tests::peers::{self, NodeDir, Packages};
use exeat_tests::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

const HOST: &str = "peer.example.test";

/// An HTTPS origin known as [`HOST`], and a gateway that allows these paths of it.
async fn scene(site: Site, paths: &[&str]) -> (Origin, Gateway) {
    let ca = TestCa::new();
    let origin = Origin::https(site, &ca.leaf(&[HOST])).await;
    let rules: Vec<String> = paths.iter().map(|path| origin.url(HOST, path)).collect();
    let gateway = Gateway::setup().names(&[HOST]).trust(&ca).allow(&rules).start().await;
    (origin, gateway)
}

#[tokio::test]
async fn curl_gets_what_is_allowed_and_is_told_why_not() {
    let (origin, gateway) = scene(Site::default(), &["/v1/"]).await;
    assert_eq!(curl(&gateway, &[&origin.url(HOST, "/v1/x")]).run().await.success(), "GET /v1/x\n\n200");
    let denied = curl(&gateway, &[&origin.url(HOST, "/v2/x")]).run().await.success();
    assert!(denied.ends_with("403") && denied.contains(r#""reason": "not_allowed""#), "{denied}");
    let connect = curl(&gateway, &["https://outside.test/"]).run().await;
    assert_eq!(connect.code, Some(56), "curl's word for a refused CONNECT: {connect:#?}");
    assert!(connect.stderr.contains("403"), "{connect:#?}");
}

#[tokio::test]
async fn curl_uploads_and_downloads_through_inspection() {
    let (origin, gateway) = scene(Site::default().at("/v1/echo", Reply::echo()), &["/v1/"]).await;
    let body = "0123456789abcdef".repeat(256 * 1024);
    let url = origin.url(HOST, "/v1/echo");
    let echoed = curl(&gateway, &["--data-binary", "@-", &url]).input(body.clone()).run().await.success();
    assert_eq!(echoed.strip_suffix("\n200"), Some(body.as_str()));
}

#[tokio::test]
async fn curl_passes_through_a_blind_tunnel_to_the_origins_own_certificate() {
    let (origin, gateway) = scene(Site::default(), &["/"]).await;
    let output = curl(&gateway, &["-v", &origin.url(HOST, "/x")]).run().await;
    assert!(output.stderr.contains("issuer: CN=exeat test CA"), "{}", output.stderr);
    assert_eq!(output.success(), "GET /x\n\n200");
}

#[tokio::test]
async fn curl_speaks_plain_http_in_absolute_form_and_in_tunnels() {
    let origin = Origin::http(Site::default()).await;
    let gateway = Gateway::setup().names(&[HOST]).allow(&[origin.url(HOST, "/v1/")]).start().await;
    for args in [&[][..], &["--proxytunnel"]] {
        let get = async |path: &str| curl(&gateway, &[args, &[&origin.url(HOST, path)]].concat()).run().await.success();
        assert_eq!(get("/v1/x").await, "GET /v1/x\n\n200", "{args:?}");
        assert!(get("/v2/x").await.ends_with("403"), "{args:?}");
    }
}

#[tokio::test]
async fn git_clones_one_team_and_not_the_other() {
    let (site, _repositories) = peers::git_server().await;
    let (origin, gateway) = scene(site, &["/team/"]).await;
    let dir = TempDir::new().unwrap();
    let clone = async |path: &str, into: &str| {
        let url = origin.url(HOST, path);
        Cmd::new("git").args(["clone", "-q", &url, into]).dir(dir.path()).through(&gateway).run().await
    };
    clone("/team/repo.git", "team").await.success();
    assert_eq!(std::fs::read_to_string(dir.path().join("team/hello.txt")).unwrap(), "hello from git\n");
    assert!(clone("/secret/repo.git", "secret").await.failure().contains("403"));
    assert!(origin.requests().iter().all(|request| request.target.starts_with("/team/")));
}

#[tokio::test]
async fn git_pushes_unless_the_push_is_blocked() {
    let (site, _repositories) = peers::git_server().await;
    let ca = TestCa::new();
    let origin = Origin::https(site, &ca.leaf(&[HOST])).await;
    let setup = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[origin.url(HOST, "/team/")]);
    let open = setup.clone().start().await;
    let closed = setup.block(&[origin.url(HOST, "/team/repo.git/git-receive-pack")]).start().await;
    let dir = TempDir::new().unwrap();
    let url = origin.url(HOST, "/team/repo.git");
    Cmd::new("git").args(["clone", "-q", &url, "repo"]).dir(dir.path()).through(&closed).run().await.success();
    let repo = dir.path().join("repo");
    let identity = ["-c", "user.name=T", "-c", "user.email=t@example.test"];
    let commit = ["commit", "-q", "--allow-empty", "-m", "Say more"];
    Cmd::new("git").args(identity).args(commit).dir(&repo).run().await.success();
    Cmd::new("git").args(["push", "-q"]).dir(&repo).through(&closed).run().await.failure();
    assert!(
        origin.requests().iter().all(|request| request.method == "GET" || !request.target.ends_with("receive-pack"))
    );
    Cmd::new("git").args(["push", "-q"]).dir(&repo).through(&open).run().await.success();
}

#[tokio::test]
async fn pip_installs_an_allowed_package_only() {
    let (origin, gateway) = scene(Packages::default().pypi(), &["/simple/exeat-sample/", "/files/"]).await;
    let dir = TempDir::new().unwrap();
    let pip = async |name: &str| {
        let pip = Cmd::new(peers::python()).args(["-m", "pip", "install", "--no-deps", "--retries", "0"]);
        let pip = pip.args(["--target", "out", "--index-url", &origin.url(HOST, "/simple/"), name]);
        pip.dir(dir.path()).through(&gateway).run().await
    };
    pip("exeat-sample").await.success();
    assert!(dir.path().join("out/exeat_sample.py").exists());
    pip("other-package").await.failure();
    assert!(origin.requests().iter().all(|request| !request.target.contains("other-package")));
}

#[tokio::test]
async fn npm_installs_plain_and_scoped_packages_through_prefix_rules() {
    let paths = ["/exeat-sample", "/@exeat/"];
    let (origin, gateway) = scene(Packages::default().npm(), &paths).await;
    let dir = TempDir::new().unwrap();
    let npm = async |names: &[&str]| {
        let args = ["install", "--no-audit", "--no-fund", "--fetch-retries=0", "--registry", &origin.url(HOST, "/")];
        Cmd::new("npm").args(args).args(names).dir(dir.path()).through(&gateway).run().await
    };
    npm(&["exeat-sample"]).await.success();
    assert!(dir.path().join("node_modules/exeat-sample/index.js").exists());
    assert!(npm(&["other-package"]).await.failure().contains("403"));
    assert!(origin.requests().iter().all(|request| !request.target.contains("other-package")));
}

#[tokio::test]
async fn npm_reaches_a_scoped_package_whose_name_is_escaped() {
    let (origin, gateway) = scene(Packages::default().npm(), &["/@exeat%2fscoped", "/@exeat/"]).await;
    let dir = TempDir::new().unwrap();
    let args = ["install", "--no-audit", "--no-fund", "--registry", &origin.url(HOST, "/"), "@exeat/scoped"];
    Cmd::new("npm").args(args).dir(dir.path()).through(&gateway).run().await.success();
    assert!(dir.path().join("node_modules/@exeat/scoped/index.js").exists());
    assert!(origin.requests().iter().any(|request| request.target == "/@exeat%2fscoped"), "sent on as it was judged");
}

#[tokio::test]
async fn python_requests_and_node_fetch_are_judged_alike() {
    let (origin, gateway) = scene(Site::default(), &["/v1/"]).await;
    let node = NodeDir::default();
    let python = || Cmd::new(peers::python()).arg(peers::script("get.py"));
    let fetch = || node.command("fetch.mjs");
    for (name, command) in [("python", &python as &dyn Fn() -> Cmd), ("node", &fetch)] {
        let get = async |path: &str| -> Value {
            let output = command().arg(origin.url(HOST, path)).through(&gateway).run().await.success();
            serde_json::from_str(&output).unwrap()
        };
        assert_eq!(get("/v1/x").await, json!({ "status": 200, "reason": null, "text": "GET /v1/x\n" }), "{name}");
        let denied = get("/v2/x").await;
        assert_eq!((&denied["status"], &denied["reason"]), (&json!(403), &json!("not_allowed")), "{name}");
    }
}

#[tokio::test]
async fn a_client_that_does_not_trust_the_ca_gets_nothing_through_inspection() {
    let (origin, gateway) = scene(Site::default(), &["/v1/"]).await;
    let proxy = format!("http://{}", gateway.proxy());
    let url = origin.url(HOST, "/v1/x");
    let output = Cmd::new("curl").args(["-sS", "-x", &proxy, &url]).run().await;
    assert_eq!(output.code, Some(60), "curl's word for a certificate it does not trust: {output:#?}");
    assert!(origin.requests().is_empty());
}
