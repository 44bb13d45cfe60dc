//! What it costs to look for credentials in answers: for a mebibyte in pieces as they come from a socket, by content and
//! by the number of credentials, beside copying it. What is measured is the time of the CPU, so that other work on the
//! machine does little to it.

#![allow(missing_docs, reason = "criterion's macros make a public function")]
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a bench that cannot go on says so")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use exeat::redact::{Masker, Redactor};
use rustix::time::{ClockId, clock_gettime};

const SIZE: usize = 1 << 20;
const PIECE: usize = 16 << 10;
const BEARER: &str = "Bearer eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhZ2VudCJ9.c2lnbmF0dXJlLW9mLWEtdG9rZW4";
const KEY: &str = "sk-live-4f9a1c7e2b8d6035";
const BASIC: &str = "Basic dXNlcjpzM2NyZXQtcGFzc3dvcmQ=";

/// The time that this thread has been on a CPU.
struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::try_from(now).expect("time does not go back")
    }

    fn end(&self, began: Duration) -> Duration {
        self.start() - began
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

fn redactor(values: &[&str]) -> Arc<Redactor> {
    let redactor = Redactor::new(values.iter().map(|value| value.as_bytes())).expect("the values are few and short");
    Arc::new(redactor.expect("the values are long enough"))
}

/// A mebibyte of `line` over and over, `number` put in.
fn content(line: impl Fn(usize) -> String) -> Bytes {
    let mut text = Vec::with_capacity(SIZE + 1024);
    for number in 0.. {
        if text.len() >= SIZE {
            break;
        }
        text.extend_from_slice(line(number).as_bytes());
    }
    text.truncate(SIZE);
    Bytes::from(text)
}

fn pass(redactor: &Arc<Redactor>, pieces: Vec<Bytes>) -> usize {
    let mut masker = Masker::new(Arc::clone(redactor));
    let last = pieces.len() - 1;
    pieces.into_iter().enumerate().map(|(at, piece)| masker.push(piece, at == last).0.len()).sum()
}

/// Pieces that nobody else holds, as those from a socket.
fn pieces(content: &Bytes) -> Vec<Bytes> {
    content.chunks(PIECE).map(Bytes::copy_from_slice).collect()
}

fn bench(criterion: &mut Criterion<CpuTime>) {
    let contents = [
        (
            "json",
            content(|n| {
                format!("{{\"id\":{n},\"name\":\"item {n}\",\"tags\":[\"blue\",\"green\"],\"price\":{}.99}},", n % 977)
            }),
        ),
        (
            "events",
            content(|n| format!("event: message\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{n},\"result\":{{}}}}\n\n")),
        ),
        ("base64", content(|n| format!("{:016x}", (n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)))),
        ("echoes", content(|n| format!("{n} you sent Authorization: {BEARER} with some other words around it\n"))),
    ];
    let mut group = criterion.benchmark_group("redact");
    group.throughput(Throughput::Bytes(SIZE as u64));
    for (name, content) in &contents {
        group.bench_function(BenchmarkId::new("copy", name), |bencher| {
            bencher.iter_batched(|| pieces(content), |pieces| black_box(pieces.concat()), BatchSize::LargeInput);
        });
        for (secrets, values) in [("1 bearer", &[BEARER][..]), ("bearer, key, basic", &[BEARER, KEY, BASIC])] {
            let redactor = redactor(values);
            group.bench_function(BenchmarkId::new(secrets, name), |bencher| {
                bencher.iter_batched(
                    || pieces(content),
                    |pieces| black_box(pass(&redactor, pieces)),
                    BatchSize::LargeInput,
                );
            });
        }
    }
    group.finish();
    criterion.bench_function("redact/build 1 bearer", |bencher| bencher.iter(|| black_box(redactor(&[BEARER]))));
}

criterion_group!(name = benches; config = Criterion::default().with_measurement(CpuTime); targets = bench);
criterion_main!(benches);
