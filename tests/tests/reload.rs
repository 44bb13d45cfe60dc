//! What is open when the files are reloaded: tunnels and WebSockets that the new config would not open, what belongs to
//! users who may no longer enter, and the certificate that the proxy port shows.

use exeat_tests::client::socks::PASSWORD;
use exeat_tests::prelude::*;

const HOST: &str = "api.example.test";
const OTHER: &str = "other.example.test";
const PROXY: &str = "proxy.example.test";
/// `alice:secret` and `bob:builder` in Basic.
const ALICE: &str = "Proxy-Authorization: Basic YWxpY2U6c2VjcmV0";
const BOB: &str = "Proxy-Authorization: Basic Ym9iOmJ1aWxkZXI=";

fn setup() -> Setup {
    Gateway::setup().names(&[HOST, OTHER]).allow(&[HOST, OTHER])
}

/// Replaces a piece of the gateway's config and has it reloaded.
async fn reconfigure(gateway: &Gateway, from: &str, to: &str) {
    let config = std::fs::read_to_string(gateway.dir().join("exeat.toml")).unwrap();
    assert!(config.contains(from), "{config}");
    gateway.write("exeat.toml", &config.replace(from, to));
    gateway.reload().await;
    gateway.await_metric("exeat_policy_reload_total", &[("result", "failure")], 0.0).await;
}

async fn closed(gateway: &Gateway, cause: &str, count: f64) {
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", cause)], count).await;
}

// --- The guard ----------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_grant_taken_back_closes_what_was_opened_under_it() {
    let ca = TestCa::new();
    let site = || Site::default().at("/v1/ws", Reply::websocket());
    let (plain, tls) = (Origin::http(site()).await, Origin::https(site(), &ca.leaf(&[HOST])).await);
    let echo = Echo::tcp().await;
    let rules = [plain.url(HOST, "/v1/"), tls.url(HOST, "/v1/"), OTHER.to_owned()];
    let gateway = Gateway::setup().names(&[HOST, OTHER]).trust(&ca).allow(&rules).start().await;
    let sockets = gateway.sockets();
    let mut forwarded = gateway.open().await;
    forwarded.send(exeat_tests::ws::handshake(&plain.url(HOST, "/v1/ws"), HOST)).await;
    let mut intercepted = gateway.intercepted(&tls.authority(HOST)).await;
    intercepted.send(exeat_tests::ws::handshake("/v1/ws", HOST)).await;
    let mut blind = gateway.tunnel(&echo.authority(OTHER)).await;
    for conn in [&mut forwarded, &mut intercepted] {
        assert_eq!(conn.response().await.status, 101);
        assert_eq!(conn.websocket_echo("one").await, "one");
    }
    blind.exchange(b"one").await;
    // A reload that takes nothing back leaves them alone.
    reconfigure(&gateway, "127.0.0.1/32", "127.0.0.0/8").await;
    assert_eq!(forwarded.websocket_echo("two").await, "two");
    assert_eq!(intercepted.websocket_echo("two").await, "two");
    blind.exchange(b"two").await;
    reconfigure(&gateway, "127.0.0.0/8", "10.0.0.0/8").await;
    for mut conn in [forwarded, intercepted, blind] {
        assert!(conn.to_end().await.is_empty());
    }
    closed(&gateway, "policy_changed", 3.0).await;
    gateway.await_sockets(sockets).await;
}

// --- Users --------------------------------------------------------------------------------------------------------------

/// A gateway with two users whose passwords are its files.
async fn with_users(setup: Setup) -> Gateway {
    setup.user("alice", "secret").user("bob", "builder").start().await
}

async fn tunnel_of(gateway: &Gateway, authority: &str, who: &str) -> RawConn {
    let mut conn = gateway.open().await;
    let response = conn.roundtrip(&format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{who}")).await;
    assert_eq!(response.status, 200, "{}", response.text());
    conn
}

#[tokio::test]
async fn a_user_who_is_removed_loses_all_that_is_open_and_the_others_nothing() {
    let ca = TestCa::new();
    let (events, source) = Reply::events();
    let plain = Origin::http(Site::default().at("/v1/ws", Reply::websocket()).at("/v1/events", events)).await;
    let tls = Origin::https(Site::default().at("/v1/ws", Reply::websocket()), &ca.leaf(&[HOST])).await;
    let echo = Echo::tcp().await;
    let rules = [plain.url(HOST, "/v1/"), tls.url(HOST, "/v1/"), OTHER.to_owned()];
    let gateway = with_users(Gateway::setup().names(&[HOST, OTHER]).trust(&ca).allow(&rules)).await;
    let sockets = gateway.sockets();

    // Of each kind one for alice, and a tunnel and a kept connection for bob.
    let mut blind = tunnel_of(&gateway, &echo.authority(OTHER), ALICE).await;
    blind.exchange(b"one").await;
    let mut socks = gateway.open().await;
    assert_eq!(socks.socks_greet(&[PASSWORD]).await, PASSWORD);
    assert_eq!(socks.socks_login("alice", "secret").await, 0);
    assert_eq!(socks.socks_connect(&echo.authority(OTHER)).await, 0);
    socks.exchange(b"one").await;
    let inspected = tunnel_of(&gateway, &tls.authority(HOST), ALICE).await;
    let mut inspected = inspected.tls(gateway.roots(), HOST, &[]).await.unwrap();
    inspected.get("/v1/x", HOST).await.assert_ok("GET /v1/x");
    let mut upgraded = gateway.open().await;
    let handshake = exeat_tests::ws::handshake(&plain.url(HOST, "/v1/ws"), HOST);
    upgraded.send(handshake.replacen("\r\n", &format!("\r\n{ALICE}\r\n"), 1)).await;
    assert_eq!(upgraded.response().await.status, 101);
    let within = tunnel_of(&gateway, &tls.authority(HOST), ALICE).await;
    let mut within = within.tls(gateway.roots(), HOST, &[]).await.unwrap();
    within.send(exeat_tests::ws::handshake("/v1/ws", HOST)).await;
    assert_eq!(within.response().await.status, 101);
    let mut streaming = gateway.open().await;
    streaming.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n{ALICE}\r\n\r\n", plain.url(HOST, "/v1/events"))).await;
    let mut opened = streaming.opened("GET").await;
    source.send("one").await;
    assert!(streaming.piece(&mut opened).await.is_some());
    let mut bobs = tunnel_of(&gateway, &echo.authority(OTHER), BOB).await;
    let mut kept = gateway.open().await;
    let ask = format!("GET {} HTTP/1.1\r\nHost: x\r\n{BOB}", plain.url(HOST, "/v1/x"));
    kept.roundtrip(&ask).await.assert_ok("GET /v1/x");

    // Another password is the end of the old one.
    gateway.write("password-of-alice", "changed");
    gateway.reload().await;
    for conn in [&mut blind, &mut socks, &mut inspected, &mut upgraded, &mut within] {
        assert!(conn.to_end().await.is_empty());
    }
    assert!(streaming.rest(opened).await.is_err(), "an answer that was cut off must not look whole");
    source.abandoned().await;
    closed(&gateway, "revoked", 5.0).await;
    bobs.exchange(b"two").await;
    kept.roundtrip(&ask).await.assert_ok("GET /v1/x");

    let config = std::fs::read_to_string(gateway.dir().join("exeat.toml")).unwrap();
    let line = config.lines().find(|line| line.starts_with("bob = ")).unwrap();
    reconfigure(&gateway, line, "").await;
    assert!(bobs.to_end().await.is_empty() && kept.to_end().await.is_empty());
    closed(&gateway, "revoked", 6.0).await;
    gateway.await_sockets(sockets).await;
}

#[tokio::test]
async fn where_credentials_become_needed_a_tunnel_opened_without_ends() {
    let echo = Echo::tcp().await;
    let gateway = setup().file("password", "secret").start().await;
    let mut tunnel = gateway.tunnel(&echo.authority(HOST)).await;
    tunnel.exchange(b"one").await;
    let auth = "[listen.auth]\nusers = { alice = { file = \"password\" } }\n[guard]";
    reconfigure(&gateway, "[guard]", auth).await;
    assert!(tunnel.to_end().await.is_empty());
    closed(&gateway, "revoked", 1.0).await;
    let mut tunnel = tunnel_of(&gateway, &echo.authority(HOST), ALICE).await;
    // Where they are no longer needed, nobody loses anything.
    reconfigure(&gateway, auth, "[guard]").await;
    tunnel.exchange(b"two").await;
}

// --- The certificate of the port ----------------------------------------------------------------------------------------

#[tokio::test]
async fn the_proxy_port_shows_a_new_certificate_after_a_reload_and_never_half_of_one() {
    let ca = TestCa::new();
    let origin = Origin::http(Site::default()).await;
    let gateway = setup().listen_tls(&ca.leaf(&[PROXY])).start().await;
    let open = async |name: &str| gateway.open().await.tls(ca.roots(), name, &[]).await;
    let mut before = open(PROXY).await.unwrap();
    let old = before.certificates().to_vec();
    let next = ca.leaf(&[OTHER]);

    // A key that does not belong to the certificate, and a certificate that cannot be read.
    for (count, certificate) in [(1.0, next.cert_pem()), (2.0, "no certificate".to_owned())] {
        gateway.write("proxy.pem", &certificate);
        gateway.reload().await;
        gateway.await_metric("exeat_policy_reload_total", &[("result", "failure")], count).await;
        gateway.await_line("tls_cert").await;
        assert_eq!(open(PROXY).await.unwrap().certificates(), old);
    }
    gateway.write("proxy.pem", &next.cert_pem());
    gateway.write("proxy.key", &next.key_pem());
    gateway.reload().await;
    gateway.await_metric("exeat_policy_reload_total", &[("result", "success")], 1.0).await;
    assert!(open(PROXY).await.is_err(), "the old certificate is still shown");
    let mut after = open(OTHER).await.unwrap();
    assert_ne!(after.certificates(), old);
    for conn in [&mut before, &mut after] {
        conn.get(&origin.url(HOST, "/x"), HOST).await.assert_ok("GET /x");
    }
}

#[tokio::test]
async fn authorities_of_client_certificates_follow_a_reload() {
    let (ca, clients) = (TestCa::new(), TestCa::new());
    let origin = Origin::http(Site::default()).await;
    let authorities = std::fs::read_to_string(ca.pem_path()).unwrap();
    let setup = setup().listen_tls(&ca.leaf(&[PROXY])).file("clients.pem", &authorities);
    let gateway = setup.set("listen", "client_ca", "\"clients.pem\"").start().await;
    let config = clients.client("agent.example.test").client_config(ca.roots());
    let get = format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", origin.url(HOST, "/x"));
    if let Ok(mut conn) = gateway.open().await.tls_with(config.clone(), PROXY).await {
        let _ = conn.try_send(&get).await;
        assert!(conn.to_end().await.is_empty());
    }
    gateway.write("clients.pem", &std::fs::read_to_string(clients.pem_path()).unwrap());
    gateway.reload().await;
    let mut conn = gateway.open().await.tls_with(config, PROXY).await.unwrap();
    conn.send(get).await;
    conn.response().await.assert_ok("GET /x");
}

#[tokio::test]
async fn a_port_stays_what_it_was_started_as() {
    let ca = TestCa::new();
    let origin = Origin::http(Site::default()).await;
    let url = origin.url(HOST, "/x");
    let secure = setup().listen_tls(&ca.leaf(&[PROXY])).start().await;
    reconfigure(&secure, "[listen]\ntls_cert = \"proxy.pem\"\ntls_key = \"proxy.key\"\n", "").await;
    secure.await_line("listen.tls_cert").await;
    let mut conn = secure.open().await.tls(ca.roots(), PROXY, &[]).await.expect("TLS as before");
    conn.get(&url, HOST).await.assert_ok("GET /x");
    let leaf = ca.leaf(&[PROXY]);
    let plain = setup().file("proxy.pem", &leaf.cert_pem()).file("proxy.key", &leaf.key_pem()).start().await;
    reconfigure(&plain, "[guard]", "[listen]\ntls_cert = \"proxy.pem\"\ntls_key = \"proxy.key\"\n[guard]").await;
    plain.await_line("listen.tls_cert").await;
    plain.get(&url).await.assert_ok("GET /x");
}

// --- Asked for, and by itself -------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_reload_that_is_asked_for_says_what_is_in_force_or_what_is_wrong() {
    let gateway = setup().start().await;
    let before = gateway.admin_get("/v1/reload").await.json();
    assert_eq!((&before["generation"], &before["reached"]), (&1.into(), &true.into()), "{before}");
    let agent = std::fs::read_to_string(gateway.dir().join("agent.toml")).unwrap();
    gateway.write("agent.toml", &agent.replace(OTHER, "third.example.test"));
    let reloaded = gateway.admin_ask("POST", "/v1/reload", None).await;
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    let reloaded = reloaded.json();
    assert_eq!(reloaded["generation"], 2);
    assert_ne!(reloaded["digest"], before["digest"]);
    let in_force = gateway.readyz().await.json();
    assert_eq!(in_force["policy"]["digest"], reloaded["digest"]);
    gateway.get(&format!("http://{OTHER}/")).await.assert_refused(403, "not_allowed");

    gateway.write("agent.toml", &format!("{agent}\nsomthing = 1\nname = \"twice\"\n"));
    let refused = gateway.admin_ask("POST", "/v1/reload", None).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    let diagnostics = refused.json()["diagnostics"].clone();
    assert_eq!(diagnostics[0]["file"], "agent.toml", "{diagnostics:#}");
    assert!(diagnostics[0]["line"].as_u64().unwrap() > 3, "{diagnostics:#}");
    std::fs::remove_file(gateway.dir().join("agent.toml")).unwrap();
    let refused = gateway.admin_ask("POST", "/v1/reload", None).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(refused.text().contains("agent.toml"), "{}", refused.text());
    let now = gateway.admin_get("/v1/reload").await.json();
    assert_eq!((&now["generation"], &now["digest"]), (&2.into(), &reloaded["digest"]));
    gateway.await_metric("exeat_policy_reload_total", &[("result", "success")], 1.0).await;
    gateway.await_metric("exeat_policy_reload_total", &[("result", "failure")], 2.0).await;
}

#[tokio::test]
async fn a_generation_can_be_waited_for() {
    let gateway = setup().start().await;
    let late = gateway.admin_get("/v1/reload?wait=2&timeout=0").await.json();
    assert_eq!((&late["generation"], &late["reached"]), (&1.into(), &false.into()), "{late}");
    let waiting = async { gateway.admin_get("/v1/reload?wait=3").await.json() };
    let reloading = async {
        gateway.reload().await;
        gateway.reload().await;
    };
    let (reached, ()) = tokio::join!(waiting, reloading);
    assert_eq!((&reached["generation"], &reached["reached"]), (&3.into(), &true.into()), "{reached}");
    for query in ["wait=x", "wait=-1", "until=2", "timeout=soon"] {
        assert_eq!(gateway.admin_get(&format!("/v1/reload?{query}")).await.status, 422, "{query}");
    }
}

#[tokio::test]
async fn a_change_of_a_watched_file_and_a_link_led_elsewhere_are_loaded() {
    let gateway = setup().set("policy", "watch", "true").start().await;
    let generation = async |number: u64| {
        let told = gateway.admin_get(&format!("/v1/reload?wait={number}")).await.json();
        assert_eq!(told["reached"], true, "{told}");
    };
    let agent = std::fs::read_to_string(gateway.dir().join("agent.toml")).unwrap();
    gateway.write("agent.toml", &agent.replace(OTHER, "third.example.test"));
    generation(2).await;
    gateway.get(&format!("http://{OTHER}/")).await.assert_refused(403, "not_allowed");
    // A broken file is told of once, and what was in force stays.
    gateway.write("agent.toml", "nothing that can be read");
    gateway.await_metric("exeat_policy_reload_total", &[("result", "failure")], 1.0).await;
    // As Kubernetes replaces the files of a ConfigMap: a link to a folder is led to another folder.
    let path = |name: &str| gateway.dir().join(name);
    let link = |to: &str| {
        std::os::unix::fs::symlink(to, path("..next")).unwrap();
        std::fs::rename(path("..next"), path("..data")).unwrap();
    };
    for (version, text) in [("..1", agent.clone()), ("..2", agent.replace(HOST, "fourth.example.test"))] {
        std::fs::create_dir(path(version)).unwrap();
        std::fs::write(path(version).join("agent.toml"), text).unwrap();
    }
    link("..1");
    std::fs::remove_file(path("agent.toml")).unwrap();
    std::os::unix::fs::symlink("..data/agent.toml", path("agent.toml")).unwrap();
    generation(3).await;
    let in_force = gateway.readyz().await.json()["policy"]["digest"].clone();
    link("..2");
    generation(4).await;
    assert_ne!(gateway.readyz().await.json()["policy"]["digest"], in_force);
    gateway.get(&format!("http://{HOST}/")).await.assert_refused(403, "not_allowed");
}

#[tokio::test]
async fn who_was_let_in_just_before_a_reload_is_asked_about_after_it() {
    let (events, source) = Reply::events();
    let origin = Origin::http(Site::default().at("/events", events)).await;
    let gateway = with_users(setup()).await;
    let mut kept = gateway.open().await;
    let ask = |path: &str| format!("GET {} HTTP/1.1\r\nHost: x\r\n{ALICE}", origin.url(HOST, path));
    kept.roundtrip(&ask("/x")).await.assert_ok("GET /x");
    kept.send(format!("{}\r\n\r\n", ask("/events"))).await;
    let mut opened = kept.opened("GET").await;
    source.send("one").await;
    assert!(kept.piece(&mut opened).await.is_some());
    gateway.write("password-of-alice", "changed");
    gateway.reload().await;
    assert!(kept.to_end().await.is_empty());
    source.abandoned().await;
}
