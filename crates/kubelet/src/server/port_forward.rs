//! `/portForward`: a client's connections carried to ports of a Pod.
//!
//! SPDY carries any number of them, each a pair of streams ([`pairs`]), on a connection of its own or inside WebSocket
//! messages; the older WebSocket form has two channels per port of the query ([`channels`]).
//! Source: KEP-4006; `portforward` of upstream's kubelet.

mod channels;
mod pairs;

use std::sync::Arc;
use std::time::Duration;

use cri::{CriError, NoExitCode, RuntimeService, Streams, v1};
use futures::future::BoxFuture;
use futures::{SinkExt, StreamExt, TryStreamExt, future};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::io::{CopyToBytes, SinkWriter, StreamReader};

use super::query::Query;
use super::streams::{self, idle};
use super::upgrade::{Protocols, Transport, Upgrade};
use super::{Body, Refusal, Server};
use crate::pod::labels;

/// SPDY's frames inside binary WebSocket messages.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

pub(super) const PROTOCOLS: Protocols = Protocols {
    websocket: &[TUNNEL, "v4.channel.k8s.io", "v4.base64.channel.k8s.io"],
    spdy: &["portforward.k8s.io"],
};

/// Carries a client's connections until it leaves.
pub(super) async fn port_forward(
    server: &Arc<Server>,
    namespace: &str,
    pod: &str,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let upgrade = Upgrade::of(request.headers(), &PROTOCOLS)?;
    let ports = ports(&upgrade, request.uri().query())?;
    let sandbox = sandbox(server, namespace, pod).await?;
    let (response, client) = (upgrade.response(), hyper::upgrade::on(&mut request));
    let (runtime, idle_timeout) = (server.context.runtime.clone(), server.idle_timeout());
    server.context.tasks.spawn("port forward", async move {
        carry(idle_timeout, client, &upgrade, ports, &Target { runtime, sandbox }).await;
    });
    Ok(response)
}

/// The older WebSocket form names its ports beforehand.
pub(super) fn ports(upgrade: &Upgrade, query: Option<&str>) -> Result<Vec<u16>, Refusal> {
    match upgrade.transport {
        Transport::WebSocket if upgrade.protocol != TUNNEL => channels::ports(&Query::of(query)),
        _ => Ok(Vec::new()),
    }
}

/// Carries a client's connections to a sandbox until it leaves.
pub(super) async fn carry(
    idle_timeout: Duration,
    client: OnUpgrade,
    upgrade: &Upgrade,
    ports: Vec<u16>,
    target: &Target,
) {
    let is_tunnel = upgrade.protocol == TUNNEL;
    let Some(io) = switched(client).await else { return };
    let (mut io, silence) = idle::watched(io, idle_timeout);
    let conversation = async {
        match upgrade.transport {
            Transport::Spdy => pairs::serve(&mut io, target).await.err().map(|e| e.to_string()),
            Transport::WebSocket if is_tunnel => {
                let tunnel = tunnel(WebSocketStream::from_raw_socket(&mut io, Role::Server, None).await);
                pairs::serve(tunnel, target).await.err().map(|e| e.to_string())
            }
            Transport::WebSocket => {
                let socket = WebSocketStream::from_raw_socket(&mut io, Role::Server, None).await;
                let carried = channels::serve(socket, upgrade.protocol, &ports, target).await;
                carried.err().map(|e| e.to_string())
            }
        }
    };
    let left = tokio::select! {
        left = conversation => left,
        () = silence => Some("nobody had spoken for too long".to_owned()),
    };
    streams::hang_up(io, left).await;
}

async fn switched(client: OnUpgrade) -> Option<TokioIo<Upgraded>> {
    let upgraded =
        client.await.inspect_err(|error| tracing::debug!(%error, "a client did not switch protocols"));
    upgraded.ok().map(TokioIo::new)
}

/// The content of binary messages as one stream of bytes.
fn tunnel<S>(socket: WebSocketStream<S>) -> impl AsyncRead + AsyncWrite + Unpin
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (sink, source) = socket.split();
    let pieces = source.map_err(std::io::Error::other).try_filter_map(|message| {
        future::ready(Ok(match message {
            Message::Binary(bytes) => Some(bytes),
            _ => None,
        }))
    });
    let messages = sink
        .sink_map_err(std::io::Error::other)
        .with(|bytes| future::ready(Ok::<_, std::io::Error>(Message::Binary(bytes))));
    tokio::io::join(StreamReader::new(pieces), SinkWriter::new(CopyToBytes::new(messages)))
}

/// There is no connection: what the client is told.
#[derive(Debug, thiserror::Error)]
#[error("error forwarding port {port} to pod {sandbox}, uid : {why}")]
struct NotDialled {
    port: u16,
    sandbox: String,
    why: Refused,
}

/// The runtime's answer.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the runtime gave no connection")]
    Nothing,
    #[error(transparent)]
    Runtime(#[from] CriError),
}

/// Where connections go.
pub(super) struct Target {
    pub(super) runtime: Arc<dyn RuntimeService>,
    pub(super) sandbox: String,
}

impl Target {
    /// Connects to a port of the Pod.
    async fn dial(&self, port: u16) -> Result<Connection, NotDialled> {
        let request =
            v1::PortForwardRequest { pod_sandbox_id: self.sandbox.clone(), port: vec![port.into()] };
        let refused = |why| NotDialled { port, sandbox: self.sandbox.clone(), why };
        match self.runtime.port_forward(request).await {
            Ok(Streams { stdin: Some(writer), stdout: Some(reader), exit, .. }) => {
                Ok(Connection { reader, writer, exit })
            }
            Ok(_) => Err(refused(Refused::Nothing)),
            Err(error) => Err(refused(error.into())),
        }
    }
}

/// A connection to a port of the Pod.
struct Connection {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Why there was none after all, if the runtime could say so only later.
    exit: BoxFuture<'static, Result<i32, NoExitCode>>,
}

/// The id of the Pod's running sandbox.
async fn sandbox(server: &Server, namespace: &str, name: &str) -> Result<String, Refusal> {
    let pod = server.pod(namespace, name)?;
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let filter = v1::PodSandboxFilter {
        state: Some(v1::PodSandboxStateValue { state: v1::PodSandboxState::SandboxReady.into() }),
        label_selector: [(labels::POD_UID.to_owned(), uid)].into(),
        ..v1::PodSandboxFilter::default()
    };
    let request = v1::ListPodSandboxRequest { filter: Some(filter) };
    let listed = server.context.runtime.list_pod_sandbox(request).await;
    let mut items = listed.map_err(|e| Refusal::internal(e.to_string()))?.items;
    items.sort_by_key(|item| std::cmp::Reverse(item.created_at));
    let found = items.into_iter().next().map(|item| item.id);
    found.ok_or_else(|| Refusal::bad_request(format!("pod {name}_{namespace} is not running")))
}
