//! IPv4 addresses inside IPv6 ones.
//!
//! Several transition mechanisms write an IPv4 address into an IPv6 one, and a packet sent to the latter ends at the
//! former. A rule or an address check that looks at one of them only is blind to the other, so every mechanism's view
//! is listed here, once, for both.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Room for the views of one address: the four layouts of a local NAT64 prefix and an ISATAP interface identifier.
const VIEWS: usize = 5;

/// The IPv4 addresses found in one IPv6 address; an iterator that holds them in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmbeddedIpv4 {
    views: [Option<Ipv4Addr>; VIEWS],
    next: usize,
}

impl EmbeddedIpv4 {
    fn push(&mut self, ip: Ipv4Addr) {
        if self.views.contains(&Some(ip)) {
            return;
        }
        if let Some(free) = self.views.iter_mut().find(|view| view.is_none()) {
            *free = Some(ip);
        }
    }
}

impl Iterator for EmbeddedIpv4 {
    type Item = Ipv4Addr;

    fn next(&mut self) -> Option<Ipv4Addr> {
        let ip = self.views.get(self.next).copied().flatten();
        self.next += usize::from(ip.is_some());
        ip
    }
}

/// The IPv4 addresses that `ip` embeds:
///
/// | form | range | where |
/// |---|---|---|
/// | IPv4-mapped (RFC 4291, 2.5.5.2) | `::ffff:0:0/96` | last 32 bits |
/// | IPv4-compatible (RFC 4291, 2.5.5.1) | `::/96`, without `::` and `::1` | last 32 bits |
/// | IPv4-translated (RFC 2765, 2.1) | `::ffff:0:0:0/96` | last 32 bits |
/// | NAT64 (RFC 6052, 2.1) | `64:ff9b::/96` | last 32 bits |
/// | local NAT64 (RFC 8215) | `64:ff9b:1::/48` | each layout of RFC 6052, 2.2, that fits in it |
/// | 6to4 (RFC 3056, 2) | `2002::/16` | bits 16 to 47 |
/// | Teredo (RFC 4380, 4) | `2001::/32` | the server in bits 32 to 63, the client inverted in the last 32 |
/// | ISATAP (RFC 5214, 6.1) | interface identifier `[02]00:5efe` | last 32 bits |
///
/// A local NAT64 prefix does not say its own length. Layouts that would put the address into `0.0.0.0/8` are left
/// out: they read the zeros of a longer prefix or of the suffix.
#[must_use]
pub fn embedded_ipv4(ip: Ipv6Addr) -> EmbeddedIpv4 {
    let [_, _, b2, b3, b4, b5, b6, b7, _, b9, b10, b11, b12, b13, b14, b15] = ip.octets();
    let last = Ipv4Addr::new(b12, b13, b14, b15);
    let mut found = EmbeddedIpv4::default();
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => {}
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            found.push(last);
        }
        [0x64, 0xff9b, 1, ..] => {
            let layouts = [[b6, b7, b9, b10], [b7, b9, b10, b11], [b9, b10, b11, b12], [b12, b13, b14, b15]];
            for layout in layouts.into_iter().filter(|layout| layout.first() != Some(&0)) {
                found.push(Ipv4Addr::from(layout));
            }
        }
        [0x2002, ..] => found.push(Ipv4Addr::new(b2, b3, b4, b5)),
        [0x2001, 0, ..] => {
            found.push(Ipv4Addr::new(!b12, !b13, !b14, !b15));
            found.push(Ipv4Addr::new(b4, b5, b6, b7));
        }
        _ => {}
    }
    if let [_, _, _, _, 0 | 0x200, 0x5efe, ..] = ip.segments() {
        found.push(last);
    }
    found
}
