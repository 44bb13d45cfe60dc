//! What it costs to take a request down: its decision and its end, kept nowhere, in a file, and in a file and the log.

#![allow(missing_docs, reason = "criterion's macros make a public function")]
#![allow(clippy::expect_used, reason = "a bench that cannot go on says so")]

use std::fs::{File, OpenOptions};
use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use exeat::fuzzing::Decisions;

/// The files grow by a kilobyte a turn; they are emptied between the benches.
fn emptied(path: &Path) -> File {
    OpenOptions::new().create(true).write(true).truncate(true).open(path).expect("a file")
}

fn bench(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a folder");
    let log = dir.path().join("log");
    drop(emptied(&log));
    Decisions::start_log(OpenOptions::new().append(true).open(&log).expect("the log"));
    let mut group = criterion.benchmark_group("events");
    for (name, keeps, logs) in [
        ("decision, kept nowhere", false, false),
        ("decision and end in a file", true, false),
        ("decision in the log", false, true),
        ("decision and end in a file, decision in the log", true, true),
    ] {
        let path = dir.path().join("events");
        let decisions = Decisions::new(keeps.then_some(path.as_path()), logs);
        group.bench_function(name, |bencher| bencher.iter(|| decisions.one()));
        drop(decisions);
        drop((emptied(&path), emptied(&log)));
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
