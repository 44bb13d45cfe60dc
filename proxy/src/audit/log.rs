//! Decisions in the log.
//!
//! Where the log is lines of JSON, a decision's line is made here: it says what tracing would make of it, at a tenth of
//! the price.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use http::HeaderName;

use super::clock::Clock;
use super::event::show_client;
use super::json::{Object, name};
use super::{Outcome, Record};

/// Whether the log is lines of JSON on the standard error.
static LINES: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// A line that is being made, and the time in it; kept for their capacity.
    static LINE: RefCell<(Vec<u8>, Clock)> = const { RefCell::new((Vec::new(), Clock::new())) };
}

/// The log is lines of JSON on the standard error from now on, as `tracing_subscriber` writes them.
pub(crate) fn is_lines_on_stderr() {
    LINES.store(true, Ordering::Relaxed);
}

/// A rule with its place, as `PATTERN (FILE:LINE:COLUMN)`.
pub(super) struct Place<'a>(pub(super) &'a exeat_policy::Rule);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exeat_policy::Rule { pattern, file, line, column } = self.0;
        write!(f, "{pattern} ({file}:{line}:{column})")
    }
}

/// Logs a decision, if the level of the log says so.
pub(super) fn write(record: &Record<'_>, rule: Option<&Place<'_>>) {
    if !tracing::enabled!(target: "exeat::decision", tracing::Level::INFO) {
        return;
    }
    if !LINES.load(Ordering::Relaxed) {
        return trace(record, rule);
    }
    LINE.with_borrow_mut(|(line, clock)| {
        line.clear();
        make(line, clock, record, rule);
        // A log that is not there keeps nobody from going on.
        let _ = io::stderr().lock().write_all(line);
    });
}

fn make(line: &mut Vec<u8>, clock: &mut Clock, record: &Record<'_>, rule: Option<&Place<'_>>) {
    line.extend_from_slice(b"{\"timestamp\":\"");
    clock.write_now(line);
    line.push(b'"');
    let mut object = Object::go_on(line);
    object.plain(name!("level"), "INFO");
    object.plain(name!("verdict"), record.outcome.as_str());
    object.plain(name!("reason"), record.reason.as_str());
    object.plain(name!("entry"), record.entry.as_str());
    object.text(name!("method"), record.method);
    object.quoted(name!("url"), |out| record.target.show(out));
    if let Some(rule) = rule {
        object.shown(name!("rule"), rule);
    }
    object.text_if(name!("server"), record.server);
    if !record.injected.is_empty() {
        object.text(name!("injected"), &injected(record));
    }
    object.quoted(name!("client"), |out| show_client(out, record.client.address));
    object.text_if(name!("user"), record.client.user.as_deref());
    object.number(name!("generation"), record.policy.generation);
    object.text_if(name!("detail"), (!record.detail.is_empty()).then_some(record.detail));
    object.plain(name!("target"), "exeat::decision");
    object.end();
    line.push(b'\n');
}

fn injected(record: &Record<'_>) -> String {
    record.injected.iter().map(HeaderName::as_str).collect::<Vec<_>>().join(", ")
}

fn trace(record: &Record<'_>, rule: Option<&Place<'_>>) {
    let injected = (!record.injected.is_empty()).then(|| injected(record));
    let detail = (!record.detail.is_empty()).then_some(record.detail);
    tracing::info!(
        target: "exeat::decision",
        verdict = Outcome::as_str(record.outcome),
        reason = record.reason.as_str(),
        entry = record.entry.as_str(),
        method = record.method,
        url = %record.target,
        rule = rule.map(tracing::field::display),
        server = record.server,
        injected,
        client = %record.client.address,
        user = record.client.user.as_deref(),
        generation = record.policy.generation,
        detail,
    );
}
