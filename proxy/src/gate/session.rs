//! The session that a gate is for: its name, and its end.
//!
//! A gateway has one session of its own, which lasts as long as the process. Others come and go, each with a gate of its
//! own; whatever is under way at one ends when its session does.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use ring::rand::{SecureRandom as _, SystemRandom};

use super::Gate;
use crate::drain::{self, Drain, Trigger};
use crate::quota::{Limit, Quota};

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
    /// What its clients are called in the log; none for the gateway's own session.
    user: Option<Arc<str>>,
    quota: Option<Arc<Quota>>,
}

impl Session {
    /// The session of the gateway itself.
    pub(crate) fn base() -> Self {
        let (end, ended) = drain::pair();
        Self { id: SessionId::new(), end, ended, user: None, quota: None }
    }

    /// A session that begins, whose clients are called `user` in the log.
    pub(crate) fn new(id: SessionId, user: Arc<str>, quota: Quota) -> Self {
        let (end, ended) = drain::pair();
        Self { id, end, ended, user: Some(user), quota: Some(Arc::new(quota)) }
    }

    /// Whether it is the gateway's own.
    pub(crate) const fn is_base(&self) -> bool {
        self.user.is_none()
    }

    /// What its clients are called in the log.
    pub(crate) fn user(&self) -> Arc<str> {
        self.user.clone().unwrap_or_else(|| "gateway".into())
    }

    /// What it may use up; none where that is not limited.
    pub(crate) const fn quota(&self) -> Option<&Arc<Quota>> {
        self.quota.as_ref()
    }

    /// Uses up one request.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(crate) fn take(&self) -> Result<(), Limit> {
        self.quota.as_ref().map_or(Ok(()), |quota| quota.take(Instant::now()))
    }

    /// Its name.
    pub(crate) const fn id(&self) -> &SessionId {
        &self.id
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.has_begun()
    }

    /// Sees its end coming.
    pub(crate) fn ended(&self) -> Drain {
        self.ended.clone()
    }
}

impl Gate {
    /// Ends the session: whatever is under way at its gate ends at once.
    pub(crate) fn end(&self) {
        self.session.end.begin();
        // Tunnels watch the snapshot alone, since there are many of them.
        self.current.look_again();
        self.upstream.clear();
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
