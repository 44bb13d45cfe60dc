//! The guard below the manifest: which addresses and ports are never dialled, whatever a rule permits.
//!
//! The table of address classes is data of the policy crate; here it meets the gateway's config and its own listeners.
//! A [`CheckedAddr`] is made by [`Guard::check`] and, for the proxy that the config itself names as the way out, by
//! [`Guard::check_next_proxy`]; nothing else can be dialled.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, PoisonError, RwLock};

use exeat_policy::Reason;
use exeat_policy::guard::{self, AddressClass, Grants};
use exeat_policy::host::Host;

/// An address that was checked and may be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckedAddr(SocketAddr);

impl CheckedAddr {
    /// The address.
    pub(crate) const fn get(self) -> SocketAddr {
        self.0
    }
}

/// What the gateway's config refuses and grants.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    grants: Grants,
    blocked_ports: Vec<u16>,
    own: OwnListeners,
}

/// The addresses that the gateway itself listens on; those of sessions come and go.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnListeners(Arc<RwLock<Vec<SocketAddr>>>);

impl OwnListeners {
    /// Adds addresses.
    pub(crate) fn add(&self, addresses: &[SocketAddr]) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).extend_from_slice(addresses);
    }

    /// Takes addresses away, where nothing listens any more.
    pub(crate) fn remove(&self, addresses: &[SocketAddr]) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).retain(|own| !addresses.contains(own));
    }
}

impl From<Vec<SocketAddr>> for OwnListeners {
    fn from(addresses: Vec<SocketAddr>) -> Self {
        Self(Arc::new(RwLock::new(addresses)))
    }
}

impl Guard {
    /// A guard with the config's grants and ports, and the addresses that the gateway itself listens on.
    pub(crate) fn new(grants: Grants, blocked_ports: Vec<u16>, own: impl Into<OwnListeners>) -> Self {
        Self { grants, blocked_ports, own: own.into() }
    }

    /// Checks what can be checked before a name is resolved.
    ///
    /// # Errors
    /// [`Reason::GuardPort`], [`Reason::GuardMetadata`] or [`Reason::GuardName`].
    pub(crate) fn check_name(&self, host: &Host, port: u16) -> Result<(), Reason> {
        if self.blocked_ports.contains(&port) {
            return Err(Reason::GuardPort);
        }
        if guard::is_metadata_name(host) {
            return Err(Reason::GuardMetadata);
        }
        if guard::is_invalid_name(host) {
            return Err(Reason::GuardName);
        }
        Ok(())
    }

    /// Checks all addresses of a name; one that is refused refuses them all.
    ///
    /// # Errors
    /// The reason, and the address it is about.
    pub(crate) fn check(&self, addresses: &[IpAddr], port: u16) -> Result<Vec<CheckedAddr>, (Reason, IpAddr)> {
        addresses
            .iter()
            .map(|&ip| match self.refusal(ip, port) {
                Some(reason) => Err((reason, ip)),
                None => Ok(CheckedAddr(SocketAddr::new(ip, port))),
            })
            .collect()
    }

    /// Checks the addresses of the next proxy. The config that names it grants them, for this alone; metadata addresses
    /// and the gateway's own listeners stay out of reach.
    ///
    /// # Errors
    /// The reason, and the address it is about.
    pub(crate) fn check_next_proxy(
        &self,
        addresses: &[IpAddr],
        port: u16,
    ) -> Result<Vec<CheckedAddr>, (Reason, IpAddr)> {
        addresses
            .iter()
            .map(|&ip| match self.refusal(ip, port).filter(|reason| *reason != Reason::GuardAddress) {
                Some(reason) => Err((reason, ip)),
                None => Ok(CheckedAddr(SocketAddr::new(ip, port))),
            })
            .collect()
    }

    fn refusal(&self, ip: IpAddr, port: u16) -> Option<Reason> {
        if self.is_own_listener(ip, port) {
            return Some(Reason::GuardSelf);
        }
        match guard::classify(ip) {
            AddressClass::Global => None,
            AddressClass::Metadata => Some(Reason::GuardMetadata),
            _ if self.grants.permits(ip) => None,
            _ => Some(Reason::GuardAddress),
        }
    }

    /// Whether `ip:port` reaches one of the gateway's own listeners. A listener on a wildcard address is reached
    /// through every address of this machine, and an address is none of them if no socket can be bound to it. Where
    /// the system does not say, for want of descriptors for example, it counts as one.
    fn is_own_listener(&self, ip: IpAddr, port: u16) -> bool {
        let ip = ip.to_canonical();
        self.own.0.read().unwrap_or_else(PoisonError::into_inner).iter().any(|own| {
            own.port() == port
                && (own.ip().to_canonical() == ip || ip.is_unspecified() || (own.ip().is_unspecified() && is_local(ip)))
        })
    }
}

fn is_local(ip: IpAddr) -> bool {
    match UdpSocket::bind((ip, 0)) {
        Ok(_) => true,
        Err(error) => error.kind() != io::ErrorKind::AddrNotAvailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(grants: &[&str], own: &[&str]) -> Guard {
        let own: Vec<SocketAddr> = own.iter().map(|text| text.parse().unwrap()).collect();
        Guard::new(Grants::parse(grants).unwrap(), vec![25], own)
    }

    fn check(guard: &Guard, address: &str) -> Result<usize, Reason> {
        let address: SocketAddr = address.parse().unwrap();
        guard.check(&[address.ip()], address.port()).map(|checked| checked.len()).map_err(|(reason, _)| reason)
    }

    #[test]
    fn special_addresses_need_a_grant_and_metadata_never_gets_one() {
        let closed = guard(&[], &[]);
        assert_eq!(check(&closed, "93.184.216.34:443"), Ok(1));
        assert_eq!(check(&closed, "127.0.0.1:80"), Err(Reason::GuardAddress));
        assert_eq!(check(&closed, "[::ffff:10.0.0.1]:80"), Err(Reason::GuardAddress));
        let open = guard(&["127.0.0.0/8", "169.254.0.0/16"], &[]);
        assert_eq!(check(&open, "127.0.0.1:80"), Ok(1));
        assert_eq!(check(&open, "10.0.0.1:80"), Err(Reason::GuardAddress));
        assert_eq!(check(&open, "169.254.169.254:80"), Err(Reason::GuardMetadata));
    }

    #[test]
    fn one_refused_address_refuses_the_name() {
        let mixed = ["93.184.216.34".parse().unwrap(), "10.0.0.1".parse().unwrap()];
        let refused = guard(&[], &[]).check(&mixed, 443);
        assert_eq!(refused, Err((Reason::GuardAddress, "10.0.0.1".parse().unwrap())));
    }

    #[test]
    fn own_listeners_are_out_of_reach_by_any_spelling() {
        for own in ["127.0.0.1:3128", "0.0.0.0:3128", "[::]:3128"] {
            let guard = guard(&["127.0.0.0/8", "::1"], &[own]);
            for address in ["127.0.0.1:3128", "[::ffff:127.0.0.1]:3128", "0.0.0.0:3128", "[::]:3128"] {
                assert_eq!(check(&guard, address), Err(Reason::GuardSelf), "{own} {address}");
            }
            assert_eq!(check(&guard, "127.0.0.1:3129"), Ok(1));
        }
    }

    #[test]
    fn the_next_proxy_needs_no_grant_and_is_still_no_metadata_service() {
        let guard = guard(&[], &["127.0.0.1:3128"]);
        let check = |address: &str| {
            let address: SocketAddr = address.parse().unwrap();
            let checked = guard.check_next_proxy(&[address.ip()], address.port());
            checked.map(|checked| checked.len()).map_err(|(reason, _)| reason)
        };
        assert_eq!(check("10.0.0.1:3128"), Ok(1));
        assert_eq!(check("127.0.0.1:8080"), Ok(1));
        assert_eq!(check("127.0.0.1:3128"), Err(Reason::GuardSelf));
        assert_eq!(check("169.254.169.254:3128"), Err(Reason::GuardMetadata));
    }

    #[test]
    fn ports_and_metadata_names_are_refused_before_resolving() {
        let guard = guard(&[], &[]);
        let check = |host: &str, port| guard.check_name(&Host::parse(host).unwrap(), port);
        assert_eq!(check("mail.test", 25), Err(Reason::GuardPort));
        assert_eq!(check("mail.test", 587), Ok(()));
        assert_eq!(check("metadata.google.internal", 80), Err(Reason::GuardMetadata));
        for (host, expected) in [
            ("invalid", Err(Reason::GuardName)),
            ("must-deny.exeat.INVALID.", Err(Reason::GuardName)),
            ("invalid.test", Ok(())),
            ("notinvalid", Ok(())),
            ("x.invalid.test", Ok(())),
        ] {
            assert_eq!(check(host, 443), expected, "{host}");
        }
    }
}
