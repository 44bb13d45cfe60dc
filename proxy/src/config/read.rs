//! Reading the config: layers of TOML onto the defaults, every problem of all of them reported.
//!
//! A layer is the file or one `--set section.key=value` of the command line, and each is a document with places of its
//! own. Layers are read in order onto the same [`Config`]: a key that is written replaces what stood there, a key that
//! is not leaves it. In `bindings`, `catalog` and `dns.hosts` that holds name by name; a list is replaced as a whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use exeat_policy::diag::{Code, Diagnostic, Problems, Source, Span, has_errors};
use exeat_policy::doc::{self, Field, Fields, Format, Node, Spanned, Value, quoted};

use super::{CaFiles, Config, ListenTls};

mod audit;
mod credentials;
mod duration;
mod limits;
mod listen;
mod mcp;
mod network;
mod oauth;
mod overrides;
mod sections;
mod session;
mod sessions;
mod sources;
mod upstream;

pub(crate) use session::{Bound, bindings as session_bindings, time as session_time};

impl Config {
    /// Reads a config file onto the defaults.
    ///
    /// Relative paths in it are taken from the folder of the file, as the source's name says it. The config is `None`
    /// exactly if one of the diagnostics is an error.
    #[must_use]
    pub fn read(source: &Arc<Source>) -> (Option<Self>, Vec<Diagnostic>) {
        Self::read_with(Some(source), &[])
    }

    /// Reads a config file, if there is one, and then overrides of the form `section.key=value`, the later over the
    /// earlier.
    ///
    /// An override's value is TOML; what is not TOML is taken as a string, so that `admin.listen=off` and
    /// `admin.listen="off"` are the same. Its problems name `--set section.key` as their file. Relative paths in it
    /// are taken from the working folder.
    #[must_use]
    pub fn read_with(source: Option<&Arc<Source>>, overrides: &[String]) -> (Option<Self>, Vec<Diagnostic>) {
        let mut reader = Reader::default();
        if let Some(source) = source {
            let folder = Path::new(&**source.name()).parent().unwrap_or(Path::new(""));
            reader.layer(source, folder);
        }
        for text in overrides {
            match overrides::source_of(text) {
                Ok(source) => reader.layer(&source, Path::new("")),
                Err(problem) => reader.diagnostics.push(problem),
            }
        }
        reader.finish()
    }
}

/// The config as far as it has been read.
#[derive(Debug, Default)]
struct Reader {
    config: Config,
    ca_cert: Option<WrittenFile>,
    ca_key: Option<WrittenFile>,
    tls: listen::TlsFiles,
    diagnostics: Vec<Diagnostic>,
}

/// A file that needs another one, whichever layers the two stand in, and where it was named.
#[derive(Debug)]
struct WrittenFile {
    path: PathBuf,
    source: Arc<Source>,
    span: Span,
}

impl WrittenFile {
    /// A path that was reported counts as written: the other file does not stand alone.
    fn read(field: Field<'_>, layer: &Layer<'_>) -> Self {
        let (source, span) = (layer.problems.source().clone(), field.key_span());
        Self { path: layer.path(field).unwrap_or_default(), source, span }
    }
}

impl Reader {
    fn layer(&mut self, source: &Arc<Source>, folder: &Path) {
        match doc::parse(source, Format::Toml) {
            Ok(root) => {
                let problems = Problems::new(source);
                self.root(&root, &Layer { problems: &problems, folder });
                self.diagnostics.extend(problems.into_vec());
            }
            Err(problems) => self.diagnostics.extend(problems),
        }
    }

    fn root(&mut self, root: &Node, layer: &Layer<'_>) {
        let Some(mut fields) = Fields::root(root, layer.problems) else { return };
        let config = &mut self.config;
        listen::listen(fields.section("listen"), layer, &mut config.listen, &mut self.tls);
        sections::policy(fields.section("policy"), layer, &mut config.policy);
        let ca = (&mut self.ca_cert, &mut self.ca_key);
        sections::intercept(fields.section("intercept"), layer, &mut config.intercept, ca);
        credentials::bindings(fields.section("bindings"), layer, &mut config.bindings);
        credentials::catalog(fields.section("catalog"), layer, &mut config.catalog);
        if let Some(list) = fields.take("inject") {
            config.inject = credentials::inject(list, layer);
        }
        mcp::mcp(fields.section("mcp"), layer, &mut config.mcp);
        sections::guard(fields.section("guard"), &mut config.guard);
        network::dns(fields.section("dns"), &mut config.dns);
        upstream::upstream(fields.section("upstream"), layer, &mut config.upstream);
        limits::limits(fields.section("limits"), &mut config.limits);
        audit::audit(fields.section("audit"), layer, &mut config.audit);
        network::admin(fields.section("admin"), layer, &mut config.admin);
        sessions::sessions(fields.section("sessions"), layer, &mut config.sessions);
        fields.finish();
    }

    fn finish(mut self) -> (Option<Config>, Vec<Diagnostic>) {
        match (self.ca_cert.take(), self.ca_key.take()) {
            (Some(cert), Some(key)) => self.config.intercept.ca = Some(CaFiles { cert: cert.path, key: key.path }),
            (Some(file), None) => self.diagnostics.push(half_of_ca(&file, "ca_cert", "ca_key")),
            (None, Some(file)) => self.diagnostics.push(half_of_ca(&file, "ca_key", "ca_cert")),
            (None, None) => {}
        }
        self.finish_tls();
        let config = (!has_errors(&self.diagnostics)).then_some(self.config);
        (config, self.diagnostics)
    }

    fn finish_tls(&mut self) {
        let listen::TlsFiles { cert, key, client_ca } = std::mem::take(&mut self.tls);
        let client_ca = match (cert, key, client_ca) {
            (Some(cert), Some(key), client_ca) => {
                let client_ca = client_ca.map(|file| file.path);
                self.config.listen.tls = Some(ListenTls { cert: cert.path, key: key.path, client_ca });
                return;
            }
            (Some(file), None, _) => return self.diagnostics.push(half_of_tls(&file, "tls_cert", "tls_key")),
            (None, Some(file), _) => return self.diagnostics.push(half_of_tls(&file, "tls_key", "tls_cert")),
            (None, None, client_ca) => client_ca,
        };
        self.diagnostics.extend(client_ca.map(|file| half_of_tls(&file, "client_ca", "tls_cert")));
    }
}

fn half_of_tls(file: &WrittenFile, written: &str, missing: &str) -> Diagnostic {
    let message = format!("`listen.{written}` is written without `listen.{missing}`");
    let help = format!("add `{missing}`, or remove `{written}` to leave the proxy port without TLS");
    Diagnostic::new(Code::HalfOfTls, &file.source, file.span, message, help)
}

fn half_of_ca(file: &WrittenFile, written: &str, missing: &str) -> Diagnostic {
    let message = format!("`intercept.{written}` is written without `intercept.{missing}`");
    let help = format!("add `{missing}`, or remove `{written}` to use the CA of the state folder");
    Diagnostic::new(Code::HalfOfCa, &file.source, file.span, message, help)
}

/// What the readers of one layer share.
#[derive(Debug)]
struct Layer<'d> {
    problems: &'d Problems,
    /// Where relative paths start.
    folder: &'d Path,
}

impl Layer<'_> {
    /// A path, relative to the layer's folder; an empty one is reported.
    fn path(&self, field: Field<'_>) -> Option<PathBuf> {
        let text = field.str()?.value;
        if text.is_empty() {
            refuse(&field, Code::BadValue, "expected a path, found an empty string", "write the path of a file");
            return None;
        }
        Some(self.folder.join(text))
    }

    /// The paths of a list; those that were reported are left out.
    fn paths(&self, field: Field<'_>) -> Option<Vec<PathBuf>> {
        Some(field.items()?.filter_map(|item| self.path(item)).collect())
    }
}

/// Sets what was written, and leaves what was not.
fn set<T>(slot: &mut T, written: Option<Spanned<T>>) {
    if let Some(written) = written {
        *slot = written.value;
    }
}

/// The fields of a list, or the value itself where a list of one may be written without brackets.
fn one_or_more(field: Field<'_>) -> Vec<Field<'_>> {
    match field.node().value {
        Value::Array(_) => field.items().into_iter().flatten().collect(),
        _ => vec![field],
    }
}

/// Reports a value with its key in front.
fn refuse(field: &Field<'_>, code: Code, what: impl std::fmt::Display, help: impl Into<String>) {
    field.report(code, format!("{}: {what}", quoted(field.path())), help);
}

#[cfg(test)]
mod tests;
