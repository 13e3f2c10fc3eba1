//! `/exec` and `/attach` over WebSocket.
//!
//! Channels 0 to 4 are stdin, stdout, stderr, the result and terminal sizes; in `v5.channel.k8s.io`, channel
//! 255 closes another one. From v4 on the result is a `Status` as JSON, before that a text.
//! Source: KEP-4006 and `remotecommand/websocket.go` of upstream.

use std::sync::Arc;

use cri::{Streams, v1};
use futures::{SinkExt, StreamExt};
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, frame::coding::CloseCode};
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::query::Query;
use super::{Body, Refusal, Server, full};
use crate::labels;

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const RESULT: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// Frames that wait for a slow client.
const QUEUE: usize = 16;
/// Bytes in one frame.
const CHUNK: usize = 32 * 1024;
/// What is spoken, the best first; the empty one is what clients without a subprotocol get.
const PROTOCOLS: [&str; 3] = ["v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io"];

/// Runs a command in a container and connects the client to it.
pub(super) async fn exec(
    server: &Arc<Server>,
    place: (&str, &str, &str),
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let handshake = Handshake::of(&request)?;
    let query = Query::of(request.uri().query());
    let container_id = running(server, place).await?;
    let [stdin, stdout, stderr, tty] = wishes(&query);
    let call = v1::ExecRequest { container_id, cmd: query.all("command"), tty, stdin, stdout, stderr };
    if call.cmd.is_empty() {
        return Err(Refusal::bad_request("you must specify a command for the container"));
    }
    let upgrade = hyper::upgrade::on(&mut request);
    let protocol = handshake.protocol;
    let server = server.clone();
    server.context.tasks.clone().spawn("exec", async move {
        let streams = server.context.runtime.exec(call).await.map_err(|e| e.to_string());
        connect(upgrade, streams, protocol, Ending::ExitCode).await;
    });
    Ok(handshake.response())
}

/// Connects the client to a container's first process.
pub(super) async fn attach(
    server: &Arc<Server>,
    place: (&str, &str, &str),
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let handshake = Handshake::of(&request)?;
    let container_id = running(server, place).await?;
    let [stdin, stdout, stderr, tty] = wishes(&Query::of(request.uri().query()));
    let call = v1::AttachRequest { container_id, stdin, tty, stdout, stderr };
    let upgrade = hyper::upgrade::on(&mut request);
    let protocol = handshake.protocol;
    let server = server.clone();
    server.context.tasks.clone().spawn("attach", async move {
        let streams = server.context.runtime.attach(call).await.map_err(|e| e.to_string());
        connect(upgrade, streams, protocol, Ending::Success).await;
    });
    Ok(handshake.response())
}

/// stdin, stdout, stderr, tty: under the kubelet's names or the API's.
fn wishes(query: &Query) -> [bool; 4] {
    let tty = query.flag("tty");
    let stderr = !tty && (query.flag("error") || query.flag("stderr"));
    [query.flag("input") || query.flag("stdin"), query.flag("output") || query.flag("stdout"), stderr, tty]
}

/// The id of the running container at (namespace, pod, container).
async fn running(
    server: &Server,
    (namespace, name, container): (&str, &str, &str),
) -> Result<String, Refusal> {
    let pod = server.pod(namespace, name)?;
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let filter = v1::ContainerFilter {
        state: Some(v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() }),
        label_selector: [
            (labels::POD_UID.to_owned(), uid),
            (labels::CONTAINER_NAME.to_owned(), container.to_owned()),
        ]
        .into(),
        ..v1::ContainerFilter::default()
    };
    let request = v1::ListContainersRequest { filter: Some(filter) };
    let listed = server.context.runtime.list_containers(request).await;
    let found = listed.map_err(|e| Refusal::internal(e.to_string()))?.containers.into_iter().next();
    found.map(|c| c.id).ok_or_else(|| Refusal::not_found(format!("container not found (\"{container}\")")))
}

/// What the client asked for in its upgrade request.
struct Handshake {
    accept: String,
    protocol: Option<&'static str>,
}

impl Handshake {
    fn of(request: &Request<Incoming>) -> Result<Self, Refusal> {
        let header = |name: header::HeaderName| request.headers().get(name).and_then(|v| v.to_str().ok());
        let is_websocket = header(header::UPGRADE).is_some_and(|v| v.eq_ignore_ascii_case("websocket"));
        let key = header(header::SEC_WEBSOCKET_KEY).filter(|_| is_websocket);
        let key = key.ok_or_else(|| Refusal::bad_request("this needs a WebSocket upgrade"))?;
        let offers = request.headers().get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
        let offers: Vec<&str> =
            offers.filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(',')).map(str::trim).collect();
        let protocol = PROTOCOLS.into_iter().find(|p| offers.contains(p));
        if protocol.is_none() && !offers.is_empty() {
            let message = format!(
                "unable to negotiate protocol: client supports {offers:?}, server accepts {PROTOCOLS:?}"
            );
            return Err(Refusal(StatusCode::FORBIDDEN, message));
        }
        Ok(Self { accept: derive_accept_key(key.as_bytes()), protocol })
    }

    fn response(&self) -> Response<Body> {
        let mut response = Response::new(full(""));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        if let Ok(accept) = HeaderValue::from_str(&self.accept) {
            headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        }
        if let Some(protocol) = self.protocol {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
        }
        response
    }
}

/// What the client is told at the end.
#[derive(Clone, Copy)]
enum Ending {
    ExitCode,
    Success,
}

async fn connect(
    upgrade: OnUpgrade,
    streams: Result<Streams, String>,
    protocol: Option<&'static str>,
    ending: Ending,
) {
    let upgraded = match upgrade.await {
        Ok(upgraded) => TokioIo::new(upgraded),
        Err(error) => {
            tracing::debug!(%error, "a client did not switch to websocket");
            return;
        }
    };
    let socket = WebSocketStream::from_raw_socket(upgraded, Role::Server, None).await;
    let is_json = protocol.is_some_and(|p| p.starts_with('v'));
    if let Err(error) = converse(socket, streams, is_json, ending).await {
        tracing::debug!(%error, "a client left");
    }
}

type Failure = tokio_tungstenite::tungstenite::Error;

async fn converse<S>(
    socket: WebSocketStream<S>,
    streams: Result<Streams, String>,
    is_json: bool,
    ending: Ending,
) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sink, mut source) = socket.split();
    let result = match streams {
        Err(message) => internal_error(&message),
        Ok(streams) => {
            let Streams { mut stdin, stdout, stderr, mut resize, exit } = streams;
            let (frames, mut outgoing) = mpsc::channel::<Message>(QUEUE);
            // Tells the client that all is connected.
            sink.send(frame(STDOUT, &[])).await?;
            let outputs =
                futures::future::join(pump(STDOUT, stdout, frames.clone()), pump(STDERR, stderr, frames));
            let finished = async {
                outputs.await;
                match (ending, exit.await) {
                    (Ending::Success, _) | (_, Ok(0)) => json!({"metadata": {}, "status": "Success"}),
                    (Ending::ExitCode, Ok(code)) => exit_error(code),
                    (Ending::ExitCode, Err(_)) => internal_error("the command's end was not reported"),
                }
            };
            tokio::pin!(finished);
            let result = loop {
                tokio::select! {
                    biased;
                    Some(message) = outgoing.recv() => sink.send(message).await?,
                    result = &mut finished => break result,
                    message = source.next() => match message {
                        Some(Ok(Message::Binary(data))) => incoming(&data, &mut stdin, &mut resize).await,
                        Some(Ok(Message::Close(_))) | None => return Ok(()),
                        Some(Ok(_)) => {}
                        Some(Err(error)) => return Err(error),
                    },
                }
            };
            while let Ok(message) = outgoing.try_recv() {
                sink.send(message).await?;
            }
            result
        }
    };
    sink.send(frame(RESULT, render(&result, is_json).as_bytes())).await?;
    sink.send(Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))).await?;
    sink.close().await
}

fn frame(channel: u8, data: &[u8]) -> Message {
    let mut bytes = Vec::with_capacity(data.len() + 1);
    bytes.push(channel);
    bytes.extend_from_slice(data);
    Message::Binary(Bytes::from(bytes))
}

/// Sends all of an output as frames.
async fn pump(channel: u8, output: Option<Box<dyn AsyncRead + Send + Unpin>>, frames: mpsc::Sender<Message>) {
    let Some(mut output) = output else { return };
    let mut buffer = vec![0; CHUNK];
    while let Ok(count @ 1..) = output.read(&mut buffer).await {
        if frames.send(frame(channel, &buffer[..count])).await.is_err() {
            return;
        }
    }
}

type Stdin = Option<Box<dyn AsyncWrite + Send + Unpin>>;

/// Takes one frame from the client.
async fn incoming(data: &[u8], stdin: &mut Stdin, resize: &mut Option<mpsc::Sender<(u16, u16)>>) {
    let Some((channel, content)) = data.split_first() else { return };
    match (*channel, stdin.as_mut()) {
        (STDIN, Some(writer)) if !content.is_empty() => {
            let written = match writer.write_all(content).await {
                Ok(()) => writer.flush().await,
                failed => failed,
            };
            if written.is_err() {
                // The process does not read any more; its output and end still matter.
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
            let size: Value = serde_json::from_slice(content).unwrap_or_default();
            let side = |name: &str| size[name].as_u64().and_then(|n| u16::try_from(n).ok());
            if let (Some(width), Some(height), Some(resize)) = (side("Width"), side("Height"), resize)
                && resize.send((width, height)).await.is_err()
            {
                tracing::debug!("a terminal size came after the terminal's end");
            }
        }
        _ => {}
    }
}

fn exit_error(code: i32) -> Value {
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}

fn internal_error(message: &str) -> Value {
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("Internal error occurred: error executing command in container: {message}"),
        "reason": "InternalError",
        "details": {"causes": [{"message": format!("error executing command in container: {message}")}]},
        "code": 500,
    })
}

/// Before v4 a success is an empty text and a failure its message.
fn render(result: &Value, is_json: bool) -> String {
    match (is_json, result["message"].as_str()) {
        (true, _) => result.to_string(),
        (false, message) => message.unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests;
