//! The special-purpose ranges, as data.
//!
//! Rows are those of the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890 and its updates), the
//! multicast ranges, and the deprecated site-local one. The first row that holds an address counts, so narrower ranges
//! stand in front of the wider ones around them. Rows that the registries call globally reachable are global here too,
//! with three exceptions: the anycast addresses of PCP and TURN, which reach the nearest router, and the identifiers of
//! ORCHID and drones, which are not routed.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::AddressClass::{
    self, Benchmarking, Broadcast, Cgnat, Documentation, Global, LinkLocal, Loopback, Multicast, Private, Reserved,
    SiteLocal, UniqueLocal, Unspecified,
};

/// A range of addresses of one class.
pub(super) struct Row {
    pub(super) first: u128,
    pub(super) last: u128,
    pub(super) class: AddressClass,
}

impl Row {
    pub(super) const fn contains(&self, bits: u128) -> bool {
        self.first <= bits && bits <= self.last
    }
}

const fn v4(octets: [u8; 4], length: u32, class: AddressClass) -> Row {
    let first = u32::from_be_bytes(octets);
    let size = 1u64 << (32 - length);
    Row { first: first as u128, last: first as u128 + size as u128 - 1, class }
}

const fn v6(first: Ipv6Addr, length: u32, class: AddressClass) -> Row {
    let first = first.to_bits();
    let size: u128 = if length == 128 { 1 } else { 1 << (128 - length) };
    Row { first, last: first | (size - 1), class }
}

const fn ip6(segments: [u16; 8]) -> Ipv6Addr {
    let [a, b, c, d, e, f, g, h] = segments;
    Ipv6Addr::new(a, b, c, d, e, f, g, h)
}

/// IPv4; what no row holds is global.
pub(super) static V4: [Row; 18] = [
    v4([0, 0, 0, 0], 8, Unspecified),         // RFC 791: this network; RFC 1122: this host
    v4([10, 0, 0, 0], 8, Private),            // RFC 1918
    v4([100, 64, 0, 0], 10, Cgnat),           // RFC 6598
    v4([127, 0, 0, 0], 8, Loopback),          // RFC 1122
    v4([169, 254, 0, 0], 16, LinkLocal),      // RFC 3927
    v4([172, 16, 0, 0], 12, Private),         // RFC 1918
    v4([192, 0, 0, 0], 24, Reserved),         // RFC 6890: protocol assignments, PCP and TURN anycast among them
    v4([192, 0, 2, 0], 24, Documentation),    // RFC 5737: TEST-NET-1
    v4([192, 31, 196, 0], 24, Global),        // RFC 7535: AS112
    v4([192, 52, 193, 0], 24, Global),        // RFC 7450: AMT
    v4([192, 88, 99, 0], 24, Reserved),       // RFC 7526: 6to4 relay anycast, deprecated
    v4([192, 168, 0, 0], 16, Private),        // RFC 1918
    v4([198, 18, 0, 0], 15, Benchmarking),    // RFC 2544
    v4([198, 51, 100, 0], 24, Documentation), // RFC 5737: TEST-NET-2
    v4([203, 0, 113, 0], 24, Documentation),  // RFC 5737: TEST-NET-3
    v4([224, 0, 0, 0], 4, Multicast),         // RFC 1112
    v4([255, 255, 255, 255], 32, Broadcast),  // RFC 919
    v4([240, 0, 0, 0], 4, Reserved),          // RFC 1112
];

/// IPv6; what no row holds is reserved, since only `2000::/3` has been opened for global unicast.
pub(super) static V6: [Row; 26] = [
    v6(Ipv6Addr::UNSPECIFIED, 128, Unspecified),                   // RFC 4291
    v6(Ipv6Addr::LOCALHOST, 128, Loopback),                        // RFC 4291
    v6(ip6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0]), 96, Global),         // RFC 6052: NAT64, as what it embeds
    v6(ip6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0]), 48, Reserved),       // RFC 8215: local NAT64
    v6(ip6([0x100, 0, 0, 0, 0, 0, 0, 0]), 64, Reserved),           // RFC 6666: discard
    v6(ip6([0x100, 0, 0, 1, 0, 0, 0, 0]), 64, Reserved),           // RFC 9780: dummy prefix
    v6(ip6([0x2001, 0, 0, 0, 0, 0, 0, 0]), 32, Global),            // RFC 4380: Teredo, as what it embeds
    v6(ip6([0x2001, 1, 0, 0, 0, 0, 0, 1]), 128, Reserved),         // RFC 7723: PCP anycast
    v6(ip6([0x2001, 1, 0, 0, 0, 0, 0, 2]), 128, Reserved),         // RFC 8155: TURN anycast
    v6(ip6([0x2001, 1, 0, 0, 0, 0, 0, 3]), 128, Reserved),         // RFC 9665: DNS-SD SRP anycast
    v6(ip6([0x2001, 2, 0, 0, 0, 0, 0, 0]), 48, Benchmarking),      // RFC 5180
    v6(ip6([0x2001, 3, 0, 0, 0, 0, 0, 0]), 32, Global),            // RFC 7450: AMT
    v6(ip6([0x2001, 4, 0x112, 0, 0, 0, 0, 0]), 48, Global),        // RFC 7535: AS112
    v6(ip6([0x2001, 0x10, 0, 0, 0, 0, 0, 0]), 28, Reserved),       // RFC 4843: ORCHID, deprecated
    v6(ip6([0x2001, 0x20, 0, 0, 0, 0, 0, 0]), 28, Reserved),       // RFC 7343: ORCHIDv2
    v6(ip6([0x2001, 0x30, 0, 0, 0, 0, 0, 0]), 28, Reserved),       // RFC 9374: drone identifiers
    v6(ip6([0x2001, 0, 0, 0, 0, 0, 0, 0]), 23, Reserved),          // RFC 2928: protocol assignments
    v6(ip6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0]), 32, Documentation), // RFC 3849
    v6(ip6([0x3fff, 0, 0, 0, 0, 0, 0, 0]), 20, Documentation),     // RFC 9637
    v6(ip6([0x2002, 0, 0, 0, 0, 0, 0, 0]), 16, Global),            // RFC 3056: 6to4, as what it embeds
    v6(ip6([0x2000, 0, 0, 0, 0, 0, 0, 0]), 3, Global),             // RFC 3587: global unicast, AS112 among it
    v6(ip6([0x5f00, 0, 0, 0, 0, 0, 0, 0]), 16, Reserved),          // RFC 9602: segment routing
    v6(ip6([0xfc00, 0, 0, 0, 0, 0, 0, 0]), 7, UniqueLocal),        // RFC 4193
    v6(ip6([0xfe80, 0, 0, 0, 0, 0, 0, 0]), 10, LinkLocal),         // RFC 4291
    v6(ip6([0xfec0, 0, 0, 0, 0, 0, 0, 0]), 10, SiteLocal),         // RFC 3879
    v6(ip6([0xff00, 0, 0, 0, 0, 0, 0, 0]), 8, Multicast),          // RFC 4291
];

/// IPv4 addresses of metadata and credential services.
pub(super) static METADATA_V4: [Ipv4Addr; 8] = [
    Ipv4Addr::new(169, 254, 169, 254), // the address most clouds share
    Ipv4Addr::new(169, 254, 170, 2),   // AWS: task credentials
    Ipv4Addr::new(169, 254, 170, 23),  // AWS: pod identity
    Ipv4Addr::new(169, 254, 0, 23),    // Tencent Cloud
    Ipv4Addr::new(169, 254, 42, 42),   // Scaleway
    Ipv4Addr::new(168, 63, 129, 16),   // Azure: platform channel
    Ipv4Addr::new(100, 100, 100, 200), // Alibaba Cloud
    Ipv4Addr::new(192, 0, 0, 192),     // Oracle Cloud, classic
];

/// IPv6 addresses of metadata and credential services.
pub(super) static METADATA_V6: [Ipv6Addr; 5] = [
    ip6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254]),   // AWS
    ip6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23]),    // AWS: pod identity
    ip6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]),    // Google Cloud
    ip6([0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe]), // OpenStack
    ip6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42]),     // Scaleway
];

/// Names of metadata services, canonical.
pub(super) static METADATA_NAMES: [&str; 8] = [
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "instance-data",
    "instance-data.ec2.internal",
    "metadata.azure.internal",
    "metadata.azure.com",
    "metadata.tencentyun.com",
];
