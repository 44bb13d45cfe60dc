//! `/v1/reload`: loads the files anew, and waits for what another has loaded.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode, Uri};
use serde_json::json;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::answer::{self, Answer};
use super::{Admin, Asked};
use crate::respond::Unmet;

/// How long who waits is kept waiting who does not say.
const WAIT: Duration = Duration::from_secs(30);
/// The longest that anybody is.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

pub(super) async fn answer(admin: &Admin, asked: Asked) -> Answer {
    match *asked.request.method() {
        Method::POST => reload(admin).await,
        _ => tell(admin, asked.request.uri()).await,
    }
}

/// Loads everything anew, or nothing and says why.
async fn reload(admin: &Admin) -> Answer {
    let sessions = Arc::clone(&admin.sessions);
    match spawn_blocking(move || sessions.reload()).await {
        Ok(Ok(reloaded)) => answer::json(StatusCode::OK, &reloaded),
        Ok(Err(error)) => {
            let diagnostics = error.diagnostics();
            let unmet = if diagnostics.is_empty() { Unmet::Conflict } else { Unmet::Invalid };
            answer::unmet(unmet, &format!("not reloaded; what was in force stays: {error}"), diagnostics)
        }
        Err(_) => answer::unmet(Unmet::Conflict, "not reloaded; what was in force stays", &[]),
    }
}

/// Tells what is in force, once the generation `wait` of the query is, or after `timeout` seconds.
async fn tell(admin: &Admin, uri: &Uri) -> Answer {
    let (mut wanted, mut patience) = (0, WAIT);
    for part in uri.query().unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let (number, expected) = (value.parse::<u64>(), "expected wait=GENERATION and timeout=SECONDS");
        match (key, number) {
            ("wait", Ok(generation)) => wanted = generation,
            ("timeout", Ok(seconds)) => patience = Duration::from_secs(seconds).min(LONGEST_WAIT),
            _ => return answer::unmet(Unmet::Invalid, &format!("{expected}, found {part:?}"), &[]),
        }
    }
    let mut generation = admin.gate.current.watch();
    let reached = timeout(patience, generation.wait_for(|generation| *generation >= wanted)).await;
    let reached = matches!(reached, Ok(Ok(_)));
    let snapshot = admin.gate.current.get();
    let body = json!({
        "generation": snapshot.generation,
        "digest": snapshot.policy.digest(),
        "reached": reached,
    });
    answer::json(StatusCode::OK, &body)
}
