//! The manifest's named `capabilities`, as far as a gateway can speak of them.
//!
//! They belong to the agent's host. What the gateway knows is whether one needs the network, and what the policy leaves
//! of it; of a name it does not know it says so, and never that it is ready.

use exeat_policy::{ListKind, Policy};

use super::report::{Capability, Status};

/// Capabilities whose whole work is to reach the network.
const NEED_THE_NETWORK: &[&str] =
    &["browser", "fetch", "http", "http_request", "web", "web_browser", "web_fetch", "web_search"];

/// What the policy leaves of a named capability.
pub(crate) fn assess(name: &str, policy: &Policy) -> Capability {
    let (status, reason) = if !NEED_THE_NETWORK.contains(&name) {
        (Status::Unsupported, "unknown_to_the_gateway".to_owned())
    } else if policy.restricts() {
        let rule = policy.rules().find(|rule| rule.list == ListKind::Allowed);
        let place = rule.map(|rule| format!("{}:{}", rule.rule.file, rule.rule.line)).unwrap_or_default();
        (Status::Degraded, format!("restricted by network_access ({place})"))
    } else {
        (Status::Ready, "unrestricted".to_owned())
    };
    Capability {
        name: name.to_owned(),
        status,
        reason,
        detected_version: None,
        protocol_version: None,
        transport: None,
    }
}

#[cfg(test)]
mod tests {
    use exeat_policy::policy::{DefaultVerdict, Layer};
    use exeat_policy::{Diagnostic, Manifest, Source};

    use super::*;

    fn policy(text: &str) -> Policy {
        let (manifest, found): (_, Vec<Diagnostic>) =
            Manifest::read(&Source::new("agent.toml", text), exeat_policy::doc::Format::Toml);
        let layer: Layer = manifest.unwrap_or_else(|| panic!("{found:?}")).layer("agent");
        Policy::build(vec![layer], DefaultVerdict::Allow).unwrap()
    }

    #[test]
    fn network_capabilities_name_what_restricts_them_and_unknown_ones_are_never_ready() {
        let restricted = policy("name = \"a\"\n[network_access]\nallowed = [\"docs.test\"]\n");
        let open = policy("name = \"a\"\n");
        let of = |name, policy| {
            let Capability { status, reason, .. } = assess(name, policy);
            (status, reason)
        };
        let expected = (Status::Degraded, "restricted by network_access (agent.toml:3)".to_owned());
        assert_eq!(of("web_fetch", &restricted), expected);
        assert_eq!(of("web_fetch", &open), (Status::Ready, "unrestricted".to_owned()));
        assert_eq!(of("calculator", &open).0, Status::Unsupported);
    }
}
