//! Searching a stream, whatever its pieces are.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::{MASK, Redactor, mask};

/// Overwrites what is found in a stream of bytes.
#[derive(Debug)]
pub struct Masker {
    redactor: Arc<Redactor>,
    /// The end of what has arrived, as it arrived, that could be the beginning of a form.
    held: BytesMut,
    /// How much of its beginning belongs to a form that was found before.
    found: usize,
}

impl Masker {
    /// Searches a stream from its beginning.
    #[must_use]
    pub fn new(redactor: Arc<Redactor>) -> Self {
        Self { redactor, held: BytesMut::new(), found: 0 }
    }

    /// How many bytes are held back.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Takes the next piece, the `last` one or not. Gives what can go on, and how many forms were overwritten in it.
    pub fn push(&mut self, piece: Bytes, last: bool) -> (Bytes, usize) {
        if self.held.is_empty() {
            let unfinished = if last { 0 } else { self.redactor.unfinished(&piece) };
            if unfinished == 0 && !self.redactor.is_in(&piece) {
                return (piece, 0);
            }
            // Whoever else holds the piece keeps it as it is.
            self.held = piece.try_into_mut().unwrap_or_else(|piece| BytesMut::from(&*piece));
        } else {
            self.held.extend_from_slice(&piece);
        }
        let mut text = std::mem::take(&mut self.held);
        let unfinished = if last { 0 } else { self.redactor.unfinished(&text) };
        let end = text.len() - unfinished;
        // What begins in the end that is held is found again with what follows it.
        let places: Vec<_> = self.redactor.places(&text).take_while(|(from, _)| *from < end).collect();
        self.held = text.split_off(end);
        let count = mask(&mut text, &places);
        if let Some(found) = text.get_mut(..self.found.min(end)) {
            found.fill(MASK);
        }
        let reach = places.iter().map(|(_, to)| *to).max().unwrap_or(0);
        self.found = reach.max(self.found).saturating_sub(end);
        (text.freeze(), count)
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;

    use super::*;

    fn redactor(values: &[&str]) -> Arc<Redactor> {
        Arc::new(Redactor::new(values.iter().map(|value| value.as_bytes())).unwrap().unwrap())
    }

    /// Passes pieces through; gives the whole and the count, and asserts the bound on what is held.
    fn pass(redactor: &Arc<Redactor>, pieces: &[&[u8]]) -> (String, usize) {
        let mut masker = Masker::new(Arc::clone(redactor));
        let (mut whole, mut count) = (Vec::new(), 0);
        for (at, piece) in pieces.iter().enumerate() {
            let (out, found) = masker.push(Bytes::copy_from_slice(piece), at + 1 == pieces.len());
            whole.extend_from_slice(&out);
            count += found;
            assert!(masker.held() < redactor.longest);
        }
        assert_eq!(masker.held(), 0);
        (String::from_utf8(whole).unwrap(), count)
    }

    #[test]
    fn nothing_is_missed_wherever_the_borders_are() {
        let redactor = redactor(&["Bearer s3cret-s3cret"]);
        let basic = BASE64.encode("user:s3cret-s3cret!");
        let text = format!("a s3cret-s3cret b s3cret-s3s3cret-s3cret-s3cret {basic} s3cret-");
        let (expected, count) = pass(&redactor, &[text.as_bytes()]);
        assert!(expected.starts_with("a ************* b s3cret-s3********************"), "{expected}");
        assert!(expected.ends_with(" s3cret-") && expected.len() == text.len());
        assert_eq!(count, 3);
        for first in 0..text.len() {
            for second in first..text.len() {
                let (a, rest) = text.as_bytes().split_at(first);
                let (b, c) = rest.split_at(second - first);
                let (whole, found) = pass(&redactor, &[a, b, c]);
                assert_eq!(whole, expected, "{first} {second}");
                assert!(found >= count, "{first} {second}: {found}");
            }
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(pass(&redactor, &bytes).0, expected);
    }

    #[test]
    fn forms_that_run_into_each_other_are_all_found() {
        for (value, text, expected) in [
            ("abcabcab", "abcabcabcab!", "***********!"),
            ("aaaaaaaa", "aaaaaaaaaaaa!aaaaaaa", "************!aaaaaaa"),
            ("xyz-12-xyz", "xyz-12-xyz-12-xyz xyz-12-xy", "***************** xyz-12-xy"),
        ] {
            let redactor = redactor(&[value]);
            for at in 0..text.len() {
                let (one, two) = text.as_bytes().split_at(at);
                assert_eq!(pass(&redactor, &[one, two]).0, expected, "{value} {at}");
            }
        }
    }

    #[test]
    fn an_end_of_a_line_is_never_held() {
        let redactor = redactor(&["Bearer data-data-data"]);
        let mut masker = Masker::new(redactor);
        for event in ["data: x\n\n", "data: {\"a\":1}\n\n", ": data\n\n"] {
            assert_eq!(
                masker.push(Bytes::from_static(event.as_bytes()), false),
                (Bytes::from_static(event.as_bytes()), 0)
            );
        }
        assert_eq!(masker.push(Bytes::from_static(b"data"), false).0, "");
        assert_eq!(masker.push(Bytes::from_static(b": y\n\n"), false).0, "data: y\n\n");
    }

    #[test]
    fn a_piece_without_anything_is_passed_on_as_it_is() {
        let mut masker = Masker::new(redactor(&["Bearer s3cret-s3cret"]));
        let piece = Bytes::from(vec![b'#'; 70_000]);
        let (out, _) = masker.push(piece.clone(), false);
        assert_eq!(out.as_ptr(), piece.as_ptr());
    }
}
