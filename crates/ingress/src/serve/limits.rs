//! The limits of times and numbers.

use std::time::Duration;

/// The limits for clients and backends.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For a TLS handshake.
    pub handshake: Duration,
    /// For the head of a request, from the moment that one may come.
    pub head: Duration,
    /// For a connection on which nothing is asked.
    pub idle: Duration,
    /// For the next piece of a request's body.
    pub upload: Duration,
    /// For taking the next piece of an answer off the connection.
    pub download: Duration,
    /// For an endpoint to take a connection, its TLS handshake included.
    pub connect: Duration,
    /// For requests under way, when the process ends.
    pub drain: Duration,
    /// Requests under way; more are answered with 503.
    pub requests: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(15),
            idle: Duration::from_secs(75),
            upload: Duration::from_mins(1),
            download: Duration::from_mins(1),
            connect: Duration::from_secs(3),
            drain: Duration::from_secs(5),
            requests: 8192,
        }
    }
}

/// Of a request's head, all headers together and the target, in bytes.
pub(super) const HEAD_BYTES_MAX: usize = 64 << 10;
/// Of a request's head over HTTP/2, as its frames are counted.
pub(super) const HEAD_LIST_BYTES_MAX: u32 = 32 << 10;
/// Headers of a message.
pub(super) const HEADERS_MAX: usize = 100;
/// Requests at a time on one connection of a client.
pub(super) const STREAMS_MAX: u32 = 128;
/// Requests that a client gave up before anybody looked at them: more, and the connection ends.
/// Source: CVE-2023-44487.
pub(super) const RESETS_MAX: usize = 32;
/// What may come of a request's body over HTTP/2 before somebody takes it, and of all of a connection.
pub(super) const STREAM_WINDOW_BYTES: u32 = 256 << 10;
pub(super) const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
/// What is kept of an answer over HTTP/2 for a client that does not take it.
pub(super) const SEND_BUFFER_BYTES_MAX: usize = 128 << 10;
/// Connections to one endpoint on which nothing is asked.
pub(super) const IDLE_OF_ENDPOINT_MAX: usize = 32;
/// How long such a connection is kept: less than servers usually keep theirs, so that few requests meet one that is
/// just being closed.
pub(super) const IDLE_OF_ENDPOINT: Duration = Duration::from_secs(4);
/// How long an endpoint that could not be connected to comes last.
pub(super) const SHUNNED: Duration = Duration::from_secs(2);
/// Endpoints that are tried for one request.
pub(super) const ATTEMPTS_MAX: usize = 3;
/// For the next piece of a body that may take as long as it likes: the connection itself is asked whether it is there.
pub(super) const UPLOAD_OF_STREAM: Duration = Duration::from_hours(24);
/// Copies of requests for mirrors that are under way; more are not made.
pub(super) const COPIES_MAX: usize = 256;
/// How long a mirror may take for one.
pub(super) const COPY: Duration = Duration::from_secs(30);
/// Pieces of a body that wait for a mirror; one that is slower gets no more.
pub(super) const COPY_PIECES_MAX: usize = 16;
/// What is taken of a mirror's answer, so that its connection may be used again.
pub(super) const COPY_ANSWER_BYTES_MAX: usize = 64 << 10;
