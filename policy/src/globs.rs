//! Globs over the names of tools and capabilities.
//!
//! The gateway's config filters tools by shell-like patterns: `*` is any run of characters, `?` any one, `[a-z]` one
//! of a set, `{a,b}` either. Names are no paths: neither `/` nor `.` ends a run, so `*delete*` finds the word wherever
//! it stands.

use globset::{GlobBuilder, GlobMatcher};

/// An allow list and a deny list of globs; deny wins, and an empty allow list restricts nothing.
#[derive(Clone, Debug, Default)]
pub struct NameGlobs {
    allow: Vec<GlobMatcher>,
    deny: Vec<GlobMatcher>,
}

/// A glob that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a glob such as `search_*`, found {glob:?}: {problem}")]
pub struct GlobError {
    /// The glob.
    pub glob: String,
    /// What is wrong with it.
    pub problem: String,
}

impl NameGlobs {
    /// Reads both lists.
    ///
    /// # Errors
    ///
    /// [`GlobError`] for the first glob that cannot be read; the empty one is among them, since it matches no name.
    pub fn new<A: AsRef<str>, D: AsRef<str>>(allow: &[A], deny: &[D]) -> Result<Self, GlobError> {
        Ok(Self {
            allow: allow.iter().map(|glob| compile(glob.as_ref())).collect::<Result<_, _>>()?,
            deny: deny.iter().map(|glob| compile(glob.as_ref())).collect::<Result<_, _>>()?,
        })
    }

    /// Whether a name is let through.
    #[must_use]
    pub fn permits(&self, name: &str) -> bool {
        let any = |globs: &[GlobMatcher]| globs.iter().any(|glob| glob.is_match(name));
        !any(&self.deny) && (self.allow.is_empty() || any(&self.allow))
    }

    /// Whether neither list restricts anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }
}

fn compile(glob: &str) -> Result<GlobMatcher, GlobError> {
    let error = |problem: String| GlobError { glob: glob.to_owned(), problem };
    if glob.is_empty() {
        return Err(error("it matches no name".to_owned()));
    }
    // Escapes are on by default on some systems only.
    let built = GlobBuilder::new(glob).literal_separator(false).backslash_escape(true).build();
    built.map(|glob| glob.compile_matcher()).map_err(|found| error(found.kind().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deny_wins_and_an_empty_allow_list_restricts_nothing() {
        let none: [&str; 0] = [];
        let globs = NameGlobs::new(&["search_*", "get_issue"], &["*delete*"]).unwrap();
        for (name, permitted) in [
            ("search_issues", true),
            ("search_", true),
            ("get_issue", true),
            ("get_issues", false),
            ("my_search_x", false),
            ("search_and_delete_all", false),
            ("", false),
        ] {
            assert_eq!(globs.permits(name), permitted, "{name}");
        }
        let deny_only = NameGlobs::new(&none, &["*delete*"]).unwrap();
        assert!(deny_only.permits("anything") && !deny_only.permits("undelete"));
        assert!(NameGlobs::default().is_empty() && NameGlobs::default().permits(""));
        assert!(!deny_only.is_empty());
    }

    #[test]
    fn names_are_no_paths() {
        let globs = NameGlobs::new(&["*"], &["*delete*", "admin.*", "x?z", "*.json"]).unwrap();
        for name in
            ["a/delete/b", "a.delete.b", "delete/", "/delete", "a\ndelete", "admin.a/b", "x/z", "x.z", "a/b.json"]
        {
            assert!(!globs.permits(name), "{name:?}");
        }
        for name in ["a/b", "..", "/", "a.b", "Delete", "xz"] {
            assert!(globs.permits(name), "{name:?}");
        }
    }

    #[test]
    fn sets_alternatives_and_escapes_are_read_and_errors_name_the_glob() {
        let none: [&str; 0] = [];
        let globs = NameGlobs::new(&["{get,list}_[a-c]*", r"literal\*"], &none).unwrap();
        for (name, permitted) in
            [("get_a", true), ("list_cx", true), ("get_d", false), ("literal*", true), ("literalx", false)]
        {
            assert_eq!(globs.permits(name), permitted, "{name}");
        }
        for glob in ["", "[", "{a", "a\\"] {
            let error = NameGlobs::new(&none, &[glob]).unwrap_err();
            assert_eq!(error.glob, glob);
            assert!(!error.problem.is_empty());
        }
    }
}
