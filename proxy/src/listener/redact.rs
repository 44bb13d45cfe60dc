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
        // Userinfo may end at any at sign, however odd what stands before it: a password with a slash, one slash where
        // two belong. A path by itself has none in front.
        let is_path = scheme.is_empty() && rest.starts_with('/');
        let rest = match rest.rfind('@').filter(|_| !is_path) {
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
            ("http://user:sec/ret@a.test/", "http://…@a.test/"),
            ("http:/user:secret@a.test/", "…@a.test/"),
            ("/plain", "/plain"),
            ("/@scope/package", "/@scope/package"),
            ("http://a.test#frag", "http://a.test…"),
        ] {
            assert_eq!(Shown(raw).to_string(), shown);
        }
        assert_eq!(Shown(&"a".repeat(300)).to_string().chars().count(), SHOWN + 1);
    }
}
