//! The events of a gateway, as they stand in its file.

use std::path::Path;

use serde_json::Value;

use crate::gateway::Gateway;
use crate::wait::until;

/// The name of the file in the gateway's folder.
pub const FILE: &str = "events.jsonl";

/// The events in a file; a line without an end at its end is none yet.
#[must_use]
pub fn read(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"))).collect()
}

/// The events of a gateway that was started with [`crate::gateway::Setup::events`].
#[must_use]
pub fn of(gateway: &Gateway) -> Vec<Value> {
    read(&gateway.dir().join(FILE))
}

/// Waits for an event, and returns it.
pub async fn await_event(gateway: &Gateway, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    until(what, || async { of(gateway).into_iter().find(|event| is_it(event)) }).await
}

/// Waits for the event that is the end of what this decision let out.
pub async fn end_of(gateway: &Gateway, decision: &Value) -> Value {
    await_event(gateway, "an end", |event| event["decision_id"] == decision["event_id"]).await
}

/// Asserts that the events of each session are numbered from 1 on without a gap.
#[track_caller]
pub fn assert_contiguous(events: &[Value]) {
    let mut last = std::collections::BTreeMap::new();
    for event in events {
        let last: &mut u64 = last.entry(event["session_id"].as_str().unwrap()).or_default();
        *last += 1;
        assert_eq!(event["sequence"], *last, "{event}");
    }
}

/// What was asked for, as the log shows it but for the length of a query.
#[must_use]
pub fn asked(event: &Value) -> String {
    let target = &event["target"];
    let text = |key: &str| target[key].as_str().unwrap_or_default();
    let host = if text("host").contains(':') { format!("[{}]", text("host")) } else { text("host").to_owned() };
    match (text("scheme"), target["port"].as_u64()) {
        ("", None) if host.is_empty() => text("shown").to_owned(),
        ("", None) => host,
        ("", Some(port)) => format!("{host}:{port}"),
        (scheme, port) => {
            let default = if scheme == "http" { 80 } else { 443 };
            let port = port.filter(|port| *port != default).map_or(String::new(), |port| format!(":{port}"));
            format!("{scheme}://{host}{port}{}", text("path"))
        }
    }
}
