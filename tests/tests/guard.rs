//! The guard below the manifest: addresses, ports and names that no rule can open, and what is asked of the DNS.

use exeat_tests::prelude::*;

const HOST: &str = "api.example.test";

/// A gateway that allows everything by name and grants no special address, with a name server of its own.
async fn with_dns(dns: &Dns) -> Setup {
    let servers = format!("[{:?}]", dns.addr().to_string());
    Gateway::setup().unrestricted().set("dns", "servers", &servers).set("guard", "allow", "[]")
}

#[tokio::test]
async fn special_addresses_are_refused_whatever_leads_to_them() {
    for (address, reason) in [
        ("127.0.0.1", "guard_address"),
        ("127.9.9.9", "guard_address"),
        ("0.0.0.0", "guard_address"),
        ("10.0.0.1", "guard_address"),
        ("172.16.0.1", "guard_address"),
        ("192.168.1.1", "guard_address"),
        ("100.64.0.1", "guard_address"),
        ("169.254.1.1", "guard_address"),
        ("192.0.2.1", "guard_address"),
        ("198.18.0.1", "guard_address"),
        ("224.0.0.1", "guard_address"),
        ("255.255.255.255", "guard_address"),
        ("::1", "guard_address"),
        ("fe80::1", "guard_address"),
        ("fd00::1", "guard_address"),
        ("ff02::1", "guard_address"),
        ("::ffff:10.0.0.1", "guard_address"),
        ("64:ff9b::a00:1", "guard_address"),
        ("2002:a00:1::", "guard_address"),
        ("169.254.169.254", "guard_metadata"),
        ("fd00:ec2::254", "guard_metadata"),
        ("100.100.100.200", "guard_metadata"),
        ("::ffff:169.254.169.254", "guard_metadata"),
    ] {
        let gateway = Gateway::setup().set("guard", "allow", "[]").allow(&[HOST, address]).host(HOST, address);
        let gateway = gateway.start().await;
        let literal = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        for host in [HOST, &literal] {
            let refusal = gateway.get(&format!("http://{host}:8080/")).await;
            assert_eq!((refusal.status, refusal.reason().as_deref()), (403, Some(reason)), "http {host} {address}");
            let (_, refusal) = gateway.connect(&format!("{host}:8443")).await;
            assert_eq!((refusal.status, refusal.reason().as_deref()), (403, Some(reason)), "CONNECT {host} {address}");
        }
    }
}

#[tokio::test]
async fn a_grant_opens_what_it_names_and_no_more() {
    let origin = Origin::http(Site::default()).await;
    let gateway = Gateway::setup().unrestricted().set("guard", "allow", r#"["127.0.0.1/32", "10.0.0.0/8"]"#);
    let gateway =
        gateway.names(&[HOST]).host("second.example.test", "127.0.0.2").host("six.example.test", "::1").start().await;
    gateway.get(&origin.url(HOST, "/")).await.assert_ok("GET /");
    for host in ["second.example.test", "six.example.test"] {
        gateway.get(&origin.url(host, "/")).await.assert_refused(403, "guard_address");
    }
}

#[tokio::test]
async fn metadata_cannot_be_granted() {
    let gateway = Gateway::setup().unrestricted().set("guard", "allow", r#"["169.254.0.0/16"]"#);
    let gateway = gateway.host(HOST, "169.254.169.254").start().await;
    for host in [HOST, "169.254.169.254", "2852039166", "0xa9fea9fe", "[::ffff:169.254.169.254]"] {
        let refusal = gateway.get(&format!("http://{host}/latest/meta-data/")).await;
        assert_eq!((refusal.status, refusal.reason().as_deref()), (403, Some("guard_metadata")), "{host}");
    }
}

#[tokio::test]
async fn the_gateways_own_listeners_are_out_of_reach() {
    let gateway = Gateway::setup().unrestricted().set("guard", "allow", r#"["127.0.0.0/8", "::1"]"#);
    let gateway = gateway.names(&[HOST, "localhost"]).start().await;
    for port in [gateway.proxy().port(), gateway.admin().port()] {
        for host in
            ["127.0.0.1", "127.1", "0177.0.0.1", "0x7f000001", "2130706433", "[::ffff:127.0.0.1]", "localhost", HOST]
        {
            let refusal = gateway.get(&format!("http://{host}:{port}/metrics")).await;
            assert_eq!((refusal.status, refusal.reason().as_deref()), (403, Some("guard_self")), "{host}:{port}");
        }
        gateway.connect(&format!("{HOST}:{port}")).await.1.assert_refused(403, "guard_self");
    }
}

#[tokio::test]
async fn blocked_ports_are_refused_whatever_the_rule_says() {
    let gateway = Gateway::setup().names(&[HOST]).allow(&[HOST]).start().await;
    gateway.get(&format!("http://{HOST}:25/")).await.assert_refused(403, "guard_port");
    gateway.connect(&format!("{HOST}:25")).await.1.assert_refused(403, "guard_port");

    let origin = Origin::http(Site::default()).await;
    let gateway = Gateway::setup().names(&[HOST]).allow(&[HOST]);
    let gateway = gateway.set("guard", "blocked_ports", &format!("[{}]", origin.port())).start().await;
    gateway.get(&origin.url(HOST, "/")).await.assert_refused(403, "guard_port");
    assert_eq!(origin.connections(), 0);
}

// --- DNS ----------------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_denied_name_is_never_asked_for() {
    let dns = Dns::start().await;
    dns.set(HOST, Answer::addresses(&["127.0.0.1"]));
    let gateway = with_dns(&dns).await.allow(&[HOST, "https://paths.example.test/v1/"]).block(&["bad.example.test"]);
    let gateway = gateway.start().await;
    for url in [
        "http://other.example.test/",
        "https://other.example.test/x",
        "http://bad.example.test/",
        "https://paths.example.test/v2/",
        "http://api.example.test:25/",
    ] {
        assert_eq!(gateway.get(url).await.status, 403, "{url}");
    }
    for authority in ["other.example.test:443", "bad.example.test:443", "paths.example.test:8443"] {
        assert_eq!(gateway.connect(authority).await.1.status, 403, "{authority}");
    }
    gateway.get(&format!("http://{HOST}/")).await.assert_refused(403, "guard_address");
    let names: Vec<String> = dns.queries().into_iter().map(|query| query.name).collect();
    assert!(names.iter().all(|name| name == HOST), "{names:?}");
    assert!(!names.is_empty());
}

#[tokio::test]
async fn names_are_asked_for_and_the_checked_address_is_dialled() {
    let origin = Origin::http(Site::default()).await;
    let dns = Dns::start().await;
    dns.set(HOST, Answer::addresses(&["127.0.0.1"]));
    dns.set("alias.example.test", Answer::Alias(HOST.into()));
    let gateway = with_dns(&dns).await.set("guard", "allow", r#"["127.0.0.1"]"#).start().await;
    gateway.get(&origin.url(HOST, "/1")).await.assert_ok("GET /1");
    gateway.get(&origin.url("alias.example.test", "/2")).await.assert_ok("GET /2");
    assert!(dns.queries_for(HOST) > 0);
}

#[tokio::test]
async fn one_special_address_among_the_answers_refuses_all() {
    let dns = Dns::start().await;
    dns.set(HOST, Answer::addresses(&["93.184.216.34", "127.0.0.1"]));
    dns.set("six.example.test", Answer::addresses(&["93.184.216.34", "fd00::1"]));
    let gateway = with_dns(&dns).await.start().await;
    for host in [HOST, "six.example.test"] {
        gateway.get(&format!("http://{host}/")).await.assert_refused(403, "guard_address");
        gateway.connect(&format!("{host}:443")).await.1.assert_refused(403, "guard_address");
    }
}

#[tokio::test]
async fn a_name_that_turns_to_another_address_is_checked_again() {
    let origin = Origin::http(Site::default().at("/", Reply::text("ok\n").header("Connection", "close"))).await;
    let dns = Dns::start().await;
    dns.set(HOST, Answer::addresses(&["127.0.0.1"]));
    let gateway = with_dns(&dns).await.set("guard", "allow", r#"["127.0.0.1"]"#).start().await;
    gateway.get(&origin.url(HOST, "/")).await.assert_ok("ok");
    dns.set(HOST, Answer::addresses(&["127.0.0.2"]));
    gateway.get(&origin.url(HOST, "/")).await.assert_refused(403, "guard_address");
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn metadata_names_are_refused_directly_and_as_aliases() {
    let dns = Dns::start().await;
    dns.set("alias.example.test", Answer::Alias("metadata.google.internal".into()));
    dns.set("metadata.google.internal", Answer::addresses(&["93.184.216.34"]));
    let gateway = with_dns(&dns).await.start().await;
    for (host, asked) in
        [("metadata.google.internal", false), ("METADATA.google.internal.", false), ("alias.example.test", true)]
    {
        let refusal = gateway.get(&format!("http://{host}/")).await;
        assert_eq!((refusal.status, refusal.reason().as_deref()), (403, Some("guard_metadata")), "{host}");
        assert_eq!(!dns.queries().is_empty(), asked, "{host}: {:?}", dns.queries());
    }
}

#[tokio::test]
async fn what_the_name_server_does_not_say_is_told_apart() {
    let dns = Dns::start().await;
    dns.set("broken.example.test", Answer::Failure);
    dns.set("empty.example.test", Answer::addresses(&[]));
    let gateway = with_dns(&dns).await.start().await;
    for (host, reason) in [
        ("none.example.test", "dns_not_found"),
        ("empty.example.test", "dns_not_found"),
        ("broken.example.test", "dns_failed"),
    ] {
        gateway.get(&format!("http://{host}/")).await.assert_refused(502, reason);
        gateway.connect(&format!("{host}:443")).await.1.assert_refused(502, reason);
    }
}

#[tokio::test]
async fn a_silent_name_server_is_given_up_on() {
    let dns = Dns::start().await;
    dns.set(HOST, Answer::Silence);
    let gateway = with_dns(&dns).await.set("limits", "connect_timeout", r#""1s""#).start().await;
    let refusal = gateway.get(&format!("http://{HOST}/")).await;
    assert!(matches!(refusal.status, 502 | 504), "{}", refusal.text());
    assert!(dns.queries_for(HOST) > 0);
}

#[tokio::test]
async fn a_long_answer_is_fetched_over_tcp() {
    let origin = Origin::http(Site::default()).await;
    let dns = Dns::start().await;
    dns.set(HOST, Answer::Truncated(vec!["127.0.0.1".parse().unwrap()]));
    let gateway = with_dns(&dns).await.set("guard", "allow", r#"["127.0.0.1"]"#).start().await;
    gateway.get(&origin.url(HOST, "/")).await.assert_ok("GET /");
    assert!(dns.queries().iter().any(|query| query.tcp));
}
