//! Loading: from files to a policy, its injections and the config, with every problem of every file reported.
//!
//! The gateway, its reload and the dry run all load through here, so what one of them accepts the others do.

mod declared;
mod mcp;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exeat_policy::diag::{Code, Diagnostic, Source, Span, has_errors};
use exeat_policy::doc::{Format, MAX_BYTES};
use exeat_policy::manifest::{ActsAs, AuthMode, HeaderValueSpec, Manifest, Server, Transport};
use exeat_policy::pattern::{Pattern, Prefix};
use exeat_policy::policy::{DefaultVerdict, Layer};
use exeat_policy::target::Target;
use exeat_policy::{Policy, Rule, Verdict};
use http::HeaderName;
use http::header::AUTHORIZATION;

pub(crate) use self::mcp::{McpServers, servers as mcp_servers};
use crate::config::{Config, Redact};
use crate::credentials::Injection;
use crate::evidence::ServerSpec;
use crate::metrics::SESSION_LABEL;

/// The manifest that is loaded when none is named.
pub(crate) const EXAMPLE: &str = include_str!("../../config/agent.toml");
/// The name it goes by.
const EXAMPLE_NAME: &str = "(built-in example)";

/// What to load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs {
    /// `exeat.toml`; none for the defaults.
    pub(crate) config: Option<PathBuf>,
    /// Manifests, outermost layer first; none for those of the config, or else the built-in example.
    pub(crate) manifests: Vec<PathBuf>,
    /// `section.key=value`, in force over the config file.
    pub(crate) overrides: Vec<String>,
}

/// What was loaded.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The config.
    pub(crate) config: Config,
    /// The policy of all layers.
    pub(crate) policy: Policy,
    /// What is put on requests.
    pub(crate) injections: Vec<Injection>,
    /// The MCP servers.
    pub(crate) mcp: McpServers,
    /// The servers that the manifests declare, a server of an inner layer in place of one of the same name further out.
    pub(crate) servers: Vec<ServerSpec>,
    /// The capabilities that the manifests name, each once.
    pub(crate) capabilities: Vec<String>,
    /// The names of the manifests' files, outermost first.
    pub(crate) files: Vec<Arc<str>>,
    /// Whether the policy is that of the built-in example, for want of any other.
    pub(crate) is_example: bool,
    /// What deserves a look.
    pub(crate) warnings: Vec<Diagnostic>,
}

/// Why nothing was loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// A file could not be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The files have errors.
    #[error("{} in manifest or config", count(.0))]
    Invalid(Vec<Diagnostic>),
    /// More rules than a policy holds.
    #[error(transparent)]
    TooLarge(#[from] exeat_policy::policy::PolicyTooLarge),
}

fn count(diagnostics: &[Diagnostic]) -> String {
    match diagnostics.iter().filter(|diagnostic| has_errors(std::slice::from_ref(diagnostic))).count() {
        1 => "1 error".to_owned(),
        errors => format!("{errors} errors"),
    }
}

/// The gateway's own files, read: what every session lies within.
#[derive(Debug)]
pub(crate) struct Base {
    /// The config.
    pub(crate) config: Config,
    manifests: Vec<Manifest>,
    files: Vec<Arc<str>>,
    is_example: bool,
    /// What deserves a look in each file by itself.
    problems: Vec<Diagnostic>,
}

/// What a session adds to the gateway's own files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inner {
    /// Its layers, outermost first. They lie within those of the gateway, so they can only narrow.
    pub(crate) manifests: Vec<Manifest>,
    /// The gateway's bindings that the servers in them may use.
    pub(crate) lent: Arc<BTreeSet<String>>,
}

/// Loads everything, or nothing and says why.
pub(crate) fn load(inputs: &Inputs) -> Result<Loaded, LoadError> {
    Base::read(inputs)?.compile(None)
}

impl Base {
    /// Reads all files.
    ///
    /// # Errors
    /// One of them cannot be read, or has errors.
    pub(crate) fn read(inputs: &Inputs) -> Result<Self, LoadError> {
        let mut problems = Vec::new();
        let config = load_config(inputs, &mut problems)?;
        let from_config = config.as_ref().map_or(&[][..], |config| &config.policy.manifests);
        let paths = if inputs.manifests.is_empty() { from_config } else { &inputs.manifests };
        let mut sources = Vec::new();
        for path in paths {
            sources.push((read_source(path)?, Format::of(&path.to_string_lossy())));
        }
        let is_example = sources.is_empty();
        if is_example {
            sources.push((Source::new(EXAMPLE_NAME, EXAMPLE), Format::Toml));
        }
        let manifests: Vec<Option<Manifest>> = sources
            .iter()
            .map(|(source, format)| {
                let (manifest, mut found) = Manifest::read(source, *format);
                problems.append(&mut found);
                manifest
            })
            .collect();
        let manifests: Option<Vec<Manifest>> = manifests.into_iter().collect();
        let (Some(config), Some(manifests), false) = (config, manifests, has_errors(&problems)) else {
            return Err(LoadError::Invalid(problems));
        };
        let files = sources.iter().map(|(source, _)| Arc::clone(source.name())).collect();
        Ok(Self { config, manifests, files, is_example, problems })
    }

    /// Makes a policy and all that goes with it of the files, and of what a session adds.
    ///
    /// # Errors
    /// What does not go together.
    pub(crate) fn compile(&self, inner: Option<&Inner>) -> Result<Loaded, LoadError> {
        let config = self.config.clone();
        let mut problems = if inner.is_none() { self.problems.clone() } else { Vec::new() };
        let added = inner.map_or(&[][..], |inner| &inner.manifests);
        let manifests: Vec<&Manifest> = self.manifests.iter().chain(added).collect();
        let policy = Policy::build(layers(&self.manifests, added), config.policy.default)?;
        let mut injections = injections(&config, &manifests, &policy, &mut problems);
        if let Some(inner) = inner {
            injections.iter_mut().for_each(|injection| self.hold(injection, inner));
        }
        let mcp = mcp::servers(&config, &manifests, &mut problems);
        let servers = declared::servers(&config, &manifests);
        let capabilities = declared::capabilities(&manifests);
        if has_errors(&problems) {
            return Err(LoadError::Invalid(problems));
        }
        if !policy.restricts() && config.policy.default == DefaultVerdict::Allow {
            problems.extend(manifests.last().map(|last| unrestricted(last)));
        }
        let (files, is_example) = (self.files.clone(), self.is_example);
        Ok(Loaded { config, policy, injections, mcp, servers, capabilities, files, is_example, warnings: problems })
    }

    /// Holds an injection to what a session may have put on requests: where a session names the place itself, it may not
    /// have the gateway's own bindings sent there. An entry of the catalog names the place and its bindings together.
    fn hold(&self, injection: &mut Injection, inner: &Inner) {
        let is_named = |server: &&Server| *server.name.value == *injection.server;
        let mut known = self.manifests.iter().flat_map(|manifest| &manifest.servers);
        if !known.any(|server| *server.name.value == *injection.server)
            && !self.config.inject.iter().any(|inject| *inject.url.value == *injection.server)
        {
            injection.label = SESSION_LABEL.into();
        }
        let declared = inner.manifests.iter().flat_map(|manifest| &manifest.servers).rfind(is_named);
        if declared.is_some_and(|server| matches!(server.transport, Transport::Http { .. })) {
            injection.lent = Some(Arc::clone(&inner.lent));
        }
    }
}

/// Loads the config alone.
pub(crate) fn config(inputs: &Inputs) -> Result<Config, LoadError> {
    let mut problems = Vec::new();
    load_config(inputs, &mut problems)?.ok_or(LoadError::Invalid(problems))
}

fn load_config(inputs: &Inputs, problems: &mut Vec<Diagnostic>) -> Result<Option<Config>, LoadError> {
    let file = inputs.config.as_deref().map(read_source).transpose()?;
    let (config, mut found) = Config::read_with(file.as_ref(), &inputs.overrides);
    problems.append(&mut found);
    Ok(config)
}

/// Reads a file as the source of diagnostics; `-` is the standard input.
pub(crate) fn read_source(path: &Path) -> Result<Arc<Source>, LoadError> {
    let failed = |source| LoadError::Unreadable { path: path.to_owned(), cause: source };
    let name = path.to_string_lossy().into_owned();
    let mut text = String::new();
    if name == "-" {
        io::stdin().lock().take(MAX_BYTES as u64 + 1).read_to_string(&mut text).map_err(failed)?;
        return Ok(Source::new("(standard input)", text));
    }
    // A file over the limit is cut just behind it: the reader then says how large it may be.
    let read = fs::File::open(path).and_then(|file| {
        let length = file.metadata().map_or(0, |found| found.len()).min(MAX_BYTES as u64);
        text.reserve_exact(usize::try_from(length).unwrap_or(0) + 1);
        file.take(MAX_BYTES as u64 + 1).read_to_string(&mut text)
    });
    read.map_err(failed)?;
    Ok(Source::new(name, text))
}

/// The names of layers, outermost first: the last manifest is the agent's unless there are four.
pub(crate) fn layer_names(count: usize) -> Vec<String> {
    let names: &[&str] = match count {
        1 => &["agent"],
        2 => &["harness", "agent"],
        3 => &["organisation", "harness", "agent"],
        4 => &["organisation", "harness", "agent", "session"],
        _ => return (1..=count).map(|number| format!("layer-{number}")).collect(),
    };
    names.iter().map(|&name| name.to_owned()).collect()
}

/// The layers of the gateway's manifests and, within them, of those of a session.
fn layers(manifests: &[Manifest], added: &[Manifest]) -> Vec<Layer> {
    let inner = (1..=added.len()).map(|number| match added.len() {
        1 => "session".to_owned(),
        _ => format!("session-{number}"),
    });
    let names = layer_names(manifests.len()).into_iter().chain(inner);
    names
        .zip(manifests.iter().chain(added))
        .map(|(name, manifest)| match &manifest.network_access {
            Some(access) => access.layer(name, &manifest.source),
            None => Layer { name: name.into(), ..Layer::default() },
        })
        .collect()
}

/// What the manifests' servers and the config put on requests. A server of an inner layer replaces one of the same
/// name further out.
pub(crate) fn injections(
    config: &Config,
    manifests: &[&Manifest],
    policy: &Policy,
    problems: &mut Vec<Diagnostic>,
) -> Vec<Injection> {
    let mut injections: Vec<Injection> = Vec::new();
    for manifest in manifests {
        for server in &manifest.servers {
            let source = &manifest.source;
            let (url, written, fields, auth_mode, redact) = match &server.transport {
                Transport::Stdio { .. } => continue,
                Transport::Http { url, headers } => {
                    let fields = headers
                        .iter()
                        .filter_map(|header| {
                            let name = HeaderName::from_bytes(header.name.value.as_str().as_bytes()).ok()?;
                            Some((name, header.value.value.clone()))
                        })
                        .collect();
                    (url.value.as_str(), (source, url.span), fields, None, Redact::default())
                }
                Transport::Catalog { name } => match config.catalog.get(&name.value) {
                    Some(entry) => {
                        let written = (&entry.source, entry.url.span);
                        (entry.url.value.as_str(), written, entry.headers.clone(), entry.auth_mode, entry.redact)
                    }
                    None => {
                        let message = format!("the gateway's catalog has no {:?}", name.value);
                        let help = format!("add [catalog.{}] with a url to exeat.toml", name.value);
                        problems.push(Diagnostic::new(Code::CatalogMissing, source, name.span, message, help));
                        continue;
                    }
                },
            };
            let (source, span) = written;
            let Some(prefix) = prefix(url, source, span, problems) else { continue };
            check_covered(policy, &prefix, source, span, problems);
            let auth_mode = server.auth_mode.as_ref().map(|mode| mode.value).or(auth_mode);
            problems.extend(unlike_auth_mode(manifest, server, auth_mode, &fields));
            let name = server.name.value.as_str();
            injections.retain(|injection| *injection.server != *name);
            let keys = config.mcp.servers.get(name).map(|written| written.redact).unwrap_or_default();
            let injection = injection(name, prefix, fields, config, redact.under(keys));
            injections.push(as_whom(server, auth_mode, injection));
        }
    }
    for inject in &config.inject {
        let Some(prefix) = prefix(&inject.url.value, &inject.source, inject.url.span, problems) else { continue };
        check_covered(policy, &prefix, &inject.source, inject.url.span, problems);
        injections.push(injection(&inject.url.value, prefix, inject.headers.clone(), config, inject.redact));
    }
    injections
}

/// Fits an injection to whom the server acts as and what it wants. A server that acts as nobody, or wants no proof, gets
/// literal fields only. One that acts as the user gets what the session binds; without a field for it, that is the
/// token of its provider.
fn as_whom(server: &Server, auth_mode: Option<AuthMode>, mut injection: Injection) -> Injection {
    let acts_as = server.acts_as.as_ref().map(|acts_as| acts_as.value);
    if acts_as == Some(ActsAs::None) || auth_mode == Some(AuthMode::None) {
        injection.fields.retain(|(_, value)| value.placeholder().is_none());
        return injection;
    }
    if acts_as == Some(ActsAs::User) {
        injection.user = true;
        let provider = server.oauth_provider_id.as_ref().filter(|provider| !provider.value.is_empty());
        if let Some(provider) = provider
            && !injection.fields.iter().any(|(name, _)| *name == AUTHORIZATION)
        {
            let token = HeaderValueSpec::Placeholder(provider.value.clone());
            injection.fields.push((AUTHORIZATION, token));
        }
    }
    injection
}

/// Warns where the server's `auth_mode` and its fields do not go together.
fn unlike_auth_mode(
    manifest: &Manifest,
    server: &Server,
    auth_mode: Option<AuthMode>,
    fields: &[(HeaderName, HeaderValueSpec)],
) -> Option<Diagnostic> {
    let filled = fields.iter().any(|(_, value)| value.placeholder().is_some());
    let acts_as = server.acts_as.as_ref().map(|acts_as| acts_as.value);
    let provided = acts_as == Some(ActsAs::User) && server.oauth_provider_id.is_some();
    let (message, help) = match (auth_mode?, filled) {
        (AuthMode::None, true) => (
            format!("the auth_mode of {:?} is \"none\", so its placeholders are left out", server.name.value),
            "remove the placeholders, or write how the server wants its callers to prove who they are",
        ),
        (AuthMode::ApiKey | AuthMode::OAuth, false) if acts_as != Some(ActsAs::None) && !provided => (
            format!(
                "{:?} wants a credential, and no header carries one: the client's own goes through",
                server.name.value
            ),
            "add a header such as Authorization = \"${NAME}\", and bind NAME in the gateway's config",
        ),
        _ => return None,
    };
    Some(Diagnostic::new(Code::UnlikeAuthMode, &manifest.source, server.span, message, help))
}

fn injection(
    server: &str,
    prefix: Prefix,
    fields: Vec<(HeaderName, HeaderValueSpec)>,
    config: &Config,
    redact: Redact,
) -> Injection {
    let loopback = |ip: std::net::IpAddr| ip.to_canonical().is_loopback();
    let plain_http = match prefix.host().ip() {
        Some(ip) => loopback(ip),
        None => config.dns.hosts.get(prefix.host().as_str()).is_some_and(|ips| ips.iter().copied().all(loopback)),
    };
    let (redactor, counts) = Default::default();
    let (server, label) = (Arc::from(server), Arc::from(server));
    Injection { server, label, prefix, fields, user: false, lent: None, plain_http, redact, redactor, counts }
}

/// The prefix that a server's URL stands for; its query plays no part.
pub(crate) fn prefix(url: &str, source: &Arc<Source>, span: Span, problems: &mut Vec<Diagnostic>) -> Option<Prefix> {
    let without_query = url.split('?').next().unwrap_or(url);
    match Pattern::parse(without_query) {
        Ok(Pattern::Prefix(prefix)) => Some(prefix),
        Ok(_) => None,
        Err(error) => {
            problems.push(Diagnostic::new(Code::ServerUrl, source, span, error.message, error.help));
            None
        }
    }
}

/// Warns where policy does not let requests to a server out.
pub(crate) fn check_covered(
    policy: &Policy,
    prefix: &Prefix,
    source: &Arc<Source>,
    span: Span,
    problems: &mut Vec<Diagnostic>,
) {
    let url = prefix.to_string();
    let Ok(target) = Target::parse(&url) else { return };
    let decision = policy.decide(&target);
    if decision.verdict == Verdict::Allow {
        return;
    }
    let (message, help) = match decision.rule {
        Some(rule) => {
            let Rule { pattern, file, line, .. } = rule.rule;
            (
                format!("{url} is blocked by {pattern:?} of the layer {:?}", rule.layer),
                format!("narrow the rule at {file}:{line}, or remove the server"),
            )
        }
        None => (
            format!("no rule permits {url}: {}", decision.reason.text()),
            format!("add {url:?} to network_access.allowed of the layer {:?}", decision.layer.unwrap_or("agent")),
        ),
    };
    problems.push(Diagnostic::new(Code::ServerNotPermitted, source, span, message, help));
}

pub(crate) fn unrestricted(manifest: &Manifest) -> Diagnostic {
    let span = manifest.network_access.as_ref().map_or(manifest.name.span, |access| access.span);
    Diagnostic::new(
        Code::Unrestricted,
        &manifest.source,
        span,
        "no layer has an allowed list, so everything that is not blocked is permitted",
        "list what the agent needs in network_access.allowed, or set [policy] default = \"deny\" in exeat.toml",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn codes(error: &LoadError) -> Vec<&'static str> {
        let LoadError::Invalid(problems) = error else { panic!("{error}") };
        problems.iter().map(|problem| problem.code.as_str()).collect()
    }

    #[test]
    fn nothing_named_loads_the_example_without_a_warning() {
        let loaded = load(&Inputs::default()).unwrap();
        assert!(loaded.policy.restricts());
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
        assert_eq!(*loaded.files[0], *EXAMPLE_NAME);
    }

    #[test]
    fn problems_of_all_files_come_together() {
        let folder = tempfile::tempdir().unwrap();
        let outer = write(folder.path(), "outer.toml", "name = \"outer\"\nnetwork_access.allowed = [\"*\"]\n");
        let inner = write(folder.path(), "inner.toml", "name = \"inner\"\nnetwork_access.blocked = [\"a b\", \"\"]\n");
        let config = write(folder.path(), "exeat.toml", "[guard]\nblocked_ports = [0]\n");
        let inputs = Inputs { config: Some(config), manifests: vec![outer, inner], overrides: Vec::new() };
        let error = load(&inputs).unwrap_err();
        assert_eq!(codes(&error).iter().filter(|code| **code == Code::Pattern.as_str()).count(), 3);
        assert!(codes(&error).len() >= 4, "{:?}", codes(&error));
    }

    #[test]
    fn servers_that_policy_does_not_permit_are_warned_about() {
        let folder = tempfile::tempdir().unwrap();
        let text = "name = \"a\"\n[network_access]\nallowed = [\"other.test\"]\n[mcpServers.docs]\ntype = \"http\"\n\
                    url = \"https://mcp.docs.test/mcp\"\n";
        let manifest = write(folder.path(), "agent.toml", text);
        let loaded = load(&Inputs { manifests: vec![manifest], ..Inputs::default() }).unwrap();
        let warning = &loaded.warnings[0];
        assert_eq!((warning.code, warning.start().line), (Code::ServerNotPermitted, 6));
        assert!(warning.help.contains("\"https://mcp.docs.test/mcp\""), "{}", warning.help);
    }

    #[test]
    fn an_unrestricting_manifest_is_warned_about_unless_the_default_is_deny() {
        let folder = tempfile::tempdir().unwrap();
        let manifests = vec![write(folder.path(), "agent.toml", "name = \"a\"\n")];
        let mut inputs = Inputs { manifests, ..Inputs::default() };
        assert_eq!(load(&inputs).unwrap().warnings[0].code, Code::Unrestricted);
        inputs.overrides.push("policy.default=\"deny\"".to_owned());
        assert!(load(&inputs).unwrap().warnings.is_empty());
    }

    /// What is injected for a server, as `NAME=VALUE` with whether it is the user's, and the codes of the warnings.
    fn injected(server: &str) -> (Vec<String>, bool, Vec<&'static str>) {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("name = \"a\"\n[network_access]\nallowed = [\"a.test\"]\n[mcpServers.s]\n{server}\n");
        let config =
            "[catalog.c]\nurl = \"https://a.test/mcp\"\nauth_mode = \"api_key\"\nheaders = { X-Key = \"${KEY}\" }\n";
        let inputs = Inputs {
            config: Some(write(folder.path(), "exeat.toml", config)),
            manifests: vec![write(folder.path(), "agent.toml", &text)],
            overrides: Vec::new(),
        };
        let loaded = load(&inputs).unwrap();
        let warnings = loaded.warnings.iter().map(|warning| warning.code.as_str()).collect();
        let [injection] = &loaded.injections[..] else { panic!("{:?}", loaded.injections) };
        let fields = injection.fields.iter().map(|(name, value)| match value {
            HeaderValueSpec::Literal(text) => format!("{name}={text}"),
            HeaderValueSpec::Placeholder(binding) => format!("{name}=${binding}"),
        });
        (fields.collect(), injection.user, warnings)
    }

    #[test]
    fn whom_a_server_acts_as_decides_what_is_put_on() {
        const HEADERS: &str = "url = \"https://a.test/mcp\"\nheaders = { Authorization = \"${A}\", X-Team = \"t\" }\n";
        const BARE: &str = "url = \"https://a.test/mcp\"\n";
        let unlike = Code::UnlikeAuthMode.as_str();
        let both = ["authorization=$A", "x-team=t"];
        for (head, rest, fields, user, warnings) in [
            (HEADERS, "", &both[..], false, &[][..]),
            (HEADERS, "actsAs = \"service\"\nauth_mode = \"oauth\"", &both, false, &[]),
            (HEADERS, "actsAs = \"none\"", &["x-team=t"], false, &["W0104"]),
            (HEADERS, "actsAs = \"user\"", &both, true, &[]),
            (HEADERS, "actsAs = \"user\"\noauth_provider_id = \"linear\"", &both, true, &[]),
            (HEADERS, "auth_mode = \"none\"", &["x-team=t"], false, &[unlike]),
            (BARE, "auth_mode = \"api_key\"", &[], false, &[unlike]),
            (BARE, "actsAs = \"none\"\nauth_mode = \"oauth\"", &[], false, &[]),
            (BARE, "actsAs = \"user\"\nauth_mode = \"oauth\"", &[], true, &[unlike]),
            (
                BARE,
                "actsAs = \"user\"\nauth_mode = \"oauth\"\noauth_provider_id = \"linear\"",
                &["authorization=$linear"],
                true,
                &[],
            ),
            (BARE, "oauth_provider_id = \"linear\"", &[], false, &[]),
            ("use = \"catalog:c\"\n", "", &["x-key=$KEY"], false, &[]),
            ("use = \"catalog:c\"\n", "auth_mode = \"none\"", &[], false, &[unlike]),
            ("use = \"catalog:c\"\n", "actsAs = \"user\"", &["x-key=$KEY"], true, &[]),
        ] {
            let found = injected(&format!("{head}{rest}"));
            let fields = fields.iter().map(|&field| field.to_owned()).collect::<Vec<_>>();
            assert_eq!(found, (fields, user, warnings.to_vec()), "{head}{rest}");
        }
    }

    #[test]
    fn a_catalog_entry_that_is_missing_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let text = "name = \"a\"\n[mcpServers.linear]\nuse = \"catalog:linear\"\n";
        let inputs = Inputs { manifests: vec![write(folder.path(), "agent.toml", text)], ..Inputs::default() };
        assert_eq!(codes(&load(&inputs).unwrap_err()), [Code::CatalogMissing.as_str()]);
    }
}
