//! `/exec` and `/attach`: a client's terminal, or its pipes, connected to a process in a container.
//!
//! Over WebSocket ([`websocket`]) or SPDY ([`multiplexed`]); both end with a result ([`ending`]).
//! Source: KEP-4006 and `remotecommand` of upstream.

mod ending;
pub(super) mod idle;
mod multiplexed;
pub(super) mod websocket;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cri::{CriResult, Streams, v1};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::query::Query;
use super::upgrade::{Protocols, Transport, Upgrade};
use super::{Body, Refusal, Server};
use crate::pod::labels;

pub(super) use self::ending::Ending;

/// Bytes that are passed on at a time.
const CHUNK: usize = 32 * 1024;

pub(super) const PROTOCOLS: Protocols = Protocols {
    websocket: &[
        "v5.channel.k8s.io",
        "v4.channel.k8s.io",
        "v4.base64.channel.k8s.io",
        "channel.k8s.io",
        "base64.channel.k8s.io",
    ],
    spdy: &["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"],
};

/// Which streams a client wants. Source: `PodExecOptions`, core/v1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wishes {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

impl Wishes {
    /// Under the kubelet's names or the API's. A terminal has no stderr.
    fn of(query: &Query) -> Result<Self, Refusal> {
        let tty = query.flag("tty");
        let wishes = Self {
            stdin: query.flag("input") || query.flag("stdin"),
            stdout: query.flag("output") || query.flag("stdout"),
            stderr: !tty && (query.flag("error") || query.flag("stderr")),
            tty,
        };
        if wishes.stdin || wishes.stdout || wishes.stderr {
            return Ok(wishes);
        }
        Err(Refusal::bad_request("you must specify at least 1 of stdin, stdout, stderr"))
    }
}

/// Runs a command in a container and connects the client to it.
pub(super) async fn exec(
    server: &Arc<Server>,
    place: (&str, &str, &str),
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let upgrade = Upgrade::of(request.headers(), &PROTOCOLS)?;
    let query = Query::of(request.uri().query());
    let wishes = Wishes::of(&query)?;
    let Wishes { stdin, stdout, stderr, tty } = wishes;
    let container_id = running(server, place).await?;
    let call = v1::ExecRequest { container_id, cmd: query.all("command"), tty, stdin, stdout, stderr };
    if call.cmd.is_empty() {
        return Err(Refusal::bad_request("you must specify at least 1 command for the container"));
    }
    let (response, client) = (upgrade.response(), hyper::upgrade::on(&mut request));
    let server = server.clone();
    server.context.tasks.clone().spawn("exec", async move {
        let start = server.context.runtime.exec(call);
        connect(server.idle_timeout(), client, &upgrade, wishes, start, Ending::ExitCode).await;
    });
    Ok(response)
}

/// Connects the client to a container's first process.
pub(super) async fn attach(
    server: &Arc<Server>,
    place: (&str, &str, &str),
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let upgrade = Upgrade::of(request.headers(), &PROTOCOLS)?;
    let wishes = Wishes::of(&Query::of(request.uri().query()))?;
    let Wishes { stdin, stdout, stderr, tty } = wishes;
    let container_id = running(server, place).await?;
    let call = v1::AttachRequest { container_id, stdin, tty, stdout, stderr };
    let (response, client) = (upgrade.response(), hyper::upgrade::on(&mut request));
    let server = server.clone();
    server.context.tasks.clone().spawn("attach", async move {
        let start = server.context.runtime.attach(call);
        connect(server.idle_timeout(), client, &upgrade, wishes, start, Ending::Success).await;
    });
    Ok(response)
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

pub(super) async fn connect(
    idle_timeout: Duration,
    client: OnUpgrade,
    upgrade: &Upgrade,
    wishes: Wishes,
    start: impl Future<Output = CriResult<Streams>>,
    ending: Ending,
) {
    let io = match client.await {
        Ok(upgraded) => TokioIo::new(upgraded),
        Err(error) => {
            tracing::debug!(%error, "a client did not switch protocols");
            return;
        }
    };
    let (mut io, silence) = idle::watched(io, idle_timeout);
    let conversation = async {
        match upgrade.transport {
            Transport::WebSocket => {
                let framing = websocket::Framing::of(upgrade.protocol);
                let conversed = websocket::converse(&mut io, framing, wishes, start, ending).await;
                conversed.err().map(|e| e.to_string())
            }
            Transport::Spdy => {
                let work = |streams| multiplexed::converse(streams, upgrade.protocol, wishes, start, ending);
                spdy::serve(&mut io, work).await.err().map(|e| e.to_string())
            }
        }
    };
    let left = tokio::select! {
        left = conversation => left,
        () = silence => Some("nobody had spoken for too long".to_owned()),
    };
    hang_up(io, left).await;
}

/// Ends a connection in order: TLS says goodbye too, so that whoever reads on the other side sees an end and not a
/// break.
pub(super) async fn hang_up(mut io: impl AsyncWrite + Unpin, left: Option<String>) {
    if let Some(error) = left {
        tracing::debug!(error, "a client left");
    }
    match tokio::time::timeout(websocket::LINGER, io.shutdown()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a client had hung up"),
        Err(_) => tracing::debug!("a client does not read any more"),
    }
}

/// The next bytes of an output; `None` at its end, and also when it breaks.
async fn read(output: &mut (impl AsyncRead + Unpin), buffer: &mut [u8]) -> Option<usize> {
    output.read(buffer).await.ok().filter(|count| *count > 0)
}

#[cfg(test)]
mod tests;
