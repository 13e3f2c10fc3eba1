//! Frames as data, and their numbers on the wire.

use bytes::Bytes;

/// Header names, lower-case, with their values, in order; a name with several values comes several times.
pub type Headers = Vec<(String, String)>;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Opens a stream; the client's have odd numbers.
    SynStream {
        /// The new stream.
        stream: u32,
        /// The sender will send nothing on it.
        fin: bool,
        /// What it is for.
        headers: Headers,
    },
    /// Accepts a stream.
    SynReply {
        /// The accepted stream.
        stream: u32,
        /// The sender will send nothing on it.
        fin: bool,
        /// The answer's headers.
        headers: Headers,
    },
    /// Ends a stream at once, in both directions.
    Reset {
        /// Which.
        stream: u32,
        /// Why; 5 is "cancelled".
        status: u32,
    },
    /// Settings of the connection; nothing in them matters here.
    Settings,
    /// Asks for, or is, an echo.
    Ping(u32),
    /// No new streams from here on.
    GoAway {
        /// The last stream of the other side that was taken.
        last_stream: u32,
        /// 0 if all is well.
        status: u32,
    },
    /// More headers of a stream.
    Headers {
        /// Which.
        stream: u32,
        /// The sender will send nothing more on it.
        fin: bool,
        /// The headers.
        headers: Headers,
    },
    /// The other side may send more.
    WindowUpdate {
        /// Which stream; 0 is the connection.
        stream: u32,
        /// How much more.
        bytes: u32,
    },
    /// Content, possibly a part of what came in one frame.
    Data {
        /// Which.
        stream: u32,
        /// The sender will send nothing more on it.
        fin: bool,
        /// The content.
        bytes: Bytes,
    },
}

/// The reason why the bytes are no SPDY that can be spoken; the connection must end.
#[derive(Debug, thiserror::Error)]
pub enum SpdyError {
    /// The frame is of another version.
    #[error("frame of SPDY version {0}, not 3")]
    Version(u16),
    /// A control frame is longer than what is read.
    #[error("control frame of {0} bytes is too long")]
    TooLong(usize),
    /// A frame is shorter than its fields, or its fields contradict each other.
    #[error("malformed frame: {0}")]
    Malformed(&'static str),
    /// Header names and values cannot be decompressed, or are too long.
    #[error("malformed header block: {0}")]
    HeaderBlock(&'static str),
    /// The connection broke.
    #[error("the connection failed")]
    Io(#[from] std::io::Error),
}

/// The version on the wire; 3.1 kept 3's number.
pub(crate) const VERSION: u16 = 3;
/// Flag of frames that are the sender's last on their stream.
pub(crate) const FLAG_FIN: u8 = 1;
/// Length of what opens every frame.
pub(crate) const HEAD_BYTES: usize = 8;
/// Stream numbers have 31 bits.
pub(crate) const STREAM_MASK: u32 = 0x7fff_ffff;

/// Types of control frames.
pub(crate) mod kind {
    pub(crate) const SYN_STREAM: u16 = 1;
    pub(crate) const SYN_REPLY: u16 = 2;
    pub(crate) const RST_STREAM: u16 = 3;
    pub(crate) const SETTINGS: u16 = 4;
    pub(crate) const PING: u16 = 6;
    pub(crate) const GOAWAY: u16 = 7;
    pub(crate) const HEADERS: u16 = 8;
    pub(crate) const WINDOW_UPDATE: u16 = 9;
}

/// Reasons to reset a stream.
pub(crate) mod reset {
    pub(crate) const PROTOCOL_ERROR: u32 = 1;
    pub(crate) const REFUSED_STREAM: u32 = 3;
    pub(crate) const CANCEL: u32 = 5;
}
