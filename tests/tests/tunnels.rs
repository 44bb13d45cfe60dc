//! Blind tunnels as byte streams: many at once, busy ones, ones that are cut off, and ones that last too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use exeat_tests::bulk::{self, Pace};
use exeat_tests::prelude::*;
use exeat_tests::wait::settled;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const HOST: &str = "api.example.test";

fn setup() -> Setup {
    Gateway::setup().names(&[HOST]).allow(&[HOST])
}

/// A listener for one server that a test plays itself.
async fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = format!("{HOST}:{}", listener.local_addr().unwrap().port());
    (listener, authority)
}

/// How many bytes the system keeps for one socket at most, on its way in (`tcp_rmem`) or out (`tcp_wmem`); tcp(7).
fn sockets_hold(kind: &str) -> u64 {
    let limits = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{kind}")).unwrap();
    limits.split_whitespace().next_back().unwrap().parse().unwrap()
}

/// A tunnel of which the test holds the socket of both ends.
async fn ends(gateway: &Gateway) -> (TcpStream, TcpStream) {
    let (listener, authority) = listener().await;
    let mut client = TcpStream::connect(gateway.proxy()).await.unwrap();
    client.write_all(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n").as_bytes()).await.unwrap();
    let answer = b"HTTP/1.1 200 Connection established\r\n\r\n";
    let mut head = vec![0; answer.len()];
    within("the answer to a CONNECT", client.read_exact(&mut head)).await.unwrap();
    assert_eq!(head, answer);
    (client, within("a connection", listener.accept()).await.unwrap().0)
}

#[tokio::test]
async fn two_thousand_idle_tunnels_are_held_at_once_in_little_memory() {
    const TUNNELS: usize = 2000;
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let echo = Echo::tcp().await;
    let gateway = setup().start().await;
    // What the first tunnels take once and for all is not counted to the others.
    let mut tunnels = Vec::new();
    for _ in 0..100 {
        tunnels.push(gateway.tunnel(&echo.authority(HOST)).await);
    }
    let before = gateway.memory();
    for _ in 0..TUNNELS {
        tunnels.push(gateway.tunnel(&echo.authority(HOST)).await);
    }
    let each = gateway.memory().saturating_sub(before) / TUNNELS as u64;
    assert!(each <= 8 * 1024, "{each} bytes for each idle tunnel");
    gateway.await_metric("exeat_tunnels_active", &[], (TUNNELS + 100) as f64).await;
    for tunnel in &mut tunnels {
        tunnel.exchange(b"still there").await;
    }
    drop(tunnels);
    gateway.await_metric("exeat_tunnels_active", &[], 0.0).await;
}

#[tokio::test]
async fn much_is_spliced_both_ways_at_once_and_counted_exactly() {
    const LENGTH: u64 = 48 * 1024 * 1024 + 12_345;
    let gateway = setup().start().await;
    let before = gateway.sockets();
    let (client, upstream) = ends(&gateway).await;
    let side = async |stream: TcpStream, pace: Pace| {
        let (mut read, mut write) = stream.into_split();
        let writing = async {
            bulk::write(&mut write, LENGTH, pace).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let ((), received) = tokio::join!(writing, bulk::read(&mut read, u64::MAX, pace));
        received.unwrap()
    };
    let both = async { tokio::join!(side(client, Pace::FAST), side(upstream, Pace::SLOW)) };
    let (down, up) = exeat_tests::wait::within_time(Duration::from_secs(60), "the transfers", both).await;
    let whole = (LENGTH, bulk::sha256(LENGTH));
    assert_eq!((down, up), (whole.clone(), whole));
    for direction in ["up", "down"] {
        gateway.await_metric("exeat_bytes_total", &[("direction", direction)], LENGTH as f64).await;
    }
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "closed")], 1.0).await;
    gateway.await_sockets(before).await;
    let pipes = gateway.descriptors().iter().filter(|link| link.starts_with("pipe:")).count();
    assert!(
        pipes <= 2 * 16 * std::thread::available_parallelism().unwrap().get() + 2,
        "{pipes} ends of pipes are open"
    );
}

#[tokio::test]
async fn a_side_that_ends_leaves_the_other_open() {
    let gateway = setup().start().await;
    // Both ways of relaying: copied at first, spliced later.
    for length in [1, 300_000] {
        for client_ends in [true, false] {
            let (client, upstream) = ends(&gateway).await;
            let (mut first, mut second) = if client_ends { (client, upstream) } else { (upstream, client) };
            let transfer = async |from: &mut TcpStream, to: &mut TcpStream| {
                let (sent, received) =
                    tokio::join!(bulk::write(from, length, Pace::FAST), bulk::read(to, length, Pace::FAST));
                sent.unwrap();
                assert_eq!(received.unwrap().0, length);
            };
            transfer(&mut first, &mut second).await;
            first.shutdown().await.unwrap();
            assert_eq!(within("the end", second.read(&mut [0])).await.unwrap(), 0);
            transfer(&mut second, &mut first).await;
            second.shutdown().await.unwrap();
            assert_eq!(within("the end", first.read(&mut [0])).await.unwrap(), 0);
        }
    }
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "closed")], 4.0).await;
}

#[tokio::test]
async fn a_side_that_breaks_off_breaks_the_other_off() {
    let gateway = setup().start().await;
    let before = gateway.sockets();
    for client_breaks in [true, false] {
        let (client, upstream) = ends(&gateway).await;
        let (mut first, mut second) = if client_breaks { (client, upstream) } else { (upstream, client) };
        first.write_all(b"half a mess").await.unwrap();
        within("the bytes", second.read_exact(&mut [0; 11])).await.unwrap();
        first.set_zero_linger().unwrap();
        drop(first);
        let broken = within("the break", second.read(&mut [0])).await.unwrap_err();
        assert_eq!(broken.kind(), std::io::ErrorKind::ConnectionReset, "what was cut short must not look complete");
    }
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "error")], 2.0).await;
    gateway.await_sockets(before).await;
}

#[tokio::test]
async fn a_side_that_takes_nothing_holds_the_other_back() {
    let gateway = setup().start().await;
    let (mut client, mut upstream) = ends(&gateway).await;
    let written = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&written);
    let writing = tokio::spawn(async move {
        let piece = vec![7; bulk::PIECE];
        while client.write_all(&piece).await.is_ok() {
            counter.fetch_add(piece.len() as u64, Ordering::SeqCst);
        }
    });
    let before = gateway.memory();
    let held = settled(|| written.load(Ordering::SeqCst)).await;
    let limit = 2 * (sockets_hold("tcp_rmem") + sockets_hold("tcp_wmem")) + (8 << 20);
    assert!(held < limit, "{held} bytes were taken while the other side read none");
    assert!(gateway.memory().saturating_sub(before) < 8 << 20);
    let more = held + (64 << 20);
    bulk::read(&mut upstream, more, Pace::FAST).await.unwrap();
    assert!(written.load(Ordering::SeqCst) >= more - bulk::PIECE as u64);
    drop(upstream);
    within("the writer to hear of it", writing).await.unwrap();
}

#[tokio::test]
async fn a_tunnel_lasts_no_longer_than_it_may_however_busy() {
    let echo = Echo::tcp().await;
    let gateway = setup().set("limits", "tunnel_lifetime", r#""1s""#).start().await;
    let mut tunnel = gateway.tunnel(&echo.authority(HOST)).await;
    let busy = async {
        while tunnel.try_send("x").await.is_ok() {
            if tunnel.piece_or_end().await.is_empty() {
                break;
            }
        }
    };
    within("the tunnel to be closed", busy).await;
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "lifetime")], 1.0).await;
}

#[tokio::test]
async fn a_busy_tunnel_ends_when_the_policy_no_longer_permits_it() {
    let gateway = setup().start().await;
    let (client, upstream) = ends(&gateway).await;
    let (mut read, mut write) = client.into_split();
    let writing = tokio::spawn(async move { bulk::write(&mut write, u64::MAX, Pace::FAST).await });
    let echoing = tokio::spawn(async move {
        let (mut read, mut write) = upstream.into_split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    });
    bulk::read(&mut read, 8 << 20, Pace::FAST).await.unwrap();
    gateway.write("agent.toml", "name = \"agent\"\nnetwork_access.allowed = [\"other.example.test\"]\n");
    let reload = gateway.reload();
    let reading = bulk::read(&mut read, u64::MAX, Pace::FAST);
    let (_, read) = within("the tunnel to be closed", async { tokio::join!(reload, reading) }).await;
    assert!(read.is_err() || read.is_ok_and(|(length, _)| length > 0));
    within("the writer to hear of it", writing).await.unwrap().unwrap_err();
    within("the server to hear of it", echoing).await.unwrap();
    gateway.await_metric("exeat_tunnels_closed_total", &[("cause", "policy_changed")], 1.0).await;
}
