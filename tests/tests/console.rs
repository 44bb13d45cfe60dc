//! The console: the page itself, and the page in a real browser.

use exeat_tests::peers::NodeDir;
use exeat_tests::prelude::*;

const HOST: &str = "api.example.test";

#[tokio::test]
async fn the_page_and_its_files_come_with_a_policy_that_runs_nothing_else() {
    let gateway = Gateway::setup().allow(&[HOST]).start().await;
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/console/console.css", "text/css; charset=utf-8"),
        ("/console/console.js", "text/javascript; charset=utf-8"),
    ] {
        let answer = gateway.admin_get(path).await;
        assert_eq!((answer.status, answer.value("content-type").as_deref()), (200, Some(kind)), "{path}");
        assert_eq!(
            answer.value("content-security-policy").as_deref(),
            Some(
                "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                 frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
            )
        );
        for (field, value) in [("x-content-type-options", "nosniff"), ("cache-control", "no-store")] {
            assert_eq!(answer.value(field).as_deref(), Some(value), "{path}");
        }
    }
    gateway.admin_get("/console/").await.assert_refused(404, "not_found");
    gateway.admin_get("/console/nothing.js").await.assert_refused(404, "not_found");
    gateway.get(&format!("http://{}/", gateway.admin())).await.assert_refused(403, "not_allowed");
}

#[tokio::test]
async fn a_browser_shows_it_live_by_keyboard_and_without_running_what_clients_wrote() {
    let origin = Origin::http(Site::default()).await;
    let gateway = Gateway::setup().names(&[HOST]).allow(&[HOST, "unused.test", "bad.test", "10.0.0.1"]);
    let gateway = gateway.block(&["bad.test"]).mcp_server("docs", "https://gone.test/mcp", &[]);
    let gateway = gateway.set("dns", "servers", "[\"127.0.0.1:1\"]").start().await;
    let node = NodeDir::default();
    let chromium = std::env::split_paths(&exeat_tests::peers::search_path())
        .map(|folder| folder.join("chromium-headless-shell"))
        .find(|path| path.exists());
    let command = node.command("console.mjs").arg(chromium.expect("run .ci/setup"));
    let command = command.arg(gateway.admin().to_string()).arg(gateway.proxy().to_string());
    let command = command.arg(origin.url(HOST, "/docs/start"));
    command.args(std::env::var_os("EXEAT_SHOTS")).run().await.success();
}
