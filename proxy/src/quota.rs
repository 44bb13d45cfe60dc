//! What a session may use up: requests, bytes, requests in a second, tunnels at once.
//!
//! Every request and tunnel that is asked for counts, whatever becomes of it. Bytes are those of bodies and tunnels, in
//! both directions, as in the metrics; what is under way when they are used up ends there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use exeat_policy::Reason;
use prometheus::IntCounter;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::Metrics;

/// Limits; none where there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct QuotaLimits {
    /// Requests and tunnels, over the whole session.
    pub(crate) requests: Option<u64>,
    /// Bytes in both directions together.
    pub(crate) bytes: Option<u64>,
    /// Requests and tunnels in a second.
    pub(crate) rate: Option<u32>,
    /// Tunnels at once.
    pub(crate) tunnels: Option<u32>,
}

/// Which limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// All requests are used up.
    Requests,
    /// All bytes are used up.
    Bytes,
    /// The requests of this second are.
    Rate,
    /// As many tunnels are open as may be.
    Tunnels,
}

impl Limit {
    /// Every limit, in the order of the enum.
    pub(crate) const ALL: [Self; 4] = [Self::Requests, Self::Bytes, Self::Rate, Self::Tunnels];

    /// The word in metrics and answers.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Bytes => "bytes",
            Self::Rate => "rate",
            Self::Tunnels => "tunnels",
        }
    }

    /// Why a request is refused over it.
    pub(crate) const fn reason(self) -> Reason {
        match self {
            Self::Rate => Reason::SessionRate,
            Self::Requests | Self::Bytes | Self::Tunnels => Reason::SessionQuota,
        }
    }
}

/// What is left of the limits of one session.
#[derive(Debug)]
pub(crate) struct Quota {
    limits: QuotaLimits,
    requests: AtomicU64,
    bytes: AtomicU64,
    bucket: Mutex<Bucket>,
    tunnels: Option<Arc<Semaphore>>,
    metrics: Arc<Metrics>,
}

/// The requests that may be made now: as many as in a second at most, and more as time goes by.
#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Quota {
    /// Everything is left.
    pub(crate) fn new(limits: QuotaLimits, metrics: Arc<Metrics>, now: Instant) -> Self {
        let tokens = limits.rate.map_or(0.0, f64::from);
        let tunnels = limits.tunnels.and_then(|tunnels| usize::try_from(tunnels).ok());
        Self {
            limits,
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            bucket: Mutex::new(Bucket { tokens, at: now }),
            tunnels: tunnels.map(|tunnels| Arc::new(Semaphore::new(tunnels.min(Semaphore::MAX_PERMITS)))),
            metrics,
        }
    }

    /// The limits.
    pub(crate) const fn limits(&self) -> QuotaLimits {
        self.limits
    }

    /// What was used so far: requests, bytes.
    pub(crate) fn used(&self) -> (u64, u64) {
        (self.requests.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Uses up one request.
    ///
    /// # Errors
    /// The limit that is reached. It was counted.
    pub(crate) fn take(&self, now: Instant) -> Result<(), Limit> {
        let taken = self.try_take(now);
        if let Err(limit) = taken {
            self.metrics.count_session_limit(limit);
        }
        taken
    }

    fn try_take(&self, now: Instant) -> Result<(), Limit> {
        if self.limits.bytes.is_some_and(|bytes| self.bytes.load(Ordering::Relaxed) >= bytes) {
            return Err(Limit::Bytes);
        }
        if self.limits.requests.is_some_and(|requests| self.requests.load(Ordering::Relaxed) >= requests) {
            return Err(Limit::Requests);
        }
        if let Some(rate) = self.limits.rate {
            let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
            let rate = f64::from(rate);
            bucket.tokens = (bucket.tokens + now.saturating_duration_since(bucket.at).as_secs_f64() * rate).min(rate);
            bucket.at = bucket.at.max(now);
            if bucket.tokens < 1.0 {
                return Err(Limit::Rate);
            }
            bucket.tokens -= 1.0;
        }
        let requests = self.limits.requests.unwrap_or(u64::MAX);
        let take = |taken: u64| (taken < requests).then(|| taken + 1);
        self.requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map(drop).map_err(|_| Limit::Requests)
    }

    /// A place among the session's tunnels; none where they are not limited.
    ///
    /// # Errors
    /// There is none. It was counted.
    pub(crate) fn tunnel(&self) -> Result<Option<OwnedSemaphorePermit>, Limit> {
        let Some(tunnels) = &self.tunnels else { return Ok(None) };
        Arc::clone(tunnels).try_acquire_owned().map(Some).map_err(|_| {
            self.metrics.count_session_limit(Limit::Tunnels);
            Limit::Tunnels
        })
    }

    /// Uses up bytes; whether that was within the limit.
    pub(crate) fn spend(&self, bytes: u64) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let Some(limit) = self.limits.bytes else { return true };
        let within = before.saturating_add(bytes) <= limit;
        if !within && before <= limit {
            self.metrics.count_session_limit(Limit::Bytes);
        }
        within
    }
}

/// How long a client that was too fast has to wait: with one request a second or more, the next one is due by then.
pub(crate) const RATE_WAIT: Duration = Duration::from_secs(1);

/// Counts bytes as they go by, for the metrics and for the quota of a session.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    counter: IntCounter,
    quota: Option<Arc<Quota>>,
    own: Option<Arc<AtomicU64>>,
}

impl Meter {
    /// Counts into both.
    pub(crate) fn new(counter: &IntCounter, quota: Option<&Arc<Quota>>) -> Self {
        Self { counter: counter.clone(), quota: quota.cloned(), own: None }
    }

    /// Counts into `own` too, which is that of one request.
    pub(crate) fn with(self, own: Option<Arc<AtomicU64>>) -> Self {
        Self { own, ..self }
    }

    /// Counts bytes that went by; whether more may.
    pub(crate) fn count(&self, bytes: usize) -> bool {
        self.counter.inc_by(bytes as u64);
        if let Some(own) = &self.own {
            own.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        self.quota.as_ref().is_none_or(|quota| quota.spend(bytes as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(limits: QuotaLimits, now: Instant) -> Quota {
        Quota::new(limits, Metrics::new().unwrap(), now)
    }

    #[test]
    fn requests_are_used_up() {
        let now = Instant::now();
        let quota = quota(QuotaLimits { requests: Some(2), ..QuotaLimits::default() }, now);
        assert_eq!([(); 3].map(|()| quota.take(now)), [Ok(()), Ok(()), Err(Limit::Requests)]);
        assert_eq!(quota.used(), (2, 0));
    }

    #[test]
    fn a_rate_lets_as_many_through_as_time_has_brought() {
        let now = Instant::now();
        let quota = quota(QuotaLimits { rate: Some(2), ..QuotaLimits::default() }, now);
        assert_eq!([(); 3].map(|()| quota.take(now)), [Ok(()), Ok(()), Err(Limit::Rate)]);
        let later = now + Duration::from_millis(500);
        assert_eq!([(); 2].map(|()| quota.take(later)), [Ok(()), Err(Limit::Rate)]);
        let much_later = now + Duration::from_secs(60);
        assert_eq!([(); 3].map(|()| quota.take(much_later)), [Ok(()), Ok(()), Err(Limit::Rate)], "none are saved up");
        // The slowest rate there is.
        let slow = Quota::new(QuotaLimits { rate: Some(1), ..QuotaLimits::default() }, Metrics::new().unwrap(), now);
        assert_eq!([now, now, now + RATE_WAIT].map(|at| slow.take(at).is_ok()), [true, false, true]);
    }

    #[test]
    fn bytes_end_what_is_under_way_and_what_comes_after() {
        let now = Instant::now();
        let quota = quota(QuotaLimits { bytes: Some(10), ..QuotaLimits::default() }, now);
        assert!(quota.spend(10), "the last byte of them may still be used");
        assert!(!quota.spend(1));
        assert_eq!(quota.take(now), Err(Limit::Bytes));
    }

    #[test]
    fn a_place_among_the_tunnels_comes_back() {
        let quota = quota(QuotaLimits { tunnels: Some(1), ..QuotaLimits::default() }, Instant::now());
        let place = quota.tunnel().unwrap();
        assert_eq!(quota.tunnel().unwrap_err(), Limit::Tunnels);
        drop(place);
        assert!(quota.tunnel().is_ok());
    }

    #[test]
    fn without_limits_nothing_ends() {
        let now = Instant::now();
        let quota = quota(QuotaLimits::default(), now);
        assert!((0..1000).all(|_| quota.take(now).is_ok() && quota.spend(u64::from(u32::MAX))));
        assert!(quota.tunnel().unwrap().is_none());
    }
}
