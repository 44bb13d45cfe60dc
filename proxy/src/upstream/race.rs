//! Happy eyeballs (RFC 8305): which of a name's addresses answers first.
//!
//! One attempt follows the other after a quarter of a second, or at once where the one before has failed, and the
//! first connection wins. A family whose way is broken so costs moments, not the whole connect time.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::sleep;

use crate::guard::CheckedAddr;

/// How long an attempt has the field to itself (RFC 8305 section 5).
const STAGGER: Duration = Duration::from_millis(250);

/// The order of the attempts: the families take turns, IPv6 first, each in the order of the DNS (RFC 8305 section 4).
pub(super) fn interleaved(addresses: &[CheckedAddr]) -> Vec<CheckedAddr> {
    let (six, four): (Vec<_>, Vec<_>) = addresses.iter().copied().partition(|address| address.get().is_ipv6());
    let mut order = Vec::with_capacity(addresses.len());
    let (mut six, mut four) = (six.into_iter(), four.into_iter());
    loop {
        let (next_six, next_four) = (six.next(), four.next());
        if next_six.is_none() && next_four.is_none() {
            return order;
        }
        order.extend(next_six.into_iter().chain(next_four));
    }
}

/// Makes one attempt after the other and gives the first that succeeds, or the errors of all, in the order in which
/// they failed. The attempts that were not needed are dropped.
pub(super) async fn race<A, T, E, F>(candidates: Vec<A>, attempt: impl Fn(A) -> F) -> Result<T, Vec<E>>
where
    F: Future<Output = Result<T, E>>,
{
    let mut candidates = candidates.into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut errors = Vec::new();
    loop {
        match candidates.next() {
            Some(candidate) => attempts.push(attempt(candidate)),
            None if attempts.is_empty() => return Err(errors),
            None => {}
        }
        tokio::select! {
            Some(ended) = attempts.next() => match ended {
                Ok(won) => return Ok(won),
                Err(error) => errors.push(error),
            },
            () = sleep(STAGGER), if candidates.len() > 0 => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::pending;

    use exeat_policy::guard::Grants;
    use tokio::time::Instant;

    use super::*;
    use crate::guard::{Guard, OwnListeners};

    #[test]
    fn the_families_take_turns() {
        let guard = Guard::new(Grants::default(), Vec::new(), OwnListeners::default());
        let order = |addresses: &[&str]| -> Vec<String> {
            let addresses: Vec<_> = addresses.iter().map(|address| address.parse().unwrap()).collect();
            let checked = guard.check(&addresses, 443).unwrap();
            interleaved(&checked).iter().map(|address| address.get().ip().to_string()).collect()
        };
        let (a, b, c) = ("8.8.8.8", "8.8.4.4", "1.1.1.1");
        let (x, y) = ("2606:4700::1111", "2606:4700::1001");
        assert_eq!(order(&[a, b, c, x, y]), [x, a, y, b, c]);
        assert_eq!(order(&[c, x]), [x, c]);
        assert_eq!(order(&[c, a, b]), [c, a, b]);
        assert_eq!(order(&[]), [""; 0]);
    }

    /// Races candidates that are answered after some milliseconds, never, or with an error; gives who won, when, and
    /// when each attempt began.
    async fn outcome(candidates: &[(u64, bool)]) -> (Result<usize, Vec<usize>>, u128, Vec<u128>) {
        let began = Instant::now();
        let starts = RefCell::new(Vec::new());
        let attempt = |index: usize| {
            starts.borrow_mut().push(began.elapsed().as_millis());
            let (after, succeeds) = candidates[index];
            async move {
                if after == u64::MAX {
                    pending::<()>().await;
                }
                sleep(Duration::from_millis(after)).await;
                if succeeds { Ok(index) } else { Err(index) }
            }
        };
        let result = race((0..candidates.len()).collect(), attempt).await;
        (result, began.elapsed().as_millis(), starts.into_inner())
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_connection_wins() {
        const NEVER: (u64, bool) = (u64::MAX, false);
        for (candidates, result, time, starts) in [
            (&[(10, true), (10, true)][..], Ok(0), 10, &[0][..]),
            (&[NEVER, (10, true)], Ok(1), 260, &[0, 250]),
            (&[(20, false), (10, true)], Ok(1), 30, &[0, 20]),
            (&[(400, true), (100, true)], Ok(1), 350, &[0, 250]),
            (&[(300, true), (100, true)], Ok(0), 300, &[0, 250]),
            (&[NEVER, (260, false), (10, true)], Ok(2), 510, &[0, 250, 500]),
            (&[(300, false), (10, false)], Err(vec![1, 0]), 300, &[0, 250]),
            (&[], Err(vec![]), 0, &[]),
        ] {
            assert_eq!(outcome(candidates).await, (result, time, starts.to_vec()), "{candidates:?}");
        }
    }
}
