//! Grants: the special-purpose addresses that the gateway's config opens.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::{AddressClass, aspects, classify, table};

/// What `[guard] allow` grants: addresses, ranges, and classes by their words.
///
/// A grant opens what it names and nothing beside it: `private` opens neither loopback nor link-local addresses, and a
/// range opens its addresses only. Ranges must lie within one special-purpose range, since a wide one (`0.0.0.0/0`)
/// would open several at once without naming any. No grant opens a metadata address. An IPv6 address that embeds
/// IPv4 addresses is open if each of them is global or granted, and so is the address itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    entries: Vec<Grant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grant {
    Class(AddressClass),
    Range(Range),
}

/// Why an entry grants nothing; the display says what was expected and what was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// Neither an address, nor a range, nor a class.
    #[error("expected an address, a range such as `10.1.0.0/16`, or one of {words}, found {0:?}", words = Words)]
    Unreadable(String),
    /// A class or an address that is never reachable.
    #[error("expected what can be granted, found metadata addresses, which are never reachable")]
    Metadata,
    /// A class or range that needs no grant.
    #[error("expected special-purpose addresses, found {0:?}, which is global and needs no grant")]
    Global(String),
    /// An address in front of a prefix length that covers part of it.
    #[error("expected the first address of a range, found {found:?}; the range is `{range}`")]
    HostBits {
        /// The entry.
        found: String,
        /// The range that its prefix length means.
        range: String,
    },
    /// A range over more than one special-purpose range.
    #[error("expected a range within one special-purpose range, found {0:?}; grant each range or class by itself")]
    TooWide(String),
    /// An IPv4 address or range written as an IPv6 one.
    #[error("expected IPv4 addresses in their usual form, found {0:?}")]
    Mapped(String),
}

impl Grants {
    /// Reads a list of entries.
    ///
    /// # Errors
    ///
    /// The first entry's that grants nothing. Readers that report every problem use [`Grants::add`].
    pub fn parse<S: AsRef<str>>(entries: &[S]) -> Result<Self, GrantError> {
        let mut grants = Self::default();
        for entry in entries {
            grants.add(entry.as_ref())?;
        }
        Ok(grants)
    }

    /// Adds an entry: an address, a range in prefix notation (RFC 4632, section 3.1), or a class.
    ///
    /// # Errors
    ///
    /// [`GrantError`] where it grants nothing; the grants stay as they were.
    pub fn add(&mut self, entry: &str) -> Result<(), GrantError> {
        let entry = entry.trim();
        let class = AddressClass::ALL.into_iter().find(|class| class.as_str() == entry);
        let grant = match class {
            Some(AddressClass::Metadata) => return Err(GrantError::Metadata),
            Some(AddressClass::Global) => return Err(GrantError::Global(entry.to_owned())),
            Some(class) => Grant::Class(class),
            None => Grant::Range(Range::parse(entry)?),
        };
        self.entries.push(grant);
        Ok(())
    }

    /// Whether nothing is granted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether `ip` may be dialled: it is global, or all that it is has been granted.
    #[must_use]
    pub fn permits(&self, ip: IpAddr) -> bool {
        aspects(ip).all(|(ip, class)| match class {
            AddressClass::Global => true,
            AddressClass::Metadata => false,
            _ => self.entries.iter().any(|grant| match grant {
                Grant::Class(granted) => *granted == class,
                Grant::Range(range) => range.contains(ip),
            }),
        })
    }
}

/// A range of addresses of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: IpAddr,
    length: u8,
}

impl Range {
    fn parse(entry: &str) -> Result<Self, GrantError> {
        let unreadable = || GrantError::Unreadable(entry.to_owned());
        let (address, length) = entry.split_once('/').map_or((entry, None), |(ip, length)| (ip, Some(length)));
        let ip = IpAddr::from_str(address).map_err(|_| unreadable())?;
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => most,
            Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                text.parse().ok().filter(|length| *length <= most).ok_or_else(unreadable)?
            }
            Some(_) => return Err(unreadable()),
        };
        if ip.to_canonical() != ip {
            return Err(GrantError::Mapped(entry.to_owned()));
        }
        let range = Self { first: masked(ip, length), length };
        if range.first != ip {
            return Err(GrantError::HostBits { found: entry.to_owned(), range: format!("{}/{length}", range.first) });
        }
        range.check(entry)
    }

    /// That the range can be granted.
    fn check(self, entry: &str) -> Result<Self, GrantError> {
        if length_of(self.first) == self.length {
            return match classify(self.first) {
                AddressClass::Metadata => Err(GrantError::Metadata),
                AddressClass::Global => Err(GrantError::Global(entry.to_owned())),
                _ => Ok(self),
            };
        }
        let (first, last) = (bits(self.first), bits(self.first) | host_bits(self.first, self.length));
        let rows = if self.first.is_ipv4() { table::V4.as_slice() } else { table::V6.as_slice() };
        let around = rows.iter().find(|row| row.contains(first) && row.contains(last)).map(|row| row.class);
        let special_inside =
            rows.iter().any(|row| row.class != AddressClass::Global && row.first <= last && first <= row.last);
        match around {
            Some(class) if class != AddressClass::Global => Ok(self),
            _ if special_inside => Err(GrantError::TooWide(entry.to_owned())),
            // IPv6 space that no row holds is reserved.
            None if self.first.is_ipv6() => Ok(self),
            _ => Err(GrantError::Global(entry.to_owned())),
        }
    }

    fn contains(self, ip: IpAddr) -> bool {
        self.first.is_ipv4() == ip.is_ipv4() && masked(ip, self.length) == self.first
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
fn host_bits(ip: IpAddr, length: u8) -> u128 {
    let width = u32::from(length_of(ip).saturating_sub(length));
    1u128.checked_shl(width).map_or(u128::MAX, |bit| bit - 1)
}

fn masked(ip: IpAddr, length: u8) -> IpAddr {
    let kept = bits(ip) & !host_bits(ip, length);
    match ip {
        IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::from_bits(u32::try_from(kept).unwrap_or_default())),
        IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::from_bits(kept)),
    }
}

/// The words that grant a class.
struct Words;

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grantable = |class: &AddressClass| !matches!(class, AddressClass::Global | AddressClass::Metadata);
        for (index, class) in AddressClass::ALL.into_iter().filter(grantable).enumerate() {
            write!(f, "{}`{class}`", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
