//! What the first bytes of a tunnel are, and the server name they ask for if they are TLS.
//!
//! Only as much of TLS is read as the check needs: the record layer (RFC 8446 section 5.1), the ClientHello (section
//! 4.1.2) over as many records and segments as it takes, and its server_name extension (RFC 6066 section 3).

/// The largest ClientHello that is waited for, record headers not counted. Today's are about 2 KiB.
const MAX_HELLO: usize = 32 * 1024;

/// What the bytes seen so far are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// The beginning of a TLS handshake; more bytes are needed.
    Partial,
    /// A whole ClientHello and the server name in it.
    Hello(Option<String>),
    /// A TLS handshake record whose content is not a readable ClientHello.
    Broken,
    /// Something else.
    Other,
}

/// Looks at the first bytes of a stream.
pub(crate) fn sniff(bytes: &[u8]) -> Opening {
    match bytes {
        [] | [0x16] => return Opening::Partial,
        [0x16, 0x03, ..] => {}
        _ => return Opening::Other,
    }
    match client_hello(bytes) {
        Ok(Some(server_name)) => Opening::Hello(server_name),
        Ok(None) => Opening::Partial,
        Err(Broken) => Opening::Broken,
    }
}

struct Broken;

/// Joins the handshake records at the front of `bytes` and reads the ClientHello once it is whole.
fn client_hello(bytes: &[u8]) -> Result<Option<Option<String>>, Broken> {
    let mut joined = Vec::new();
    let mut rest = bytes;
    loop {
        if let Some(&kind) = joined.first() {
            if kind != 1 {
                return Err(Broken);
            }
            if let Some([high, middle, low]) = joined.get(1..4) {
                let length = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
                if length > MAX_HELLO {
                    return Err(Broken);
                }
                if let Some(body) = joined.get(4..4 + length) {
                    return server_name(Cursor(body)).map(Some);
                }
            }
        }
        let (&[kind, major, _, high, low], payload) = match rest.split_first_chunk::<5>() {
            Some(split) => split,
            None => return Ok(None),
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if kind != 0x16 || major != 0x03 || length == 0 || length > 16 * 1024 {
            return Err(Broken);
        }
        let Some((payload, next)) = payload.split_at_checked(length) else {
            joined.extend_from_slice(payload);
            return if joined.first().is_some_and(|&kind| kind != 1) { Err(Broken) } else { Ok(None) };
        };
        joined.extend_from_slice(payload);
        rest = next;
    }
}

/// Reads through a ClientHello's body to its server name.
fn server_name(mut hello: Cursor<'_>) -> Result<Option<String>, Broken> {
    hello.take(2 + 32)?;
    hello.vector8()?;
    hello.vector16()?;
    hello.vector8()?;
    if hello.0.is_empty() {
        return Ok(None);
    }
    let mut extensions = hello.vector16()?;
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number16()?;
        let mut extension = extensions.vector16()?;
        if kind != 0 {
            continue;
        }
        let mut list = extension.vector16()?;
        let kind = list.take(1)?;
        let name = list.vector16()?;
        // One extension with one host name; anything else could be read in two ways.
        if found.is_some() || kind != [0] || !list.0.is_empty() || !extension.0.is_empty() || name.0.is_empty() {
            return Err(Broken);
        }
        found = Some(std::str::from_utf8(name.0).map_err(|_| Broken)?.to_owned());
    }
    Ok(found)
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Broken> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Broken)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number16(&mut self) -> Result<usize, Broken> {
        match self.take(2)? {
            [high, low] => Ok(usize::from(*high) << 8 | usize::from(*low)),
            _ => Err(Broken),
        }
    }

    fn vector8(&mut self) -> Result<Cursor<'a>, Broken> {
        let length = self.take(1)?.first().copied().map_or(0, usize::from);
        self.take(length).map(Cursor)
    }

    fn vector16(&mut self) -> Result<Cursor<'a>, Broken> {
        let length = self.number16()?;
        self.take(length).map(Cursor)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A real ClientHello, as rustls sends it to `name`.
    fn hello(name: &str) -> Vec<u8> {
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let name = rustls_pki_types::ServerName::try_from(name.to_owned()).unwrap();
        let mut connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        connection.write_tls(&mut bytes).unwrap();
        bytes
    }

    /// The same handshake message in records of `size` bytes.
    fn split_records(bytes: &[u8], size: usize) -> Vec<u8> {
        bytes[5..]
            .chunks(size)
            .flat_map(|piece| {
                let length = u16::try_from(piece.len()).unwrap().to_be_bytes();
                [&[0x16, 3, 1], length.as_slice(), piece].concat()
            })
            .collect()
    }

    #[test]
    fn a_hello_is_found_in_any_segmentation() {
        let bytes = hello("api.example.test");
        for end in 0..bytes.len() {
            assert_eq!(sniff(&bytes[..end]), Opening::Partial, "{end}");
        }
        let whole = Opening::Hello(Some("api.example.test".to_owned()));
        assert_eq!(sniff(&bytes), whole);
        assert_eq!(sniff(&[bytes.as_slice(), b"more"].concat()), whole);
        for size in [1, 3, 100] {
            let split = split_records(&bytes, size);
            assert_eq!(sniff(&split), whole, "records of {size}");
            assert_eq!(sniff(&split[..split.len() - 1]), Opening::Partial);
        }
    }

    #[test]
    fn an_address_has_no_server_name() {
        assert_eq!(sniff(&hello("127.0.0.1")), Opening::Hello(None));
    }

    #[test]
    fn other_bytes_are_told_apart() {
        assert_eq!(sniff(b""), Opening::Partial);
        assert_eq!(sniff(b"\x16"), Opening::Partial);
        for other in [b"SSH-2.0-x\r\n".as_slice(), b"GET / HTTP/1.1\r\n", b"\x80\x2e\x01\x03\x01", b"\x16\x02\x00"] {
            assert_eq!(sniff(other), Opening::Other);
        }
        for broken in [
            b"\x16\x03\x01\x00\x00".as_slice(),
            b"\x16\x03\x01\xff\xff\x01",
            b"\x16\x03\x01\x00\x05hello",
            b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
            b"\x16\x03\x01\x00\x04\x01\xff\xff\xff",
            b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03",
            b"\x16\x03\x01\x00\x01\x01\x17\x03\x03\x00\x01\x00",
        ] {
            assert_eq!(sniff(broken), Opening::Broken, "{broken:x?}");
        }
    }

    #[test]
    fn a_repeated_server_name_is_broken() {
        let mut bytes = hello("a.test");
        let name = [0, 0, 0, 11, 0, 9, 0, 0, 6, b'a', b'.', b't', b'e', b's', b't'];
        let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
        assert_eq!(sniff(&bytes), Opening::Hello(Some("a.test".to_owned())));
        bytes[at + 3..at + 6].copy_from_slice(&[11, 0, 8]);
        assert_eq!(sniff(&bytes), Opening::Broken);
    }
}
