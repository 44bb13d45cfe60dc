//! The raw connection.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::H2Conn;
use crate::certs::{client_config, unchecked_client_config};
use crate::wait::within;
use crate::wire::{Body, Framing, Head, Io, Wire};
use crate::ws;

/// How long a peer takes nothing before it counts as one that does not read.
const STALLED: Duration = Duration::from_millis(500);

/// A response as it came.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// The interim (1xx) heads before it.
    pub interim: Vec<Head>,
    /// The status code.
    pub status: u16,
    /// The status line and the header lines.
    pub head: Head,
    /// The body, without chunk framing.
    pub body: Vec<u8>,
    /// The trailer lines.
    pub trailers: Vec<String>,
}

impl Response {
    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("not JSON ({error}): {}", self.text()))
    }

    /// The only value of the field called `name`.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<String> {
        self.head.value(name)
    }

    /// The word in `Exeat-Reason`.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        self.value("exeat-reason")
    }

    /// Asserts the status and the reason of a refusal, and that its body is a problem document that agrees; returns
    /// the document.
    #[track_caller]
    pub fn assert_refused(&self, status: u16, reason: &str) -> Value {
        assert_eq!((self.status, self.reason().as_deref()), (status, Some(reason)), "{}", self.text());
        assert_eq!(self.value("content-type").as_deref(), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["status"], status, "{problem:#}");
        assert_eq!(problem["reason"], reason, "{problem:#}");
        problem
    }

    /// Asserts 200 with a body that holds `text`.
    #[track_caller]
    pub fn assert_ok(&self, text: &str) {
        assert_eq!(self.status, 200, "{}", self.text());
        assert!(self.text().contains(text), "{}", self.text());
    }
}

/// The head of a response, whose body is still to be read.
#[derive(Debug)]
pub struct Opened {
    /// Everything but body and trailers.
    pub response: Response,
    body: Body,
}

/// A connection on which a test says every byte itself.
pub struct RawConn {
    wire: Wire,
    certificates: Vec<CertificateDer<'static>>,
    alpn: Option<String>,
}

impl RawConn {
    /// Connects to a listener.
    pub async fn open(addr: SocketAddr) -> Self {
        let stream = within("a connection", TcpStream::connect(addr)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self::over(stream)
    }

    /// Connects to a Unix socket.
    pub async fn open_unix(path: &Path) -> Self {
        Self::over(within("a connection", UnixStream::connect(path)).await.unwrap())
    }

    pub(super) fn over(io: impl Io + 'static) -> Self {
        Self { wire: Wire::new(io), certificates: Vec::new(), alpn: None }
    }

    /// Sends bytes.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).await.unwrap();
    }

    /// Sends bytes, and says whether the peer still took them.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        within("the peer to take what is sent", self.wire.send(bytes)).await
    }

    /// Sends bytes and reads the same bytes back, piece by piece.
    pub async fn exchange(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(16 * 1024) {
            self.send(piece).await;
            assert_eq!(self.exact(piece.len()).await, piece, "other bytes came back");
        }
    }

    /// Sends up to `length` bytes until the peer takes no more for half a second; returns how many it took.
    pub async fn flood(&mut self, length: u64) -> u64 {
        let piece = vec![b'x'; 64 * 1024];
        let mut sent = 0;
        while sent < length {
            match tokio::time::timeout(STALLED, self.wire.send(&piece)).await {
                Ok(taken) => taken.unwrap(),
                Err(_) => break,
            }
            sent += piece.len() as u64;
        }
        sent
    }

    /// Ends the sending side, and leaves the other open.
    pub async fn finish(&mut self) {
        self.wire.finish().await.unwrap();
    }

    /// Reads the next header section.
    pub async fn head(&mut self) -> Head {
        within("a header section", self.wire.head()).await.unwrap().expect("the connection ended before a response")
    }

    /// Reads the head of the next final response to a request with `method`.
    pub async fn opened(&mut self, method: &str) -> Opened {
        let mut interim = Vec::new();
        loop {
            let head = self.head().await;
            let status = status(&head);
            if (100..200).contains(&status) && status != 101 {
                interim.push(head);
                continue;
            }
            let framing = match method {
                "CONNECT" if status < 300 => Framing::Length(0),
                _ => Framing::of_response(&head, status, method),
            };
            let response = Response { interim, status, head, ..Response::default() };
            return Opened { response, body: Body::new(framing) };
        }
    }

    /// Reads the next piece of a body: a chunk as the peer framed it, or what one read gave.
    pub async fn piece(&mut self, opened: &mut Opened) -> Option<Vec<u8>> {
        within("the next piece of a body", opened.body.next(&mut self.wire)).await.unwrap()
    }

    /// Reads the rest of an opened response.
    pub async fn rest(&mut self, mut opened: Opened) -> io::Result<Response> {
        let mut response = opened.response;
        response.body = within("the rest of a body", opened.body.rest(&mut self.wire)).await?;
        response.trailers = opened.body.trailers;
        Ok(response)
    }

    /// Reads a whole response to a request with `method`.
    pub async fn response_to(&mut self, method: &str) -> Response {
        let opened = self.opened(method).await;
        self.rest(opened).await.unwrap()
    }

    /// Reads a whole response.
    pub async fn response(&mut self) -> Response {
        self.response_to("GET").await
    }

    /// Sends `head` (lines joined by CRLF are added the empty line) and reads the response.
    pub async fn roundtrip(&mut self, head: &str) -> Response {
        let method = head.split(' ').next().unwrap_or_default().to_owned();
        self.send(format!("{head}\r\n\r\n")).await;
        self.response_to(&method).await
    }

    /// Sends a GET for `target` at `host` and reads the response; the connection stays.
    pub async fn get(&mut self, target: &str, host: &str) -> Response {
        self.roundtrip(&format!("GET {target} HTTP/1.1\r\nHost: {host}")).await
    }

    /// Asks for a tunnel to `authority`.
    pub async fn connect(&mut self, authority: &str) -> Response {
        self.roundtrip(&format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}")).await
    }

    /// The next bytes, as many as there are; empty at the end of the stream, which a reset counts as.
    pub async fn piece_or_end(&mut self) -> Vec<u8> {
        within("bytes or the end", self.wire.some()).await.unwrap_or_default()
    }

    /// Reads exactly `count` bytes.
    pub async fn exact(&mut self, count: usize) -> Vec<u8> {
        within("bytes", self.wire.exact(count)).await.unwrap()
    }

    /// Reads up to the end of the stream. A reset counts as an end: what was sent before it is lost with it.
    pub async fn to_end(&mut self) -> Vec<u8> {
        within("the connection to end", self.wire.to_end()).await.unwrap_or_default()
    }

    /// Starts TLS inside the connection, for `server_name`; an IP address is no name, so none is sent for one.
    pub async fn tls(self, roots: Arc<RootCertStore>, server_name: &str, alpn: &[&str]) -> io::Result<Self> {
        self.tls_with(client_config(roots, alpn), server_name).await
    }

    /// Starts TLS without looking at the certificate.
    pub async fn tls_unchecked(self, server_name: &str) -> io::Result<Self> {
        self.tls_unchecked_with(server_name, &[]).await
    }

    /// Starts TLS without looking at the certificate, and offers `alpn`.
    pub async fn tls_unchecked_with(self, server_name: &str, alpn: &[&str]) -> io::Result<Self> {
        let mut config = unchecked_client_config();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        self.tls_with(config, server_name).await
    }

    /// Starts TLS as a client of this kind.
    pub async fn tls_with(self, config: ClientConfig, server_name: &str) -> io::Result<Self> {
        let (io, early) = self.wire.into_parts();
        assert!(early.is_empty(), "the peer spoke before TLS: {}", String::from_utf8_lossy(&early));
        let name = ServerName::try_from(server_name.to_owned()).unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let stream = within("a TLS handshake", connector.connect(name, io)).await?;
        let session = stream.get_ref().1;
        let certificates = session.peer_certificates().unwrap_or_default().iter().cloned().map(|c| c.into_owned());
        let certificates = certificates.collect();
        let alpn = session.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
        Ok(Self { wire: Wire::new(stream), certificates, alpn })
    }

    /// The stream itself, for a test that has read everything it asked for so far.
    #[must_use]
    pub fn into_io(self) -> Box<dyn Io> {
        let (io, early) = self.wire.into_parts();
        assert!(early.is_empty(), "something was read ahead: {}", String::from_utf8_lossy(&early));
        io
    }

    /// Speaks HTTP/2 from here on.
    pub async fn h2(self) -> H2Conn {
        H2Conn::over(self.into_io()).await
    }

    /// The certificates that the TLS peer showed, leaf first.
    #[must_use]
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// The protocol that ALPN chose.
    #[must_use]
    pub fn alpn(&self) -> Option<&str> {
        self.alpn.as_deref()
    }

    /// Sends a text frame over an upgraded connection, and returns the text of the frame that comes back.
    pub async fn websocket_echo(&mut self, text: &str) -> String {
        self.send(ws::frame(ws::TEXT, text.as_bytes(), Some([1, 2, 3, 4]))).await;
        let (opcode, payload) = within("a frame", ws::read_frame(&mut self.wire)).await.unwrap();
        assert_eq!(opcode, ws::TEXT);
        String::from_utf8(payload).unwrap()
    }
}

fn status(head: &Head) -> u16 {
    let mut words = head.start.splitn(3, ' ');
    let version = words.next().unwrap_or_default();
    assert!(version == "HTTP/1.1" || version == "HTTP/1.0", "not a status line: {:?}", head.start);
    words.next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no status in {:?}", head.start))
}
