//! `[upstream]`: the CAs of upstream servers, and the proxy that they are reached through.

use exeat_policy::diag::Code;
use exeat_policy::doc::{Field, Fields, quoted};
use exeat_policy::pattern::Pattern;
use exeat_policy::target::Authority;

use super::{Layer, one_or_more, refuse, sources};
use crate::config::{NextProxy, NextProxyProtocol, Upstream};

/// What the next proxy may look like, for help.
const PROXIES: &str = "write \"http://host:port\", \"socks5h://host:port\", or \"off\"";

pub(super) fn upstream(mut fields: Fields<'_>, layer: &Layer<'_>, to: &mut Upstream) {
    if let Some(field) = fields.take("ca") {
        to.ca = one_or_more(field).into_iter().filter_map(|item| layer.path(item)).collect();
    }
    if let Some(proxy) = fields.take("proxy").and_then(next_proxy) {
        to.proxy = proxy;
    }
    if let Some(binding) = fields.take("proxy_authorization").and_then(|field| sources::secret(field, layer)) {
        to.proxy_authorization = Some(binding);
    }
    if let Some(field) = fields.take("no_proxy") {
        to.no_proxy = one_or_more(field).into_iter().filter_map(exception).collect();
    }
    fields.finish();
}

/// Reads the URL of the next proxy, or `off`. A URL with userinfo is refused before any of it is quoted.
fn next_proxy(field: Field<'_>) -> Option<Option<NextProxy>> {
    let text = field.str()?.value;
    if text == "off" {
        return Some(None);
    }
    if text.contains('@') {
        let help = "write the URL without them, and proxy_authorization = { env = \"VARIABLE\" } beside it";
        refuse(&field, Code::LiteralCredential, "expected a URL without credentials", help);
        return None;
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        refuse(&field, Code::BadValue, format_args!("expected a URL, found {}", quoted(text)), PROXIES);
        return None;
    };
    let protocol = match scheme {
        "http" => NextProxyProtocol::Http,
        "socks5h" => NextProxyProtocol::Socks5,
        "socks5" => {
            let help = format!("write \"socks5h://{rest}\": the next proxy resolves the names");
            refuse(&field, Code::BadValue, "expected a scheme that is served, found `socks5`", help);
            return None;
        }
        other => {
            let found = format_args!("expected a scheme that is served, found {}", quoted(other));
            refuse(&field, Code::BadValue, found, PROXIES);
            return None;
        }
    };
    match Authority::parse(rest.strip_suffix('/').unwrap_or(rest)) {
        Ok(authority) => Some(Some(NextProxy { protocol, host: authority.host().clone(), port: authority.port() })),
        Err(error) => {
            refuse(&field, Code::BadValue, error, PROXIES);
            None
        }
    }
}

fn exception(field: Field<'_>) -> Option<Pattern> {
    let text = field.str()?.value;
    match Pattern::parse(text) {
        Ok(Pattern::Prefix(prefix)) => {
            let help = format!("write {:?}", prefix.host().as_str());
            refuse(&field, Code::Pattern, format_args!("expected a host or a domain, found {}", quoted(text)), help);
            None
        }
        Ok(pattern) => Some(pattern),
        Err(error) => {
            refuse(&field, Code::Pattern, &error.message, error.help.clone());
            None
        }
    }
}
