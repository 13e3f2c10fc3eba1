//! A Node's tunnel to an API server, for connections that the server begins: to the Node's kubelet and to its Pods.
//!
//! The Node connects, asks for [`PATH`] and switches to [`PROTOCOL`]: HTTP/2 with the ends exchanged. The server is the
//! client, and each of its connections is a stream that CONNECT opens; the Node says where streams may lead ([`own`]).
//! Streams have windows of their own, which together are the connection's: one that nobody reads holds no other up. Pings
//! of both ends notice when the other is gone without a word. Nothing here knows objects, certificates or the API.

pub mod agent;
pub mod connection;
pub mod destinations;
pub mod server;

use std::io;
use std::time::Duration;

pub use connection::Connection;
pub use destinations::Destinations;
pub use server::Tunnel;

/// The path at which a Node asks for its tunnel.
pub const PATH: &str = "/knarr/tunnel";
/// The path at which a server lists its tunnels.
pub const LIST_PATH: &str = "/knarr/tunnels";
/// The protocol after the switch.
pub const PROTOCOL: &str = "knarr-tunnel";
/// Connections at a time through one tunnel.
pub const STREAMS_MAX: usize = 512;

/// What one end keeps of a stream that is not read, in bytes, at most.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// All streams' windows together.
const WINDOW_BYTES: u32 = STREAM_WINDOW_BYTES * STREAMS_MAX as u32;
/// What one end keeps of a stream that is not sent, in bytes, at most.
const SEND_BYTES_MAX: usize = 64 << 10;
/// A stream's headers, in bytes, at most: an address, or why there is no connection.
const HEADERS_BYTES_MAX: u32 = 4 << 10;
/// How often the other end is asked whether it is there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_MAX: Duration = Duration::from_secs(10);

/// In an answer that is no: one of [`REASONS`].
const REASON: &str = "knarr-reason";
/// Why there is no connection, as both ends call it.
const REASONS: [(io::ErrorKind, &str); 5] = [
    (io::ErrorKind::ConnectionRefused, "refused"),
    (io::ErrorKind::HostUnreachable, "host-unreachable"),
    (io::ErrorKind::NetworkUnreachable, "network-unreachable"),
    (io::ErrorKind::ConnectionReset, "reset"),
    (io::ErrorKind::TimedOut, "timed-out"),
];

fn reason_of(kind: io::ErrorKind) -> &'static str {
    REASONS.iter().find(|(known, _)| *known == kind).map_or("failed", |(_, word)| word)
}

fn kind_of(reason: &str) -> io::ErrorKind {
    REASONS.iter().find(|(_, word)| *word == reason).map_or(io::ErrorKind::Other, |(kind, _)| *kind)
}

#[cfg(test)]
mod tests;
