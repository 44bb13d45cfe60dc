//! Calls of the gateway's own: one request on a connection of its own, and an answer that is held whole within bounds.

use std::time::Duration;

use bytes::Bytes;
use exeat_policy::target::{Scheme, Target};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::failure::Failure;
use super::{Route, Speaks, dial};
use crate::permit::Permit;

/// A request of the gateway's own.
pub(crate) struct Message<'a> {
    pub(crate) method: Method,
    pub(crate) target: &'a Target,
    /// Without Host and those of the framing.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// How much an answer may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Of its body.
    pub(crate) bytes: usize,
    /// From dialling to its last byte.
    pub(crate) time: Duration,
}

/// Sends a request and gives the status and the body of its answer.
///
/// # Errors
/// Anything that keeps a whole answer from coming within the bounds.
pub(crate) async fn fetch(
    route: &Route,
    permit: &Permit,
    message: Message<'_>,
    bounds: Bounds,
) -> Result<(StatusCode, Zeroizing<Vec<u8>>), Failure> {
    let Message { method, target, mut headers, body } = message;
    let host = HeaderValue::try_from(target.short_authority().to_string());
    headers.insert(header::HOST, host.map_err(|_| Failure::protocol("its host cannot stand in a Host field"))?);
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = target.path_and_query().parse().map_err(|_| Failure::protocol("its path cannot be sent"))?;
    *request.headers_mut() = headers;
    let exchange = async {
        let stream = super::dial(route, permit).await?;
        match permit.origin().scheme {
            Scheme::Http => send(TokioIo::new(stream), request, bounds.bytes).await,
            Scheme::Https => {
                let stream = dial::secure(stream, permit.origin(), &route.tls, Speaks::Http1).await?;
                send(stream, request, bounds.bytes).await
            }
        }
    };
    timeout(bounds.time, exchange).await.map_err(|_| Failure::upstream_timeout())?
}

async fn send(
    stream: impl Read + Write + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    limit: usize,
) -> Result<(StatusCode, Zeroizing<Vec<u8>>), Failure> {
    let failed = |error: hyper::Error| Failure::from_hyper(&error);
    let (mut sender, connection) = http1::handshake(stream).await.map_err(failed)?;
    // It ends with the sender.
    tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(failed)?;
    let status = response.status();
    let mut body = response.into_body();
    let mut held = Zeroizing::new(Vec::new());
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(failed)?.into_data() {
            if held.len() + data.len() > limit {
                return Err(Failure::protocol("its answer is larger than any that is taken"));
            }
            held.extend_from_slice(&data);
        }
    }
    Ok((status, held))
}
