//! The admin listener: what operators and their machines ask the gateway.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exeat_policy::Reason;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::drain::Drain;
use crate::gate::Gate;
use crate::listener::{self, Listener};
use crate::respond::Problem;

/// How many connections the admin listener holds.
const CONNECTIONS: usize = 256;
/// How long a head may take.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// Answers until the process ends: a gateway that drains still tells how it is.
pub(crate) async fn serve(gate: Arc<Gate>, admin: TcpListener) {
    let loopback = admin.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let (_never, forever): (_, Drain) = crate::drain::pair();
    let full = listener::proxy::full_answer;
    listener::accept(Listener::Tcp(admin), slots, full, forever, move |stream, _, slot| {
        let gate = Arc::clone(&gate);
        async move {
            let service = service_fn(|request: Request<Incoming>| {
                let gate = Arc::clone(&gate);
                async move { Ok::<_, Infallible>(answer(&gate, &request, loopback).await) }
            });
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
            if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%error, "admin connection failed");
            }
            drop(slot);
        }
    })
    .await;
}

async fn answer(gate: &Gate, request: &Request<Incoming>, loopback: bool) -> Response<Full<Bytes>> {
    let host = request.headers().get(header::HOST);
    if loopback && !host.is_some_and(names_loopback) {
        // A page of another site that a browser on this machine shows must not get through by a name of its own.
        return problem(Reason::Misdirected);
    }
    let path = request.uri().path();
    match *request.method() {
        Method::GET | Method::HEAD => {}
        // A page in a browser can send a POST to another origin; such a request names the page's.
        Method::POST if path == "/v1/evidence" && !request.headers().contains_key(header::ORIGIN) => {
            gate.board.check_now().await;
        }
        _ => return problem(Reason::MethodRefused),
    }
    match path {
        "/metrics" => {
            let text = gate.metrics.render();
            respond(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text.into())
        }
        "/livez" => respond(StatusCode::OK, "text/plain; charset=utf-8", Bytes::from_static(b"ok\n")),
        "/readyz" => readiness(gate),
        "/v1/evidence" => {
            let evidence = gate.board.evidence(&gate.current.get());
            let body = serde_json::to_vec_pretty(&evidence).unwrap_or_default();
            respond(StatusCode::OK, "application/json", [&body, &b"\n"[..]].concat().into())
        }
        _ => {
            let mut problem = Problem::new(Reason::NotFound);
            problem.detail = "this listener serves /metrics, /livez, /readyz and /v1/evidence".to_owned();
            answer_with(problem)
        }
    }
}

/// Whether the gateway serves traffic, and under which policy. Credentials play no part.
fn readiness(gate: &Gate) -> Response<Full<Bytes>> {
    let snapshot = gate.current.get();
    let ready = !gate.drain.has_begun();
    let body = serde_json::json!({
        "ready": ready,
        "reason": if ready { "serving" } else { Reason::Draining.as_str() },
        "policy": { "digest": snapshot.policy.digest(), "generation": snapshot.generation },
    });
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    respond(status, "application/json", format!("{body}\n").into())
}

/// Whether Host is a loopback address or `localhost`, with or without a port.
fn names_loopback(host: &HeaderValue) -> bool {
    let Ok(host) = host.to_str() else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn problem(reason: Reason) -> Response<Full<Bytes>> {
    answer_with(Problem::new(reason))
}

fn answer_with(problem: Problem<'_>) -> Response<Full<Bytes>> {
    problem.into_response().map(|body| match body {
        crate::listener::http1::ResponseBody::Full(bytes) => Full::new(bytes),
        _ => Full::default(),
    })
}

fn respond(status: StatusCode, content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_are_served_on_loopback() {
        for (host, expected) in [
            ("127.0.0.1:9180", true),
            ("127.0.0.2", true),
            ("localhost:9180", true),
            ("[::1]:9180", true),
            ("evil.test", false),
            ("127.0.0.1.evil.test:9180", false),
            ("10.0.0.1:9180", false),
        ] {
            assert_eq!(names_loopback(&HeaderValue::from_static(host)), expected, "{host}");
        }
    }
}
