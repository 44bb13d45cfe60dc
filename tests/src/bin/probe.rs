//! A program that tries to reach what it should not, from inside of a session.
//!
//! Each argument is one try, `KIND:PLACE`; each prints a line, `KIND:PLACE reached` or `KIND:PLACE ERROR`. "Reached"
//! means that the other side exists: a connection was accepted, a file opened, a process found. What arrives at the other
//! side is for the other side to say.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};

/// How long an answer is waited for. Inside, whatever is not refused is answered by the gateway at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is sent wherever something can be sent.
const MARK: &[u8] = b"escaped\n";

fn main() {
    for argument in std::env::args().skip(1) {
        let (kind, place) = argument.split_once(':').unwrap_or((&argument, ""));
        let outcome = match attempt(kind, place) {
            Ok(said) if said.is_empty() => "reached".to_owned(),
            Ok(said) => said,
            Err(error) => format!("{:?}: {error}", error.kind()).replace('\n', " "),
        };
        let _ = writeln!(io::stdout(), "{argument} {outcome}");
    }
}

fn attempt(kind: &str, place: &str) -> io::Result<String> {
    let nothing = |()| String::new();
    match kind {
        "tcp" => tcp(place),
        "udp" => udp(place).map(nothing),
        "dns-udp" => dns_udp(place),
        "dns-tcp" => dns_tcp(place),
        "unix" => {
            // The other side may have gone again.
            let _ = UnixStream::connect(place)?.write_all(MARK);
            Ok(String::new())
        }
        "unix-datagram" => UnixDatagram::unbound()?.send_to(MARK, place).map(|_| String::new()),
        "abstract" => {
            let address = std::os::unix::net::SocketAddr::from_abstract_name(place)?;
            let _ = UnixStream::connect_addr(&address)?.write_all(MARK);
            Ok(String::new())
        }
        "socket" => socket(place).map(nothing),
        "read" => fs::read(place).map(|bytes| if bytes.is_empty() { "empty".to_owned() } else { String::new() }),
        "write" => fs::OpenOptions::new().write(true).open(place).map(|_| String::new()),
        "namespaces" => foreign_namespaces(place),
        "processes" => processes(),
        "descriptors" => descriptors(),
        "signal" => signal(place).map(nothing),
        // As a child that outlives its parent, and that child's child: what a session leaves behind is no way out.
        "orphan" => {
            let again = std::env::current_exe()?;
            let script = format!("({} {place} >/dev/null 2>&1 &) &", again.display());
            Command::new("/bin/sh").args(["-c", &script]).status().map(|_| String::new())
        }
        // Without any of the variables that point it at the gateway.
        "bare" => {
            let output = Command::new(std::env::current_exe()?).arg(place).env_clear().output()?;
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "no such try")),
    }
}

/// Connects, says something, and tells what came back.
fn tcp(place: &str) -> io::Result<String> {
    let address: SocketAddr = place.parse().map_err(io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: ")?;
    stream.write_all(place.as_bytes())?;
    stream.write_all(b"\r\nX-Mark: escaped\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.lines().next().unwrap_or("closed").to_owned())
}

fn udp(place: &str) -> io::Result<()> {
    let address: SocketAddr = place.parse().map_err(io::Error::other)?;
    let socket = udp_to(address)?;
    socket.send(MARK)?;
    // A port that is closed says so to the next call.
    socket.recv(&mut [0; 64]).map(drop)
}

fn udp_to(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect(address)?;
    Ok(socket)
}

/// A query for the address of a name; `place` is `NAME@SERVER`.
fn query(place: &str) -> io::Result<(SocketAddr, Vec<u8>)> {
    let (name, server) = place.split_once('@').ok_or_else(|| io::Error::other("NAME@SERVER"))?;
    let mut message = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).map_err(io::Error::other)?);
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    Ok((server.parse().map_err(io::Error::other)?, message))
}

/// The code of an answer, and the address in it where it ends in one.
fn told(answer: &[u8]) -> String {
    let (code, answers) = (answer.get(3).unwrap_or(&0) & 15, answer.get(7).unwrap_or(&0));
    match (answers, answer.last_chunk::<4>()) {
        (1, Some(address)) => Ipv4Addr::from(*address).to_string(),
        _ => format!("code {code}"),
    }
}

fn dns_udp(place: &str) -> io::Result<String> {
    let (server, message) = query(place)?;
    let socket = udp_to(server)?;
    socket.send(&message)?;
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer)?;
    Ok(told(&answer[..length]))
}

fn dns_tcp(place: &str) -> io::Result<String> {
    let (server, message) = query(place)?;
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes()[..], &message].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    Ok(told(&answer))
}

/// Makes a socket of a kind that leads around IP.
fn socket(kind: &str) -> io::Result<()> {
    let (family, kind, protocol) = match kind {
        "raw" => (AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)),
        "raw6" => (AddressFamily::INET6, SocketType::RAW, Some(ipproto::ICMPV6)),
        "packet" => (AddressFamily::PACKET, SocketType::RAW, None),
        "vsock" => (AddressFamily::VSOCK, SocketType::STREAM, None),
        "bluetooth" => (AddressFamily::BLUETOOTH, SocketType::RAW, None),
        "tipc" => (AddressFamily::TIPC, SocketType::STREAM, None),
        _ => return Err(io::Error::other("no such kind of socket")),
    };
    socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
    Ok(())
}

/// The network namespaces in sight that are not this one; `place` is the one outside.
fn foreign_namespaces(outside: &str) -> io::Result<String> {
    let own = fs::read_link("/proc/self/ns/net")?;
    let mut others = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        if let Ok(link) = fs::read_link(entry.path().join("ns/net"))
            && link != own
        {
            others.push(link.to_string_lossy().into_owned());
        }
    }
    let is_outside = own.to_string_lossy() == outside;
    Ok(if others.is_empty() && !is_outside { "none".to_owned() } else { format!("{own:?} {others:?}") })
}

fn numbers(folder: &str) -> io::Result<Vec<i32>> {
    let entries = fs::read_dir(folder)?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// The commands of the processes in sight.
fn processes() -> io::Result<String> {
    let names =
        numbers("/proc")?.into_iter().filter_map(|number| fs::read_to_string(format!("/proc/{number}/comm")).ok());
    let mut names: Vec<String> = names.map(|name| name.trim().to_owned()).collect();
    names.sort();
    Ok(names.join(","))
}

/// The descriptors that were handed down, beside the standard ones.
fn descriptors() -> io::Result<String> {
    let opened = |number: &i32| fs::read_link(format!("/proc/self/fd/{number}")).ok();
    let inherited = numbers("/proc/self/fd")?.into_iter().filter(|number| *number > 2);
    // The folder that is being read is closed by now.
    let left: Vec<String> = inherited.filter_map(|number| opened(&number)).map(|link| format!("{link:?}")).collect();
    Ok(if left.is_empty() { "none".to_owned() } else { left.join(",") })
}

fn signal(process: &str) -> io::Result<()> {
    let process = process.parse().ok().and_then(rustix::process::Pid::from_raw);
    let process = process.ok_or_else(|| io::Error::other("no process"))?;
    Ok(rustix::process::kill_process(process, rustix::process::Signal::TERM)?)
}
