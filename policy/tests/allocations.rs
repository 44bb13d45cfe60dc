//! Decisions allocate nothing, and policies little.

#![allow(unsafe_code, reason = "an allocator that counts has to implement an unsafe trait")]
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use exeat_policy::{Authority, AuthorityVerdict, DefaultVerdict, Layer, Pattern, Policy, Rule, Target, Verdict};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on unchanged to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter any more.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        let _ = BYTES.try_with(|bytes| bytes.set(bytes.get().wrapping_add(layout.size())));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let _ = BYTES.try_with(|bytes| bytes.set(bytes.get().wrapping_sub(layout.size())));
        // SAFETY: as the caller promises; the memory came from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations<T>(run: impl FnOnce() -> T) -> (usize, T) {
    let before = ALLOCATIONS.get();
    let result = run();
    (ALLOCATIONS.get() - before, result)
}

fn rules(patterns: &[&str]) -> Vec<(Pattern, Rule)> {
    let file: Arc<str> = "agent.toml".into();
    let rule = |text: &&str| {
        let rule = Rule { pattern: (*text).into(), file: file.clone(), line: 1, column: 1 };
        (Pattern::parse(text).expect("a pattern"), rule)
    };
    patterns.iter().map(rule).collect()
}

fn policy() -> Policy {
    let allowed = [
        "example.com",
        "*.example.org",
        "https://api.example.com/v1/",
        "https://git.example.com/a%2Fb/",
        "10.0.0.1",
        "64:ff9b::10.0.0.2",
    ];
    let layer =
        Layer { name: "agent".into(), allowed: rules(&allowed), blocked: rules(&["https://example.com/admin"]) };
    Policy::build(vec![layer], DefaultVerdict::Allow).expect("a small policy")
}

#[test]
fn decisions_allocate_nothing() {
    let policy = policy();
    for (url, verdict) in [
        ("https://example.com/x", Verdict::Allow),
        ("https://a.b.c.example.org/x?y", Verdict::Allow),
        ("https://api.example.com/v1/users", Verdict::Allow),
        ("https://api.example.com/v1/a%20b;c", Verdict::Allow),
        ("https://git.example.com/a%2Fb/c", Verdict::Allow),
        ("http://[::ffff:10.0.0.1]/", Verdict::Allow),
        ("http://[64:ff9b::10.0.0.2]/", Verdict::Allow),
        ("https://example.com/admin", Verdict::Deny),
        ("https://api.example.com/v1/..%2fadmin", Verdict::Deny),
        ("https://nowhere.test/", Verdict::Deny),
    ] {
        let target = Target::parse(url).expect("a URL");
        let (count, decision) = allocations(|| policy.decide(&target).verdict);
        assert_eq!((count, decision), (0, verdict), "{url}");
    }
    for (authority, verdict) in [
        ("example.com:443", AuthorityVerdict::Inspect),
        ("a.example.org:443", AuthorityVerdict::Permit),
        ("api.example.com:443", AuthorityVerdict::Inspect),
        ("nowhere.test:443", AuthorityVerdict::Deny),
        ("[::ffff:10.0.0.1]:80", AuthorityVerdict::Permit),
    ] {
        let authority = Authority::parse(authority).expect("an authority");
        let (count, decision) = allocations(|| policy.decide_authority(&authority).verdict);
        assert_eq!((count, decision), (0, verdict), "{authority}");
    }
}

#[test]
fn a_plain_url_costs_two_allocations_to_read() {
    for url in ["https://api.example.com/v1/users?page=2", "http://example.com"] {
        let (count, target) = allocations(|| Target::parse_wire(url));
        assert!(target.is_ok() && count <= 2, "{url}: {count} allocations");
    }
    let authority = Authority::parse("api.example.com:443").expect("an authority");
    let (count, target) =
        allocations(|| Target::from_parts(exeat_policy::Scheme::Https, &authority, "/v1/users?page=2"));
    assert!(target.is_ok() && count <= 1, "{count} allocations");
}

#[test]
fn a_hundred_thousand_rules_take_little_memory() {
    const MOST: usize = 15 << 20;
    let kinds: [fn(usize) -> String; 3] = [
        |n| format!("host-{n}.example-{}.com", n % 977),
        |n| format!("*.example-{n}.com"),
        |n| format!("https://api-{}.example.com/projects/{n}/", n % 977),
    ];
    for (kind, pattern) in kinds.into_iter().enumerate() {
        let before = BYTES.get();
        let texts: Vec<String> = (0..100_000).map(pattern).collect();
        let layer = Layer {
            name: "agent".into(),
            allowed: rules(&texts.iter().map(String::as_str).collect::<Vec<_>>()),
            blocked: Vec::new(),
        };
        drop(texts);
        let policy = Policy::build(vec![layer], DefaultVerdict::Allow).expect("a policy");
        let bytes = BYTES.get().wrapping_sub(before);
        assert!(bytes < MOST, "kind {kind}: {} KiB", bytes >> 10);
        assert_eq!(policy.rule_count(), 100_000);
    }
}
