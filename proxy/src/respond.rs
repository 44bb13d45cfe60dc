//! Answers that are the gateway's own: which status a reason has, and what a refused client is told.
//!
//! Refusals are problem details (RFC 9457) that an agent can act on: what was asked for, which rule or layer refused
//! it, under which policy, and what would have to change.

use std::time::SystemTime;

use bytes::Bytes;
use exeat_policy::diag::Diagnostic;
use exeat_policy::{Reason, RuleRef};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::listener::http1::ResponseBody;
use crate::quota::RATE_WAIT;
use crate::view::{DiagnosticView, RuleView};

/// The field that carries the reason of a refusal. Only the gateway says it: it is removed from upstream's answers.
pub(crate) const EXEAT_REASON: HeaderName = HeaderName::from_static("exeat-reason");

/// A refusal, as the client is told.
#[derive(Debug, Serialize)]
pub(crate) struct Problem<'a> {
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    /// What happened, in one sentence.
    pub(crate) detail: String,
    reason: &'static str,
    /// The URL or authority that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    rule: Option<RuleView<'a>>,
    /// The layer that refused.
    pub(crate) layer: Option<&'a str>,
    /// The policy that was in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<ProblemPolicy<'a>>,
    /// What would have to change for the request to pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) change: Option<String>,
    #[serde(skip)]
    status_code: StatusCode,
}

/// The policy that was in force.
#[derive(Debug, Serialize)]
pub(crate) struct ProblemPolicy<'a> {
    pub(crate) digest: &'a str,
    pub(crate) generation: u64,
}

impl<'a> Problem<'a> {
    /// A refusal for `reason` that says no more than the reason does.
    pub(crate) fn new(reason: Reason) -> Self {
        let status_code = status(reason);
        Self {
            kind: format!("urn:exeat:reason:{reason}"),
            title: reason.text(),
            status: status_code.as_u16(),
            detail: reason.text().to_owned(),
            reason: reason.as_str(),
            url: None,
            rule: None,
            layer: None,
            policy: None,
            change: None,
            status_code,
        }
    }

    /// Names the rule that decided, and its layer.
    pub(crate) fn with_rule(mut self, rule: Option<RuleRef<'a>>, layer: Option<&'a str>) -> Self {
        self.rule = rule.map(RuleView::from);
        self.layer = layer.or(rule.map(|rule| rule.layer));
        self
    }

    /// The whole answer.
    pub(crate) fn into_response(self) -> Response<ResponseBody> {
        self.into_bytes().map(ResponseBody::Full)
    }

    /// The whole answer, with its body as it is.
    pub(crate) fn into_bytes(self) -> Response<Bytes> {
        let mut body = serde_json::to_vec_pretty(&self).unwrap_or_default();
        body.push(b'\n');
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.status_code;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(EXEAT_REASON, HeaderValue::from_static(self.reason));
        if self.reason == Reason::SessionRate.as_str() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(RATE_WAIT.as_secs()));
        }
        add_date(headers);
        response
    }
}

/// Why something that was asked of the admin listener is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmet {
    /// No token, or a wrong one.
    Unauthorized,
    /// It takes more than the way in that it came by.
    Forbidden,
    /// It is not what the resource takes.
    MediaType,
    /// What was sent has errors.
    Invalid,
    /// What it is about is in the way of it.
    Conflict,
    /// There are as many as there may be.
    Full,
    /// There is no such thing.
    Missing,
}

impl Unmet {
    /// The word in the problem's type.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::MediaType => "media_type",
            Self::Invalid => "invalid",
            Self::Conflict => "conflict",
            Self::Full => "full",
            Self::Missing => "missing",
        }
    }

    const fn status(self) -> StatusCode {
        match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Conflict => StatusCode::CONFLICT,
            Self::Full => StatusCode::TOO_MANY_REQUESTS,
            Self::Missing => StatusCode::NOT_FOUND,
        }
    }

    /// The answer, with what is wrong in the files or in what was sent.
    pub(crate) fn answer(self, detail: &str, diagnostics: &[Diagnostic]) -> Response<Bytes> {
        let body = serde_json::json!({
            "type": format!("urn:exeat:admin:{}", self.as_str()),
            "title": self.status().canonical_reason(),
            "status": self.status().as_u16(),
            "detail": detail,
            "diagnostics": diagnostics.iter().map(DiagnosticView::from).collect::<Vec<_>>(),
        });
        let mut response = Response::new(Bytes::from(format!("{body:#}\n")));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self == Self::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(r#"Bearer realm="exeat admin""#));
        }
        add_date(headers);
        response
    }
}

/// An answer in JSON-RPC, to an HTTP request that is refused with it or is not.
pub(crate) fn json_rpc(reason: Reason, rejected: bool, body: String) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Full(Bytes::from(body)));
    *response.status_mut() = if rejected { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(EXEAT_REASON, HeaderValue::from_static(reason.as_str()));
    add_date(headers);
    response
}

/// Adds the Date that an answer of the gateway's own has to carry (RFC 9110 section 6.6.1).
pub(crate) fn add_date(headers: &mut HeaderMap) {
    if let Ok(date) = HeaderValue::from_str(&httpdate::fmt_http_date(SystemTime::now())) {
        headers.insert(header::DATE, date);
    }
}

/// The status code that a reason is answered with.
const fn status(reason: Reason) -> StatusCode {
    match reason {
        Reason::Malformed
        | Reason::UnsupportedScheme
        | Reason::BadRequest
        | Reason::ClientTls
        | Reason::ProxyHeader
        | Reason::UnsupportedProtocol
        | Reason::McpMalformed
        | Reason::McpHeader
        | Reason::McpProtocol
        | Reason::McpBatch => StatusCode::BAD_REQUEST,
        Reason::McpMethod => StatusCode::METHOD_NOT_ALLOWED,
        Reason::McpTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Reason::McpEncoding => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Reason::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        Reason::HeadTimeout => StatusCode::REQUEST_TIMEOUT,
        Reason::ProxyAuth => StatusCode::PROXY_AUTHENTICATION_REQUIRED,
        Reason::AuthLimited | Reason::Flood | Reason::SessionQuota | Reason::SessionRate => {
            StatusCode::TOO_MANY_REQUESTS
        }
        Reason::Misdirected => StatusCode::MISDIRECTED_REQUEST,
        Reason::NotFound | Reason::McpSession => StatusCode::NOT_FOUND,
        Reason::ConnectionLimit
        | Reason::StreamLimit
        | Reason::TunnelLimit
        | Reason::Draining
        | Reason::AuditUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        Reason::DnsNotFound
        | Reason::DnsFailed
        | Reason::ConnectRefused
        | Reason::ConnectFailed
        | Reason::UpstreamTls
        | Reason::UpstreamProtocol
        | Reason::UpstreamEncoded
        | Reason::UpstreamProxy
        | Reason::McpAnswer => StatusCode::BAD_GATEWAY,
        Reason::ConnectTimeout | Reason::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
        Reason::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Reason::Allowed | Reason::DefaultAllow => StatusCode::OK,
        Reason::DefaultDeny
        | Reason::NotAllowed
        | Reason::Blocked
        | Reason::GuardAddress
        | Reason::GuardMetadata
        | Reason::GuardSelf
        | Reason::GuardPort
        | Reason::GuardName
        | Reason::InspectOff
        | Reason::SniMismatch
        | Reason::NotTls
        | Reason::MethodRefused
        | Reason::Loop
        | Reason::CredentialUnbound
        | Reason::CredentialUnavailable
        | Reason::CredentialInsecure
        | Reason::PolicyChanged
        | Reason::McpDiscovery
        | Reason::McpTool
        | Reason::McpElicitation
        | Reason::McpOrigin => StatusCode::FORBIDDEN,
    }
}

/// The code of a SOCKS5 reply (RFC 1928 section 6) that a reason is answered with.
pub(crate) const fn socks5_reply(reason: Reason) -> u8 {
    const SUCCEEDED: u8 = 0;
    const GENERAL_FAILURE: u8 = 1;
    const NOT_ALLOWED_BY_RULESET: u8 = 2;
    const NETWORK_UNREACHABLE: u8 = 3;
    const HOST_UNREACHABLE: u8 = 4;
    const CONNECTION_REFUSED: u8 = 5;
    const TTL_EXPIRED: u8 = 6;
    const COMMAND_NOT_SUPPORTED: u8 = 7;
    const ADDRESS_TYPE_NOT_SUPPORTED: u8 = 8;
    match reason {
        Reason::MethodRefused => COMMAND_NOT_SUPPORTED,
        Reason::UnsupportedProtocol => ADDRESS_TYPE_NOT_SUPPORTED,
        Reason::ConnectFailed => NETWORK_UNREACHABLE,
        Reason::DnsNotFound | Reason::DnsFailed => HOST_UNREACHABLE,
        Reason::ConnectRefused => CONNECTION_REFUSED,
        Reason::ConnectTimeout | Reason::UpstreamTimeout => TTL_EXPIRED,
        // A name that cannot be read is denied, as any rule would deny it.
        Reason::Malformed => NOT_ALLOWED_BY_RULESET,
        _ => match status(reason) {
            StatusCode::OK => SUCCEEDED,
            StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED => NOT_ALLOWED_BY_RULESET,
            _ => GENERAL_FAILURE,
        },
    }
}

/// What a SOCKS4 client is answered, whatever it asks for: "request rejected or failed", and an address of zeros.
pub(crate) const SOCKS4_REJECTED: [u8; 8] = [0, 0x5B, 0, 0, 0, 0, 0, 0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_a_problem_with_its_reason_in_a_field() {
        let mut problem = Problem::new(Reason::NotAllowed);
        problem.url = Some("https://a.test/".to_owned());
        problem.layer = Some("agent");
        let response = problem.into_response();
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        assert_eq!(response.headers()[EXEAT_REASON], "not_allowed");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
        let ResponseBody::Full(body) = response.into_body() else { panic!("no body") };
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["status"], 403);
        assert_eq!(body["reason"], "not_allowed");
        assert_eq!(body["url"], "https://a.test/");
        assert_eq!((&body["layer"], &body["rule"]), (&"agent".into(), &serde_json::Value::Null));
    }

    #[test]
    fn refusals_have_statuses_of_the_contract() {
        for reason in Reason::ALL {
            let code = status(*reason).as_u16();
            let expected = [200, 400, 403, 404, 405, 407, 408, 413, 415, 421, 429, 431, 500, 502, 503, 504];
            assert!(expected.contains(&code), "{reason}: {code}");
        }
    }

    #[test]
    fn socks_replies_say_what_kind_of_failure_it_is() {
        for (reason, reply) in [
            (Reason::Allowed, 0),
            (Reason::DefaultAllow, 0),
            (Reason::TunnelLimit, 1),
            (Reason::BadRequest, 1),
            (Reason::NotAllowed, 2),
            (Reason::GuardAddress, 2),
            (Reason::InspectOff, 2),
            (Reason::Malformed, 2),
            (Reason::ConnectFailed, 3),
            (Reason::DnsNotFound, 4),
            (Reason::ConnectRefused, 5),
            (Reason::ConnectTimeout, 6),
            (Reason::MethodRefused, 7),
            (Reason::UnsupportedProtocol, 8),
        ] {
            assert_eq!(socks5_reply(reason), reply, "{reason}");
        }
        let succeeded = Reason::ALL.iter().filter(|reason| socks5_reply(**reason) == 0).count();
        assert_eq!(succeeded, 2, "nothing but a permit succeeds");
    }
}
