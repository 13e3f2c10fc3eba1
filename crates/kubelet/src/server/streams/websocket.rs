//! The conversation over WebSocket.
//!
//! Channels 0 to 4 are stdin, stdout, stderr, the result and terminal sizes; in `v5.channel.k8s.io`, channel
//! 255 closes another one. Binary messages start with the channel's number; in the base64 protocols, messages are
//! text that starts with its digit. Source: KEP-4006, `wsstream` of upstream.

use std::future::Future;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cri::{CriResult, Streams};
use futures::{Sink, SinkExt, Stream, StreamExt};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, frame::coding::CloseCode};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};

use super::ending::{self, Ending};
use super::{CHUNK, Wishes, read};

pub(super) const STDIN: u8 = 0;
pub(super) const STDOUT: u8 = 1;
pub(super) const STDERR: u8 = 2;
pub(super) const RESULT: u8 = 3;
pub(super) const RESIZE: u8 = 4;
pub(super) const CLOSE: u8 = 255;

/// Frames that wait for a slow client.
const QUEUE: usize = 16;

/// How long a client gets to say goodbye: it may be slow, and nothing is kept waiting meanwhile.
pub(super) const LINGER: Duration = Duration::from_secs(10);

/// How messages carry channels.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Framing {
    protocol: &'static str,
    is_base64: bool,
}

impl Framing {
    pub(in crate::server) fn of(protocol: &'static str) -> Self {
        Self { protocol, is_base64: protocol.contains("base64") }
    }

    pub(in crate::server) fn message(self, channel: u8, data: &[u8]) -> Message {
        if self.is_base64 {
            return Message::text(format!("{channel}{}", STANDARD.encode(data)));
        }
        let mut bytes = Vec::with_capacity(data.len() + 1);
        bytes.push(channel);
        bytes.extend_from_slice(data);
        Message::Binary(Bytes::from(bytes))
    }

    /// Channel and content; `None` for what has none.
    ///
    /// The protocol says how to read a message, not whether it came as text or as binary: Python's client sends
    /// what is typed as text.
    pub(in crate::server) fn content(self, message: Message) -> Option<(u8, Bytes)> {
        let mut data = match message {
            Message::Binary(data) => data,
            Message::Text(text) => text.into(),
            _ => return None,
        };
        if data.is_empty() {
            return None;
        }
        let channel = *data.split_to(1).first()?;
        if !self.is_base64 {
            return Some((channel, data));
        }
        let channel = char::from(channel).to_digit(10).and_then(|digit| u8::try_from(digit).ok())?;
        Some((channel, STANDARD.decode(data).ok()?.into()))
    }
}

/// Connects a client to what `start` starts, until one of them ends.
///
/// # Errors
/// When the client leaves other than by closing.
pub(super) async fn converse(
    io: impl AsyncRead + AsyncWrite + Unpin,
    framing: Framing,
    wishes: Wishes,
    start: impl Future<Output = CriResult<Streams>>,
    ending: Ending,
) -> Result<(), Error> {
    let (mut sink, mut source) = WebSocketStream::from_raw_socket(io, Role::Server, None).await.split();
    let result = match start.await {
        Err(error) => ending::internal_error(&error.to_string()),
        Ok(streams) => {
            // An empty message says that all is connected.
            let first = if wishes.stdout {
                STDOUT
            } else if wishes.stderr {
                STDERR
            } else {
                RESULT
            };
            sink.send(framing.message(first, &[])).await?;
            match carry(&mut sink, &mut source, framing, streams, ending).await? {
                Some(result) => result,
                None => return Ok(()),
            }
        }
    };
    sink.send(framing.message(RESULT, ending::render(&result, framing.protocol).as_bytes())).await?;
    close(sink, source).await
}

/// Says goodbye and waits for the client's: hanging up with unread bytes would make TCP throw away what the client has
/// not read yet.
///
/// # Errors
/// When the client has left already.
pub(in crate::server) async fn close(
    mut sink: impl Sink<Message, Error = Error> + Unpin,
    mut source: impl Stream<Item = Result<Message, Error>> + Unpin,
) -> Result<(), Error> {
    sink.send(Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))).await?;
    let goodbye = async { while let Some(Ok(_)) = source.next().await {} };
    if tokio::time::timeout(LINGER, goodbye).await.is_err() {
        tracing::debug!("a client did not say goodbye");
    }
    sink.close().await
}

/// Carries bytes in all directions at once. The result, or `None` if the client left.
async fn carry(
    sink: &mut (impl Sink<Message, Error = Error> + Unpin),
    source: impl Stream<Item = Result<Message, Error>> + Unpin,
    framing: Framing,
    streams: Streams,
    ending: Ending,
) -> Result<Option<Value>, Error> {
    let Streams { stdin, stdout, stderr, resize, exit } = streams;
    let (frames, mut outgoing) = mpsc::channel::<Message>(QUEUE);
    let outputs = futures::future::join(
        pump(framing, STDOUT, stdout, frames.clone()),
        pump(framing, STDERR, stderr, frames),
    );
    let finished = async {
        outputs.await;
        ending::result(ending, exit).await
    };
    let sending = async {
        // The queue ends with the outputs.
        while let Some(message) = outgoing.recv().await {
            sink.send(message).await?;
        }
        Ok::<_, Error>(())
    };
    let both = async { futures::future::join(finished, sending).await };
    tokio::select! {
        (result, sent) = both => sent.map(|()| Some(result)),
        left = feed(source, framing, stdin, resize) => left.map(|()| None),
    }
}

/// Sends all of an output as frames.
async fn pump(
    framing: Framing,
    channel: u8,
    output: Option<Box<dyn AsyncRead + Send + Unpin>>,
    frames: mpsc::Sender<Message>,
) {
    let Some(mut output) = output else { return };
    let mut buffer = vec![0; CHUNK];
    while let Some(count) = read(&mut output, &mut buffer).await {
        if frames.send(framing.message(channel, &buffer[..count])).await.is_err() {
            return;
        }
    }
}

type Stdin = Option<Box<dyn AsyncWrite + Send + Unpin>>;

/// Takes what the client sends, until it leaves.
async fn feed(
    mut source: impl Stream<Item = Result<Message, Error>> + Unpin,
    framing: Framing,
    mut stdin: Stdin,
    mut resize: Option<mpsc::Sender<(u16, u16)>>,
) -> Result<(), Error> {
    while let Some(message) = source.next().await {
        let message = message?;
        if matches!(message, Message::Close(_)) {
            return Ok(());
        }
        if let Some((channel, content)) = framing.content(message) {
            incoming(channel, &content, &mut stdin, &mut resize).await;
        }
    }
    Ok(())
}

/// Takes one frame from the client.
async fn incoming(
    channel: u8,
    content: &[u8],
    stdin: &mut Stdin,
    resize: &mut Option<mpsc::Sender<(u16, u16)>>,
) {
    match (channel, stdin.as_mut()) {
        (STDIN, Some(writer)) if !content.is_empty() => {
            // A process that does not read any more: its output and end still matter.
            if let Err(error) = write(writer, content).await {
                tracing::debug!(%error, "stdin is not read");
                *stdin = None;
            }
        }
        (CLOSE, Some(writer)) if content == [STDIN] => {
            if let Err(error) = writer.shutdown().await {
                tracing::debug!(%error, "stdin was closed already");
            }
            *stdin = None;
        }
        (RESIZE, _) => {
            let size = serde_json::from_slice(content).unwrap_or_default();
            if let (Some(size), Some(resize)) = (terminal_size(&size), resize)
                && resize.send(size).await.is_err()
            {
                tracing::debug!("a terminal size came after the terminal's end");
            }
        }
        _ => {}
    }
}

/// Writes at once, not when a buffer is full.
pub(super) async fn write(
    writer: &mut (impl AsyncWrite + Unpin + ?Sized),
    content: &[u8],
) -> std::io::Result<()> {
    writer.write_all(content).await?;
    writer.flush().await
}

/// Columns and rows of a `TerminalSize`.
pub(super) fn terminal_size(size: &Value) -> Option<(u16, u16)> {
    let side = |name: &str| size[name].as_u64().and_then(|n| u16::try_from(n).ok());
    side("Width").zip(side("Height"))
}

#[cfg(test)]
mod tests;
