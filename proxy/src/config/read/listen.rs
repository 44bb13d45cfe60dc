//! `[listen]`: the ways in, and who may use them.

use std::collections::BTreeMap;

use exeat_policy::diag::Code;
use exeat_policy::doc::{Field, Fields, quoted};
use exeat_policy::guard::AddressRange;

use super::network::listener;
use super::{Layer, WrittenFile, set, sources};
use crate::config::{Auth, Listen, SecretSource};

/// The longest name of a user: what a client of SOCKS5 can say (RFC 1929 section 2).
const MAX_NAME: usize = 255;

/// The files for TLS as far as they are written: they need each other, whichever layers they stand in.
#[derive(Debug, Default)]
pub(super) struct TlsFiles {
    pub(super) cert: Option<WrittenFile>,
    pub(super) key: Option<WrittenFile>,
    pub(super) client_ca: Option<WrittenFile>,
}

pub(super) fn listen(mut fields: Fields<'_>, layer: &Layer<'_>, to: &mut Listen, tls: &mut TlsFiles) {
    let help = "write an address and a port, such as \"127.0.0.1:3128\" or \"[::1]:3128\"; port 0 picks a free one";
    set(&mut to.proxy, fields.parsed("proxy", help, listener));
    if let Some(path) = fields.take("unix").and_then(|field| layer.path(field)) {
        to.unix = Some(path);
    }
    for (name, file) in [("tls_cert", &mut tls.cert), ("tls_key", &mut tls.key), ("client_ca", &mut tls.client_ca)] {
        if let Some(field) = fields.take(name) {
            *file = Some(WrittenFile::read(field, layer));
        }
    }
    if let Some(ranges) = fields.take("proxy_protocol").and_then(Field::items) {
        let help = "write the address of the load balancer, or a range such as \"10.0.0.0/8\"";
        let ranges = ranges.filter_map(|item| item.parsed(help, str::parse::<AddressRange>));
        to.proxy_protocol = ranges.map(|range| range.value).collect();
    }
    if let Some(field) = fields.take("auth") {
        auth(field, layer, &mut to.auth);
    }
    fields.finish();
}

fn auth(field: Field<'_>, layer: &Layer<'_>, to: &mut Auth) {
    let Some(mut fields) = field.clone().fields() else { return };
    let mut written = 0;
    for (key, accounts) in [("users", &mut to.users), ("tokens", &mut to.tokens)] {
        let Some(names) = fields.table(key) else { continue };
        for (name, field) in names.rest() {
            written += 1;
            self::account(&name.value, field, layer, accounts);
        }
    }
    if written == 0 {
        // Whoever writes the section means the gateway to be closed; nobody in it would leave it open.
        field.report(
            Code::BadValue,
            "`listen.auth`: expected a user or a token, found none",
            "name one, such as users.agent = { env = \"AGENT_PASSWORD\" }, or remove the section",
        );
    }
    fields.finish();
}

fn account(name: &str, field: Field<'_>, layer: &Layer<'_>, to: &mut BTreeMap<String, SecretSource>) {
    let odd = |character: char| character == ':' || character.is_control();
    if name.is_empty() || name.len() > MAX_NAME || name.contains(odd) {
        let message = format!("{}: {} is no name of a user", quoted("listen.auth"), quoted(name));
        let help = "write a name of 1 to 255 bytes without `:` and control characters";
        layer.problems.report(Code::BadValue, field.key_span(), message, help);
    } else if let Some(binding) = sources::secret(field, layer) {
        to.insert(name.to_owned(), binding);
    }
}
