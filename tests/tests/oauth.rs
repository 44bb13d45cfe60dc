//! Credentials that are minted: by programs, and by authorization servers, a real one among them.

use std::path::Path;

use exeat_tests::origin::{Gate, Request};
use exeat_tests::peers::{AuthorizationServer, ClientKey, TokenSettings};
use exeat_tests::prelude::*;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

const HOST: &str = "mcp.example.test";
const RESOURCE: &str = "https://mcp.example.test/mcp";
const PLACEHOLDER: &[(&str, &str)] = &[("Authorization", "${TOKEN}")];

/// An HTTPS origin, and the beginning of a gateway whose requests to it need `TOKEN`.
async fn scene(site: Site) -> (Origin, Setup) {
    let ca = TestCa::new();
    let origin = Origin::https(site, &ca.leaf(&[HOST])).await;
    let setup = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[HOST]);
    let setup = setup.mcp_server("docs", &origin.url(HOST, "/mcp"), PLACEHOLDER);
    (origin, setup)
}

/// Binds `TOKEN` to an OAuth source, with keys as TOML.
fn oauth(setup: Setup, keys: &[(&str, &str)]) -> Setup {
    keys.iter().fold(setup, |setup, (key, value)| setup.set("bindings.TOKEN.oauth", key, value))
}

/// Binds `TOKEN` to the client `basic` of a token endpoint.
fn client(setup: Setup, token_url: &str) -> Setup {
    let setup = setup.secret_env("CLIENT_SECRET", AuthorizationServer::BASIC_SECRET);
    oauth(
        setup,
        &[
            ("grant", "\"client_credentials\""),
            ("token_url", &format!("{token_url:?}")),
            ("client_id", "\"basic\""),
            ("client_secret", "{ env = \"CLIENT_SECRET\" }"),
        ],
    )
}

/// Binds `TOKEN` to the refresh token of `user-app`, whose later ones are kept in `folder`.
fn refreshing(setup: Setup, server: &AuthorizationServer, token_url: &str, folder: &Path) -> Setup {
    let setup = setup.secret_env("FIRST", server.refresh_token()).secret_env("CLIENT_SECRET", "secret-user-app");
    oauth(
        setup,
        &[
            ("grant", "\"refresh_token\""),
            ("token_url", &format!("{token_url:?}")),
            ("client_id", "\"user-app\""),
            ("client_secret", "{ env = \"CLIENT_SECRET\" }"),
            ("refresh_token", "{ env = \"FIRST\" }"),
            ("store", &format!("{:?}", folder.join("token.json").to_str().unwrap())),
        ],
    )
}

/// An answer that never comes to a request that arrives whole.
fn never() -> Reply {
    Reply::text("never").after(&Gate::default())
}

/// The token that a request carried.
fn token(request: &Request) -> String {
    let value = request.value("authorization").expect("the request carries a credential");
    value.strip_prefix("Bearer ").expect("a bearer token").to_owned()
}

// --- Programs -----------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_program_is_run_once_for_as_long_as_its_value_is_used() {
    let (origin, setup) = scene(Site::default()).await;
    let script = "#!/bin/sh\nprintf x >> @DIR@/runs\necho \"Bearer from-$1-$GIVEN-$HIDDEN\"\n";
    let dir = TempDir::new().unwrap();
    let script = script.replace("@DIR@", dir.path().to_str().unwrap());
    let command =
        format!("{{ command = [\"/bin/sh\", \"{0}/get\", \"$(id)\"], pass_env = [\"GIVEN\"] }}", dir.path().display());
    std::fs::write(dir.path().join("get"), script).unwrap();
    let setup = setup.set("bindings", "TOKEN", &command).env("GIVEN", "given").secret_env("HIDDEN", "hidden");
    let gateway = setup.start().await;
    gateway.await_metric("exeat_credential_refresh_total", &[("binding", "TOKEN")], 0.0).await;
    for _ in 0..3 {
        gateway.get(&origin.url(HOST, "/mcp")).await.assert_ok("GET");
    }
    for request in origin.requests() {
        assert_eq!(token(&request), "from-$(id)-given-");
    }
    gateway.reload().await;
    gateway.get(&origin.url(HOST, "/mcp")).await.assert_ok("GET");
    assert_eq!(std::fs::read(dir.path().join("runs")).unwrap(), b"x", "a reload keeps the value");
    gateway.await_metric("exeat_credential_refresh_total", &[("binding", "TOKEN"), ("outcome", "success")], 1.0).await;
}

#[tokio::test]
async fn a_program_that_fails_refuses_the_request() {
    let (origin, setup) = scene(Site::default()).await;
    let command = "{ command = [\"/bin/sh\", \"-c\", \"echo canary; echo canary >&2; exit 1\"] }";
    let gateway = setup.set("bindings", "TOKEN", command).start().await;
    for _ in 0..2 {
        let problem = gateway.get(&origin.url(HOST, "/mcp")).await.assert_refused(403, "credential_unavailable");
        assert!(problem["detail"].as_str().unwrap().contains("${TOKEN}"), "{problem:#}");
    }
    assert!(origin.requests().is_empty());
    gateway.await_metric("exeat_credential_refresh_total", &[("outcome", "failure")], 1.0).await;
    let log = gateway.lines().join("\n");
    assert!(log.contains("it failed (exit status: 1)") && !log.contains("canary"), "{log}");
}

// --- A real authorization server ----------------------------------------------------------------------------------------

#[tokio::test]
async fn a_client_proves_itself_in_each_way() {
    let key = ClientKey::default();
    let settings = TokenSettings { resource: Some(RESOURCE.to_owned()), jwks: key.jwks(), ..TokenSettings::default() };
    let server = AuthorizationServer::start(settings).await;
    for (id, method, proof) in [
        ("basic", "client_secret_basic", "client_secret"),
        ("post", "client_secret_post", "client_secret"),
        ("signer", "private_key_jwt", "private_key"),
    ] {
        let (origin, setup) = scene(Site::default()).await;
        let secret = match id {
            "basic" => AuthorizationServer::BASIC_SECRET.to_owned(),
            "post" => "secret-post&x".to_owned(),
            _ => key.pem(),
        };
        let setup = setup.file("proof", &secret);
        let issuer = format!("{:?}", server.issuer());
        let (id, method) = (format!("{id:?}"), format!("{method:?}"));
        let gateway = oauth(
            setup,
            &[
                ("grant", "\"client_credentials\""),
                ("issuer", &issuer),
                ("client_id", &id),
                ("client_auth", &method),
                (proof, "{ file = \"@DIR@/proof\" }"),
                ("scopes", "[\"api:read\"]"),
            ],
        )
        .start()
        .await;
        gateway.get(&origin.url(HOST, "/mcp")).await.assert_ok("GET");
        let checked = server.check(&token(&origin.only_request().await)).await;
        assert_eq!(checked["kind"], "ClientCredentials", "{method}");
        assert_eq!(checked["client"], id.trim_matches('"'), "{method}");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let expiry = gateway.metrics().await.sum("exeat_credential_expiry_timestamp_seconds", &[("binding", "TOKEN")]);
        assert!(expiry > now && expiry <= now + 600.0, "{expiry} {now}");
    }
}

#[tokio::test]
async fn many_requests_make_one_call_and_a_token_is_for_its_resource() {
    let settings = TokenSettings { resource: Some(RESOURCE.to_owned()), ..TokenSettings::default() };
    let server = AuthorizationServer::start(settings).await;
    let (origin, setup) = scene(Site::default()).await;
    let gateway = client(setup, &server.token_url()).set("bindings.TOKEN.oauth", "resource", &format!("{RESOURCE:?}"));
    let gateway = gateway.start().await;
    let mut conns = Vec::new();
    for _ in 0..20 {
        let mut conn = gateway.open().await;
        conn.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", origin.url(HOST, "/mcp"))).await;
        conns.push(conn);
    }
    for conn in &mut conns {
        conn.response().await.assert_ok("GET");
    }
    let requests = origin.requests();
    assert_eq!(requests.len(), 20);
    let first = token(&requests[0]);
    assert!(requests.iter().all(|request| token(request) == first));
    assert_eq!(server.check(&first).await["audience"], RESOURCE);
    assert_eq!(server.token_answers().len(), 1);
    assert_eq!(server.token_answers()[0]["resource"], RESOURCE);
}

#[tokio::test]
async fn a_token_that_the_server_refuses_is_replaced_for_the_next_request() {
    let server = AuthorizationServer::start(TokenSettings::default()).await;
    let refused = Reply::computed(|request| async move {
        let value = request.value("authorization").unwrap_or_default();
        // The first token to come is refused for good.
        static FIRST: std::sync::OnceLock<String> = std::sync::OnceLock::new();
        if FIRST.get_or_init(|| value.clone()) == &value { Reply::status(401) } else { Reply::text("welcome") }
    });
    let (origin, setup) = scene(Site::default().at("/mcp", refused)).await;
    let gateway = client(setup, &server.token_url()).start().await;
    assert_eq!(gateway.get(&origin.url(HOST, "/mcp")).await.status, 401);
    gateway.get(&origin.url(HOST, "/mcp")).await.assert_ok("welcome");
    assert_eq!(origin.requests().len(), 2, "nothing is sent twice");
    assert_eq!(server.token_answers().len(), 2);
}

#[tokio::test]
async fn a_server_that_refuses_every_token_costs_no_more_than_one() {
    let server = AuthorizationServer::start(TokenSettings::default()).await;
    let (origin, setup) = scene(Site::default().at("/mcp", Reply::status(401))).await;
    let gateway = client(setup, &server.token_url()).start().await;
    for _ in 0..5 {
        assert_eq!(gateway.get(&origin.url(HOST, "/mcp")).await.status, 401);
    }
    assert_eq!((origin.requests().len(), server.token_answers().len()), (5, 2));
}

#[tokio::test]
async fn a_failed_mint_refuses_and_is_not_tried_again_at_once() {
    let server = AuthorizationServer::start(TokenSettings::default()).await;
    let (origin, setup) = scene(Site::default()).await;
    let gateway = client(setup, &server.token_url()).secret_env("CLIENT_SECRET", "canary-wrong").start().await;
    for _ in 0..3 {
        gateway.get(&origin.url(HOST, "/mcp")).await.assert_refused(403, "credential_unavailable");
    }
    assert!(origin.requests().is_empty());
    assert_eq!(server.token_answers().len(), 1);
    gateway.await_line("401 Unauthorized (invalid_client)").await;
    gateway.await_metric("exeat_injections_total", &[("server", "docs"), ("outcome", "refused")], 3.0).await;
    let log = gateway.lines().join("\n");
    assert!(!log.contains("canary"), "{log}");
}

// --- Refresh tokens -----------------------------------------------------------------------------------------------------

fn stored(folder: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(folder.join("token.json")).ok()?).ok()
}

#[tokio::test]
async fn a_replaced_refresh_token_is_on_disk_before_its_access_token_is_used() {
    let server = AuthorizationServer::start(TokenSettings::default()).await;
    let folder = TempDir::new().unwrap();
    let kept = folder.path().to_owned();
    // The origin looks into the store the moment it sees the access token.
    let look = Reply::computed(move |_| {
        let found =
            stored(&kept).map_or("nothing".to_owned(), |content| content["refresh_token"].as_str().unwrap().to_owned());
        async move { Reply::text(&found) }
    });
    let (origin, setup) = scene(Site::default().at("/look", look)).await;
    let setup = setup.inject(&origin.url(HOST, "/look"), PLACEHOLDER);
    let gateway = refreshing(setup, &server, &server.token_url(), folder.path()).start().await;
    let seen = gateway.get(&origin.url(HOST, "/look")).await.text();
    assert!(seen != "nothing" && seen != server.refresh_token(), "{seen}");
    let checked = server.check(&token(&origin.only_request().await)).await;
    assert_eq!((&checked["kind"], &checked["client"]), (&"AccessToken".into(), &"user-app".into()));
}

#[tokio::test]
async fn a_kill_before_the_server_has_answered_leaves_a_token_that_works() {
    let server = AuthorizationServer::start(TokenSettings::default()).await;
    let folder = TempDir::new().unwrap();
    // The call hangs on its way to the server: nothing is replaced yet.
    let hanging = Origin::http(Site::default().at("/token", never())).await;
    let (origin, setup) = scene(Site::default()).await;
    let first = refreshing(setup.clone(), &server, &hanging.url("127.0.0.1", "/token"), folder.path()).start().await;
    let mut conn = first.open().await;
    conn.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", origin.url(HOST, "/mcp"))).await;
    hanging.await_requests(1).await;
    first.signal(Signal::KILL);
    let second = refreshing(setup, &server, &server.token_url(), folder.path()).start().await;
    second.get(&origin.url(HOST, "/mcp")).await.assert_ok("GET");
    assert!(stored(folder.path()).is_some());
}

#[tokio::test]
async fn a_kill_between_replacement_and_use_leaves_a_token_that_works() {
    let server = AuthorizationServer::start(TokenSettings::default()).await;
    let folder = TempDir::new().unwrap();
    let (origin, setup) = scene(Site::default().at("/mcp/hangs", never())).await;
    for round in 1..=3 {
        let gateway = refreshing(setup.clone(), &server, &server.token_url(), folder.path()).start().await;
        let mut conn = gateway.open().await;
        let seen = origin.requests().len();
        conn.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", origin.url(HOST, "/mcp/hangs"))).await;
        // The access token is on its way and not answered: the refresh token before it is worth nothing any more.
        origin.await_requests(seen + 1).await;
        gateway.signal(Signal::KILL);
        drop(gateway);
        let answers = server.token_answers();
        assert_eq!((answers.len(), &answers[round - 1]["status"]), (round, &200.into()), "{answers:?}");
    }
    let gateway = refreshing(setup, &server, &server.token_url(), folder.path()).start().await;
    gateway.get(&origin.url(HOST, "/mcp")).await.assert_ok("GET");
}

#[tokio::test]
async fn a_kill_in_the_middle_of_writing_leaves_a_token_that_works() {
    let server = AuthorizationServer::start(TokenSettings::default()).await;
    let folder = TempDir::new().unwrap();
    let (origin, setup) = scene(Site::default()).await;
    let gateway = refreshing(setup.clone(), &server, &server.token_url(), folder.path()).start().await;
    gateway.get(&origin.url(HOST, "/mcp")).await.assert_ok("GET");
    gateway.signal(Signal::KILL);
    drop(gateway);
    // What a kill between creating the next file and giving it its name leaves behind.
    std::fs::write(folder.path().join("token.json.next"), "{\"version\":1,\"refr").unwrap();
    let gateway = refreshing(setup, &server, &server.token_url(), folder.path()).start().await;
    gateway.get(&origin.url(HOST, "/mcp")).await.assert_ok("GET");
    assert!(!folder.path().join("token.json.next").exists());
}

#[tokio::test]
async fn a_token_that_cannot_be_written_is_not_used() {
    let server = AuthorizationServer::start(TokenSettings::default()).await;
    let folder = TempDir::new().unwrap();
    let (origin, setup) = scene(Site::default()).await;
    // The name of the next file is taken by a folder that is not empty.
    std::fs::create_dir_all(folder.path().join("token.json.next/full")).unwrap();
    let gateway = refreshing(setup, &server, &server.token_url(), folder.path()).start().await;
    gateway.get(&origin.url(HOST, "/mcp")).await.assert_refused(403, "credential_unavailable");
    assert!(origin.requests().is_empty());
    std::fs::remove_dir_all(folder.path().join("token.json.next")).unwrap();
    // What the server has replaced is written first, and then works.
    let url = origin.url(HOST, "/mcp");
    let answered = exeat_tests::wait::until("the store to be written and the request to pass", || async {
        let answer = gateway.get(&url).await;
        (answer.status == 200).then_some(answer)
    });
    answered.await.assert_ok("GET");
    assert!(server.token_answers().iter().all(|answer| answer["status"] == 200), "{:?}", server.token_answers());
}

// --- Where calls go -----------------------------------------------------------------------------------------------------

#[tokio::test]
async fn calls_are_guarded_and_follow_no_redirect() {
    let elsewhere = Origin::http(Site::default()).await;
    let to = elsewhere.url("127.0.0.1", "/token");
    let huge = "x".repeat(300_000);
    let site = Site::default()
        .at("/moved", Reply::redirect(&to).with_status(307))
        .at("/huge", Reply::bytes("application/json", huge))
        .at("/odd", Reply::text("access_token=canary"));
    let asked = Origin::http(site).await;
    for (url, said) in [
        (asked.url("127.0.0.1", "/moved"), "redirects are not followed"),
        (asked.url("127.0.0.1", "/huge"), "larger than any that is taken"),
        (asked.url("127.0.0.1", "/odd"), "no JSON of a token"),
        // This machine by an address that the guard does not grant.
        ("http://127.0.0.2:9/token".to_owned(), "resolves to 127.0.0.2"),
        ("https://metadata.google.internal/token".to_owned(), "cloud metadata"),
    ] {
        let (origin, setup) = scene(Site::default()).await;
        let gateway = client(setup, &url).start().await;
        gateway.get(&origin.url(HOST, "/mcp")).await.assert_refused(403, "credential_unavailable");
        assert!(origin.requests().is_empty());
        let line = gateway.await_line("credential not renewed").await;
        assert!(line.contains(said) && !line.contains("canary"), "{url}: {line}");
    }
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn a_manifest_has_no_say_in_the_gateways_own_calls_and_agents_gain_nothing_from_them() {
    let server = AuthorizationServer::start(TokenSettings::default()).await;
    let (origin, setup) = scene(Site::default()).await;
    let gateway = client(setup, &server.token_url()).start().await;
    gateway.get(&origin.url(HOST, "/mcp")).await.assert_ok("GET");
    gateway.get(&server.token_url()).await.assert_refused(403, "not_allowed");
}

#[tokio::test]
async fn the_issuer_is_the_configs_and_metadata_has_to_agree() {
    let ca = TestCa::new();
    let json = |text: String| Reply::bytes("application/json", text);
    for (issuer, resource, servers, good) in [
        ("https://as.test:{port}", "https://mcp.test:{port}/mcp", "https://as.test:{port}", true),
        ("https://evil.test:{port}", "https://mcp.test:{port}/mcp", "https://as.test:{port}", false),
        ("https://as.test:{port}", "https://mcp.test:{port}/mcp", "https://evil.test:{port}", false),
        ("https://as.test:{port}", "https://mcp.test:{port}/other", "https://as.test:{port}", false),
    ] {
        let (issuer, resource, servers) = (issuer.to_owned(), resource.to_owned(), servers.to_owned());
        let port = |request: &Request| request.value("host").unwrap().rsplit_once(':').unwrap().1.to_owned();
        let server_metadata = Reply::computed(move |request| {
            let text = format!(r#"{{"issuer":"{issuer}","token_endpoint":"https://as.test:{{port}}/token"}}"#);
            let text = text.replace("{port}", &port(&request));
            async move { json(text) }
        });
        let resource_metadata = Reply::computed(move |request| {
            let text = format!(r#"{{"resource":"{resource}","authorization_servers":["{servers}"]}}"#);
            let text = text.replace("{port}", &port(&request));
            async move { json(text) }
        });
        let token = json(r#"{"access_token":"issued-token","token_type":"Bearer","expires_in":60}"#.to_owned());
        let site = Site::default()
            .at("/.well-known/oauth-authorization-server", server_metadata)
            .at("/.well-known/oauth-protected-resource/mcp", resource_metadata)
            .at("/token", token);
        let hosts = ["as.test", "mcp.test", "evil.test"];
        let place = Origin::https(site, &ca.leaf(&hosts)).await;
        let (origin, setup) = scene(Site::default()).await;
        let setup = oauth(
            setup.names(&hosts).trust(&ca),
            &[
                ("grant", "\"client_credentials\""),
                ("issuer", &format!("{:?}", format!("https://as.test:{}", place.port()))),
                ("resource", &format!("{:?}", place.url("mcp.test", "/mcp"))),
                ("client_id", "\"public\""),
            ],
        );
        let gateway = setup.start().await;
        let answer = gateway.get(&origin.url(HOST, "/mcp")).await;
        let asked = place.requests().iter().any(|request| request.path() == "/token");
        assert_eq!(asked, good, "{:?}", gateway.lines());
        if good {
            answer.assert_ok("GET");
            assert_eq!(token_of(&origin).await, "issued-token");
        } else {
            answer.assert_refused(403, "credential_unavailable");
        }
    }
}

async fn token_of(origin: &Origin) -> String {
    token(&origin.only_request().await)
}
