//! How often a client may present wrong credentials.
//!
//! Time runs in windows, and in each an address has a number of wrong tries; with none left, nothing it presents is
//! looked at until the window ends. Right credentials do not give tries back, or somebody who has some could guess the
//! others' for ever.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::client::Address;

/// How many tries an address has in a window.
const TRIES: u32 = 10;
/// How long a window is.
const WINDOW: Duration = Duration::from_secs(60);
/// How many addresses are told apart in a window. Those behind them share the tries of one.
const ADDRESSES: usize = 4096;

/// Counts wrong credentials.
#[derive(Debug)]
pub(crate) struct Limiter(Mutex<Window>);

#[derive(Debug)]
struct Window {
    began: Instant,
    wrong: HashMap<Key, u32>,
    /// The wrong tries of all addresses that found no place of their own.
    others: u32,
}

/// What tells clients apart: an IPv4 address, an IPv6 network of 64 bits, since one host has all of it, or a user of
/// this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    V4(Ipv4Addr),
    V6(u64),
    User(u32),
}

impl Limiter {
    /// A limiter whose first window begins now.
    pub(crate) fn new(now: Instant) -> Self {
        Self(Mutex::new(Window { began: now, wrong: HashMap::new(), others: 0 }))
    }

    /// How long an address has to wait that has no tries left.
    pub(crate) fn wait(&self, address: &Address, now: Instant) -> Option<Duration> {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        window.roll(now);
        let wrong = window.wrong.get(&Key::of(address)).copied();
        let wrong = wrong.unwrap_or(if window.is_full() { window.others } else { 0 });
        (wrong >= TRIES).then(|| WINDOW.saturating_sub(now.saturating_duration_since(window.began)))
    }

    /// Takes a try from an address.
    pub(crate) fn wrong(&self, address: &Address, now: Instant) {
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        window.roll(now);
        let key = Key::of(address);
        if window.is_full() && !window.wrong.contains_key(&key) {
            window.others = window.others.saturating_add(1);
        } else {
            let wrong = window.wrong.entry(key).or_default();
            *wrong = wrong.saturating_add(1);
        }
    }
}

impl Window {
    fn roll(&mut self, now: Instant) {
        if now.saturating_duration_since(self.began) >= WINDOW {
            *self = Self { began: now, wrong: HashMap::new(), others: 0 };
        }
    }

    fn is_full(&self) -> bool {
        self.wrong.len() >= ADDRESSES
    }
}

impl Key {
    fn of(address: &Address) -> Self {
        match address {
            Address::Tcp(address) => match address.ip().to_canonical() {
                IpAddr::V4(ip) => Self::V4(ip),
                IpAddr::V6(ip) => Self::V6((ip.to_bits() >> 64) as u64),
            },
            Address::Unix { uid, .. } => Self::User(*uid),
            // It presents nothing, so there is nothing to count.
            Address::Inner(_) => Self::User(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(ip: &str) -> Address {
        Address::Tcp((ip.parse::<IpAddr>().unwrap(), 1).into())
    }

    #[test]
    fn an_address_has_ten_tries_a_window() {
        let start = Instant::now();
        let limiter = Limiter::new(start);
        let (one, other) = (tcp("192.0.2.1"), tcp("192.0.2.2"));
        for try_number in 0..TRIES {
            assert_eq!(limiter.wait(&one, start), None, "{try_number}");
            limiter.wrong(&one, start);
        }
        let later = start + Duration::from_secs(45);
        assert_eq!(limiter.wait(&one, later), Some(Duration::from_secs(15)));
        assert_eq!(limiter.wait(&tcp("::ffff:192.0.2.1"), later), Some(Duration::from_secs(15)));
        assert_eq!(limiter.wait(&other, later), None);
        assert_eq!(limiter.wait(&one, start + WINDOW), None);
    }

    #[test]
    fn neighbours_in_an_ipv6_network_are_one_and_users_of_a_socket_are_apart() {
        let now = Instant::now();
        let limiter = Limiter::new(now);
        for host in 0..TRIES {
            limiter.wrong(&tcp(&format!("2001:db8::{host:x}")), now);
            limiter.wrong(&Address::Unix { uid: 7, pid: None }, now);
        }
        assert!(limiter.wait(&tcp("2001:db8::ffff"), now).is_some());
        assert!(limiter.wait(&tcp("2001:db8:0:1::1"), now).is_none());
        assert!(limiter.wait(&Address::Unix { uid: 7, pid: Some(1) }, now).is_some());
        assert!(limiter.wait(&Address::Unix { uid: 8, pid: None }, now).is_none());
    }

    #[test]
    fn memory_is_bounded_and_those_without_a_place_share_their_tries() {
        let now = Instant::now();
        let limiter = Limiter::new(now);
        let address = |number: usize| Address::Tcp((Ipv4Addr::from_bits(u32::try_from(number).unwrap()), 1).into());
        for number in 0..ADDRESSES + TRIES as usize {
            limiter.wrong(&address(number), now);
        }
        assert_eq!(limiter.0.lock().unwrap().wrong.len(), ADDRESSES);
        assert!(limiter.wait(&address(0), now).is_none(), "one wrong try of its own");
        assert!(limiter.wait(&address(ADDRESSES * 2), now).is_some());
        assert!(limiter.wait(&address(ADDRESSES * 2), now + WINDOW).is_none());
    }
}
