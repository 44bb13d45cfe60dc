//! What the operating system is asked: where threads run, what processes cost, and for file descriptors.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};

/// The CPU that proxies run on.
pub(crate) const PROXY_CPU: usize = 0;
/// The CPU of the load generator and the origin.
pub(crate) const LOAD_CPU: usize = 1;

/// Keeps the calling thread, and what it starts from now on, on one CPU.
pub(crate) fn pin(cpu: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("cannot run on CPU {cpu}; the bench needs two CPUs"))
}

/// Allows this process and those it starts to open as many files as the hard limit says.
pub(crate) fn raise_file_limit() -> anyhow::Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).context("cannot raise the limit of open files")
}

/// A free loopback port below the range that outgoing connections take theirs from, so that it stays free.
pub(crate) fn free_port() -> anyhow::Result<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 8000).unwrap_or(0);
    for _ in 0..8000 {
        let port = 20_000 + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % 8000;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no port between 20000 and 28000 is free")
}

/// A process and all its descendants.
#[derive(Clone, Debug)]
pub(crate) struct Tree(Vec<i32>);

impl Tree {
    /// The tree below `root` as it is now.
    pub(crate) fn of(root: Pid) -> anyhow::Result<Self> {
        let parents: Vec<(i32, i32)> = fs::read_dir("/proc")?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|pid| Some((pid, stat(pid).ok()?.parent)))
            .collect();
        let mut tree = vec![root.as_raw_nonzero().get()];
        let mut at = 0;
        while let Some(&parent) = tree.get(at) {
            tree.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
            at += 1;
        }
        Ok(Self(tree))
    }

    /// The CPU time used so far, in seconds: user and system, all threads, also ended ones.
    pub(crate) fn cpu(&self) -> anyhow::Result<f64> {
        self.0.iter().map(|&pid| Ok(stat(pid)?.cpu)).sum()
    }

    /// Resident memory, in bytes.
    pub(crate) fn rss(&self) -> anyhow::Result<u64> {
        self.0.iter().map(|&pid| rss(pid)).sum()
    }
}

struct Stat {
    parent: i32,
    cpu: f64,
}

/// Reads `/proc/PID/stat`, see proc_pid_stat(5). The name in it may hold anything, so fields are counted behind it.
fn stat(pid: i32) -> anyhow::Result<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid} is gone"))?;
    let fields: Vec<&str> = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace().collect();
    let field = |at: usize| fields.get(at).copied().context("/proc/PID/stat is shorter than expected");
    let ticks = |at: usize| anyhow::Ok(field(at)?.parse::<f64>()?);
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Stat { parent: field(1)?.parse()?, cpu: (ticks(11)? + ticks(12)?) / per_second as f64 })
}

fn rss(pid: i32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid} is gone"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// The machine in one line: processor, CPUs, kernel.
pub(crate) fn machine() -> String {
    let read = |path: &str| fs::read_to_string(Path::new(path)).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(": ").map_or("unknown", |(_, value)| value).to_owned()
    };
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    format!(
        "{} at {} MHz, {cpus} CPUs, Linux {}, load average before the run {}",
        field("model name"),
        field("cpu MHz").split('.').next().unwrap_or_default(),
        kernel.trim(),
        load.split(' ').next().unwrap_or_default()
    )
}
