//! The closed list of reasons.
//!
//! One list serves the whole product: the decision, the `Exeat-Reason` field, the metric label, the event and the
//! answer body carry the same word. The gateway's own reasons (framing, limits, upstream) stand here beside those of
//! the policy so that no second list can drift from this one.

use std::fmt;

macro_rules! reasons {
    ($($name:ident = $word:literal, $text:literal;)*) => {
        /// Why something was permitted or refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason {
            $(#[doc = $text] $name,)*
        }

        impl Reason {
            /// Every reason there is, in the order of the enum.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The word that stands in fields, labels and events.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// One sentence for people, without a full stop.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Position in [`Reason::ALL`]; an index for tables of counters.
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

reasons! {
    Allowed = "allowed", "a rule of every restricting layer allows it";
    DefaultAllow = "default_allow", "no layer restricts it and the gateway's default is allow";
    DefaultDeny = "default_deny", "no layer restricts it and the gateway's default is deny";
    NotAllowed = "not_allowed", "a layer has an allowed list and nothing in it matches";
    Blocked = "blocked", "a blocked rule matches";
    Malformed = "malformed", "the target cannot be read, so it is denied";
    UnsupportedScheme = "unsupported_scheme", "only http, https, ws and wss reach the network";
    GuardAddress = "guard_address", "the name resolves to a special-purpose address that the gateway's config does not grant";
    GuardMetadata = "guard_metadata", "cloud metadata addresses are never reachable";
    GuardSelf = "guard_self", "the gateway's own listeners are never reachable through it";
    GuardPort = "guard_port", "the gateway's config blocks this port";
    GuardName = "guard_name", "the name is reserved and never leads anywhere (RFC 6761)";
    InspectOff = "inspect_off", "the rule needs TLS interception, which is off or impossible here";
    SniMismatch = "sni_mismatch", "the TLS server name is not the CONNECT host";
    NotTls = "not_tls", "the tunnel was permitted for TLS only and opened with something else";
    Misdirected = "misdirected", "the request names another host than the tunnel it came through";
    ProxyAuth = "proxy_auth", "proxy credentials are missing or wrong";
    AuthLimited = "auth_limited", "too many wrong proxy credentials came from this client's address";
    ClientTls = "client_tls", "the client did not complete TLS with the proxy port";
    ProxyHeader = "proxy_header", "a trusted source sent no valid PROXY protocol header";
    UnsupportedProtocol = "unsupported_protocol", "the client speaks a protocol that the proxy port does not serve";
    BadRequest = "bad_request", "the request breaks the framing rules of HTTP";
    HeadTooLarge = "head_too_large", "the request's header section is larger than the limit";
    HeadTimeout = "head_timeout", "the request's header section did not arrive in time";
    MethodRefused = "method_refused", "the method is not served here";
    Loop = "loop", "the request has passed this gateway already";
    CredentialUnbound = "credential_unbound", "a header needs a credential that the gateway's config does not bind";
    CredentialUnavailable = "credential_unavailable", "the bound credential could not be read or is unusable";
    CredentialInsecure = "credential_insecure", "credentials are only put on requests over TLS";
    McpMalformed = "mcp_malformed", "the body is no MCP message that can be judged";
    McpTooLarge = "mcp_too_large", "the MCP message is larger than what the gateway holds to judge it";
    McpEncoding = "mcp_encoding", "the body is compressed, so the MCP message in it cannot be judged";
    McpMethod = "mcp_method", "the method is not one of MCP, or not of the revision that the server is pinned to";
    McpHeader = "mcp_header", "a header field says something else than the MCP message";
    McpProtocol = "mcp_protocol", "the server is pinned to another revision of MCP";
    McpBatch = "mcp_batch", "MCP messages come one by one in every revision but 2025-03-26";
    McpDiscovery = "mcp_discovery", "the server's policy does not let tools be listed";
    McpTool = "mcp_tool", "the server's policy does not permit the tool";
    McpElicitation = "mcp_elicitation", "the server asked the user in a way that its policy does not permit";
    McpAnswer = "mcp_answer", "the MCP server's answer cannot be judged";
    McpOrigin = "mcp_origin", "the request comes from a web page, or names another host than the gateway";
    McpSession = "mcp_session", "the MCP session is not one of this client";
    ConnectionLimit = "connection_limit", "the gateway holds as many connections as it may";
    StreamLimit = "stream_limit", "the client's connection holds as many streams as it may";
    Flood = "flood", "the client floods its connection with what no request needs";
    TunnelLimit = "tunnel_limit", "the gateway holds as many tunnels as it may";
    SessionQuota = "session_quota", "the session has used up what it may use";
    SessionRate = "session_rate", "the session asks for more in a second than it may";
    Draining = "draining", "the gateway is shutting down";
    DnsNotFound = "dns_not_found", "the name does not exist";
    DnsFailed = "dns_failed", "the name could not be resolved";
    ConnectRefused = "connect_refused", "the upstream refused the connection";
    ConnectTimeout = "connect_timeout", "the upstream did not accept the connection in time";
    ConnectFailed = "connect_failed", "the upstream could not be reached";
    UpstreamTls = "upstream_tls", "the upstream's TLS handshake or certificate was not acceptable";
    UpstreamProtocol = "upstream_protocol", "the upstream closed early or did not speak HTTP";
    UpstreamEncoded = "upstream_encoded", "the answer is coded, so that credentials in it could not be found";
    UpstreamTimeout = "upstream_timeout", "the upstream did not answer in time";
    UpstreamProxy = "upstream_proxy", "the next proxy did not open the connection";
    AuditUnavailable = "audit_unavailable", "the event of the request could not be written";
    PolicyChanged = "policy_changed", "a reload narrowed the policy";
    NotFound = "not_found", "nothing is served at this place";
    Internal = "internal", "the gateway failed";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_unique_words_at_their_index() {
        for (index, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert!(reason.as_str().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
            assert_eq!(Reason::ALL.iter().filter(|other| other.as_str() == reason.as_str()).count(), 1);
        }
    }
}
