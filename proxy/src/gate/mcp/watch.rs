//! What follows from a review: records, and messages to the server in the place of the client.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use exeat_policy::target::Target;
use http::{HeaderMap, Method};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::head_of_answer;
use crate::audit::AskedFor;
use crate::gate::refusal::{Refusal, Subject};
use crate::gate::{Caller, Gate};
use crate::listener::held::Held;
use crate::listener::http1::{Exchange, RequestBody};
use crate::mcp::response::Note;
use crate::snapshot::Snapshot;

/// How many answers of one stream may be under way at once. A server that asks for more gets none.
const ANSWERS_AT_ONCE: usize = 16;

/// One place for each answer of a stream that may be under way.
pub(super) fn answers_at_once() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(ANSWERS_AT_ONCE))
}

/// The request whose answer is reviewed.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    pub(super) gate: Arc<Gate>,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) caller: Caller,
    pub(super) method: Method,
    pub(super) target: Target,
    pub(super) server: Arc<str>,
    /// The client's fields.
    pub(super) sent: HeaderMap,
    pub(super) answering: Arc<Semaphore>,
}

impl Watch {
    /// Takes down what was not passed on as it came, and answers the server.
    pub(super) fn carry_out(&self, answers: Vec<Vec<u8>>, notes: Vec<Note>) {
        for note in notes {
            self.note(&note);
        }
        for answer in answers {
            match Arc::clone(&self.answering).try_acquire_owned() {
                Ok(place) => drop(tokio::spawn(self.clone().answer(answer.into(), place))),
                Err(_) => tracing::warn!(server = &*self.server, "the server asks faster than it is answered"),
            }
        }
    }

    fn note(&self, note: &Note) {
        let subject = Subject {
            caller: &self.caller,
            snapshot: &self.snapshot,
            method: self.method.as_str(),
            url: &self.target,
            target: AskedFor::Url(&self.target),
            rule: None,
            layer: None,
            server: Some(&self.server),
            pattern: None,
        };
        self.gate.turned_away(&subject, &Refusal::new(note.reason, &note.detail));
    }

    /// Sends a message on the client's behalf, through the gate like anything of the client's own.
    fn answer(self, message: Bytes, place: OwnedSemaphorePermit) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let head = head_of_answer(&self.target, &self.sent, message.len());
            let body = RequestBody::Held(Box::new(Held::new(message, None)));
            let exchange = Exchange { head, body, interim: None };
            drop(self.gate.request(self.caller, self.target, exchange).await);
            drop(place);
        })
    }
}
