//! `/livez`, `/readyz` and `/metrics`. Credentials of servers play no part in any of them.

use exeat_policy::Reason;
use http::StatusCode;

use super::Admin;
use super::answer::{self, Answer};
use crate::gate::Gate;

/// Whether the process answers at all.
pub(super) fn livez() -> Answer {
    answer::whole(StatusCode::OK, "text/plain; charset=utf-8", "ok\n")
}

/// Whether the gateway serves traffic, and under which policy.
pub(super) fn readyz(admin: &Admin) -> Answer {
    let snapshot = admin.gate.current.get();
    let objection = objection(&admin.gate);
    let body = serde_json::json!({
        "ready": objection.is_none(),
        "reason": objection.unwrap_or("serving"),
        "policy": {
            "digest": snapshot.policy.digest(),
            "generation": snapshot.generation,
            "mode": snapshot.mode().as_str(),
        },
    });
    let status = if objection.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    answer::whole(status, "application/json", format!("{body}\n"))
}

/// Why a gateway is not ready for traffic, if it is not.
fn objection(gate: &Gate) -> Option<&'static str> {
    if gate.drain.has_begun() {
        return Some(Reason::Draining.as_str());
    }
    gate.must_deny.objection()
}

/// All metrics, in the text format of Prometheus.
pub(super) fn metrics(admin: &Admin) -> Answer {
    answer::whole(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", admin.gate.metrics.render())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::evidence::must_deny::Ways;
    use crate::server::{Gateway, Options};

    #[tokio::test]
    async fn a_gate_that_lets_out_what_it_must_not_is_not_ready() {
        let dir = tempfile::tempdir().unwrap();
        let overrides = ["listen.proxy", "admin.listen"].map(|key| format!("{key}=\"127.0.0.1:0\""));
        let options = Options { state_dir: dir.path().into(), overrides: overrides.into(), ..Options::default() };
        let (gate, trigger) = Gateway::bind(options).await.unwrap().into_gate();
        assert_eq!(objection(&gate), Some("must_deny_not_tested"));
        let open = Arc::new(|mut stream: tokio::io::DuplexStream, _| {
            tokio::spawn(async move { stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await });
        });
        gate.must_deny.test(&Ways { proxy: open, inspected: None, endpoints: None }, &gate.metrics).await;
        assert_eq!(objection(&gate), Some("must_deny_failed"));
        let text = String::from_utf8(gate.metrics.render()).unwrap();
        assert!(text.contains("exeat_must_deny{entry=\"forward\"} 0"), "{text}");
        let ways = crate::server::ways_to_test(&gate);
        gate.must_deny.test(&ways, &gate.metrics).await;
        assert_eq!(objection(&gate), None);
        let text = String::from_utf8(gate.metrics.render()).unwrap();
        for entry in ["forward", "connect", "http2", "socks5", "intercept", "mcp"] {
            assert!(text.contains(&format!("exeat_must_deny{{entry=\"{entry}\"}} 1")), "{entry}: {text}");
        }
        assert!(!text.contains("exeat_requests_total{entry=\"forward\",reason=\"not_allowed\",verdict=\"deny\"} 1"));
        trigger.begin();
        assert_eq!(objection(&gate), Some("draining"));
    }
}
