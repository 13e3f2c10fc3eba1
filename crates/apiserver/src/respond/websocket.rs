//! A watch over WebSocket: each event is a message, text for JSON and binary for protobuf. A log over WebSocket: its
//! bytes in messages, as they are or in base64.
//!
//! What the client sends is ignored; its goodbye ends the watch or the log.
//! Source: `WatchServer.HandleWS` of upstream, `wsstream.Reader`.

use base::Tasks;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes};
use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};
use tracing::debug;

use super::{Body, full};
use crate::status::Error;

/// `true` if a request wants to go on as WebSocket.
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
    let kind = response.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes().to_vec()).unwrap_or_default();
    let framing = if kind.ends_with(b"protobuf;stream=watch") { Framing::Lengths } else { Framing::Lines };
    switch(tasks, key, response.into_body(), framing, client)
}

/// Turns a log into messages, in the protocol that the client offers.
///
/// # Errors
/// 403 if it offers only others.
pub fn log(
    tasks: &Tasks,
    headers: &HeaderMap,
    body: Body,
    client: OnUpgrade,
) -> crate::status::Result<Response<Body>> {
    const PROTOCOLS: [(&str, Framing); 2] =
        [("binary.k8s.io", Framing::Binary), ("base64.binary.k8s.io", Framing::Base64)];
    let offered: Vec<&str> = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .collect();
    let known = |name: &str| PROTOCOLS.into_iter().find(|(known, _)| *known == name);
    let chosen = offered.iter().copied().find_map(known);
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY) else { return Err(Error::bad_request("no key")) };
    if chosen.is_none() && !offered.is_empty() {
        let supported = PROTOCOLS.map(|(name, _)| name).join(" ");
        return Err(Error::forbidden_path(&format!(
            "requested protocol(s) are not supported: [{}]; supports [{supported}]",
            offered.join(" ")
        )));
    }
    let framing = chosen.map_or(Framing::Binary, |(_, framing)| framing);
    let mut response = switch(tasks, key, body, framing, client);
    if let Some((name, _)) = chosen {
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name));
    }
    Ok(response)
}

fn switch(
    tasks: &Tasks,
    key: &HeaderValue,
    body: Body,
    framing: Framing,
    client: OnUpgrade,
) -> Response<Body> {
    let accept = derive_accept_key(key.as_bytes());
    tasks.spawn("answer over websocket", async move {
        let sent = match client.await {
            Ok(upgraded) => send(TokioIo::new(upgraded), body, framing).await.map_err(|e| e.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(failure) = sent {
            debug!(failure, "an answer over websocket ended");
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

/// How events stand in the body, of which a frame holds whole ones; or how bytes are sent.
#[derive(Clone, Copy, Debug)]
enum Framing {
    /// JSON, a line each.
    Lines,
    /// Protobuf, each after its length in four bytes.
    Lengths,
    /// Any bytes, as they are.
    Binary,
    /// Any bytes, as text in base64.
    Base64,
}

impl Framing {
    fn messages(self, mut frame: Bytes) -> Vec<Message> {
        let mut messages = Vec::new();
        match self {
            Self::Lines => {
                let lines = frame.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
                messages.extend(lines.map(|line| Message::text(String::from_utf8_lossy(line).into_owned())));
            }
            Self::Binary => messages.push(Message::Binary(frame)),
            Self::Base64 => messages.push(Message::text(STANDARD.encode(frame))),
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
) -> Result<(), SocketError> {
    let (mut sink, mut source) = WebSocketStream::from_raw_socket(io, Role::Server, None).await.split();
    let sending = async {
        if matches!(framing, Framing::Binary | Framing::Base64) {
            // An empty message says that the log follows, before it has anything.
            for message in framing.messages(Bytes::new()) {
                sink.send(message).await?;
            }
        }
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

    #[tokio::test]
    async fn a_log_begins_with_an_empty_message_and_follows_as_it_is_or_in_base64() {
        for (framing, expect) in [
            (
                Framing::Binary,
                [Message::Binary(Bytes::new()), Message::Binary(Bytes::from_static(b"a\n\xff"))],
            ),
            (Framing::Base64, [Message::text(""), Message::text("YQr/")]),
        ] {
            let (ours, theirs) = tokio::io::duplex(1024);
            let body = full(Bytes::from_static(b"a\n\xff"));
            let client = WebSocketStream::from_raw_socket(theirs, Role::Client, None).await;
            // The client leaves at the end of the log, which may be before its goodbye is answered.
            let (_, got) = tokio::join!(send(ours, body, framing), client.collect::<Vec<_>>());
            let got: Vec<Message> =
                got.into_iter().map_while(Result::ok).filter(|one| !one.is_close()).collect();
            assert_eq!(got, expect);
        }
    }

    #[test]
    fn every_event_is_a_message() {
        let json = Framing::Lines.messages(Bytes::from_static(b"{\"a\":1}\n{\"b\":2}\n"));
        assert_eq!(json, [Message::text("{\"a\":1}"), Message::text("{\"b\":2}")]);
        let protobuf = Framing::Lengths.messages(Bytes::from_static(b"\0\0\0\x02ab\0\0\0\x01c"));
        let binary = |bytes: &'static [u8]| Message::Binary(Bytes::from_static(bytes));
        assert_eq!(protobuf, [binary(b"ab"), binary(b"c")]);
    }
}
