//! What clients say: made once for all connections, or for each connection where each asks for a host of its own.

use std::cell::Cell;
use std::rc::Rc;

use anyhow::ensure;
use exeat_tests::certs::client_hello;
use rustls_pki_types::ServerName;

use super::h2;
use super::peer::{HOST, fresh_host};

/// How a client gets to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// By requests in absolute form.
    Absolute,
    /// By a CONNECT.
    Connect,
    /// At once: the proxy's port is the origin's for all that the client knows.
    Straight,
}

/// What a client asks for once it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// A file.
    File,
    /// A file, over HTTP/2.
    Stream,
    /// A tool of an MCP server.
    Call,
    /// Nothing but TLS, of which this is the ClientHello.
    Hello,
}

/// How a client speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// How it gets to the origin.
    pub(crate) opening: Opening,
    /// What it asks for.
    pub(crate) content: Content,
    /// What it has the proxy dial in the place of the host's name, for proxies that cannot be told an address for it.
    pub(crate) dialled: Option<&'static str>,
    /// The origin's port.
    pub(crate) port: u16,
}

/// What one connection says, in the order in which it says it.
#[derive(Debug)]
pub(crate) struct Words {
    /// The CONNECT to begin with, if any.
    pub(crate) connect: Option<Box<[u8]>>,
    /// The name that TLS asks for.
    pub(crate) name: ServerName<'static>,
    /// The request; of HTTP/2 the block of its fields.
    pub(crate) request: Box<[u8]>,
}

impl Words {
    /// Finds words for a host.
    fn new(style: &Style, host: String) -> anyhow::Result<Self> {
        let port = style.port;
        let dialled = format!("{}:{port}", style.dialled.unwrap_or(&host));
        let connect = format!("CONNECT {dialled} HTTP/1.1\r\nhost: {dialled}\r\n\r\n");
        let authority = if style.opening == Opening::Absolute { dialled } else { format!("{host}:{port}") };
        let request = match style.content {
            Content::File => {
                let scheme =
                    if style.opening == Opening::Absolute { format!("http://{authority}") } else { String::new() };
                format!(
                    "GET {scheme}/served/file HTTP/1.1\r\nhost: {authority}\r\nuser-agent: load\r\naccept: */*\r\n\r\n"
                )
                .into_bytes()
            }
            Content::Stream => h2::block(&authority, "/served/file")?,
            Content::Call => call(&authority).into_bytes(),
            Content::Hello => client_hello(&host),
        };
        Ok(Self {
            connect: (style.opening == Opening::Connect).then(|| connect.into_bytes().into()),
            name: ServerName::try_from(host)?,
            request: request.into(),
        })
    }
}

/// A call as clients of the streamable HTTP transport send it.
fn call(authority: &str) -> String {
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search_issues","arguments":{"query":"egress","limit":20}}}"#;
    format!(
        "POST /served/mcp HTTP/1.1\r\nhost: {authority}\r\nuser-agent: load\r\naccept: application/json, \
         text/event-stream\r\ncontent-type: application/json\r\nmcp-protocol-version: 2025-06-18\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The hosts that connections ask for.
#[derive(Clone, Debug)]
pub(crate) enum Hosts {
    /// All for the same.
    One(Rc<Words>),
    /// Each for the next of so many.
    Next(Style, Rc<Cell<usize>>, usize),
}

impl Hosts {
    /// One host for all connections.
    pub(crate) fn one(style: &Style) -> anyhow::Result<Self> {
        Ok(Self::One(Words::new(style, HOST.to_owned())?.into()))
    }

    /// Another host for each of so many connections; copies of this go through the same hosts.
    pub(crate) fn fresh(style: Style, count: usize) -> Self {
        Self::Next(style, Rc::default(), count)
    }

    /// What the next connection says.
    pub(crate) fn next(&self) -> anyhow::Result<Rc<Words>> {
        match self {
            Self::One(words) => Ok(Rc::clone(words)),
            Self::Next(style, next, count) => {
                let number = next.replace(next.get() + 1);
                ensure!(number < *count, "all {count} hosts have been asked for; measure for a shorter time");
                Ok(Words::new(style, fresh_host(number))?.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLE: Style = Style { opening: Opening::Connect, content: Content::File, dialled: None, port: 8443 };

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_request_has_the_form_of_its_opening() {
        for (opening, dialled, connect, request) in [
            (
                Opening::Absolute,
                None,
                None,
                "GET http://origin.test:8443/served/file HTTP/1.1\r\nhost: origin.test:8443\r\n",
            ),
            (
                Opening::Absolute,
                Some("127.0.0.1"),
                None,
                "GET http://127.0.0.1:8443/served/file HTTP/1.1\r\nhost: 127.0.0.1:8443\r\n",
            ),
            (
                Opening::Connect,
                Some("127.0.0.1"),
                Some("CONNECT 127.0.0.1:8443 "),
                "GET /served/file HTTP/1.1\r\nhost: origin.test:8443\r\n",
            ),
            (Opening::Straight, None, None, "GET /served/file HTTP/1.1\r\nhost: origin.test:8443\r\n"),
        ] {
            let words = Words::new(&Style { opening, dialled, ..STYLE }, HOST.to_owned()).unwrap();
            assert_eq!(words.connect.is_some(), connect.is_some());
            assert!(words.connect.iter().all(|bytes| text(bytes).starts_with(connect.unwrap())));
            assert!(text(&words.request).starts_with(request), "{}", text(&words.request));
        }
    }

    #[test]
    fn no_host_is_asked_for_twice() {
        let hosts = Hosts::fresh(STYLE, 3);
        let copy = hosts.clone();
        let names: Vec<_> = [&hosts, &copy, &hosts].map(|hosts| hosts.next().unwrap().name.clone()).into();
        assert_eq!(names, ["h0.origin.test", "h1.origin.test", "h2.origin.test"].map(|name| name.try_into().unwrap()));
        assert!(copy.next().is_err());
    }
}
