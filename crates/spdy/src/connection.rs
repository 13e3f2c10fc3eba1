//! A server's end of a connection: streams that the client opens, read and written one by one.
//!
//! One future does everything; it ends with its `work`, or when the client leaves. Frames go out through one bounded
//! queue, content comes in through one per stream.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};

use crate::frame::reset;
use crate::{Decoder, Encoder, Frame, Headers, SpdyError};

/// Streams open at the same time.
const STREAMS_MAX: usize = 512;
/// Pieces of content that wait on one stream, each of at most [`READ_BYTES`].
const PIECES_MAX: usize = 4;
/// Frames that wait to be sent.
const FRAMES_MAX: usize = 16;
/// Streams that wait to be taken.
const ACCEPT_MAX: usize = 16;
/// How much is read at a time.
const READ_BYTES: usize = 32 * 1024;
/// The longest data frame that is sent.
const DATA_BYTES_MAX: usize = 64 * 1024;
/// How long a client gets to hang up after the last frame.
const LINGER: Duration = Duration::from_secs(10);

/// A stream that the client opened, accepted already.
pub struct Stream {
    /// Its number.
    pub id: u32,
    /// The headers with which the client opened it: its purpose.
    pub headers: Headers,
    /// The client's bytes on it.
    pub reader: StreamReader,
    /// The bytes for the client.
    pub writer: StreamWriter,
}

impl Stream {
    /// The first value of a header; `name` is lower-case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// The stream is no more: the client reset it, or the connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client reset the stream")]
pub struct StreamReset;

/// The client's half of a stream. Dropping it throws away what else comes.
pub struct StreamReader {
    pieces: mpsc::Receiver<Bytes>,
    state: watch::Receiver<State>,
}

impl StreamReader {
    /// The next piece; `None` once the client has sent everything.
    ///
    /// # Errors
    /// [`StreamReset`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, StreamReset> {
        match self.pieces.recv().await {
            Some(piece) => Ok(Some(piece)),
            None if *self.state.borrow() == State::Reset => Err(StreamReset),
            None => Ok(None),
        }
    }
}

/// The server's half of a stream. It must be ended by [`StreamWriter::finish`] or [`StreamWriter::reset`]; dropped
/// without, it stays open until the connection ends.
pub struct StreamWriter {
    id: u32,
    frames: mpsc::Sender<Frame>,
    table: Arc<Table>,
    state: watch::Receiver<State>,
}

impl StreamWriter {
    /// Sends content; waits while the client is slow.
    ///
    /// # Errors
    /// [`StreamReset`].
    pub async fn send(&self, mut bytes: Bytes) -> Result<(), StreamReset> {
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(DATA_BYTES_MAX));
            if *self.state.borrow() == State::Reset {
                return Err(StreamReset);
            }
            let frame = Frame::Data { stream: self.id, fin: false, bytes: piece };
            self.frames.send(frame).await.map_err(|_| StreamReset)?;
        }
        Ok(())
    }

    /// Says that nothing more comes.
    ///
    /// # Errors
    /// [`StreamReset`].
    pub async fn finish(self) -> Result<(), StreamReset> {
        if *self.state.borrow() == State::Reset {
            return Err(StreamReset);
        }
        let frame = Frame::Data { stream: self.id, fin: true, bytes: Bytes::new() };
        self.table.finish_local(self.id);
        self.frames.send(frame).await.map_err(|_| StreamReset)
    }

    /// Ends the stream in both directions.
    ///
    /// # Errors
    /// [`StreamReset`].
    pub async fn reset(self) -> Result<(), StreamReset> {
        self.table.remove(self.id);
        let frame = Frame::Reset { stream: self.id, status: reset::CANCEL };
        self.frames.send(frame).await.map_err(|_| StreamReset)
    }

    /// Waits until the client has reset the stream or the connection has ended.
    pub async fn closed(&self) {
        let mut state = self.state.clone();
        // An error says that the table has forgotten the stream, which is its end as well.
        state.wait_for(|state| *state == State::Reset).await.map(drop).unwrap_or(());
    }
}

/// What became of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Both halves were ended in order.
    Finished,
    Reset,
}

struct Entry {
    /// `None` once the client has sent everything.
    pieces: Option<mpsc::Sender<Bytes>>,
    /// Whether the server may still send.
    is_local_open: bool,
    state: watch::Sender<State>,
}

/// The open streams.
#[derive(Default)]
struct Table(Mutex<HashMap<u32, Entry>>);

impl Table {
    fn remove(&self, stream: u32) {
        if let Some(entry) = self.0.lock().remove(&stream) {
            entry.state.send_replace(State::Reset);
        }
    }

    fn finish_local(&self, stream: u32) {
        self.finish(stream, |entry| entry.is_local_open = false);
    }

    fn finish_remote(&self, stream: u32) {
        self.finish(stream, |entry| entry.pieces = None);
    }

    fn finish(&self, stream: u32, change: impl FnOnce(&mut Entry)) {
        let mut entries = self.0.lock();
        let Some(entry) = entries.get_mut(&stream) else { return };
        change(entry);
        if entry.pieces.is_none() && !entry.is_local_open {
            entry.state.send_replace(State::Finished);
            entries.remove(&stream);
        }
    }
}

/// Speaks SPDY on `io` as its server while `work` runs, which gets the streams as the client opens them. When `work`
/// ends, what it sent is delivered and the connection closed; when the client leaves first, `work` is dropped and
/// there is no result.
///
/// # Errors
/// As [`SpdyError`].
pub async fn serve<IO, F, T>(
    io: IO,
    work: impl FnOnce(mpsc::Receiver<Stream>) -> F,
) -> Result<Option<T>, SpdyError>
where
    IO: AsyncRead + AsyncWrite,
    F: Future<Output = T>,
{
    let (reader, writer) = tokio::io::split(io);
    let (accept, accepted) = mpsc::channel(ACCEPT_MAX);
    let (frames, outgoing) = mpsc::channel(FRAMES_MAX);
    let (end, ended) = watch::channel(false);
    let mut incoming = Incoming {
        reader,
        table: Arc::default(),
        frames,
        accept,
        last_stream: 0,
        decoder: Decoder::default(),
    };
    let sending = send(writer, outgoing, ended);
    let work = work(accepted);
    tokio::pin!(sending, work);
    let value = {
        let receiving = incoming.receive();
        tokio::pin!(receiving);
        tokio::select! {
            value = &mut work => value,
            received = &mut receiving => return received.map(|()| None),
            sent = &mut sending => return sent.map(|()| None),
        }
    };
    end.send_replace(true);
    sending.await?;
    // Hanging up with unread bytes would make TCP throw away what the client has not read yet.
    match tokio::time::timeout(LINGER, incoming.drain()).await {
        Ok(drained) => drained.map(|()| Some(value)),
        Err(_) => Ok(Some(value)),
    }
}

struct Incoming<R> {
    reader: R,
    table: Arc<Table>,
    frames: mpsc::Sender<Frame>,
    accept: mpsc::Sender<Stream>,
    last_stream: u32,
    decoder: Decoder,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    /// Handles frames until the client hangs up.
    async fn receive(&mut self) -> Result<(), SpdyError> {
        loop {
            while let Some(frame) = self.decoder.next()? {
                self.take(frame).await;
            }
            if read(&mut self.reader, self.decoder.buffer()).await? == 0 {
                return Ok(());
            }
        }
    }

    /// Throws away everything until the client hangs up.
    async fn drain(&mut self) -> Result<(), SpdyError> {
        self.table.0.lock().clear();
        let mut buffer = BytesMut::new();
        while read(&mut self.reader, &mut buffer).await? > 0 {
            buffer.clear();
        }
        Ok(())
    }

    async fn take(&mut self, frame: Frame) {
        match frame {
            Frame::SynStream { stream, fin, headers } => self.open(stream, fin, headers).await,
            Frame::Data { stream, fin, bytes } => self.content(stream, fin, bytes).await,
            Frame::Reset { stream, .. } => self.table.remove(stream),
            Frame::Headers { stream, fin: true, .. } => self.table.finish_remote(stream),
            // The client's pings have odd numbers; others would be answers to ours, and we ask nothing.
            Frame::Ping(id) if id % 2 == 1 => self.send(Frame::Ping(id)).await,
            Frame::SynReply { .. }
            | Frame::Headers { .. }
            | Frame::Ping(_)
            | Frame::Settings
            | Frame::GoAway { .. }
            | Frame::WindowUpdate { .. } => {}
        }
    }

    async fn open(&mut self, id: u32, fin: bool, headers: Headers) {
        if id.is_multiple_of(2) || id <= self.last_stream {
            return self.send(Frame::Reset { stream: id, status: reset::PROTOCOL_ERROR }).await;
        }
        self.last_stream = id;
        if self.table.0.lock().len() >= STREAMS_MAX {
            return self.send(Frame::Reset { stream: id, status: reset::REFUSED_STREAM }).await;
        }
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        let (changes, state) = watch::channel(State::Open);
        let entry = Entry { pieces: (!fin).then_some(sender), is_local_open: true, state: changes };
        self.table.0.lock().insert(id, entry);
        self.send(Frame::SynReply { stream: id, fin: false, headers: Headers::new() }).await;
        let reader = StreamReader { pieces, state: state.clone() };
        let writer = StreamWriter { id, frames: self.frames.clone(), table: Arc::clone(&self.table), state };
        if self.accept.send(Stream { id, headers, reader, writer }).await.is_err() {
            self.table.remove(id);
            self.send(Frame::Reset { stream: id, status: reset::REFUSED_STREAM }).await;
        }
    }

    async fn content(&mut self, stream: u32, fin: bool, bytes: Bytes) {
        let pieces = self.table.0.lock().get(&stream).and_then(|entry| entry.pieces.clone());
        if let Some(pieces) = pieces
            && !bytes.is_empty()
        {
            // An error says that nobody reads this half any more; what comes on it is nobody's.
            pieces.send(bytes).await.unwrap_or(());
        }
        if fin {
            self.table.finish_remote(stream);
        }
    }

    /// Queues a frame. That there is no queue means that the connection ends, which is noticed elsewhere.
    async fn send(&mut self, frame: Frame) {
        self.frames.send(frame).await.unwrap_or(());
    }
}

impl<R> Drop for Incoming<R> {
    fn drop(&mut self) {
        for (_, entry) in self.table.0.lock().drain() {
            entry.state.send_replace(State::Reset);
        }
    }
}

async fn read(reader: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) -> Result<usize, SpdyError> {
    buffer.reserve(READ_BYTES);
    let mut limited = bytes::BufMut::limit(buffer, READ_BYTES);
    Ok(reader.read_buf(&mut limited).await?)
}

/// Writes what is queued; after the end, what is still queued, and a farewell.
async fn send(
    mut writer: impl AsyncWrite + Unpin,
    mut frames: mpsc::Receiver<Frame>,
    mut ended: watch::Receiver<bool>,
) -> Result<(), SpdyError> {
    let mut encoder = Encoder::default();
    let mut out = BytesMut::new();
    loop {
        let is_over = tokio::select! {
            biased;
            Some(frame) = frames.recv() => {
                encoder.encode(&frame, &mut out)?;
                false
            }
            _ = ended.wait_for(|ended| *ended) => true,
        };
        while out.len() < DATA_BYTES_MAX
            && let Ok(frame) = frames.try_recv()
        {
            encoder.encode(&frame, &mut out)?;
        }
        if is_over {
            encoder.encode(&Frame::GoAway { last_stream: 0, status: 0 }, &mut out)?;
        }
        writer.write_all(&out).await?;
        writer.flush().await?;
        out.clear();
        if is_over {
            return Ok(writer.shutdown().await?);
        }
    }
}

#[cfg(test)]
mod tests;
