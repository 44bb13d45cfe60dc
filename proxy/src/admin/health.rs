//! `/livez`, `/readyz` and `/metrics`. Credentials of servers play no part in any of them.

use exeat_policy::Reason;
use http::StatusCode;

use super::Admin;
use super::answer::{self, Answer};

/// Whether the process answers at all.
pub(super) fn livez() -> Answer {
    answer::whole(StatusCode::OK, "text/plain; charset=utf-8", "ok\n")
}

/// Whether the gateway serves traffic, and under which policy.
pub(super) fn readyz(admin: &Admin) -> Answer {
    let snapshot = admin.gate.current.get();
    let ready = !admin.gate.drain.has_begun();
    let body = serde_json::json!({
        "ready": ready,
        "reason": if ready { "serving" } else { Reason::Draining.as_str() },
        "policy": {
            "digest": snapshot.policy.digest(),
            "generation": snapshot.generation,
            "mode": snapshot.mode().as_str(),
        },
    });
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    answer::whole(status, "application/json", format!("{body}\n"))
}

/// All metrics, in the text format of Prometheus.
pub(super) fn metrics(admin: &Admin) -> Answer {
    answer::whole(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", admin.gate.metrics.render())
}
