//! `[dns]` and `[admin]`: addresses and names.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use exeat_policy::diag::Code;
use exeat_policy::doc::{Field, Fields, Value, quoted};
use exeat_policy::host::Host;

use super::{Layer, duration, one_or_more, refuse, set, sources};
use crate::config::{Admin, AdminListen, Dns};

/// Where DNS servers listen (RFC 1035, section 4.2).
const DNS_PORT: u16 = 53;
const LONGEST_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn admin(mut fields: Fields<'_>, layer: &Layer<'_>, to: &mut Admin) {
    let help = "write an address and a port, such as \"127.0.0.1:9180\", \"unix:/path\", or \"off\"";
    set(&mut to.listen, fields.parsed("listen", help, |text| admin_listener(text, layer.folder)));
    if let Some(token) = fields.take("token").and_then(|field| sources::secret(field, layer)) {
        to.token = Some(token);
    }
    let range = Duration::ZERO..=LONGEST_INTERVAL;
    if let Some(interval) = fields.take("readiness_interval").and_then(|field| duration::field(&field, &range)) {
        to.readiness_interval = (!interval.is_zero()).then_some(interval);
    }
    fields.finish();
}

fn admin_listener(text: &str, folder: &Path) -> Result<Option<AdminListen>, String> {
    match text.strip_prefix("unix:") {
        Some("") => Err("expected the path of a socket behind `unix:`, found nothing".to_owned()),
        Some(path) => Ok(Some(AdminListen::Unix(folder.join(path)))),
        None => Ok(listener_or_off(text)?.map(AdminListen::Tcp)),
    }
}

pub(super) fn listener_or_off(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "off" { Ok(None) } else { listener(text).map(Some) }
}

pub(super) fn listener(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("expected an IP address with a port, found {}", quoted(text)))
}

pub(super) fn dns(mut fields: Fields<'_>, to: &mut Dns) {
    if let Some(names) = fields.table("hosts") {
        hosts(names, &mut to.hosts);
    }
    if let Some(servers) = fields.take("servers").and_then(Field::items) {
        let help = "write an address, with a port if it is not 53: \"192.0.2.53\" or \"[2001:db8::53]:5353\"";
        to.servers = servers.filter_map(|item| item.parsed(help, server)).map(|server| server.value).collect();
    }
    fields.finish();
}

fn hosts(names: Fields<'_>, to: &mut BTreeMap<String, Vec<IpAddr>>) {
    // Two spellings of a name in one table are a contradiction; in two layers, the later one holds.
    let mut read: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    let problems = names.problems();
    for (written, field) in names.rest() {
        let name = match host_name(&written.value) {
            Ok(name) => name,
            Err(error) => {
                let message = format!("`dns.hosts`: {error}");
                problems.report(Code::BadValue, written.span, message, "write a host name, such as \"db.internal\"");
                continue;
            }
        };
        let Some(addresses) = addresses(field) else { continue };
        if read.contains_key(&name) {
            let message =
                format!("{} is another spelling of a name that stands in `dns.hosts`", quoted(&written.value));
            problems.report(Code::DuplicateKey, written.span, message, "keep one of them, with all its addresses");
            continue;
        }
        read.insert(name, addresses);
    }
    to.extend(read);
}

/// The canonical spelling of a name; an address has no need of one.
fn host_name(text: &str) -> Result<String, String> {
    if text.contains('*') {
        return Err(format!("expected one name, found the wildcard {}", quoted(text)));
    }
    let host = Host::parse(text).map_err(|error| format!("{error} in {}", quoted(text)))?;
    match host.ip() {
        Some(_) => Err(format!("expected a name, found the address {}", quoted(text))),
        None => Ok(host.as_str().to_owned()),
    }
}

fn addresses(field: Field<'_>) -> Option<Vec<IpAddr>> {
    let help = "write an address, such as \"192.0.2.1\" or \"2001:db8::1\"";
    if let Value::Table(_) = field.node().value {
        let help = "write a name with dots in quotes, such as { \"db.internal\" = \"192.0.2.1\" }";
        refuse(&field, Code::WrongType, "expected an address or a list of addresses, found a table", help);
        return None;
    }
    let items = one_or_more(field.clone());
    if items.is_empty() {
        refuse(&field, Code::BadValue, "expected at least one address, found an empty list", help);
        return None;
    }
    let parse =
        |text: &str| text.parse::<IpAddr>().map_err(|_| format!("expected an IP address, found {}", quoted(text)));
    Some(items.into_iter().filter_map(|item| item.parsed(help, parse)).map(|address| address.value).collect())
}

fn server(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, DNS_PORT)).or_else(|_| text.parse());
    match address {
        Ok(address) if address.port() == 0 => Err(format!("expected a port from 1, found {}", quoted(text))),
        Ok(address) => Ok(address),
        Err(_) => Err(format!("expected the IP address of a DNS server, found {}", quoted(text))),
    }
}
