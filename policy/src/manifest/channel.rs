//! `channels`: where people reach the agent. A gateway reads them and does nothing about them.

use crate::doc::{Field, Node, Spanned};

/// One named channel.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Its key in `channels`.
    pub name: Spanned<String>,
    /// `type`, such as `slack`.
    pub kind: Spanned<String>,
    /// `enabled`, false where it is not written.
    pub enabled: bool,
    /// `config`, a table whose shape belongs to the channel's type.
    pub config: Option<Node>,
}

/// The most channels that one manifest may describe.
const MOST: usize = 32;

pub(super) fn read(field: Field<'_>) -> Vec<Channel> {
    let Some(fields) = field.clone().fields() else { return Vec::new() };
    let mut count = 0;
    let mut channels = Vec::new();
    for (name, value) in fields.rest() {
        count += 1;
        channels.extend(value.fields().and_then(|mut fields| {
            let kind = fields.required("type").and_then(Field::string);
            let enabled = fields.boolean("enabled").is_some_and(Spanned::into_value);
            let config = fields.take("config").and_then(Field::opaque_table);
            fields.finish();
            Some(Channel { name, kind: kind?, enabled, config })
        }));
    }
    super::at_most(&field, "channels", count, MOST);
    channels
}
