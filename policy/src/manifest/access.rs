//! `network_access`: the patterns, still as written.

use crate::diag::Span;
use crate::doc::{Fields, Spanned};

/// The `network_access` table. A missing list is an empty one: both add no restriction.
#[derive(Clone, Debug, Default)]
pub struct NetworkAccess {
    /// Where the table stands.
    pub span: Span,
    /// `allowed`, in the order written.
    pub allowed: Vec<Spanned<String>>,
    /// `blocked`, in the order written.
    pub blocked: Vec<Spanned<String>>,
}

pub(super) fn read(mut fields: Fields<'_>) -> NetworkAccess {
    let span = fields.span();
    let allowed = super::strings(&mut fields, "allowed");
    let blocked = super::strings(&mut fields, "blocked");
    fields.finish();
    NetworkAccess { span, allowed, blocked }
}
