//! Connections over WebSocket channels: port number i of the query has channel 2i for data and 2i+1 for errors.
//!
//! Each channel opens with its port as two bytes, the low one first. There is no half close: the connection to a
//! client ends when every port has ended, or when the client leaves.

use bytes::Bytes;
use futures::stream::FuturesUnordered;
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::{Connection, Target};
use crate::server::Refusal;
use crate::server::query::Query;
use crate::server::streams::websocket::{Framing, close};

/// Ports in one request: channels are numbered by a byte.
const PORTS_MAX: usize = 100;
/// Messages that wait for a slow client.
const MESSAGES_MAX: usize = 16;
/// Pieces that wait for a slow port.
const PIECES_MAX: usize = 4;
/// Bytes that are passed on at a time.
const CHUNK: usize = 32 * 1024;

/// The ports of the query, `ports=80,81` or `port=80&port=81`.
///
/// # Errors
/// 400 for none, too many, and what is no port.
pub(super) fn ports(query: &Query) -> Result<Vec<u16>, Refusal> {
    let texts: Vec<String> = query.all("port").into_iter().chain(query.all("ports")).collect();
    let mut ports = Vec::new();
    for text in texts.iter().flat_map(|text| text.split(',')) {
        let port = text.parse::<u16>().map_err(|_| {
            Refusal::bad_request(format!("unable to parse \"ports\" as a port: invalid port {text:?}"))
        })?;
        if port == 0 {
            return Err(Refusal::bad_request(format!("port {text:?} must be > 0")));
        }
        ports.push(port);
    }
    if ports.is_empty() {
        return Err(Refusal::bad_request("query parameter \"port\" is required"));
    }
    if ports.len() > PORTS_MAX {
        return Err(Refusal::bad_request(format!("at most {PORTS_MAX} ports may be forwarded at once")));
    }
    Ok(ports)
}

/// Connects every port and carries bytes until all have ended or the client leaves.
pub(super) async fn serve<S>(
    socket: WebSocketStream<S>,
    protocol: &'static str,
    ports: &[u16],
    target: &Target,
) -> Result<(), Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let framing = Framing::of(protocol);
    let (mut sink, mut source) = socket.split();
    let (messages, mut outgoing) = mpsc::channel(MESSAGES_MAX);
    let running = FuturesUnordered::new();
    let mut inputs = Vec::new();
    for (data, port) in (0u8..).step_by(2).zip(ports) {
        for channel in [data, data + 1] {
            sink.send(framing.message(channel, &port.to_le_bytes())).await?;
        }
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        inputs.push(sender);
        let channel = Channel { framing, data, messages: messages.clone() };
        running.push(carry(channel, pieces, *port, target));
    }
    drop(messages);
    let feeding = async {
        while let Some(message) = source.next().await {
            let message = message?;
            if matches!(message, Message::Close(_)) {
                break;
            }
            let Some((channel, content)) = framing.content(message) else { continue };
            let input = inputs.get(usize::from(channel) / 2).filter(|_| channel % 2 == 0);
            if let Some(input) = input {
                // An error says that the port has ended; its other direction is told in its own time.
                input.send(content).await.unwrap_or(());
            }
        }
        Ok::<_, Error>(())
    };
    let sending = async {
        // The queue ends with the ports.
        while let Some(message) = outgoing.recv().await {
            sink.send(message).await?;
        }
        Ok::<_, Error>(())
    };
    tokio::select! {
        (sent, ()) = async { futures::join!(sending, running.collect::<()>()) } => sent?,
        left = feeding => return left,
    }
    close(sink, source).await
}

/// The two channels of a port.
struct Channel {
    framing: Framing,
    data: u8,
    messages: mpsc::Sender<Message>,
}

async fn carry(channel: Channel, mut pieces: mpsc::Receiver<Bytes>, port: u16, target: &Target) {
    let Channel { framing, data, messages } = channel;
    let connection = match target.dial(port).await {
        Ok(connection) => connection,
        Err(error) => {
            let text = framing.message(data + 1, error.to_string().as_bytes());
            // An error says that the client has left.
            return messages.send(text).await.unwrap_or(());
        }
    };
    let Connection { mut reader, mut writer, .. } = connection;
    let up = async {
        while let Some(bytes) = pieces.recv().await {
            if writer.write_all(&bytes).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let down = async {
        let mut buffer = vec![0; CHUNK];
        while let Ok(count @ 1..) = reader.read(&mut buffer).await {
            if messages.send(framing.message(data, &buffer[..count])).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, expect: Result<&[u16], &str>) {
        let got = ports(&Query::of(Some(query)));
        assert_eq!(got.as_deref().map_err(|Refusal(_, text)| text.as_str()), expect);
    }

    #[test]
    fn ports_come_in_either_form() {
        check("ports=80,81", Ok(&[80, 81]));
        check("port=80&port=81", Ok(&[80, 81]));
        check("", Err("query parameter \"port\" is required"));
        check("ports=0", Err("port \"0\" must be > 0"));
        check("ports=x", Err("unable to parse \"ports\" as a port: invalid port \"x\""));
        check("ports=65536", Err("unable to parse \"ports\" as a port: invalid port \"65536\""));
    }

    /// Source: `TestServePortForward`, `TestPortForwardPortsOption` of upstream's kubelet and `apiserver`'s `portforward`.
    #[test]
    fn every_port_is_one() {
        check("port=80", Ok(&[80]));
        check("ports=1&ports=65535&port=2", Ok(&[2, 1, 65535]));
        check("ports=80%2C81", Ok(&[80, 81]));
        check("ports=80,80", Ok(&[80, 80]));
        check("ports=", Err("unable to parse \"ports\" as a port: invalid port \"\""));
        check("ports=80,", Err("unable to parse \"ports\" as a port: invalid port \"\""));
        check("ports=-1", Err("unable to parse \"ports\" as a port: invalid port \"-1\""));
        check("ports=80%2081", Err("unable to parse \"ports\" as a port: invalid port \"80 81\""));
        check("ports=0x50", Err("unable to parse \"ports\" as a port: invalid port \"0x50\""));
        check("PORT=80", Err("query parameter \"port\" is required"));
        let many = |count: usize| format!("ports={}", vec!["1"; count].join(","));
        check(&many(PORTS_MAX), Ok(&[1; PORTS_MAX]));
        check(&many(PORTS_MAX + 1), Err("at most 100 ports may be forwarded at once"));
    }
}
