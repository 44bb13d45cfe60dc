//! The scripted server, over HTTP/2.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use ring::digest::{Context, SHA256};

use super::http::{Log, Site};
use super::record::{Request, hex};
use super::reply::{Body, Reply};
use crate::wire::{Head, Io};

/// Header fields as lines.
pub(crate) fn lines(headers: &HeaderMap) -> Vec<String> {
    headers.iter().map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))).collect()
}

/// Lines as header fields.
fn fields(lines: &[String]) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    lines.iter().map(|line| {
        let (name, value) = line.split_once(':').unwrap();
        (name.parse().unwrap(), value.trim().parse().unwrap())
    })
}

/// Sends bytes as fast as the peer's windows allow; `written` counts what they allowed.
pub(crate) async fn send(
    stream: &mut SendStream<Bytes>,
    mut data: Bytes,
    written: &AtomicU64,
) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let granted = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
        let granted = granted.ok_or(Reason::STREAM_CLOSED)??.min(data.len());
        written.fetch_add(granted as u64, Ordering::SeqCst);
        stream.send_data(data.split_to(granted), false)?;
    }
    Ok(())
}

/// The next piece of a body; its window is given back at once.
pub(crate) async fn piece(body: &mut RecvStream) -> Option<Result<Bytes, h2::Error>> {
    let piece = body.data().await?;
    if let Ok(piece) = &piece {
        body.flow_control().release_capacity(piece.len()).unwrap();
    }
    Some(piece)
}

pub(super) async fn serve(
    io: impl Io + 'static,
    index: usize,
    sni: Option<String>,
    site: &Arc<Site>,
    log: &Log,
) -> io::Result<()> {
    let failed = |error: h2::Error| io::Error::other(error.to_string());
    let mut connection = h2::server::handshake(io).await.map_err(failed)?;
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted.map_err(failed)?;
        let (sni, site, log) = (sni.clone(), Arc::clone(site), log.clone());
        tokio::spawn(async move {
            if let Err(error) = (Stream { log: &log, entry: 0 }).serve(index, sni, request, respond, &site).await {
                log.failures.push(format!("stream: {error}"));
            }
        });
    }
    Ok(())
}

struct Stream<'a> {
    log: &'a Log,
    entry: usize,
}

impl Stream<'_> {
    async fn serve(
        mut self,
        connection: usize,
        sni: Option<String>,
        request: http::Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        site: &Site,
    ) -> Result<(), h2::Error> {
        let (parts, mut body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        // The pseudo-header fields are recorded without their colon, so that they are found like others.
        let mut all = vec![
            format!("scheme: {}", parts.uri.scheme_str().unwrap_or_default()),
            format!("authority: {}", parts.uri.authority().map_or("", |authority| authority.as_str())),
        ];
        all.extend(lines(&parts.headers));
        let head = Head { start: format!("{} {path} HTTP/2", parts.method), lines: all, raw: Vec::new() };
        let request = Request::new(connection, sni, head);
        let reply = site.reply(&request);
        self.entry = self.log.requests.push(request.clone());
        for interim in &reply.interim {
            respond.send_informational(interim_of(interim))?;
        }
        let unmetered = AtomicU64::new(0);
        match &reply.body {
            Body::Hang => {
                let reason = std::future::poll_fn(|cx| respond.poll_reset(cx)).await?;
                return Err(reason.into());
            }
            Body::Vanish => {
                respond.send_reset(Reason::REFUSED_STREAM);
                return Ok(());
            }
            Body::Echo => {
                let mut back = respond.send_response(head_of(&reply), false)?;
                self.body(&mut body, Some(&mut back)).await?;
                return end(&mut back, &reply);
            }
            Body::Early => {
                // The body that nobody reads is given up with NO_ERROR (RFC 9113 section 8.1).
                respond.send_response(head_of(&reply), true)?;
                return Ok(());
            }
            _ => self.body(&mut body, None).await?,
        }
        if let Some(gate) = &reply.gate {
            gate.pass().await;
        }
        let empty = request.method == "HEAD" || matches!(&reply.body, Body::Sized(body) if body.is_empty());
        let mut head = head_of(&reply);
        if let Body::Sized(body) = &reply.body
            && ![204, 304].contains(&reply.status)
        {
            head.headers_mut().insert("content-length", body.len().into());
        }
        let mut stream = respond.send_response(head, empty)?;
        if empty {
            return Ok(());
        }
        match &reply.body {
            Body::Sized(body) => send(&mut stream, body.clone().into(), &unmetered).await?,
            Body::Chunked(pieces) => {
                for piece in pieces {
                    send(&mut stream, piece.clone().into(), &unmetered).await?;
                }
            }
            Body::Events(events) => {
                let mut events = events.lock().await;
                loop {
                    tokio::select! {
                        event = events.recv() => match event {
                            Some(event) => send(&mut stream, event.into(), &unmetered).await?,
                            None => break,
                        },
                        reason = std::future::poll_fn(|cx| stream.poll_reset(cx)) => {
                            events.close();
                            return Err(reason?.into());
                        }
                    }
                }
            }
            Body::Flood(length, written) => {
                for _ in 0..length / 65536 {
                    send(&mut stream, vec![b'x'; 65536].into(), written).await?;
                }
            }
            Body::Reset(bytes) => {
                send(&mut stream, bytes.clone().into(), &unmetered).await?;
                // A reset takes back what was not written, so the connection's task gets its turn first.
                for _ in 0..8 {
                    tokio::task::yield_now().await;
                }
                // Some libraries take this one for an end.
                stream.send_reset(Reason::CANCEL);
                return Ok(());
            }
            _ => unreachable!("this answer is for HTTP/1.1"),
        }
        end(&mut stream, &reply)
    }

    /// Reads the request's body into the log, and gives it back if asked.
    async fn body(&self, body: &mut RecvStream, mut echo: Option<&mut SendStream<Bytes>>) -> Result<(), h2::Error> {
        let mut digest = Context::new(&SHA256);
        while let Some(piece) = piece(body).await {
            let piece = piece?;
            digest.update(&piece);
            self.log.requests.update(self.entry, |request| request.append(&piece));
            if let Some(back) = &mut echo {
                send(back, piece, &AtomicU64::new(0)).await?;
            }
        }
        let trailers = body.trailers().await?;
        self.log.requests.update(self.entry, |request| {
            request.body_sha256 = hex(&digest.finish());
            request.trailers = trailers.as_ref().map(lines).unwrap_or_default();
            request.complete = true;
        });
        Ok(())
    }
}

/// An interim answer that was written for HTTP/1.1.
fn interim_of(text: &str) -> Response<()> {
    let mut lines = text.split("\r\n").filter(|line| !line.is_empty());
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap();
    let mut response = Response::new(());
    *response.status_mut() = status.parse().unwrap();
    response.headers_mut().extend(fields(&lines.map(str::to_owned).collect::<Vec<_>>()));
    response
}

fn head_of(reply: &Reply) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = http::StatusCode::from_u16(reply.status).unwrap_or_default();
    response.headers_mut().extend(fields(&reply.lines));
    response
}

fn end(stream: &mut SendStream<Bytes>, reply: &Reply) -> Result<(), h2::Error> {
    if reply.trailers.is_empty() {
        return stream.send_data(Bytes::new(), true);
    }
    stream.send_trailers(fields(&reply.trailers).collect())
}
