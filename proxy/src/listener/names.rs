//! Addresses that stand for names, inside a session.
//!
//! The name server of a session answers with addresses that lead nowhere but back to the gateway: each permitted name
//! that is asked for gets the next one of a range that no host has (RFC 2544, and a unique local range of RFC 4193), and
//! keeps it as long as the session lasts. When a connection to such an address is caught, it is known which name was
//! meant, whatever protocol is spoken on it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use exeat_policy::host::Host;

/// 198.18.0.0/15, without the first and the last 256 addresses.
const FIRST: u32 = 0xC612_0100;
/// How many names a session may have asked for.
const MAX_NAMES: usize = 65_536;
/// `fd65:7865:6174::/96`: the prefix of the same addresses in IPv6; it spells "exeat".
const PREFIX: [u16; 6] = [0xFD65, 0x7865, 0x6174, 0, 0, 0];

/// What an address inside a session stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A name.
    Name(Host),
    /// Nothing yet: an address of the range that was not given out.
    Nothing,
    /// Itself.
    Address(IpAddr),
}

/// The names that have addresses.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    names: Vec<Host>,
    numbers: HashMap<Host, u32>,
}

impl Names {
    /// The addresses that stand for a name; none when there are too many names.
    pub(crate) fn addresses(&self, name: &Host) -> Option<(Ipv4Addr, Ipv6Addr)> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match table.numbers.get(name) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(table.names.len()).ok().filter(|_| table.names.len() < MAX_NAMES)?;
                table.names.push(name.clone());
                table.numbers.insert(name.clone(), number);
                number
            }
        };
        let short = Ipv4Addr::from_bits(FIRST + number);
        let [a, b, c, d] = short.octets();
        let [p, q, r, s, t, u] = PREFIX;
        Some((short, Ipv6Addr::new(p, q, r, s, t, u, u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))))
    }

    /// What an address stands for.
    pub(crate) fn meaning(&self, address: IpAddr) -> Meaning {
        let address = address.to_canonical();
        let short = match address {
            IpAddr::V4(short) => short,
            IpAddr::V6(long) => {
                let [p, q, r, s, t, u, high, low] = long.segments();
                if [p, q, r, s, t, u] != PREFIX {
                    return Meaning::Address(address);
                }
                Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))
            }
        };
        if !matches!(short.octets(), [198, 18 | 19, ..]) {
            return if address.is_ipv4() { Meaning::Address(address) } else { Meaning::Nothing };
        }
        let number = short.to_bits().checked_sub(FIRST).and_then(|number| usize::try_from(number).ok());
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        number.and_then(|number| table.names.get(number)).map_or(Meaning::Nothing, |name| Meaning::Name(name.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_addresses_and_they_lead_back_to_it() {
        let names = Names::default();
        let (one, other) = (Host::parse("one.test").unwrap(), Host::parse("other.test").unwrap());
        let (short, long) = names.addresses(&one).unwrap();
        assert_ne!(names.addresses(&other), Some((short, long)));
        assert_eq!(names.addresses(&one), Some((short, long)));
        for address in [IpAddr::V4(short), long.into(), short.to_ipv6_mapped().into()] {
            assert_eq!(names.meaning(address), Meaning::Name(one.clone()), "{address}");
        }
    }

    #[test]
    fn other_addresses_are_themselves_and_those_of_the_range_are_nobody() {
        let names = Names::default();
        for text in ["93.184.216.34", "127.0.0.1", "::1", "2001:db8::1", "198.17.255.255", "198.20.0.0"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(names.meaning(address), Meaning::Address(address));
        }
        for text in ["198.18.0.1", "198.18.1.0", "198.19.255.255", "fd65:7865:6174::c612:100", "fd65:7865:6174::1"] {
            assert_eq!(names.meaning(text.parse().unwrap()), Meaning::Nothing, "{text}");
        }
    }

    #[test]
    fn there_is_an_end_to_the_names() {
        let names = Names::default();
        let host = |number: usize| Host::parse(&format!("n{number}.test")).unwrap();
        let last = (0..MAX_NAMES).map(|number| names.addresses(&host(number)).unwrap()).last().unwrap();
        assert!(Ipv4Addr::new(198, 19, 255, 255) > last.0);
        assert_eq!(names.addresses(&host(MAX_NAMES)), None);
        assert!(names.addresses(&host(0)).is_some());
    }
}
