//! `/v1/evidence`: what was checked of the manifests' servers; with POST, once it has been checked anew.

use http::{Method, StatusCode};

use super::answer::{self, Answer};
use super::{Admin, Asked};

pub(super) async fn answer(admin: &Admin, asked: Asked) -> Answer {
    let gate = &admin.gate;
    if asked.request.method() == Method::POST {
        gate.board.check_now().await;
    }
    answer::json(StatusCode::OK, &gate.board.evidence(&gate.current.get()))
}
