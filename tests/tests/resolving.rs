//! From a name to a connection: which address is dialled, and what is said when there is none.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

use exeat_tests::prelude::*;
use exeat_tests::wait::until;
use rustix::net::{AddressFamily, SocketType, bind, listen, socket};

const HOST: &str = "api.example.test";

async fn with_dns(dns: &Dns) -> Setup {
    let servers = format!("[{:?}]", dns.addr().to_string());
    Gateway::setup().unrestricted().set("dns", "servers", &servers)
}

/// A listener whose queue is full, so that the system answers no further connection, and the one that fills it.
fn silent(address: SocketAddr) -> (OwnedFd, TcpStream) {
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&listener, &address).unwrap();
    listen(&listener, 0).unwrap();
    let first = TcpStream::connect(address).unwrap();
    (listener, first)
}

#[tokio::test]
async fn an_address_that_does_not_answer_is_passed_over() {
    let origin = Origin::http(Site::default()).await;
    let _silent = silent(format!("127.0.0.2:{}", origin.port()).parse().unwrap());
    let gateway = Gateway::setup()
        .unrestricted()
        .set("guard", "allow", r#"["127.0.0.0/8"]"#)
        .set("dns.hosts", &format!("{HOST:?}"), r#"["127.0.0.2", "127.0.0.1"]"#)
        .set("dns.hosts", "\"only.example.test\"", r#"["127.0.0.2"]"#)
        .set("limits", "connect_timeout", r#""5s""#)
        .start()
        .await;
    gateway.get(&origin.url(HOST, "/")).await.assert_ok("GET /");
    gateway.tunnel(&origin.authority(HOST)).await.get("/t", HOST).await.assert_ok("GET /t");
    gateway.get(&origin.url("only.example.test", "/")).await.assert_refused(504, "connect_timeout");
}

#[tokio::test]
async fn an_address_that_refuses_is_passed_over() {
    let origin = Origin::http(Site::default()).await;
    let dns = Dns::start().await;
    dns.set(HOST, Answer::addresses(&["127.0.0.2", "::1", "127.0.0.1"]));
    dns.set("none.example.test", Answer::addresses(&["127.0.0.2", "::1"]));
    let gateway = with_dns(&dns).await.set("guard", "allow", r#"["loopback"]"#).start().await;
    gateway.get(&origin.url(HOST, "/")).await.assert_ok("GET /");
    gateway.get(&origin.url("none.example.test", "/")).await.assert_refused(502, "connect_refused");
}

#[tokio::test]
async fn every_address_is_checked_before_the_first_is_dialled() {
    let origin = Origin::http(Site::default()).await;
    let dns = Dns::start().await;
    // The granted address stands first, where a dialler that checks as it goes would take it.
    dns.set(HOST, Answer::addresses(&["127.0.0.1", "10.0.0.1"]));
    dns.set("six.example.test", Answer::addresses(&["127.0.0.1", "fe80::1"]));
    let gateway = with_dns(&dns).await.start().await;
    for host in [HOST, "six.example.test"] {
        gateway.get(&origin.url(host, "/")).await.assert_refused(403, "guard_address");
        gateway.connect(&origin.authority(host)).await.1.assert_refused(403, "guard_address");
    }
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn names_that_lead_nowhere_say_why() {
    let dns = Dns::start().await;
    dns.set("broken.example.test", Answer::Failure);
    dns.set("empty.example.test", Answer::addresses(&[]));
    dns.set("silent.example.test", Answer::Silence);
    dns.set("dangling.example.test", Answer::Alias("none.example.test".into()));
    let gateway = with_dns(&dns).await.set("limits", "connect_timeout", r#""2s""#).start().await;
    for (host, reason, says) in [
        ("none.example.test", "dns_not_found", "does not exist"),
        ("dangling.example.test", "dns_not_found", ""),
        ("empty.example.test", "dns_not_found", "no addresses"),
        ("broken.example.test", "dns_failed", "ServFail"),
        ("silent.example.test", "dns_failed", "in time"),
    ] {
        let problem = gateway.get(&format!("http://{host}/")).await.assert_refused(502, reason);
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(says), "{host}: {says} is not in {detail:?}");
    }
}

#[tokio::test]
async fn a_name_server_that_is_not_there_is_said() {
    let addr = Dns::start().await.addr();
    let gateway = Gateway::setup().unrestricted().set("dns", "servers", &format!("[{:?}]", addr.to_string()));
    let problem = gateway.start().await.get(&format!("http://{HOST}/")).await.assert_refused(502, "dns_failed");
    assert!(problem["detail"].as_str().unwrap().contains("name server"), "{problem:#}");
}

#[tokio::test]
async fn a_missing_name_is_soon_asked_for_again() {
    let (origin, dns) = (Origin::http(Site::default()).await, Dns::start().await);
    dns.set(HOST, Answer::NoSuchNameFor(86_400));
    let gateway = with_dns(&dns).await.start().await;
    gateway.get(&origin.url(HOST, "/")).await.assert_refused(502, "dns_not_found");
    let asked = dns.queries_for(HOST);
    gateway.get(&origin.url(HOST, "/")).await.assert_refused(502, "dns_not_found");
    assert_eq!(dns.queries_for(HOST), asked, "for a moment the answer is kept");
    dns.set(HOST, Answer::addresses(&["127.0.0.1"]));
    until("the name to be found", || async { (gateway.get(&origin.url(HOST, "/")).await.status == 200).then_some(()) })
        .await;
}
