//! Header fields on their way through: which belong to one connection only, and what a forwarding proxy adds.

use bytes::Bytes;
use http::header::{self, Entry};
use http::{HeaderMap, HeaderName, HeaderValue, Version};

use crate::respond::EXEAT_REASON;

/// Removes the hop-by-hop fields and those that Connection names (RFC 9110 section 7.6.1).
///
/// This happens before injection, so no client can have an injected field removed by naming it in Connection.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    const HOP_BY_HOP: [HeaderName; 9] = [
        header::CONNECTION,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::TE,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        HeaderName::from_static("http2-settings"),
    ];
    // Most messages have none of them, and a look at the names costs less than a search for each.
    if !headers.keys().any(|name| HOP_BY_HOP.contains(name)) {
        return;
    }
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
}

/// Removes from an answer what is of its connection only and what only the gateway says.
pub(crate) fn clean_answer(headers: &mut HeaderMap) {
    remove_hop_by_hop(headers);
    headers.remove(&EXEAT_REASON);
}

/// Whether Connection lists `token`.
pub(crate) fn connection_lists(headers: &HeaderMap, token: &str) -> bool {
    lists(headers, &header::CONNECTION, token)
}

/// Whether a comma-separated field lists `token`, in any case.
pub(crate) fn lists(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .any(|item| item.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

/// The name under which this gateway signs Via fields: unique to the process, so that a request that comes round again
/// is known by it (RFC 9110 section 7.6.3).
#[derive(Debug)]
pub(crate) struct Pseudonym {
    name: String,
    http10: HeaderValue,
    http11: HeaderValue,
    http2: HeaderValue,
}

impl Pseudonym {
    /// A pseudonym that ends in `unique`.
    pub(crate) fn new(unique: u64) -> Self {
        let name = format!("exeat-{unique:016x}");
        // A value that came from shared bytes is cloned without another allocation.
        let via = |version| {
            HeaderValue::from_maybe_shared(Bytes::from_owner(format!("{version} {name}")))
                .unwrap_or_else(|_| HeaderValue::from_static("1.1 exeat"))
        };
        Self { http10: via("1.0"), http11: via("1.1"), http2: via("2"), name }
    }

    /// Whether a request has passed this gateway before.
    pub(crate) fn has_seen(&self, headers: &HeaderMap) -> bool {
        headers
            .get_all(header::VIA)
            .iter()
            .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
            .any(|hop| hop.split(u8::is_ascii_whitespace).any(|word| word == self.name.as_bytes()))
    }

    /// Signs a message that was received in `version`.
    pub(crate) fn sign(&self, headers: &mut HeaderMap, version: Version) {
        let via = match version {
            Version::HTTP_10 => &self.http10,
            Version::HTTP_2 => &self.http2,
            _ => &self.http11,
        };
        match headers.entry(header::VIA) {
            Entry::Occupied(mut entry) => entry.append(via.clone()),
            Entry::Vacant(entry) => {
                entry.insert(via.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn hop_by_hop_fields_and_named_ones_go() {
        let mut fields = headers(&[
            ("accept", "*/*"),
            ("connection", "close, X-Gone"),
            ("connection", "also-gone"),
            ("x-gone", "1"),
            ("also-gone", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic eA=="),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABk"),
            ("trailer", "x-sum"),
        ]);
        remove_hop_by_hop(&mut fields);
        let left: Vec<_> = fields.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["accept", "trailer"]);
    }

    #[test]
    fn via_is_appended_and_recognised() {
        let pseudonym = Pseudonym::new(7);
        let mut fields = headers(&[("via", "1.0 fred")]);
        assert!(!pseudonym.has_seen(&fields));
        pseudonym.sign(&mut fields, Version::HTTP_11);
        assert!(pseudonym.has_seen(&fields));
        assert!(pseudonym.has_seen(&headers(&[("via", "1.1 a, 1.1 exeat-0000000000000007 (x), 1.1 b")])));
        assert!(!Pseudonym::new(8).has_seen(&fields));
        pseudonym.sign(&mut fields, Version::HTTP_2);
        let signed: Vec<_> = fields.get_all("via").iter().collect();
        assert_eq!(signed, ["1.0 fred", "1.1 exeat-0000000000000007", "2 exeat-0000000000000007"]);
    }
}
