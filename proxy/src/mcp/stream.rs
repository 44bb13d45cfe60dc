//! An event stream on its way to the client, reviewed event by event.

use std::sync::Arc;

use exeat_policy::Reason;
use exeat_policy::pattern::Prefix;
use exeat_policy::target::Target;

use super::policy::Found;
use super::request::Judged;
use super::response::{Fate, Note, Reviewed, review, unreadable};
use super::sse::{Event, Part, Splitter, escape_line_ends};

/// What a piece of a stream becomes.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Output {
    /// What goes to the client.
    pub(crate) bytes: Vec<u8>,
    /// What goes to the server, each as a message of its own.
    pub(crate) answers: Vec<Vec<u8>>,
    /// What was not passed on as it came.
    pub(crate) notes: Vec<Note>,
}

/// Reviews one stream.
#[derive(Debug)]
pub(crate) struct EventFilter {
    found: Found,
    asked: Arc<Judged>,
    splitter: Splitter,
    /// Something in the stream could not be told, so nothing behind it passes.
    broken: bool,
}

impl EventFilter {
    /// A filter for the answer to `asked`.
    pub(crate) fn new(found: Found, asked: Arc<Judged>) -> Self {
        let splitter = Splitter::new(found.policy.max_body);
        Self { found, asked, splitter, broken: false }
    }

    /// Whether the stream is over for the client, whatever more comes.
    pub(crate) const fn is_broken(&self) -> bool {
        self.broken
    }

    /// Takes the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Output {
        let mut output = Output::default();
        if self.broken {
            return output;
        }
        let mut parts = Vec::new();
        let result = self.splitter.push(bytes, &mut parts);
        self.parts(parts, &mut output);
        if result.is_err() {
            self.broken = true;
            let detail = format!("an event is longer than {} bytes", self.found.policy.max_body);
            self.refuse(&Event::default(), &detail, &mut output);
        }
        output
    }

    /// Takes the end of the stream.
    pub(crate) fn finish(&mut self) -> Output {
        let mut output = Output::default();
        if !self.broken {
            let mut parts = Vec::new();
            self.splitter.finish(&mut parts);
            self.parts(parts, &mut output);
        }
        output
    }

    fn parts(&self, parts: Vec<Part>, output: &mut Output) {
        for part in parts {
            match part {
                Part::Other(bytes) => output.bytes.extend(bytes),
                Part::Event(event) => self.event(&event, output),
            }
        }
    }

    fn event(&self, event: &Event, output: &mut Output) {
        if event.name == b"endpoint" && !self.is_own_endpoint(&event.data) {
            let detail = "an endpoint event that names a place the policy is not in force at".to_owned();
            output.notes.push(Note { reason: Reason::McpAnswer, detail });
            output.bytes.extend(event.without_data());
            return;
        }
        let Reviewed { fate, answers, notes } = review(&self.found.policy, &self.asked, &event.data);
        output.answers.extend(answers);
        output.notes.extend(notes);
        let elsewhere = event.splits_elsewhere(false);
        match fate {
            _ if event.splits_elsewhere(true) => self.refuse(event, "a field holds the end of a line", output),
            Fate::Pass if !elsewhere => output.bytes.extend_from_slice(&event.raw),
            Fate::Pass => match std::str::from_utf8(&event.data) {
                Ok(json) if super::json::parse(&event.data).is_ok() => {
                    output.bytes.extend(event.with_data(one_line(&escape_line_ends(json)).as_bytes()));
                }
                _ => self.refuse(event, "text that is no JSON holds the end of a line", output),
            },
            Fate::Rewrite(data) => {
                let json = String::from_utf8_lossy(&data);
                output.bytes.extend(event.with_data(one_line(&escape_line_ends(&json)).as_bytes()));
            }
            Fate::Withhold => output.bytes.extend(event.without_data()),
        }
    }

    /// Puts an error for what waits in the place of an event.
    fn refuse(&self, event: &Event, detail: &str, output: &mut Output) {
        let Reviewed { fate, notes, .. } = unreadable(&self.asked, detail);
        output.notes.extend(notes);
        if let Fate::Rewrite(data) = fate {
            // Nothing of the event can be kept, its id included.
            let end: &[u8] = if event.raw.ends_with(b"\r") { b"\r" } else { b"\n" };
            for part in [b"data: ", &*data, end, end] {
                output.bytes.extend_from_slice(part);
            }
        }
    }

    /// Whether the endpoint of the oldest transport is where the server's policy holds, or by default at least where
    /// the server is.
    fn is_own_endpoint(&self, data: &[u8]) -> bool {
        let Ok(place) = std::str::from_utf8(data) else { return false };
        let policy = &self.found.policy;
        let Some(target) = resolve(&policy.prefix, place.trim()) else { return false };
        let prefix = &policy.prefix;
        let same =
            target.scheme() == prefix.scheme() && target.host() == prefix.host() && target.port() == prefix.port();
        same && (!policy.explicit || target.may_be_within(prefix.path()))
    }
}

/// What a reference in a stream of the server means, as far as servers write such ones.
fn resolve(prefix: &Prefix, place: &str) -> Option<Target> {
    let origin = format!("{}://{}:{}", prefix.scheme(), prefix.host(), prefix.port());
    let absolute = place.contains("://");
    let url = match place.as_bytes() {
        [b'/' | b'\\', b'/' | b'\\', ..] => return None,
        [b'/', ..] => format!("{origin}{place}"),
        [b'?', ..] => format!("{origin}{}{place}", prefix.path()),
        _ if absolute => place.to_owned(),
        _ => {
            let folder = prefix.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{origin}{folder}/{place}")
        }
    };
    Target::parse(&url).ok()
}

/// A JSON document on one line: line ends stand between its values only.
fn one_line(json: &str) -> String {
    json.replace(['\r', '\n'], " ")
}

#[cfg(test)]
mod tests;
