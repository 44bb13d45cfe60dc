//! Ways around the gateway, tried from inside of a session; sinks outside must see none of them.

use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net as unix;

use exeat_tests::prelude::*;
use exeat_tests::relay::Task;
use exeat_tests::session::{Ended, Session, is_root};
use exeat_tests::wait::Journal;
use tempfile::TempDir;
use tokio::net::{TcpListener, UdpSocket, UnixDatagram, UnixListener};

/// Everything that could be reached outside, and whether something was.
struct Sinks {
    port: u16,
    udp_port: u16,
    path: String,
    datagram: String,
    name: String,
    arrived: Journal<String>,
    _folder: TempDir,
    _tasks: Vec<Task>,
}

impl Sinks {
    async fn start() -> Self {
        let (arrived, folder) = (Journal::default(), TempDir::new().unwrap());
        // Open to everybody, so that nothing but the session is in the way.
        let open = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        open(folder.path(), 0o755);
        let listener = match TcpListener::bind("[::]:0").await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind("0.0.0.0:0").await.unwrap(),
        };
        let udp = UdpSocket::bind("0.0.0.0:0").await.unwrap();
        let (path, datagram) = (folder.path().join("stream"), folder.path().join("datagram"));
        let (stream, datagrams) = (UnixListener::bind(&path).unwrap(), UnixDatagram::bind(&datagram).unwrap());
        open(&path, 0o777);
        open(&datagram, 0o777);
        let name = format!("exeat-test-{}", path.display());
        let address = unix::SocketAddr::from_abstract_name(&name).unwrap();
        let abstracted = unix::UnixListener::bind_addr(&address).unwrap();
        abstracted.set_nonblocking(true).unwrap();
        let abstracted = UnixListener::from_std(abstracted).unwrap();
        let (port, udp_port) = (listener.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
        let note = |arrived: &Journal<String>| {
            let arrived = arrived.clone();
            move |what: &str| {
                arrived.push(what.to_owned());
            }
        };
        let (a, b, c, d, e) = (note(&arrived), note(&arrived), note(&arrived), note(&arrived), note(&arrived));
        let tasks = vec![
            Task::spawn(async move {
                while listener.accept().await.is_ok() {
                    a("tcp");
                }
            }),
            Task::spawn(async move {
                while udp.recv(&mut [0; 64]).await.is_ok() {
                    b("udp");
                }
            }),
            Task::spawn(async move {
                while stream.accept().await.is_ok() {
                    c("unix");
                }
            }),
            Task::spawn(async move {
                while datagrams.recv(&mut [0; 64]).await.is_ok() {
                    d("unix-datagram");
                }
            }),
            Task::spawn(async move {
                while abstracted.accept().await.is_ok() {
                    e("abstract");
                }
            }),
        ];
        let text = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
        Self {
            port,
            udp_port,
            path: text(path),
            datagram: text(datagram),
            name,
            arrived,
            _folder: folder,
            _tasks: tasks,
        }
    }

    /// Every sink as a try of the probe.
    fn tries(&self) -> Vec<String> {
        let Self { port, udp_port, path, datagram, name, .. } = self;
        let mut tries = vec![
            format!("unix:{path}"),
            format!("unix-datagram:{datagram}"),
            format!("abstract:{name}"),
            format!("tcp:127.0.0.1:{port}"),
            format!("orphan:tcp:127.0.0.1:{port}"),
            format!("bare:tcp:127.0.0.1:{port}"),
        ];
        tries.extend(own_address().map(|address| format!("tcp:{address}:{port}")));
        tries.extend(own_address().map(|address| format!("bare:tcp:{address}:{port}")));
        tries.push(format!("udp:127.0.0.1:{udp_port}"));
        tries
    }
}

/// This machine's address in its network, if it has one; finding it out sends nothing.
fn own_address() -> Option<std::net::Ipv4Addr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    match socket.local_addr().ok()? {
        SocketAddr::V4(address) if !address.ip().is_loopback() => Some(*address.ip()),
        _ => None,
    }
}

/// A session that permits one host, and catches `ports` beside those of the default.
fn session(ports: &[u16], rootless: bool) -> Session {
    let ports = [&[22, 80, 443], ports].concat();
    let setup = Gateway::setup().allow(&["api.example.test"]).set("sessions", "catch", &format!("{ports:?}"));
    let setup = setup.bind_file("DOCS_AUTHORIZATION", "Bearer s3cret");
    let session = Session::new(setup).isolate("require");
    if rootless { session.rootless() } else { session }
}

/// Makes the tries and gives what became of each.
async fn attempt(session: Session, tries: &[String]) -> (Vec<String>, Ended) {
    let probe = session.probe();
    let line: Vec<&str> = std::iter::once(probe.to_str().unwrap()).chain(tries.iter().map(String::as_str)).collect();
    let ended = session.run(&line).await;
    let said = ended.output.clone().success();
    let outcomes = tries.iter().map(|attempt| {
        let line = said.lines().find_map(|line| line.strip_prefix(&format!("{attempt} ")));
        line.unwrap_or_else(|| panic!("nothing about {attempt} in {said}")).to_owned()
    });
    (outcomes.collect(), ended)
}

fn strings(tries: &[&str]) -> Vec<String> {
    tries.iter().map(|attempt| (*attempt).to_owned()).collect()
}

#[tokio::test]
async fn the_sinks_see_whoever_is_not_confined() {
    let sinks = Sinks::start().await;
    let session = Session::new(Gateway::setup().unrestricted()).isolate("off");
    let tries = vec![
        format!("unix:{}", sinks.path),
        format!("unix-datagram:{}", sinks.datagram),
        format!("abstract:{}", sinks.name),
    ];
    let (outcomes, _) = attempt(session, &tries).await;
    assert!(outcomes.iter().all(|outcome| outcome == "reached"), "{outcomes:?}");
    sinks.arrived.when("three arrivals", |all| all.len() == 3).await;
    std::net::TcpStream::connect(("127.0.0.1", sinks.port)).unwrap();
    sinks.arrived.when("a fourth one", |all| all.len() == 4).await;
}

#[tokio::test]
async fn nothing_outside_is_reached_from_inside() {
    let sinks = Sinks::start().await;
    for rootless in [false, true] {
        for caught in [&[][..], &[sinks.port]] {
            let (outcomes, _) = attempt(session(caught, rootless), &sinks.tries()).await;
            for (attempt, outcome) in sinks.tries().iter().zip(&outcomes) {
                let left_behind = attempt.starts_with("orphan:");
                assert!(left_behind || !outcome.ends_with("reached"), "{attempt} {outcome}");
            }
        }
    }
    // What is on its way to a sink has arrived when a later connection has.
    std::net::TcpStream::connect(("127.0.0.1", sinks.port)).unwrap();
    sinks.arrived.when("the test's own connection", |all| !all.is_empty()).await;
    assert_eq!(sinks.arrived.all(), ["tcp"]);
}

#[tokio::test]
async fn address_literals_are_judged_as_themselves_and_taken_down() {
    let tries = strings(&[
        "tcp:93.184.216.34:80",
        "tcp:93.184.216.34:443",
        "tcp:93.184.216.34:22",
        "tcp:[2606:4700::1111]:443",
        "tcp:169.254.169.254:80",
        "bare:tcp:1.1.1.1:443",
        "tcp:93.184.216.34:8080",
        "tcp:198.18.77.77:443",
        "udp:8.8.8.8:443",
        "udp:192.0.2.1:9999",
    ]);
    for rootless in [false, true] {
        let (outcomes, ended) = attempt(session(&[], rootless), &tries).await;
        assert!(outcomes[0].starts_with("HTTP/1.1 403"), "{outcomes:?}");
        assert!(outcomes[4].starts_with("HTTP/1.1 403"), "{outcomes:?}");
        for refused in &outcomes[6..] {
            let ends = ["ConnectionRe", "BrokenPipe", "closed"];
            assert!(ends.iter().any(|end| refused.starts_with(end)), "{outcomes:?}");
        }
        for (target, reason) in [
            ("http://93.184.216.34/", "not_allowed"),
            ("93.184.216.34:443", "not_allowed"),
            ("93.184.216.34:22", "not_allowed"),
            ("[2606:4700::1111]:443", "not_allowed"),
            ("http://169.254.169.254/", "not_allowed"),
            ("1.1.1.1:443", "not_allowed"),
            ("198.18.77.77:443", "malformed"),
        ] {
            ended.assert_decided(&format!("caught deny {reason} {target}"));
        }
    }
}

#[tokio::test]
async fn names_are_told_by_the_session_alone_whoever_is_asked() {
    let dns = Dns::start().await;
    let setup = Gateway::setup().allow(&["api.example.test"]).set("dns", "servers", &format!("[\"{}\"]", dns.addr()));
    let session = Session::new(setup).isolate("require");
    let tries = strings(&[
        "dns-udp:api.example.test@8.8.8.8:53",
        "dns-tcp:api.example.test@1.1.1.1:53",
        "dns-udp:api.example.test@127.0.0.53:53",
        "dns-udp:c3RvbGVu.exfil.test@8.8.8.8:53",
        "dns-tcp:c3RvbGVu.exfil.test@[2606:4700::1111]:53",
        "dns-udp:localhost@9.9.9.9:53",
        "dns-tcp:c3RvbGVu.exfil.test@8.8.8.8:853",
    ]);
    let (outcomes, ended) = attempt(session, &tries).await;
    assert_eq!(outcomes[..3], ["198.18.1.0", "198.18.1.0", "198.18.1.0"]);
    assert_eq!(outcomes[3..6], ["code 3", "code 3", "127.0.0.1"]);
    assert!(outcomes[6].starts_with("ConnectionRefused"), "{outcomes:?}");
    ended.assert_decided("dns deny not_allowed c3rvbgvu.exfil.test");
    assert!(dns.queries().is_empty(), "no query leaves a session: {:?}", dns.queries());
}

#[tokio::test]
async fn a_name_server_of_the_system_over_ipv6_is_answered_for() {
    if !is_root() {
        return;
    }
    let session = session(&[], false);
    let (probe, dir) = (session.probe(), session.dir().to_owned());
    let manifest = "name = \"a\"\n[network_access]\nallowed = [\"api.example.test\"]\n";
    std::fs::write(dir.join("agent.toml"), manifest).unwrap();
    std::fs::write(dir.join("resolv.conf"), "nameserver 2001:db8::53\n").unwrap();
    let script = format!(
        "mount --bind resolv.conf \"$(readlink -f /etc/resolv.conf)\" && {} run --isolate require -q --state-dir state \
         -m agent.toml -- {} dns-udp:api.example.test@[2001:db8::53]:53",
        exeat_tests::gateway::binary().display(),
        probe.display()
    );
    let said = Cmd::new("unshare").args(["-m", "sh", "-c", &script]).dir(&dir).run().await.success();
    assert_eq!(said, "dns-udp:api.example.test@[2001:db8::53]:53 198.18.1.0\n");
}

#[tokio::test]
async fn no_other_socket_than_those_of_ip_and_unix_can_be_made() {
    let tries = strings(&["raw", "raw6", "packet", "vsock", "bluetooth", "tipc"]);
    let tries: Vec<String> = tries.iter().map(|kind| format!("socket:{kind}")).collect();
    for rootless in [false, true] {
        let (outcomes, _) = attempt(session(&[], rootless), &tries).await;
        assert!(outcomes[..2].iter().all(|outcome| outcome.starts_with("PermissionDenied")), "{outcomes:?}");
        assert!(outcomes[2..].iter().all(|outcome| outcome.contains("not supported")), "{outcomes:?}");
    }
}

#[tokio::test]
async fn the_gateway_and_its_secrets_are_out_of_sight() {
    let outside = std::fs::read_link("/proc/self/ns/net").unwrap();
    for rootless in [false, true] {
        let session = session(&[], rootless).args(&["--ready-file", "ready.json"]);
        let probe = session.probe().display().to_string();
        let script = format!(
            "pid=$(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/' ready.json); exec {probe} signal:$pid read:/proc/$pid/environ \
             read:/proc/$pid/mem read:state/ca.key read:DOCS_AUTHORIZATION namespaces:{} processes: descriptors: \
             write:/proc/sys/kernel/core_pattern write:/proc/sysrq-trigger read:/proc/1/root/DOCS_AUTHORIZATION",
            outside.display()
        );
        let ended = session.run(&["sh", "-c", &script]).await;
        let said = ended.output.clone().success();
        let outcomes: Vec<&str> = said.lines().filter_map(|line| line.split_once(' ')).map(|(_, rest)| rest).collect();
        assert!(outcomes[0].contains("No such process"), "{said}");
        assert!(outcomes[1].starts_with("NotFound") && outcomes[2].starts_with("NotFound"), "{said}");
        assert!(outcomes[3].starts_with("NotFound"), "{said}");
        assert_eq!(outcomes[4..8], ["empty", "none", "exeat,probe", "none"], "{said}");
        assert!(outcomes[8..].iter().all(|outcome| outcome.contains(": ")), "{said}");
    }
}

#[tokio::test]
async fn further_namespaces_lead_nowhere() {
    let sinks = Sinks::start().await;
    for rootless in [false, true] {
        let session = session(&[], rootless);
        let probe = session.probe().display().to_string();
        let address = own_address().map_or_else(|| "127.0.0.1".to_owned(), |address| address.to_string());
        let script = format!(
            "unshare -Urn {probe} tcp:{address}:{port} tcp:93.184.216.34:443; \
             unshare -Urm sh -c 'umount {path}; umount state; {probe} unix:{path} read:state/ca.key' 2>/dev/null; \
             echo done",
            port = sinks.port,
            path = sinks.path,
        );
        let ended = session.run(&["sh", "-c", &script]).await;
        let said = ended.output.clone().success();
        assert!(said.ends_with("done\n") && !said.lines().any(|line| line.ends_with(" reached")), "{said}");
    }
    assert!(sinks.arrived.all().is_empty(), "{:?}", sinks.arrived.all());
}

#[tokio::test]
async fn root_inside_has_no_disks_and_no_knobs() {
    if !is_root() {
        return;
    }
    let script = "ls /dev; for file in $(find /sys -maxdepth 3 -type f -perm -u+w 2>/dev/null | head -n 50); do \
        if (: >> $file) 2>/dev/null; then echo open $file; fi; done; cat /proc/self/status | grep -E '^(CapEff|CapBnd|NoNewPrivs)'";
    let ended = session(&[], false).run(&["sh", "-c", script]).await;
    let said = ended.output.success();
    let (devices, rest) = said.split_once("zero\n").unwrap();
    assert_eq!(devices, "fd\nfull\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\n");
    assert_eq!(rest, "CapEff:\t00000000000000fb\nCapBnd:\t00000000000000fb\nNoNewPrivs:\t1\n");
}

#[tokio::test]
async fn a_socket_that_is_named_stays_in_reach() {
    let sinks = Sinks::start().await;
    let setup = Gateway::setup().unrestricted().set("sessions", "sockets", &format!("[{:?}]", sinks.path));
    let tries = vec![format!("unix:{}", sinks.path), format!("unix-datagram:{}", sinks.datagram)];
    let (outcomes, _) = attempt(Session::new(setup).isolate("require"), &tries).await;
    assert_eq!(outcomes[0], "reached");
    assert_ne!(outcomes[1], "reached");
}
