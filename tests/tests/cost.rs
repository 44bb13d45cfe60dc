//! What a request costs, counted and not timed: instructions, allocations, system calls.
//!
//! Each way through the gateway is gone a few times and many times, by one client that waits for each answer; the
//! difference is what a request costs, whatever the start took. Counts do not depend on what else the machine does. A
//! bound is what was counted when it was set, and a margin for another compiler or C library. Whoever makes a request
//! dearer for a reason sets it anew; whoever makes it cheaper sets it lower.

use std::collections::HashMap;
use std::path::Path;

use exeat_tests::prelude::*;

const HOST: &str = "api.example.test";
/// How many requests are made in the shorter and in the longer run.
const FEW: u32 = 50;
const MANY: u32 = 250;

/// A way through the gateway.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// In absolute form, forwarded in clear text.
    Forward,
    /// Inside TLS that is opened, to an origin that speaks TLS.
    Intercept,
    /// The same, with a bound credential put on and searched for in the answer.
    Inject,
    /// As a stream of HTTP/2, to an origin that speaks HTTP/1.1.
    Http2,
    /// As a tunnel of its own, which nothing goes through.
    Tunnel,
}

/// What one request costs.
#[derive(Debug)]
struct Cost {
    instructions: f64,
    allocations: f64,
}

impl Way {
    /// Goes this way `times` times, with the gateway run by `under`, and ends the gateway.
    async fn go(self, times: u32, under: &[&str]) {
        let ca = TestCa::new();
        let site = Site::default().at("/x", Reply::text(&"x".repeat(1024)));
        let origin = match self {
            Self::Forward | Self::Http2 | Self::Tunnel => Origin::http(site).await,
            Self::Intercept | Self::Inject => Origin::https(site, &ca.leaf(&[HOST])).await,
        };
        let url = origin.url(HOST, "/x");
        let rule = if matches!(self, Self::Tunnel) { HOST } else { &url };
        let setup = Gateway::setup().trust(&ca).names(&[HOST]).allow(&[rule]).under(under);
        // With an event of each decision and each end, and no line in the log.
        let setup = setup.events().set("audit", "log", "false");
        let setup = match self {
            Self::Forward | Self::Intercept | Self::Http2 | Self::Tunnel => setup,
            Self::Inject => setup.bind("TEAM", "team-secret").inject(&url, &[("X-Team", "${TEAM}")]),
        };
        let mut gateway = setup.start().await;
        let authority = origin.authority(HOST);
        match self {
            Self::Forward | Self::Intercept | Self::Inject => {
                let (mut conn, target) = match self {
                    Self::Forward => (gateway.open().await, url.as_str()),
                    _ => (gateway.intercepted(&authority).await, "/x"),
                };
                for _ in 0..times {
                    assert_eq!(conn.get(target, &authority).await.status, 200);
                }
            }
            Self::Http2 => {
                let mut conn = gateway.h2().await;
                for _ in 0..times {
                    assert_eq!(conn.get(&url).await.status, 200);
                }
            }
            Self::Tunnel => {
                for _ in 0..times {
                    let mut tunnel = gateway.tunnel(&authority).await;
                    tunnel.finish().await;
                    assert!(tunnel.to_end().await.is_empty());
                }
            }
        }
        assert!(gateway.terminate().await.success());
    }

    /// Counts instructions and allocations with callgrind.
    async fn cost(self) -> Cost {
        let dir = tempfile::tempdir().unwrap();
        let run = async |times: u32| {
            let out = dir.path().join(times.to_string());
            let file = format!("--callgrind-out-file={}", out.display());
            self.go(times, &["valgrind", "--tool=callgrind", "--quiet", &file]).await;
            Profile::read(&out)
        };
        let (few, many) = (run(FEW).await, run(MANY).await);
        let each = |few: u64, many: u64| (many - few) as f64 / f64::from(MANY - FEW);
        Cost {
            instructions: each(few.instructions, many.instructions),
            allocations: each(few.allocations, many.allocations),
        }
    }

    /// Counts the system calls that move bytes, by strace.
    async fn calls(self) -> f64 {
        let dir = tempfile::tempdir().unwrap();
        let run = async |times: u32| {
            let out = dir.path().join(times.to_string());
            let out = out.to_str().unwrap();
            self.go(times, &["strace", "-D", "-f", "-qq", "-o", out, "-e", "trace=!epoll_wait,futex"]).await;
            std::fs::read_to_string(out).unwrap().lines().filter(|line| line.contains('(')).count()
        };
        let (few, many) = (run(FEW).await, run(MANY).await);
        (many - few) as f64 / f64::from(MANY - FEW)
    }
}

/// What callgrind counted of one process.
#[derive(Debug)]
struct Profile {
    instructions: u64,
    allocations: u64,
}

impl Profile {
    /// Reads a profile: the line with the sum, and the calls of each function that allocates. A function's name stands
    /// behind its number where that is first used.
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let mut profile = Self { instructions: 0, allocations: 0 };
        let mut allocates: HashMap<&str, bool> = HashMap::new();
        let mut called = false;
        for line in text.lines() {
            if let Some(sum) = line.strip_prefix("summary: ").or_else(|| line.strip_prefix("totals: ")) {
                profile.instructions = profile.instructions.max(sum.trim().parse().unwrap());
            } else if let Some(function) = line.strip_prefix("cfn=").or_else(|| line.strip_prefix("fn=")) {
                let (number, name) = function.split_once(' ').unwrap_or((function, ""));
                if !name.is_empty() {
                    let name = name.split(['@', '\'']).next().unwrap_or_default();
                    allocates.insert(number, ["malloc", "calloc", "realloc", "posix_memalign"].contains(&name));
                }
                called = line.starts_with("cfn=") && allocates.get(number).copied().unwrap_or_default();
            } else if let Some(calls) = line.strip_prefix("calls=").filter(|_| called) {
                profile.allocations += calls.split(' ').next().unwrap().parse::<u64>().unwrap();
            }
        }
        assert!(profile.instructions > 0 && profile.allocations > 0, "{}", path.display());
        profile
    }
}

/// Holds a way to the instructions and allocations of a request.
async fn hold(way: Way, instructions: f64, allocations: f64) {
    let cost = way.cost().await;
    println!("{way:?}: {cost:?}");
    assert!(cost.instructions <= instructions, "{way:?}: {} instructions, at most {instructions}", cost.instructions);
    assert!(cost.allocations <= allocations, "{way:?}: {} allocations, at most {allocations}", cost.allocations);
    // A bound that is far away guards nothing.
    assert!(cost.instructions * 1.5 > instructions, "{way:?}: {} instructions, the bound is stale", cost.instructions);
}

#[tokio::test]
async fn a_forwarded_request_costs_so_much() {
    hold(Way::Forward, 71_000.0, 20.0).await;
}

#[tokio::test]
async fn an_intercepted_request_costs_so_much() {
    hold(Way::Intercept, 87_000.0, 24.0).await;
}

#[tokio::test]
async fn an_injected_request_costs_so_much() {
    hold(Way::Inject, 100_000.0, 31.0).await;
}

#[tokio::test]
async fn a_stream_of_http2_costs_so_much() {
    hold(Way::Http2, 106_000.0, 25.0).await;
}

#[tokio::test]
async fn a_tunnel_costs_so_much() {
    hold(Way::Tunnel, 106_000.0, 37.0).await;
}

/// One call to read the request, one to write its event and the end of the one before, one to send it on, one to read
/// the answer and one to send that; nothing is tried in vain. A tunnel needs two sockets with all that belongs to them.
#[tokio::test]
async fn a_request_takes_five_system_calls() {
    for (way, most) in
        [(Way::Forward, 5.5), (Way::Intercept, 5.5), (Way::Inject, 5.5), (Way::Http2, 5.5), (Way::Tunnel, 28.0)]
    {
        let calls = way.calls().await;
        println!("{way:?}: {calls} system calls");
        assert!(calls <= most, "{way:?}: {calls}");
    }
}
