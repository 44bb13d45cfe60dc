//! Limits that hold, and pressure that passes.

use exeat_tests::prelude::*;
use exeat_tests::wait::until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const HOST: &str = "api.example.test";

#[tokio::test]
async fn running_out_of_descriptors_passes() {
    let origin = Origin::http(Site::default()).await;
    let gateway = Gateway::setup().names(&[HOST]).allow(&[HOST]).start().await;
    gateway.get(&origin.url(HOST, "/before")).await.assert_ok("GET /before");
    gateway.reload().await;
    let open = gateway.descriptors().len();
    gateway.limit_descriptors(Some(20));
    // Far more clients than descriptors: those that are not accepted wait in the system's queue.
    let mut clients = Vec::new();
    for _ in 0..100 {
        clients.push(TcpStream::connect(gateway.proxy()).await.unwrap());
    }
    gateway.await_line("cannot accept connections").await;
    until("every descriptor to be taken", || async { (gateway.descriptors().len() >= open + 20).then_some(()) }).await;
    drop(clients);
    // Those in the queue are still to be accepted, and to be found gone.
    until("the gateway to serve again", || async {
        (gateway.get(&origin.url(HOST, "/again")).await.status == 200).then_some(())
    })
    .await;
    gateway.await_metric("exeat_connections_active", &[], 0.0).await;
    for path in ["/1", "/2", "/3"] {
        gateway.get(&origin.url(HOST, path)).await.assert_ok("GET");
    }
    gateway.await_metric("exeat_connections_active", &[], 0.0).await;
}

#[tokio::test]
async fn a_dial_without_a_descriptor_is_told_as_a_limit() {
    let origin = Origin::http(Site::default()).await;
    let gateway = Gateway::setup().names(&[HOST]).allow(&[HOST]).start().await;
    let mut conn = gateway.open().await;
    conn.get(&origin.url(HOST, "/before"), HOST).await.assert_ok("GET /before");
    let pooled = gateway.sockets();
    gateway.reload().await;
    until("the pooled connection to close", || async { (gateway.sockets() < pooled).then_some(()) }).await;
    gateway.limit_descriptors(Some(0));
    conn.get(&origin.url(HOST, "/under"), HOST).await.assert_refused(503, "connection_limit");
    gateway.limit_descriptors(None);
    conn.get(&origin.url(HOST, "/after"), HOST).await.assert_ok("GET /after");
}

#[tokio::test]
async fn heads_and_bodies_out_of_bounds_are_counted_with_their_reasons() {
    let origin = Origin::http(Site::default()).await;
    let gateway = Gateway::setup().names(&[HOST]).allow(&[HOST]);
    let gateway = gateway.set("limits", "header_timeout", r#""1s""#).start().await;
    let url = origin.url(HOST, "/");
    let many = "X: y\r\n".repeat(5000);
    let flood = format!("GET {url} HTTP/1.1\r\nHost: x\r\n{many}{}", "Y: z\r\n".repeat(10_000));
    let slow = format!("GET {url} HTTP/1.1\r\nHost: x\r\nX: ");
    let chunk = "ffffffffffffffff\r\nhello";
    let giant = format!("POST {url} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}");
    for (message, status, reason) in
        [(&flood, 431, "head_too_large"), (&slow, 408, "head_timeout"), (&giant, 400, "bad_request")]
    {
        let mut conn = gateway.open().await;
        // The gateway answers before it has read all of the flood.
        let _ = conn.try_send(message).await;
        conn.response().await.assert_refused(status, reason);
        assert!(conn.to_end().await.is_empty(), "the connection is closed after {reason}");
    }
    for reason in ["head_too_large", "head_timeout"] {
        gateway.await_metric("exeat_requests_total", &[("entry", "forward"), ("reason", reason)], 1.0).await;
    }
    assert!(origin.requests().iter().all(|request| !request.complete));
}

#[tokio::test]
async fn tunnels_of_every_kind_share_a_limit_that_requests_do_not_have() {
    let (ca, origin, echo) = (TestCa::new(), Origin::http(Site::default()).await, Echo::tcp().await);
    let tls = Origin::https(Site::default(), &ca.leaf(&["deep.example.test"])).await;
    let gateway = Gateway::setup().names(&[HOST, "deep.example.test"]).trust(&ca);
    let gateway = gateway.allow(&[HOST.to_owned(), tls.url("deep.example.test", "/v1/")]);
    let gateway = gateway.set("limits", "tunnels", "2").start().await;
    let blind = gateway.tunnel(&echo.authority(HOST)).await;
    let mut inspected = gateway.intercepted(&tls.authority("deep.example.test")).await;
    for authority in [echo.authority(HOST), tls.authority("deep.example.test")] {
        gateway.connect(&authority).await.1.assert_refused(503, "tunnel_limit");
    }
    gateway.get(&origin.url(HOST, "/plain")).await.assert_ok("GET /plain");
    inspected.get("/v1/x", "deep.example.test").await.assert_ok("GET /v1/x");
    gateway.await_metric("exeat_requests_total", &[("entry", "connect"), ("reason", "tunnel_limit")], 2.0).await;
    drop(blind);
    gateway.await_metric("exeat_tunnels_active", &[], 1.0).await;
    gateway.tunnel(&echo.authority(HOST)).await.exchange(b"free again").await;
}

#[tokio::test]
async fn a_server_that_answers_and_reads_no_further_keeps_nothing_open() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let authority = format!("{HOST}:{}", listener.local_addr().unwrap().port());
    let gateway = Gateway::setup().names(&[HOST]).allow(&[HOST]).set("limits", "idle_timeout", r#""1s""#).start().await;
    let before = gateway.sockets();
    let (mut from_gateway, mut to_gateway) = TcpStream::connect(gateway.proxy()).await.unwrap().into_split();
    let head = format!("POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nContent-Length: 1073741824\r\n\r\n");
    to_gateway.write_all(head.as_bytes()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    server.read_u8().await.unwrap();
    server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
    // More than there is room for between the client and a server that does not read.
    let client = async { while to_gateway.write_all(&[0; 65_536]).await.is_ok() {} };
    let answer = async {
        let mut answer = Vec::new();
        // The client is written off too, in whichever way.
        let _ = from_gateway.read_to_end(&mut answer).await;
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n") && answer.ends_with(b"ok"), "{answer:?}");
    };
    within("the gateway to give both up", async { tokio::join!(client, answer) }).await;
    until("both connections to be closed", || async { (gateway.sockets() <= before).then_some(()) }).await;
    drop(server);
}
