//! Connections over SPDY: for each, the client opens an error and a data stream with the same `requestID`.
//!
//! A connection is over when the Pod has sent everything or the client resets the data stream; then both streams are
//! ended, which is what clients wait for. The client's end of sending is passed on and ends nothing else.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use spdy::{SpdyError, Stream, StreamReader, StreamReset, StreamWriter};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};

use super::{Connection, Target};

/// How long a client may take to open the second stream, as upstream.
const CREATION_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes that are passed on at a time.
const CHUNK: usize = 32 * 1024;

/// Carries connections until the client leaves.
pub(super) async fn serve(io: impl AsyncRead + AsyncWrite, target: &Target) -> Result<(), SpdyError> {
    spdy::serve(io, |streams| carry_all(streams, target)).await.map(|_| ())
}

async fn carry_all(mut streams: mpsc::Receiver<Stream>, target: &Target) {
    let mut waiting: HashMap<String, oneshot::Sender<Stream>> = HashMap::new();
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(()) = running.next(), if !running.is_empty() => {}
            stream = streams.recv() => {
                let Some(stream) = stream else { return };
                waiting.retain(|_, other| !other.is_closed());
                match waiting.remove(&request_id(&stream)) {
                    Some(other) => {
                        if other.send(stream).is_err() {
                            tracing::debug!("a port-forward stream came too late");
                        }
                    }
                    None => {
                        let (sender, receiver) = oneshot::channel();
                        waiting.insert(request_id(&stream), sender);
                        running.push(request(stream, receiver, target));
                    }
                }
            }
        }
    }
}

/// Clients older than request ids open the error stream and then the data stream, with numbers two apart.
fn request_id(stream: &Stream) -> String {
    match (stream.header("requestid"), is_error(stream)) {
        (Some(id), _) if !id.is_empty() => id.to_owned(),
        (_, true) => stream.id.to_string(),
        (_, false) => stream.id.wrapping_sub(2).to_string(),
    }
}

fn is_error(stream: &Stream) -> bool {
    stream.header("streamtype") == Some("error")
}

/// Waits for the second stream and carries the connection.
async fn request(first: Stream, second: oneshot::Receiver<Stream>, target: &Target) {
    let port = first.header("port").and_then(|port| port.parse().ok()).filter(|port| *port > 0);
    let second = tokio::time::timeout(CREATION_TIMEOUT, second).await;
    let ended = match (second, port) {
        (Ok(Ok(second)), Some(port)) if is_error(&first) != is_error(&second) => {
            let (error, data) = if is_error(&first) { (first, second) } else { (second, first) };
            carry(data, error.writer, port, target).await
        }
        (Ok(Ok(second)), _) => {
            let first = first.writer.reset().await;
            first.and(second.writer.reset().await)
        }
        _ => first.writer.reset().await,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a forwarded connection ended early");
    }
}

async fn carry(data: Stream, error: StreamWriter, port: u16, target: &Target) -> Result<(), StreamReset> {
    let Stream { reader, writer, .. } = data;
    match target.dial(port).await {
        Err(refused) => error.send(Bytes::from(refused.to_string())).await?,
        Ok(connection) => {
            let Connection { reader: from_pod, writer: to_pod, exit } = connection;
            tokio::select! {
                () = copy(reader, &writer, from_pod, to_pod) => {}
                () = writer.closed() => {}
            }
            if let Some(Err(why)) = exit.now_or_never() {
                error.send(Bytes::from(why.to_string())).await?;
            }
        }
    }
    // The data stream may be reset already; the error stream's end is what the client waits for in any case.
    let data = writer.finish().await;
    error.finish().await.and(data)
}

/// Copies in both directions until the Pod has sent everything.
async fn copy(
    mut reader: StreamReader,
    writer: &StreamWriter,
    mut from_pod: impl AsyncRead + Unpin,
    mut to_pod: impl AsyncWrite + Unpin,
) {
    let up = async {
        while let Ok(Some(bytes)) = reader.next().await {
            if to_pod.write_all(&bytes).await.is_err() {
                break;
            }
        }
        if let Err(error) = to_pod.shutdown().await {
            tracing::debug!(%error, "a port was closed already");
        }
        std::future::pending::<()>().await;
    };
    let down = async {
        let mut buffer = vec![0; CHUNK];
        while let Ok(count @ 1..) = from_pod.read(&mut buffer).await {
            if writer.send(Bytes::copy_from_slice(&buffer[..count])).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}
