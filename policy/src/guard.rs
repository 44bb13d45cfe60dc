//! The guard: what kind of address an address is.
//!
//! Rules speak of names, and a name may resolve to anything: to the loopback interface, to the neighbours in a private
//! network, to the metadata service that hands out the machine's own credentials. So below the rules every resolved
//! address is classified, by the IANA special-purpose registries and what they leave out, and only [global]
//! addresses are reached without a grant of the gateway's config.
//!
//! An IPv6 address that embeds IPv4 addresses is the worst of what it is itself and of what they are: a packet to
//! `64:ff9b::7f00:1` ends at `127.0.0.1`.
//!
//! [global]: AddressClass::Global

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

mod grants;
mod range;
mod table;

pub use grants::{GrantError, Grants};
pub use range::{AddressRange, RangeError};

use crate::host::{Host, embedded_ipv4};

/// What an address is for, from harmless to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AddressClass {
    /// The public Internet.
    Global,
    /// Examples in documents.
    Documentation,
    /// Measurements between networks.
    Benchmarking,
    /// Special by another row of the registries, or not assigned to anything yet.
    Reserved,
    /// Groups of receivers.
    Multicast,
    /// Every machine of a network.
    Broadcast,
    /// A carrier's inner network (RFC 6598).
    Cgnat,
    /// Site-local IPv6, deprecated (RFC 3879).
    SiteLocal,
    /// Unique local IPv6 (RFC 4193).
    UniqueLocal,
    /// Private IPv4 (RFC 1918).
    Private,
    /// One link.
    LinkLocal,
    /// No address yet; systems connect it to themselves.
    Unspecified,
    /// This machine.
    Loopback,
    /// A cloud's metadata or credential service, never reachable.
    Metadata,
}

impl AddressClass {
    /// Every class, from harmless to worst.
    pub const ALL: [Self; 14] = [
        Self::Global,
        Self::Documentation,
        Self::Benchmarking,
        Self::Reserved,
        Self::Multicast,
        Self::Broadcast,
        Self::Cgnat,
        Self::SiteLocal,
        Self::UniqueLocal,
        Self::Private,
        Self::LinkLocal,
        Self::Unspecified,
        Self::Loopback,
        Self::Metadata,
    ];

    /// The word for it, which is also what grants it where it can be granted.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Documentation => "documentation",
            Self::Benchmarking => "benchmarking",
            Self::Reserved => "reserved",
            Self::Multicast => "multicast",
            Self::Broadcast => "broadcast",
            Self::Cgnat => "cgnat",
            Self::SiteLocal => "site-local",
            Self::UniqueLocal => "unique-local",
            Self::Private => "private",
            Self::LinkLocal => "link-local",
            Self::Unspecified => "unspecified",
            Self::Loopback => "loopback",
            Self::Metadata => "metadata",
        }
    }
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The class of an address: the worst of its own and those of the IPv4 addresses embedded in it.
#[must_use]
pub fn classify(ip: IpAddr) -> AddressClass {
    aspects(ip).map(|(_, class)| class).max().unwrap_or(AddressClass::Reserved)
}

/// Whether the host is a name under which a cloud serves metadata; such names resolve to metadata addresses only
/// inside the cloud, and are refused before they are resolved.
#[must_use]
pub fn is_metadata_name(host: &Host) -> bool {
    table::METADATA_NAMES.contains(&host.as_str())
}

/// Whether the host is a name that is reserved for never being one: `invalid` and all below it (RFC 6761 section 6.4).
/// No resolver has an answer for it that is not a mistake or a trap.
#[must_use]
pub fn is_invalid_name(host: &Host) -> bool {
    host.ip().is_none() && host.as_str().rsplit('.').next() == Some("invalid")
}

/// Everything that an address is: itself, unless it is only another form of an IPv4 address, and the IPv4 addresses
/// embedded in it, each with its class.
fn aspects(ip: IpAddr) -> impl Iterator<Item = (IpAddr, AddressClass)> {
    let (own, embedded) = match ip {
        IpAddr::V4(ip) => (Some((IpAddr::V4(ip), classify_v4(ip))), None),
        IpAddr::V6(ip) => {
            let own = ip.to_ipv4_mapped().is_none().then(|| (IpAddr::V6(ip), classify_v6(ip)));
            (own, Some(embedded_ipv4(ip)))
        }
    };
    let embedded = embedded.into_iter().flatten().map(|ip| (IpAddr::V4(ip), classify_v4(ip)));
    own.into_iter().chain(embedded)
}

fn classify_v4(ip: Ipv4Addr) -> AddressClass {
    if table::METADATA_V4.contains(&ip) {
        return AddressClass::Metadata;
    }
    let row = table::V4.iter().find(|row| row.contains(u128::from(ip.to_bits())));
    row.map_or(AddressClass::Global, |row| row.class)
}

/// The class of an IPv6 address whatever is embedded in it.
fn classify_v6(ip: Ipv6Addr) -> AddressClass {
    if table::METADATA_V6.contains(&ip) {
        return AddressClass::Metadata;
    }
    let row = table::V6.iter().find(|row| row.contains(ip.to_bits()));
    row.map_or(AddressClass::Reserved, |row| row.class)
}

#[cfg(test)]
mod tests;
