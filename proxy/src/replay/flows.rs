//! Flow files of mitmproxy: typed netstrings (`LENGTH:PAYLOAD` and a letter for the type), one for each flow.
//!
//! A flow is a dictionary; of the request in it the scheme, host, port and path are taken. Host and authority of the
//! connection are what the client asked for, also in transparent mode.

use std::io::{self, Read};

use super::Record;

/// The largest flow that is read, in bytes. A larger one, with its bodies, is skipped.
const MOST_FLOW: usize = 64 * 1024 * 1024;

/// A flow file cannot be read on, since it is not what it seemed to be.
#[derive(Debug, thiserror::Error)]
pub(super) enum FlowError {
    #[error("expected flows of mitmproxy (LENGTH:…), found something else after {0} flows")]
    Form(u64),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Reads flows and gives out the request of each, or nothing for one that has none.
pub(super) fn read(mut reader: impl Read, give: &mut dyn FnMut(Option<Record>) -> bool) -> Result<(), FlowError> {
    let mut flows = 0;
    while let Some(length) = length(&mut reader, flows)? {
        let mut payload = Vec::new();
        let body = reader.by_ref().take(length);
        if usize::try_from(length).is_ok_and(|length| length <= MOST_FLOW) {
            let mut body = body;
            body.read_to_end(&mut payload)?;
            if payload.len() as u64 != length {
                return Err(FlowError::Form(flows));
            }
        } else {
            let mut body = body;
            io::copy(&mut body, &mut io::sink())?;
        }
        let mut kind = [0];
        reader.read_exact(&mut kind).map_err(|_| FlowError::Form(flows))?;
        if !matches!(kind, [b'}']) {
            return Err(FlowError::Form(flows));
        }
        flows += 1;
        if !give(record(&payload)) {
            return Ok(());
        }
    }
    Ok(())
}

/// The number in front of a colon; none at the end of the file.
fn length(reader: &mut impl Read, flows: u64) -> Result<Option<u64>, FlowError> {
    let mut digits = String::new();
    loop {
        let mut byte = [0];
        if reader.read(&mut byte)? == 0 {
            return if digits.is_empty() { Ok(None) } else { Err(FlowError::Form(flows)) };
        }
        match byte {
            [b':'] => return digits.parse().map(Some).map_err(|_| FlowError::Form(flows)),
            [digit @ b'0'..=b'9'] if digits.len() < 12 => digits.push(char::from(digit)),
            _ => return Err(FlowError::Form(flows)),
        }
    }
}

/// The next value of a payload: its type, what it holds, and what stands behind it.
fn value(text: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let colon = text.iter().take(13).position(|byte| *byte == b':')?;
    let length: usize = std::str::from_utf8(text.get(..colon)?).ok()?.parse().ok()?;
    let rest = text.get(colon + 1..)?;
    let (payload, rest) = (rest.get(..length)?, rest.get(length..)?);
    let (kind, rest) = rest.split_first()?;
    Some((*kind, payload, rest))
}

/// The value of a dictionary's key.
fn member<'a>(mut dictionary: &'a [u8], name: &str) -> Option<(u8, &'a [u8])> {
    while !dictionary.is_empty() {
        let (_, key, rest) = value(dictionary)?;
        let (kind, payload, rest) = value(rest)?;
        if key == name.as_bytes() {
            return Some((kind, payload));
        }
        dictionary = rest;
    }
    None
}

fn text(dictionary: &[u8], name: &str) -> Option<String> {
    let (kind, payload) = member(dictionary, name)?;
    matches!(kind, b',' | b';' | b'#').then(|| String::from_utf8_lossy(payload).into_owned())
}

fn record(flow: &[u8]) -> Option<Record> {
    let (b'}', request) = member(flow, "request")? else { return None };
    let (method, host, port) = (text(request, "method")?, text(request, "host")?, text(request, "port")?);
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let asked = if method.eq_ignore_ascii_case("CONNECT") {
        format!("{host}:{port}")
    } else {
        let (scheme, path) = (text(request, "scheme")?, text(request, "path")?);
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        format!("{scheme}://{host}:{port}{path}")
    };
    Some(Record { asked, recorded: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(kind: char, payload: &str) -> String {
        format!("{}:{payload}{kind}", payload.len())
    }

    fn flow(request: &[(&str, char, &str)]) -> String {
        let member = |(name, kind, value): &(&str, char, &str)| net(';', name) + &net(*kind, value);
        let request = net('}', &request.iter().map(member).collect::<String>());
        let version = net(';', "version") + &net('#', "21");
        net('}', &(version + &net(';', "request") + &request))
    }

    fn read_all(text: &str) -> (Vec<Option<String>>, bool) {
        let mut found = Vec::new();
        let read = read(text.as_bytes(), &mut |record| {
            found.push(record.map(|record| record.asked));
            true
        });
        (found, read.is_ok())
    }

    #[test]
    fn flows_give_their_requests() {
        let get = flow(&[
            ("host", ';', "a.test"),
            ("port", '#', "8443"),
            ("method", ',', "GET"),
            ("scheme", ',', "https"),
            ("path", ',', "/x?y"),
            ("content", ',', "12:not a flow}"),
        ]);
        let connect = flow(&[("host", ';', "::1"), ("port", '#', "443"), ("method", ',', "CONNECT")]);
        let tcp = net('}', &(net(';', "messages") + &net(']', "")));
        let expected = vec![Some("https://a.test:8443/x?y".into()), Some("[::1]:443".into()), None];
        assert_eq!(read_all(&(get + &connect + &tcp)), (expected, true));
    }

    #[test]
    fn what_is_no_flow_ends_the_reading() {
        let good = flow(&[("host", ';', "a.test"), ("port", '#', "80"), ("method", ',', "CONNECT")]);
        for bad in ["x", "5:abc}", "3:abc;", "99999999999999:a}", "4:abc", "3:a"] {
            assert_eq!(read_all(&(good.clone() + bad)), (vec![Some("a.test:80".into())], false), "{bad}");
        }
        assert_eq!(read_all("8:5:hello,}"), (vec![None], true));
    }
}
