//! What is asked of an answer to a request that carries credentials, so that they do not come back with it.

use std::sync::Arc;

use http::response::Parts;
use http::{HeaderMap, HeaderValue, header};
use hyper::ext::ReasonPhrase;

use crate::config::{Encoded, Redact, RedactScope};
use crate::credentials::Injection;
use crate::listener::http1::ResponseBody;
use crate::metrics::{Metrics, Place};
use crate::redact::{Counts, Redacted, Redactor};
use crate::upstream::{Failure, UpstreamBody};

/// The search of one answer.
#[derive(Clone, Debug)]
pub(super) struct Redaction {
    redactor: Arc<Redactor>,
    what: Redact,
    counts: Arc<Counts>,
}

impl Redaction {
    /// A search for what `redactor` finds, in an answer to a request that carries `injection`.
    pub(super) fn new(redactor: Arc<Redactor>, injection: &Injection, metrics: &Metrics) -> Self {
        let counts = injection.counts.get_or_init(|| {
            let counter = |place| metrics.redactions(&injection.label, place);
            Arc::new(Counts {
                header: counter(Place::Header),
                body: counter(Place::Body),
                trailer: counter(Place::Trailer),
                withheld: counter(Place::Withheld),
            })
        });
        Self { redactor, what: injection.redact, counts: Arc::clone(counts) }
    }

    /// Asks upstream for an answer that can be searched: without a coding, and whole, since a range could end in the
    /// middle of a credential (RFC 9110 sections 12.5.3 and 14.2).
    pub(super) fn prepare(&self, headers: &mut HeaderMap) {
        if self.what.scope == RedactScope::Body {
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            headers.remove(header::RANGE);
            headers.remove(header::IF_RANGE);
        }
    }

    /// Searches the fields of an interim or final answer.
    pub(super) fn fields(&self, headers: &mut HeaderMap) {
        self.counts.header.inc_by(self.redactor.clean(headers) as u64);
    }

    /// Searches the head of an answer.
    pub(super) fn head(&self, parts: &mut Parts) {
        self.fields(&mut parts.headers);
        let phrase = parts.extensions.get::<ReasonPhrase>().and_then(|phrase| self.redactor.cleaned(phrase.as_bytes()));
        if let Some((_, found)) = phrase {
            self.counts.header.inc_by(found as u64);
            parts.extensions.remove::<ReasonPhrase>();
        }
    }

    /// Has the body of an answer searched on its way.
    ///
    /// # Errors
    /// It has a coding in which nothing could be found, and is withheld.
    pub(super) fn body(&self, headers: &HeaderMap, body: UpstreamBody) -> Result<ResponseBody, Failure> {
        use http_body::Body as _;
        let upstream = |body| ResponseBody::Upstream(Box::new(body));
        if self.what.scope != RedactScope::Body || body.is_end_stream() {
            return Ok(upstream(body));
        }
        match (coding(headers), self.what.encoded) {
            (None, _) => {
                let redacted = Redacted::new(body, Arc::clone(&self.redactor), Arc::clone(&self.counts));
                Ok(ResponseBody::Redacted(Box::new(redacted)))
            }
            (Some(_), Encoded::Pass) => Ok(upstream(body)),
            (Some(coding), Encoded::Withhold) => {
                self.counts.withheld.inc();
                Err(Failure::encoded(&coding))
            }
        }
    }
}

/// The codings of an answer, if it has any (RFC 9110 section 8.4).
fn coding(headers: &HeaderMap) -> Option<String> {
    let fields = headers.get_all(header::CONTENT_ENCODING).iter();
    let codings = fields.flat_map(|field| field.as_bytes().split(|&byte| byte == b',')).map(<[u8]>::trim_ascii);
    let mut codings = codings.filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"));
    codings.next().map(|coding| String::from_utf8_lossy(coding).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_are_told_from_none() {
        for (fields, expected) in [
            (&[][..], None),
            (&["identity"], None),
            (&["Identity, ", ""], None),
            (&["gzip"], Some("gzip")),
            (&["identity", "x-Odd"], Some("x-Odd")),
            (&["identity , br"], Some("br")),
        ] {
            let mut headers = HeaderMap::new();
            for field in fields {
                headers.append(header::CONTENT_ENCODING, HeaderValue::from_static(field));
            }
            assert_eq!(coding(&headers).as_deref(), expected, "{fields:?}");
        }
    }
}
