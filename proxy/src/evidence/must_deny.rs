//! What no policy can permit, asked for at every way in: a gateway that answers with anything but a refusal is not ready.
//!
//! A gateway fails open in ways that no config shows: a listener that forgot to ask the gate, an entry that a change left
//! out. So each way in is asked for a name that the guard refuses whatever the manifests say, by a connection like a
//! client's that never leaves the process. Nothing is resolved or dialled where all is well, and nothing of it is counted
//! as traffic or taken down as an event; what comes of it is the gauge `must_deny` and a condition of `/readyz`.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use exeat_policy::Reason;
use futures_util::future::join_all;
use http::Request;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::time::timeout;

use super::carrier::{Enter, Purpose};
use crate::metrics::Metrics;
use crate::respond::{EXEAT_REASON, socks5_reply};

/// The name: reserved for never being one (RFC 6761 section 6.4), and refused by the guard.
pub(crate) const NAME: &str = "must-deny.exeat.invalid";

/// How long one way in may take to refuse.
const TIME: Duration = Duration::from_secs(5);
/// What the two ends of a connection hold between them, and the most that is read of an answer, in bytes.
const BUFFER: usize = 16 * 1024;

/// What a refusal by policy or guard says.
const REFUSALS: &[Reason] =
    &[Reason::NotAllowed, Reason::Blocked, Reason::DefaultDeny, Reason::GuardName, Reason::GuardPort];
/// What a local endpoint says to who comes for another host, or for a server that there is not.
const NOT_HERE: &[Reason] = &[Reason::McpOrigin, Reason::NotFound];

/// A way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A request in absolute form.
    Forward,
    /// A CONNECT.
    Connect,
    /// A request over HTTP/2.
    Http2,
    /// A CONNECT of SOCKS5.
    Socks5,
    /// A request inside an inspected tunnel.
    Intercept,
    /// A local endpoint of MCP servers.
    Mcp,
}

impl Way {
    /// The word in the metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Connect => "connect",
            Self::Http2 => "http2",
            Self::Socks5 => "socks5",
            Self::Intercept => "intercept",
            Self::Mcp => "mcp",
        }
    }
}

/// Where a gateway can be asked.
pub(crate) struct Ways {
    /// The proxy port.
    pub(crate) proxy: Enter,
    /// The inside of an inspected tunnel, where tunnels are inspected.
    pub(crate) inspected: Option<Enter>,
    /// The local endpoints, where they are served.
    pub(crate) endpoints: Option<Enter>,
}

impl Ways {
    fn all(&self) -> Vec<(Way, &Enter)> {
        let proxy = [Way::Forward, Way::Connect, Way::Http2, Way::Socks5].map(|way| (way, &self.proxy));
        let inspected = self.inspected.iter().map(|enter| (Way::Intercept, enter));
        let endpoints = self.endpoints.iter().map(|enter| (Way::Mcp, enter));
        proxy.into_iter().chain(inspected).chain(endpoints).collect()
    }
}

/// What the last test has found.
#[derive(Debug, Default)]
pub(crate) struct MustDeny(Mutex<Standing>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    NotTested,
    Passed,
    Failed,
}

impl MustDeny {
    /// Asks at every way in, and shows what came of it.
    pub(crate) async fn test(&self, ways: &Ways, metrics: &Metrics) {
        let ways = ways.all();
        for (way, _) in &ways {
            metrics.show_must_deny(*way, false);
        }
        let asked = ways.iter().map(|(way, enter)| async { (*way, ask(*way, enter).await) });
        let mut standing = Standing::Passed;
        for (way, answer) in join_all(asked).await {
            metrics.show_must_deny(way, answer.is_ok());
            if let Err(detail) = answer {
                standing = Standing::Failed;
                tracing::error!(
                    entry = way.as_str(),
                    detail,
                    "{NAME} was not refused, as it must be whatever the policy"
                );
            }
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = standing;
    }

    /// Why the gateway is not ready for traffic, if it is not.
    pub(crate) fn objection(&self) -> Option<&'static str> {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Standing::NotTested => Some("must_deny_not_tested"),
            Standing::Passed => None,
            Standing::Failed => Some("must_deny_failed"),
        }
    }
}

/// Asks at one way in.
async fn ask(way: Way, enter: &Enter) -> Result<(), String> {
    let (near, far) = duplex(BUFFER);
    enter(far, Purpose::MustDeny);
    let asking = async {
        match way {
            Way::Forward => http1(near, &format!("GET http://{NAME}/ HTTP/1.1"), REFUSALS).await,
            Way::Connect => http1(near, &format!("CONNECT {NAME}:443 HTTP/1.1"), REFUSALS).await,
            Way::Intercept => http1(near, "GET / HTTP/1.1", REFUSALS).await,
            Way::Mcp => http1(near, &format!("POST /mcp/{NAME} HTTP/1.1"), NOT_HERE).await,
            Way::Http2 => http2(near).await,
            Way::Socks5 => socks5(near).await,
        }
    };
    timeout(TIME, asking).await.unwrap_or_else(|_| Err("no answer came".to_owned()))
}

async fn http1(mut stream: DuplexStream, line: &str, refusals: &[Reason]) -> Result<(), String> {
    let head = format!("{line}\r\nHost: {NAME}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read_buf(&mut answer).await.map_err(|error| error.to_string())?;
        if read == 0 || answer.len() > BUFFER {
            return Err("the answer has no end to its head".to_owned());
        }
    }
    let answer = String::from_utf8_lossy(&answer);
    let mut lines = answer.split("\r\n");
    let status = lines.next().unwrap_or_default();
    let fields = lines.take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(':'));
    let mut reasons = fields.filter(|(name, _)| EXEAT_REASON.as_str().eq_ignore_ascii_case(name));
    let reason = reasons.next().map(|(_, reason)| reason.trim());
    judge(status, reason, refusals)
}

async fn http2(stream: DuplexStream) -> Result<(), String> {
    let (mut sender, connection) = h2::client::handshake(stream).await.map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let answer = async {
        let request = Request::get(format!("http://{NAME}/")).body(()).map_err(|error| error.to_string())?;
        let (answer, _) = sender.send_request(request, true).map_err(|error| error.to_string())?;
        let answer = answer.await.map_err(|error| error.to_string())?;
        let reason = answer.headers().get(EXEAT_REASON).and_then(|reason| reason.to_str().ok());
        judge(answer.status().as_str(), reason, REFUSALS)
    };
    let answer = answer.await;
    connection.abort();
    answer
}

/// RFC 1928: the greeting, the credentials where they are wanted (RFC 1929), and a CONNECT to port 443.
async fn socks5(mut stream: DuplexStream) -> Result<(), String> {
    let mut write = Vec::from([5, 2, 0, 2]);
    stream.write_all(&write).await.map_err(|error| error.to_string())?;
    let mut two = [0; 2];
    stream.read_exact(&mut two).await.map_err(|error| error.to_string())?;
    if two == [5, 2] {
        stream.write_all(&[1, 1, b'-', 1, b'-']).await.map_err(|error| error.to_string())?;
        stream.read_exact(&mut two).await.map_err(|error| error.to_string())?;
    }
    write.clear();
    write.extend([5, 1, 0, 3, u8::try_from(NAME.len()).unwrap_or_default()]);
    write.extend(NAME.bytes());
    write.extend(443_u16.to_be_bytes());
    stream.write_all(&write).await.map_err(|error| error.to_string())?;
    stream.read_exact(&mut two).await.map_err(|error| error.to_string())?;
    match two {
        [5, reply] if reply == socks5_reply(Reason::GuardName) => Ok(()),
        [_, reply] => Err(format!("the reply is {reply}")),
    }
}

/// Whether an answer is a refusal of the kind that is expected.
fn judge(status: &str, reason: Option<&str>, refusals: &[Reason]) -> Result<(), String> {
    match reason {
        Some(reason) if refusals.iter().any(|refusal| refusal.as_str() == reason) => Ok(()),
        Some(reason) => Err(format!("the answer is {status:?}, with the reason {reason}")),
        None => Err(format!("the answer is {status:?}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A way in that answers everything with these bytes.
    fn saying(answer: &'static [u8]) -> Enter {
        Arc::new(move |mut stream, purpose| {
            assert_eq!(purpose, Purpose::MustDeny);
            tokio::spawn(async move {
                stream.write_all(answer).await.unwrap();
                // It is there until the other end goes.
                let _ = stream.read_to_end(&mut Vec::new()).await;
            });
        })
    }

    async fn test(proxy: &'static [u8]) -> Option<&'static str> {
        let (must_deny, metrics) = (MustDeny::default(), Metrics::new().unwrap());
        assert_eq!(must_deny.objection(), Some("must_deny_not_tested"));
        let ways = Ways { proxy: saying(proxy), inspected: None, endpoints: None };
        must_deny.test(&ways, &metrics).await;
        must_deny.objection()
    }

    #[tokio::test]
    async fn one_way_in_that_does_not_refuse_is_enough() {
        // HTTP/2 and SOCKS5 are not spoken here.
        let refusal = b"HTTP/1.1 403 Forbidden\r\nExeat-Reason: guard_name\r\n\r\n";
        assert_eq!(test(refusal).await, Some("must_deny_failed"));
        assert_eq!(test(b"").await, Some("must_deny_failed"));
    }

    #[tokio::test]
    async fn only_a_refusal_by_policy_or_guard_counts() {
        for (answer, refused) in [
            (&b"HTTP/1.1 403 Forbidden\r\nExeat-Reason: guard_name\r\n\r\n"[..], true),
            (b"HTTP/1.1 403 Forbidden\r\nexeat-reason:not_allowed\r\n\r\n", true),
            (b"HTTP/1.1 200 OK\r\n\r\n", false),
            (b"HTTP/1.1 502 Bad Gateway\r\nExeat-Reason: dns_not_found\r\n\r\n", false),
            (b"HTTP/1.1 400 Bad Request\r\nExeat-Reason: malformed\r\n\r\n", false),
            (b"HTTP/1.1 403 Forbidden\r\n\r\nExeat-Reason: guard_name\r\n\r\n", false),
        ] {
            let answered = ask(Way::Forward, &saying(answer)).await;
            assert_eq!(answered.is_ok(), refused, "{answered:?}");
        }
        for (answer, refused) in [(&[5, 0, 5, 2], true), (&[5, 0, 5, 0], false), (&[5, 0, 5, 4], false)] {
            assert_eq!(ask(Way::Socks5, &saying(answer)).await.is_ok(), refused, "{answer:?}");
        }
    }
}
