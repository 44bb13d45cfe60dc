//! `/v1/sessions`: sessions beside the gateway's own, created, listed and ended.

use std::sync::Arc;

use http::{HeaderValue, Method, StatusCode, header};
use serde_json::json;
use tokio::task::spawn_blocking;

use super::answer::{self, Answer};
use super::{Admin, Asked};
use crate::metrics::SessionEnd;
use crate::respond::Unmet;
use crate::sessions::{Refused, Spec};

/// Lists them, or creates one.
pub(super) async fn all(admin: &Admin, asked: Asked) -> Answer {
    match *asked.request.method() {
        Method::POST => create(admin, asked).await,
        _ => answer::json(StatusCode::OK, &json!({ "sessions": admin.sessions.list() })),
    }
}

async fn create(admin: &Admin, asked: Asked) -> Answer {
    let Asked { request, trusted, .. } = asked;
    let body = match answer::body(request).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let sessions = Arc::clone(&admin.sessions);
    let created = spawn_blocking(move || {
        let invalid =
            |detail: &str, diagnostics| Refused { unmet: Unmet::Invalid, detail: detail.to_owned(), diagnostics };
        let text = std::str::from_utf8(&body).map_err(|_| invalid("the body is not UTF-8", Vec::new()))?;
        let spec = Spec::read(text).map_err(|found| invalid("the session has errors", found))?;
        sessions.create(spec, trusted)
    })
    .await;
    match created {
        Ok(Ok(created)) => {
            let mut answer = answer::json(StatusCode::CREATED, &created);
            if let Ok(place) = HeaderValue::from_str(&format!("/v1/sessions/{}", created.id())) {
                answer.headers_mut().insert(header::LOCATION, place);
            }
            answer
        }
        Ok(Err(Refused { unmet, detail, diagnostics })) => answer::unmet(unmet, &detail, &diagnostics),
        Err(_) => answer::unmet(Unmet::Conflict, "the session was not created", &[]),
    }
}

/// Shows one, or ends it.
pub(super) fn one(admin: &Admin, asked: &Asked) -> Answer {
    let id = &asked.rest;
    let missing = || answer::unmet(Unmet::Missing, "there is no such session, or none any more", &[]);
    match *asked.request.method() {
        Method::DELETE if admin.sessions.end(id, SessionEnd::Revoked) => {
            answer::json(StatusCode::OK, &json!({ "id": id, "ended": SessionEnd::Revoked.as_str() }))
        }
        Method::DELETE => missing(),
        _ => match admin.sessions.find(id) {
            Some(session) => answer::json(StatusCode::OK, &session),
            None => missing(),
        },
    }
}
