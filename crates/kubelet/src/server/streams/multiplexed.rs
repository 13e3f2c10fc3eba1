//! The conversation over SPDY: a stream for each of stdin, stdout, stderr, the result and terminal sizes, named by the
//! header `streamType`. Source: `remotecommand/httpstream.go` of upstream.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use cri::{CriResult, Streams};
use serde_json::Value;
use spdy::{Stream, StreamReader, StreamWriter};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use super::ending::{self, Ending};
use super::websocket::{terminal_size, write};
use super::{CHUNK, Wishes, read};

/// How long a client may take to open its streams, as upstream.
const CREATION_TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of a terminal size.
const SIZE_BYTES_MAX: usize = 1024;

/// Connects a client to what `start` starts; ends when that ends.
pub(super) async fn converse(
    mut streams: mpsc::Receiver<Stream>,
    protocol: &'static str,
    wishes: Wishes,
    start: impl Future<Output = CriResult<Streams>>,
    ending: Ending,
) {
    let opened = tokio::time::timeout(CREATION_TIMEOUT, opened(&mut streams, protocol, wishes)).await;
    let Ok(mut opened) = opened else {
        tracing::debug!("timed out waiting for client to create streams");
        return;
    };
    let result = match start.await {
        Err(error) => ending::internal_error(&error.to_string()),
        Ok(Streams { stdin, stdout, stderr, resize, exit }) => {
            let mut take = |name: &str| opened.remove(name);
            let (input, sizes) = (take("stdin").map(|s| s.reader), take("resize").map(|s| s.reader));
            let (output, errors) = (take("stdout").map(|s| s.writer), take("stderr").map(|s| s.writer));
            let finished = async {
                futures::future::join(pump(stdout, output), pump(stderr, errors)).await;
                ending::result(ending, exit).await
            };
            tokio::select! {
                result = finished => result,
                (never, _) = futures::future::join(feed(input, stdin), measure(sizes, resize)) => match never {},
            }
        }
    };
    if let Some(stream) = opened.remove("error") {
        let text = ending::render(&result, protocol);
        let told = match stream.writer.send(Bytes::from(text)).await {
            Ok(()) => stream.writer.finish().await,
            failed => failed,
        };
        if let Err(error) = told {
            tracing::debug!(%error, "a client did not wait for the result");
        }
    }
}

/// Every stream that the client's wishes need, by `streamType`.
async fn opened(
    streams: &mut mpsc::Receiver<Stream>,
    protocol: &str,
    wishes: Wishes,
) -> HashMap<String, Stream> {
    let has_sizes = matches!(protocol, "v4.channel.k8s.io" | "v3.channel.k8s.io");
    let wanted = [
        ("error", true),
        ("stdin", wishes.stdin),
        ("stdout", wishes.stdout),
        ("stderr", wishes.stderr),
        ("resize", wishes.tty && has_sizes),
    ];
    let mut opened = HashMap::new();
    while !wanted.iter().all(|(name, is_wanted)| !is_wanted || opened.contains_key(*name)) {
        // The end of this queue is the client's leaving, which ends the conversation from outside.
        let Some(stream) = streams.recv().await else { break };
        let name = stream.header("streamtype").unwrap_or_default().to_owned();
        opened.insert(name, stream);
    }
    opened
}

/// Sends all of an output.
async fn pump(output: Option<Box<dyn AsyncRead + Send + Unpin>>, writer: Option<StreamWriter>) {
    let (Some(mut output), Some(writer)) = (output, writer) else { return };
    let mut buffer = vec![0; CHUNK];
    while let Some(count) = read(&mut output, &mut buffer).await {
        if writer.send(Bytes::copy_from_slice(&buffer[..count])).await.is_err() {
            return;
        }
    }
    if let Err(error) = writer.finish().await {
        tracing::debug!(%error, "an output's end was not wanted");
    }
}

/// Passes stdin on; never ends, because the process's end is what matters.
async fn feed(
    reader: Option<StreamReader>,
    stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
) -> std::convert::Infallible {
    if let (Some(mut reader), Some(mut stdin)) = (reader, stdin) {
        while let Ok(Some(bytes)) = reader.next().await {
            if write(&mut stdin, &bytes).await.is_err() {
                break;
            }
        }
        if let Err(error) = stdin.shutdown().await {
            tracing::debug!(%error, "stdin was closed already");
        }
    }
    std::future::pending().await
}

/// Passes terminal sizes on: JSON documents one after the other.
async fn measure(
    reader: Option<StreamReader>,
    resize: Option<mpsc::Sender<(u16, u16)>>,
) -> std::convert::Infallible {
    if let (Some(mut reader), Some(resize)) = (reader, resize) {
        let mut pending = Vec::new();
        while let Ok(Some(bytes)) = reader.next().await {
            pending.extend_from_slice(&bytes);
            let mut documents = serde_json::Deserializer::from_slice(&pending).into_iter::<Value>();
            let sizes: Vec<_> = documents.by_ref().map_while(Result::ok).collect();
            let consumed = documents.byte_offset();
            pending.drain(..consumed);
            for size in sizes.iter().filter_map(terminal_size) {
                if resize.send(size).await.is_err() {
                    tracing::debug!("a terminal size came after the terminal's end");
                }
            }
            if pending.len() > SIZE_BYTES_MAX {
                break;
            }
        }
    }
    std::future::pending().await
}
