//! The admin listener: what operators and their machines ask the gateway.
//!
//! Every request passes [`guard`] first, and then goes to the resource of its path: each is a line of [`RESOURCES`] and
//! a file of its own, which knows nothing of the others. What a resource answers is made with [`answer`].

mod answer;
mod check;
mod console;
mod decisions;
mod evidence;
mod guard;
mod health;
mod policy;
mod query;
mod reload;
mod sessions;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use exeat_policy::Reason;
use http::{HeaderValue, Method, Request, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Semaphore;

use self::answer::Answer;
pub(crate) use self::guard::Guard;
use crate::drain::Drain;
use crate::gate::Gate;
use crate::listener::{self, Listener};
use crate::respond::Problem;
use crate::sessions::Sessions;

/// How many connections the admin listener holds.
const CONNECTIONS: usize = 256;
/// How long a head may take.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// What every resource may ask.
#[derive(Debug)]
struct Admin {
    gate: Arc<Gate>,
    /// The other sessions, and what reloads them all.
    sessions: Arc<Sessions>,
    /// Who may ask.
    guard: Guard,
}

/// What was asked of a resource.
struct Asked {
    request: Request<Incoming>,
    /// What of the path lies behind that of the resource; empty where the path is the resource's own.
    rest: String,
    /// Whether who asks has shown that they may run this gateway.
    trusted: bool,
}

/// An answer under way.
type Answering<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// One resource.
struct Resource {
    /// Its path; one that ends in `/` stands for all that lies below.
    path: &'static str,
    /// The methods it knows. One that knows GET knows HEAD.
    methods: &'static [Method],
    /// What answers.
    answer: for<'a> fn(&'a Admin, Asked) -> Answering<'a>,
}

/// Methods of a resource that only tells.
const READ: &[Method] = &[Method::GET];

/// Everything that is served.
const RESOURCES: &[Resource] = &[
    Resource { path: "/", methods: READ, answer: |_, _| Box::pin(async { console::file("") }) },
    Resource {
        path: "/console/",
        methods: READ,
        answer: |_, asked| Box::pin(async move { console::file(&asked.rest) }),
    },
    Resource { path: "/livez", methods: READ, answer: |_, _| Box::pin(async { health::livez() }) },
    Resource { path: "/readyz", methods: READ, answer: |admin, _| Box::pin(async { health::readyz(admin) }) },
    Resource { path: "/metrics", methods: READ, answer: |admin, _| Box::pin(async { health::metrics(admin) }) },
    Resource {
        path: "/v1/evidence",
        methods: &[Method::GET, Method::POST],
        answer: |admin, asked| Box::pin(evidence::answer(admin, asked)),
    },
    Resource {
        path: "/v1/decisions",
        methods: READ,
        answer: |admin, asked| Box::pin(async move { decisions::answer(admin, &asked) }),
    },
    Resource {
        path: "/v1/policy",
        methods: READ,
        answer: |admin, asked| Box::pin(async move { policy::answer(admin, &asked) }),
    },
    Resource {
        path: "/v1/check",
        methods: &[Method::GET, Method::POST],
        answer: |admin, asked| Box::pin(check::answer(admin, asked)),
    },
    Resource {
        path: "/v1/reload",
        methods: &[Method::GET, Method::POST],
        answer: |admin, asked| Box::pin(reload::answer(admin, asked)),
    },
    Resource {
        path: "/v1/sessions",
        methods: &[Method::GET, Method::POST],
        answer: |admin, asked| Box::pin(sessions::all(admin, asked)),
    },
    Resource {
        path: "/v1/sessions/",
        methods: &[Method::GET, Method::DELETE],
        answer: |admin, asked| Box::pin(async move { sessions::one(admin, &asked) }),
    },
];

/// Answers until the process ends: a gateway that drains still tells how it is.
pub(crate) async fn serve(sessions: Arc<Sessions>, listener: Listener, guard: Guard) {
    let admin = Arc::new(Admin { gate: Arc::clone(sessions.base()), sessions, guard });
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let (_never, forever): (_, Drain) = crate::drain::pair();
    let full = listener::proxy::full_answer;
    let keepalive = || admin.gate.keepalive();
    listener::accept(listener, slots, full, keepalive, forever, |stream, _, slot| {
        let admin = Arc::clone(&admin);
        async move {
            let service = service_fn(|request: Request<Incoming>| {
                let admin = Arc::clone(&admin);
                async move { Ok::<_, Infallible>(admin.answer(request).await) }
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

impl Admin {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path();
        let trusted = match self.guard.check(request.method(), path, request.headers()) {
            Ok(trusted) => trusted,
            Err(refused) => return answer::of(*refused),
        };
        let Some(resource) = RESOURCES.iter().find(|resource| resource.is_at(path)) else {
            let known = RESOURCES.iter().map(|resource| resource.path).collect::<Vec<_>>().join(", ");
            let mut problem = Problem::new(Reason::NotFound);
            problem.detail = format!("this listener serves {known}");
            return answer::problem(problem);
        };
        if !resource.knows(request.method()) {
            return resource.unknown_method();
        }
        let rest = path.strip_prefix(resource.path).unwrap_or_default().to_owned();
        (resource.answer)(self, Asked { request, rest, trusted }).await
    }
}

impl Resource {
    fn is_at(&self, path: &str) -> bool {
        match self.path.ends_with('/') && self.path.len() > 1 {
            true => path.len() > self.path.len() && path.starts_with(self.path),
            false => path == self.path,
        }
    }

    fn knows(&self, method: &Method) -> bool {
        self.methods.contains(if method == Method::HEAD { &Method::GET } else { method })
    }

    fn unknown_method(&self) -> Answer {
        let allow = self.methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
        let mut problem = Problem::new(Reason::MethodRefused);
        problem.detail = format!("this resource knows {allow}");
        let mut answer = answer::problem(problem);
        if let Ok(allow) = HeaderValue::from_str(&allow) {
            answer.headers_mut().insert(header::ALLOW, allow);
        }
        answer
    }
}
