//! The session that a gate is for: its name, and its end.
//!
//! A gateway has one session of its own, which lasts as long as the process. Others come and go, each with a gate of its
//! own; whatever is under way at one ends when its session does.

use std::fmt;
use std::sync::Arc;

use ring::rand::{SecureRandom as _, SystemRandom};

use crate::drain::{self, Drain, Trigger};

/// The name of a session, which no other session of any gateway has: 32 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionId(Arc<str>);

impl SessionId {
    /// A new name.
    pub(crate) fn new() -> Self {
        let mut bytes = [0; 16];
        // Where the system has no randomness, nothing that needs a key works either.
        let _ = SystemRandom::new().fill(&mut bytes);
        Self(format!("{:032x}", u128::from_be_bytes(bytes)).into())
    }

    /// The name.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A session, from the side of its gate.
#[derive(Debug)]
pub(crate) struct Session {
    id: SessionId,
    end: Trigger,
    ended: Drain,
}

impl Session {
    /// A session that begins.
    pub(crate) fn new() -> Self {
        let (end, ended) = drain::pair();
        Self { id: SessionId::new(), end, ended }
    }

    /// Its name.
    pub(crate) const fn id(&self) -> &SessionId {
        &self.id
    }

    #[allow(dead_code, reason = "for the sessions that end")]
    /// Ends it: whatever is under way at its gate ends at once.
    pub(crate) fn end(&self) {
        self.end.begin();
    }

    /// Sees its end coming.
    pub(crate) fn ended(&self) -> Drain {
        self.ended.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unlike_each_other() {
        let (one, other) = (SessionId::new(), SessionId::new());
        assert_ne!(one, other);
        assert!(one.as_str().len() == 32 && one.as_str().bytes().all(|byte| byte.is_ascii_hexdigit()), "{one}");
    }
}
