//! Nothing lost, doubled or swapped, whoever is slow, ends early or breaks off; and nothing left behind afterwards.
//!
//! `EXEAT_LONG=1` moves a gibibyte where otherwise 256 MiB have to do.

use std::sync::Arc;
use std::time::Duration;

use exeat_tests::bulk::{self, Content, Pace, Random, sha256};
use exeat_tests::prelude::*;
use exeat_tests::wait::{until, within_time};
use exeat_tests::wire::{Io, Wire};
use exeat_tests::{certs, client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const HOST: &str = "api.example.test";
const OTHER: &str = "other.example.test";

fn long() -> bool {
    std::env::var_os("EXEAT_LONG").is_some()
}

/// How large a large body is.
fn large() -> u64 {
    if long() { 1 << 30 } else { 256 << 20 }
}

/// How long anything here may take.
fn patience() -> Duration {
    Duration::from_secs(if long() { 1800 } else { 150 })
}

/// A way to the origin through the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Absolute,
    Blind,
    Intercepted,
}

const WAYS: [Way; 3] = [Way::Absolute, Way::Blind, Way::Intercepted];

/// A gateway, and an origin behind each way.
struct Scene {
    gateway: Gateway,
    plain: Origin,
    tls: Origin,
    sockets: usize,
    tasks: f64,
}

impl Scene {
    async fn new(site: Site) -> Self {
        let ca = TestCa::new();
        let plain = Origin::http(site.clone()).await;
        let tls = Origin::https(site, &ca.leaf(&[HOST])).await;
        let rules = [plain.authority(HOST), tls.authority(HOST)];
        let gateway = Gateway::setup().names(&[HOST, OTHER]).trust(&ca);
        let rules = [format!("http://{}/", rules[0]), format!("https://{}/path/", rules[1]), OTHER.to_owned()];
        let gateway = gateway.allow(&rules).start().await;
        // A first connection brings up what stays, such as the logger's and the resolver's.
        gateway.get(&plain.url(HOST, "/path/first")).await.assert_ok("GET");
        gateway.reload().await;
        let sockets = gateway.sockets();
        let tasks = gateway.metrics().await.sum("exeat_tasks", &[]);
        Self { gateway, plain, tls, sockets, tasks }
    }

    fn origin(&self, way: Way) -> &Origin {
        if way == Way::Intercepted { &self.tls } else { &self.plain }
    }

    /// A connection on which requests for `/path/…` can be sent, and what stands before their paths.
    async fn open(&self, way: Way) -> (Box<dyn Io>, String) {
        match way {
            Way::Absolute => (self.gateway.open().await.into_io(), self.plain.url(HOST, "")),
            Way::Blind => (self.gateway.tunnel(&self.plain.authority(OTHER)).await.into_io(), String::new()),
            Way::Intercepted => (self.gateway.intercepted(&self.tls.authority(HOST)).await.into_io(), String::new()),
        }
    }

    async fn assert_nothing_is_left(&self) {
        self.gateway.await_sockets(self.sockets).await;
        let what = format!("{} tasks to be left", self.tasks);
        until(&what, || async { (self.gateway.metrics().await.sum("exeat_tasks", &[]) <= self.tasks).then_some(()) })
            .await;
    }
}

fn post(target: &str, fields: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: {HOST}\r\n{fields}\r\n")
}

#[tokio::test]
async fn a_large_upload_arrives_whole() {
    let scene = Scene::new(Site::default()).await;
    let (length, digest) = (large(), sha256(large()));
    for way in WAYS {
        let (mut io, base) = scene.open(way).await;
        let target = format!("{base}/path/{way:?}");
        let upload = async {
            io.write_all(post(&target, &format!("Content-Length: {length}\r\n")).as_bytes()).await.unwrap();
            bulk::write(&mut io, length, Pace::FAST).await.unwrap();
            Wire::new(io).head().await.unwrap().unwrap()
        };
        let head = within_time(patience(), "an upload", upload).await;
        assert!(head.start.starts_with("HTTP/1.1 200 "), "{way:?}: {head:?}");
        let request = scene.origin(way).requests().pop().unwrap();
        assert_eq!((request.body_length, &request.body_sha256), (length, &digest), "{way:?}");
    }
    scene.assert_nothing_is_left().await;
}

#[tokio::test]
async fn a_large_download_arrives_whole() {
    let length = large();
    let scene = Scene::new(Site::default().at("/path/large", Reply::flood(length).0)).await;
    let digest = sha256(length);
    for way in WAYS {
        let (mut io, base) = scene.open(way).await;
        let download = async {
            io.write_all(format!("GET {base}/path/large HTTP/1.1\r\nHost: {HOST}\r\n\r\n").as_bytes()).await.unwrap();
            read_head(&mut io).await;
            bulk::read(&mut io, length, Pace::FAST).await.unwrap()
        };
        let received = within_time(patience(), "a download", download).await;
        assert_eq!(received, (length, digest.clone()), "{way:?}");
    }
    scene.assert_nothing_is_left().await;
}

/// Reads up to the end of a header section and not a byte further.
async fn read_head(io: &mut Box<dyn Io>) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(io.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn an_answer_may_come_before_the_request_has_ended_and_either_side_may_be_slow() {
    let length = if long() { large() } else { 24 << 20 } + 321;
    let digest = sha256(length);
    let scene = Scene::new(Site::default().at("/path/echo", Reply::echo())).await;
    for way in WAYS {
        for (writes, reads) in [(Pace::FAST, Pace::SLOW), (Pace::SLOW, Pace::FAST)] {
            let (io, base) = scene.open(way).await;
            let (mut read, mut write) = tokio::io::split(io);
            let upload = async {
                let fields = format!("Content-Length: {length}\r\n");
                write.write_all(post(&format!("{base}/path/echo"), &fields).as_bytes()).await.unwrap();
                bulk::write(&mut write, length, writes).await.unwrap();
            };
            let download = async {
                let mut decoded = Decoded::default();
                let (mut near, mut far) = tokio::io::duplex(64 * 1024);
                let copying = async {
                    let mut buffer = vec![0; reads.piece];
                    while !decoded.done {
                        let count = read.read(&mut buffer).await.unwrap();
                        assert_ne!(count, 0, "the answer was cut short");
                        near.write_all(&decoded.feed(&buffer[..count])).await.unwrap();
                    }
                    drop(near);
                };
                tokio::join!(copying, bulk::read(&mut far, u64::MAX, reads)).1.unwrap()
            };
            let both = async { tokio::join!(upload, download) };
            let ((), received) = within_time(patience(), "an echo", both).await;
            assert_eq!(received, (length, digest.clone()), "{way:?} {writes:?}");
        }
    }
    scene.assert_nothing_is_left().await;
}

/// Takes the head and the chunk framing off an answer as it comes.
#[derive(Default)]
struct Decoded {
    buffer: Vec<u8>,
    in_body: bool,
    left: usize,
    done: bool,
}

impl Decoded {
    fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.buffer.extend_from_slice(bytes);
        let mut body = Vec::new();
        loop {
            if self.left > 0 {
                let count = self.left.min(self.buffer.len());
                body.extend(self.buffer.drain(..count));
                self.left -= count;
                if self.left > 0 {
                    return body;
                }
            }
            let mark: &[u8] = if self.in_body { b"\r\n" } else { b"\r\n\r\n" };
            let Some(at) = self.buffer.windows(mark.len()).position(|window| window == mark) else { return body };
            let line: Vec<u8> = self.buffer.drain(..at + mark.len()).collect();
            if !self.in_body {
                assert!(line.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&line));
                self.in_body = true;
            } else if at > 0 {
                self.left = usize::from_str_radix(std::str::from_utf8(&line[..at]).unwrap(), 16).unwrap();
                self.done = self.left == 0;
            }
            if self.done {
                return body;
            }
        }
    }
}

#[tokio::test]
async fn a_half_closed_client_still_gets_its_answer_through_a_tunnel() {
    const LENGTH: u64 = (8 << 20) + 5;
    let scene = Scene::new(Site::default().at("/path/large", Reply::flood(LENGTH).0)).await;
    let (mut io, base) = scene.open(Way::Blind).await;
    let fields = "Content-Length: 5\r\nConnection: close\r\n";
    io.write_all((post(&format!("{base}/path/large"), fields) + "hello").as_bytes()).await.unwrap();
    io.shutdown().await.unwrap();
    let download = async {
        read_head(&mut io).await;
        bulk::read(&mut io, u64::MAX, Pace::SLOW).await.unwrap()
    };
    assert_eq!(within_time(patience(), "an answer", download).await, (LENGTH, sha256(LENGTH)));
    scene.assert_nothing_is_left().await;
}

#[tokio::test]
async fn a_refusal_reaches_a_client_that_is_still_sending() {
    const ANSWER: &str = "HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfull";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = format!("{OTHER}:{}", listener.local_addr().unwrap().port());
    // Answers behind the head, ends its side, and still takes what comes.
    let server = tokio::spawn(async move {
        for _ in 0..2 {
            let mut wire = Wire::new(listener.accept().await.unwrap().0);
            wire.head().await.unwrap();
            wire.send(ANSWER).await.unwrap();
            wire.finish().await.unwrap();
            wire.wait_for_end().await;
        }
    });
    let scene = Scene::new(Site::default()).await;
    for way in [Way::Absolute, Way::Blind] {
        let (io, target) = match way {
            Way::Absolute => (scene.gateway.open().await.into_io(), format!("http://{authority}/")),
            _ => (scene.gateway.tunnel(&authority).await.into_io(), "/".to_owned()),
        };
        let (read, mut write) = tokio::io::split(io);
        let sending = async {
            let head = post(&target, &format!("Content-Length: {}\r\n", 16 << 20));
            // The gateway may close as soon as it has passed the answer on.
            let _ = write.write_all(head.as_bytes()).await;
            let _ = bulk::write(&mut write, 16 << 20, Pace::SLOW).await;
        };
        let receiving = async {
            let mut wire = Wire::new(tokio::io::join(read, tokio::io::sink()));
            let head = wire.head().await.unwrap().expect("an answer");
            (head.start, wire.exact(4).await.unwrap())
        };
        let both = async { tokio::join!(sending, receiving).1 };
        let (start, body) = within_time(patience(), "an answer", both).await;
        assert_eq!((start.split(' ').nth(1), body.as_slice()), (Some("413"), &b"full"[..]), "{way:?}");
    }
    within_time(patience(), "the server", server).await.unwrap();
    scene.assert_nothing_is_left().await;
}

#[tokio::test]
async fn an_answer_cut_at_any_byte_never_looks_whole() {
    const LENGTH: usize = 200_000;
    let body: String = (0..LENGTH).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
    let answer = Arc::new(format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n{body}"));
    let head = answer.len() - LENGTH;
    let cut = Arc::clone(&answer);
    let reply = Reply::computed(move |request| {
        let at: usize = request.query().parse().unwrap();
        let reply = Reply::reset(&cut[..at]);
        async move { reply }
    });
    let scene = Scene::new(Site::default().at("/path/cut", reply)).await;
    let mut random = Random::new(7);
    for round in 0..60 {
        let way = WAYS[round % 3];
        let at = if round < 9 { round * head / 9 } else { random.below(answer.len() as u64) as usize };
        let (mut io, base) = scene.open(way).await;
        let get = format!("GET {base}/path/cut?{at} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        io.write_all(get.as_bytes()).await.unwrap();
        let mut received = Vec::new();
        // Both an error and an end are right; which bytes came before is what counts.
        let _ = within_time(patience(), "the end of an answer", io.read_to_end(&mut received)).await;
        if way == Way::Blind {
            assert!(answer.as_bytes()[..at].starts_with(&received), "{at}: other bytes than were sent");
            continue;
        }
        let text = String::from_utf8(received).unwrap();
        let (fields, begun) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        if at < head {
            assert!(fields.starts_with("HTTP/1.1 502 "), "{way:?} {at}: {fields}");
        } else if !fields.is_empty() {
            assert!(begun.len() < LENGTH && body.starts_with(begun), "{way:?} {at}: {} bytes", begun.len());
        }
    }
    scene.assert_nothing_is_left().await;
}

#[tokio::test]
async fn a_client_that_resets_at_any_byte_leaves_nothing_behind() {
    const LENGTH: u64 = 3 << 20;
    let scene = Scene::new(Site::default()).await;
    let mut random = Random::new(11);
    for round in 0..40 {
        let (authority, base) = (scene.plain.authority(OTHER), scene.plain.url(HOST, ""));
        let mut message = Vec::new();
        if round % 2 == 0 {
            message.extend(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n").bytes());
        }
        let target = if round % 2 == 0 { "/path/cut".to_owned() } else { format!("{base}/path/cut") };
        message.extend(post(&target, &format!("Content-Length: {LENGTH}\r\n")).bytes());
        let mut content = Content::default();
        while message.len() < LENGTH as usize {
            message.extend_from_slice(content.more());
        }
        message.truncate(LENGTH as usize);
        let at = if round < 10 { round * 20 } else { random.below(LENGTH) as usize };
        let mut client = TcpStream::connect(scene.gateway.proxy()).await.unwrap();
        // The gateway may answer and close while bytes are still being sent.
        let _ = within_time(patience(), "bytes to be taken", client.write_all(&message[..at])).await;
        client.set_zero_linger().unwrap();
        drop(client);
    }
    scene.assert_nothing_is_left().await;
    let whole = scene.plain.requests().into_iter().filter(|request| request.complete).count();
    assert_eq!(whole, 1, "only the first request of the test was sent whole");
}

#[tokio::test]
async fn a_hundred_thousand_connections_leave_nothing_behind() {
    const CONNECTIONS: u64 = 100_000;
    const AT_ONCE: u64 = 16;
    let scene = Arc::new(Scene::new(Site::default()).await);
    let tasks: Vec<_> = (0..AT_ONCE)
        .map(|seed| {
            let scene = Arc::clone(&scene);
            tokio::spawn(async move {
                let mut random = Random::new(seed);
                for _ in 0..CONNECTIONS / AT_ONCE {
                    one_connection(&scene, &mut random).await;
                }
            })
        })
        .collect();
    for task in tasks {
        within_time(patience(), "the connections", task).await.unwrap();
    }
    scene.assert_nothing_is_left().await;
    let descriptors = scene.gateway.descriptors();
    let pipes = descriptors.iter().filter(|link| link.starts_with("pipe:")).count();
    assert!(descriptors.len() - pipes < 64, "{descriptors:#?}");
}

/// What a client says on a connection: the bytes, and whether an answer to them is waited for.
fn words(scene: &Scene, kind: u64) -> Vec<(Vec<u8>, bool)> {
    let (url, authority) = (scene.plain.url(HOST, "/path/x"), scene.plain.authority(OTHER));
    let secure = scene.tls.authority(HOST);
    let text = |text: String, answered| (text.into_bytes(), answered);
    let connect = |authority: &str| text(format!("CONNECT {authority} HTTP/1.1\r\nHost: x\r\n\r\n"), true);
    let within = || text("GET /path/y HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), true);
    let socks = |authority: &str| {
        let (host, port) = authority.rsplit_once(':').unwrap();
        (client::socks::request(1, host, port.parse().unwrap()), true)
    };
    let greeting = || (vec![5, 1, 0], true);
    match kind {
        0 => vec![text(format!("GET {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), true)],
        1 => vec![text(format!("GET {url} HTTP/1.1\r\nHost: x\r\n\r\n"), true)],
        2 => vec![connect(&authority)],
        3 => vec![connect(&authority), within()],
        4 => vec![text("GET http://denied.example.test/ HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), true)],
        5 => vec![text("nonsense\r\n\r\n".to_owned(), true)],
        6 => vec![text("GET http://half".to_owned(), false)],
        7 => vec![greeting()],
        8 => vec![greeting(), socks(&authority), within()],
        9 => vec![greeting(), socks("denied.example.test:443")],
        // An inspected tunnel: nothing in it, half a hello, clear text that is judged.
        10 => vec![connect(&secure)],
        11 => vec![connect(&secure), (certs::client_hello(HOST)[..50].to_vec(), false)],
        12 => vec![connect(&secure), within()],
        13 => vec![connect(&secure), (certs::client_hello(HOST), true)],
        14 => vec![text(format!("POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"), false)],
        _ => Vec::new(),
    }
}

/// One of the things that a client may do with a connection, and leave.
async fn one_connection(scene: &Scene, random: &mut Random) {
    let mut client = TcpStream::connect(scene.gateway.proxy()).await.unwrap();
    for (message, answered) in words(scene, random.below(16)) {
        client.write_all(&message).await.unwrap();
        if answered {
            let read = client.read(&mut [0; 4096]).await.unwrap();
            assert!(read > 0, "no answer to {:?}", String::from_utf8_lossy(&message));
        }
    }
    if random.below(2) == 0 {
        client.set_zero_linger().unwrap();
    }
}
