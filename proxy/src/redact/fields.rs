//! Header and trailer fields.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::Redactor;

impl Redactor {
    /// Overwrites what is found in values, and drops fields that have it in their names; gives how many there were.
    pub(crate) fn clean(&self, fields: &mut HeaderMap) -> usize {
        let mut count = 0;
        for value in fields.values_mut() {
            if let Some((clean, found)) = self.cleaned(value.as_bytes()) {
                count += found;
                if let Ok(clean) = HeaderValue::from_bytes(&clean) {
                    *value = clean;
                }
            }
        }
        let named: Vec<HeaderName> = fields.keys().filter(|name| self.names(name.as_str())).cloned().collect();
        for name in named {
            fields.remove(name);
            count += 1;
        }
        count
    }

    /// A text without what is found in it, and how much that is; none where nothing is found.
    pub(crate) fn cleaned(&self, text: &[u8]) -> Option<(Vec<u8>, usize)> {
        if !self.is_in(text) {
            return None;
        }
        let mut clean = text.to_vec();
        let count = self.mask(&mut clean);
        Some((clean, count))
    }

    /// Whether a name, whose letters have lost their case, has a form in it.
    fn names(&self, name: &str) -> bool {
        self.patterns.iter().any(|pattern| {
            let same = |text: &[u8]| text.eq_ignore_ascii_case(pattern);
            name.len() >= pattern.len() && name.as_bytes().windows(pattern.len()).any(same)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_names_are_cleaned() {
        let redactor = Redactor::new([&b"Bearer S3cret-token"[..]].into_iter()).unwrap().unwrap();
        let mut fields = HeaderMap::new();
        for (name, value) in [
            ("location", "https://a.test/?t=S3cret-token&x=1"),
            ("x-twice", "S3cret-token S3cret-token"),
            ("x-clean", "secret-token"),
            ("x-s3cret-token", "1"),
            ("x-basic", "Basic dXNlcjpTM2NyZXQtdG9rZW4="),
        ] {
            fields.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        assert_eq!(redactor.clean(&mut fields), 5);
        let value = |name: &str| fields.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(value("location"), Some("https://a.test/?t=************&x=1"));
        assert_eq!(value("x-twice"), Some("************ ************"));
        assert_eq!(value("x-clean"), Some("secret-token"));
        assert_eq!(value("x-s3cret-token"), None);
        assert_eq!(value("x-basic").map(|value| value.contains("TM2NyZXQt")), Some(false));
        assert_eq!(redactor.clean(&mut fields), 0);
    }
}
