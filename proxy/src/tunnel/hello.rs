//! What the first bytes of a tunnel are, and the server name they ask for if they are TLS.
//!
//! Only as much of TLS is read as the check needs: the record layer (RFC 8446 section 5.1), the ClientHello (section
//! 4.1.2) over as many records and segments as it takes, and its server_name extension (RFC 6066 section 3).

/// The largest ClientHello that is waited for, record headers not counted. Today's are about 2 KiB, and what does not
/// fit into one record is nobody's.
const MAX_HELLO: usize = 16 * 1024;
/// How much is waited for with the headers: records may be as small as one byte.
const MAX_STREAM: usize = 2 * MAX_HELLO;
/// How long a record header is.
const HEADER: usize = 5;
/// The kind of a handshake message and its length in three bytes.
const MESSAGE_HEAD: usize = 4;

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

/// Looks at the first bytes of a stream as they come.
///
/// It remembers how far it has got, so that a ClientHello in a thousand segments costs as much as one in a single one.
#[derive(Debug, Default)]
pub(crate) struct Sniffer {
    /// Where the header of the record stands that is not whole yet.
    at: usize,
    /// How many bytes the records before it hold.
    joined: usize,
    /// The head of the handshake message, as far as it is known.
    head: [u8; MESSAGE_HEAD],
    known: usize,
}

/// Looks at the first bytes of a stream that are all there at once.
#[cfg(test)]
pub(crate) fn sniff(bytes: &[u8]) -> Opening {
    Sniffer::default().sniff(bytes)
}

struct Broken;

impl Sniffer {
    /// Looks at all bytes there are: those of the last time, and what has come since.
    pub(crate) fn sniff(&mut self, bytes: &[u8]) -> Opening {
        match bytes {
            [] | [0x16] => return Opening::Partial,
            [0x16, 0x03, ..] => {}
            _ => return Opening::Other,
        }
        match self.client_hello(bytes) {
            Ok(Some(server_name)) => Opening::Hello(server_name),
            Ok(None) if bytes.len() < MAX_STREAM => Opening::Partial,
            Ok(None) | Err(Broken) => Opening::Broken,
        }
    }

    /// Goes through the records that are whole, and reads the ClientHello once it is.
    fn client_hello(&mut self, bytes: &[u8]) -> Result<Option<Option<String>>, Broken> {
        loop {
            let rest = bytes.get(self.at..).unwrap_or_default();
            let Some((length, payload)) = record(rest)? else { return Ok(None) };
            if let Some(needed) = self.message_length(payload)?
                && self.joined + payload.len() >= needed
            {
                return server_name(Cursor(join(bytes, needed).get(MESSAGE_HEAD..).ok_or(Broken)?)).map(Some);
            }
            if payload.len() < length {
                return Ok(None);
            }
            self.joined += length;
            self.at += HEADER + length;
        }
    }

    /// How long the message is with its head, once that is known. `payload` is what there is of the current record.
    fn message_length(&mut self, payload: &[u8]) -> Result<Option<usize>, Broken> {
        // What is known reaches into this record, or the head is whole.
        let seen = self.known.saturating_sub(self.joined);
        for (to, from) in self.head.iter_mut().skip(self.known).zip(payload.iter().skip(seen)) {
            *to = *from;
        }
        self.known = MESSAGE_HEAD.min(self.joined + payload.len());
        let [kind, length @ ..] = self.head;
        if self.known > 0 && kind != 1 {
            return Err(Broken);
        }
        if self.known < MESSAGE_HEAD {
            return Ok(None);
        }
        let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        if length > MAX_HELLO { Err(Broken) } else { Ok(Some(MESSAGE_HEAD + length)) }
    }
}

/// The length of the record at the front of `bytes` and what there is of its payload; none before its header is whole.
fn record(bytes: &[u8]) -> Result<Option<(usize, &[u8])>, Broken> {
    let Some((&[kind, major, _, high, low], rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if kind != 0x16 || major != 0x03 || length == 0 || length > 16 * 1024 {
        return Err(Broken);
    }
    Ok(Some((length, rest.get(..length).unwrap_or(rest))))
}

/// The first `length` bytes of what the records at the front of `bytes` hold.
fn join(mut bytes: &[u8], length: usize) -> Vec<u8> {
    let mut joined = Vec::with_capacity(length);
    while joined.len() < length
        && let Ok(Some((whole, payload))) = record(bytes)
    {
        joined.extend_from_slice(payload);
        bytes = bytes.get(HEADER + whole..).unwrap_or_default();
    }
    joined.truncate(length);
    joined
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
    fn a_hello_is_found_as_its_bytes_come_one_by_one() {
        for size in [1, 2, 5, 100, 16 * 1024] {
            let bytes = split_records(&hello("api.example.test"), size);
            let mut sniffer = Sniffer::default();
            for end in 0..bytes.len() {
                assert_eq!(sniffer.sniff(&bytes[..end]), Opening::Partial, "{end} of records of {size}");
            }
            let whole = sniffer.sniff(&bytes);
            assert_eq!(whole, Opening::Hello(Some("api.example.test".to_owned())), "records of {size}");
        }
    }

    /// A ClientHello of `length` bytes in records of `size`: a real one, with padding (RFC 7685) behind it.
    fn padded(length: usize, size: usize) -> Vec<u8> {
        let mut bytes = hello("api.example.test");
        let extensions = length - (bytes.len() - 9) - 4;
        // The extensions of a hello that rustls makes stand at its end.
        let mut cursor = Cursor(&bytes[9..]);
        let fixed = [cursor.take(34), cursor.vector8().map(|c| c.0), cursor.vector16().map(|c| c.0)];
        assert!(fixed.iter().all(Result::is_ok) && cursor.vector8().is_ok());
        let at = bytes.len() - cursor.0.len();
        let all = u16::from_be_bytes([bytes[at], bytes[at + 1]]) + u16::try_from(extensions + 4).unwrap();
        bytes[at..at + 2].copy_from_slice(&all.to_be_bytes());
        bytes.extend([0, 21]);
        bytes.extend(u16::try_from(extensions).unwrap().to_be_bytes());
        bytes.resize(9 + length, 0);
        bytes[6..9].copy_from_slice(&u32::try_from(length).unwrap().to_be_bytes()[1..]);
        split_records(&bytes, size)
    }

    #[test]
    fn only_so_much_is_waited_for() {
        let whole = Opening::Hello(Some("api.example.test".to_owned()));
        assert_eq!(sniff(&padded(MAX_HELLO, 16 * 1024)), whole);
        assert_eq!(sniff(&padded(MAX_HELLO, 100)), whole);
        // A length that is too large is refused as soon as it is known.
        assert_eq!(sniff(&padded(MAX_HELLO + 1, 16 * 1024)[..HEADER + MESSAGE_HEAD - 1]), Opening::Partial);
        assert_eq!(sniff(&padded(MAX_HELLO + 1, 16 * 1024)[..HEADER + MESSAGE_HEAD]), Opening::Broken);
        let crumbs = padded(MAX_HELLO, 1);
        assert_eq!(sniff(&crumbs[..MAX_STREAM - 1]), Opening::Partial);
        assert_eq!(sniff(&crumbs[..MAX_STREAM]), Opening::Broken);
    }

    #[test]
    fn every_record_is_gone_through_once() {
        let bytes = padded(5_000, 1);
        let mut sniffer = Sniffer::default();
        let mut at = 0;
        for end in 0..bytes.len() {
            assert_eq!(sniffer.sniff(&bytes[..end]), Opening::Partial);
            assert!(sniffer.at >= at && end - sniffer.at < HEADER + 1, "{} of {end}", sniffer.at);
            at = sniffer.at;
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
