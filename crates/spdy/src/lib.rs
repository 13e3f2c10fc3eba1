//! SPDY/3.1: many byte streams on one connection, as kubectl speaks it for exec, attach, cp and port-forward.
//!
//! [`Decoder`] and [`Encoder`] turn bytes into [`Frame`]s and back and do no I/O; [`serve`] runs a server's end of a
//! connection on them. It knows nothing of HTTP, WebSocket or Kubernetes: those agree on SPDY before the first frame.
//!
//! Memory is bounded: control frames, header blocks, streams and what waits on each of them have limits; data is
//! handed on as it comes, however long its frame is. Per-stream windows are not kept, because Kubernetes' peers
//! neither keep nor announce them: a stream that nobody reads holds up the connection, and TCP its sender.
//! Source: SPDY draft 3.1; `github.com/moby/spdystream` for what peers really do.

mod connection;
mod decoder;
mod dictionary;
mod encoder;
mod frame;
mod header_block;

pub use connection::{Stream, StreamReader, StreamReset, StreamWriter, serve};
pub use decoder::Decoder;
pub use encoder::Encoder;
pub use frame::{Frame, Headers, SpdyError};
