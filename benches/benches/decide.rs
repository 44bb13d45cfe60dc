//! What a decision costs: with 10, 1,000 and 100,000 rules, of each kind, hit and missed, and what reading a target
//! and compiling a policy cost.
//!
//! Requests are taken in turn from a thousand that touch rules all over the policy, so that the caches hold no more of
//! it than they would in use.

#![allow(missing_docs, reason = "criterion's macros make a public function")]
#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a bench that cannot go on says so")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use exeat_policy::{Authority, DefaultVerdict, Layer, Pattern, Policy, Rule, Scheme, Target};

const SIZES: [usize; 3] = [10, 1_000, 100_000];
const REQUESTS: usize = 1_000;

/// A kind of rule, and requests that it covers or just misses.
struct Kind {
    name: &'static str,
    rule: fn(usize) -> String,
    hit: fn(usize) -> String,
    miss: fn(usize) -> String,
}

const KINDS: [Kind; 5] = [
    Kind {
        name: "domains",
        rule: |n| format!("host-{n}.example-{}.com", n % 977),
        hit: |n| format!("https://host-{n}.example-{}.com/v1/items?page=2", n % 977),
        miss: |n| format!("https://other-{n}.example-{}.com/v1/items?page=2", n % 977),
    },
    Kind {
        name: "wildcards",
        rule: |n| format!("*.example-{n}.com"),
        hit: |n| format!("https://api.eu.example-{n}.com/v1/items?page=2"),
        miss: |n| format!("https://api.eu.example-{n}.org/v1/items?page=2"),
    },
    Kind {
        name: "origins",
        rule: |n| format!("https://host-{n}.example.com/v1/"),
        hit: |n| format!("https://host-{n}.example.com/v1/items?page=2"),
        miss: |n| format!("https://host-{n}.example.com/v2/items?page=2"),
    },
    Kind {
        name: "prefixes of one host",
        rule: |n| format!("https://api.example.com/projects/{n}/items"),
        hit: |n| format!("https://api.example.com/projects/{n}/items/7?page=2"),
        miss: |n| format!("https://api.example.com/projects/{n}/secrets/7?page=2"),
    },
    Kind {
        name: "mixed",
        rule: |n| match n % 3 {
            0 => format!("host-{n}.example.com"),
            1 => format!("*.example-{n}.org"),
            _ => format!("https://api-{}.example.net/projects/{n}/", n % 97),
        },
        hit: |n| match n % 3 {
            0 => format!("https://host-{n}.example.com/v1/items"),
            1 => format!("https://api.example-{n}.org/v1/items"),
            _ => format!("https://api-{}.example.net/projects/{n}/items", n % 97),
        },
        miss: |n| format!("https://host-{n}.nowhere.test/v1/items"),
    },
];

fn rules(kind: &Kind, size: usize) -> Vec<(Pattern, Rule)> {
    let file: std::sync::Arc<str> = "agent.toml".into();
    let rule = |n: usize| {
        let text = (kind.rule)(n);
        let rule = Rule { pattern: text.as_str().into(), file: file.clone(), line: 1, column: 5 };
        (Pattern::parse(&text).expect("a pattern"), rule)
    };
    (0..size).map(rule).collect()
}

fn layers(kind: &Kind, size: usize) -> Vec<Layer> {
    let harness = Layer {
        name: "harness".into(),
        allowed: Vec::new(),
        blocked: rules(&KINDS[0], 10).into_iter().skip(9).collect(),
    };
    vec![harness, Layer { name: "agent".into(), allowed: rules(kind, size), blocked: Vec::new() }]
}

fn policy(kind: &Kind, size: usize) -> Policy {
    Policy::build(layers(kind, size), DefaultVerdict::Allow).expect("a policy")
}

/// Rules spread over the policy, in no order that a prefetcher could learn.
fn sample(size: usize) -> impl Iterator<Item = usize> {
    (0..REQUESTS).map(move |n| n.wrapping_mul(2_654_435_761) % size)
}

/// Items in turn, over and over.
struct Cycle<T> {
    items: Vec<T>,
    at: usize,
}

impl<T> Cycle<T> {
    const fn new(items: Vec<T>) -> Self {
        Self { items, at: 0 }
    }

    fn next(&mut self) -> &T {
        self.at = if self.at + 1 < self.items.len() { self.at + 1 } else { 0 };
        self.items.get(self.at).expect("at least one item")
    }
}

fn targets(url: fn(usize) -> String, size: usize) -> Vec<Target> {
    sample(size).map(|n| Target::parse_wire(&url(n)).expect("a URL")).collect()
}

fn decide(c: &mut Criterion) {
    for kind in &KINDS {
        let mut group = c.benchmark_group(format!("decide/{}", kind.name));
        for size in SIZES {
            let policy = policy(kind, size);
            for (name, url) in [("hit", kind.hit), ("miss", kind.miss)] {
                let mut targets = Cycle::new(targets(url, size));
                group.bench_function(BenchmarkId::new(name, size), |b| {
                    b.iter(|| policy.decide(black_box(targets.next())).verdict);
                });
            }
        }
        group.finish();
    }
}

fn decide_tricky_path(c: &mut Criterion) {
    let policy = policy(&KINDS[3], 100_000);
    let target = Target::parse_wire("https://api.example.com/projects/77/items/a%20b;c=d").expect("a URL");
    c.bench_function("decide/path of four readings", |b| b.iter(|| policy.decide(black_box(&target)).verdict));
}

fn decide_authority(c: &mut Criterion) {
    let kind = &KINDS[4];
    let mut group = c.benchmark_group("decide_authority/mixed");
    for size in SIZES {
        let policy = policy(kind, size);
        let authorities = targets(kind.hit, size).iter().map(|target| target.authority().clone()).collect();
        let mut authorities = Cycle::new(authorities);
        group.bench_function(BenchmarkId::from_parameter(size), |b| {
            b.iter(|| policy.decide_authority(black_box(authorities.next())).verdict);
        });
    }
    group.finish();
}

fn read(c: &mut Criterion) {
    let mut group = c.benchmark_group("read");
    let authority = Authority::parse("api.example.com:443").expect("an authority");
    for (name, path) in [
        ("plain", "/v1/projects/77/items?page=2"),
        ("escapes", "/v1/projects/a%20b/items?page=2"),
        ("parameters and escapes", "/v1/projects;a=b/a%20b/items?page=2"),
        ("hostile", "/v1/..;/%252e%252e/%5c..%5ca//b%2f..%3b/x?page=2"),
    ] {
        let url = format!("https://api.example.com{path}");
        group.bench_function(BenchmarkId::new("wire", name), |b| b.iter(|| Target::parse_wire(black_box(&url))));
        group.bench_function(BenchmarkId::new("parts", name), |b| {
            b.iter(|| Target::from_parts(Scheme::Https, &authority, black_box(path)));
        });
    }
    group.bench_function("url of a person", |b| {
        b.iter(|| Target::parse(black_box("https://api.example.com/v1/projects/77/items?page=2")));
    });
    group.bench_function("authority", |b| b.iter(|| Authority::parse(black_box("api.example.com:443"))));
    group.finish();
}

fn build(c: &mut Criterion) {
    let mut group = c.benchmark_group("build");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    for kind in &KINDS {
        let layers = layers(kind, 100_000);
        group.bench_function(BenchmarkId::from_parameter(kind.name), |b| {
            b.iter_batched(
                || layers.clone(),
                |layers| Policy::build(layers, DefaultVerdict::Allow),
                criterion::BatchSize::PerIteration,
            );
        });
    }
    group.bench_function("patterns", |b| {
        let texts: Vec<String> = (0..100_000).map(KINDS[4].rule).collect();
        b.iter(|| texts.iter().filter(|text| Pattern::parse(black_box(text)).is_ok()).count());
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(1));
    targets = decide, decide_tricky_path, decide_authority, read, build
}
criterion_main!(benches);
