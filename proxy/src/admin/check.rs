//! `/v1/check`: what the policy in force would make of a request or a tunnel, without sending anything.

use exeat_policy::Reason;
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};

use super::answer::{self, Answer};
use super::query::Query;
use super::{Admin, Asked as AskedFor};
use crate::judge::{Asked, Bench};
use crate::respond::Problem;
use crate::snapshot::Snapshot;
use crate::view::{JudgementView, SuggestionView};

/// How many inputs one request may have judged.
const MOST: usize = 10_000;

/// What is asked, as a query or as the body of a POST.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    /// URLs and `HOST:PORT` authorities.
    inputs: Vec<String>,
    /// The method that URLs are judged for.
    #[serde(default = "get")]
    method: String,
}

fn get() -> String {
    Method::GET.to_string()
}

/// A judgement as `exeat check --json` writes it, and what helps with it.
#[derive(Serialize)]
struct Judged<'a> {
    #[serde(flatten)]
    judgement: JudgementView<'a>,
    /// What else there is to say to people.
    note: Option<&'a str>,
    /// What would permit it, where a rule would.
    suggestion: Option<SuggestionView<'a>>,
}

pub(super) async fn answer(admin: &Admin, asked: AskedFor) -> Answer {
    match asked.request.method() {
        &Method::POST => {
            let body = match answer::body(asked.request).await {
                Ok(body) => body,
                Err(refused) => return refused,
            };
            match serde_json::from_slice::<Question>(&body) {
                Ok(question) => many(admin, &question),
                Err(error) => refuse(format!("expected {{\"inputs\": [URL or HOST:PORT, …], \"method\": …}}: {error}")),
            }
        }
        _ => match Query::read(&asked.request, &["input", "method"]) {
            Ok(query) => one(admin, &query),
            Err(refused) => answer::problem(*refused),
        },
    }
}

fn one(admin: &Admin, query: &Query) -> Answer {
    let Some(input) = query.get("input") else { return refuse("expected input=URL or input=HOST:PORT".to_owned()) };
    let Ok(method) = query.get("method").unwrap_or("GET").parse() else {
        return refuse(no_method(query.get("method")));
    };
    let snapshot = admin.gate.current.get();
    judge(&snapshot, input, &method, |judged| answer::json(StatusCode::OK, judged))
}

fn many(admin: &Admin, question: &Question) -> Answer {
    if question.inputs.len() > MOST {
        return refuse(format!("expected at most {MOST} inputs, found {}", question.inputs.len()));
    }
    let Ok(method) = question.method.parse() else { return refuse(no_method(Some(&question.method))) };
    let snapshot = admin.gate.current.get();
    // One object a line, as the command writes them.
    let mut lines = Vec::new();
    for input in &question.inputs {
        judge(&snapshot, input, &method, |judged| {
            // Writing to memory does not fail.
            let _ = serde_json::to_writer(&mut lines, judged);
            lines.push(b'\n');
        });
    }
    answer::whole(StatusCode::OK, "application/x-ndjson", lines)
}

/// Judges one input, and shows the judgement to `show`.
fn judge<T>(snapshot: &Snapshot, input: &str, method: &Method, show: impl FnOnce(&Judged<'_>) -> T) -> T {
    let input = input.trim();
    let asked = Asked::read(input);
    let judgement = Bench::of(snapshot).judge(&asked, method);
    let suggestion = match &asked {
        Ok(asked) if judgement.is_denied() => SuggestionView::of(&snapshot.policy, asked, &judgement),
        _ => None,
    };
    show(&Judged {
        judgement: JudgementView::new(input, method.as_str(), &judgement),
        note: judgement.note.as_deref(),
        suggestion,
    })
}

fn no_method(found: Option<&str>) -> String {
    format!("expected a method of HTTP, found {:?}", found.unwrap_or_default())
}

fn refuse(detail: String) -> Answer {
    let mut problem = Problem::new(Reason::BadRequest);
    problem.detail = detail;
    answer::problem(problem)
}
