//! The agent manifest: `agent.toml`, or the same structure in YAML or JSON.
//!
//! [`Manifest::read`] turns a file into typed values or into diagnostics. What it accepts is what the published JSON
//! Schema (`config/schemas/agent.v1.schema.json`, draft-04) accepts, apart from two deliberate differences. Older
//! spellings of keys and words load as well (`mcp_servers`, `acts_as`, `system_prompt`, and the protocol modes
//! `legacy`, `stable` and `rc`). And what no schema of that kind can say is refused: a credential written down where a
//! placeholder belongs, a server that cannot be reached, a header that is not one, a capability that no host could
//! look up. Each such rule has a code of its own among those from `E0105` on.
//!
//! A value that later code has to point at keeps its place in the file ([`Spanned`]). Parts that a gateway has no use
//! for (tools, files, channels) are read as strictly as the rest, so that one file gets one answer everywhere.

use std::sync::Arc;

use crate::diag::{Code, Diagnostic, Problems, Source};
use crate::doc::{self, Field, Fields, Format, Node, Spanned};
use crate::policy::Layer;

mod access;
mod capability;
mod channel;
mod content;
mod header;
mod server;
mod tool;

pub use access::{AccessRule, NetworkAccess};
pub use capability::Capability;
pub use channel::Channel;
pub use content::{Encoding, File, Model, Starter};
pub use header::{Header, HeaderName, HeaderValueSpec, headers};
pub use server::{
    ActsAs, AuthMode, ElicitationPolicy, EnvVariable, ProtocolMode, Server, Transport, credential_over_http, server_url,
};
pub use tool::{Deferrable, SideEffectClass, Tool, ToolHints};

/// A whole manifest, every rule of it kept.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The file it was read from.
    pub source: Arc<Source>,
    /// `name`: 1 to 255 of `a-z`, `0-9` and `-`, no hyphen at either end.
    pub name: Spanned<String>,
    /// `display_name`.
    pub display_name: Option<Spanned<String>>,
    /// `description`.
    pub description: Option<Spanned<String>>,
    /// `short_description`.
    pub short_description: Option<Spanned<String>>,
    /// `intro_markdown`.
    pub intro_markdown: Option<Spanned<String>>,
    /// `instructions`, or the older `system_prompt`.
    pub instructions: Option<Spanned<String>>,
    /// `instructions_file`, relative to the manifest's folder.
    pub instructions_file: Option<Spanned<String>>,
    /// `harness`.
    pub harness: Option<Spanned<String>>,
    /// `model`.
    pub model: Option<Model>,
    /// `max_iterations`, 1 to 1000.
    pub max_iterations: Option<Spanned<u16>>,
    /// `parallel_tool_calls`.
    pub parallel_tool_calls: Option<Spanned<bool>>,
    /// `tags`.
    pub tags: Vec<Spanned<String>>,
    /// `skills`, folders relative to the manifest's.
    pub skills: Vec<Spanned<String>>,
    /// `starters`.
    pub starters: Vec<Starter>,
    /// `files`, at most 100.
    pub files: Vec<File>,
    /// `tools`.
    pub tools: Vec<Tool>,
    /// `channels`, at most 32, in the order written.
    pub channels: Vec<Channel>,
    /// `capabilities`, each name once.
    pub capabilities: Vec<Capability>,
    /// `environments`, as it stands: its shape belongs to the platform.
    pub environments: Option<Node>,
    /// `network_access`; none where it is not written or null.
    pub network_access: Option<NetworkAccess>,
    /// `mcpServers`, or the older `mcp_servers`, in the order written.
    pub servers: Vec<Server>,
}

impl Manifest {
    /// Reads a manifest; the value is there only when no error is among the diagnostics.
    #[must_use]
    pub fn read(source: &Arc<Source>, format: Format) -> (Option<Self>, Vec<Diagnostic>) {
        let root = match doc::parse(source, format) {
            Ok(root) => root,
            Err(diagnostics) => return (None, diagnostics),
        };
        let problems = Problems::new(source);
        let manifest = Fields::root(&root, &problems).and_then(|fields| read(fields, source));
        let manifest = manifest.filter(|_| !problems.has_errors());
        (manifest, problems.into_vec())
    }

    /// Its rules as a layer of a policy; without `network_access`, a layer that restricts nothing.
    #[must_use]
    pub fn layer(&self, name: impl Into<Arc<str>>) -> Layer {
        match &self.network_access {
            Some(access) => access.layer(name, &self.source),
            None => Layer { name: name.into(), ..Layer::default() },
        }
    }

    /// The server of that name.
    #[must_use]
    pub fn server(&self, name: &str) -> Option<&Server> {
        self.servers.iter().find(|server| server.name.value == name)
    }
}

/// Reads every key before anything is missed, so that all problems are reported whatever is wrong first.
fn read(mut fields: Fields<'_>, source: &Arc<Source>) -> Option<Manifest> {
    fields.integer("schema_version", 1..=1);
    let name = fields.required("name").and_then(agent_name);
    let display_name = nullable_string(&mut fields, "display_name");
    let description = nullable_string(&mut fields, "description");
    let short_description = nullable_string(&mut fields, "short_description");
    let intro_markdown = nullable_string(&mut fields, "intro_markdown");
    let instructions = fields.take_either("instructions", "system_prompt").and_then(Field::string);
    let instructions_file = nullable_string(&mut fields, "instructions_file");
    instructions_once(&fields, instructions.as_ref(), instructions_file.as_ref());
    let harness = nullable_string(&mut fields, "harness");
    let model = fields.nullable("model").and_then(Field::fields).and_then(content::model);
    let max_iterations = fields.nullable("max_iterations").and_then(|field| field.integer(1..=1000));
    let parallel_tool_calls = fields.nullable("parallel_tool_calls").and_then(Field::boolean);
    let tags = strings(&mut fields, "tags");
    let skills = strings(&mut fields, "skills");
    let starters = fields.list_of_tables("starters").into_iter().filter_map(content::starter).collect();
    let files = fields.take("files").map_or_else(Vec::new, content::files);
    let tools = fields.list_of_tables("tools").into_iter().filter_map(tool::read).collect();
    let channels = fields.take("channels").map_or_else(Vec::new, channel::read);
    let capabilities = fields.take("capabilities").map_or_else(Vec::new, capability::read);
    let environments = fields.take("environments").map(|field| field.node().clone());
    let network_access = fields.nullable("network_access").and_then(Field::fields).map(access::read);
    let servers = fields.take_either("mcpServers", "mcp_servers").map_or_else(Vec::new, server::read);
    fields.finish();
    Some(Manifest {
        source: Arc::clone(source),
        name: name?,
        display_name,
        description,
        short_description,
        intro_markdown,
        instructions,
        instructions_file,
        harness,
        model,
        max_iterations,
        parallel_tool_calls,
        tags,
        skills,
        starters,
        files,
        tools,
        channels,
        capabilities,
        environments,
        network_access,
        servers,
    })
}

fn nullable_string(fields: &mut Fields<'_>, key: &'static str) -> Option<Spanned<String>> {
    fields.nullable(key)?.string()
}

fn strings(fields: &mut Fields<'_>, key: &'static str) -> Vec<Spanned<String>> {
    fields.strings(key).map_or_else(Vec::new, Spanned::into_value)
}

fn at_most(field: &Field<'_>, what: &str, count: usize, most: usize) {
    if count > most {
        let message = format!("there are {count} {what}, and at most {most} are taken");
        field.report(Code::TooManyItems, message, format!("remove {}", count - most));
    }
}

fn agent_name(field: Field<'_>) -> Option<Spanned<String>> {
    let name = field.clone().string()?;
    let text = name.value.as_str();
    let letters = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let message = if text.is_empty() {
        "the name is empty".to_owned()
    } else if text.chars().count() > 255 {
        format!("the name has {} characters, and at most 255 are taken", text.chars().count())
    } else if !letters || text.starts_with('-') || text.ends_with('-') {
        format!("{} is not a name: only a-z, 0-9 and inner hyphens are taken", doc::quoted(text))
    } else {
        return Some(name);
    };
    let help = match slug(text) {
        slug if slug.is_empty() => "write a name such as `research-agent`".to_owned(),
        slug => format!("write `{slug}`"),
    };
    field.report(Code::AgentName, message, help);
    None
}

/// The nearest name that is taken.
fn slug(text: &str) -> String {
    let mut slug = String::new();
    for character in text.chars().take(255) {
        if character.is_ascii_alphanumeric() {
            slug.push(character.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.truncate(slug.trim_end_matches('-').len());
    slug
}

/// Text and file at once are refused; an empty text counts as not written.
fn instructions_once(fields: &Fields<'_>, text: Option<&Spanned<String>>, file: Option<&Spanned<String>>) {
    if let (Some(text), Some(file)) = (text, file)
        && !text.value.is_empty()
    {
        let message = "the instructions are written here and in a file";
        let help = "keep `instructions` or `instructions_file`";
        fields.problems().report(Code::InstructionsTwice, file.span, message, help);
    }
}

#[cfg(test)]
mod tests;
