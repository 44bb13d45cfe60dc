//! HTTP/1.1 towards clients.
//!
//! The server side of HTTP/1.1 is the gateway's own and not hyper's, because a gateway that judges requests needs what
//! hyper's server does not give: every departure from the framing rules refused with a reason ([`head`], [`chunked`]),
//! interim 1xx answers passed on from upstream, a client that goes away noticed while its answer is under way, and the
//! connection handed back byte-exact when it turns into a tunnel.

pub(crate) mod body;
pub(crate) mod chunked;
pub(crate) mod conn;
pub(crate) mod head;
mod write;

pub(crate) use body::{RequestBody, ResponseBody};
pub(crate) use conn::{Bounds, Exchange, Interim, Reply, Service, Switched, expected_long_enough, serve};
pub(crate) use head::{Head, HeadError};
pub(crate) use write::plain_answer;
