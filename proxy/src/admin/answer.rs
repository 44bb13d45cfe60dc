//! What resources answer with.

use std::convert::Infallible;

use bytes::Bytes;
use exeat_policy::Reason;
use exeat_policy::diag::Diagnostic;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body, Incoming};
use serde::Serialize;

use crate::respond::{Problem, Unmet};

/// An answer whose body may stream.
pub(super) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The largest body that is read, in bytes.
const MAX_BODY: usize = 4 * 1024 * 1024;

/// An answer with a whole body, which no cache keeps.
pub(super) fn whole(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    stream(status, content_type, Full::new(body.into()))
}

/// An answer with a body that comes bit by bit.
pub(super) fn stream(
    status: StatusCode,
    content_type: &'static str,
    body: impl Body<Data = Bytes, Error = Infallible> + Send + 'static,
) -> Answer {
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// An answer in JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let mut body = serde_json::to_vec_pretty(value).unwrap_or_default();
    body.push(b'\n');
    whole(status, "application/json", body)
}

/// A refusal.
pub(super) fn problem(problem: Problem<'_>) -> Answer {
    of(problem.into_bytes())
}

/// A refusal that is the admin listener's own.
pub(super) fn unmet(unmet: Unmet, detail: &str, diagnostics: &[Diagnostic]) -> Answer {
    of(unmet.answer(detail, diagnostics))
}

/// A whole answer as it is.
pub(super) fn of(answer: Response<Bytes>) -> Answer {
    answer.map(|body| Full::new(body).boxed_unsync())
}

/// Reads the whole body of a request.
///
/// # Errors
/// The refusal that it is answered with: the body is larger than [`MAX_BODY`], or ended early.
pub(super) async fn body(request: Request<Incoming>) -> Result<Bytes, Answer> {
    let read = Limited::new(request.into_body(), MAX_BODY).collect().await;
    read.map(|body| body.to_bytes()).map_err(|error| {
        let mut refusal = Problem::new(Reason::BadRequest);
        refusal.detail = format!("the body cannot be read, of at most {MAX_BODY} bytes: {error}");
        problem(refusal)
    })
}
