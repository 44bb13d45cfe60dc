//! Clients that end their side early, others that vanish, and ones that say hello in crumbs: what the gateway makes of
//! the ends of a connection.

use std::net::SocketAddr;

use exeat_tests::certs::client_hello;
use exeat_tests::origin::Gate;
use exeat_tests::prelude::*;
use exeat_tests::wait::until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const HOST: &str = "api.example.test";

fn setup() -> Setup {
    Gateway::setup().names(&[HOST]).allow(&[HOST])
}

// --- Half-closed --------------------------------------------------------------------------------------------------------

/// More than all buffers on the way hold.
const LARGE: u64 = 16 << 20;

/// A gateway and an origin, plain or in an inspected tunnel: `/v1/slow` answers when the gate opens.
struct Scene {
    gate: Gate,
    origin: Origin,
    gateway: Gateway,
    tls: bool,
}

impl Scene {
    async fn start(tls: bool, change: impl FnOnce(Setup) -> Setup) -> Self {
        let (gate, ca) = (Gate::default(), TestCa::new());
        let site = Site::default().at("/v1/slow", Reply::text("done\n").after(&gate));
        let site = site.at("/v1/large", Reply::flood(LARGE).0).at("/v1/hang", Reply::hang());
        let origin = match tls {
            true => Origin::https(site, &ca.leaf(&[HOST])).await,
            false => Origin::http(site).await,
        };
        let setup = Gateway::setup().names(&[HOST]).trust(&ca).allow(&[origin.url(HOST, "/v1/")]);
        Self { gate, origin, gateway: change(setup).start().await, tls }
    }

    /// Sends a request and ends the client's side.
    async fn ask(&self, method: &str, path: &str, rest: &str) -> RawConn {
        let mut conn = match self.tls {
            true => self.gateway.intercepted(&self.origin.authority(HOST)).await,
            false => self.gateway.open().await,
        };
        let target = if self.tls { path.to_owned() } else { self.origin.url(HOST, path) };
        conn.send(format!("{method} {target} {}", rest.replacen("\r\n", &format!("\r\nHost: {HOST}\r\n"), 1))).await;
        conn.finish().await;
        conn
    }
}

#[tokio::test]
async fn a_client_that_ends_its_side_behind_its_last_request_gets_the_answer() {
    for tls in [false, true] {
        for (method, rest) in [
            ("GET", "HTTP/1.1\r\nConnection: close\r\n\r\n"),
            ("GET", "HTTP/1.0\r\n\r\n"),
            ("POST", "HTTP/1.1\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody"),
            ("POST", "HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n4\r\nbody\r\n0\r\n\r\n"),
        ] {
            let scene = Scene::start(tls, |setup| setup).await;
            let sockets = scene.gateway.sockets();
            let mut conn = scene.ask(method, "/v1/slow", rest).await;
            let request = scene.origin.only_request().await;
            assert_eq!(request.body.len(), if method == "POST" { 4 } else { 0 });
            scene.gate.open();
            conn.response().await.assert_ok("done");
            assert!(conn.to_end().await.is_empty());
            let mut conn = scene.ask(method, "/v1/large", rest).await;
            assert_eq!(conn.response().await.body.len() as u64, LARGE);
            scene.gateway.await_sockets(sockets).await;
        }
    }
}

#[tokio::test]
async fn a_client_that_ends_its_side_where_it_was_to_go_on_has_gone() {
    for tls in [false, true] {
        let scene = Scene::start(tls, |setup| setup).await;
        let sockets = scene.gateway.sockets();
        for rest in ["HTTP/1.1\r\n\r\n", "HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"] {
            let mut conn = scene.ask("GET", "/v1/hang", rest).await;
            assert!(conn.to_end().await.is_empty());
        }
        scene.gateway.await_sockets(sockets).await;
    }
}

#[tokio::test]
async fn a_half_closed_client_is_waited_for_no_longer_than_the_idle_time() {
    for tls in [false, true] {
        let scene = Scene::start(tls, |setup| setup.set("limits", "idle_timeout", "\"1s\"")).await;
        let mut conn = scene.ask("GET", "/v1/hang", "HTTP/1.1\r\nConnection: close\r\n\r\n").await;
        conn.to_end().await;
        scene.gateway.await_metric("exeat_connections_active", &[], 0.0).await;
        scene.gateway.await_sockets(scene.gateway.sockets()).await;
    }
}

#[tokio::test]
async fn a_tunnel_asked_for_by_a_client_that_has_ended_its_side_carries_the_answer() {
    let (listener, authority) = listener().await;
    let gateway = setup().start().await;
    let mut conn = gateway.open().await;
    let bytes = "CONNECT A HTTP/1.1\r\nHost: A\r\nConnection: close\r\n\r\nhello";
    conn.send(bytes.replace(" A", &format!(" {authority}"))).await;
    conn.finish().await;
    let (mut server, _) = within("a connection", listener.accept()).await.unwrap();
    let mut said = String::new();
    within("the client's end", server.read_to_string(&mut said)).await.unwrap();
    assert_eq!(said, "hello");
    server.write_all(b"and an answer").await.unwrap();
    drop(server);
    assert_eq!(conn.response_to("CONNECT").await.status, 200);
    assert_eq!(conn.to_end().await, b"and an answer");
}

// --- Vanished -----------------------------------------------------------------------------------------------------------

/// Whether the system will ask for a sign of life on the connection from `local` to `remote`.
fn is_watched(local: SocketAddr, remote: SocketAddr) -> bool {
    let hex = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => format!("{:08X}:{:04X}", u32::from_ne_bytes(v4.ip().octets()), v4.port()),
        SocketAddr::V6(_) => panic!("the suites use IPv4"),
    };
    let (local, remote) = (hex(local), hex(remote));
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let entry = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let entry = entry.into_iter().find(|fields| fields[1..3] == [&local, &remote]).expect("the connection is open");
    // What a timer waits for: 2 is a sign of life.
    entry[5].starts_with("02:")
}

async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = format!("{HOST}:{}", listener.local_addr().unwrap().port());
    (listener, authority)
}

#[tokio::test]
async fn both_ends_of_a_tunnel_are_asked_for_signs_of_life() {
    for (keepalive, watched) in [("60s", true), ("1ms", true), ("0s", false)] {
        let gateway = setup().set("limits", "tcp_keepalive", &format!("{keepalive:?}")).start().await;
        let (listener, authority) = listener().await;
        let mut client = TcpStream::connect(gateway.proxy()).await.unwrap();
        client.write_all(format!("CONNECT {authority} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
        let (upstream, gateway_side) = within("a connection", listener.accept()).await.unwrap();
        within("an answer", client.read_exact(&mut [0; 15])).await.unwrap();
        let ends = [
            (client.peer_addr().unwrap(), client.local_addr().unwrap()),
            (gateway_side, upstream.local_addr().unwrap()),
        ];
        for (local, remote) in ends {
            // Until everything is acknowledged the timer is one for sending again.
            let what = format!("{local} to {remote} to be watched: {watched}, with {keepalive}");
            until(&what, || async { (is_watched(local, remote) == watched).then_some(()) }).await;
        }
    }
}

// --- A hello in crumbs --------------------------------------------------------------------------------------------------

/// The same handshake message in records of `size` bytes.
fn in_records(hello: &[u8], size: usize) -> Vec<u8> {
    let records = hello[5..].chunks(size).map(|piece| {
        let length = u16::try_from(piece.len()).unwrap().to_be_bytes();
        [&[0x16, 3, 1], &length[..], piece].concat()
    });
    records.collect::<Vec<_>>().concat()
}

#[tokio::test]
async fn a_hello_byte_by_byte_and_over_many_records_names_its_host() {
    let (listener, authority) = listener().await;
    // A rule for a whole https origin holds all back until the name is known.
    let strict = Gateway::setup().names(&[HOST]).allow(&[format!("https://{authority}/")]).start().await;
    let open = setup().start().await;
    for gateway in [&strict, &open] {
        for (name, size) in [(HOST, 1), (HOST, 7), (HOST, 16 * 1024), ("evil.test", 1), ("evil.test", 16 * 1024)] {
            let hello = in_records(&client_hello(name), size);
            let mut conn = gateway.tunnel(&authority).await;
            let (mut upstream, _) = within("a connection", listener.accept()).await.unwrap();
            for byte in &hello {
                conn.send([*byte]).await;
            }
            if name == HOST {
                let mut received = vec![0; hello.len()];
                within("the hello", upstream.read_exact(&mut received)).await.unwrap();
                assert_eq!(received, hello);
            } else {
                assert!(conn.to_end().await.is_empty());
                let mut received = Vec::new();
                let _ = within("the end", upstream.read_to_end(&mut received)).await;
                assert!(received.is_empty(), "{} bytes went out", received.len());
            }
        }
    }
    for gateway in [&strict, &open] {
        gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "sni_mismatch")], 2.0).await;
    }
}

#[tokio::test]
async fn a_hello_too_long_to_be_one_is_not_waited_for() {
    let (listener, authority) = listener().await;
    let strict = Gateway::setup().names(&[HOST]).allow(&[format!("https://{authority}/")]).start().await;
    let open = setup().start().await;
    for (gateway, cause) in [(&strict, "not_tls"), (&open, "sni_mismatch")] {
        // A length that is too large, and records that hold one byte each without end.
        let long = [&[0x16, 3, 1, 0x40, 0, 1, 0, 0x40, 1][..], &[0; 1000]].concat();
        let crumbs = [&[0x16, 3, 1, 0, 4, 1, 0, 0x40, 0][..], &[0x16, 3, 1, 0, 1, 0].repeat(6_000)].concat();
        for bytes in [long, crumbs] {
            let mut conn = gateway.tunnel(&authority).await;
            let (mut upstream, _) = within("a connection", listener.accept()).await.unwrap();
            // The gateway may close before it has taken them all.
            let _ = conn.try_send(&bytes).await;
            assert!(conn.to_end().await.is_empty());
            let mut received = Vec::new();
            let _ = within("the end", upstream.read_to_end(&mut received)).await;
            assert!(received.is_empty(), "{} bytes went out", received.len());
        }
        gateway.await_metric("exeat_tunnels_closed_total", &[("cause", cause)], 2.0).await;
    }
}
