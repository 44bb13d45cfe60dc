//! Taking decisions down, for the bench of what that costs.

use std::fs::File;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use exeat_policy::target::Target;
use exeat_policy::{ListKind, Reason, Rule, RuleRef};

use crate::audit::{AskedFor, Audit, Entry, Journal, Outcome, PolicyView, Record};
use crate::client::{Address, Client};
use crate::config::Audit as AuditConfig;
use crate::metrics::Metrics;

/// Takes down the same decision over and over.
pub struct Decisions {
    audit: Audit,
    client: Client,
    target: Target,
    rule: Rule,
}

impl Decisions {
    /// Keeps events in the file at `path`, or nowhere, and logs to the subscriber in force if `log` says so.
    pub fn new(path: Option<&Path>, log: bool) -> Self {
        let config = AuditConfig { events: path.map(Path::to_owned), max_size: 0, ..AuditConfig::default() };
        let metrics = Metrics::new().unwrap();
        let journal = Journal::open(&config, Arc::clone(&metrics)).unwrap();
        Self {
            audit: Audit::new(metrics, None, Arc::new(journal), "bench", log),
            client: Client { address: Address::Tcp("127.0.0.1:49152".parse().unwrap()), user: None, account: None },
            target: Target::parse("https://api.example.com/repos/example/project/issues?page=2").unwrap(),
            rule: Rule {
                pattern: "https://api.example.com/repos/".into(),
                file: "agent.toml".into(),
                line: 7,
                column: 3,
            },
        }
    }

    /// A subscriber that writes what is logged to a file, as the gateway does.
    pub fn start_log(file: File) {
        let builder = tracing_subscriber::fmt().with_writer(Arc::new(file)).json().flatten_event(true);
        builder.init();
    }

    /// Takes one down; with its end, if there is a file.
    pub fn one(&self) {
        let rule =
            RuleRef { layer: "agent", layer_index: 0, list: ListKind::Allowed, index: 0, number: 0, rule: &self.rule };
        let record = Record {
            entry: Entry::Intercept,
            client: &self.client,
            method: "GET",
            target: AskedFor::Url(&self.target),
            outcome: Outcome::Allow,
            reason: Reason::Allowed,
            rule: Some(rule),
            policy: PolicyView {
                digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                generation: 1,
                mode: "enforce",
            },
            server: None,
            injected: &[],
            upstream: Some("192.0.2.7:443".parse().unwrap()),
            tunnel: None,
            detail: "",
        };
        let mut permitting = pin!(self.audit.permit(&record));
        let Poll::Ready(ending) = permitting.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("nothing is waited for")
        };
        drop(ending.unwrap());
    }
}
