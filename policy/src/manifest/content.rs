//! What a session starts with: the model's name, the files in its folder, the first messages offered.

use crate::doc::{Field, Fields, Node, Spanned, Value};

/// `model`: a provider and one of its models, by name.
#[derive(Clone, Debug)]
pub struct Model {
    /// `provider`, such as `openai`.
    pub provider: Spanned<String>,
    /// `model`, as the provider calls it.
    pub model: Spanned<String>,
}

pub(super) fn model(mut fields: Fields<'_>) -> Option<Model> {
    let provider = fields.required("provider").and_then(Field::string);
    let model = fields.required("model").and_then(Field::string);
    fields.finish();
    Some(Model { provider: provider?, model: model? })
}

/// One of `starters`: a message offered on a fresh thread.
#[derive(Clone, Debug)]
pub struct Starter {
    /// `text`, what is sent.
    pub text: Spanned<String>,
    /// `icon`, from the harness's set.
    pub icon: Option<Spanned<String>>,
    /// Further keys, which the schema leaves open.
    pub other: Vec<(Spanned<String>, Node)>,
}

pub(super) fn starter(mut fields: Fields<'_>) -> Option<Starter> {
    let text = fields.required("text").and_then(Field::string);
    let icon = super::nullable_string(&mut fields, "icon");
    let other = fields.rest().map(|(key, field)| (key, field.node().clone())).collect();
    Some(Starter { text: text?, icon, other })
}

/// One of `files`.
#[derive(Clone, Debug)]
pub enum File {
    /// A file or glob of the manifest's folder, copied under the same path.
    Path(Spanned<String>),
    /// A file or glob of the manifest's folder, with its place in the session.
    Source {
        /// `source`, relative to the manifest's folder.
        source: Spanned<String>,
        /// `path`, where it is put; the same path where it is not written.
        path: Option<Spanned<String>>,
        /// `is_readonly`, true where it is not written.
        is_readonly: bool,
    },
    /// A file whose content the manifest holds.
    Embedded {
        /// `path`, where it is put.
        path: Spanned<String>,
        /// `content`, as `encoding` says.
        content: Spanned<String>,
        /// `encoding`, text where it is not written.
        encoding: Encoding,
        /// `is_readonly`, false where it is not written.
        is_readonly: bool,
    },
}

/// How an embedded file's content is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// As it is.
    #[default]
    Text,
    /// In base64 (RFC 4648, section 4).
    Base64,
}

/// The most files that one manifest may list.
const MOST: usize = 100;

pub(super) fn files(field: Field<'_>) -> Vec<File> {
    let Some(items) = field.clone().items() else { return Vec::new() };
    let mut count = 0;
    let files = items.inspect(|_| count += 1).filter_map(file).collect();
    super::at_most(&field, "files", count, MOST);
    files
}

fn file(item: Field<'_>) -> Option<File> {
    match item.node().value {
        Value::String(_) => item.string().map(File::Path),
        Value::Table(_) => {
            let mut fields = item.fields()?;
            let file = if fields.has("source") { source(&mut fields) } else { embedded(&mut fields) };
            fields.finish();
            file
        }
        _ => {
            item.wrong_type("a path or a table with `source`, or with `path` and `content`");
            None
        }
    }
}

fn source(fields: &mut Fields<'_>) -> Option<File> {
    let source = fields.string("source");
    let path = super::nullable_string(fields, "path");
    let is_readonly = fields.boolean("is_readonly").is_none_or(Spanned::into_value);
    Some(File::Source { source: source?, path, is_readonly })
}

fn embedded(fields: &mut Fields<'_>) -> Option<File> {
    let path = fields.required("path").and_then(Field::string);
    let content = fields.required("content").and_then(Field::string);
    let encodings = [("text", Encoding::Text), ("base64", Encoding::Base64)];
    let encoding = fields.word("encoding", &encodings).map_or_else(Encoding::default, Spanned::into_value);
    let is_readonly = fields.boolean("is_readonly").is_some_and(Spanned::into_value);
    Some(File::Embedded { path: path?, content: content?, encoding, is_readonly })
}
