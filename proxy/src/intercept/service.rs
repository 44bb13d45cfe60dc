//! The requests inside an inspected tunnel.

use std::sync::Arc;

use exeat_policy::Reason;
use exeat_policy::host::Host;
use exeat_policy::target::{Authority, Scheme, Target};
use http::{HeaderMap, Method, Response, header};

use crate::gate::{Caller, Gate, Refusal, Subject, Switch};
use crate::listener::http1::{Exchange, HeadError, Reply, ResponseBody, Service};
use crate::listener::redact::Shown;

/// Judges the requests of one inspected tunnel.
#[derive(Debug)]
pub(super) struct Inspected {
    pub(super) gate: Arc<Gate>,
    pub(super) caller: Caller,
    pub(super) authority: Authority,
    pub(super) scheme: Scheme,
    /// The TLS server name was for another host: every request is answered 421.
    pub(super) misdirected: bool,
}

impl Service for Inspected {
    type Switch = Switch;

    async fn call(&self, exchange: Exchange) -> Reply<Switch> {
        match self.target(&exchange) {
            Ok(target) => self.gate.request(self.caller.clone(), target, exchange).await,
            Err(refusal) => {
                let head = &exchange.head;
                Reply::Response(self.refused(head.method.as_str(), &head.target, refusal))
            }
        }
    }

    fn refuse(&self, error: &HeadError) -> Response<ResponseBody> {
        self.refused("", "", Refusal::new(error.reason, error.detail))
    }
}

impl Inspected {
    /// The target of a request, which has to be in the tunnel's host.
    fn target(&self, exchange: &Exchange) -> Result<Target, Refusal> {
        let head = &exchange.head;
        if self.misdirected {
            let detail = format_args!("the TLS server name is not {}", self.authority.host());
            return Err(Refusal::new(Reason::Misdirected, detail));
        }
        if head.method == Method::CONNECT {
            return Err(Refusal::new(Reason::MethodRefused, "a CONNECT inside a tunnel is not served"));
        }
        self.check_host(&head.headers)?;
        let target = if head.target.starts_with('/') {
            Target::from_parts(self.scheme, &self.authority, &head.target)
        } else {
            Target::parse_wire(&head.target)
        };
        let target = target.map_err(Refusal::from)?;
        if target.scheme() != self.scheme || *target.authority() != self.authority {
            let detail = format_args!("the tunnel leads to {}, the request target does not", self.authority);
            return Err(Refusal::new(Reason::Misdirected, detail));
        }
        Ok(target)
    }

    /// Host has to name the tunnel's host, and its port if it has one.
    fn check_host(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(field) = headers.get(header::HOST) else { return Ok(()) };
        if field.to_str().is_ok_and(|field| names(field, &self.authority)) {
            return Ok(());
        }
        let detail = format_args!("the tunnel leads to {}, Host does not name it", self.authority);
        Err(Refusal::new(Reason::Misdirected, detail))
    }

    fn refused(&self, method: &str, target: &str, refusal: Refusal) -> Response<ResponseBody> {
        let snapshot = self.gate.current.get();
        let url = format!("{}://{}{}", self.scheme, self.authority, Shown(target));
        let subject = Subject::unjudged(&self.caller, &snapshot, method, &url);
        self.gate.refused(&subject, refusal)
    }
}

/// Whether a Host field names an authority.
fn names(field: &str, authority: &Authority) -> bool {
    if let Ok(named) = Authority::parse(field) {
        return named == *authority;
    }
    Host::parse(field).is_ok_and(|host| host == *authority.host())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_field_names_the_tunnels_host() {
        let authority = Authority::parse("api.example.test:8443").unwrap();
        for (field, expected) in [
            ("api.example.test:8443", true),
            ("API.example.test.", true),
            ("api.example.test", true),
            ("api.example.test:443", false),
            ("other.test", false),
            ("other.test:8443", false),
            ("", false),
            ("api.example.test:", false),
        ] {
            assert_eq!(names(field, &authority), expected, "{field:?}");
        }
        let address = Authority::parse("[::1]:443").unwrap();
        assert!(names("[::1]", &address) && names("[0:0::1]:443", &address) && !names("[::2]", &address));
    }
}
