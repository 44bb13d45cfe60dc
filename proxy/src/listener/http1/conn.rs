//! One client connection: a request after the other until it closes or turns into something else.

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use exeat_policy::Reason;
use http::{HeaderMap, Method, Response, StatusCode, Version, header};
use http_body::Body;
use hyper::ext::ReasonPhrase;
use tokio::io::{AsyncWriteExt, WriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::body::{ClientBody, Reader, RequestBody, ResponseBody, Rest};
use super::head::{self, Framing, Head, HeadError, Progress, Scan};
use super::write;
use crate::config::Limits;
use crate::drain::Drain;
use crate::gate::clean_answer;
use crate::listener::stream::Stream;
use crate::patience::Patience;
use crate::rare::Rare;

/// How long upstream may take to answer an `Expect: 100-continue` before the client is told to go on.
const EXPECT_WAIT: Duration = Duration::from_secs(1);
/// The unread rest of a refused request that is read and thrown away to keep its connection.
const DRAIN_BELOW: u64 = 64 * 1024;
/// How long, and how much, a closing connection still reads so that the client sees the last answer.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 1024 * 1024;
/// How many interim answers wait for a client that does not take them; more are dropped.
const INTERIM_WAITING: usize = 16;
/// How much of what a client sends ahead is read while its request is under way, and how much at once: no more than
/// there is room for behind the request's head, as a rule.
const READ_AHEAD: usize = 16 * 1024;
const PEEK: usize = 1024;

/// What bounds a connection in time and size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The largest header section, in bytes.
    pub(crate) head_bytes: usize,
    /// From the first byte of a head to its last.
    pub(crate) head_time: Duration,
    /// Between two requests, and for a client that does not take its answer.
    pub(crate) idle: Duration,
    /// Streams at once on a connection of HTTP/2.
    pub(crate) streams: u32,
}

impl Bounds {
    /// The bounds that `limits` set for a new connection.
    pub(crate) const fn of(limits: &Limits) -> Self {
        Self {
            head_bytes: limits.header_bytes,
            head_time: limits.header_time,
            idle: limits.idle,
            streams: limits.streams,
        }
    }
}

/// One request as it reaches a [`Service`].
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The head.
    pub(crate) head: Head,
    /// The body.
    pub(crate) body: RequestBody,
    /// Takes interim answers for the client; none for a client of HTTP/1.0, which knows none.
    pub(crate) interim: Option<Interim>,
}

/// What a service makes of a request.
#[derive(Debug)]
pub(crate) enum Reply<S> {
    /// An answer.
    Response(Response<ResponseBody>),
    /// An answer behind which the connection is no longer HTTP.
    Switch(Response<()>, S),
}

/// Answers the requests of one connection.
pub(crate) trait Service: Sync {
    /// What a connection turns into.
    type Switch: Send;

    /// Answers one request. Dropped when the client goes away.
    fn call(&self, exchange: Exchange) -> impl Future<Output = Reply<Self::Switch>> + Send;

    /// Answers a request whose head could not be read.
    fn refuse(&self, error: &HeadError) -> Response<ResponseBody>;
}

/// A connection that is no longer HTTP.
#[derive(Debug)]
pub(crate) struct Switched<S> {
    /// The connection.
    pub(crate) stream: Stream,
    /// What the client sent behind its request.
    pub(crate) buffered: BytesMut,
    /// What it turns into.
    pub(crate) switch: S,
}

/// An interim (1xx) answer.
type InterimHead = (StatusCode, HeaderMap);

/// Interim answers on their way from upstream to the client.
#[derive(Clone, Default)]
pub(crate) struct Interim(Arc<Waiting>);

#[derive(Default)]
struct Waiting {
    queue: Mutex<Vec<InterimHead>>,
    news: Notify,
    amend: OnceLock<Box<Amend>>,
}

type Amend = dyn Fn(&mut HeaderMap) + Send + Sync;

impl fmt::Debug for Interim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interim").field(&self.0.queue).finish()
    }
}

impl Interim {
    /// Passes an interim answer on, unless too many wait already: upstream may send them without end.
    pub(crate) fn push(&self, status: StatusCode, headers: HeaderMap) {
        let mut queue = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() < INTERIM_WAITING {
            queue.push((status, headers));
        }
        drop(queue);
        self.0.news.notify_one();
    }

    /// Passes an interim answer of upstream's on, without what is of its connection only.
    pub(crate) fn push_clean(&self, status: StatusCode, mut headers: HeaderMap) {
        clean_answer(&mut headers);
        headers.remove(header::CONTENT_LENGTH);
        if let Some(amend) = self.0.amend.get() {
            amend(&mut headers);
        }
        self.push(status, headers);
    }

    /// Has the fields of every answer that is passed on from now on amended. The first call counts.
    pub(crate) fn amend(&self, amend: impl Fn(&mut HeaderMap) + Send + Sync + 'static) {
        let _ = self.0.amend.set(Box::new(amend));
    }

    /// Takes what waits.
    pub(crate) fn take(&self) -> Vec<InterimHead> {
        std::mem::take(&mut *self.0.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for the next ones.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn next(&self) -> Vec<InterimHead> {
        loop {
            let waiting = self.take();
            if !waiting.is_empty() {
                return waiting;
            }
            self.0.news.notified().await;
        }
    }
}

/// Where the reading half of the connection is.
enum Input {
    Here(Reader),
    Lent(oneshot::Receiver<Rest>),
    Gone,
}

impl Input {
    /// Resolves when the client has gone away; reads ahead a little until then.
    ///
    /// A client that has ended its side may still read, or may be gone altogether: TCP does not tell. Behind a request
    /// that announced to be the last one it counts as reading, for as long as `patience`; behind any other it has
    /// broken its word to go on, and counts as gone.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped; what was waited of `patience` starts anew.
    async fn gone(&mut self, patience: Option<Duration>) {
        loop {
            match self {
                Self::Here(reader) => {
                    if reader.buffer.len() >= READ_AHEAD {
                        return pending().await;
                    }
                    match (reader.fill(PEEK).await, patience) {
                        (Ok(1..), _) => {}
                        (Ok(0), Some(patience)) => return tokio::time::sleep(patience).await,
                        _ => return,
                    }
                }
                Self::Lent(back) => match back.await {
                    Ok(Rest { reader, unread: None }) => *self = Self::Here(reader),
                    // The body was given up. Whether the client is still there shows when it is answered.
                    Ok(rest) => {
                        let (sender, receiver) = oneshot::channel();
                        drop(sender.send(rest));
                        *self = Self::Lent(receiver);
                        return pending().await;
                    }
                    Err(_) => {
                        *self = Self::Gone;
                        return;
                    }
                },
                Self::Gone => return,
            }
        }
    }

    /// What is left of the request body, where it was given up before its end.
    fn settle(&mut self) -> Option<u64> {
        let Self::Lent(back) = self else { return None };
        match back.try_recv() {
            Ok(Rest { reader, unread }) => {
                *self = Self::Here(reader);
                unread
            }
            Err(oneshot::error::TryRecvError::Empty) => None,
            Err(oneshot::error::TryRecvError::Closed) => {
                *self = Self::Gone;
                None
            }
        }
    }
}

/// Serves a connection until it closes or switches. `buffered` was read from it already.
pub(crate) async fn serve<S: Service>(
    stream: Stream,
    buffered: BytesMut,
    service: &S,
    bounds: Bounds,
    drain: &mut Drain,
) -> Option<Switched<S::Switch>> {
    let (read, write) = tokio::io::split(stream);
    let mut client = Client { write, out: BytesMut::new(), bounds, patience: Patience::new(bounds.idle) };
    let mut reader = Reader { io: read, buffer: buffered };
    let mut patience = Patience::new(bounds.idle);
    let mut beginning = drain.clone();
    let mut draining = Rare::new(beginning.begun());
    loop {
        let head = match next_head(&mut reader, bounds, &mut patience, &mut draining).await {
            Next::Head(head) => head,
            Next::Closed => return None,
            Next::Refused(error) => {
                let response = service.refuse(&error);
                let mut input = Input::Here(reader);
                client.respond(&Method::GET, Version::HTTP_11, response, false, &mut input).await?;
                client.linger(input).await;
                return None;
            }
        };
        let (method, version, mut keep) = (head.method.clone(), head.version, head.keep_alive);
        let expects = expects_continue(&head);
        let interim = (version == Version::HTTP_11).then(Interim::default);
        let (body, mut input) = match ClientBody::lend(reader, head.framing, bounds.idle) {
            Ok((body, back)) => (body, Input::Lent(back)),
            Err(reader) => (RequestBody::Empty, Input::Here(reader)),
        };
        let reply = {
            let call = service.call(Exchange { head, body, interim: interim.clone() });
            client.await_reply(pin!(call), interim.as_ref(), expects, keep, &mut input).await?
        };
        match reply {
            Reply::Switch(response, switch) => {
                client.switch(response).await?;
                let Input::Here(Reader { io, buffer }) = input else { return None };
                return Some(Switched { stream: io.unsplit(client.write), buffered: buffer, switch });
            }
            Reply::Response(response) => {
                let unread = input.settle().unwrap_or(0);
                keep &= !drain.has_begun() && unread <= DRAIN_BELOW && !(unread > 0 && expects);
                if !client.respond(&method, version, response, keep, &mut input).await? {
                    client.linger(input).await;
                    return None;
                }
                reader = next_reader(input, unread, bounds.idle).await?;
            }
        }
    }
}

enum Next {
    Head(Head),
    Closed,
    Refused(HeadError),
}

async fn next_head(
    reader: &mut Reader,
    bounds: Bounds,
    patience: &mut Patience,
    draining: &mut Rare<impl Future<Output = ()>>,
) -> Next {
    let mut scan = Scan::default();
    // Set with the first bytes, unless the whole head comes with them. What was read ahead may be some of it.
    let mut deadline = None;
    loop {
        if !reader.buffer.is_empty() {
            match scan.advance(&reader.buffer, bounds.head_bytes) {
                Ok(Progress::Complete(end)) => {
                    return match head::parse(reader.buffer.split_to(end)) {
                        Ok(head) => Next::Head(head),
                        Err(error) => Next::Refused(error),
                    };
                }
                Ok(Progress::Partial) => deadline = deadline.or_else(|| Some(Instant::now() + bounds.head_time)),
                Err(error) => return Next::Refused(error),
            }
        }
        let fill = reader.fill(4 * 1024);
        let read = if let Some(deadline) = deadline {
            match timeout_at(deadline, fill).await {
                Ok(read) => read,
                Err(_) => {
                    return Next::Refused(HeadError::new(
                        Reason::HeadTimeout,
                        "the header section did not arrive in time",
                    ));
                }
            }
        } else {
            tokio::select! {
                biased;
                read = patience.wait(fill) => match read {
                    Some(read) => read,
                    None => return Next::Closed,
                },
                () = &mut *draining => return Next::Closed,
            }
        };
        if matches!(read, Ok(0) | Err(_)) {
            return Next::Closed;
        }
    }
}

fn expects_continue(head: &Head) -> bool {
    head.version == Version::HTTP_11 && head.framing != Framing::None && head::expects_continue(&head.headers)
}

/// Gets the reader back for the next request.
async fn next_reader(input: Input, unread: u64, idle: Duration) -> Option<Reader> {
    let mut reader = match input {
        Input::Here(reader) => reader,
        // Upstream answered before it had the whole request and is still taking it.
        Input::Lent(back) => match timeout(idle, back).await {
            Ok(Ok(Rest { reader, unread: None })) => reader,
            _ => return None,
        },
        Input::Gone => return None,
    };
    if unread == 0 {
        return Some(reader);
    }
    let mut unread = usize::try_from(unread).ok()?;
    let deadline = Instant::now() + LINGER;
    while unread > 0 {
        if reader.buffer.is_empty() && timeout_at(deadline, reader.fill(4096)).await.ok()?.ok()? == 0 {
            return None;
        }
        let length = unread.min(reader.buffer.len());
        drop(reader.buffer.split_to(length));
        unread -= length;
    }
    Some(reader)
}

/// The writing half of a connection.
struct Client {
    write: WriteHalf<Stream>,
    out: BytesMut,
    bounds: Bounds,
    /// For a client that does not take its answer.
    patience: Patience,
}

impl Client {
    /// Runs the service, passing interim answers on; none when the client goes away first.
    async fn await_reply<T>(
        &mut self,
        mut call: Pin<&mut impl Future<Output = Reply<T>>>,
        interim: Option<&Interim>,
        expects: bool,
        keep: bool,
        input: &mut Input,
    ) -> Option<Reply<T>> {
        let patience = (!keep).then_some(self.bounds.idle);
        let mut continued = !expects;
        let began = expects.then(Instant::now);
        loop {
            let (reply, waiting) = tokio::select! {
                biased;
                // Interim answers that came with the final one are still to go before it.
                reply = &mut call => (Some(reply), interim.map_or_else(Vec::new, Interim::take)),
                waiting = next_interim(interim) => (None, waiting),
                () = input.gone(patience) => return None,
                () = expected_long_enough(began), if !continued => {
                    (None, vec![(StatusCode::CONTINUE, HeaderMap::new())])
                }
            };
            for (status, headers) in waiting {
                if status == StatusCode::CONTINUE && std::mem::replace(&mut continued, true) && expects {
                    continue;
                }
                write::head(&mut self.out, status, None, &headers, write::Framing::None, None);
            }
            if reply.is_some() {
                return reply;
            }
            self.flush().await?;
        }
    }

    /// Writes a whole answer; tells whether the connection can go on, or none when the client went away or the answer
    /// broke off.
    async fn respond(
        &mut self,
        method: &Method,
        version: Version,
        response: Response<ResponseBody>,
        keep: bool,
        input: &mut Input,
    ) -> Option<bool> {
        let (mut parts, mut body) = response.into_parts();
        let framing = write::Framing::choose(method, version, parts.status, &mut parts.headers, &body);
        let connection = match (keep && framing != write::Framing::Close, version) {
            (false, _) => Some("close"),
            (true, Version::HTTP_10) => Some("keep-alive"),
            (true, _) => None,
        };
        // Behind this answer nothing comes, so a client may end its side on reading that.
        let patience = (connection == Some("close")).then_some(self.bounds.idle);
        let phrase = parts.extensions.get::<ReasonPhrase>().map(ReasonPhrase::as_bytes);
        write::head(&mut self.out, parts.status, phrase, &parts.headers, framing, connection);
        if framing == write::Framing::None {
            drop(body);
            self.flush().await?;
            return Some(keep);
        }
        let mut trailers = None;
        while !body.is_end_stream() {
            let frame = match poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx))).await {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    self.flush().await?;
                    tokio::select! {
                        biased;
                        frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)) => frame,
                        () = input.gone(patience) => return None,
                    }
                }
            };
            let Some(frame) = frame else { break };
            // An answer that breaks off must not look complete: the connection closes without its end.
            let frame = match frame {
                Ok(frame) => frame,
                Err(_) => {
                    let _ = self.flush().await;
                    return None;
                }
            };
            match frame.into_data() {
                Ok(data) => {
                    let written = write::data(&mut self.write, &mut self.out, data, framing);
                    self.patience.wait(written).await?.ok()?;
                }
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        drop(body);
        write::end(&mut self.out, framing, trailers.as_ref());
        self.flush().await?;
        Some(keep && framing != write::Framing::Close)
    }

    /// Writes the answer that ends HTTP on this connection.
    async fn switch(&mut self, response: Response<()>) -> Option<()> {
        let (parts, ()) = response.into_parts();
        let phrase = parts.extensions.get::<ReasonPhrase>().map(ReasonPhrase::as_bytes);
        write::head(&mut self.out, parts.status, phrase, &parts.headers, write::Framing::None, None);
        self.flush().await
    }

    async fn flush(&mut self) -> Option<()> {
        self.patience.wait(write::flush(&mut self.write, &mut self.out)).await?.ok()
    }

    /// Closes so that the client can still read the last answer: a socket closed with unread bytes resets it
    /// (RFC 9112 section 9.6).
    async fn linger(mut self, input: Input) {
        let _ = timeout(LINGER, async {
            self.write.shutdown().await?;
            let Input::Here(mut reader) = input else { return Ok(()) };
            let mut left = LINGER_BYTES;
            while left > 0 {
                reader.buffer.clear();
                match reader.fill(16 * 1024).await? {
                    0 => break,
                    length => left = left.saturating_sub(length),
                }
            }
            std::io::Result::Ok(())
        })
        .await;
    }
}

/// Waits until a client that has waited since then with its body is to be told to go on. The timer is made only where
/// this is waited for: most requests expect nothing.
pub(crate) async fn expected_long_enough(since: Option<Instant>) {
    match since {
        Some(since) => tokio::time::sleep_until(since + EXPECT_WAIT).await,
        None => pending().await,
    }
}

async fn next_interim(interim: Option<&Interim>) -> Vec<InterimHead> {
    match interim {
        Some(interim) => interim.next().await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interim_answers_do_not_pile_up() {
        let interim = Interim::default();
        for _ in 0..10_000 {
            interim.push(StatusCode::EARLY_HINTS, HeaderMap::new());
        }
        assert_eq!(interim.take().len(), INTERIM_WAITING);
        interim.push(StatusCode::EARLY_HINTS, HeaderMap::new());
        assert_eq!(interim.take().len(), 1);
    }
}
