//! A watch over WebSocket: each event is a message, text for JSON and binary for protobuf.
//!
//! What the client sends is ignored; its goodbye ends the watch.
//! Source: `WatchServer.HandleWS` of upstream.

use base::Tasks;
use bytes::{Buf, Bytes};
use futures::{SinkExt, StreamExt};
use http::header::{CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error, Message};
use tracing::debug;

use super::{Body, full};

/// Whether a request wants to go on as WebSocket.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    headers.contains_key(SEC_WEBSOCKET_KEY)
        && headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Turns a watch's response into messages; what is no success stays as it is.
pub fn switched(
    tasks: &Tasks,
    headers: &HeaderMap,
    response: Response<Body>,
    client: OnUpgrade,
) -> Response<Body> {
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY).filter(|_| response.status().is_success()) else {
        return response;
    };
    let accept = derive_accept_key(key.as_bytes());
    let kind = response.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes().to_vec()).unwrap_or_default();
    let framing = if kind.ends_with(b"protobuf;stream=watch") { Framing::Lengths } else { Framing::Lines };
    let body = response.into_body();
    tasks.spawn("watch over websocket", async move {
        let sent = match client.await {
            Ok(upgraded) => send(TokioIo::new(upgraded), body, framing).await.map_err(|e| e.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(failure) = sent {
            debug!(failure, "a watch over websocket ended");
        }
    });
    let mut switched = Response::new(full(Bytes::new()));
    *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = switched.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&accept) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    switched
}

/// How events stand in the body; a frame of it holds whole ones.
#[derive(Clone, Copy, Debug)]
enum Framing {
    /// JSON, a line each.
    Lines,
    /// Protobuf, each after its length in four bytes.
    Lengths,
}

impl Framing {
    fn messages(self, mut frame: Bytes) -> Vec<Message> {
        let mut messages = Vec::new();
        match self {
            Self::Lines => {
                let lines = frame.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                messages.extend(lines.map(|line| Message::text(String::from_utf8_lossy(line).into_owned())));
            }
            Self::Lengths => {
                while let Ok(length) = frame.try_get_u32() {
                    let length = usize::try_from(length).unwrap_or(usize::MAX).min(frame.len());
                    messages.push(Message::Binary(frame.split_to(length)));
                }
            }
        }
        messages
    }
}

async fn send(
    io: impl AsyncRead + AsyncWrite + Unpin,
    mut body: Body,
    framing: Framing,
) -> Result<(), Error> {
    let (mut sink, mut source) = WebSocketStream::from_raw_socket(io, Role::Server, None).await.split();
    let sending = async {
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            for message in framing.messages(data) {
                sink.feed(message).await?;
            }
            sink.flush().await?;
        }
        sink.close().await
    };
    let leaving = async {
        while let Some(Ok(message)) = source.next().await {
            if matches!(message, Message::Close(_)) {
                break;
            }
        }
    };
    tokio::select! {
        sent = sending => sent,
        () = leaving => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_a_message() {
        let json = Framing::Lines.messages(Bytes::from_static(b"{\"a\":1}\n{\"b\":2}\n"));
        assert_eq!(json, [Message::text("{\"a\":1}"), Message::text("{\"b\":2}")]);
        let protobuf = Framing::Lengths.messages(Bytes::from_static(b"\0\0\0\x02ab\0\0\0\x01c"));
        let binary = |bytes: &'static [u8]| Message::Binary(Bytes::from_static(bytes));
        assert_eq!(protobuf, [binary(b"ab"), binary(b"c")]);
    }
}
