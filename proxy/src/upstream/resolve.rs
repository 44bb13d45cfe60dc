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
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use tokio::sync::OnceCell;

use super::failure::Failure;

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

    /// All addresses of `host`. An address literal is its own answer.
    pub(super) async fn lookup(&self, host: &Host) -> Result<Vec<IpAddr>, Failure> {
        if let Some(ip) = host.ip() {
            return Ok(vec![ip]);
        }
        let name = host.as_str();
        if let Some(addresses) = self.hosts.get(name) {
            return Ok(addresses.clone());
        }
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
            return Err(Failure::new(Reason::DnsNotFound, Reason::DnsNotFound.text(), "no addresses"));
        }
        Ok(addresses)
    }
}

fn failed(error: &NetError) -> Failure {
    let reason = if error.is_no_records_found() { Reason::DnsNotFound } else { Reason::DnsFailed };
    Failure::new(reason, reason.text(), error)
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
    if !servers.is_empty() {
        options.use_hosts_file = ResolveHosts::Never;
    }
    builder.build()
}
