//! What questions about rules cost: comparing, linting and suggesting, by number of rules.

#![allow(missing_docs, reason = "criterion's macros make a public function")]
#![allow(clippy::expect_used, reason = "a bench that cannot go on says so")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use exeat_policy::analyse::{diff, lint, suggest};
use exeat_policy::diag::Source;
use exeat_policy::doc::Format;
use exeat_policy::{DefaultVerdict, Manifest, Policy, Target};

const SIZES: [usize; 3] = [10, 1_000, 20_000];

/// A manifest with so many rules of all kinds, those from `changed` on being others than usual.
fn manifest(size: usize, changed: usize) -> Manifest {
    let mut text = "name = \"bench\"\n[network_access]\nallowed = [\n".to_owned();
    for n in 0..size {
        let name = if n < changed { "example" } else { "changed" };
        let rule = match n % 4 {
            0 => format!("host-{n}.{name}.com"),
            1 => format!("*.{name}-{n}.org"),
            2 => format!("https://api-{}.{name}.net/projects/{n}/", n % 97),
            _ => format!("https://host-{n}.{name}.com/v1"),
        };
        writeln!(text, "  {rule:?},").expect("a string grows");
    }
    text.push_str("]\nblocked = [\"secret.example.com\"]\n");
    Manifest::read(&Source::new("agent.toml", text), Format::Toml).0.expect("a manifest that loads")
}

fn policy(manifest: &Manifest) -> Policy {
    Policy::build(vec![manifest.layer("agent")], DefaultVerdict::Allow).expect("a policy that fits")
}

fn analyses(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("analyse");
    group.sample_size(10).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(200));
    for size in SIZES {
        let (old, new) = (manifest(size, size), manifest(size, size * 9 / 10));
        let (before, after) = (policy(&old), policy(&new));
        group.bench_with_input(BenchmarkId::new("diff", size), &size, |bench, _| {
            bench.iter(|| black_box(diff::diff(&before, &after)).differences.len());
        });
        group.bench_with_input(BenchmarkId::new("lint", size), &size, |bench, _| {
            bench.iter(|| black_box(lint::lint(&[("agent", &old)], None)).expect("rules that fit").len());
        });
        let targets: Vec<Target> = (0..size)
            .map(|n| Target::parse(&format!("https://host-{n}.example.com/v1/items/{n}")).expect("a URL"))
            .collect();
        group.bench_with_input(BenchmarkId::new("suggest", size), &size, |bench, _| {
            bench.iter(|| {
                let mut seen = suggest::Observations::default();
                targets.iter().for_each(|target| seen.request(target));
                black_box(seen.suggest(suggest::Options::default(), None)).rules.len()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, analyses);
criterion_main!(benches);
