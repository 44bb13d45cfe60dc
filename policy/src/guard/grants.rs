//! Grants: the special-purpose addresses that the gateway's config opens.

use std::fmt;
use std::net::IpAddr;

use super::{AddressClass, AddressRange, RangeError, aspects, classify, table};

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
    Range(AddressRange),
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
            None => Grant::Range(grantable(entry)?),
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
                Grant::Range(range) => range.holds(ip),
            }),
        })
    }
}

/// Reads a range that can be granted.
fn grantable(entry: &str) -> Result<AddressRange, GrantError> {
    let range: AddressRange = entry.parse()?;
    if range.is_single() {
        return match classify(range.first()) {
            AddressClass::Metadata => Err(GrantError::Metadata),
            AddressClass::Global => Err(GrantError::Global(entry.to_owned())),
            _ => Ok(range),
        };
    }
    let (first, last) = range.bounds();
    let rows = if range.first().is_ipv4() { table::V4.as_slice() } else { table::V6.as_slice() };
    let around = rows.iter().find(|row| row.contains(first) && row.contains(last)).map(|row| row.class);
    let special_inside =
        rows.iter().any(|row| row.class != AddressClass::Global && row.first <= last && first <= row.last);
    match around {
        Some(class) if class != AddressClass::Global => Ok(range),
        _ if special_inside => Err(GrantError::TooWide(entry.to_owned())),
        // IPv6 space that no row holds is reserved.
        None if range.first().is_ipv6() => Ok(range),
        _ => Err(GrantError::Global(entry.to_owned())),
    }
}

impl From<RangeError> for GrantError {
    fn from(error: RangeError) -> Self {
        match error {
            RangeError::Unreadable(found) => Self::Unreadable(found),
            RangeError::HostBits { found, range } => Self::HostBits { found, range },
            RangeError::Mapped(found) => Self::Mapped(found),
        }
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
