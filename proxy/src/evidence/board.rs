//! What is known at the moment, and when to look again.

use std::num::NonZeroU8;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use time::OffsetDateTime;
use time::format_description::well_known::Iso8601;
use time::format_description::well_known::iso8601::{Config, EncodedConfig, TimePrecision};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::sleep;

use super::carrier::Enter;
use super::named;
use super::report::{Capability, Completeness, Confinement, Evidence, PolicyView, Readiness, ServerEvidence, Status};
use super::server::ServerSpec;
use crate::drain::Drain;
use crate::metrics::Metrics;
use crate::snapshot::{Current, Snapshot};

/// How many servers are checked at once.
const AT_ONCE: usize = 4;
/// The first pause after a failure; each further one doubles it, up to the interval.
const FIRST_PAUSE: Duration = Duration::from_secs(5);

/// The evidence of one gateway.
#[derive(Debug)]
pub(crate) struct Board {
    known: Mutex<Known>,
    wanted: Notify,
    /// How many rounds have begun and ended.
    rounds: watch::Sender<Rounds>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    begun: u64,
    ended: u64,
}

#[derive(Debug, Default)]
struct Known {
    /// The policy that it was found under.
    policy: Option<PolicyView>,
    servers: Vec<ServerEvidence>,
    checked_at: Option<String>,
}

impl Default for Board {
    fn default() -> Self {
        Self { known: Mutex::default(), wanted: Notify::new(), rounds: watch::Sender::default() }
    }
}

impl Board {
    /// What is known, under the snapshot in force. What was found under another one is not shown.
    pub(crate) fn evidence(&self, snapshot: &Snapshot) -> Evidence {
        let policy = view(snapshot);
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = known.policy.as_ref() == Some(&policy);
        let servers: Vec<ServerEvidence> = if is_current {
            known.servers.clone()
        } else {
            snapshot.servers.iter().map(ServerSpec::unchecked).collect()
        };
        let checked_at = known.checked_at.clone().filter(|_| is_current);
        drop(known);
        let named = snapshot.capabilities.iter().map(|name| named::assess(name, &snapshot.policy));
        let capabilities: Vec<Capability> =
            servers.iter().map(|server| server.capability.clone()).chain(named).collect();
        let unseen = |status| capabilities.iter().any(|capability| capability.status == status);
        let partial = unseen(Status::Unsupported) || unseen(Status::Unknown);
        Evidence {
            schema: "exeat.evidence",
            version: "1.0",
            checked_at,
            policy,
            confinement: Confinement::Advisory,
            completeness: if partial { Completeness::Partial } else { Completeness::Complete },
            limitations: limitations(&capabilities),
            readiness: Readiness::of(capabilities),
            servers,
        }
    }

    /// Has everything checked now, and waits until that is done.
    pub(crate) async fn check_now(&self) {
        let mut rounds = self.rounds.subscribe();
        // A round that is under way may have passed the server by before the caller asked.
        let enough = rounds.borrow_and_update().begun + 1;
        self.wanted.notify_one();
        let _ = rounds.wait_for(|rounds| rounds.ended >= enough).await;
    }

    /// Keeps the evidence fresh until the gateway shuts down: checks at once, on every reload, when asked, and every
    /// `interval` if there is one.
    pub(crate) async fn keep(
        &self,
        current: &Current,
        metrics: &Metrics,
        enter: &Enter,
        mut drain: Drain,
        interval: Option<Duration>,
    ) {
        let mut generation = current.watch();
        let mut failures = 0;
        if interval.is_none() {
            self.forget(current, metrics);
        } else {
            generation.mark_changed();
        }
        loop {
            let pause = interval.map(|interval| pause(interval, failures));
            let due = async {
                match pause {
                    Some(pause) => sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = generation.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    failures = 0;
                    if interval.is_none() {
                        self.forget(current, metrics);
                        continue;
                    }
                }
                () = self.wanted.notified() => {}
                () = due => {}
                () = drain.begun() => return,
            }
            let round = self.round(current, metrics, enter);
            let ready = tokio::select! {
                ready = round => ready,
                () = drain.begun() => return,
            };
            failures = if ready { 0 } else { failures + 1 };
        }
    }

    /// Shows that nothing is known under the snapshot in force.
    fn forget(&self, current: &Current, metrics: &Metrics) {
        metrics.show_evidence(&self.evidence(&current.get()));
    }

    /// Checks every server once; whether all is well.
    async fn round(&self, current: &Current, metrics: &Metrics, enter: &Enter) -> bool {
        self.rounds.send_modify(|rounds| rounds.begun += 1);
        let snapshot = current.get();
        let places = Semaphore::new(AT_ONCE);
        let checks = snapshot.servers.iter().map(|server| async {
            let _place = places.acquire().await;
            server.check(&snapshot, enter).await
        });
        let servers = join_all(checks).await;
        {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            *known = Known { policy: Some(view(&snapshot)), servers, checked_at: Some(timestamp(SystemTime::now())) };
        }
        let evidence = self.evidence(&snapshot);
        metrics.show_evidence(&evidence);
        for capability in evidence.readiness.capabilities.iter().filter(|it| it.status == Status::Unavailable) {
            tracing::warn!(capability = capability.name, reason = capability.reason, "unavailable");
        }
        self.rounds.send_modify(|rounds| rounds.ended = rounds.begun);
        evidence.readiness.ready
    }
}

fn view(snapshot: &Snapshot) -> PolicyView {
    let (digest, mode) = (snapshot.policy.digest().to_owned(), snapshot.mode().as_str());
    PolicyView { digest, generation: snapshot.generation, mode }
}

/// What the evidence does not say.
fn limitations(capabilities: &[Capability]) -> Vec<String> {
    let mut limitations = vec![
        "clients that do not use the gateway are not seen".to_owned(),
        "no tool was called, no elicitation answered and no stream opened: that those work was not checked".to_owned(),
    ];
    let mut unsupported = capabilities.iter().filter(|capability| capability.status == Status::Unsupported).peekable();
    if unsupported.peek().is_some() {
        let names: Vec<&str> = unsupported.map(|capability| capability.name.as_str()).collect();
        limitations.push(format!("the gateway has no part in {}", names.join(", ")));
    }
    limitations
}

/// The pause before the next round: the interval, or after failures a shorter one that grows; a tenth more or less, so
/// that gateways that were started together do not stay together.
fn pause(interval: Duration, failures: u32) -> Duration {
    let pause = match failures {
        0 => interval,
        _ => interval.min(FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(16))),
    };
    pause.mul_f64(0.9 + 0.2 * chance())
}

/// A number from 0 to 1, another one each time.
fn chance() -> f64 {
    use std::hash::{BuildHasher as _, RandomState};
    let bits = RandomState::new().hash_one(0) >> 32;
    bits as f64 / f64::from(u32::MAX)
}

/// The form of RFC 3339, in UTC and always with three digits of a second, so that times are in order as texts too.
const MILLISECONDS: EncodedConfig =
    Config::DEFAULT.set_time_precision(TimePrecision::Second { decimal_digits: NonZeroU8::new(3) }).encode();

/// A time as RFC 3339 has it, in UTC and whole milliseconds.
pub(crate) fn timestamp(time: SystemTime) -> String {
    OffsetDateTime::from(time).format(&Iso8601::<MILLISECONDS>).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_after_failures_and_never_pass_the_interval() {
        let interval = Duration::from_secs(300);
        for (failures, seconds) in [(0, 300.0), (1, 5.0), (2, 10.0), (4, 40.0), (7, 300.0), (60, 300.0)] {
            let pause = pause(interval, failures).as_secs_f64();
            assert!((seconds * 0.89..seconds * 1.11).contains(&pause), "{failures}: {pause}");
        }
    }

    #[test]
    fn times_are_in_utc_and_all_of_one_length() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        assert_eq!(timestamp(time), "2023-11-14T22:13:20.000Z");
        assert_eq!(timestamp(time + Duration::from_micros(250_999)), "2023-11-14T22:13:20.250Z");
    }
}
