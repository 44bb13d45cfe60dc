//! The digest that names a policy in events, evidence and answers.

use std::fmt::Write as _;
use std::ops::Range;

use sha2::{Digest as _, Sha256};

use super::{DefaultVerdict, Layer};
use crate::decision::Rule;
use crate::pattern::Pattern;

/// `sha256:` and the digest, in hexadecimal, of a line for the format, the default, each layer, and each pattern of
/// each list, sorted and without repetitions. No line can be taken for another: names are quoted, and patterns hold
/// no white space.
pub(super) fn digest(layers: &[Layer], default: DefaultVerdict) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("exeat policy 1\ndefault {}\n", default.as_str()));
    let mut text = String::new();
    for layer in layers {
        hash.update(format!("layer {:?}\n", layer.name));
        for (list, rules) in [("allowed", &layer.allowed), ("blocked", &layer.blocked)] {
            text.clear();
            for line in lines(rules, &mut text) {
                hash.update(list);
                hash.update(" ");
                hash.update(text.get(line).unwrap_or_default());
                hash.update("\n");
            }
        }
    }
    let mut digest = "sha256:".to_owned();
    for byte in hash.finalize() {
        // Writing to a string cannot fail.
        let _ = write!(digest, "{byte:02x}");
    }
    digest
}

/// Writes the patterns into `text` and returns where each stands, sorted by what it says.
fn lines(rules: &[(Pattern, Rule)], text: &mut String) -> Vec<Range<usize>> {
    let mut lines = Vec::with_capacity(rules.len());
    for (pattern, _) in rules {
        let start = text.len();
        let _ = write!(text, "{pattern}");
        lines.push(start..text.len());
    }
    let bytes = text.as_bytes();
    lines.sort_unstable_by(|a, b| bytes.get(a.clone()).cmp(&bytes.get(b.clone())));
    lines.dedup_by(|next, previous| bytes.get(next.clone()) == bytes.get(previous.clone()));
    lines
}
