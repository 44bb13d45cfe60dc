//! Credentials: which requests carry them, and what happens to a request that cannot.

use exeat_tests::prelude::*;

const HOST: &str = "mcp.example.test";
const OTHER: &str = "other.example.test";
const SECRET: &str = "Bearer canary-5ecret";
const PLACEHOLDER: &[(&str, &str)] = &[("Authorization", "${DOCS_AUTHORIZATION}")];

/// An HTTPS origin, and the beginning of a gateway that knows it as [`HOST`] and [`OTHER`] and allows both.
async fn scene(site: Site) -> (Origin, Setup) {
    let ca = TestCa::new();
    let origin = Origin::https(site, &ca.leaf(&[HOST, OTHER])).await;
    (origin, Gateway::setup().names(&[HOST, OTHER]).trust(&ca).allow(&[HOST, OTHER]))
}

fn bound(setup: Setup, origin: &Origin) -> Setup {
    setup.mcp_server("docs", &origin.url(HOST, "/mcp"), PLACEHOLDER).bind("DOCS_AUTHORIZATION", SECRET)
}

#[tokio::test]
async fn requests_to_a_server_carry_its_header_and_others_do_not() {
    let (origin, setup) = scene(Site::default()).await;
    let gateway = bound(setup, &origin).start().await;
    let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
    for path in ["/mcp", "/mcp?x=1", "/mcp/more", "/mcpx", "/", "/.well-known/oauth-protected-resource/mcp"] {
        conn.get(path, HOST).await.assert_ok("GET");
    }
    gateway.get(&origin.url(HOST, "/mcp/absolute")).await.assert_ok("GET");
    let carried: Vec<String> = origin
        .requests()
        .into_iter()
        .filter(|request| request.values("authorization") == [SECRET])
        .map(|request| request.target)
        .collect();
    assert_eq!(carried, ["/mcp", "/mcp?x=1", "/mcp/more", "/mcp/absolute"]);
    assert_eq!(origin.requests().iter().filter(|request| request.has("authorization")).count(), 4);
    gateway.await_metric("exeat_injections_total", &[("server", "docs"), ("outcome", "injected")], 4.0).await;
}

#[tokio::test]
async fn a_bound_host_is_inspected_even_where_all_of_it_is_allowed() {
    let (origin, setup) = scene(Site::default()).await;
    let gateway = bound(setup, &origin).start().await;
    gateway.intercepted(&origin.authority(HOST)).await.get("/mcp", HOST).await.assert_ok("GET /mcp");
    let other = gateway.tunnel(&origin.authority(OTHER)).await;
    assert!(other.tls(gateway.roots(), OTHER, &[]).await.is_err(), "the other host stays a blind tunnel");
}

#[tokio::test]
async fn the_clients_own_copies_are_replaced() {
    let (origin, setup) = scene(Site::default()).await;
    let gateway = bound(setup, &origin).start().await;
    for fields in [
        "Authorization: Bearer mine",
        "authorization: Bearer mine\r\nAUTHORIZATION: Basic eDp5",
        "Connection: authorization\r\nAuthorization: Bearer mine",
        "Connection: close, Authorization",
    ] {
        let seen = origin.requests().len();
        let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
        conn.roundtrip(&format!("GET /mcp HTTP/1.1\r\nHost: {HOST}\r\n{fields}")).await.assert_ok("GET");
        assert_eq!(origin.await_requests(seen + 1).await[seen].values("authorization"), [SECRET], "{fields:?}");
    }
}

#[tokio::test]
async fn a_file_is_read_again_when_it_changes() {
    let (origin, setup) = scene(Site::default()).await;
    let setup = setup.mcp_server("docs", &origin.url(HOST, "/mcp"), PLACEHOLDER);
    let gateway = setup.bind_file("DOCS_AUTHORIZATION", "Bearer one\n").start().await;
    let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
    conn.get("/mcp", HOST).await.assert_ok("GET");
    gateway.write("next", "Bearer two\n");
    std::fs::rename(gateway.dir().join("next"), gateway.dir().join("DOCS_AUTHORIZATION")).unwrap();
    conn.get("/mcp", HOST).await.assert_ok("GET");
    let carried: Vec<_> = origin.requests().iter().map(|request| request.value("authorization").unwrap()).collect();
    assert_eq!(carried, ["Bearer one", "Bearer two"]);
    std::fs::remove_file(gateway.dir().join("DOCS_AUTHORIZATION")).unwrap();
    conn.get("/mcp", HOST).await.assert_refused(403, "credential_unavailable");
    assert_eq!(origin.requests().len(), 2);
}

#[tokio::test]
async fn several_fields_and_literals_are_put_on_together() {
    let (origin, setup) = scene(Site::default()).await;
    let headers = [("Authorization", "${A}"), ("X-Api-Key", "${B}"), ("X-Client", "exeat")];
    let setup = setup.mcp_server("docs", &origin.url(HOST, "/mcp"), &headers);
    let gateway = setup.bind("A", "Bearer a").bind("B", "b").start().await;
    gateway.get(&origin.url(HOST, "/mcp")).await.assert_ok("GET");
    let request = origin.only_request().await;
    let carried = ["authorization", "x-api-key", "x-client"].map(|name| request.value(name).unwrap());
    assert_eq!(carried, ["Bearer a", "b", "exeat"]);
}

#[tokio::test]
async fn an_injected_prefix_works_by_the_same_mechanism() {
    let (origin, setup) = scene(Site::default()).await;
    let setup = setup.inject(&origin.url(OTHER, "/api/"), &[("X-Api-Key", "${KEY}")]).bind("KEY", "k3y");
    let gateway = setup.start().await;
    let mut conn = gateway.intercepted(&origin.authority(OTHER)).await;
    conn.get("/api/x", OTHER).await.assert_ok("GET");
    conn.get("/elsewhere", OTHER).await.assert_ok("GET");
    let requests = origin.await_requests(2).await;
    assert_eq!(requests[0].values("x-api-key"), ["k3y"]);
    assert!(!requests[1].has("x-api-key"));
}

// --- Refusals -----------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn nothing_is_forwarded_bare() {
    for (case, reason) in [
        ("unbound", "credential_unbound"),
        ("missing", "credential_unavailable"),
        ("", "credential_unavailable"),
        ("Bearer a\nb", "credential_unavailable"),
        ("Bearer a\r\nX: b", "credential_unavailable"),
    ] {
        let (origin, setup) = scene(Site::default()).await;
        let setup = setup.mcp_server("docs", &origin.url(HOST, "/mcp"), PLACEHOLDER);
        let setup = match case {
            "unbound" => setup,
            "missing" => setup.set("bindings", "DOCS_AUTHORIZATION", r#"{ env = "NOT_SET" }"#),
            secret => setup.bind("DOCS_AUTHORIZATION", secret),
        };
        let gateway = setup.start().await;
        let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
        let problem = conn.get("/mcp", HOST).await.assert_refused(403, reason);
        assert!(problem["detail"].as_str().unwrap().contains("DOCS_AUTHORIZATION"), "{case:?}: {problem:#}");
        gateway.get(&origin.url(HOST, "/mcp")).await.assert_refused(403, reason);
        conn.get("/else", HOST).await.assert_ok("GET /else");
        assert_eq!(origin.requests().len(), 1, "{case:?}");
        gateway.await_metric("exeat_injections_total", &[("server", "docs"), ("outcome", "refused")], 2.0).await;
    }
}

#[tokio::test]
async fn a_nul_in_a_file_refuses() {
    let (origin, setup) = scene(Site::default()).await;
    let setup = setup.mcp_server("docs", &origin.url(HOST, "/mcp"), PLACEHOLDER);
    let gateway = setup.bind_file("DOCS_AUTHORIZATION", "Bearer a\0b").start().await;
    gateway.get(&origin.url(HOST, "/mcp")).await.assert_refused(403, "credential_unavailable");
    assert!(origin.requests().is_empty());
}

#[tokio::test]
async fn plain_http_carries_no_credentials() {
    let origin = Origin::http(Site::default()).await;
    let (https_url, http_url) = (format!("https://{}/mcp", origin.authority(HOST)), origin.url(OTHER, "/mcp"));
    // A name that leads to loopback by the config alone is as good as the address; this one leads elsewhere.
    let setup = Gateway::setup().names(&[HOST]).host(OTHER, "10.0.0.1").allow(&[HOST, OTHER]);
    let setup = setup.mcp_server("docs", &https_url, PLACEHOLDER).mcp_server("plain", &http_url, PLACEHOLDER);
    let gateway = setup.bind("DOCS_AUTHORIZATION", SECRET).start().await;
    for url in [origin.url(HOST, "/mcp"), http_url] {
        gateway.get(&url).await.assert_refused(403, "credential_insecure");
    }
    assert!(origin.requests().is_empty());
}

#[tokio::test]
async fn a_loopback_server_that_the_guard_grants_may_be_plain() {
    let origin = Origin::http(Site::default()).await;
    let setup = Gateway::setup().allow(&["127.0.0.1"]);
    let setup = setup.mcp_server("local", &origin.url("127.0.0.1", "/mcp"), PLACEHOLDER);
    let gateway = setup.bind("DOCS_AUTHORIZATION", SECRET).start().await;
    gateway.get(&origin.url("127.0.0.1", "/mcp")).await.assert_ok("GET /mcp");
    assert_eq!(origin.only_request().await.values("authorization"), [SECRET]);
}

#[tokio::test]
async fn a_bound_host_that_cannot_be_inspected_is_refused_before_the_200() {
    let (origin, setup) = scene(Site::default()).await;
    let gateway = bound(setup, &origin).set("intercept", "enabled", "false").start().await;
    gateway.connect(&origin.authority(HOST)).await.1.assert_refused(403, "inspect_off");
    gateway.tunnel(&origin.authority(OTHER)).await;
}

#[tokio::test]
async fn trace_would_give_the_secret_back() {
    let (origin, setup) = scene(Site::default()).await;
    let gateway = bound(setup, &origin).start().await;
    let mut conn = gateway.intercepted(&origin.authority(HOST)).await;
    let refusal = conn.roundtrip(&format!("TRACE /mcp HTTP/1.1\r\nHost: {HOST}")).await;
    refusal.assert_refused(403, "method_refused");
    assert!(origin.requests().is_empty());
}

#[tokio::test]
async fn a_redirect_takes_nothing_along() {
    let target = "https://other.example.test/elsewhere";
    let (origin, setup) = scene(Site::default().at("/mcp", Reply::redirect(target))).await;
    let gateway = bound(setup, &origin).start().await;
    let answer = gateway.get(&origin.url(HOST, "/mcp")).await;
    assert_eq!((answer.status, answer.value("location").as_deref()), (302, Some(target)));
    gateway.get(&origin.url(OTHER, "/elsewhere")).await.assert_ok("GET");
    assert!(!origin.await_requests(2).await[1].has("authorization"));
}

#[tokio::test]
async fn a_denied_path_of_a_bound_host_stays_denied() {
    let (origin, setup) = scene(Site::default()).await;
    let gateway = bound(setup, &origin).block(&[origin.url(HOST, "/mcp/admin")]).start().await;
    gateway.get(&origin.url(HOST, "/mcp/admin")).await.assert_refused(403, "blocked");
    assert!(origin.requests().is_empty());
}

#[tokio::test]
async fn the_secret_is_nowhere_to_be_seen() {
    let (origin, setup) = scene(Site::default()).await;
    let gateway = bound(setup, &origin).set("bindings", "UNUSED", r#"{ env = "DOCS_AUTHORIZATION" }"#);
    let gateway = gateway.block(&[origin.url(HOST, "/mcp/no")]).start().await;
    let mut said = String::new();
    for path in ["/mcp", "/mcp/no", "/"] {
        said += &gateway.get(&origin.url(HOST, path)).await.text();
    }
    gateway.reload().await;
    for path in ["/metrics", "/readyz", "/livez", "/v1/policy"] {
        said += &gateway.admin_get(path).await.text();
    }
    said += &gateway.lines().join("\n");
    assert!(said.contains("docs"), "the server itself is spoken of");
    assert!(!said.contains("canary"), "{said}");
}

#[tokio::test]
async fn each_field_of_a_server_says_what_it_is_sent() {
    let (origin, setup) = scene(Site::default()).await;
    let url = |path: &str| origin.url(HOST, path);
    let headers = "headers = { Authorization = \"${KEY}\", X-Team = \"blue\" }";
    // A server by its keys, and the Authorization and X-Team that it is sent; none at all where it is refused.
    let servers = [
        ("plain", format!("{headers}\nurl = {:?}", url("/plain")), Some((SECRET, "blue"))),
        ("open", format!("{headers}\nurl = {:?}\nauth_mode = \"none\"", url("/open")), Some(("", "blue"))),
        ("key", format!("{headers}\nurl = {:?}\nauth_mode = \"api_key\"", url("/key")), Some((SECRET, "blue"))),
        ("nobody", format!("{headers}\nurl = {:?}\nactsAs = \"none\"", url("/nobody")), Some(("", "blue"))),
        ("service", format!("{headers}\nurl = {:?}\nactsAs = \"service\"", url("/service")), Some((SECRET, "blue"))),
        ("user", format!("{headers}\nurl = {:?}\nactsAs = \"user\"", url("/user")), None),
        ("provider", format!("url = {:?}\nactsAs = \"user\"\noauth_provider_id = \"KEY\"", url("/provider")), None),
        ("preset", "use = \"catalog:preset\"".to_owned(), Some((SECRET, ""))),
        ("quiet", "use = \"catalog:preset2\"\nauth_mode = \"none\"".to_owned(), Some(("", ""))),
    ];
    let mut manifest = "name = \"servers\"\n".to_owned();
    for (name, keys, _) in &servers {
        let kind = if keys.starts_with("use") { "" } else { "type = \"http\"\n" };
        manifest += &format!("[mcpServers.{name}]\n{kind}{keys}\n");
    }
    let setup = setup.manifest("servers.toml", &manifest).bind("KEY", SECRET);
    let setup = [("preset", "/preset"), ("preset2", "/quiet")].into_iter().fold(setup, |setup, (name, path)| {
        let section = format!("catalog.{name}");
        let setup = setup.set(&section, "url", &format!("{:?}", url(path)));
        setup.set(&section, "headers", "{ Authorization = \"${KEY}\" }").set(&section, "auth_mode", "\"oauth\"")
    });
    let gateway = setup.start().await;
    for (name, _, sent) in servers {
        let seen = origin.requests().len();
        let answer = gateway.get(&url(&format!("/{name}"))).await;
        let Some(expected) = sent else {
            answer.assert_refused(403, "credential_unbound");
            assert_eq!(origin.requests().len(), seen, "{name}");
            continue;
        };
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        let request = origin.await_requests(seen + 1).await.remove(seen);
        let fields = ["authorization", "x-team"].map(|field| request.value(field).unwrap_or_default().to_owned());
        assert_eq!((&*fields[0], &*fields[1]), expected, "{name}");
    }
}
