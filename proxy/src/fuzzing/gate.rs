//! A whole gateway in one process: bytes of a client go in, and what comes out at a server is held against the policy.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use exeat_policy::Verdict;
use exeat_policy::target::Target;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::ends;
use crate::client::Address;
use crate::drain::Trigger;
use crate::gate::Gate;
use crate::listener::proxy;
use crate::listener::stream::Stream;
use crate::server::{Gateway, Options};

/// How long a conversation may take that is over in a millisecond.
const PATIENCE: Duration = Duration::from_secs(20);
/// What an input has in place of the server's port.
const PORT: &[u8] = b"PORT";
/// Ends each conversation, unless it became the body of something.
const LAST: &str = "GET http://in.test:PORT/acme/last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

/// A gateway with a policy, and a server that takes down what reaches it.
pub struct World {
    runtime: Runtime,
    gate: Arc<Gate>,
    /// Gone, it would count as pulled.
    _trigger: Trigger,
    port: u16,
    seen: Arc<Mutex<Vec<Result<Request, String>>>>,
}

/// A request as the server saw it.
struct Request {
    line: String,
    fields: Vec<(String, String)>,
}

impl World {
    /// Starts one, with its files in a folder.
    #[must_use]
    pub fn start(folder: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let seen = Arc::default();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        runtime.spawn(serve(listener, Arc::clone(&seen)));
        // Rules with a path alone: in a tunnel that is not looked into a client may say what it likes.
        let manifest = format!(
            "name = \"fuzz\"\nnetwork_access.allowed = [\"http://in.test:{port}/acme/\", \"http://in.test:{port}/v1/a\"]\n\
             network_access.blocked = [\"http://in.test:{port}/acme/secret\"]\n"
        );
        let config = "admin.listen = \"off\"\nlisten.proxy = \"127.0.0.1:0\"\nguard.allow = [\"127.0.0.1\"]\n\
                      dns.hosts = { \"in.test\" = \"127.0.0.1\", \"out.test\" = \"127.0.0.1\" }\n";
        let paths = ["agent.toml", "exeat.toml"].map(|name| folder.join(name));
        for (path, text) in paths.iter().zip([manifest.as_str(), config]) {
            std::fs::write(path, text).unwrap();
        }
        let [manifest, config] = paths;
        let options = Options {
            config: Some(config),
            manifests: vec![manifest],
            overrides: Vec::new(),
            state_dir: folder.join("state"),
            private: false,
        };
        let (gate, trigger) = runtime.block_on(Gateway::bind(options)).unwrap().into_gate();
        Self { runtime, gate, _trigger: trigger, port, seen }
    }

    /// Has a client say `data` in pieces, and judges everything that reached the server; gives how many requests those
    /// were. The first byte decides about the pieces, `PORT` stands for the server's port.
    pub fn talk(&self, data: &[u8]) -> usize {
        let Some((&seed, data)) = data.split_first() else { return 0 };
        let said = fill(&[data, LAST.as_bytes()].concat(), self.port);
        self.runtime.block_on(async {
            let (near, far) = UnixStream::pair().unwrap();
            let slot = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
            let address = Address::Unix { uid: 0, pid: None };
            let serving = proxy::connection(Arc::clone(&self.gate), false, Stream::Unix(far), address, slot);
            let serving = self.runtime.spawn(serving);
            let (mut read, mut write) = near.into_split();
            let saying = async {
                let mut from = 0;
                for end in ends(said.len(), seed) {
                    // The gateway may have closed already.
                    if write.write_all(&said[from..end]).await.is_err() {
                        break;
                    }
                    from = end;
                    tokio::task::yield_now().await;
                }
                let _ = write.shutdown().await;
            };
            let mut heard = Vec::new();
            let both = async { tokio::join!(saying, read.read_to_end(&mut heard)) };
            timeout(PATIENCE, both).await.expect("the gateway ends the conversation").1.ok();
            timeout(PATIENCE, serving).await.expect("the gateway lets go of the connection").expect("no panic");
        });
        let seen = std::mem::take(&mut *self.seen.lock().unwrap());
        for request in &seen {
            self.judge(request.as_ref().unwrap_or_else(|fault| panic!("the server cannot read it: {fault}")));
        }
        seen.len()
    }

    fn judge(&self, request: &Request) {
        let Request { line, fields } = request;
        let [method, target, "HTTP/1.1"] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line:?}") };
        let values = |name: &str| {
            let found = fields.iter().filter(|(field, _)| field == name);
            found.map(|(_, value)| value.as_str()).collect::<Vec<_>>()
        };
        let [host] = values("host")[..] else { panic!("{line:?} with Hosts {:?}", values("host")) };
        assert_eq!(host, format!("in.test:{}", self.port), "{line:?}");
        assert!(!["CONNECT", "PRI"].contains(&method), "{line:?}");
        let target = Target::parse(&format!("http://{host}{target}")).expect("what is sent is a target");
        let decision = self.gate.current.get().policy.decide(&target).verdict;
        assert_eq!(decision, Verdict::Allow, "{line:?} reached the server");
        assert!(values("via").iter().any(|via| via.contains("exeat-")), "{line:?} is not signed");
        for name in ["proxy-authorization", "proxy-connection", "keep-alive", "upgrade"] {
            let upgrade = name == "upgrade" && values(name) == ["websocket"] && values("connection") == ["Upgrade"];
            assert!(values(name).is_empty() || upgrade, "{line:?} with {name}: {:?}", values(name));
        }
        for value in values("connection") {
            assert!(["TE", "Upgrade"].contains(&value), "{line:?} with Connection: {value}");
        }
    }
}

fn fill(text: &[u8], port: u16) -> Vec<u8> {
    let port = port.to_string();
    let (mut filled, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.windows(PORT.len()).position(|window| window == PORT) {
        filled.extend([&rest[..at], port.as_bytes()].concat());
        rest = &rest[at + PORT.len()..];
    }
    filled.extend(rest);
    filled
}

async fn serve(listener: TcpListener, seen: Arc<Mutex<Vec<Result<Request, String>>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let seen = Arc::clone(&seen);
        tokio::spawn(async move {
            let mut connection = Connection { stream, buffer: Vec::new() };
            loop {
                match connection.request(&seen).await {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(fault) => {
                        seen.lock().unwrap().push(Err(fault));
                        return;
                    }
                }
            }
        });
    }
}

/// The server's side of a connection, which takes nothing but the plainest HTTP/1.1.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Reads a request and answers it; false where the connection ends, which it may do anywhere.
    async fn request(&mut self, seen: &Mutex<Vec<Result<Request, String>>>) -> Result<bool, String> {
        let Some(head) = self.through(b"\r\n\r\n").await else { return Ok(false) };
        // A field value may have bytes beyond ASCII (RFC 9110 section 5.5).
        let text: String = head.into_iter().map(char::from).collect();
        let mut lines = text.trim_end_matches("\r\n").split("\r\n");
        let line = lines.next().unwrap_or_default().to_owned();
        let field = |line: &str| match line.split_once(": ") {
            Some((name, value)) if !value.contains(['\r', '\n', '\0']) => Ok((name.to_lowercase(), value.to_owned())),
            _ if line.ends_with(':') => Ok((line.trim_end_matches(':').to_lowercase(), String::new())),
            _ => Err(format!("the line {line:?}")),
        };
        let fields = lines.map(field).collect::<Result<Vec<_>, _>>()?;
        let values = |name: &str| {
            let found = fields.iter().filter(|(field, _)| field == name);
            found.map(|(_, value)| value.clone()).collect::<Vec<_>>()
        };
        let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
        let head = line.starts_with("HEAD ");
        seen.lock().unwrap().push(Ok(Request { line, fields: fields.clone() }));
        let arrived = match (lengths.as_slice(), codings.as_slice()) {
            ([], []) => true,
            ([length], []) => {
                let length = length.parse().map_err(|_| format!("the length {length:?}"))?;
                self.exactly(length).await.is_some()
            }
            ([], [coding]) if coding == "chunked" => self.chunks().await?,
            other => return Err(format!("the framing {other:?}")),
        };
        let body = if head { "" } else { "ok" };
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{body}");
        Ok(arrived && self.stream.write_all(answer.as_bytes()).await.is_ok())
    }

    async fn chunks(&mut self) -> Result<bool, String> {
        loop {
            let Some(line) = self.through(b"\r\n").await else { return Ok(false) };
            let text = String::from_utf8_lossy(&line);
            let size = usize::from_str_radix(text.trim_end(), 16).map_err(|_| format!("the chunk size {text:?}"))?;
            if size > 0 {
                if self.exactly(size + 2).await.is_none() {
                    return Ok(false);
                }
                continue;
            }
            loop {
                match self.through(b"\r\n").await.as_deref() {
                    None => return Ok(false),
                    Some(b"\r\n") => return Ok(true),
                    Some(_) => {}
                }
            }
        }
    }

    async fn through(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(mark.len()).position(|window| window == mark) {
                return Some(self.buffer.drain(..at + mark.len()).collect());
            }
            self.fill().await?;
        }
    }

    async fn exactly(&mut self, length: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < length {
            self.fill().await?;
        }
        Some(self.buffer.drain(..length).collect())
    }

    async fn fill(&mut self) -> Option<()> {
        (self.stream.read_buf(&mut self.buffer).await.unwrap_or(0) > 0).then_some(())
    }
}
