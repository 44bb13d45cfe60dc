//! One line of a log.
//!
//! Each line says by its form what it is, so that a log in which lines of several kinds are mixed, as the output of a
//! container is, is read all the same.

use std::borrow::Cow;
use std::fmt;

use exeat_policy::Reason;
use serde::Deserialize;
use serde::de::{self, IgnoredAny, MapAccess, Visitor};

use super::{Reading, Record};

/// Reads a line: a URL or `HOST:PORT`, a decision of exeat (as JSON or text), a verdict of `exeat check --json`, a
/// decision of Smokescreen, an access log of squid (native or combined).
pub(super) fn read(line: &[u8]) -> Reading {
    let line = String::from_utf8_lossy(line);
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Reading::Other;
    }
    if line.starts_with('{') {
        return json(line);
    }
    if !line.contains([' ', '\t']) {
        return record(line, None);
    }
    native(line).or_else(|| combined(line)).or_else(|| text(line)).unwrap_or(Reading::Unreadable)
}

fn record(asked: impl Into<String>, recorded: Option<bool>) -> Reading {
    Reading::Record(Record { asked: asked.into(), recorded })
}

/// Whether policy let out what ended with that reason; none where another part of the gateway spoke before it could, or
/// where the word is not known.
pub(super) fn let_out(reason: &str) -> Option<bool> {
    let reason = Reason::ALL.iter().find(|known| known.as_str() == reason)?;
    match reason {
        Reason::NotAllowed
        | Reason::Blocked
        | Reason::DefaultDeny
        | Reason::Malformed
        | Reason::UnsupportedScheme
        | Reason::PolicyChanged => Some(false),
        Reason::Allowed
        | Reason::DefaultAllow
        | Reason::GuardAddress
        | Reason::GuardMetadata
        | Reason::GuardSelf
        | Reason::GuardPort
        | Reason::GuardName
        | Reason::InspectOff
        | Reason::SniMismatch
        | Reason::NotTls
        | Reason::CredentialUnbound
        | Reason::CredentialUnavailable
        | Reason::CredentialInsecure
        | Reason::DnsNotFound
        | Reason::DnsFailed
        | Reason::ConnectRefused
        | Reason::ConnectTimeout
        | Reason::ConnectFailed
        | Reason::UpstreamTls
        | Reason::UpstreamProtocol
        | Reason::UpstreamTimeout
        | Reason::UpstreamProxy
        | Reason::UpstreamEncoded
        | Reason::McpMalformed
        | Reason::McpTooLarge
        | Reason::McpEncoding
        | Reason::McpMethod
        | Reason::McpHeader
        | Reason::McpProtocol
        | Reason::McpBatch
        | Reason::McpDiscovery
        | Reason::McpTool
        | Reason::McpElicitation
        | Reason::McpAnswer => Some(true),
        _ => None,
    }
}

/// The members that some log has.
#[derive(Deserialize)]
struct Json<'l> {
    /// exeat's decision lines.
    #[serde(borrow)]
    url: Option<Cow<'l, str>>,
    /// Which way it came in.
    #[serde(borrow)]
    entry: Option<Cow<'l, str>>,
    /// `exeat check --json`.
    #[serde(borrow)]
    input: Option<Cow<'l, str>>,
    /// exeat's events; of its decision lines, where the line comes from.
    target: Option<EventTarget>,
    #[serde(borrow)]
    verdict: Option<Cow<'l, str>>,
    #[serde(borrow)]
    reason: Option<Cow<'l, str>>,
    /// Smokescreen.
    #[serde(borrow)]
    requested_host: Option<Cow<'l, str>>,
    allow: Option<bool>,
    #[serde(borrow)]
    msg: Option<Cow<'l, str>>,
}

/// The target of an event; empty where the member is something else.
#[derive(Debug, Default, PartialEq, Eq)]
struct EventTarget {
    scheme: Option<String>,
    host: Option<String>,
    port: Option<u16>,
    path: Option<String>,
}

impl<'de> Deserialize<'de> for EventTarget {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = EventTarget;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a target")
            }

            fn visit_str<E: de::Error>(self, _: &str) -> Result<EventTarget, E> {
                Ok(EventTarget::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<EventTarget, A::Error> {
                let mut target = EventTarget::default();
                while let Some(key) = map.next_key::<Cow<'_, str>>()? {
                    match &*key {
                        "scheme" => target.scheme = map.next_value()?,
                        "host" => target.host = map.next_value()?,
                        "port" => target.port = map.next_value()?,
                        "path" => target.path = map.next_value()?,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(target)
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

impl EventTarget {
    /// The URL or, where there is no path, the authority.
    fn asked(&self) -> Option<String> {
        let host = self.host.as_deref()?;
        let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
        let port = self.port.map_or(String::new(), |port| format!(":{port}"));
        match (&self.scheme, &self.path) {
            (Some(scheme), Some(path)) => Some(format!("{scheme}://{host}{port}{path}")),
            _ => Some(format!("{host}{port}")),
        }
    }
}

fn json(line: &str) -> Reading {
    let Ok(line) = serde_json::from_str::<Json<'_>>(line) else { return Reading::Unreadable };
    if let Some(host) = line.requested_host {
        // Smokescreen writes a second line when a connection closes.
        return match (line.allow, line.msg.as_deref()) {
            (Some(allow), None | Some("CANONICAL-PROXY-DECISION")) if !host.is_empty() => {
                record(host.into_owned(), Some(allow))
            }
            _ => Reading::Other,
        };
    }
    let asked = line.url.or(line.input).map(Cow::into_owned);
    let asked = asked.or_else(|| line.target.as_ref().and_then(EventTarget::asked));
    // A name that a session asked for, most likely to reach it over TLS.
    let asked = match line.entry.as_deref() {
        Some("dns") => asked.map(|name| format!("{name}:443")),
        _ => asked,
    };
    match (asked, line.verdict.as_deref()) {
        (Some(asked), Some(verdict)) => {
            record(asked, line.reason.as_deref().map_or_else(|| by_verdict(verdict), let_out))
        }
        // The gateway writes about other matters too.
        _ => Reading::Other,
    }
}

fn by_verdict(verdict: &str) -> Option<bool> {
    match verdict {
        "allow" | "permit" | "inspect" => Some(true),
        "deny" => Some(false),
        _ => None,
    }
}

/// A decision of exeat as it stands on a terminal.
fn text(line: &str) -> Option<Reading> {
    let quoted = |key: &str| Some(line.split_once(&format!(" {key}=\""))?.1.split_once('"')?.0);
    let verdict = quoted("verdict")?;
    let (_, url) = line.split_once(" url=")?;
    let url = url.split(' ').next()?;
    Some(record(url, quoted("reason").map_or_else(|| by_verdict(verdict), let_out)))
}

/// Squid's native access log: time, duration, client, result and status, size, method, URL, user, hierarchy, type.
fn native(line: &str) -> Option<Reading> {
    let mut fields = line.split_ascii_whitespace();
    let (seconds, fraction) = fields.next()?.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds)
        || !digits(fraction)
        || !fields.next()?.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    {
        return None;
    }
    let (result, _) = fields.nth(1)?.split_once('/')?;
    let (method, url) = (fields.nth(1)?, fields.next()?);
    Some(squid(method, url, result))
}

/// The combined log format with squid's result at the end: client, identity, user, [time], "request", status, size,
/// "referer", "agent", result:hierarchy.
fn combined(line: &str) -> Option<Reading> {
    let (_, request) = line.split_once("] \"")?;
    let (request, behind) = request.split_once('"')?;
    let mut words = request.split(' ');
    let (method, url) = (words.next()?, words.next()?);
    let result = behind.rsplit(' ').next().and_then(|last| last.split_once(':')).map_or("", |(result, _)| result);
    Some(squid(method, url, result))
}

fn squid(method: &str, url: &str, result: &str) -> Reading {
    // What squid could not read, it logs as error:REASON.
    if url.starts_with("error:") || url == "-" || url == "NONE" {
        return Reading::Other;
    }
    let recorded = match result {
        "" => None,
        result if result.contains("DENIED") => Some(false),
        result if result.starts_with("NONE") => None,
        _ => Some(true),
    };
    if method.eq_ignore_ascii_case("CONNECT") || url.contains("://") {
        record(url, recorded)
    } else {
        // A path alone is the log of a server, not of a proxy.
        Reading::Unreadable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_line_is_told_by_its_form() {
        let seen = |asked: &str, recorded| Reading::Record(Record { asked: asked.to_owned(), recorded });
        let cases = [
            ("https://a.test/x", seen("https://a.test/x", None)),
            ("a.test:443", seen("a.test:443", None)),
            ("# a comment", Reading::Other),
            ("   ", Reading::Other),
            (
                r#"{"timestamp":"2026-11-30T08:31:00Z","level":"INFO","verdict":"deny","reason":"blocked","entry":"forward","method":"GET","url":"http://a.test/x","generation":1,"target":"exeat::decision"}"#,
                seen("http://a.test/x", Some(false)),
            ),
            (
                r#"{"verdict":"deny","reason":"not_allowed","entry":"dns","url":"a.test","target":"exeat::decision"}"#,
                seen("a.test:443", Some(false)),
            ),
            (
                r#"{"verdict":"error","reason":"dns_failed","entry":"connect","url":"a.test:443","target":"exeat::decision"}"#,
                seen("a.test:443", Some(true)),
            ),
            (
                r#"{"verdict":"deny","reason":"proxy_auth","entry":"connect","url":"a.test:443"}"#,
                seen("a.test:443", None),
            ),
            (r#"{"level":"INFO","message":"reloaded","target":"exeat"}"#, Reading::Other),
            (
                r#"{"schema":"exeat.event","verdict":"allow","target":{"scheme":"https","host":"a.test","port":8443,"path":"/x","query_length":3}}"#,
                seen("https://a.test:8443/x", Some(true)),
            ),
            (
                r#"{"verdict":"allow","reason":"allowed","target":{"host":"2001:db8::1","port":443}}"#,
                seen("[2001:db8::1]:443", Some(true)),
            ),
            (
                r#"{"input":"https://a.test/","method":"GET","verdict":"deny","reason":"not_allowed","rule":null,"inject":[]}"#,
                seen("https://a.test/", Some(false)),
            ),
            (
                r#"{"allow":false,"decision_reason":"rule has deny","msg":"CANONICAL-PROXY-DECISION","proxy_type":"connect","requested_host":"a.test:443","level":"info"}"#,
                seen("a.test:443", Some(false)),
            ),
            (r#"{"msg":"CANONICAL-PROXY-CN-CLOSE","requested_host":"a.test:443","level":"info"}"#, Reading::Other),
            ("{broken", Reading::Unreadable),
            (
                "2026-11-30T08:31:00.945818Z  INFO verdict=\"deny\" reason=\"blocked\" entry=\"forward\" method=\"GET\" url=http://a.test/x rule=http://a.test/ (agent.toml:8:12) client=127.0.0.1:37956 generation=1",
                seen("http://a.test/x", Some(false)),
            ),
            (
                "1286536308.779    180 192.168.0.224 TCP_MISS/200 411 GET http://a.test/x - DIRECT/192.0.2.1 text/html",
                seen("http://a.test/x", Some(true)),
            ),
            (
                "1286536309.001      0 192.168.0.224 TCP_DENIED/403 3900 CONNECT a.test:443 - HIER_NONE/- text/html",
                seen("a.test:443", Some(false)),
            ),
            (
                "1286536309.001      0 ::1 NONE_NONE/400 3900 GET error:invalid-request - HIER_NONE/- text/html",
                Reading::Other,
            ),
            (
                r#"192.0.2.7 - joe [30/Nov/2026:08:31:00 +0000] "GET http://a.test/x HTTP/1.1" 200 411 "-" "curl/8" TCP_MISS:HIER_DIRECT"#,
                seen("http://a.test/x", Some(true)),
            ),
            (
                r#"192.0.2.7 - - [30/Nov/2026:08:31:00 +0000] "CONNECT a.test:443 HTTP/1.1" 403 3900 "-" "curl/8" TCP_DENIED:HIER_NONE"#,
                seen("a.test:443", Some(false)),
            ),
            (
                r#"192.0.2.7 - - [30/Nov/2026:08:31:00 +0000] "GET /index.html HTTP/1.1" 200 411 "-" "curl/8""#,
                Reading::Unreadable,
            ),
            ("two words", Reading::Unreadable),
        ];
        for (line, expected) in cases {
            assert_eq!(read(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn what_policy_let_out_and_refused_is_told_by_the_reason() {
        use crate::audit::Outcome;
        for reason in Reason::ALL {
            match (let_out(reason.as_str()), Outcome::of(*reason)) {
                (Some(true), _) | (None, Outcome::Deny | Outcome::Error) | (Some(false), Outcome::Deny) => {}
                (let_out, outcome) => panic!("{reason}: {let_out:?} {outcome:?}"),
            }
        }
        assert_eq!(let_out("allowed"), Some(true));
        assert_eq!(let_out("not_allowed"), Some(false));
        assert_eq!(let_out("no_such_reason"), None);
    }
}
