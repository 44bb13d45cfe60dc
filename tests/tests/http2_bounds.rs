//! HTTP/2 when something ends early or does too much: resets, servers that go away, slow readers, floods and limits.

use std::sync::atomic::Ordering;

use exeat_tests::prelude::*;
use exeat_tests::wait::settled;
use http::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const HOST: &str = "api.example.test";

/// An origin that speaks HTTP/2 over TLS, and a gateway that allows `/v1/` there.
async fn scene(site: Site) -> (Origin, Gateway) {
    let ca = TestCa::new();
    let origin = Origin::h2(site, &ca.leaf(&[HOST])).await;
    let gateway = setup(&origin).trust(&ca).start().await;
    (origin, gateway)
}

fn setup(origin: &Origin) -> Setup {
    Gateway::setup().names(&[HOST]).allow(&[origin.url(HOST, "/v1/")])
}

// --- Streams that end early ---------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_stream_that_the_client_resets_is_given_up_upstream() {
    let ca = TestCa::new();
    let leaf = ca.leaf(&[HOST]);
    for secure in [true, false] {
        let (events, source) = Reply::events();
        let site = Site::default().at("/v1/hang", Reply::hang()).at("/v1/events", events);
        let origin = if secure { Origin::h2(site, &leaf).await } else { Origin::https(site, &leaf).await };
        let gateway = setup(&origin).trust(&ca).start().await;
        let mut conn = gateway.intercepted_h2(&origin.authority(HOST)).await;
        if secure {
            let mut hanging = conn.open(Request::get(origin.url(HOST, "/v1/hang")).body(()).unwrap(), true).await;
            origin.await_heads(1).await;
            hanging.reset();
            drop(hanging);
            let failures = origin.await_failures(1).await;
            assert!(failures[0].contains("no longer needed"), "the stream was cancelled: {failures:?}");
        }
        let events = conn.open(Request::get(origin.url(HOST, "/v1/events")).body(()).unwrap(), true).await;
        let mut events = events.opened().await.unwrap();
        source.send("one").await;
        assert_eq!(&events.piece().await.unwrap().unwrap()[..], b"data: one\n\n");
        drop(events);
        source.abandoned().await;
        conn.get(&origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_never_a_clean_end() {
    let ca = TestCa::new();
    let leaf = ca.leaf(&[HOST]);
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf";
    for origin in [
        Origin::h2(Site::default().at("/v1/cut", Reply::reset("half")), &leaf).await,
        Origin::https(Site::default().at("/v1/cut", Reply::verbatim(cut)), &leaf).await,
    ] {
        let gateway = setup(&origin).trust(&ca).start().await;
        let mut two = gateway.intercepted_h2(&origin.authority(HOST)).await;
        let stream = two.open(Request::get(origin.url(HOST, "/v1/cut")).body(()).unwrap(), true).await;
        // A reset overtakes what was not written yet, the head included.
        let error = match stream.opened().await {
            Ok(mut opened) => opened.rest().await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!((error.is_reset(), error.reason()), (true, Some(h2::Reason::INTERNAL_ERROR)));
        two.get(&origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
        let mut one = gateway.intercepted(&origin.authority(HOST)).await;
        one.send(format!("GET /v1/cut HTTP/1.1\r\nHost: {HOST}\r\n\r\n")).await;
        let opened = one.opened("GET").await;
        one.rest(opened).await.unwrap_err();
    }
}

#[tokio::test]
async fn an_answer_before_the_end_of_the_request_is_passed_on() {
    let (origin, gateway) = scene(Site::default().at("/v1/early", Reply::early(413))).await;
    let mut two = gateway.intercepted_h2(&origin.authority(HOST)).await;
    let mut stream = two.open(Request::post(origin.url(HOST, "/v1/early")).body(()).unwrap(), false).await;
    stream.send(b"some of it").await.unwrap();
    assert_eq!(stream.whole().await.unwrap().status, 413);
    two.get(&origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
    let mut one = gateway.intercepted(&origin.authority(HOST)).await;
    one.send(format!("POST /v1/early HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 1000\r\n\r\nsome of it")).await;
    assert_eq!(one.response_to("POST").await.status, 413);
}

#[tokio::test]
async fn a_body_shorter_than_its_length_is_not_sent_as_whole() {
    let origin = Origin::http(Site::default().at("/v1/echo", Reply::echo())).await;
    let gateway = setup(&origin).start().await;
    let mut conn = gateway.h2().await;
    let request = Request::post(origin.url(HOST, "/v1/echo")).header("content-length", "100").body(()).unwrap();
    let mut stream = conn.open(request, false).await;
    stream.send(b"short").await.unwrap();
    origin.await_heads(1).await;
    stream.finish();
    let whole = stream.whole().await;
    assert!(whole.is_err(), "{whole:?}");
    origin.await_failures(1).await;
    assert!(origin.requests().iter().all(|request| !request.complete));
}

#[tokio::test]
async fn a_refused_stream_is_sent_once_more_on_a_new_connection() {
    let (origin, gateway) = scene(Site::default().at("/v1/refused", Reply::vanish())).await;
    let mut conn = gateway.intercepted_h2(&origin.authority(HOST)).await;
    conn.get(&origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
    conn.get(&origin.url(HOST, "/v1/refused")).await.assert_refused(502, "upstream_protocol");
    let connections: Vec<usize> = origin.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [0, 0, 1]);
    // What has a body is not sent twice: it is gone.
    conn.post(&origin.url(HOST, "/v1/refused"), b"body").await.assert_refused(502, "upstream_protocol");
    assert_eq!(origin.requests().len(), 4);
}

#[tokio::test]
async fn a_connection_that_goes_away_is_replaced() {
    // Frames by hand: a server that answers one request, then says that it has not looked at the next one.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = format!("{HOST}:{}", listener.local_addr().unwrap().port());
    let server = tokio::spawn(async move {
        for round in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
            let mut preface = [0; 24];
            stream.read_exact(&mut preface).await.unwrap();
            // `:status: 204` from the static table, with END_STREAM and END_HEADERS.
            let answers =
                if round == 0 { vec![frame(1, 5, 1, &[0x89]), goaway(1)] } else { vec![frame(1, 5, 1, &[0x89])] };
            for answer in answers {
                while next_frame(&mut stream).await != Some(1) {}
                stream.write_all(&answer).await.unwrap();
            }
            if round == 1 {
                return next_frame(&mut stream).await;
            }
        }
        None
    });
    let rule = format!("http://{authority}/v1/");
    let gateway = Gateway::setup().names(&[HOST]).allow(&[rule]).start().await;
    let mut conn = gateway.tunnel(&authority).await.h2().await;
    for _ in 0..2 {
        assert_eq!(conn.get(&format!("http://{authority}/v1/x")).await.status, 204);
    }
    drop((conn, gateway));
    within("the server to end", server).await.unwrap();
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn goaway(last: u32) -> Vec<u8> {
    frame(7, 0, 0, &[&last.to_be_bytes()[..], &[0; 4]].concat())
}

/// Reads a frame and gives its type.
async fn next_frame(stream: &mut tokio::net::TcpStream) -> Option<u8> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut payload).await.ok()?;
    Some(head[3])
}

#[tokio::test]
async fn requests_at_once_share_connections_within_bounds() {
    let gate = exeat_tests::origin::Gate::default();
    let site = Site::default().at("/v1/held", Reply::text("held\n").after(&gate));
    let (origin, gateway) = scene(site).await;
    let mut conn = gateway.intercepted_h2(&origin.authority(HOST)).await;
    let mut streams = Vec::new();
    for _ in 0..40 {
        let request = Request::get(origin.url(HOST, "/v1/held")).body(()).unwrap();
        streams.push(conn.open(request, true).await);
    }
    origin.await_requests(40).await;
    // 32 on the first one; the others found it full and made their own, at most one each.
    assert!((2..=9).contains(&origin.connections()), "{}", origin.connections());
    gate.open();
    for stream in streams {
        stream.whole().await.unwrap().assert_ok("held");
    }
}

// --- Backpressure and limits --------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_slow_reader_holds_the_origin_back() {
    const LENGTH: u64 = 64 << 20;
    let ca = TestCa::new();
    let leaf = ca.leaf(&[HOST]);
    for secure in [true, false] {
        let (flood, written) = Reply::flood(LENGTH);
        let site = Site::default().at("/v1/flood", flood);
        let origin = if secure { Origin::h2(site, &leaf).await } else { Origin::https(site, &leaf).await };
        let gateway = setup(&origin).trust(&ca).start().await;
        let mut conn = gateway.intercepted_h2(&origin.authority(HOST)).await;
        let stream = conn.open(Request::get(origin.url(HOST, "/v1/flood")).body(()).unwrap(), true).await;
        let mut opened = stream.opened().await.unwrap();
        let held = settled(|| written.load(Ordering::SeqCst)).await;
        // The kernel's socket buffers are most of it where upstream speaks HTTP/1.1.
        assert!(held < if secure { 2 << 20 } else { 24 << 20 }, "{held} bytes were taken and not delivered");
        let mut other = conn.get(&origin.url(HOST, "/v1/x")).await;
        other.assert_ok("GET /v1/x");
        other.body.clear();
        let mut received = 0;
        while let Some(piece) = opened.piece().await {
            received += piece.unwrap().len() as u64;
        }
        assert_eq!(received, LENGTH);
    }
}

#[tokio::test]
async fn an_upload_that_nobody_reads_stops() {
    let (origin, gateway) = scene(Site::default().at("/v1/hang", Reply::hang())).await;
    let mut conn = gateway.intercepted_h2(&origin.authority(HOST)).await;
    let mut stream = conn.open(Request::post(origin.url(HOST, "/v1/hang")).body(()).unwrap(), false).await;
    let mut sent = 0;
    let piece = vec![b'x'; 64 * 1024];
    while sent < 64 << 20 {
        let send = stream.send(&piece);
        if tokio::time::timeout(std::time::Duration::from_millis(500), send).await.is_err() {
            break;
        }
        sent += piece.len();
    }
    assert!(sent < 2 << 20, "{sent} bytes were taken");
    conn.get(&origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
}

#[tokio::test]
async fn a_flood_of_resets_ends_its_connection_and_nothing_else() {
    let origin = Origin::http(Site::default().at("/v1/hang", Reply::hang())).await;
    let gateway = setup(&origin).start().await;
    let mut other = gateway.h2().await;
    other.get(&origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
    let authority = origin.authority(HOST);
    // Literal fields: `:method: GET`, `:scheme: http`, `:path: /v1/hang`, `:authority: …`.
    let mut block = vec![0x82, 0x86, 0x04, 8];
    block.extend_from_slice(b"/v1/hang");
    block.extend_from_slice(&[0x01, u8::try_from(authority.len()).unwrap()]);
    block.extend_from_slice(authority.as_bytes());
    let mut bytes = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat();
    for number in 0..5_000_u32 {
        bytes.extend(frame(1, 5, 2 * number + 1, &block));
        bytes.extend(frame(3, 0, 2 * number + 1, &8_u32.to_be_bytes()));
    }
    let mut attacker = gateway.open().await;
    // It may be cut off before it has said everything.
    let _ = attacker.try_send(&bytes).await;
    attacker.to_end().await;
    gateway.await_metric("exeat_requests_total", &[("entry", "forward"), ("reason", "flood")], 1.0).await;
    other.get(&origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
    drop((attacker, other));
    gateway.await_metric("exeat_connections_active", &[], 0.0).await;
}

#[tokio::test]
async fn more_streams_than_there_may_be_are_refused() {
    let origin = Origin::http(Site::default().at("/v1/hang", Reply::hang())).await;
    let gateway = setup(&origin).set("limits", "streams", "10").start().await;
    let block = {
        let authority = origin.authority(HOST);
        let mut block = vec![0x82, 0x86, 0x04, 8];
        block.extend_from_slice(b"/v1/hang");
        block.extend_from_slice(&[0x01, u8::try_from(authority.len()).unwrap()]);
        block.extend_from_slice(authority.as_bytes());
        block
    };
    let mut conn = gateway.open().await;
    conn.send([&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &[])].concat()).await;
    for number in 0..11_u32 {
        conn.send(frame(1, 5, 2 * number + 1, &block)).await;
    }
    // RST_STREAM on the last stream, REFUSED_STREAM.
    let expected = frame(3, 0, 21, &7_u32.to_be_bytes());
    let mut seen = Vec::new();
    while !seen.windows(expected.len()).any(|window| window == expected) {
        seen.extend(conn.exact(1).await);
    }
    origin.await_heads(10).await;
    assert_eq!(origin.requests().len(), 10);
    gateway.await_metric("exeat_requests_total", &[("entry", "forward"), ("reason", "stream_limit")], 1.0).await;
}

#[tokio::test]
async fn a_header_section_that_never_ends_is_cut_off() {
    let gateway = Gateway::setup().unrestricted().set("limits", "header_timeout", "\"200ms\"").start().await;
    let preface = &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..];
    let settings = frame(4, 0, 0, &[]);
    for opening in [
        preface.to_vec(),
        [preface, &settings, &frame(1, 0, 1, &[0x82])].concat(),
        [preface, &settings, &frame(1, 4, 1, &[0x82, 0x86])[..10]].concat(),
    ] {
        let mut conn = gateway.open().await;
        conn.send(opening).await;
        conn.to_end().await;
    }
    gateway.await_metric("exeat_requests_total", &[("entry", "forward"), ("reason", "head_timeout")], 3.0).await;
    // One that has said who it is may wait with its request.
    let mut waiting = gateway.open().await;
    waiting.send([preface, &settings].concat()).await;
    let mut ended = gateway.open().await;
    ended.send(preface).await;
    ended.to_end().await;
    waiting.send(frame(6, 0, 0, &[7; 8])).await;
    let mut seen = Vec::new();
    let pong = frame(6, 1, 0, &[7; 8]);
    while !seen.windows(pong.len()).any(|window| window == pong) {
        seen.extend(waiting.exact(1).await);
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let (events, source) = Reply::events();
    let origin = Origin::http(Site::default().at("/v1/events", events)).await;
    let gateway = setup(&origin).set("limits", "idle_timeout", "\"400ms\"").start().await;
    let (mut busy, mut idle) = (gateway.h2().await, gateway.h2().await);
    let stream = busy.open(Request::get(origin.url(HOST, "/v1/events")).body(()).unwrap(), true).await;
    let mut stream = stream.opened().await.unwrap();
    idle.get(&origin.url(HOST, "/v1/x")).await.assert_ok("GET /v1/x");
    within("the idle connection to end", idle.ended()).await;
    source.send("still here").await;
    assert_eq!(&stream.piece().await.unwrap().unwrap()[..], b"data: still here\n\n");
}

#[tokio::test]
async fn too_large_a_header_section_is_refused() {
    let origin = Origin::http(Site::default()).await;
    let gateway = setup(&origin).set("limits", "header_bytes", "4096").start().await;
    let mut conn = gateway.h2().await;
    let request = Request::get(origin.url(HOST, "/v1/x")).header("x-large", "x".repeat(5000)).body(()).unwrap();
    conn.send(request).await.assert_refused(431, "head_too_large");
    // Far above the limit the framing refuses by itself; that is taken down as well.
    let request = Request::get(origin.url(HOST, "/v1/x")).header("x-large", "x".repeat(12_000)).body(()).unwrap();
    assert_eq!(conn.send(request).await.status, 431);
    let labels = [("entry", "forward"), ("reason", "head_too_large")];
    gateway.await_metric("exeat_requests_total", &labels, 2.0).await;
    let mut request = Request::get(origin.url(HOST, "/v1/x"));
    for number in 0..129 {
        request = request.header("x", number);
    }
    let gateway = setup(&origin).start().await;
    gateway.h2().await.send(request.body(()).unwrap()).await.assert_refused(431, "head_too_large");
    assert!(origin.requests().is_empty());
}

#[tokio::test]
async fn a_shutdown_lets_streams_finish() {
    let gate = exeat_tests::origin::Gate::default();
    let origin = Origin::http(Site::default().at("/v1/held", Reply::text("held\n").after(&gate))).await;
    let mut gateway = setup(&origin).start().await;
    let mut conn = gateway.h2().await;
    let held = conn.open(Request::get(origin.url(HOST, "/v1/held")).body(()).unwrap(), true).await;
    origin.await_requests(1).await;
    gateway.signal(rustix::process::Signal::TERM);
    gateway.await_line("draining").await;
    gate.open();
    held.whole().await.unwrap().assert_ok("held");
    assert!(gateway.ended().await.success());
}
