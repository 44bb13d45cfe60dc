//! What a server is held to, and which requests that concerns.

use std::collections::HashMap;
use std::sync::Arc;

use exeat_policy::globs::NameGlobs;
use exeat_policy::host::Host;
use exeat_policy::manifest::{ElicitationPolicy, ProtocolMode};
use exeat_policy::pattern::Prefix;
use exeat_policy::target::{Authority, Scheme, Target};

/// What one server is held to.
#[derive(Clone, Debug)]
pub(crate) struct ServerPolicy {
    /// The manifest's name of the server.
    pub(crate) server: Arc<str>,
    /// Where it is.
    pub(crate) prefix: Prefix,
    /// The revisions that are spoken.
    pub(crate) protocol: ProtocolMode,
    /// In which ways the server may ask the user something.
    pub(crate) elicitation: ElicitationPolicy,
    /// Whether tools may be listed.
    pub(crate) discovery: bool,
    /// The tools that may be seen and called: those that every one of these permits.
    pub(crate) tools: Vec<NameGlobs>,
    /// Whether anything of this is written, and not just the default. Then what cannot be judged is refused; by default
    /// what surely is no message passes.
    pub(crate) explicit: bool,
    /// The largest message that is held to be judged, in bytes.
    pub(crate) max_body: usize,
}

impl ServerPolicy {
    /// Whether there is anything to hold the server to.
    pub(crate) fn binds(&self) -> bool {
        self.explicit || self.elicitation != ElicitationPolicy::UrlAndForm
    }

    /// Whether a tool may be seen and called.
    pub(crate) fn permits_tool(&self, name: &str) -> bool {
        self.tools.iter().all(|globs| globs.permits(name))
    }

    /// Whether some tools may not be called.
    pub(crate) fn restricts_tools(&self) -> bool {
        !self.tools.is_empty()
    }

    /// The pinned revision, if it is one of sessions.
    pub(crate) fn session_pin(&self) -> Option<&'static str> {
        self.protocol.pinned().filter(|revision| *revision != super::STATELESS)
    }

    /// Whether the revision in which requests stand alone is pinned.
    pub(crate) fn is_stateless(&self) -> bool {
        self.protocol == ProtocolMode::V2026July
    }

    /// What both hold a server to that is at the place of both; name and place are this one's.
    fn meet(&self, other: &Self) -> Self {
        let rank = |policy: ElicitationPolicy| match policy {
            ElicitationPolicy::None => 0,
            ElicitationPolicy::Url => 1,
            ElicitationPolicy::UrlAndForm => 2,
        };
        let narrower = std::cmp::min_by_key(self.elicitation, other.elicitation, |policy| rank(*policy));
        Self {
            protocol: if self.protocol == ProtocolMode::Auto { other.protocol } else { self.protocol },
            elicitation: narrower,
            discovery: self.discovery && other.discovery,
            tools: [&*self.tools, &*other.tools].concat(),
            explicit: self.explicit || other.explicit,
            ..self.clone()
        }
    }
}

/// The policy that a request is judged by.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// What its server is held to.
    pub(crate) policy: Arc<ServerPolicy>,
    /// Whether the request is for the server's very URL, and not for something below it, where a server may have other
    /// services than MCP.
    pub(crate) exact: bool,
}

impl Found {
    /// Whether what cannot be judged is refused.
    pub(crate) fn is_strict(&self) -> bool {
        self.policy.explicit && self.exact
    }
}

/// The policies of all servers.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    by_host: HashMap<Host, Vec<Arc<ServerPolicy>>>,
}

impl Policies {
    /// Takes those that bind.
    pub(crate) fn new(policies: Vec<ServerPolicy>) -> Self {
        let mut by_host: HashMap<Host, Vec<Arc<ServerPolicy>>> = HashMap::new();
        for policy in policies.into_iter().filter(ServerPolicy::binds) {
            by_host.entry(policy.prefix.host().clone()).or_default().push(Arc::new(policy));
        }
        for policies in by_host.values_mut() {
            policies.sort_by_key(|policy| std::cmp::Reverse(policy.prefix.path().len()));
        }
        Self { by_host }
    }

    /// Whether a tunnel to `authority` may carry requests that are to be judged, so that it has to be inspected. The
    /// default alone is no reason to open a tunnel: it holds where requests are read anyway.
    pub(crate) fn concerns(&self, authority: &Authority) -> bool {
        let Some(policies) = self.by_host.get(authority.host()) else { return false };
        policies.iter().any(|policy| {
            policy.explicit
                && [Scheme::Http, Scheme::Https]
                    .iter()
                    .any(|scheme| is_same_server(&policy.prefix, *scheme, authority.port()))
        })
    }

    /// The policy for a request. A server is told by its host and the path that any server could make of the request's,
    /// over either scheme: what is a restriction must hold however it is spelt. Where several are at one place, all of
    /// them hold.
    pub(crate) fn find(&self, target: &Target) -> Option<Found> {
        let policies = self.by_host.get(target.host())?;
        let mut found = policies.iter().filter(|policy| {
            is_same_server(&policy.prefix, target.scheme(), target.port()) && target.may_be_within(policy.prefix.path())
        });
        let first = found.next()?;
        let exact = target.may_be(first.prefix.path());
        let mut policy = Arc::clone(first);
        for other in found {
            policy = Arc::new(policy.meet(other));
        }
        Some(Found { policy, exact })
    }
}

/// Whether scheme and port lead to the server of a prefix: its port, or the other scheme's default for its own.
fn is_same_server(prefix: &Prefix, scheme: Scheme, port: u16) -> bool {
    let is_default = prefix.port() == prefix.scheme().default_port();
    port == prefix.port() || (is_default && port == scheme.default_port())
}

#[cfg(test)]
pub(crate) mod tests {
    use exeat_policy::pattern::Pattern;

    use super::*;

    /// A policy that holds a server at `url` to nothing.
    pub(crate) fn open(url: &str) -> ServerPolicy {
        let Ok(Pattern::Prefix(prefix)) = Pattern::parse(url) else { panic!("{url}") };
        ServerPolicy {
            server: "docs".into(),
            prefix,
            protocol: ProtocolMode::Auto,
            elicitation: ElicitationPolicy::UrlAndForm,
            discovery: true,
            tools: Vec::new(),
            explicit: false,
            max_body: 64 * 1024,
        }
    }

    fn globs(allow: &[&str], deny: &[&str]) -> NameGlobs {
        NameGlobs::new(allow, deny).unwrap()
    }

    #[test]
    fn a_policy_is_found_however_its_url_is_spelt() {
        let policies = Policies::new(vec![ServerPolicy { explicit: true, ..open("https://mcp.test/mcp") }]);
        for (url, expected) in [
            ("https://mcp.test/mcp", Some(true)),
            ("https://MCP.test./mcp/", Some(true)),
            ("https://mcp.test/mcp?x=1", Some(true)),
            ("https://mcp.test/MCP", Some(true)),
            ("https://mcp.test/%6dcp", Some(true)),
            ("https://mcp.test/x/..%2fmcp", Some(true)),
            ("https://mcp.test//mcp", Some(true)),
            ("https://mcp.test/mcp;a=b", Some(true)),
            ("https://mcp.test/%256dcp", Some(true)),
            ("http://mcp.test/mcp", Some(true)),
            ("http://mcp.test:443/mcp", Some(true)),
            ("https://mcp.test/mcp/below", Some(false)),
            ("https://mcp.test/mcpx", None),
            ("https://mcp.test/", None),
            ("https://mcp.test:8443/mcp", None),
            ("https://other.test/mcp", None),
        ] {
            let found = policies.find(&Target::parse(url).unwrap());
            assert_eq!(found.map(|found| found.exact), expected, "{url}");
        }
    }

    #[test]
    fn where_policies_meet_all_of_them_hold() {
        let outer = ServerPolicy {
            protocol: ProtocolMode::V2025June,
            elicitation: ElicitationPolicy::None,
            tools: vec![globs(&[], &["*delete*"])],
            explicit: true,
            ..open("https://mcp.test/")
        };
        let inner = ServerPolicy {
            server: "inner".into(),
            discovery: false,
            tools: vec![globs(&["get_*", "delete_*"], &[])],
            explicit: true,
            ..open("https://mcp.test/mcp")
        };
        let policies = Policies::new(vec![outer, inner]);
        let found = policies.find(&Target::parse("https://mcp.test/mcp").unwrap()).unwrap().policy;
        assert_eq!(&*found.server, "inner");
        assert_eq!((found.protocol, found.elicitation), (ProtocolMode::V2025June, ElicitationPolicy::None));
        assert!(!found.discovery && found.permits_tool("get_x"));
        assert!(!found.permits_tool("delete_x") && !found.permits_tool("put_x"));
    }

    #[test]
    fn a_tunnel_is_opened_for_what_is_written() {
        let concerns = |policy: ServerPolicy, authority: &str| {
            Policies::new(vec![policy]).concerns(&Authority::parse(authority).unwrap())
        };
        let default = ServerPolicy { elicitation: ElicitationPolicy::Url, ..open("https://mcp.test/mcp") };
        let explicit = ServerPolicy { explicit: true, ..default.clone() };
        assert!(!concerns(default, "mcp.test:443"), "a default opens no tunnel");
        assert!(concerns(explicit.clone(), "mcp.test:443") && concerns(explicit.clone(), "mcp.test:80"));
        assert!(!concerns(explicit.clone(), "mcp.test:8443") && !concerns(explicit, "other.test:443"));
    }
}
