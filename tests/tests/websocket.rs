//! WebSocket as real programs speak it: the table in `data/websocket.toml` and a real client, against a server that
//! keeps the standards, by itself and through every way in. What comes back has to be the same to the byte.

use exeat_tests::bulk::Random;
use exeat_tests::gateway::Gateway;
use exeat_tests::peers::{self, WebSocketServer};
use exeat_tests::prelude::*;
use exeat_tests::wire::{Io, Wire};
use exeat_tests::ws;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const CASES: &str = include_str!("../data/websocket.toml");
/// Judged by path, so that its tunnels are inspected.
const HOST: &str = "api.example.test";
/// Permitted as a whole, so that its tunnels are blind.
const OTHER: &str = "other.example.test";

/// How a client gets to the server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Direct,
    Absolute,
    BlindPlain,
    BlindTls,
    InspectedPlain,
    InspectedTls,
}

const THROUGH: [Way; 5] = [Way::Absolute, Way::BlindPlain, Way::BlindTls, Way::InspectedPlain, Way::InspectedTls];

struct World {
    ca: TestCa,
    plain: WebSocketServer,
    tls: WebSocketServer,
    gateway: Gateway,
}

impl World {
    async fn start() -> Self {
        let ca = TestCa::new();
        let leaf = ca.leaf(&[HOST, OTHER]);
        let (plain, tls) = tokio::join!(WebSocketServer::start(None), WebSocketServer::start(Some(&leaf)));
        let rules = [plain.url(HOST, "/ws/"), tls.url(HOST, "/ws/"), OTHER.to_owned()];
        let gateway = Gateway::setup().names(&[HOST, OTHER]).trust(&ca).allow(&rules);
        // Some bytes are no hello, and the tunnel is judged by its host.
        let gateway = gateway.set("intercept", "sni_check", "\"match\"").start().await;
        Self { ca, plain, tls, gateway }
    }

    /// A connection to the server, and the target that a request on it names.
    async fn open(&self, way: Way) -> (Box<dyn Io>, String) {
        let path = "/ws/echo".to_owned();
        let (gateway, plain, tls) = (&self.gateway, &self.plain, &self.tls);
        match way {
            Way::Direct => (RawConn::open(plain.addr()).await.into_io(), path),
            Way::Absolute => (gateway.open().await.into_io(), plain.url(HOST, &path)),
            Way::BlindPlain => (gateway.tunnel(&plain.authority(OTHER)).await.into_io(), path),
            Way::InspectedPlain => (gateway.tunnel(&plain.authority(HOST)).await.into_io(), path),
            Way::BlindTls => {
                let tunnel = gateway.tunnel(&tls.authority(OTHER)).await;
                (tunnel.tls(self.ca.roots(), OTHER, &[]).await.unwrap().into_io(), path)
            }
            Way::InspectedTls => (gateway.intercepted(&tls.authority(HOST)).await.into_io(), path),
        }
    }
}

/// How the bytes of a client are cut.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// All frames at once.
    Whole,
    /// In pieces, the shorter ones byte by byte.
    Crumbs,
    /// The first frames in one piece with the request: the gateway holds them back until the server has switched.
    Ahead,
}

/// The bytes of a frame.
fn frame(spec: &Value) -> Vec<u8> {
    let text = |key: &str| spec[key].as_str();
    let payload = match (text("text"), text("hex"), spec["repeat"].as_array()) {
        (Some(text), None, None) => text.as_bytes().to_vec(),
        (None, Some(hex), None) => bytes(hex),
        (None, None, Some(repeat)) => {
            let count = usize::try_from(repeat[1].as_u64().unwrap()).unwrap();
            repeat[0].as_str().unwrap().repeat(count).into_bytes()
        }
        (None, None, None) => Vec::new(),
        _ => panic!("{spec}"),
    };
    let flags = u8::from(spec["fin"].as_bool().unwrap_or(true)) << 7 | (spec["rsv"].as_u64().unwrap_or(0) as u8) << 4;
    let mask = match &spec["mask"] {
        Value::Bool(false) => None,
        Value::String(hex) => Some(bytes(hex)),
        _ => Some(vec![1, 2, 3, 4]),
    };
    let masked = if mask.is_some() { 0x80 } else { 0 };
    let mut frame = vec![flags | spec["op"].as_u64().unwrap() as u8];
    let declared = spec["declared"].as_u64().map(|length| usize::try_from(length).unwrap());
    match (declared.unwrap_or(payload.len()), spec["length"].as_u64()) {
        (length @ ..126, None) => frame.push(masked | length as u8),
        (length @ ..65_536, None | Some(2)) => {
            frame.push(masked | 126);
            frame.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        (length, _) => {
            frame.push(masked | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    let mask = mask.unwrap_or_default();
    frame.extend(&mask);
    let key = if mask.is_empty() { vec![0] } else { mask };
    frame.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// What a client says up to an echo that it waits for, and how many echoes there are then.
fn stages(case: &Value) -> Vec<(Vec<u8>, u64)> {
    let mut frames = case["send"].as_array().unwrap().clone();
    // A server that has to object closes by itself.
    if case["close"] == 1000 && case["end"].as_bool().unwrap_or(true) {
        frames.push(json!({ "op": 8, "hex": "03e8" }));
    }
    let (mut stages, mut said, mut messages) = (Vec::new(), Vec::new(), 0);
    for spec in &frames {
        said.extend(frame(spec));
        let ends = spec["op"].as_u64().unwrap() < 3 && spec["fin"].as_bool().unwrap_or(true);
        if ends && messages < count(case, "echoes") {
            messages += 1;
            stages.push((std::mem::take(&mut said), messages));
        }
    }
    stages.push((said, u64::MAX));
    stages
}

fn count(case: &Value, key: &str) -> u64 {
    case[key].as_u64().unwrap_or(0)
}

/// Says a case on a connection; gives the answer's fields about WebSocket, and everything that comes behind them.
async fn say(mut io: Box<dyn Io>, target: &str, case: &Value, cut: Cut) -> (Vec<String>, Vec<u8>) {
    let mut request = ws::handshake(target, HOST);
    if let Some(extensions) = case["extensions"].as_str() {
        request.insert_str(request.len() - 2, &format!("Sec-WebSocket-Extensions: {extensions}\r\n"));
    }
    let mut stages = stages(case);
    let ahead = if matches!(cut, Cut::Ahead) { std::mem::take(&mut stages[0].0) } else { Vec::new() };
    io.write_all(&[request.as_bytes(), &ahead].concat()).await.unwrap();
    io.flush().await.unwrap();
    let mut wire = Wire::new(io);
    let head = within("the answer to a handshake", wire.head()).await.ok().flatten().unwrap_or_default();
    if !head.start.starts_with("HTTP/1.1 101 ") {
        return (vec![head.start], Vec::new());
    }
    let mut fields: Vec<_> = head.lines.iter().map(|line| line.to_lowercase()).collect();
    fields.retain(|line| line.starts_with("sec-websocket-"));
    fields.sort();
    let (mut io, mut heard) = wire.into_parts();
    let mut random = Random::new(ahead.len() as u64);
    for (said, echoes) in stages {
        let mut rest = said.as_slice();
        while !rest.is_empty() {
            let length = match cut {
                Cut::Crumbs if said.len() < 300 => 1,
                Cut::Crumbs => 1 + random.below(said.len() as u64 / 8) as usize,
                _ => rest.len(),
            };
            let (piece, behind) = rest.split_at(length.min(rest.len()));
            // A server that has seen enough may close at any byte.
            if io.write_all(piece).await.is_err() || io.flush().await.is_err() {
                break;
            }
            rest = behind;
        }
        let hearing = async {
            // An end without TLS's own is one too.
            while echoed(&heard) < echoes && io.read_buf(&mut heard).await.unwrap_or(0) > 0 {}
        };
        within("an echo, or the server to close", hearing).await;
    }
    (fields, heard)
}

fn echoed(heard: &[u8]) -> u64 {
    frames(heard).iter().filter(|(op, _)| matches!(op, 1 | 2)).count() as u64
}

/// The frames of a server that are whole: opcode, and content.
fn frames(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut frames = Vec::new();
    while let [first, short, rest @ ..] = bytes {
        let wide = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let Some((long, rest)) = rest.split_at_checked(wide) else { break };
        let length = long.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        let length = if wide == 0 { usize::from(*short) } else { length };
        let Some((content, rest)) = rest.split_at_checked(length) else { break };
        frames.push((first & 0x0F, content));
        bytes = rest;
    }
    frames
}

#[tokio::test]
async fn every_case_comes_back_as_the_server_itself_sends_it() {
    let world = World::start().await;
    let table: Value = toml::from_str(CASES).unwrap();
    let cases = table["case"].as_array().unwrap();
    assert!(cases.len() >= 100, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let id = case["id"].as_str().unwrap();
        let (io, target) = world.open(Way::Direct).await;
        let direct = say(io, &target, case, Cut::Whole).await;
        let heard = frames(&direct.1);
        let pongs = heard.iter().filter(|(op, _)| *op == 10).count() as u64;
        let code = heard.last().filter(|(op, _)| *op == ws::CLOSE).map(|(_, content)| match content {
            [high, low, ..] => u64::from(*high) << 8 | u64::from(*low),
            _ => 0,
        });
        let found = (code, echoed(&direct.1), pongs);
        let expected = (case["close"].as_u64(), count(case, "echoes"), count(case, "pongs"));
        if found != expected {
            wrong.push(format!("{id}: the server closes, echoes and pongs {found:?}, expected {expected:?}"));
        }
        for (way, at) in THROUGH.into_iter().zip(number..) {
            let cut = match [Cut::Whole, Cut::Crumbs, Cut::Ahead][at % 3] {
                // What the gateway does not read, it cannot hold back; the server does not take it.
                Cut::Ahead if matches!(way, Way::BlindPlain | Way::BlindTls) => Cut::Crumbs,
                cut => cut,
            };
            let (io, target) = world.open(way).await;
            let through = say(io, &target, case, cut).await;
            if through != direct {
                let frames = frames(&through.1);
                wrong.push(format!("{id}: {way:?} {cut:?}: {:?} {:?}", through.0, frames.last()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn a_real_client_is_served_as_by_the_server_itself() {
    let world = World::start().await;
    let proxy = format!("http://{}", world.gateway.proxy());
    let client = async |url: String, proxy: &str| {
        let command = Cmd::new(peers::modern_python()).arg(peers::script("websocket_client.py"));
        let output = command.args([&url, proxy]).trusting(&world.gateway.bundle()).run().await.success();
        serde_json::from_str::<Value>(&output).unwrap()
    };
    let direct = client(format!("ws://{}/ws/echo", world.plain.addr()), "direct").await;
    assert_eq!(direct["close"], json!([4001, "enough"]));
    assert_eq!(direct["echoes"].as_array().unwrap().len(), 7);
    assert!(direct["extensions"].as_str().unwrap().contains("permessage-deflate"));
    for host in [HOST, OTHER] {
        for url in [world.plain.url(host, "/ws/echo"), world.tls.url(host, "/ws/echo")] {
            assert_eq!(client(url.replacen("http", "ws", 1), &proxy).await, direct, "{url}");
        }
    }
    world.gateway.await_metric("exeat_tunnels_total", &[("kind", "upgraded"), ("result", "opened")], 2.0).await;
}
