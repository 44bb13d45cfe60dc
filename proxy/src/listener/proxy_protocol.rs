//! The PROXY protocol, versions 1 and 2: how a load balancer says for whom a connection is.
//!
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>. The header is read from sources that the config
//! trusts and from nobody else, since it says what the source likes. Extensions (TLVs) are skipped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The longest header of version 1, its line end included (section 2.1).
const MAX_V1: usize = 107;
/// The first bytes of version 2 (section 2.2).
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The most of addresses and extensions that is read. Certificates are in nobody's extensions, names are.
const MAX_V2: usize = 4096;

/// What a header says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Its length in bytes.
    pub(crate) length: usize,
    /// The client; none where the header is for the source's own connection or says nothing about TCP.
    pub(crate) client: Option<SocketAddr>,
}

/// What was wrong with the first bytes of a connection, in words for the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoHeader(pub(crate) &'static str);

/// Reads the header at the front of a connection; none while more bytes are needed.
///
/// # Errors
/// What is there is no header, or a broken one.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<Header>, NoHeader> {
    match bytes {
        [] => Ok(None),
        [b'P', ..] => v1(bytes),
        _ => v2(bytes),
    }
}

fn v1(bytes: &[u8]) -> Result<Option<Header>, NoHeader> {
    const BROKEN: NoHeader = NoHeader("the PROXY line cannot be read");
    const START: &[u8] = b"PROXY ";
    if !bytes.starts_with(START) && !START.starts_with(bytes) {
        return Err(NoHeader("the connection begins without a PROXY header"));
    }
    let Some(end) = bytes.iter().take(MAX_V1).position(|&byte| byte == b'\n') else {
        return if bytes.len() < MAX_V1 { Ok(None) } else { Err(NoHeader("the PROXY line is too long")) };
    };
    let line = bytes.get(START.len()..end).and_then(|line| line.strip_suffix(b"\r")).ok_or(BROKEN)?;
    let line = std::str::from_utf8(line).map_err(|_| BROKEN)?;
    let mut words = line.split(' ');
    let client = match words.next() {
        // Whatever follows is to be ignored.
        Some("UNKNOWN") => None,
        Some("TCP4") => Some(v1_client::<Ipv4Addr>(words).ok_or(BROKEN)?),
        Some("TCP6") => Some(v1_client::<Ipv6Addr>(words).ok_or(BROKEN)?),
        _ => return Err(BROKEN),
    };
    Ok(Some(Header { length: end + 1, client }))
}

/// The four words behind TCP4 and TCP6: source, destination, and their ports.
fn v1_client<'a, Ip: FromStr + Into<IpAddr>>(mut words: impl Iterator<Item = &'a str>) -> Option<SocketAddr> {
    let source: Ip = words.next()?.parse().ok()?;
    let _: Ip = words.next()?.parse().ok()?;
    let port = v1_port(words.next()?)?;
    v1_port(words.next()?)?;
    words.next().is_none().then(|| SocketAddr::new(source.into(), port))
}

fn v1_port(word: &str) -> Option<u16> {
    let plain = word.bytes().all(|byte| byte.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
    word.parse().ok().filter(|_| plain)
}

fn v2(bytes: &[u8]) -> Result<Option<Header>, NoHeader> {
    const BROKEN: NoHeader = NoHeader("the PROXY header of version 2 cannot be read");
    if !bytes.starts_with(SIGNATURE) && !SIGNATURE.starts_with(bytes) {
        return Err(NoHeader("the connection begins without a PROXY header"));
    }
    let Some((&[version_and_command, family, high, low], rest)) =
        bytes.get(SIGNATURE.len()..).and_then(|rest| rest.split_first_chunk())
    else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_V2 {
        return Err(NoHeader("the PROXY header is too long"));
    }
    let is_local = match version_and_command {
        0x20 => true,
        0x21 => false,
        _ => return Err(BROKEN),
    };
    let Some(content) = rest.get(..length) else { return Ok(None) };
    let client = match family {
        _ if is_local => None,
        // TCP over IPv4 and IPv6.
        0x11 => Some(v2_client::<4, Ipv4Addr>(content).ok_or(BROKEN)?),
        0x21 => Some(v2_client::<16, Ipv6Addr>(content).ok_or(BROKEN)?),
        // Unspecified, and Unix sockets of the source's machine.
        0x00 | 0x31 => None,
        _ => return Err(BROKEN),
    };
    Ok(Some(Header { length: SIGNATURE.len() + 4 + length, client }))
}

/// Source, destination, and their ports.
fn v2_client<const LENGTH: usize, Ip: From<[u8; LENGTH]> + Into<IpAddr>>(content: &[u8]) -> Option<SocketAddr> {
    let (source, rest) = content.split_first_chunk::<LENGTH>()?;
    let (_, rest) = rest.split_first_chunk::<LENGTH>()?;
    let (ports, _) = rest.split_first_chunk::<4>()?;
    let [high, low, ..] = *ports;
    Some(SocketAddr::new(Ip::from(*source).into(), u16::from_be_bytes([high, low])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2_bytes(version_and_command: u8, family: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[version_and_command, family], &length, content].concat()
    }

    /// Reads a header with bytes behind it, whole and in every shorter piece.
    fn client(header: &[u8]) -> Result<Option<SocketAddr>, NoHeader> {
        let all = [header, b"GET / HTTP/1.1\r\n"].concat();
        let found = read(&all)?.expect("a whole header");
        assert_eq!(found.length, header.len());
        for end in 0..header.len() {
            assert_eq!(read(&header[..end]), Ok(None), "{:?}", &header[..end]);
        }
        Ok(found.client)
    }

    #[test]
    fn clients_are_found_and_unknown_ones_passed_over() {
        let v4 = [&[192, 0, 2, 7][..], &[198, 51, 100, 1], &[0x12, 0x34], &[0, 80]].concat();
        let v6 = [&"2001:db8::7".parse::<Ipv6Addr>().unwrap().octets()[..], &[0; 16], &[0x12, 0x34], &[0, 80]].concat();
        let with_extensions = [&v4[..], &[3, 0, 4, 1, 2, 3, 4], &[4, 0, 0]].concat();
        for (header, expected) in [
            (b"PROXY TCP4 192.0.2.7 198.51.100.1 4660 80\r\n".to_vec(), Some("192.0.2.7:4660")),
            (b"PROXY TCP6 2001:db8::7 ::1 4660 80\r\n".to_vec(), Some("[2001:db8::7]:4660")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ffff::1 what ever 1\r\n".to_vec(), None),
            (v2_bytes(0x21, 0x11, &v4), Some("192.0.2.7:4660")),
            (v2_bytes(0x21, 0x21, &v6), Some("[2001:db8::7]:4660")),
            (v2_bytes(0x21, 0x11, &with_extensions), Some("192.0.2.7:4660")),
            (v2_bytes(0x20, 0x00, b""), None),
            (v2_bytes(0x20, 0x11, &v4), None),
            (v2_bytes(0x21, 0x00, b"whatever"), None),
            (v2_bytes(0x21, 0x31, &[0; 216]), None),
        ] {
            assert_eq!(client(&header), Ok(expected.map(|text| text.parse().unwrap())), "{header:?}");
        }
    }

    #[test]
    fn everything_else_is_refused_as_soon_as_it_can_be_told() {
        let long = format!("PROXY TCP6 {}", "1".repeat(MAX_V1));
        for bytes in [
            b"GET http://a.test/ HTTP/1.1\r\n".to_vec(),
            b"POST".to_vec(),
            b"\x05\x01\x00".to_vec(),
            b"\x16\x03\x01".to_vec(),
            b"\r\n\r\n\0\r\nQUIT\r".to_vec(),
            b"PROXY TCP4 192.0.2.7 198.51.100.1 4660 80\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 198.51.100.1 4660\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 198.51.100.1 4660 80 1\r\n".to_vec(),
            b"PROXY TCP4  192.0.2.7 198.51.100.1 4660 80\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 198.51.100.1 04660 80\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 198.51.100.1 +4660 80\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 198.51.100.1 65536 80\r\n".to_vec(),
            b"PROXY TCP4 ::1 ::1 1 2\r\n".to_vec(),
            b"PROXY TCP6 192.0.2.7 198.51.100.1 4660 80\r\n".to_vec(),
            b"PROXY UDP4 192.0.2.7 198.51.100.1 4660 80\r\n".to_vec(),
            b"PROXY \r\n".to_vec(),
            b"PROXY \xff\r\n".to_vec(),
            long.into_bytes(),
            v2_bytes(0x11, 0x11, &[0; 12]),
            v2_bytes(0x22, 0x11, &[0; 12]),
            v2_bytes(0x21, 0x12, &[0; 12]),
            v2_bytes(0x21, 0x11, &[0; 11]),
            v2_bytes(0x21, 0x21, &[0; 35]),
            [&SIGNATURE[..], &[0x21, 0x11, 0xFF, 0xFF]].concat(),
        ] {
            assert!(read(&bytes).is_err(), "{:?}", String::from_utf8_lossy(&bytes));
        }
    }
}
