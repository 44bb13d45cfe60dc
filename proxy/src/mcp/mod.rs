//! What a server's policy makes of MCP messages: pure, without sockets, clocks or tasks.
//!
//! MCP is JSON-RPC 2.0 over HTTP. A client POSTs a message; the answer is JSON or a stream of server-sent events, and a
//! GET opens a stream of its own. Four revisions are spoken: `2025-03-26` (batches), `2025-06-18` and `2025-11-25`
//! (sessions that begin with `initialize`), and `2026-07-28`, in which every request stands alone and says its revision
//! and the client's capabilities in `_meta`.
//!
//! [`policy`] holds what a server is held to, and finds it for a request. [`request`] judges what a client sends,
//! [`response`] what a server does; [`stream`] brings the latter to event streams, which [`sse`] takes apart. Judgement
//! is on the message alone: neither Content-Type nor the header fields that mirror the message are trusted, though the
//! latter have to agree with it. Where a message can be understood in two ways it is refused, so [`json`] reads
//! strictly; where it is changed, nothing but the touched member is.

pub(crate) mod elicitation;
pub(crate) mod json;
pub(crate) mod message;
pub(crate) mod policy;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod rpc;
pub(crate) mod sse;
pub(crate) mod stream;

/// The revision in which requests stand alone.
pub(crate) const STATELESS: &str = "2026-07-28";
/// The only revision with batches.
pub(crate) const BATCHES: &str = "2025-03-26";

/// The field for the revision, on every request behind the handshake.
pub(crate) const PROTOCOL_VERSION: http::HeaderName = http::HeaderName::from_static("mcp-protocol-version");
/// The field for the session.
pub(crate) const SESSION_ID: http::HeaderName = http::HeaderName::from_static("mcp-session-id");
/// The field that repeats the method.
pub(crate) const METHOD: http::HeaderName = http::HeaderName::from_static("mcp-method");
/// The field that repeats the name of what is asked for.
pub(crate) const NAME: http::HeaderName = http::HeaderName::from_static("mcp-name");

/// The member of `_meta` for the revision.
pub(crate) const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The member of `_meta` for the client's capabilities.
pub(crate) const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
