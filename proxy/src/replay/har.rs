//! HTTP archives (HAR 1.2), as browsers and proxies export them: one JSON document, read entry by entry.

use std::fmt;
use std::io::Read;

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Record;

/// Reads the document and gives out each entry's request. What an entry has beside it, bodies above all, is skipped
/// while it is read.
///
/// # Errors
/// What is wrong with the document, with line and column; entries before that have been given out.
pub(super) fn read(reader: impl Read, give: &mut dyn FnMut(Record) -> bool) -> serde_json::Result<()> {
    let mut document = serde_json::Deserializer::from_reader(reader);
    let at_root = Member { name: "log", then: Member { name: "entries", then: Entries { give } } };
    at_root.deserialize(&mut document)?;
    document.end()
}

/// One member of an object, read by `then`; the others are skipped.
struct Member<T> {
    name: &'static str,
    then: T,
}

impl<'de, T: DeserializeSeed<'de, Value = ()>> DeserializeSeed<'de> for Member<T> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: DeserializeSeed<'de, Value = ()>> Visitor<'de> for Member<T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with {:?}", self.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut then = Some(self.then);
        while let Some(key) = map.next_key::<String>()? {
            match then.take_if(|_| key == self.name) {
                Some(seed) => map.next_value_seed(seed)?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct Entries<'g> {
    give: &'g mut dyn FnMut(Record) -> bool,
}

#[derive(Deserialize)]
struct Entry {
    request: Request,
}

#[derive(Deserialize)]
struct Request {
    url: String,
}

impl<'de> DeserializeSeed<'de> for Entries<'_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(entry) = entries.next_element::<Entry>()? {
            let url = entry.request.url;
            // Browsers log what never goes to a network too.
            let is_local = ["data:", "blob:", "about:", "chrome", "file:"].iter().any(|scheme| url.starts_with(scheme));
            if !is_local && !(self.give)(Record { asked: url, recorded: None }) {
                return Err(de::Error::custom("given up"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(text: &str) -> (Vec<String>, bool) {
        let mut urls = Vec::new();
        let read = read(text.as_bytes(), &mut |record| {
            urls.push(record.asked);
            true
        });
        (urls, read.is_ok())
    }

    #[test]
    fn entries_are_given_out_and_the_rest_is_skipped() {
        let text = r#"{"comment": {"log": []}, "log": {"version": "1.2", "creator": {"entries": 1}, "pages": [],
            "entries": [
                {"startedDateTime": "x", "request": {"method": "GET", "url": "https://a.test/x", "headers": []},
                 "response": {"status": 200, "content": {"text": "{\"url\": 1}"}}},
                {"request": {"method": "GET", "url": "data:text/plain,x"}},
                {"request": {"method": "POST", "url": "https://b.test/"}, "response": null}
            ]}}"#;
        assert_eq!(urls(text), (vec!["https://a.test/x".into(), "https://b.test/".into()], true));
    }

    #[test]
    fn a_document_that_breaks_off_gives_what_it_had() {
        let text = r#"{"log": {"entries": [{"request": {"url": "https://a.test/"}}, {"request": {"ur"#;
        assert_eq!(urls(text), (vec!["https://a.test/".into()], false));
        assert_eq!(urls(r#"{"log": 1}"#), (vec![], false));
        assert_eq!(urls(r#"{"log": {}}"#), (vec![], true));
    }
}
