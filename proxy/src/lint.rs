//! Everything there is to say about manifests and configs without serving them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exeat_policy::analyse::lint::{Gateway, lint as lint_rules};
use exeat_policy::diag::{Code, Diagnostic, Severity, Source, Span};
use exeat_policy::doc::Format;
use exeat_policy::manifest::{ActsAs, Manifest, Transport};
use exeat_policy::policy::DefaultVerdict;
use exeat_policy::{Layer, Policy};

use crate::config::Config;
use crate::load::{self, LoadError};

/// What to look at, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs {
    /// Manifests, and configs: files whose names end in `exeat.toml`.
    pub(crate) files: Vec<PathBuf>,
    /// The config that the manifests are for.
    pub(crate) config: Option<PathBuf>,
    /// `section.key=value`, in force over the config file.
    pub(crate) overrides: Vec<String>,
    /// Whether the manifests are the layers of one policy, outermost first, and not each one a policy.
    pub(crate) layered: bool,
    /// Whether notes are wanted too.
    pub(crate) notes: bool,
}

/// Reads the files and says what is wrong or odd, file by file in the order of their lines.
///
/// # Errors
/// A file that cannot be read, or more rules than a policy holds.
pub(crate) fn lint(inputs: &Inputs) -> Result<Vec<Diagnostic>, LoadError> {
    let mut problems = Vec::new();
    let mut config = None;
    if inputs.config.is_some() || !inputs.overrides.is_empty() {
        let source = inputs.config.as_deref().map(load::read_source).transpose()?;
        let (read, mut found) = Config::read_with(source.as_ref(), &inputs.overrides);
        config = read;
        problems.append(&mut found);
    }
    let mut manifests = Vec::new();
    for path in &inputs.files {
        let source = load::read_source(path)?;
        if is_config(path) {
            problems.append(&mut Config::read(&source).1);
            continue;
        }
        let (manifest, mut found) = Manifest::read(&source, Format::of(source.name()));
        problems.append(&mut found);
        manifests.extend(manifest);
    }
    // What a config says about servers is held against all manifests, or else against the only one.
    let whole = inputs.layered || manifests.len() == 1;
    if inputs.layered {
        together(&manifests, config.as_ref(), &mut problems)?;
    } else {
        for manifest in &manifests {
            together(std::slice::from_ref(manifest), config.as_ref(), &mut problems)?;
        }
    }
    problems.retain(|problem| {
        let wanted = inputs.notes || problem.severity() > Severity::Note;
        wanted && (whole || problem.code != Code::McpServerUnknown)
    });
    sort(&mut problems);
    Ok(problems)
}

fn is_config(path: &Path) -> bool {
    path.to_string_lossy().ends_with("exeat.toml")
}

/// Sorts by place within each file; files stay in the order in which they came up. What is said twice is said once.
fn sort(problems: &mut Vec<Diagnostic>) {
    let mut files: Vec<Arc<Source>> = Vec::new();
    for problem in &*problems {
        if !files.iter().any(|file| Arc::ptr_eq(file, &problem.source)) {
            files.push(Arc::clone(&problem.source));
        }
    }
    let file = |problem: &Diagnostic| files.iter().position(|file| Arc::ptr_eq(file, &problem.source));
    problems.sort_by_key(|problem| (file(problem), problem.span));
    problems.dedup_by(|next, last| {
        next.code == last.code && next.span == last.span && next.message == last.message && file(next) == file(last)
    });
}

/// Looks at manifests as the layers of one policy.
fn together(manifests: &[Manifest], config: Option<&Config>, problems: &mut Vec<Diagnostic>) -> Result<(), LoadError> {
    let Some(last) = manifests.last() else { return Ok(()) };
    let names = load::layer_names(manifests.len());
    let layers: Vec<Layer> =
        names.iter().zip(manifests).map(|(name, manifest)| manifest.layer(name.as_str())).collect();
    let default = config.map_or(DefaultVerdict::Allow, |config| config.policy.default);
    let policy = Policy::build(layers, default)?;
    let gateway = config.map(|config| Gateway {
        grants: &config.guard.allow,
        intercepts: config.intercept.enabled,
        default: config.policy.default,
    });
    let named: Vec<(&str, &Manifest)> = names.iter().map(String::as_str).zip(manifests).collect();
    problems.append(&mut lint_rules(&named, gateway)?);
    match config {
        Some(config) => {
            let all: Vec<&Manifest> = manifests.iter().collect();
            load::injections(config, &all, &policy, problems);
            load::mcp_servers(config, &all, problems);
            manifests.iter().for_each(|manifest| unbound(manifest, config, problems));
        }
        None => manifests.iter().for_each(|manifest| uncovered(manifest, &policy, problems)),
    }
    if !policy.restricts() && default == DefaultVerdict::Allow {
        problems.push(load::unrestricted(last));
    }
    Ok(())
}

/// Servers whose URL no rule permits, where there is no config that could say more.
fn uncovered(manifest: &Manifest, policy: &Policy, problems: &mut Vec<Diagnostic>) {
    for server in &manifest.servers {
        if let Transport::Http { url, .. } = &server.transport
            && let Some(prefix) = load::prefix(url.value.as_str(), &manifest.source, url.span, problems)
        {
            load::check_covered(policy, &prefix, &manifest.source, url.span, problems);
        }
    }
}

/// Placeholders that the config does not bind. Those of a server that acts as nobody are never filled in, and a user's
/// own are not the gateway's to bind.
fn unbound(manifest: &Manifest, config: &Config, problems: &mut Vec<Diagnostic>) {
    for server in &manifest.servers {
        if matches!(server.acts_as.as_ref().map(|whom| whom.value), Some(ActsAs::None | ActsAs::User)) {
            continue;
        }
        let mut check = |name: &str, source: &Arc<Source>, span: Span| {
            if !config.bindings.contains_key(name) {
                let message = format!("`${{{name}}}` of {:?} is not bound", server.name.value);
                let help = format!("add `{name} = {{ env = \"…\" }}` or `{{ file = \"…\" }}` to [bindings]");
                problems.push(Diagnostic::new(Code::Unbound, source, span, message, help));
            }
        };
        match &server.transport {
            Transport::Http { headers, .. } => {
                for header in headers {
                    if let Some(name) = header.value.value.placeholder() {
                        check(name, &manifest.source, header.value.span);
                    }
                }
            }
            Transport::Catalog { name } => {
                let Some(entry) = config.catalog.get(&name.value) else { continue };
                for name in entry.headers.iter().filter_map(|(_, value)| value.placeholder()) {
                    check(name, &entry.source, entry.url.span);
                }
            }
            Transport::Stdio { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(files: &[(&str, &str)], linted: &[&str], change: impl FnOnce(&mut Inputs)) -> Vec<&'static str> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let files = linted.iter().map(|name| folder.path().join(name)).collect();
        let mut inputs = Inputs { files, ..Inputs::default() };
        change(&mut inputs);
        inputs.config = inputs.config.map(|config| folder.path().join(config));
        lint(&inputs).unwrap().iter().map(|problem| problem.code.as_str()).collect()
    }

    const AGENT: &str = "name = \"a\"\n[network_access]\nallowed = [\"https://mcp.a.test/mcp\", \"10.0.0.1\"]\n\
                         [mcpServers.docs]\nurl = \"https://mcp.a.test/mcp\"\n\
                         headers = { Authorization = \"${DOCS}\" }\n";

    #[test]
    fn a_config_answers_what_a_manifest_alone_leaves_open() {
        let with = |config: &'static str| {
            let files = [("agent.toml", AGENT), ("exeat.toml", config)];
            codes(&files, &["agent.toml"], |inputs| inputs.config = Some("exeat.toml".into()))
        };
        assert!(codes(&[("agent.toml", AGENT)], &["agent.toml"], |_| {}).is_empty());
        assert_eq!(with(""), [Code::NotGranted.as_str(), Code::Unbound.as_str()]);
        assert_eq!(
            with(
                "[intercept]\nenabled = false\n[bindings]\nDOCS = { env = \"DOCS\" }\n[guard]\nallow = [\"private\"]\n"
            ),
            [Code::InterceptionOff.as_str()]
        );
    }

    #[test]
    fn notes_are_for_those_who_ask() {
        let found = codes(&[("agent.toml", AGENT)], &["agent.toml"], |inputs| inputs.notes = true);
        assert_eq!(found, ["N0201", "N0202", "N0203"]);
    }

    #[test]
    fn layers_are_looked_at_together_on_request() {
        let outer = "name = \"outer\"\nnetwork_access.allowed = [\"*.a.test\"]\n";
        let inner = "name = \"inner\"\nnetwork_access.allowed = [\"b.test\", \"x.a.test\"]\n";
        let files = [("outer.toml", outer), ("inner.toml", inner)];
        assert!(codes(&files, &["outer.toml", "inner.toml"], |_| {}).is_empty());
        let layered = codes(&files, &["outer.toml", "inner.toml"], |inputs| inputs.layered = true);
        assert_eq!(layered, [Code::Unreachable.as_str()]);
    }

    #[test]
    fn manifests_as_they_are_written_at_first() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/drafts");
        let found = |name: &str| -> Vec<(u32, &'static str)> {
            let inputs = Inputs { files: vec![folder.join(name)], ..Inputs::default() };
            lint(&inputs).unwrap().iter().map(|problem| (problem.start().line, problem.code.as_str())).collect()
        };
        assert_eq!(
            found("coding.toml"),
            [
                (11, "W0202"),
                (12, "W0202"),
                (14, "W0204"),
                (15, "W0204"),
                (17, "W0202"),
                (22, "W0205"),
                (28, "W0203"),
                (32, "W0301")
            ]
        );
        let research = [(7, "W0108"), (8, "W0108"), (9, "W0202"), (10, "W0202"), (12, "W0204"), (17, "W0203")];
        assert_eq!(found("research.toml"), research);
        assert_eq!(
            found("support.toml"),
            [(7, "W0201"), (8, "W0201"), (9, "W0201"), (10, "W0201"), (11, "W0204"), (12, "W0206"), (19, "W0301")]
        );
    }
}
