//! From a permitted name to its addresses.
//!
//! Names are asked for fully qualified, never through a search list, so that what policy judged is what is looked up.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use exeat_policy::Reason;
use exeat_policy::guard;
use exeat_policy::host::Host;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::RData;
use tokio::sync::OnceCell;

use super::failure::Failure;

/// The longest that a name counts as one without addresses, whatever its zone says: names that are being set up come
/// soon.
const NEGATIVE_TTL: Duration = Duration::from_secs(5);

/// Finds the addresses of names.
#[derive(Debug)]
pub(crate) struct Resolver {
    hosts: BTreeMap<String, Vec<IpAddr>>,
    servers: Vec<SocketAddr>,
    // Made when the first name is asked for: reading the system's settings is no part of starting.
    dns: OnceCell<TokioResolver>,
}

impl Resolver {
    /// Fixed names, and the servers to ask for all others; none for those of the system.
    pub(crate) fn new(hosts: BTreeMap<String, Vec<IpAddr>>, servers: Vec<SocketAddr>) -> Self {
        Self { hosts, servers, dns: OnceCell::new() }
    }

    /// The addresses that `host` has without being asked for: an address literal is its own answer, and some names are
    /// fixed by the config.
    pub(super) fn known(&self, host: &Host) -> Option<Vec<IpAddr>> {
        match host.ip() {
            Some(ip) => Some(vec![ip]),
            None => self.hosts.get(host.as_str()).cloned(),
        }
    }

    /// All addresses of `host`.
    pub(super) async fn lookup(&self, host: &Host) -> Result<Vec<IpAddr>, Failure> {
        if let Some(addresses) = self.known(host) {
            return Ok(addresses);
        }
        let name = host.as_str();
        let dns = self.dns.get_or_try_init(|| async { build(&self.servers) }).await.map_err(|error| failed(&error))?;
        let found = dns.lookup_ip(format!("{name}.")).await.map_err(|error| failed(&error))?;
        for record in found.as_lookup().answers() {
            if let RData::CNAME(alias) = &record.data
                && Host::parse(&alias.0.to_ascii()).is_ok_and(|alias| guard::is_metadata_name(&alias))
            {
                return Err(Failure::new(
                    Reason::GuardMetadata,
                    Reason::GuardMetadata.text(),
                    format_args!("{name} is an alias of {}", alias.0),
                ));
            }
        }
        let addresses: Vec<IpAddr> = found.iter().collect();
        if addresses.is_empty() {
            return Err(Failure::no_addresses());
        }
        Ok(addresses)
    }
}

fn failed(error: &NetError) -> Failure {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) if none.response_code == ResponseCode::NXDomain => {
            Failure::new(Reason::DnsNotFound, Reason::DnsNotFound.text(), error)
        }
        NetError::Dns(DnsError::NoRecordsFound(_)) => Failure::no_addresses(),
        NetError::Dns(DnsError::ResponseCode(code)) => {
            Failure::resolve(format_args!("the name server answered {code:?}"), error)
        }
        NetError::Timeout => Failure::resolve_timeout(),
        NetError::NoConnections | NetError::Io(_) => Failure::resolve("no name server could be reached", error),
        _ => Failure::new(Reason::DnsFailed, Reason::DnsFailed.text(), error),
    }
}

fn build(servers: &[SocketAddr]) -> Result<TokioResolver, NetError> {
    let provider = TokioRuntimeProvider::default();
    let mut builder = if servers.is_empty() {
        TokioResolver::builder(provider)?
    } else {
        let servers = servers.iter().map(|server| {
            let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
                connection.port = server.port();
                connection
            });
            NameServerConfig::new(server.ip(), true, connections.into())
        });
        TokioResolver::builder_with_config(ResolverConfig::from_name_servers(servers.collect()), provider)
    };
    let options = builder.options_mut();
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.timeout = Duration::from_secs(3);
    options.attempts = 2;
    options.preserve_intermediates = true;
    options.negative_max_ttl = Some(NEGATIVE_TTL);
    if !servers.is_empty() {
        options.use_hosts_file = ResolveHosts::Never;
    }
    builder.build()
}
