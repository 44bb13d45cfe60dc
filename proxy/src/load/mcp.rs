//! What the manifests and the config hold MCP servers to, and where the local endpoints lead.

use std::collections::{BTreeMap, HashSet};

use exeat_policy::diag::{Code, Diagnostic};
use exeat_policy::manifest::{ElicitationPolicy, Manifest, ProtocolMode, Server, Transport};
use exeat_policy::pattern::{Pattern, Prefix};
use exeat_policy::target::Target;

use crate::config::Config;
use crate::mcp::policy::ServerPolicy;

/// The MCP side of what was loaded.
#[derive(Debug, Default)]
pub(crate) struct McpServers {
    /// What each server is held to. A server of an inner layer stands beside one of the same name further out: it
    /// cannot lift what that one is held to.
    pub(crate) policies: Vec<ServerPolicy>,
    /// Where the local endpoint of each server leads; the innermost layer's server counts.
    pub(crate) endpoints: BTreeMap<String, Target>,
}

/// Gathers the servers of all layers.
pub(crate) fn servers(config: &Config, manifests: &[&Manifest], problems: &mut Vec<Diagnostic>) -> McpServers {
    let mut servers = McpServers::default();
    for manifest in manifests {
        for server in &manifest.servers {
            problems.extend(not_enforced(manifest, server));
            let Some(url) = url(config, server) else { continue };
            let name = server.name.value.as_str();
            if let Ok(target) = Target::parse(url) {
                servers.endpoints.insert(name.to_owned(), target);
            }
            servers.policies.extend(prefix(url).map(|prefix| policy(config, server, prefix)));
        }
    }
    let named: HashSet<&str> =
        manifests.iter().flat_map(|manifest| &manifest.servers).map(|server| server.name.value.as_str()).collect();
    for (name, written) in config.mcp.servers.iter().filter(|(name, _)| !named.contains(name.as_str())) {
        let message = format!("no manifest has a server {name:?}");
        let help = "write the name as it stands under mcpServers, or remove the entry";
        problems.push(Diagnostic::new(Code::McpServerUnknown, &written.source, written.span, message, help));
    }
    servers
}

fn url<'c>(config: &'c Config, server: &'c Server) -> Option<&'c str> {
    match &server.transport {
        Transport::Stdio { .. } => None,
        Transport::Http { url, .. } => Some(url.value.as_str()),
        Transport::Catalog { name } => Some(config.catalog.get(&name.value)?.url.value.as_str()),
    }
}

/// The place of a server; a URL that is none was reported where its credentials were looked at.
fn prefix(url: &str) -> Option<Prefix> {
    match Pattern::parse(url.split('?').next().unwrap_or(url)) {
        Ok(Pattern::Prefix(prefix)) => Some(prefix),
        _ => None,
    }
}

fn policy(config: &Config, server: &Server, prefix: Prefix) -> ServerPolicy {
    let name = server.name.value.as_str();
    let tools = config.mcp.servers.get(name).map(|written| written.tools.clone());
    let tools: Vec<_> = tools.into_iter().filter(|tools| !tools.is_empty()).collect();
    ServerPolicy {
        server: name.into(),
        prefix,
        protocol: server.protocol_mode,
        elicitation: server.elicitation_policy,
        discovery: server.tool_discovery,
        explicit: !tools.is_empty() || !written(server).is_empty(),
        tools,
        max_body: config.mcp.max_body,
    }
}

/// The keys of a server's MCP policy that differ from the default.
fn written(server: &Server) -> Vec<&'static str> {
    let keys = [
        ("protocol_mode", server.protocol_mode != ProtocolMode::Auto),
        ("elicitation_policy", server.elicitation_policy == ElicitationPolicy::None),
        ("tool_discovery", !server.tool_discovery),
    ];
    keys.into_iter().filter(|(_, written)| *written).map(|(key, _)| key).collect()
}

/// Warns of policy for a server that no gateway stands in front of.
fn not_enforced(manifest: &Manifest, server: &Server) -> Option<Diagnostic> {
    let keys = written(server);
    let is_child = matches!(server.transport, Transport::Stdio { .. });
    (is_child && !keys.is_empty()).then(|| {
        let message = format!("{} of the child process {:?} is not enforced", keys.join(", "), server.name.value);
        let help = "reach the server over HTTP, or leave the policy to who starts it";
        Diagnostic::new(Code::NotEnforced, &manifest.source, server.span, message, help)
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Inputs, load};
    use super::*;

    fn loaded(manifests: &[&str], config: &str) -> super::super::Loaded {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: String, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let config = write("exeat.toml".to_owned(), config);
        let texts = manifests.iter().enumerate();
        let manifests =
            texts.map(|(index, text)| write(format!("{index}.toml"), &format!("name = \"a\"\n{text}"))).collect();
        load(&Inputs { config: Some(config), manifests, overrides: Vec::new() }).unwrap()
    }

    #[test]
    fn a_server_is_held_to_manifest_and_config() {
        let manifest = "[mcpServers.docs]\nurl = \"https://a.test/mcp?x=1\"\nprotocol_mode = \"stable\"\n\
                        elicitation_policy = \"none\"\ntool_discovery = false\n[mcpServers.plain]\nurl = \"https://b.test/\"\n";
        let config = "[mcp]\nmax_body = 4096\n[mcp.docs]\ntools = { deny = [\"*delete*\"] }\n";
        let loaded = loaded(&[manifest], config);
        let [docs, plain] = &loaded.mcp.policies[..] else { panic!("{:?}", loaded.mcp) };
        assert_eq!((docs.protocol, docs.elicitation), (ProtocolMode::V2025June, ElicitationPolicy::None));
        assert!(docs.explicit && !docs.discovery && !docs.permits_tool("undelete") && docs.permits_tool("x"));
        assert_eq!((docs.max_body, docs.prefix.to_string().as_str()), (4096, "https://a.test/mcp"));
        assert!(!plain.explicit && plain.elicitation == ElicitationPolicy::Url && plain.binds());
        assert_eq!(loaded.mcp.endpoints["docs"].to_string(), "https://a.test/mcp?x=1");
        assert!(!loaded.warnings.iter().any(|warning| warning.code == Code::NotEnforced));
    }

    #[test]
    fn an_inner_layer_lifts_nothing() {
        let outer = "[mcpServers.docs]\nurl = \"https://a.test/mcp\"\ntool_discovery = false\n";
        let inner = "[mcpServers.docs]\nurl = \"https://b.test/mcp\"\n";
        let loaded = loaded(&[outer, inner], "");
        assert_eq!(loaded.mcp.policies.len(), 2);
        assert!(loaded.mcp.policies[0].explicit);
        assert_eq!(loaded.mcp.endpoints["docs"].to_string(), "https://b.test/mcp");
    }

    #[test]
    fn what_nothing_holds_is_warned_about() {
        let manifest = "[mcpServers.child]\ncommand = \"x\"\nprotocol_mode = \"2025-03-26\"\n";
        let loaded = loaded(&[manifest], "[mcp.other]\ntools = { allow = [\"x\"] }\n");
        let codes: Vec<_> = loaded.warnings.iter().map(|warning| warning.code).collect();
        assert!(codes.contains(&Code::NotEnforced) && codes.contains(&Code::McpServerUnknown), "{codes:?}");
        assert!(loaded.mcp.policies.is_empty() && loaded.mcp.endpoints.is_empty());
    }
}
