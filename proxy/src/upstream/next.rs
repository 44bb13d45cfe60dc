//! The next proxy: the way out where the network lets nothing go directly.
//!
//! A tunnel through it is opened by CONNECT (RFC 9110 section 9.3.6) or SOCKS5 (RFC 1928), for plain requests as for
//! all others, so that upstream's end of it is upstream's own. It resolves the names. What the guard can check without
//! asking for a name is still checked here: address literals and the fixed addresses of `[dns] hosts`, which are also
//! passed on as addresses. The next proxy's own address is dialled through the guard like every other.

mod connect;
mod socks;

use std::net::{IpAddr, SocketAddr};

use exeat_policy::Reason;
use exeat_policy::host::Host;
use exeat_policy::pattern::Pattern;
use http::HeaderValue;
use tokio::net::TcpStream;

use super::failure::Failure;
use super::{Route, dial};
use crate::config::{self, NextProxyProtocol};
use crate::credentials::Stored;
use crate::guard::Guard;
use crate::permit::Origin;

/// The next proxy, and what is not sent through it.
#[derive(Debug)]
pub(crate) struct NextProxy {
    address: config::NextProxy,
    except: Vec<Pattern>,
    authorization: Option<Stored>,
}

/// Where the next proxy is asked to lead.
#[derive(Clone, Copy, Debug)]
enum Destination<'a> {
    /// A checked address.
    Address(SocketAddr),
    /// A name that the next proxy resolves.
    Name(&'a Host, u16),
}

impl NextProxy {
    /// The next proxy of a config, if it has one.
    pub(crate) fn of(config: &config::Upstream) -> Option<Self> {
        let address = config.proxy.clone()?;
        let authorization = config.proxy_authorization.as_ref().map(Stored::new);
        Some(Self { address, except: config.no_proxy.clone(), authorization })
    }

    /// Whether a host is reached through it. `known` are the addresses that the host has without being resolved; this
    /// machine's own are reached directly, since they would be the next proxy's own behind it.
    pub(super) fn leads_to(&self, host: &Host, known: Option<&[IpAddr]>) -> bool {
        let is_loopback = known.is_some_and(|known| known.iter().any(|ip| ip.to_canonical().is_loopback()));
        !is_loopback && !self.except.iter().any(|pattern| covers(pattern, host))
    }

    /// Opens a tunnel to a permitted origin.
    pub(super) async fn open(
        &self,
        route: &Route,
        origin: &Origin,
        known: Option<&[IpAddr]>,
    ) -> Result<TcpStream, Failure> {
        let destination = match known {
            None => Destination::Name(&origin.host, origin.port),
            Some(known) => {
                let checked = route.check(&origin.host, known, origin.port)?;
                let Some(first) = checked.first() else { return Err(Failure::no_addresses()) };
                Destination::Address(first.get())
            }
        };
        let config::NextProxy { protocol, host, port } = &self.address;
        let addresses = route.resolve(host).await.map_err(unreachable)?;
        let checked = route
            .guard
            .check_next_proxy(&addresses, *port)
            .map_err(|(reason, address)| Failure::refused_address(reason, host, address))?;
        let mut stream = dial::connect(&checked).await.map_err(unreachable)?;
        let credentials = self.credentials()?;
        match protocol {
            NextProxyProtocol::Http => connect::open(&mut stream, destination, credentials.as_ref()).await?,
            NextProxyProtocol::Socks5 => socks::open(&mut stream, destination, credentials.as_ref()).await?,
        }
        Ok(stream)
    }

    /// Whether a tunnel that leads through `address` still may.
    pub(super) fn still_serves(&self, guard: &Guard, address: IpAddr) -> bool {
        guard.check_next_proxy(&[address], self.address.port).is_ok()
    }

    fn credentials(&self) -> Result<Option<HeaderValue>, Failure> {
        let Some(stored) = &self.authorization else { return Ok(None) };
        let unusable = |error| {
            let outside = "the credentials for the next proxy cannot be used now";
            Failure::new(Reason::CredentialUnavailable, outside, format_args!("upstream.proxy_authorization: {error}"))
        };
        stored.header_value().map(Some).map_err(unusable)
    }
}

fn covers(pattern: &Pattern, host: &Host) -> bool {
    match pattern {
        Pattern::Host(named) => named == host,
        Pattern::Domain(domain) => {
            let above = host.as_str().strip_suffix(domain.as_str());
            host.ip().is_none() && above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
        }
        Pattern::Prefix(_) => false,
    }
}

/// A failure to get to the next proxy, which is no fault of the server that was asked for.
fn unreachable(Failure { reason, outside, inside }: Failure) -> Failure {
    if reason == Reason::ConnectionLimit {
        return Failure { reason, outside, inside };
    }
    Failure::new(Reason::UpstreamProxy, format!("{}: {outside}", Reason::UpstreamProxy.text()), inside)
}

/// A refusal of the next proxy, or an answer of it that cannot be read.
fn refused(detail: impl std::fmt::Display) -> Failure {
    let detail = format!("{}: {detail}", Reason::UpstreamProxy.text());
    Failure::new(Reason::UpstreamProxy, detail.clone(), detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_and_this_machine_are_reached_directly() {
        let config = config::Upstream {
            proxy: Some(config::NextProxy {
                protocol: NextProxyProtocol::Http,
                host: Host::parse("proxy.test").unwrap(),
                port: 3128,
            }),
            no_proxy: ["near.test", "*.lan.test", "192.0.2.1"].map(|text| Pattern::parse(text).unwrap()).into(),
            ..config::Upstream::default()
        };
        let next = NextProxy::of(&config).unwrap();
        for (host, known, expected) in [
            ("far.test", None, true),
            ("near.test", None, false),
            ("sub.near.test", None, true),
            ("lan.test", None, false),
            ("a.b.lan.test", None, false),
            ("notlan.test", None, true),
            ("192.0.2.1", Some("192.0.2.1"), false),
            ("192.0.2.2", Some("192.0.2.2"), true),
            ("127.0.0.1", Some("127.0.0.1"), false),
            ("[::ffff:127.0.0.1]", Some("::ffff:127.0.0.1"), false),
            ("here.test", Some("127.9.9.9"), false),
        ] {
            let known = known.map(|ip| vec![ip.parse().unwrap()]);
            assert_eq!(next.leads_to(&Host::parse(host).unwrap(), known.as_deref()), expected, "{host}");
        }
        assert!(NextProxy::of(&config::Upstream::default()).is_none());
    }
}
