//! Request targets that could not be read, as the log and the answer show them.

use std::fmt;

/// How much of such a target is shown, in characters.
const SHOWN: usize = 200;

/// Shows a raw target: without query, fragment and userinfo, escaped, and cut.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.find(['?', '#']).unwrap_or(self.0.len());
        let (shown, hidden) = self.0.split_at(end);
        let (scheme, rest) = shown.split_once("://").map_or(("", shown), |(scheme, rest)| (scheme, rest));
        if !scheme.is_empty() {
            write!(f, "{}://", scheme.escape_debug())?;
        }
        // Userinfo ends at the last at sign before the path, however odd what stands before it.
        let path = rest.find('/').unwrap_or(rest.len());
        let rest = match rest.get(..path).and_then(|authority| authority.rfind('@')) {
            Some(at) => {
                f.write_str("…@")?;
                rest.get(at + 1..).unwrap_or_default()
            }
            None => rest,
        };
        for character in rest.chars().take(SHOWN) {
            write!(f, "{}", character.escape_debug())?;
        }
        if !hidden.is_empty() || rest.chars().nth(SHOWN).is_some() {
            f.write_str("…")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_secret_is_shown() {
        for (raw, shown) in [
            ("http://user:secret@a.test/x?token=1", "http://…@a.test/x…"),
            ("user:secret@a.test:443", "…@a.test:443"),
            ("http://a.test/\u{1}x", "http://a.test/\\u{1}x"),
            ("/plain", "/plain"),
            ("http://a.test#frag", "http://a.test…"),
        ] {
            assert_eq!(Shown(raw).to_string(), shown);
        }
        assert_eq!(Shown(&"a".repeat(300)).to_string().chars().count(), SHOWN + 1);
    }
}
