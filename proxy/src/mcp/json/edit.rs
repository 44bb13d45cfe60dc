//! Changing a document in places.

use std::borrow::Cow;
use std::ops::Range;

/// Changes of places of one document, all made at once. A change inside of another one is lost in it.
#[derive(Debug, Default)]
pub(crate) struct Edits(Vec<(Range<usize>, Cow<'static, str>)>);

impl Edits {
    /// Whether nothing is changed.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts `text` in the place of what stands at `span`.
    pub(crate) fn replace(&mut self, span: Range<usize>, text: impl Into<Cow<'static, str>>) {
        self.0.push((span, text.into()));
    }

    /// Removes those of an object's members or an array's values for which `remove` holds, each with one comma. All of
    /// them are to be given, in order; how many stay is the answer.
    pub(crate) fn remove<T>(
        &mut self,
        all: impl IntoIterator<Item = T>,
        span: impl Fn(&T) -> Range<usize>,
        remove: impl Fn(&T) -> bool,
    ) -> usize {
        let mut kept = 0;
        let mut end_before = None;
        // Where removed ones begin that nothing kept stands before: they go up to the next one, comma and all.
        let mut leading: Option<Range<usize>> = None;
        for item in all {
            let Range { start, end } = span(&item);
            if remove(&item) {
                match end_before {
                    Some(before) if kept > 0 => self.replace(before..end, ""),
                    _ => leading = Some(leading.map_or(start, |range| range.start)..end),
                }
            } else {
                if let Some(range) = leading.take() {
                    self.replace(range.start..start, "");
                }
                kept += 1;
            }
            end_before = Some(end);
        }
        if let Some(range) = leading {
            self.replace(range, "");
        }
        kept
    }

    /// The document with the changes made.
    pub(crate) fn apply(mut self, document: &[u8]) -> Vec<u8> {
        self.0.sort_by_key(|(span, _)| (span.start, std::cmp::Reverse(span.end)));
        let mut changed = Vec::with_capacity(document.len());
        let mut at = 0;
        for (span, text) in self.0 {
            if span.start < at {
                continue;
            }
            changed.extend_from_slice(document.get(at..span.start).unwrap_or_default());
            changed.extend_from_slice(text.as_bytes());
            at = span.end;
        }
        changed.extend_from_slice(document.get(at..).unwrap_or_default());
        changed
    }
}
