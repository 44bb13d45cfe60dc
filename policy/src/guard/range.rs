//! Ranges of addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses of one family, in prefix notation (RFC 4632, section 3.1); a single address is a range of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    first: IpAddr,
    length: u8,
}

/// Why a text is not a range; the display says what was expected and what was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Neither an address nor a range.
    #[error("expected an address or a range such as `10.1.0.0/16`, found {0:?}")]
    Unreadable(String),
    /// An address in front of a prefix length that covers part of it.
    #[error("expected the first address of a range, found {found:?}; the range is `{range}`")]
    HostBits {
        /// The text.
        found: String,
        /// The range that its prefix length means.
        range: String,
    },
    /// An IPv4 address or range written as an IPv6 one.
    #[error("expected IPv4 addresses in their usual form, found {0:?}")]
    Mapped(String),
}

impl AddressRange {
    /// Whether `ip` lies in it. An IPv6 address that maps an IPv4 one is that one.
    #[must_use]
    pub fn contains(self, ip: IpAddr) -> bool {
        self.holds(ip.to_canonical())
    }

    /// Whether `ip` lies in it, as it is written.
    pub(super) fn holds(self, ip: IpAddr) -> bool {
        self.first.is_ipv4() == ip.is_ipv4() && masked(ip, self.length) == self.first
    }

    /// The first address.
    pub(super) const fn first(self) -> IpAddr {
        self.first
    }

    /// First and last address as numbers.
    pub(super) const fn bounds(self) -> (u128, u128) {
        (bits(self.first), bits(self.first) | host_bits(self.first, self.length))
    }

    /// Whether it is one address.
    pub(super) const fn is_single(self) -> bool {
        self.length == length_of(self.first)
    }
}

impl FromStr for AddressRange {
    type Err = RangeError;

    /// Reads an address, or an address and a prefix length.
    ///
    /// # Errors
    ///
    /// [`RangeError`] where it is neither, where bits behind the prefix are set, and for IPv4-mapped IPv6.
    fn from_str(text: &str) -> Result<Self, RangeError> {
        let unreadable = || RangeError::Unreadable(text.to_owned());
        let (address, length) = text.split_once('/').map_or((text, None), |(ip, length)| (ip, Some(length)));
        let ip = IpAddr::from_str(address).map_err(|_| unreadable())?;
        let most = length_of(ip);
        let length = match length {
            None => most,
            Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                text.parse().ok().filter(|length| *length <= most).ok_or_else(unreadable)?
            }
            Some(_) => return Err(unreadable()),
        };
        if ip.to_canonical() != ip {
            return Err(RangeError::Mapped(text.to_owned()));
        }
        let range = Self { first: masked(ip, length), length };
        if range.first == ip {
            Ok(range)
        } else {
            Err(RangeError::HostBits { found: text.to_owned(), range: range.to_string() })
        }
    }
}

/// The range in prefix notation.
impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

const fn length_of(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

const fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_bits() as u128,
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// The bits behind a prefix length.
const fn host_bits(ip: IpAddr, length: u8) -> u128 {
    let width = length_of(ip).saturating_sub(length) as u32;
    match 1u128.checked_shl(width) {
        Some(bit) => bit - 1,
        None => u128::MAX,
    }
}

fn masked(ip: IpAddr, length: u8) -> IpAddr {
    let kept = bits(ip) & !host_bits(ip, length);
    match ip {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(kept).unwrap_or_default())),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(kept)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_what_their_prefix_says() {
        for (range, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("10.0.0.0/8", "::ffff:10.0.0.1", "::10.0.0.1"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("0.0.0.0/0", "255.255.255.255", "::"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("::/0", "ffff::", "0.0.0.0"),
        ] {
            let parsed: AddressRange = range.parse().unwrap();
            assert!(parsed.contains(inside.parse().unwrap()), "{range} {inside}");
            assert!(!parsed.contains(outside.parse().unwrap()), "{range} {outside}");
        }
    }

    #[test]
    fn what_is_no_range_is_said() {
        let error = |text: &str| text.parse::<AddressRange>().unwrap_err();
        for text in ["", "host.test", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "10.0.0/8", "::/129", "10.0.0.0/8/8"] {
            assert_eq!(error(text), RangeError::Unreadable(text.to_owned()));
        }
        let range = "10.0.0.0/8".to_owned();
        assert_eq!(error("10.0.0.1/8"), RangeError::HostBits { found: "10.0.0.1/8".to_owned(), range });
        assert_eq!(error("::ffff:10.0.0.1"), RangeError::Mapped("::ffff:10.0.0.1".to_owned()));
    }
}
