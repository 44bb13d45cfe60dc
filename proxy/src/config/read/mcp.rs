//! `[mcp]`: the local endpoints, and what servers are held to beside the manifest's own words.

use std::ops::RangeInclusive;
use std::sync::Arc;

use exeat_policy::diag::Code;
use exeat_policy::doc::{Field, Fields, quoted};
use exeat_policy::globs::NameGlobs;
use exeat_policy::host::Host;

use super::network::listener_or_off;
use super::{Layer, credentials, refuse, set};
use crate::config::{Mcp, McpServer, RedactKeys};

/// From a size below which ordinary messages are refused to one that no message has.
const MAX_BODY: RangeInclusive<usize> = 1_024..=1_073_741_824;

pub(super) fn mcp(mut fields: Fields<'_>, layer: &Layer<'_>, to: &mut Mcp) {
    let help = "write an address and a port, such as \"127.0.0.1:3129\", or \"off\"; port 0 picks a free one";
    set(&mut to.listen, fields.parsed("listen", help, listener_or_off));
    if let Some(hosts) = fields.take("hosts").and_then(Field::items) {
        to.hosts =
            hosts.filter_map(|host| host.parsed("write a name such as \"exeat\"", name)).map(|it| it.value).collect();
    }
    set(&mut to.max_body, fields.integer("max_body", MAX_BODY));
    for (name, field) in fields.take_tables() {
        let span = name.span;
        let Some(mut fields) = field.fields() else { continue };
        let redact = credentials::redact(&mut fields);
        // An entry says something, or it is not what it was meant to be.
        let field = if redact == RedactKeys::default() { fields.required("tools") } else { fields.take("tools") };
        let tools = match field {
            Some(field) => tools(field),
            None => (redact != RedactKeys::default()).then(NameGlobs::default),
        };
        fields.finish();
        if let Some(tools) = tools {
            let source = Arc::clone(layer.problems.source());
            to.servers.insert(name.value, McpServer { tools, redact, source, span });
        }
    }
    fields.finish();
}

fn name(text: &str) -> Result<Host, String> {
    Host::parse(text).map_err(|error| format!("{error} in {}", quoted(text)))
}

/// Reads `{ allow = […], deny = […] }`; every glob that cannot be read is reported.
fn tools(field: Field<'_>) -> Option<NameGlobs> {
    let mut fields = field.clone().fields()?;
    let mut good = true;
    let mut lists = ["allow", "deny"].map(|key| {
        let items = fields.take(key).and_then(Field::items).into_iter().flatten();
        let globs: Vec<String> = items
            .filter_map(|item| {
                let glob = item.str()?.value.to_owned();
                if let Err(error) = NameGlobs::new(&[&glob], &[] as &[&str]) {
                    good = false;
                    refuse(&item, Code::BadValue, error, "write a name, or a glob such as \"search_*\"");
                }
                Some(glob)
            })
            .collect();
        globs
    });
    fields.finish();
    let [allow, deny] = &mut lists;
    if allow.is_empty() && deny.is_empty() {
        // Whoever writes the key means to restrict something; an empty list would restrict nothing.
        let help = "write the tools that may be used, such as { allow = [\"search_*\"] }, or remove the entry";
        refuse(&field, Code::BadValue, "expected globs in `allow` or `deny`, found none", help);
        return None;
    }
    NameGlobs::new(allow, deny).ok().filter(|_| good)
}
