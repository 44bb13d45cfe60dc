//! `tools`: schemas of tools that the client runs. A gateway reads them and does nothing about them.

use crate::doc::{Field, Fields, Node, Spanned};

/// One tool that the client runs; its `type` is `client_side`, the only one there is.
#[derive(Clone, Debug)]
pub struct Tool {
    /// `name`.
    pub name: Spanned<String>,
    /// `description`.
    pub description: Spanned<String>,
    /// `parameters`, a JSON Schema.
    pub parameters: Node,
    /// `full_parameters`, the schema before it was cut down.
    pub full_parameters: Option<Node>,
    /// `display_name`.
    pub display_name: Option<Spanned<String>>,
    /// `category`.
    pub category: Option<Spanned<String>>,
    /// `deferrable`.
    pub deferrable: Option<Deferrable>,
    /// `hints`.
    pub hints: Option<ToolHints>,
}

/// Whether a tool's whole schema may be sent later than its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deferrable {
    /// `never`.
    Never,
    /// `automatic`.
    Automatic,
    /// `always`.
    Always,
}

/// How often a call may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideEffectClass {
    /// `Pure`: freely.
    Pure,
    /// `Idempotent`: freely, to the same effect.
    Idempotent,
    /// `AtMostOnce`: never.
    AtMostOnce,
}

/// What a tool says of itself; nothing is enforced by it. An absent hint means unknown.
#[derive(Clone, Debug, Default)]
pub struct ToolHints {
    /// `readonly`.
    pub readonly: Option<bool>,
    /// `destructive`.
    pub destructive: Option<bool>,
    /// `idempotent`.
    pub idempotent: Option<bool>,
    /// `open_world`: it reaches beyond the local system.
    pub open_world: Option<bool>,
    /// `requires_secrets`.
    pub requires_secrets: Option<bool>,
    /// `long_running`.
    pub long_running: Option<bool>,
    /// `cpu_bound`.
    pub cpu_bound: Option<bool>,
    /// `persist_output`.
    pub persist_output: Option<bool>,
    /// `supports_background`.
    pub supports_background: Option<bool>,
    /// `side_effect_class`.
    pub side_effect_class: Option<SideEffectClass>,
    /// `capability_id`.
    pub capability_id: Option<String>,
    /// `capability_name`.
    pub capability_name: Option<String>,
    /// `concurrency_class`.
    pub concurrency_class: Option<String>,
    /// `narration_noun`.
    pub narration_noun: Option<String>,
    /// `metadata`, as it stands.
    pub metadata: Option<Node>,
    /// Further keys, which the schema leaves open.
    pub other: Vec<(Spanned<String>, Node)>,
}

pub(super) fn read(mut fields: Fields<'_>) -> Option<Tool> {
    const DEFERRABLE: &[(&str, Deferrable)] =
        &[("never", Deferrable::Never), ("automatic", Deferrable::Automatic), ("always", Deferrable::Always)];
    fields.required("type").and_then(|field| field.word(&[("client_side", ())]));
    let name = fields.required("name").and_then(Field::string);
    let description = fields.required("description").and_then(Field::string);
    let parameters = fields.required("parameters").map(|field| field.node().clone());
    let full_parameters = fields.take("full_parameters").map(|field| field.node().clone());
    let display_name = super::nullable_string(&mut fields, "display_name");
    let category = super::nullable_string(&mut fields, "category");
    let deferrable = fields.word("deferrable", DEFERRABLE).map(Spanned::into_value);
    let hints = fields.table("hints").map(hints);
    fields.finish();
    Some(Tool {
        name: name?,
        description: description?,
        parameters: parameters?,
        full_parameters,
        display_name,
        category,
        deferrable,
        hints,
    })
}

fn hints(mut fields: Fields<'_>) -> ToolHints {
    const CLASSES: &[(&str, SideEffectClass)] = &[
        ("Pure", SideEffectClass::Pure),
        ("Idempotent", SideEffectClass::Idempotent),
        ("AtMostOnce", SideEffectClass::AtMostOnce),
    ];
    let mut flag = |key| fields.nullable(key).and_then(Field::boolean).map(Spanned::into_value);
    let mut hints = ToolHints {
        readonly: flag("readonly"),
        destructive: flag("destructive"),
        idempotent: flag("idempotent"),
        open_world: flag("open_world"),
        requires_secrets: flag("requires_secrets"),
        long_running: flag("long_running"),
        cpu_bound: flag("cpu_bound"),
        persist_output: flag("persist_output"),
        supports_background: flag("supports_background"),
        ..ToolHints::default()
    };
    let mut text = |key| fields.nullable(key).and_then(Field::string).map(Spanned::into_value);
    hints.capability_id = text("capability_id");
    hints.capability_name = text("capability_name");
    hints.concurrency_class = text("concurrency_class");
    hints.narration_noun = text("narration_noun");
    let class = fields.nullable("side_effect_class").and_then(|field| field.word(CLASSES));
    hints.side_effect_class = class.map(Spanned::into_value);
    hints.metadata = fields.take("metadata").map(|field| field.node().clone());
    hints.other = fields.rest().map(|(key, field)| (key, field.node().clone())).collect();
    hints
}
