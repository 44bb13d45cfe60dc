//! What servers do to a path, one step at a time.
//!
//! Each step returns the path it makes, or nothing where it changes nothing. They work on bytes: what is decoded need
//! not be UTF-8.

use memchr::{memchr, memchr3, memmem};

/// A step some server takes.
pub(super) type Step = fn(&[u8]) -> Option<Vec<u8>>;

/// Every step, most common first.
pub(super) const STEPS: [Step; 7] =
    [decode, drop_parameters, merge_slashes, resolve_dots, turn_backslashes, decode_laxly, cut];

/// The servers' reading in the order that most of them keep, of a path that need not be normalised: decoded until
/// nothing is left to decode, `\` turned, parameters dropped, slashes merged, dots resolved.
pub(super) fn resolve_fully(raw: &str) -> Vec<u8> {
    let mut path = decode_fully(raw.as_bytes());
    for step in [turn_backslashes, drop_parameters, merge_slashes, resolve_dots] {
        path = step(&path).unwrap_or(path);
    }
    if path.is_empty() { b"/".to_vec() } else { path }
}

/// Decodes until nothing is left to decode, in one pass: what is decoded may complete an escape with what stands
/// before it.
fn decode_fully(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for byte in path {
        out.push(*byte);
        while let Some(byte) = out.last_chunk::<3>().and_then(|last| escaped(last)) {
            out.truncate(out.len() - 3);
            out.push(byte);
        }
    }
    out
}

/// The byte that an escape at the start of `text` stands for.
pub(super) fn escaped(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else { return None };
    Some(hex(*high)? << 4 | hex(*low)?)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Decodes every `%XX` once.
pub(super) fn decode(path: &[u8]) -> Option<Vec<u8>> {
    memchr(b'%', path)?;
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, behind)) = rest.split_first() {
        match escaped(rest) {
            Some(byte) => {
                out.push(byte);
                rest = rest.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = behind;
            }
        }
    }
    (out.len() != path.len()).then_some(out)
}

/// Drops `;parameters` from every segment, as servlet containers do.
fn drop_parameters(path: &[u8]) -> Option<Vec<u8>> {
    memchr(b';', path)?;
    let mut dropping = false;
    let kept = path.iter().copied().filter(|byte| {
        match byte {
            b';' => dropping = true,
            b'/' => dropping = false,
            _ => {}
        }
        !dropping
    });
    Some(kept.collect())
}

/// Turns runs of `/` into one.
fn merge_slashes(path: &[u8]) -> Option<Vec<u8>> {
    memmem::find(path, b"//")?;
    let mut out = path.to_vec();
    out.dedup_by(|next, previous| *next == b'/' && *previous == b'/');
    Some(out)
}

/// Removes `.` and `..` segments (RFC 3986, section 5.2.4).
fn resolve_dots(path: &[u8]) -> Option<Vec<u8>> {
    memmem::find(path, b"/.")?;
    let relative = path.strip_prefix(b"/").unwrap_or(path);
    if !relative.split(|byte| *byte == b'/').any(|segment| matches!(segment, b"." | b"..")) {
        return None;
    }
    let mut out = Vec::with_capacity(path.len());
    let mut ends_in_dots = false;
    for segment in relative.split(|byte| *byte == b'/') {
        ends_in_dots = matches!(segment, b"." | b"..");
        match segment {
            b"." => {}
            b".." => out.truncate(out.iter().rposition(|byte| *byte == b'/').unwrap_or(0)),
            _ => {
                out.push(b'/');
                out.extend_from_slice(segment);
            }
        }
    }
    if ends_in_dots {
        out.push(b'/');
    }
    Some(out)
}

/// Turns `\` into `/`, as servers on Windows do with one that was escaped.
fn turn_backslashes(path: &[u8]) -> Option<Vec<u8>> {
    memchr(b'\\', path).map(|_| path.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect())
}

/// Decodes to ASCII what lax decoders do: `%uXXXX`, UTF-8 in more bytes than needed (RFC 3629, section 3, forbids
/// it), and full-width forms, which best-fit tables and compatibility normalisation fold.
fn decode_laxly(path: &[u8]) -> Option<Vec<u8>> {
    path.iter().find(|byte| matches!(byte, b'%' | 0xc0..))?;
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, behind)) = rest.split_first() {
        match lax(rest) {
            Some((byte, length)) => {
                out.push(byte);
                rest = rest.get(length..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = behind;
            }
        }
    }
    (out.len() != path.len()).then_some(out)
}

/// The ASCII character that a lax decoder finds at the start of `text`, and how many bytes it takes.
fn lax(text: &[u8]) -> Option<(u8, usize)> {
    let continued = |byte: u8| (byte & 0xc0 == 0x80).then_some(byte & 0x3f);
    match *text {
        [b'%', b'u' | b'U', a, b, c, d, ..] => {
            let code =
                [a, b, c, d].into_iter().try_fold(0u32, |code, digit| Some(code << 4 | u32::from(hex(digit)?)))?;
            Some((ascii(code)?, 6))
        }
        [lead @ (0xc0 | 0xc1), last, ..] => Some(((lead & 1) << 6 | continued(last)?, 2)),
        [0xe0, middle @ (0x80 | 0x81), last, ..] => Some(((middle & 1) << 6 | continued(last)?, 3)),
        [0xf0, 0x80, middle @ (0x80 | 0x81), last, ..] => Some(((middle & 1) << 6 | continued(last)?, 4)),
        [0xef, middle @ (0xbc | 0xbd), last, ..] => {
            Some((ascii(0xf000 | u32::from(middle & 0x3f) << 6 | u32::from(continued(last)?))?, 3))
        }
        _ => None,
    }
}

/// A code point of ASCII, or its full-width form (U+FF01 to U+FF5E), as the ASCII character.
fn ascii(code: u32) -> Option<u8> {
    match code {
        0..=0x7f => u8::try_from(code).ok(),
        0xff01..=0xff5e => u8::try_from(code - 0xfee0).ok(),
        _ => None,
    }
}

/// Ends the path where C strings end, and where the next server in a chain that decodes would see a query or a
/// fragment begin.
fn cut(path: &[u8]) -> Option<Vec<u8>> {
    let end = memchr3(0, b'?', b'#', path)?;
    path.get(..end).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(step: Step, path: &str) -> String {
        step(path.as_bytes()).map_or_else(|| "=".to_owned(), |made| String::from_utf8_lossy(&made).into_owned())
    }

    #[test]
    fn each_step_makes_what_its_servers_make() {
        let cases: [(Step, &str, &str); 33] = [
            (decode, "/a%2Fb%20c", "/a/b c"),
            (decode, "/%252e", "/%2e"),
            (decode, "/%zz%2", "="),
            (decode, "/%%32%65", "/%2e"),
            (drop_parameters, "/a;x=1/..;/b;", "/a/../b"),
            (drop_parameters, "/;x/a", "//a"),
            (drop_parameters, "/a", "="),
            (merge_slashes, "//a///b//", "/a/b/"),
            (merge_slashes, "/a/b", "="),
            (resolve_dots, "/a/./b", "/a/b"),
            (resolve_dots, "/a/../b", "/b"),
            (resolve_dots, "/../../b", "/b"),
            (resolve_dots, "/a/..", "/"),
            (resolve_dots, "/a/b/..", "/a/"),
            (resolve_dots, "/a/.", "/a/"),
            (resolve_dots, "/..", "/"),
            (resolve_dots, "/a//../b", "/a/b"),
            (resolve_dots, "/a/.../b", "="),
            (resolve_dots, "/.well-known/..a", "="),
            (turn_backslashes, "/a\\..\\b", "/a/../b"),
            (turn_backslashes, "/a", "="),
            (decode_laxly, "/%u002e%U002F%uff0e", "/./."),
            (decode_laxly, "/%u00e9%u12", "="),
            (decode_laxly, "/．．／＼；a", "/../\\;a"),
            (decode_laxly, "/～", "/~"),
            (decode_laxly, "/ü\u{ff5f}\u{ff00}", "="),
            (cut, "/a\0b", "/a"),
            (cut, "/a?b", "/a"),
            (cut, "/a#b", "/a"),
            (cut, "/a", "="),
            (resolve_dots, "", "="),
            (resolve_dots, "/", "="),
            (cut, "", "="),
        ];
        for (index, (run, path, made)) in cases.into_iter().enumerate() {
            assert_eq!(step(run, path), made, "case {index}: {path}");
        }
        let overlong: [(&[u8], &[u8]); 5] = [
            (b"/\xc0\xae\xc0\xaf", b"/./"),
            (b"/\xc1\x9c", b"/\\"),
            (b"/\xe0\x80\xae\xe0\x81\x9c", b"/.\\"),
            (b"/\xf0\x80\x80\xaf", b"//"),
            (b"/\xc0\xc0\xc0\xae", b"/\xc0\xc0."),
        ];
        for (path, made) in overlong {
            assert_eq!(decode_laxly(path).as_deref(), Some(made));
        }
    }
}
