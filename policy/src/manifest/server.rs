//! `mcpServers`: the MCP servers an agent uses, how they are reached and as whom.

use url::{Host, Url};

use super::header::{Header, HeaderValueSpec, headers, names_credential, variable};
use crate::diag::{Code, Span};
use crate::doc::{Field, Fields, Spanned, Value, quoted};

/// One MCP server.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its key in `mcpServers`.
    pub name: Spanned<String>,
    /// Where its table stands.
    pub span: Span,
    /// Where it is and how it is reached.
    pub transport: Transport,
    /// `auth_mode`.
    pub auth_mode: Option<Spanned<AuthMode>>,
    /// `actsAs`, or the older `acts_as`.
    pub acts_as: Option<Spanned<ActsAs>>,
    /// `protocol_mode`, automatic where it is not written.
    pub protocol_mode: ProtocolMode,
    /// `elicitation_policy`, URLs only where it is not written.
    pub elicitation_policy: ElicitationPolicy,
    /// `tool_discovery`, true where it is not written.
    pub tool_discovery: bool,
    /// `oauth_provider_id`.
    pub oauth_provider_id: Option<Spanned<String>>,
}

/// How a server is reached.
#[derive(Clone, Debug)]
pub enum Transport {
    /// At a URL of its own.
    Http {
        /// `url`: http or https, with a host, without userinfo and fragment.
        url: Spanned<Url>,
        /// `headers`, each name once.
        headers: Vec<Header>,
    },
    /// As the gateway's config says under `[catalog]`.
    Catalog {
        /// What stands behind `catalog:` in `use`.
        name: Spanned<String>,
    },
    /// As a child process, which no gateway stands in front of.
    Stdio {
        /// `command`, not empty.
        command: Spanned<String>,
        /// `args`.
        args: Vec<Spanned<String>>,
        /// `env`, in the order written.
        env: Vec<EnvVariable>,
    },
}

/// One environment variable of a child process.
#[derive(Clone, Debug)]
pub struct EnvVariable {
    /// Its name.
    pub name: Spanned<String>,
    /// Its value.
    pub value: Spanned<HeaderValueSpec>,
}

/// `auth_mode`: how a server wants its callers to prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AuthMode {
    /// `none`.
    None,
    /// `api_key`.
    ApiKey,
    /// `oauth`.
    OAuth,
}

/// `actsAs`: whose grant is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActsAs {
    /// `none`: nobody's; literal headers only.
    None,
    /// `service`: the gateway's binding.
    Service,
    /// `user`: the session's own binding.
    User,
}

/// `protocol_mode`: which revision of MCP is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProtocolMode {
    /// `auto`: whichever the two sides agree on.
    #[default]
    Auto,
    /// `2025-03-26`, formerly `legacy`.
    V2025March,
    /// `2025-06-18`, formerly `stable`.
    V2025June,
    /// `2026-07-28`, formerly `rc`.
    V2026July,
}

impl ProtocolMode {
    /// The word that is written today: `auto` or the revision's date.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::V2025March => "2025-03-26",
            Self::V2025June => "2025-06-18",
            Self::V2026July => "2026-07-28",
        }
    }

    /// The one revision that is spoken; none where both sides choose.
    #[must_use]
    pub const fn pinned(self) -> Option<&'static str> {
        match self {
            Self::Auto => None,
            _ => Some(self.as_str()),
        }
    }
}

/// `elicitation_policy`: in which ways a server may ask the user something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ElicitationPolicy {
    /// `url`: by sending them to a page.
    #[default]
    Url,
    /// `url_and_form`: by a page or a form.
    UrlAndForm,
    /// `none`.
    None,
}

const AUTH_MODES: &[(&str, AuthMode)] =
    &[("none", AuthMode::None), ("api_key", AuthMode::ApiKey), ("oauth", AuthMode::OAuth)];
const ACTS_AS: &[(&str, ActsAs)] = &[("none", ActsAs::None), ("service", ActsAs::Service), ("user", ActsAs::User)];
const ELICITATION: &[(&str, ElicitationPolicy)] = &[
    ("url", ElicitationPolicy::Url),
    ("url_and_form", ElicitationPolicy::UrlAndForm),
    ("none", ElicitationPolicy::None),
];
const PROTOCOL_MODES: &[(&str, ProtocolMode)] = &[
    ("auto", ProtocolMode::Auto),
    ("2025-03-26", ProtocolMode::V2025March),
    ("2025-06-18", ProtocolMode::V2025June),
    ("2026-07-28", ProtocolMode::V2026July),
];
const OLDER_PROTOCOL_MODES: &[(&str, ProtocolMode)] =
    &[("legacy", ProtocolMode::V2025March), ("stable", ProtocolMode::V2025June), ("rc", ProtocolMode::V2026July)];

pub(super) fn read(field: Field<'_>) -> Vec<Server> {
    let Some(fields) = field.fields() else { return Vec::new() };
    fields.rest().filter_map(|(name, value)| server(name, value.fields()?)).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Http,
    Stdio,
}

/// The keys that say how a server is reached, before it is known which of them count.
struct Reach<'d> {
    kind: Option<Field<'d>>,
    catalog: Option<Field<'d>>,
    url: Option<Field<'d>>,
    headers: Option<Field<'d>>,
    command: Option<Field<'d>>,
    args: Option<Field<'d>>,
    env: Option<Field<'d>>,
}

fn server(name: Spanned<String>, mut fields: Fields<'_>) -> Option<Server> {
    let reach = Reach {
        kind: fields.take("type"),
        catalog: fields.nullable("use"),
        url: fields.take("url"),
        headers: fields.take("headers"),
        command: fields.nullable("command"),
        args: fields.take("args"),
        env: fields.take("env"),
    };
    let auth_mode = fields.word("auth_mode", AUTH_MODES);
    let acts_as = fields.take_either("actsAs", "acts_as").and_then(|field| field.word(ACTS_AS));
    let protocol_mode = fields.take("protocol_mode").and_then(protocol_mode).unwrap_or_default();
    let elicitation_policy = fields.word("elicitation_policy", ELICITATION).map(Spanned::into_value);
    let tool_discovery = fields.boolean("tool_discovery").is_none_or(Spanned::into_value);
    let oauth_provider_id = super::nullable_string(&mut fields, "oauth_provider_id");
    let transport = reach.transport(&fields);
    let span = fields.span();
    awkward_name(&name, &fields);
    if let Some(Transport::Http { headers, .. }) = &transport {
        without_identity(acts_as, headers, &fields);
    }
    fields.finish();
    Some(Server {
        name,
        span,
        transport: transport?,
        auth_mode,
        acts_as,
        protocol_mode,
        elicitation_policy: elicitation_policy.unwrap_or_default(),
        tool_discovery,
        oauth_provider_id,
    })
}

impl Reach<'_> {
    /// Reads every key, also those that do not count for this kind, and then puts together those that do.
    fn transport(self, fields: &Fields<'_>) -> Option<Transport> {
        const KINDS: &[(&str, Kind)] = &[("http", Kind::Http), ("stdio", Kind::Stdio)];
        let Self { kind, catalog, url, headers: header_table, command, args, env } = self;
        let written = kind.is_some();
        let kind = kind.map(|field| field.word(KINDS).map(Spanned::into_value));
        // A kind that was reported is no ground for further reports.
        let known = !matches!(kind, Some(None));
        let kind = kind.flatten().unwrap_or(if command.is_some() && url.is_none() && catalog.is_none() {
            Kind::Stdio
        } else {
            Kind::Http
        });
        let header_list = header_table.clone().map_or_else(Vec::new, headers);
        let command_text = command.clone().and_then(Field::string);
        let arguments = args.clone().and_then(Field::strings).map_or_else(Vec::new, Spanned::into_value);
        let variables = env.clone().map_or_else(Vec::new, environment);
        let url_text = url.as_ref().map(Field::str);

        if let Some(field) = catalog {
            ignored("a server of the catalog", [command, args, env]);
            let conflicts = [(written, "type"), (url.is_some(), "url"), (header_table.is_some(), "headers")];
            let conflicts: Vec<_> = conflicts.iter().filter(|(is, _)| *is).map(|(_, key)| format!("`{key}`")).collect();
            if !conflicts.is_empty() {
                let message = format!("`use` stands beside {}, which the catalog supplies", conflicts.join(" and "));
                field.report(Code::CatalogConflict, message, "keep `use`, or describe the server here without it");
            }
            return catalog_name(field);
        }
        if !known {
            return None;
        }
        match kind {
            Kind::Http => {
                ignored("an http server", [command, args, env]);
                let url = match (url, url_text) {
                    (Some(field), Some(Some(text))) if !text.value.is_empty() => server_url(&field)?,
                    (_, Some(None)) => return None,
                    _ => {
                        let message = format!("{} has no `url`", quoted(fields.path()));
                        let help = "add `url`, or `use = \"catalog:NAME\"`, or `command` for a child process";
                        fields.report(Code::ServerIncomplete, message, help);
                        return None;
                    }
                };
                credential_over_http(&url, &header_list, fields);
                Some(Transport::Http { url, headers: header_list })
            }
            Kind::Stdio => {
                let url_text = url_text.flatten().filter(|text| !text.value.is_empty());
                if let Some(text) = url_text.filter(|text| text.value.contains("${")) {
                    fields.problems().report(Code::ServerUrl, text.span, PLACEHOLDER_IN_URL, "remove the url");
                }
                ignored("a stdio server", [url.filter(|_| url_text.is_some()), header_table]);
                if command.is_none() || command_text.as_ref().is_some_and(|text| text.value.is_empty()) {
                    let message = format!("{} is a stdio server without `command`", quoted(fields.path()));
                    fields.report(Code::ServerIncomplete, message, "add `command`, the program to start");
                    return None;
                }
                Some(Transport::Stdio { command: command_text?, args: arguments, env: variables })
            }
        }
    }
}

fn protocol_mode(field: Field<'_>) -> Option<ProtocolMode> {
    if let Value::String(text) = &field.node().value
        && let Some((_, mode)) = OLDER_PROTOCOL_MODES.iter().find(|(word, _)| word == text)
    {
        return Some(*mode);
    }
    field.word(PROTOCOL_MODES).map(Spanned::into_value)
}

fn environment(field: Field<'_>) -> Vec<EnvVariable> {
    let Some(fields) = field.fields() else { return Vec::new() };
    let read = |(name, field): (Spanned<String>, Field<'_>)| {
        let value = variable(&name.value, &field)?;
        Some(EnvVariable { name, value: Spanned::new(value, field.span()) })
    };
    fields.rest().filter_map(read).collect()
}

fn ignored<'d>(kind: &str, keys: impl IntoIterator<Item = Option<Field<'d>>>) {
    for field in keys.into_iter().flatten() {
        let message = format!("{} means nothing for {kind}", quoted(field.path()));
        field.problems().report(Code::IgnoredKey, field.key_span(), message, "remove it");
    }
}

fn catalog_name(field: Field<'_>) -> Option<Transport> {
    let text = field.clone().string()?;
    match text.value.strip_prefix("catalog:") {
        Some(name) if !name.is_empty() => Some(Transport::Catalog { name: Spanned::new(name.to_owned(), text.span) }),
        _ => {
            let message = format!("{} is not a reference to the catalog", quoted(&text.value));
            field.report(Code::CatalogReference, message, "write `catalog:` and a name, such as `catalog:linear`");
            None
        }
    }
}

const PLACEHOLDER_IN_URL: &str = "a placeholder in a url is not filled in";

/// Reads a server's URL, the manifest's or one of the gateway's config: http or https, with a host, without userinfo,
/// fragment and placeholders.
pub fn server_url(field: &Field<'_>) -> Option<Spanned<Url>> {
    let text = field.str()?;
    let refuse = |message: String, help: &str| {
        field.report(Code::ServerUrl, message, help);
        None
    };
    let written = text.value;
    if written.contains("${") {
        return refuse(PLACEHOLDER_IN_URL.to_owned(), "write the whole url; credentials belong in `headers`");
    }
    if let Some(odd) = written.chars().find(|&character| character.is_ascii_control() || character == ' ') {
        let message = format!("U+{:04X} inside a url", u32::from(odd));
        return refuse(message, "remove white space and control characters");
    }
    let scheme = ["http://", "https://"]
        .into_iter()
        .find(|scheme| written.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)));
    let Some(behind) = scheme.and_then(|scheme| written.get(scheme.len()..)) else {
        return refuse(
            format!("{} is not an http or https URL", quoted(written)),
            "write a whole URL, such as `https://mcp.example.com/mcp`",
        );
    };
    let authority = behind.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return refuse(
            format!("{} carries a user name or password", quoted(written)),
            "remove what stands before `@`; put credentials in `headers` as a placeholder",
        );
    }
    if written.contains('#') {
        return refuse(
            format!("{} has a fragment, which is never sent", quoted(written)),
            "remove `#` and what follows",
        );
    }
    match Url::parse(written) {
        Ok(url) => {
            credential_in_query(field, &url);
            Some(Spanned::new(url, text.span))
        }
        Err(error) => refuse(format!("{}: {error}", quoted(written)), "write a whole URL with a valid host"),
    }
}

fn credential_in_query(field: &Field<'_>, url: &Url) {
    if let Some((name, _)) = url.query_pairs().find(|(name, value)| !value.is_empty() && names_credential(name)) {
        let message = format!("the query parameter {} looks like a credential", quoted(&name));
        let help = "a url ends up in logs; use a header with a placeholder if the server takes one";
        field.report(Code::CredentialInUrl, message, help);
    }
}

/// Warns of a placeholder that will never be filled in, because credentials go over TLS only.
pub fn credential_over_http(url: &Spanned<Url>, headers: &[Header], fields: &Fields<'_>) {
    let loopback = match url.value.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    if url.value.scheme() == "http"
        && !loopback
        && headers.iter().any(|header| header.value.value.placeholder().is_some())
    {
        let message = "a credential is put on requests over TLS only, so this server will be refused";
        fields.problems().report(Code::CredentialOverHttp, url.span, message, "write `https://`");
    }
}

fn without_identity(acts_as: Option<Spanned<ActsAs>>, headers: &[Header], fields: &Fields<'_>) {
    let Some(acts_as) = acts_as.filter(|acts_as| acts_as.value == ActsAs::None) else { return };
    if let Some(name) = headers.iter().find_map(|header| header.value.value.placeholder()) {
        let message = format!("the server acts as nobody, so {} is never filled in", quoted(name));
        let help = "write `service` or `user`, or remove the placeholder";
        fields.problems().report(Code::CredentialWithoutIdentity, acts_as.span, message, help);
    }
}

fn awkward_name(name: &Spanned<String>, fields: &Fields<'_>) {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    let text = name.value.as_str();
    if text.is_empty() || matches!(text, "." | "..") || !text.bytes().all(plain) {
        let message = format!("the server name {} has to be escaped in its local address", quoted(text));
        fields.problems().report(Code::ServerName, name.span, message, "write letters, digits, `-`, `_` and `.`");
    }
}
