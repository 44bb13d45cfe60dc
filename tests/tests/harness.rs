//! The harness held against itself: what the suites build on works without a gateway.

use std::sync::atomic::Ordering;

use exeat_tests::origin::BANNER;
use exeat_tests::prelude::*;
use exeat_tests::relay::{PlainProxy, TlsFront};
use exeat_tests::ws;
use tokio::net::UdpSocket;

async fn open(origin: &Origin) -> RawConn {
    RawConn::open(origin.addr()).await
}

#[tokio::test]
async fn header_lines_are_recorded_as_they_came() {
    let origin = Origin::http(Site::default()).await;
    let mut conn = open(&origin).await;
    conn.send("POST /a?b=c HTTP/1.1\r\nHost: x\r\nX-Two: 1\r\nx-two:2\r\nContent-Length: 5\r\n\r\nhello").await;
    conn.response().await.assert_ok("POST /a?b=c");
    let request = origin.only_request().await;
    assert_eq!(request.head.lines, ["Host: x", "X-Two: 1", "x-two:2", "Content-Length: 5"]);
    assert_eq!((request.method.as_str(), request.path(), request.query()), ("POST", "/a", "b=c"));
    assert_eq!(request.values("X-TWO"), ["1", "2"]);
    assert_eq!(request.body, b"hello");
    assert_eq!(request.body_sha256, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
}

#[tokio::test]
async fn a_connection_is_kept_and_counted() {
    let origin = Origin::http(Site::default()).await;
    let mut conn = open(&origin).await;
    conn.get("/1", "x").await.assert_ok("GET /1");
    conn.get("/2", "x").await.assert_ok("GET /2");
    open(&origin).await.get("/3", "x").await.assert_ok("GET /3");
    let requests = origin.await_requests(3).await;
    assert_eq!(requests.iter().map(|request| request.connection).collect::<Vec<_>>(), [0, 0, 1]);
    assert_eq!(origin.connections(), 2);
}

#[tokio::test]
async fn chunks_trailers_and_interim_answers_arrive_as_scripted() {
    let reply = Reply::chunked(&["one", "two"]).trailer("X-End", "yes").interim("103 Early Hints", &["Link: </a>"]);
    let origin = Origin::http(Site::default().at("/", reply)).await;
    let response = open(&origin).await.get("/", "x").await;
    assert_eq!(response.interim[0].value("link").unwrap(), "</a>");
    assert_eq!(response.text(), "onetwo");
    assert_eq!(response.trailers, ["X-End: yes"]);
}

#[tokio::test]
async fn a_request_body_is_echoed_while_it_arrives() {
    let origin = Origin::http(Site::default().at("/", Reply::echo())).await;
    let mut conn = open(&origin).await;
    conn.send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n").await;
    let mut opened = conn.opened("POST").await;
    assert_eq!(conn.piece(&mut opened).await.unwrap(), b"abc");
    conn.send("2\r\nde\r\n0\r\nX-Sum: 1\r\n\r\n").await;
    assert_eq!(conn.rest(opened).await.unwrap().text(), "de");
    assert_eq!(origin.only_request().await.trailers, ["X-Sum: 1"]);
}

#[tokio::test]
async fn events_come_when_they_are_sent_and_a_leaving_client_is_noticed() {
    let (reply, source) = Reply::events();
    let origin = Origin::http(Site::default().at("/", reply)).await;
    let mut conn = open(&origin).await;
    conn.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    source.send("1").await;
    let mut opened = conn.opened("GET").await;
    assert_eq!(conn.piece(&mut opened).await.unwrap(), b"data: 1\n\n");
    drop(conn);
    source.abandoned().await;
}

#[tokio::test]
async fn misbehaviour_is_served_as_ordered() {
    let short = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
    let site = Site::default()
        .at("/short", Reply::verbatim(short))
        .at("/reset", Reply::reset(short))
        .at("/vanish", Reply::vanish());
    let origin = Origin::http(site).await;
    for (path, left) in [("/short", Some(&b"half"[..])), ("/vanish", None)] {
        let mut conn = open(&origin).await;
        conn.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        let bytes = conn.to_end().await;
        assert!(left.is_none_or(|left| bytes.ends_with(left)), "{path}");
        assert_eq!(bytes.is_empty(), left.is_none(), "{path}");
    }
    let mut conn = open(&origin).await;
    conn.send("GET /reset HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(origin.await_failures(1).await[0].contains("reset"));
}

#[tokio::test]
async fn a_websocket_is_shaken_hands_with_and_echoes() {
    let origin = Origin::http(Site::default().at("/ws", Reply::websocket())).await;
    let mut conn = open(&origin).await;
    conn.send(ws::handshake("/ws", "x")).await;
    let opened = conn.opened("GET").await;
    let response = conn.rest(opened).await.unwrap();
    assert_eq!((response.status, response.value("sec-websocket-accept")), (101, Some(ws::accept(ws::SAMPLE_KEY))));
    assert_eq!(conn.websocket_echo("hello").await, "hello");
}

#[tokio::test]
async fn a_flood_stops_when_nobody_reads() {
    let length = 64 << 20;
    let (reply, written) = Reply::flood(length);
    let origin = Origin::http(Site::default().at("/", reply)).await;
    let mut conn = open(&origin).await;
    conn.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut opened = conn.opened("GET").await;
    conn.piece(&mut opened).await.unwrap();
    assert!(exeat_tests::wait::settled(|| written.load(Ordering::SeqCst)).await < length);
    assert!(conn.rest(opened).await.unwrap().body.len() > 60 << 20);
}

#[tokio::test]
async fn certificates_are_good_or_bad_as_asked() {
    let ca = TestCa::new();
    let name = "api.example.test";
    let cases = [
        ("good", ca.leaf(&[name]), None),
        ("expired", ca.expired(&[name]), Some("Expired")),
        ("wrong name", ca.leaf(&["other.example.test"]), Some("NotValidForName")),
        ("self-signed", Leaf::self_signed(&[name]), Some("UnknownIssuer")),
        ("other authority", TestCa::new().leaf(&[name]), Some("UnknownIssuer")),
    ];
    for (case, leaf, error) in cases {
        let origin = Origin::https(Site::default(), &leaf).await;
        let tls = open(&origin).await.tls(ca.roots(), name, &["http/1.1"]).await;
        match (tls, error) {
            (Ok(mut conn), None) => {
                conn.get("/", name).await.assert_ok("GET /");
                assert_eq!(conn.alpn(), Some("http/1.1"));
                assert_eq!(origin.only_request().await.sni.as_deref(), Some(name));
            }
            (Err(found), Some(error)) => assert!(format!("{found:?}").contains(error), "{case}: {found:?}"),
            (tls, _) => panic!("{case}: {:?}", tls.err()),
        }
    }
}

#[tokio::test]
async fn echo_servers_keep_half_closed_connections() {
    let (plain, banner) = (Echo::tcp().await, Echo::banner().await);
    for (echo, greeting) in [(&plain, ""), (&banner, BANNER)] {
        let mut conn = RawConn::open(([127, 0, 0, 1], echo.port()).into()).await;
        conn.send("some bytes").await;
        conn.finish().await;
        assert_eq!(String::from_utf8(conn.to_end().await).unwrap(), format!("{greeting}some bytes"));
        assert_eq!(echo.await_ended(1).await, [10]);
    }
}

#[tokio::test]
async fn the_name_server_answers_as_told_and_remembers() {
    let dns = Dns::start().await;
    dns.set("a.test", Answer::addresses(&["127.0.0.1", "::1", "10.0.0.1"]));
    dns.set("alias.test", Answer::Alias("a.test".into()));
    dns.set("broken.test", Answer::Failure);
    dns.set("long.test", Answer::Truncated(vec!["127.0.0.9".parse().unwrap()]));
    dns.set_sequence("turn.test", vec![Answer::addresses(&["127.0.0.1"]), Answer::addresses(&["127.0.0.2"])]);

    for (name, kind, code, truncated, count, end) in [
        ("a.test", 1, 0, false, 2, &[10, 0, 0, 1][..]),
        ("a.test", 28, 0, false, 1, &[0, 0, 0, 1]),
        ("alias.test", 1, 0, false, 3, &[10, 0, 0, 1]),
        ("broken.test", 1, 2, false, 0, &[]),
        ("none.test", 1, 3, false, 0, &[]),
        ("long.test", 1, 0, true, 0, &[]),
        ("turn.test", 1, 0, false, 1, &[127, 0, 0, 1]),
        ("turn.test", 1, 0, false, 1, &[127, 0, 0, 2]),
    ] {
        let answer = ask(&dns, name, kind, false).await;
        assert_eq!((answer[3] & 15, answer[2] & 2 != 0, answer[7]), (code, truncated, count), "{name}");
        assert!(answer.ends_with(end), "{name}: {answer:?}");
    }
    assert_eq!(dns.queries_for("a.test"), 2);
    assert!(ask(&dns, "long.test", 1, true).await.ends_with(&[127, 0, 0, 9]));
    assert!(dns.queries().last().unwrap().tcp);
}

/// Asks for records of a type, and returns the whole answer.
async fn ask(dns: &Dns, name: &str, kind: u8, tcp: bool) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).unwrap());
        message.extend(label.bytes());
    }
    message.extend([0, 0, kind, 0, 1]);
    if tcp {
        let mut conn = RawConn::open(dns.addr()).await;
        conn.send([&[0, u8::try_from(message.len()).unwrap()], &message[..]].concat()).await;
        let length = conn.exact(2).await;
        return conn.exact(usize::from(u16::from_be_bytes([length[0], length[1]]))).await;
    }
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(&message, dns.addr()).await.unwrap();
    let mut answer = vec![0; 512];
    let length = within("a DNS answer", socket.recv(&mut answer)).await.unwrap();
    answer.truncate(length);
    answer
}

#[tokio::test]
async fn curl_reaches_an_origin_through_the_plain_proxy_and_a_tls_front() {
    let ca = TestCa::new();
    let origin = Origin::http(Site::default()).await;
    let front = TlsFront::start(&ca.leaf(&["api.example.test"]), origin.addr()).await;
    let proxy = PlainProxy::start().await;
    let url = format!("https://api.example.test:{}/x", front.port());
    let curl = Cmd::new("curl").args(["-sS", &url]).proxied(&format!("http://{}", proxy.addr()), &ca.pem_path());
    assert_eq!(curl.run().await.success(), "GET /x\n");
    assert_eq!(proxy.requests(), [format!("CONNECT api.example.test:{} HTTP/1.1", front.port())]);
}
