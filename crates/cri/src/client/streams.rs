//! Exec, attach and port-forward with a runtime that answers with a URL: SPDY/3.1 to it, as upstream's clients.
//!
//! One task per connection; it ends with the connection, or when nobody holds the streams any more. Over SPDY and not
//! over WebSocket, because there the end of stdin can be said to every version.
//! Source: `k8s.io/client-go/tools/remotecommand` v4, `tools/portforward`.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base::Tasks;
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use spdy::{Decoder, Encoder, Frame, Headers, SpdyError};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{CriError, CriResult, NoExitCode, Streams, v1};

const STREAM_PROTOCOL: &str = "x-stream-protocol-version";
/// How long a runtime may take to answer the upgrade.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes that wait in each direction of a stream.
const PIPE_BYTES: usize = 64 << 10;
/// Bytes that are passed on at a time.
const CHUNK: usize = 32 << 10;
/// Frames that wait to be sent.
const FRAMES_MAX: usize = 16;
/// Terminal sizes that may wait.
const SIZES_MAX: usize = 8;
/// Most bytes of a result, or of why there is none.
const RESULT_BYTES_MAX: usize = 64 << 10;

/// Which streams are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wishes {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

impl Wishes {
    pub(super) fn of_exec(request: &v1::ExecRequest) -> Self {
        let stderr = request.stderr && !request.tty;
        Self { stdin: request.stdin, stdout: request.stdout, stderr, tty: request.tty }
    }

    pub(super) fn of_attach(request: &v1::AttachRequest) -> Self {
        let stderr = request.stderr && !request.tty;
        Self { stdin: request.stdin, stdout: request.stdout, stderr, tty: request.tty }
    }
}

/// Connects to a command, or to a container's first process.
pub(super) async fn command(url: &str, wishes: Wishes, tasks: &Tasks) -> CriResult<Streams> {
    let io = upgrade(url, "v4.channel.k8s.io", tasks).await?;
    let mut made = Conversation::default();
    let (result, exit) = oneshot::channel();
    made.lane("error", &[], Lane::Result(Vec::new(), Some(result)));
    let stdin = wishes.stdin.then(|| made.input("stdin", &[]));
    let mut output = |name, is_wanted: bool| is_wanted.then(|| made.output(name, &[]));
    let (stdout, stderr) = (output("stdout", wishes.stdout), output("stderr", wishes.stderr));
    let resize = wishes.tty.then(|| made.sizes());
    let (token, guard) = guard();
    tasks.spawn("runtime stream", made.run(io, token));
    let held = guard.clone();
    Ok(Streams {
        stdin: stdin.map(|stdin| Box::new(stdin) as _),
        stdout: stdout.map(|inner| Box::new(Held { inner, _guard: guard.clone() }) as _),
        stderr: stderr.map(|inner| Box::new(Held { inner, _guard: guard }) as _),
        resize,
        exit: async move {
            let _held = held;
            exit.await.unwrap_or(Err(NoExitCode::Disconnected))
        }
        .boxed(),
    })
}

/// Connects to a port of a sandbox.
pub(super) async fn port(url: &str, port: i32, tasks: &Tasks) -> CriResult<Streams> {
    let io = upgrade(url, "portforward.k8s.io", tasks).await?;
    let mut made = Conversation::default();
    let port = port.to_string();
    let headers = [("port", port.as_str()), ("requestid", "0")];
    let (complaint, exit) = oneshot::channel();
    made.ends_with = Some(made.lane("error", &headers, Lane::Complaint(Vec::new(), Some(complaint))));
    let (stdin, stdout) = made.both("data", &headers);
    let (token, guard) = guard();
    tasks.spawn("runtime port", made.run(io, token));
    Ok(Streams {
        stdin: Some(Box::new(stdin)),
        stdout: Some(Box::new(Held { inner: stdout, _guard: guard })),
        stderr: None,
        resize: None,
        exit: async move {
            match exit.await {
                Ok(text) => Err(NoExitCode::Told(text)),
                Err(_) => std::future::pending().await,
            }
        }
        .boxed(),
    })
}

/// Asks the URL's server to go on in SPDY.
async fn upgrade(url: &str, protocol: &str, tasks: &Tasks) -> CriResult<TokioIo<Upgraded>> {
    let failed = |doing: &str, error: &dyn std::fmt::Display| {
        CriError::Internal(format!("{doing} the container runtime's streaming server: {error}"))
    };
    let uri: Uri = url.parse().map_err(|error| failed("understand the URL of", &error))?;
    let (Some("http"), Some(host)) = (uri.scheme_str(), uri.host()) else {
        return Err(failed("connect to", &format!("{url:?} must be an http URL")));
    };
    let address = (host.trim_matches(['[', ']']), uri.port_u16().unwrap_or(80));
    let asking = async {
        let stream = TcpStream::connect(address).await.map_err(|error| failed("connect to", &error))?;
        stream.set_nodelay(true).map_err(|error| failed("connect to", &error))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::post(path)
            .header(header::HOST, uri.authority().map_or(host, |authority| authority.as_str()))
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "SPDY/3.1")
            .header(STREAM_PROTOCOL, protocol)
            .body(Empty::<Bytes>::new())
            .map_err(|error| failed("ask", &error))?;
        let response = http1::send(stream, request, tasks, "container runtime's streaming server").await;
        let response = response.map_err(|error| failed("ask", &error))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let code = response.status();
            let text = Limited::new(response.into_body(), RESULT_BYTES_MAX).collect().await;
            let text = text.map(|body| body.to_bytes()).unwrap_or_default();
            return Err(failed("upgrade", &format!("{code}: {}", String::from_utf8_lossy(&text))));
        }
        hyper::upgrade::on(response).await.map(TokioIo::new).map_err(|error| failed("upgrade", &error))
    };
    let expired = |_| Err(failed("ask", &"it does not answer"));
    tokio::time::timeout(UPGRADE_TIMEOUT, asking).await.unwrap_or_else(expired)
}

/// Cancelled when the last guard is dropped.
fn guard() -> (CancellationToken, Arc<DropGuard>) {
    let token = CancellationToken::new();
    (token.clone(), Arc::new(token.drop_guard()))
}

/// An output; the connection ends when nobody holds one any more.
struct Held {
    inner: DuplexStream,
    _guard: Arc<DropGuard>,
}

impl AsyncRead for Held {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

/// Where what comes on a stream goes.
enum Lane {
    /// Nowhere.
    Unread,
    /// `None` once it has ended, or nobody reads.
    Output(Option<DuplexStream>),
    /// A `Status`, whole.
    Result(Vec<u8>, Option<oneshot::Sender<Result<i32, NoExitCode>>>),
    /// A text for people; nothing if all is well.
    Complaint(Vec<u8>, Option<oneshot::Sender<String>>),
}

/// What is said on a connection.
#[derive(Default)]
struct Conversation {
    opening: Vec<Frame>,
    lanes: BTreeMap<u32, Lane>,
    inputs: Vec<(u32, DuplexStream)>,
    sizes: Option<(u32, mpsc::Receiver<(u16, u16)>)>,
    /// The stream whose end is the connection's: until then no other ends, so that whoever sees an end can ask why.
    ends_with: Option<u32>,
}

impl Conversation {
    /// Opens a stream.
    fn lane(&mut self, kind: &str, headers: &[(&str, &str)], lane: Lane) -> u32 {
        let stream = u32::try_from(self.opening.len()).unwrap_or_default() * 2 + 1;
        let named = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let headers: Headers = [("streamtype", kind)].iter().chain(headers).map(named).collect();
        self.opening.push(Frame::SynStream { stream, fin: false, headers });
        self.lanes.insert(stream, lane);
        stream
    }

    fn input(&mut self, kind: &str, headers: &[(&str, &str)]) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let stream = self.lane(kind, headers, Lane::Unread);
        self.inputs.push((stream, ours));
        theirs
    }

    fn output(&mut self, kind: &str, headers: &[(&str, &str)]) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        self.lane(kind, headers, Lane::Output(Some(ours)));
        theirs
    }

    /// A stream that is written and read.
    fn both(&mut self, kind: &str, headers: &[(&str, &str)]) -> (DuplexStream, DuplexStream) {
        let (ours, input) = tokio::io::duplex(PIPE_BYTES);
        let (lane, output) = tokio::io::duplex(PIPE_BYTES);
        let stream = self.lane(kind, headers, Lane::Output(Some(lane)));
        self.inputs.push((stream, ours));
        (input, output)
    }

    fn sizes(&mut self) -> mpsc::Sender<(u16, u16)> {
        let (sender, receiver) = mpsc::channel(SIZES_MAX);
        let stream = self.lane("resize", &[], Lane::Unread);
        self.sizes = Some((stream, receiver));
        sender
    }

    /// Carries everything until the connection ends or nobody cares any more.
    async fn run(self, io: TokioIo<Upgraded>, unheld: CancellationToken) {
        let Self { opening, mut lanes, inputs, sizes, ends_with } = self;
        let (reader, writer) = tokio::io::split(io);
        let (frames, outgoing) = mpsc::channel(FRAMES_MAX);
        let feeding = async {
            let inputs = inputs.into_iter().map(|(stream, input)| feed(stream, input, &frames));
            futures::future::join(futures::future::join_all(inputs), measure(sizes, &frames)).await;
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            received = receive(reader, &mut lanes, ends_with, &frames) => received,
            sent = send(writer, opening, outgoing) => sent,
            () = feeding => Ok(()),
            () = unheld.cancelled() => Ok(()),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a stream of the container runtime broke");
        }
        // In their order: results come before the ends of outputs.
        for (_, lane) in lanes {
            end(lane);
        }
    }
}

/// Passes an input on, with its end.
async fn feed(stream: u32, mut input: DuplexStream, frames: &mpsc::Sender<Frame>) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = input.read(&mut buffer).await.unwrap_or_default();
        let bytes = Bytes::copy_from_slice(buffer.get(..count).unwrap_or_default());
        if frames.send(Frame::Data { stream, fin: count == 0, bytes }).await.is_err() || count == 0 {
            return;
        }
    }
}

/// Passes terminal sizes on.
async fn measure(sizes: Option<(u32, mpsc::Receiver<(u16, u16)>)>, frames: &mpsc::Sender<Frame>) {
    let Some((stream, mut sizes)) = sizes else { return };
    while let Some((columns, rows)) = sizes.recv().await {
        let bytes = Bytes::from(format!("{{\"Width\":{columns},\"Height\":{rows}}}\n"));
        if frames.send(Frame::Data { stream, fin: false, bytes }).await.is_err() {
            return;
        }
    }
}

async fn send(
    mut writer: impl AsyncWrite + Unpin,
    opening: Vec<Frame>,
    mut frames: mpsc::Receiver<Frame>,
) -> Result<(), SpdyError> {
    let (mut encoder, mut out) = (Encoder::default(), BytesMut::new());
    for frame in &opening {
        encoder.encode(frame, &mut out)?;
    }
    loop {
        writer.write_all(&out).await?;
        writer.flush().await?;
        out.clear();
        let Some(frame) = frames.recv().await else { return Ok(()) };
        encoder.encode(&frame, &mut out)?;
    }
}

/// Takes frames until the server leaves or everything has been said.
async fn receive(
    mut reader: impl AsyncRead + Unpin,
    lanes: &mut BTreeMap<u32, Lane>,
    ends_with: Option<u32>,
    frames: &mpsc::Sender<Frame>,
) -> Result<(), SpdyError> {
    let mut decoder = Decoder::default();
    loop {
        while let Some(frame) = decoder.next()? {
            let (stream, fin) = match frame {
                Frame::Data { stream, fin, bytes } => {
                    if let Some(lane) = lanes.get_mut(&stream) {
                        take(lane, &bytes).await;
                    }
                    (stream, fin)
                }
                Frame::SynReply { stream, fin, .. } | Frame::Headers { stream, fin, .. } => (stream, fin),
                Frame::Reset { stream, .. } => (stream, true),
                // The server's pings have even numbers.
                Frame::Ping(id) if id % 2 == 0 => {
                    frames.send(Frame::Ping(id)).await.unwrap_or(());
                    continue;
                }
                Frame::GoAway { .. } => return Ok(()),
                Frame::SynStream { .. } | Frame::Ping(_) | Frame::Settings | Frame::WindowUpdate { .. } => {
                    continue;
                }
            };
            if fin && ends_with == Some(stream) {
                return Ok(());
            }
            if fin
                && ends_with.is_none()
                && let Some(lane) = lanes.insert(stream, Lane::Unread)
            {
                end(lane);
            }
        }
        decoder.buffer().reserve(CHUNK);
        if reader.read_buf(decoder.buffer()).await? == 0 {
            return Ok(());
        }
    }
}

async fn take(lane: &mut Lane, bytes: &[u8]) {
    match lane {
        Lane::Unread => {}
        Lane::Output(output) => {
            if let Some(open) = output
                && open.write_all(bytes).await.is_err()
            {
                *output = None;
            }
        }
        Lane::Result(text, _) | Lane::Complaint(text, _) => {
            let room = RESULT_BYTES_MAX.saturating_sub(text.len());
            text.extend_from_slice(bytes.get(..bytes.len().min(room)).unwrap_or_default());
        }
    }
}

/// Nothing more comes on a stream.
fn end(lane: Lane) {
    match lane {
        Lane::Result(text, Some(sender)) => sender.send(exit_code(&text)).unwrap_or(()),
        Lane::Complaint(text, Some(sender)) if !text.is_empty() => {
            sender.send(String::from_utf8_lossy(&text).into_owned()).unwrap_or(());
        }
        // Dropping an output ends it.
        Lane::Output(_) | Lane::Unread | Lane::Result(..) | Lane::Complaint(..) => {}
    }
}

/// The exit code that a `Status` tells, or why there is none.
fn exit_code(text: &[u8]) -> Result<i32, NoExitCode> {
    let status: Value = serde_json::from_slice(text).map_err(|_| NoExitCode::Unreported)?;
    if status["status"] == "Success" {
        return Ok(0);
    }
    let causes = status["details"]["causes"].as_array();
    let code = causes.into_iter().flatten().find(|cause| cause["reason"] == "ExitCode");
    let code = code.and_then(|cause| cause["message"].as_str()).and_then(|code| code.parse().ok());
    let message = status["message"].as_str().unwrap_or("the command failed");
    let told = || message.strip_prefix(crate::EXEC_FAILED).unwrap_or(message).to_owned();
    code.ok_or_else(|| NoExitCode::Told(told()))
}

#[cfg(test)]
mod tests;
