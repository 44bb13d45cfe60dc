//! Heads and bodies of HTTP/1.1.

use bytes::BytesMut;
use http::{HeaderMap, header};

use super::{ends, pieces};
use crate::listener::http1::chunked::{Chunked, Step};
use crate::listener::http1::head::{Framing, Head, Progress, Scan, parse};

const LIMIT: usize = 2048;

/// A head ends at the same byte in any pieces; what is read of it is what is printed and read again.
pub fn head(data: &[u8]) {
    let Some((&seed, bytes)) = data.split_first() else { return };
    let whole = Scan::default().advance(bytes, LIMIT);
    let mut scan = Scan::default();
    let mut piecewise = Ok(Progress::Partial);
    for end in ends(bytes.len(), seed) {
        piecewise = scan.advance(&bytes[..end], LIMIT);
        if piecewise != Ok(Progress::Partial) {
            break;
        }
    }
    // Which of two faults is met first may depend on the pieces.
    assert!(whole == piecewise || (whole.is_err() && piecewise.is_err()), "{whole:?} in one piece, else {piecewise:?}");
    let Ok(Progress::Complete(end)) = whole else { return };
    assert!(end <= LIMIT && bytes[..end].ends_with(b"\r\n\r\n"));
    let Ok(head) = parse(BytesMut::from(&bytes[..end])) else { return };
    assert!(head.target.bytes().all(|byte| byte > b' ' && byte != 0x7F), "{:?}", head.target);
    let count = |name| head.headers.get_all(name).iter().count();
    match (head.framing, count(header::CONTENT_LENGTH), count(header::TRANSFER_ENCODING)) {
        (Framing::None | Framing::Length(_), 1, 0) | (Framing::None, 0, 0) | (Framing::Chunked, 0, 1) => {}
        other => panic!("{other:?} has more than one framing"),
    }
    let printed = print(&head);
    assert_eq!(Scan::default().advance(&printed, usize::MAX), Ok(Progress::Complete(printed.len())));
    let again = parse(BytesMut::from(&printed[..])).expect("what is printed is read");
    assert_eq!((&again.method, &again.target, again.version), (&head.method, &head.target, head.version));
    assert_eq!((again.framing, again.keep_alive), (head.framing, head.keep_alive));
    assert_eq!(again.headers, head.headers);
}

fn print(head: &Head) -> Vec<u8> {
    let mut out = format!("{} {} {:?}\r\n", head.method, head.target, head.version).into_bytes();
    for (name, value) in &head.headers {
        out.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    out.extend(b"\r\n");
    out
}

/// How decoding ended: the trailers, a fault, or for want of bytes; and what was left behind the end.
#[derive(Debug, PartialEq)]
enum Ended {
    Trailers(Option<HeaderMap>, Vec<u8>),
    Fault,
    Short,
}

/// Decodes what comes in pieces that end at `ends`.
fn decode(bytes: &[u8], ends: impl Iterator<Item = usize>) -> (Vec<u8>, Ended) {
    let (mut decoder, mut buffer, mut content, mut from) = (Chunked::new(), BytesMut::new(), Vec::new(), 0);
    for end in ends {
        buffer.extend_from_slice(&bytes[from..end]);
        from = end;
        loop {
            match decoder.step(&mut buffer) {
                Ok(Step::Data(data)) => {
                    assert!(!data.is_empty());
                    content.extend_from_slice(&data);
                }
                Ok(Step::End(trailers)) => {
                    let rest = [&buffer[..], &bytes[from..]].concat();
                    return (content, Ended::Trailers(trailers, rest));
                }
                Ok(Step::More) => break,
                Err(_) => return (content, Ended::Fault),
            }
        }
    }
    (content, Ended::Short)
}

/// Chunks decode to the same in any pieces, and what is put into chunks comes out of them.
pub fn chunked(data: &[u8]) {
    let Some((&seed, bytes)) = data.split_first() else { return };
    let whole = decode(bytes, std::iter::once(bytes.len()));
    assert_eq!(decode(bytes, ends(bytes.len(), seed)), whole, "in pieces");
    let mut coded = Vec::new();
    let mut rest = bytes;
    for piece in pieces(seed) {
        if rest.is_empty() {
            break;
        }
        let (chunk, behind) = rest.split_at(piece.min(rest.len()));
        coded.extend(format!("{:X};x=\"y\"\r\n", chunk.len()).bytes());
        coded.extend([chunk, b"\r\n"].concat());
        rest = behind;
    }
    coded.extend(b"0\r\nX-Sum: 1\r\n\r\nnext");
    let (content, ended) = decode(&coded, ends(coded.len(), seed.wrapping_add(1)));
    assert_eq!(content, bytes);
    let Ended::Trailers(Some(trailers), behind) = ended else { panic!("{ended:?}") };
    assert_eq!((&trailers["x-sum"], behind.as_slice()), (&"1".parse().unwrap(), &b"next"[..]));
}
