//! Values that are good for a time: one flight for many waiters, renewed before they end, backed off from after
//! failures.
//!
//! Whoever needs a value takes the one that is held. In the last part of its life the first to come starts a flight for
//! the next one and still uses the old; when the life is over, all wait for the same flight. A flight is a task of its
//! own and lands whoever leaves, because what an authorization server has rotated must be written down. After a failure
//! nobody flies for a while, and requests that need the value are refused at once.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use ring::rand::{SecureRandom as _, SystemRandom};
use secrecy::SecretString;
use tokio::sync::watch;
use tokio::time::Instant;

use super::command;
use super::error::MintError;
use super::oauth::OAuth;
use super::stored::exposure;
use crate::config::{CommandSource, OAuthSource};
use crate::metrics::Metrics;
use crate::upstream::Route;

/// The wait after the first failure; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait after a failure.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The longest part of a life in which the next value is fetched ahead.
const LONGEST_MARGIN: Duration = Duration::from_secs(300);
/// How often a value that the server refuses may be replaced before its time. A server that refuses whatever it is sent
/// would have one minted for each request.
const REJECTED_EVERY: Duration = Duration::from_secs(60);

/// What a call of the gateway's own goes out by.
#[derive(Clone, Debug)]
pub(crate) struct Errand {
    /// The way out that is in force.
    pub(crate) route: Arc<Route>,
    /// Where outcomes are counted.
    pub(crate) metrics: Arc<Metrics>,
}

/// A value as its maker hands it over.
pub(super) struct Fresh {
    pub(super) secret: SecretString,
    pub(super) lifetime: Duration,
}

type Minting = BoxFuture<'static, Result<Fresh, MintError>>;

/// A binding whose values are minted.
pub(crate) struct Minted {
    name: String,
    /// What it goes by in metrics.
    label: Arc<str>,
    mint: Box<dyn Fn(Errand) -> Minting + Send + Sync>,
    /// The files with secrets in them that its maker needs.
    files: Vec<PathBuf>,
    state: Mutex<State>,
}

impl fmt::Debug for Minted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Minted").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    held: Option<Held>,
    serial: u64,
    flight: Option<watch::Receiver<Option<Landed>>>,
    failures: u32,
    /// The last failure, until when nobody tries again.
    failed: Option<(MintError, Instant)>,
    rejected: Option<Instant>,
}

/// A value in use.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) secret: Arc<SecretString>,
    /// Counts the values of the binding.
    pub(super) serial: u64,
    renew: Instant,
    ends: Instant,
}

type Landed = Result<Held, MintError>;

impl Minted {
    /// A binding whose values a program prints.
    pub(super) fn command(name: &str, label: &str, source: &CommandSource) -> Arc<Self> {
        let source = Arc::new(source.clone());
        let mint = move |_| -> Minting {
            let source = Arc::clone(&source);
            Box::pin(async move { command::run(&source).await })
        };
        Self::new(name, label, Vec::new(), mint)
    }

    /// A binding whose values an authorization server issues.
    pub(super) fn oauth(name: &str, label: &str, source: &OAuthSource) -> Arc<Self> {
        let oauth = Arc::new(OAuth::new(source));
        let mint = move |way: Errand| -> Minting {
            let oauth = Arc::clone(&oauth);
            Box::pin(async move { oauth.mint(&way.route).await })
        };
        Self::new(name, label, source.secret_files(), mint)
    }

    fn new(
        name: &str,
        label: &str,
        files: Vec<PathBuf>,
        mint: impl Fn(Errand) -> Minting + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (name, label) = (name.to_owned(), label.into());
        Arc::new(Self { name, label, mint: Box::new(mint), files, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value to use now.
    ///
    /// # Errors
    /// Why there is none.
    ///
    /// # Cancel safety
    /// A flight goes on without who waits for it.
    pub(super) async fn get(self: &Arc<Self>, way: &Errand) -> Landed {
        let mut flight = {
            let mut state = self.state();
            let now = Instant::now();
            if let Some(held) = state.held.clone().filter(|held| now < held.ends) {
                if now >= held.renew {
                    // The value in hand is good; a failure now is not this request's.
                    let _ = self.depart(&mut state, way, now);
                }
                return Ok(held);
            }
            self.depart(&mut state, way, now)?
        };
        match flight.wait_for(Option::is_some).await.map(|landed| landed.clone()) {
            Ok(Some(landed)) => landed,
            _ => Err(MintError::new("it was given up before it was done")),
        }
    }

    /// The flight that is under way, or a new one.
    fn depart(
        self: &Arc<Self>,
        state: &mut State,
        way: &Errand,
        now: Instant,
    ) -> Result<watch::Receiver<Option<Landed>>, MintError> {
        // A flight whose task was lost never lands; its sender is gone.
        if let Some(flight) = state.flight.as_ref().filter(|flight| flight.has_changed().is_ok()) {
            return Ok(flight.clone());
        }
        if let Some((error, until)) = state.failed.as_ref().filter(|(_, until)| now < *until) {
            let wait = until.duration_since(now).as_secs() + 1;
            return Err(MintError::new(format_args!("{error}; the next try is in {wait} s at the earliest")));
        }
        let (sender, flight) = watch::channel(None);
        state.flight = Some(flight.clone());
        let (this, way) = (Arc::clone(self), way.clone());
        tokio::spawn(async move {
            let minted = (this.mint)(way.clone()).await;
            let landed = this.land(minted, &way.metrics);
            sender.send_replace(Some(landed));
        });
        Ok(flight)
    }

    fn land(&self, minted: Result<Fresh, MintError>, metrics: &Metrics) -> Landed {
        let mut state = self.state();
        state.flight = None;
        let now = Instant::now();
        metrics.count_refresh(&self.label, minted.is_ok());
        match minted {
            Ok(Fresh { secret, lifetime }) => {
                metrics.show_expiry(&self.label, SystemTime::now() + lifetime);
                state.serial += 1;
                state.failures = 0;
                state.failed = None;
                let (renew, ends) = plan(lifetime);
                let (renew, ends) = (now + renew, now + ends);
                let held = Held { secret: Arc::new(secret), serial: state.serial, renew, ends };
                state.held = Some(held.clone());
                tracing::info!(binding = self.name, lifetime_seconds = lifetime.as_secs(), "credential renewed");
                Ok(held)
            }
            Err(error) => {
                let wait = FIRST_WAIT.saturating_mul(1 << state.failures.min(6)).min(LONGEST_WAIT);
                let wait = wait.mul_f64(1.0 + 0.25 * chance());
                state.failures = state.failures.saturating_add(1);
                state.failed = Some((error.clone(), now + wait));
                tracing::warn!(binding = self.name, %error, "credential not renewed");
                Err(error)
            }
        }
    }

    /// Takes note that a server did not accept the value `serial`: the next request gets another one.
    pub(super) fn rejected(&self, serial: u64) {
        let mut state = self.state();
        let now = Instant::now();
        if state.rejected.is_some_and(|at| now.duration_since(at) < REJECTED_EVERY) {
            return;
        }
        if let Some(held) = state.held.as_mut().filter(|held| held.serial == serial && now < held.ends) {
            held.ends = now;
            state.rejected = Some(now);
            tracing::warn!(binding = self.name, "the server did not accept the credential; the next request renews it");
        }
    }

    /// What makes the files of the binding bad places for secrets.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.files.iter().filter_map(|path| exposure(path)).collect()
    }

    /// Waits until no flight is under way.
    pub(super) async fn settle(&self) {
        let flight = self.state().flight.clone();
        if let Some(mut flight) = flight {
            // A flight that is lost has settled too.
            let _ = flight.wait_for(Option::is_some).await;
        }
    }
}

/// When in a life of `lifetime` the next value is fetched, and when this one is no longer used: a little early, since
/// clocks and networks are never quite in step.
fn plan(lifetime: Duration) -> (Duration, Duration) {
    let ends = lifetime.saturating_sub((lifetime / 10).min(Duration::from_secs(10)));
    // Many gateways that started together must not all ask together.
    let margin = lifetime.mul_f64(0.15 + 0.1 * chance()).min(LONGEST_MARGIN.mul_f64(1.0 - 0.2 * chance()));
    (ends.saturating_sub(margin), ends)
}

/// A number from 0 to 1.
fn chance() -> f64 {
    let mut bytes = [0; 2];
    // Without randomness the middle does: nothing but the spread over time depends on it.
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => f64::from(u16::from_ne_bytes(bytes)) / f64::from(u16::MAX),
        Err(_) => 0.5,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU32, Ordering};

    use exeat_policy::guard::Grants;
    use secrecy::ExposeSecret as _;
    use tokio::sync::Semaphore;
    use tokio::time::{advance, sleep};

    use super::*;
    use crate::guard::{Guard, OwnListeners};
    use crate::upstream::{ClientTls, Resolver};

    pub(in super::super) fn way() -> Errand {
        Errand {
            route: Arc::new(Route {
                generation: 1,
                guard: Guard::new(Grants::default(), Vec::new(), OwnListeners::default()),
                resolver: Arc::new(Resolver::new(BTreeMap::new(), Vec::new())),
                next_proxy: None,
                tls: ClientTls::new(Vec::new()),
                connect_time: Duration::from_secs(1),
                keepalive: None,
            }),
            metrics: Metrics::new().unwrap(),
        }
    }

    /// A maker that counts, waits for the gate, and fails where it is told to.
    struct Maker {
        made: AtomicU32,
        failing: AtomicU32,
        gate: Semaphore,
    }

    fn minted(lifetime: u64) -> (Arc<Minted>, Arc<Maker>) {
        let maker =
            Arc::new(Maker { made: AtomicU32::new(0), failing: AtomicU32::new(0), gate: Semaphore::new(1_000) });
        let of = Arc::clone(&maker);
        let mint = move |_| -> Minting {
            let maker = Arc::clone(&of);
            Box::pin(async move {
                maker.gate.acquire().await.unwrap().forget();
                let number = maker.made.fetch_add(1, Ordering::SeqCst) + 1;
                if maker.failing.load(Ordering::SeqCst) != 0 {
                    return Err(MintError::new("no"));
                }
                Ok(Fresh { secret: format!("value {number}").into(), lifetime: Duration::from_secs(lifetime) })
            })
        };
        (Minted::new("T", "T", Vec::new(), mint), maker)
    }

    async fn value(minted: &Arc<Minted>, way: &Errand) -> Result<String, MintError> {
        minted.get(way).await.map(|held| held.secret.expose_secret().to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn many_waiters_share_one_flight() {
        let ((minted, maker), way) = (minted(600), way());
        maker.gate.forget_permits(1_000);
        let waiters: Vec<_> = (0..100)
            .map(|_| {
                let (minted, way) = (Arc::clone(&minted), way.clone());
                tokio::spawn(async move { value(&minted, &way).await })
            })
            .collect();
        // Those that leave take nothing with them.
        waiters[0].abort();
        sleep(Duration::from_millis(1)).await;
        maker.gate.add_permits(1);
        for waiter in waiters.into_iter().skip(1) {
            assert_eq!(waiter.await.unwrap().as_deref(), Ok("value 1"));
        }
        assert_eq!(maker.made.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_value_is_fetched_before_the_old_one_ends() {
        let ((minted, maker), way) = (minted(600), way());
        assert_eq!(value(&minted, &way).await.as_deref(), Ok("value 1"));
        advance(Duration::from_secs(400)).await;
        assert_eq!(value(&minted, &way).await.as_deref(), Ok("value 1"));
        assert_eq!(maker.made.load(Ordering::SeqCst), 1, "two thirds of its life are over");
        advance(Duration::from_secs(180)).await;
        assert_eq!(value(&minted, &way).await.as_deref(), Ok("value 1"), "the old one is used meanwhile");
        minted.settle().await;
        assert_eq!(value(&minted, &way).await.as_deref(), Ok("value 2"));
        advance(Duration::from_secs(600)).await;
        assert_eq!(value(&minted, &way).await.as_deref(), Ok("value 3"), "an ended one is not");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_backed_off_from_and_refuse_at_once() {
        let ((minted, maker), way) = (minted(600), way());
        maker.failing.store(1, Ordering::SeqCst);
        let mut waits = Vec::new();
        for made in 1..=8 {
            assert!(value(&minted, &way).await.is_err());
            let began = Instant::now();
            while maker.made.load(Ordering::SeqCst) == made {
                assert!(value(&minted, &way).await.is_err());
                advance(Duration::from_millis(500)).await;
            }
            waits.push(began.elapsed().as_secs());
        }
        // Each is what it doubles to, up to a quarter more, and the step that the clock is moved by.
        for (wait, planned) in waits.iter().zip([1, 2, 4, 8, 16, 32, 60, 60]) {
            assert!((planned..=planned + planned / 4 + 1).contains(wait), "{waits:?}");
        }
        maker.failing.store(0, Ordering::SeqCst);
        advance(Duration::from_secs(100)).await;
        assert!(value(&minted, &way).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_renewal_leaves_the_value_that_is_still_good() {
        let ((minted, maker), way) = (minted(600), way());
        value(&minted, &way).await.unwrap();
        maker.failing.store(1, Ordering::SeqCst);
        advance(Duration::from_secs(580)).await;
        for _ in 0..3 {
            assert_eq!(value(&minted, &way).await.as_deref(), Ok("value 1"));
            minted.settle().await;
        }
        assert_eq!(maker.made.load(Ordering::SeqCst), 2);
        advance(Duration::from_secs(11)).await;
        assert_eq!(value(&minted, &way).await, Err(MintError::new("no")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_value_is_replaced_once_in_a_while() {
        let ((minted, maker), way) = (minted(600), way());
        let first = minted.get(&way).await.unwrap();
        minted.rejected(first.serial);
        let second = minted.get(&way).await.unwrap();
        assert_eq!(second.serial, 2);
        minted.rejected(first.serial);
        minted.rejected(second.serial);
        assert_eq!(minted.get(&way).await.unwrap().serial, 2, "not twice in a minute");
        advance(REJECTED_EVERY).await;
        minted.rejected(first.serial);
        assert_eq!(minted.get(&way).await.unwrap().serial, 2, "not for an older one");
        minted.rejected(second.serial);
        assert_eq!(minted.get(&way).await.unwrap().serial, 3);
        assert_eq!(maker.made.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn lives_are_planned_with_a_margin() {
        for lifetime in [1, 10, 60, 3_600, 86_400, 10_000_000] {
            let lifetime = Duration::from_secs(lifetime);
            let (renew, ends) = plan(lifetime);
            assert!(renew < ends && ends < lifetime, "{lifetime:?}: {renew:?} {ends:?}");
            assert!(ends - renew <= LONGEST_MARGIN && lifetime - ends <= Duration::from_secs(10), "{lifetime:?}");
        }
        assert_eq!(plan(Duration::ZERO), (Duration::ZERO, Duration::ZERO));
    }
}
