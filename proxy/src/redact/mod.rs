//! Redaction: a credential that was put on a request does not come back with the answer.
//!
//! An answer is searched for the value in every form that servers are known to echo it in ([`forms`]): as it is, in
//! base64 at any alignment, which is also what `Basic` makes of it, percent-encoded and escaped as in JSON. What is
//! found is overwritten with as many `*`, so that the length of a body, and every framing that depends on it, stays
//! what it was.
//!
//! Bodies are searched as they stream ([`Masker`]). Of what has arrived, only an end that could be the beginning of a
//! credential is held back, never more than the longest form and never the end of a line: an event of a stream of
//! server-sent events passes the moment it is complete.

mod body;
mod fields;
mod forms;
mod stream;

use std::fmt;

use aho_corasick::{AhoCorasick, MatchKind};
use zeroize::Zeroizing;

pub(crate) use body::{Counts, Redacted};
pub use stream::Masker;

/// What stands in the place of each byte of a credential.
const MASK: u8 = b'*';

/// The length from which a value is searched for, in bytes: what is shorter stands in ordinary text by chance.
pub const MIN_SECRET: usize = 6;

/// Finds the forms of some credentials.
pub struct Redactor {
    patterns: Vec<Zeroizing<Vec<u8>>>,
    automaton: AhoCorasick,
    /// Which bytes a form begins with.
    first: Box<[bool; 256]>,
    /// The length of the longest form.
    longest: usize,
    /// How many bytes at the end of each form could be the beginning of one.
    overlaps: Vec<usize>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("patterns", &self.patterns.len()).finish_non_exhaustive()
    }
}

impl Redactor {
    /// Finds all forms of `values`, which are field values: `Bearer X` is found by its `X`. None where there is nothing
    /// that could be found.
    ///
    /// # Errors
    /// The forms are too many or too long to be searched for, which no credential that fits a field is.
    pub fn new<'v>(values: impl Iterator<Item = &'v [u8]>) -> Result<Option<Self>, String> {
        let mut patterns: Vec<Zeroizing<Vec<u8>>> = values.flat_map(forms::of_field).collect();
        patterns.sort_unstable_by(|one, other| one.as_slice().cmp(other));
        patterns.dedup();
        let Some(longest) = patterns.iter().map(|pattern| pattern.len()).max() else { return Ok(None) };
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(patterns.iter().map(|pattern| pattern.as_slice()))
            .map_err(|error| error.to_string())?;
        let mut first = Box::new([false; 256]);
        for byte in patterns.iter().filter_map(|pattern| pattern.first()) {
            if let Some(slot) = first.get_mut(usize::from(*byte)) {
                *slot = true;
            }
        }
        let mut redactor = Self { patterns, automaton, first, longest, overlaps: Vec::new() };
        let behind_first = |pattern: &Zeroizing<Vec<u8>>| redactor.unfinished(pattern.get(1..).unwrap_or_default());
        redactor.overlaps = redactor.patterns.iter().map(behind_first).collect();
        Ok(Some(redactor))
    }

    /// How many bytes at the end of `text` could be the beginning of a form.
    fn unfinished(&self, text: &[u8]) -> usize {
        let window = text.get(text.len().saturating_sub(self.longest.saturating_sub(1))..).unwrap_or_default();
        let begins = |byte: u8| self.first.get(usize::from(byte)).copied().unwrap_or(false);
        (0..window.len())
            .filter(|&at| window.get(at).copied().is_some_and(begins))
            .filter_map(|at| window.get(at..))
            .find(|end| self.patterns.iter().any(|pattern| pattern.len() > end.len() && pattern.starts_with(end)))
            .map_or(0, <[u8]>::len)
    }

    /// Where forms stand in `text`, those that run into others included, in the order of their beginnings. Those inside
    /// others may be left out.
    fn places<'t>(&'t self, text: &'t [u8]) -> impl Iterator<Item = (usize, usize)> + 't {
        let mut from = 0;
        std::iter::from_fn(move || {
            let found = self.automaton.find(aho_corasick::Input::new(text).range(from..))?;
            // What begins inside this one and ends behind it begins in the end that could be a beginning.
            let overlap = self.overlaps.get(found.pattern().as_usize()).copied().unwrap_or(self.longest);
            from = found.end().saturating_sub(overlap).max(found.start() + 1);
            Some((found.start(), found.end()))
        })
    }

    /// Whether a form stands in `text`.
    fn is_in(&self, text: &[u8]) -> bool {
        self.automaton.is_match(text)
    }

    /// Overwrites all forms in a text that is whole; gives how many there were.
    fn mask(&self, text: &mut [u8]) -> usize {
        let places: Vec<_> = self.places(text).collect();
        mask(text, &places)
    }
}

/// Overwrites what stands at `places`; gives how many places there are that do not run into one before.
fn mask(text: &mut [u8], places: &[(usize, usize)]) -> usize {
    let mut count = 0;
    let mut end = 0;
    for &(from, to) in places {
        count += usize::from(from >= end);
        end = end.max(to);
        if let Some(found) = text.get_mut(from..to.min(text.len())) {
            found.fill(MASK);
        }
    }
    count
}
