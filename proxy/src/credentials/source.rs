//! All bindings of a config, each with its source.

use std::collections::BTreeMap;
use std::sync::Arc;

use secrecy::SecretString;

use super::error::SourceError;
use super::minted::{Errand, Minted};
use super::stored::Stored;
use crate::config::Binding;
use crate::metrics::SESSION_LABEL;

/// All configured sources.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    by_name: BTreeMap<String, Source>,
}

#[derive(Debug)]
enum Source {
    Stored(Stored),
    Minted { minted: Arc<Minted>, binding: Binding },
}

/// A value, with what minted it.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    /// The secret. The same value is the same `Arc` for as long as it is in use.
    pub(crate) secret: Arc<SecretString>,
    minted: Option<(Arc<Minted>, u64)>,
}

impl Value {
    /// Takes note that the server did not accept it.
    pub(crate) fn rejected(&self) {
        if let Some((minted, serial)) = &self.minted {
            minted.rejected(*serial);
        }
    }
}

impl Sources {
    /// Reads the environment now; everything else is asked for when it is needed.
    ///
    /// What `earlier` sources have minted is kept where a binding has not changed, and with it their one way of minting
    /// at a time: two holders of one refresh token would take each other's away.
    pub(crate) fn new(bindings: &BTreeMap<String, Binding>, earlier: Option<&Self>) -> Self {
        let kept = |name: &str, binding: &Binding| match earlier?.by_name.get(name)? {
            Source::Minted { minted, binding: known } if known == binding => Some(Arc::clone(minted)),
            _ => None,
        };
        let source = |name: &str, binding: &Binding| {
            let minted = match (binding, kept(name, binding)) {
                (Binding::Stored(place), _) => return Source::Stored(Stored::new(place)),
                (_, Some(minted)) => minted,
                (Binding::Command(source), None) => Minted::command(name, name, source),
                (Binding::OAuth(source), None) => Minted::oauth(name, name, source),
            };
            Source::Minted { minted, binding: binding.clone() }
        };
        Self { by_name: bindings.iter().map(|(name, binding)| (name.clone(), source(name, binding))).collect() }
    }

    /// The bindings of a session, and the values that were handed over with it.
    pub(crate) fn of_session(
        bindings: &BTreeMap<String, Binding>,
        given: impl IntoIterator<Item = (String, SecretString)>,
    ) -> Self {
        let source = |name: &str, binding: &Binding| {
            let minted = match binding {
                Binding::Stored(place) => return Source::Stored(Stored::new(place)),
                Binding::Command(source) => Minted::command(name, SESSION_LABEL, source),
                Binding::OAuth(source) => Minted::oauth(name, SESSION_LABEL, source),
            };
            Source::Minted { minted, binding: binding.clone() }
        };
        let bound = bindings.iter().map(|(name, binding)| (name.clone(), source(name, binding)));
        let given = given.into_iter().map(|(name, secret)| (name, Source::Stored(Stored::given(secret))));
        Self { by_name: bound.chain(given).collect() }
    }

    /// Whether there is a binding of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The value of a placeholder.
    ///
    /// # Errors
    /// Anything that leaves no value; nothing is sent in its place.
    pub(crate) async fn value(&self, name: &str, way: &Errand) -> Result<Value, SourceError> {
        match self.by_name.get(name) {
            None => Err(SourceError::Unbound(name.to_owned())),
            Some(Source::Stored(stored)) => {
                let secret = stored.secret().map_err(|error| SourceError::Stored(name.to_owned(), error))?;
                Ok(Value { secret, minted: None })
            }
            Some(Source::Minted { minted, .. }) => {
                let held = minted.get(way).await.map_err(|error| SourceError::Minted(name.to_owned(), error))?;
                Ok(Value { secret: held.secret, minted: Some((Arc::clone(minted), held.serial)) })
            }
        }
    }

    /// What is known to be wrong with a placeholder without asking anybody for its value.
    pub(crate) fn problem(&self, name: &str) -> Option<SourceError> {
        match self.by_name.get(name) {
            None => Some(SourceError::Unbound(name.to_owned())),
            Some(Source::Stored(stored)) => {
                stored.header_value().err().map(|error| SourceError::Stored(name.to_owned(), error))
            }
            Some(Source::Minted { .. }) => None,
        }
    }

    /// What makes places bad ones for secrets.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let warnings = self.by_name.iter().flat_map(|(name, source)| {
            let found = match source {
                Source::Stored(stored) => stored.warning().into_iter().collect(),
                Source::Minted { minted, .. } => minted.warnings(),
            };
            found.into_iter().map(move |warning| format!("${{{name}}}: {warning}"))
        });
        warnings.collect()
    }

    /// The names of the bindings whose values are minted.
    pub(crate) fn minted(&self) -> impl Iterator<Item = &str> {
        let minted = self.by_name.iter().filter(|(_, source)| matches!(source, Source::Minted { .. }));
        minted.map(|(name, _)| name.as_str())
    }

    /// Waits until nothing is being minted: what a server has rotated has to be written down before the process ends.
    pub(crate) async fn settle(&self) {
        for source in self.by_name.values() {
            if let Source::Minted { minted, .. } = source {
                minted.settle().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CommandSource, SecretSource};

    fn command(ttl: u64) -> Binding {
        Binding::Command(CommandSource {
            program: "/bin/echo".into(),
            arguments: vec!["x".to_owned()],
            ttl: std::time::Duration::from_secs(ttl),
            timeout: std::time::Duration::from_secs(1),
            pass_env: Vec::new(),
        })
    }

    #[test]
    fn what_is_not_bound_is_said() {
        let missing = Binding::Stored(SecretSource::Env("EXEAT_TEST_NEVER_SET".to_owned()));
        let sources = Sources::new(&BTreeMap::from([("TOKEN".to_owned(), missing)]), None);
        assert!(matches!(sources.problem("OTHER"), Some(SourceError::Unbound(_))));
        assert!(matches!(sources.problem("TOKEN"), Some(SourceError::Stored(..))));
    }

    #[test]
    fn a_reload_keeps_what_was_minted_unless_its_binding_changed() {
        let bindings = |a, b| BTreeMap::from([("A".to_owned(), command(a)), ("B".to_owned(), command(b))]);
        let minted = |sources: &Sources, name: &str| match &sources.by_name[name] {
            Source::Minted { minted, .. } => Arc::clone(minted),
            Source::Stored(_) => panic!("{name} is stored"),
        };
        let first = Sources::new(&bindings(10, 10), None);
        let second = Sources::new(&bindings(10, 20), Some(&first));
        assert!(Arc::ptr_eq(&minted(&first, "A"), &minted(&second, "A")));
        assert!(!Arc::ptr_eq(&minted(&first, "B"), &minted(&second, "B")));
        assert_eq!(second.minted().collect::<Vec<_>>(), ["A", "B"]);
    }
}
