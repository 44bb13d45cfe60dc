//! The nearest of a list of words, and safe quoting of what a file contains.

/// The word of `known` that `word` most likely means, if any is near enough to be worth suggesting.
///
/// Case, `_` and `-` do not count, so `networkAccess` finds `network_access`; beyond that about a third of the letters
/// may be wrong, missing, added or swapped.
#[must_use]
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let plain = simplified(word);
    known
        .into_iter()
        .filter_map(|candidate| {
            let other = simplified(candidate);
            let limit = (plain.len().max(other.len()) / 3).max(1);
            if plain.len().abs_diff(other.len()) > limit {
                return None;
            }
            let distance = distance(&plain, &other);
            (distance <= limit && distance < other.len()).then_some((distance, candidate))
        })
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// `text` in backquotes, with control characters escaped and cut short when it is long.
#[must_use]
pub fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut out = String::from("`");
    for (count, character) in text.chars().enumerate() {
        if count == LONGEST {
            out.push('…');
            break;
        }
        if character.is_control() || is_invisible(character) {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    out.push('`');
    out
}

/// Characters that reorder or hide text on a terminal.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn simplified(word: &str) -> Vec<char> {
    word.chars().filter(|character| !matches!(character, '_' | '-')).take(64).flat_map(char::to_lowercase).collect()
}

/// The number of insertions, deletions, substitutions and swaps of neighbours between two words (optimal string
/// alignment).
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    let mut previous = None;
    for (row, &a) in left.iter().enumerate() {
        let mut current = Vec::with_capacity(last.len());
        current.push(row + 1);
        let mut behind = None;
        for (column, &b) in right.iter().enumerate() {
            let at = |line: &[usize], index: usize| line.get(index).copied().unwrap_or(usize::MAX / 2);
            let mut best = at(&last, column) + usize::from(a != b);
            best = best.min(at(&last, column + 1) + 1).min(at(&current, column) + 1);
            if column > 0 && previous == Some(b) && behind == Some(a) {
                best = best.min(at(&before, column - 1) + 1);
            }
            behind = Some(b);
            current.push(best);
        }
        before = std::mem::replace(&mut last, current);
        previous = Some(a);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_edits() {
        let distance = |a: &str, b: &str| super::distance(&simplified(a), &simplified(b));
        assert_eq!(distance("", ""), 0);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("tasg", "tags"), 1);
    }

    #[test]
    fn suggests_what_was_meant_and_nothing_far_fetched() {
        let known = ["network_access", "name", "tags", "tools", "url", "use"];
        assert_eq!(nearest("networkAccess", known), Some("network_access"));
        assert_eq!(nearest("network-acess", known), Some("network_access"));
        assert_eq!(nearest("nmae", known), Some("name"));
        assert_eq!(nearest("tool", known), Some("tools"));
        assert_eq!(nearest("uri", known), Some("url"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("x", known), None);
        assert_eq!(nearest(&"n".repeat(1 << 20), known), None);
    }

    #[test]
    fn quoting_hides_nothing() {
        assert_eq!(quoted("a\u{1b}[31mb"), "`a\\u{1b}[31mb`");
        assert_eq!(quoted("\u{202e}x"), "`\\u{202e}x`");
        assert_eq!(quoted(&"x".repeat(100)), format!("`{}…`", "x".repeat(60)));
        assert_eq!(quoted("größe"), "`größe`");
    }
}
