//! The closed list of diagnostic codes.

use std::fmt;

use super::Severity;

macro_rules! codes {
    ($($name:ident = $code:literal, $summary:literal;)*) => {
        /// A stable diagnostic code: `E…` is an error, `W…` a warning, `N…` a note. A code is never given to another meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $summary] $name,)*
        }

        impl Code {
            /// Every code there is.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code as it is printed, such as `E0101`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// What the code means, in one line.
            #[must_use]
            pub const fn summary(self) -> &'static str {
                match self { $(Self::$name => $summary,)* }
            }
        }
    };
}

codes! {
    Syntax = "E0001", "the file is not well-formed TOML, YAML or JSON";
    DuplicateKey = "E0002", "a key is written twice";
    UnknownKey = "E0003", "a key that nothing reads";
    WrongType = "E0004", "a value of another type than the key takes";
    MissingKey = "E0005", "a required key is missing";
    BadValue = "E0006", "a value outside what the key takes";
    TwoSpellings = "E0007", "a key and its alias are both written";
    TooLarge = "E0008", "the file is larger than any manifest or config";
    TooDeep = "E0009", "values are nested too deep";
    YamlFeature = "E0010", "a feature of YAML that is not read: anchor, alias, merge key, tag, further document";
    TooMany = "E0011", "more errors than are listed";

    Pattern = "E0101", "a pattern of network_access that is none of the three kinds";
    AgentName = "E0102", "a name that is not lower-case letters, digits and hyphens";
    InstructionsTwice = "E0103", "instructions and instructions_file are both written";
    TooManyItems = "E0104", "a list or table with more items than it may have";
    Placeholder = "E0105", "`${` in a value that is not one whole placeholder";
    LiteralCredential = "E0106", "a credential written into the file";
    ServerIncomplete = "E0107", "a server that says neither where it is nor how it is started";
    ServerUrl = "E0108", "a server's url that is not a plain http or https URL";
    CatalogReference = "E0109", "a reference that is not catalog:NAME";
    CatalogConflict = "E0110", "a catalog reference beside what the catalog supplies";
    HeaderName = "E0111", "a header name that is no field name, or that the gateway itself writes";
    HeaderValue = "E0112", "a header value with characters that no field value may have";
    HeaderTwice = "E0113", "one header in two spellings";
    CapabilityName = "E0114", "a capability name that is not of the form a host can look up";
    CapabilityTwice = "E0115", "a capability named twice";

    BindingSource = "E0302", "a binding without exactly one source";
    HalfOfCa = "E0303", "a CA for interception with its certificate or its key only";
    BadOverride = "E0304", "an override that is not section.key=value";
    Grant = "E0305", "an entry of guard.allow that is no address, range or class, or that cannot be granted";
    HalfOfTls = "E0308", "files for TLS on the proxy port of which one needs another that is not written";
    CatalogMissing = "E0307", "a server that uses a catalog entry the gateway does not have";
    InjectUrl = "E0306", "a url to inject for that is not a URL prefix";

    BadCase = "E0401", "a case that names nothing to judge, or more than one thing, or expects what cannot be";
    NoCases = "E0402", "a file of cases without a case";

    ServerNotPermitted = "W0301", "a server or injected prefix whose URL no rule permits";
    NotEnforced = "W0303", "MCP policy for a child process, which no gateway stands in front of";
    UnlikeAuthMode = "W0304", "a server whose auth_mode and header fields do not go together";
    McpServerUnknown = "W0310", "tools are permitted for an MCP server that no manifest has";
    Unrestricted = "W0302", "manifests that restrict nothing under a gateway that allows by default";
    IgnoredKey = "W0101", "a key that means nothing for this kind of server";
    CredentialInUrl = "W0102", "a query parameter of a url that looks like a credential";
    CredentialOverHttp = "W0103", "a credential for a server that is not reached over TLS";
    CredentialWithoutIdentity = "W0104", "a placeholder on a server that acts as nobody";
    ServerName = "W0105", "a server name that has to be escaped in its local address";
    RepeatedPattern = "W0106", "a pattern that stands in its list already";
    AllowedAndBlocked = "W0107", "a pattern that is allowed and blocked";
    PublicSuffix = "W0108", "a wildcard over names that anybody can register";

    Unreachable = "W0201", "an allowed rule of which blocked rules or other layers leave nothing";
    Covered = "W0202", "a rule that another one covers";
    IdleBlock = "W0203", "a blocked rule where nothing is let out anyway";
    SharedHosting = "W0204", "a rule for names or a host that many parties share";
    PlainHttp = "W0205", "an allowed rule for requests that travel unencrypted";
    MetadataRule = "W0206", "an allowed rule for a metadata service, which is never reachable";
    NotGranted = "W0207", "an allowed rule for an address that the gateway's config does not grant";
    InterceptionOff = "W0208", "a rule that needs interception under a config that has it off";
    Unbound = "W0209", "a placeholder that the gateway's config does not bind";

    OpenPrefix = "N0201", "a path rule that does not end with a slash";
    NeedsInterception = "N0202", "a rule for which tunnels have to be opened";
    SpecialAddress = "N0203", "an allowed rule for an address that the guard refuses unless it is granted";
}

impl Code {
    /// Error, warning or note, from the code's first letter.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self.as_str().as_bytes() {
            [b'W', ..] => Severity::Warning,
            [b'N', ..] => Severity::Note,
            _ => Severity::Error,
        }
    }
}

impl std::str::FromStr for Code {
    type Err = UnknownCode;

    /// Reads a code as it is printed, in any case.
    fn from_str(text: &str) -> Result<Self, UnknownCode> {
        Self::ALL.iter().copied().find(|code| code.as_str().eq_ignore_ascii_case(text)).ok_or(UnknownCode)
    }
}

/// A text that is no code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a diagnostic code such as `E0101`")]
pub struct UnknownCode;

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn codes_are_unique_and_well_formed() {
        let mut seen = HashSet::new();
        for code in Code::ALL {
            let text = code.as_str();
            assert!(seen.insert(text), "{text} is used twice");
            assert!(text.len() == 5 && text.starts_with(['E', 'W', 'N']), "{text}");
            assert_eq!(text.parse(), Ok(*code));
            assert!(text.bytes().skip(1).all(|byte| byte.is_ascii_digit()), "{text}");
        }
    }
}
