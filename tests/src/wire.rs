//! HTTP/1.1 read and written as bytes, for servers and clients that must see exactly what was sent.
//!
//! Nothing is normalised: header lines keep their case, order and repetitions. Reading is lenient where a product
//! would refuse, since a recorder has to show what came, right or wrong.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Any byte stream: TCP, TLS, TLS within TLS.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A start line and header lines, as received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The request or status line, without its line end.
    pub start: String,
    /// The header lines in order, without their line ends. Bytes outside UTF-8 are replaced.
    pub lines: Vec<String>,
    /// Everything as it came, the empty line included.
    pub raw: Vec<u8>,
}

impl Head {
    /// Splits the bytes of a header section.
    #[must_use]
    pub fn parse(raw: Vec<u8>) -> Self {
        let text = String::from_utf8_lossy(&raw).into_owned();
        let mut lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line).to_owned());
        let start = lines.next().unwrap_or_default();
        let lines = lines.filter(|line| !line.is_empty()).collect();
        Self { start, lines, raw }
    }

    /// The values of every field called `name`, compared without case, in order, trimmed.
    #[must_use]
    pub fn values(&self, name: &str) -> Vec<String> {
        field_values(&self.lines, name)
    }

    /// The only value of the field called `name`; panics when it is there more than once.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<String> {
        let mut values = self.values(name);
        assert!(values.len() < 2, "{name} is repeated: {values:?}");
        values.pop()
    }

    /// Whether there is a field called `name`.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        !self.values(name).is_empty()
    }

    /// Whether a field called `name` lists `token`, compared without case.
    #[must_use]
    pub fn lists(&self, name: &str, token: &str) -> bool {
        self.values(name).iter().flat_map(|value| value.split(',')).any(|item| item.trim().eq_ignore_ascii_case(token))
    }
}

/// The values of the fields called `name` among header lines.
#[must_use]
pub fn field_values(lines: &[String], name: &str) -> Vec<String> {
    let fields = lines.iter().filter_map(|line| line.split_once(':'));
    fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned()).collect()
}

/// How a body ends (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// After this many bytes.
    Length(u64),
    /// With the last chunk.
    Chunked,
    /// With the connection.
    Close,
}

impl Framing {
    /// The framing of a request.
    #[must_use]
    pub fn of_request(head: &Head) -> Self {
        if head.lists("transfer-encoding", "chunked") { Self::Chunked } else { Self::Length(length(head).unwrap_or(0)) }
    }

    /// The framing of a response with `status` to a request with `method`.
    #[must_use]
    pub fn of_response(head: &Head, status: u16, method: &str) -> Self {
        if method == "HEAD" || status < 200 || status == 204 || status == 304 {
            Self::Length(0)
        } else if head.lists("transfer-encoding", "chunked") {
            Self::Chunked
        } else {
            length(head).map_or(Self::Close, Self::Length)
        }
    }
}

fn length(head: &Head) -> Option<u64> {
    head.values("content-length").first().and_then(|value| value.parse().ok())
}

/// A stream with the bytes that were read from it and not used yet.
pub struct Wire {
    io: Box<dyn Io>,
    buffer: Vec<u8>,
}

impl Wire {
    /// Wraps a stream.
    pub fn new(io: impl Io + 'static) -> Self {
        Self { io: Box::new(io), buffer: Vec::new() }
    }

    /// The stream and whatever was read beyond the last message.
    #[must_use]
    pub fn into_parts(self) -> (Box<dyn Io>, Vec<u8>) {
        (self.io, self.buffer)
    }

    /// Writes and flushes.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.io.write_all(bytes.as_ref()).await?;
        self.io.flush().await
    }

    /// Ends the sending side.
    pub async fn finish(&mut self) -> io::Result<()> {
        self.io.shutdown().await
    }

    /// Reads once more; false at the end of the stream.
    async fn fill(&mut self) -> io::Result<bool> {
        self.buffer.reserve(16 * 1024);
        Ok(self.io.read_buf(&mut self.buffer).await? > 0)
    }

    async fn fill_or_fail(&mut self) -> io::Result<()> {
        if self.fill().await? { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        self.buffer.drain(..count).collect()
    }

    /// The next bytes, as many as there are; empty at the end of the stream.
    pub async fn some(&mut self) -> io::Result<Vec<u8>> {
        if self.buffer.is_empty() {
            self.fill().await?;
        }
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Waits until the peer has ended its side or broken off; what it sends until then is kept.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when this is dropped half way.
    pub async fn wait_for_end(&mut self) {
        while self.fill().await.unwrap_or(false) {}
    }

    /// Exactly `count` bytes.
    pub async fn exact(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < count {
            self.fill_or_fail().await?;
        }
        Ok(self.take(count))
    }

    /// Everything up to the end of the stream.
    pub async fn to_end(&mut self) -> io::Result<Vec<u8>> {
        while self.fill().await? {}
        Ok(std::mem::take(&mut self.buffer))
    }

    /// Bytes up to and including `mark`.
    async fn through(&mut self, mark: &[u8]) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(mark.len()).position(|window| window == mark) {
                return Ok(self.take(at + mark.len()));
            }
            self.fill_or_fail().await?;
        }
    }

    /// The next header section; none where the stream ends first.
    pub async fn head(&mut self) -> io::Result<Option<Head>> {
        if self.buffer.is_empty() && !self.fill().await? {
            return Ok(None);
        }
        Ok(Some(Head::parse(self.through(b"\r\n\r\n").await?)))
    }

    /// One line without its line end.
    pub async fn line(&mut self) -> io::Result<String> {
        let line = self.through(b"\n").await?;
        Ok(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned())
    }
}

/// Reads one body piece by piece.
#[derive(Debug)]
pub struct Body {
    framing: Framing,
    done: bool,
    /// The trailer lines, once the body has ended.
    pub trailers: Vec<String>,
}

impl Body {
    /// A body framed so.
    #[must_use]
    pub const fn new(framing: Framing) -> Self {
        Self { framing, done: false, trailers: Vec::new() }
    }

    /// The next piece: a chunk, or what one read gave; none when the body has ended.
    pub async fn next(&mut self, wire: &mut Wire) -> io::Result<Option<Vec<u8>>> {
        if self.done {
            return Ok(None);
        }
        let piece = match self.framing {
            Framing::Length(0) => Vec::new(),
            Framing::Length(left) => {
                if wire.buffer.is_empty() {
                    wire.fill_or_fail().await?;
                }
                let count = wire.buffer.len().min(usize::try_from(left).unwrap());
                self.framing = Framing::Length(left - count as u64);
                wire.take(count)
            }
            Framing::Chunked => self.chunk(wire).await?,
            Framing::Close => wire.some().await?,
        };
        self.done = piece.is_empty();
        Ok((!piece.is_empty()).then_some(piece))
    }

    async fn chunk(&mut self, wire: &mut Wire) -> io::Result<Vec<u8>> {
        let line = wire.line().await?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| io::Error::other(format!("bad chunk size {line:?}")))?;
        if size > 0 {
            let chunk = wire.exact(size).await?;
            wire.exact(2).await?;
            return Ok(chunk);
        }
        loop {
            let trailer = wire.line().await?;
            if trailer.is_empty() {
                return Ok(Vec::new());
            }
            self.trailers.push(trailer);
        }
    }

    /// All that is left of the body.
    pub async fn rest(&mut self, wire: &mut Wire) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(piece) = self.next(wire).await? {
            all.extend(piece);
        }
        Ok(all)
    }
}

/// One chunk in its frame.
#[must_use]
pub fn chunk(piece: &[u8]) -> Vec<u8> {
    let mut framed = format!("{:x}\r\n", piece.len()).into_bytes();
    framed.extend_from_slice(piece);
    framed.extend_from_slice(b"\r\n");
    framed
}

/// The last chunk, with trailer lines.
#[must_use]
pub fn last_chunk(trailers: &[String]) -> Vec<u8> {
    let trailers = trailers.iter().map(|line| format!("{line}\r\n")).collect::<String>();
    format!("0\r\n{trailers}\r\n").into_bytes()
}
