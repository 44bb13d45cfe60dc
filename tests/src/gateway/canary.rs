//! Every test is a search for leaks: a gateway that the harness started is asked at its end whether a secret that the
//! test gave it is in anything it said, and whether it panicked.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use crate::wait::Journal;

/// The secret that every gateway holds, whatever the test gives it beside.
pub(super) const CANARY: &str = "Bearer canary/of the+harness=\"7f3a\"%";

/// Shorter secrets are words that may stand anywhere.
const SHORTEST: usize = 8;

/// What an admin listener that does not answer is given.
const PATIENCE: Duration = Duration::from_secs(2);

/// What can be asked of the admin listener without a side effect.
const ADMIN: [&str; 8] =
    ["/metrics", "/readyz", "/livez", "/v1/evidence", "/v1/policy", "/v1/decisions", "/v1/sessions", "/"];

/// The secrets of a gateway.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secrets(Vec<String>);

impl Secrets {
    /// Adds one.
    pub(super) fn add(&mut self, secret: &str) {
        self.0.push(secret.to_owned());
    }

    /// Asserts that none of them is in what was said, in any form that a program writes it in.
    #[track_caller]
    pub(crate) fn assert_absent(&self, place: &str, said: &str) {
        for secret in &self.0 {
            for form in forms(secret) {
                let Some(at) = said.find(&form) else { continue };
                let (from, to) = (at.saturating_sub(200), (at + form.len() + 100).min(said.len()));
                let around = String::from_utf8_lossy(&said.as_bytes()[from..to]);
                panic!("the secret {secret:?} is in {place}, as {form:?}: …{around}…");
            }
        }
    }
}

/// A secret as it may be written: by itself and without its scheme; as it is, escaped, in hex and in base64.
fn forms(secret: &str) -> BTreeSet<String> {
    let secret = secret.trim_end_matches(['\r', '\n']);
    let mut parts = vec![secret.as_bytes().to_vec()];
    if let Some((scheme, token)) = secret.split_once(' ') {
        parts.push(token.as_bytes().to_vec());
        let decoded = STANDARD.decode(token).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"));
        if let Some(pair) = decoded {
            parts.extend(pair.iter().position(|byte| *byte == b':').map(|colon| pair[colon + 1..].to_vec()));
            parts.push(pair);
        }
    }
    let mut forms = BTreeSet::new();
    for part in parts.iter().filter(|part| part.len() >= SHORTEST) {
        if let Ok(text) = std::str::from_utf8(part) {
            let quoted = [format!("{text:?}"), serde_json::to_string(text).unwrap()];
            forms.insert(text.to_owned());
            forms.extend(quoted.map(|quoted| quoted[1..quoted.len() - 1].to_owned()));
        }
        let percent = percent_encoded(part);
        let hex = part.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        });
        forms.extend([percent.to_lowercase(), percent, hex.to_uppercase(), hex]);
        for shift in 0..3 {
            // Behind one or two other bytes a text is written otherwise, but for the characters that hold some of both.
            let shifted = [vec![0; shift], part.clone()].concat();
            let shared = usize::from(shifted.len() % 3 != 0);
            for encoded in [STANDARD_NO_PAD.encode(&shifted), URL_SAFE_NO_PAD.encode(&shifted)] {
                forms.insert(encoded[[0, 2, 3][shift]..encoded.len() - shared].to_owned());
            }
        }
    }
    forms
}

fn percent_encoded(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            text.push(char::from(*byte));
        } else {
            write!(text, "%{byte:02X}").unwrap();
        }
        text
    })
}

/// Everything that the admin listener tells; what does not answer tells nothing.
pub(super) fn admin_answers(admin: SocketAddr) -> String {
    let mut said = String::new();
    for path in ADMIN {
        let Ok(answer) = ask(admin, path) else { break };
        said += &String::from_utf8_lossy(&answer);
    }
    said
}

fn ask(admin: SocketAddr, path: &str) -> std::io::Result<Vec<u8>> {
    let mut conn = TcpStream::connect_timeout(&admin, PATIENCE)?;
    conn.set_read_timeout(Some(PATIENCE))?;
    write!(conn, "GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    conn.read_to_end(&mut answer)?;
    Ok(answer)
}

/// What the gateway has written into its folder by itself: events, reports, logs.
pub(super) fn written_files(dir: &Path) -> impl Iterator<Item = (String, String)> {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let kept =
        files.filter(|path| path.extension().is_some_and(|kind| ["jsonl", "log"].iter().any(|one| kind == *one)));
    kept.filter_map(|path| {
        let text = String::from_utf8_lossy(&std::fs::read(&path).ok()?).into_owned();
        Some((path.display().to_string(), text))
    })
}

/// Threads that read what a program writes, so that all of it is there when the program has ended, even where nothing of
/// the test runs any more.
#[derive(Debug)]
pub(super) struct Readers(Mutex<Receiver<()>>);

impl Readers {
    /// Appends the lines of pipes to a journal until they end.
    pub(super) fn start(pipes: [PipeReader; 2], lines: &Journal<String>) -> Self {
        let (running, ended) = channel();
        for pipe in pipes {
            let (running, lines) = (running.clone(), lines.clone());
            std::thread::spawn(move || read_lines(pipe, &lines, running));
        }
        Self(Mutex::new(ended))
    }

    /// Waits until the pipes have ended. A program that the gateway has started may keep them open for longer than it
    /// lives, which is not waited for.
    pub(super) fn wait(&self) {
        // Nothing is ever sent: the end comes when no thread is left that could.
        let _ = self.0.lock().unwrap().recv_timeout(PATIENCE);
    }
}

fn read_lines(pipe: PipeReader, lines: &Journal<String>, running: Sender<()>) {
    for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
        lines.push(String::from_utf8_lossy(&line).into_owned());
    }
    drop(running);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_in_every_form() {
        let mut secrets = Secrets::default();
        secrets.add("Bearer canary+of/the \"test\"\n");
        let token = "canary+of/the \"test\"";
        let of = |prefix: &str| STANDARD.encode(format!("{prefix}{token}"));
        for said in [
            format!("a {token} b"),
            format!("{{\"a\":{}}}", serde_json::to_string(token).unwrap()),
            format!("{:?}", format!("value: {token}")),
            format!("/?q={}", percent_encoded(token.as_bytes())),
            format!("/?q={}", percent_encoded(token.as_bytes()).to_lowercase()),
            of(""),
            of("x"),
            of("user:"),
            of("user: "),
            of("").replace('+', "-").replace('/', "_"),
        ] {
            let found = std::panic::catch_unwind(|| secrets.assert_absent("a test", &said));
            assert!(found.is_err(), "{said}");
        }
        secrets.assert_absent("a test", "a canary, which is another one, of the test");
    }

    #[test]
    fn the_password_of_a_pair_is_a_secret_too() {
        let mut secrets = Secrets::default();
        secrets.add(&format!("Basic {}", STANDARD.encode("ann:open sesame")));
        let found = std::panic::catch_unwind(|| secrets.assert_absent("a test", "password=open sesame"));
        assert!(found.is_err());
    }
}
