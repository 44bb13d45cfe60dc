//! The first bytes of connections: a ClientHello, SOCKS5, a PROXY header.

use std::fmt::Debug;
use std::net::SocketAddr;

use super::ends;
use crate::listener::proxy_protocol;
use crate::listener::socks::wire as socks5;
use crate::tunnel::hello::{Opening, Sniffer};

/// A ClientHello is the same in any pieces, and rustls finds the same name in it.
pub fn hello(data: &[u8]) {
    let Some((&seed, bytes)) = data.split_first() else { return };
    let whole = Sniffer::default().sniff(bytes);
    let mut sniffer = Sniffer::default();
    for end in ends(bytes.len(), seed) {
        let piecewise = sniffer.sniff(&bytes[..end]);
        assert_eq!(piecewise, Sniffer::default().sniff(&bytes[..end]), "the first {end} bytes in pieces");
        if piecewise != Opening::Partial {
            assert_eq!(piecewise, whole, "more bytes change what the first {end} are");
            break;
        }
    }
    let mut acceptor = rustls::server::Acceptor::default();
    let mut rest = bytes;
    let read = acceptor.read_tls(&mut rest);
    let Ok(Some(accepted)) = read.map_err(drop).and_then(|_| acceptor.accept().map_err(drop)) else { return };
    match (accepted.client_hello().server_name(), whole) {
        // What could be read in two ways is refused here, and some of that is accepted there.
        (_, Opening::Broken) | (None, Opening::Hello(_)) => {}
        (Some(name), Opening::Hello(Some(found))) => assert!(name.eq_ignore_ascii_case(&found), "{name} and {found}"),
        (name, whole) => panic!("rustls reads a ClientHello for {name:?}, here it is {whole:?}"),
    }
}

/// A reader of a message says nothing until it is whole, and then takes no notice of what follows.
fn stepwise<T, E: Debug>(bytes: &[u8], read: impl Fn(&[u8]) -> Result<Option<(T, usize)>, E>) -> Option<(T, usize)> {
    let whole = read(bytes);
    let decided = (0..=bytes.len()).find(|&end| !matches!(read(&bytes[..end]), Ok(None)));
    match (whole, decided) {
        (Ok(None), None) => None,
        (Ok(Some((message, length))), Some(end)) => {
            assert_eq!(length, end, "a message is taken as soon as it is whole");
            Some((message, length))
        }
        (Err(_), Some(_)) => None,
        (_, decided) => panic!("decided after {decided:?} of {} bytes, and otherwise at the end", bytes.len()),
    }
}

/// The messages of a SOCKS5 client, read in pieces; a destination that is read can be written and read again.
pub fn socks(data: &[u8]) {
    let _ = stepwise(data, socks5::greeting);
    let _ = stepwise(data, socks5::credentials);
    let Some((request, length)) = stepwise(data, socks5::request) else { return };
    let Ok(authority) = request.destination else { return };
    let (host, port) = (authority.host(), authority.port());
    assert_ne!((port, request.command), (0, socks5::Command::Connect));
    let address = match host.ip() {
        Some(std::net::IpAddr::V4(ip)) => [&[1][..], &ip.octets()].concat(),
        Some(std::net::IpAddr::V6(ip)) => [&[4][..], &ip.octets()].concat(),
        None => {
            let name = host.as_str().as_bytes();
            [&[3, u8::try_from(name.len()).unwrap()][..], name].concat()
        }
    };
    assert!(!host.as_str().bytes().any(|byte| byte.is_ascii_control() || byte == b' '), "{host:?}");
    let again = [&data[..3], &address, &port.to_be_bytes()].concat();
    let read = socks5::request(&again).ok().flatten().and_then(|(request, _)| request.destination.ok());
    assert_eq!(read.as_ref(), Some(&authority), "of {length} bytes");
}

/// A PROXY header, read in pieces; what it says can be written in the other version and read again.
pub fn proxy_header(data: &[u8]) {
    let read = |bytes: &[u8]| {
        let header = proxy_protocol::read(bytes)?;
        Ok::<_, proxy_protocol::NoHeader>(header.map(|header| (header.client, header.length)))
    };
    let Some((Some(client), _)) = stepwise(data, read) else { return };
    let (ip, port) = (client.ip(), client.port());
    let family = if ip.is_ipv4() { "TCP4" } else { "TCP6" };
    let first = format!("PROXY {family} {ip} {ip} {port} {port}\r\n").into_bytes();
    let addresses = match client {
        SocketAddr::V4(client) => [client.ip().octets(), client.ip().octets()].concat(),
        SocketAddr::V6(client) => [client.ip().octets(), client.ip().octets()].concat(),
    };
    let content = [&addresses[..], &port.to_be_bytes(), &port.to_be_bytes()].concat();
    let second = [
        &b"\r\n\r\n\0\r\nQUIT\n\x21"[..],
        &[if ip.is_ipv4() { 0x11 } else { 0x21 }],
        &u16::try_from(content.len()).unwrap().to_be_bytes(),
        &content,
    ]
    .concat();
    for header in [first, second] {
        assert_eq!(read(&header), Ok(Some((Some(client), header.len()))));
    }
}
