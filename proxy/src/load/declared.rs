//! What the manifests declare, for the evidence.

use exeat_policy::manifest::{ActsAs, HeaderValueSpec, Manifest, Transport};
use exeat_policy::target::Target;

use crate::config::Config;
use crate::evidence::ServerSpec;

/// The servers that the manifests declare.
pub(super) fn servers(config: &Config, manifests: &[&Manifest]) -> Vec<ServerSpec> {
    let mut servers: Vec<ServerSpec> = Vec::new();
    for server in manifests.iter().flat_map(|manifest| &manifest.servers) {
        let entry = match &server.transport {
            Transport::Catalog { name } => config.catalog.get(&name.value),
            _ => None,
        };
        let (url, values): (Option<&str>, Vec<&HeaderValueSpec>) = match (&server.transport, entry) {
            (Transport::Http { url, headers }, _) => {
                (Some(url.value.as_str()), headers.iter().map(|header| &header.value.value).collect())
            }
            (_, Some(entry)) => {
                (Some(entry.url.value.as_str()), entry.headers.iter().map(|(_, value)| value).collect())
            }
            _ => (None, Vec::new()),
        };
        let acts_as_nobody = server.acts_as.as_ref().is_some_and(|acts_as| acts_as.value == ActsAs::None);
        let spec = ServerSpec {
            name: server.name.value.as_str().into(),
            url: url.and_then(|url| Target::parse(url).ok()),
            mode: server.protocol_mode,
            elicitation: server.elicitation_policy,
            tool_discovery: server.tool_discovery,
            bound: !acts_as_nobody && values.iter().any(|value| value.placeholder().is_some()),
        };
        servers.retain(|other| other.name != spec.name);
        servers.push(spec);
    }
    servers
}

/// The capabilities that the manifests name, each once.
pub(super) fn capabilities(manifests: &[&Manifest]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for capability in manifests.iter().flat_map(|manifest| &manifest.capabilities) {
        if !names.contains(&capability.name.value) {
            names.push(capability.name.value.clone());
        }
    }
    names
}
