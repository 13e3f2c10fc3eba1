//! The streaming server of a CRI socket: exec, attach and port-forward at URLs that the runtime's calls answer with.
//!
//! On loopback only, and a URL is good for one connection within a minute: its token is the permission. The
//! conversations are the kubelet's own. Source: `k8s.io/kubelet/pkg/cri/streaming`.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base::{Clock, Random, Tasks};
use cri::{CriError, CriResult, RuntimeService, Streams, v1};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::streams::{self, Ending, Wishes};
use super::upgrade::Upgrade;
use super::{Body, Refusal, port_forward, text};

/// How long a URL may wait, as upstream.
const TOKEN_LIFETIME: SignedDuration = SignedDuration::from_secs(60);
/// URLs that may wait at the same time, as upstream.
const TOKENS_MAX: usize = 1000;
/// Connections at the same time.
const CONNECTIONS_MAX: usize = 1024;
/// As upstream's.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4 * 3600);

/// What a URL leads to.
enum Call {
    Exec(v1::ExecRequest),
    Attach(v1::AttachRequest),
    PortForward(v1::PortForwardRequest),
}

/// See the file's head. Cloning shares it.
#[derive(Clone)]
pub struct StreamingServer(Arc<Inner>);

struct Inner {
    runtime: Arc<dyn RuntimeService>,
    address: SocketAddr,
    waiting: Mutex<BTreeMap<String, (Timestamp, Call)>>,
    tasks: Tasks,
    clock: Clock,
    random: Random,
}

impl StreamingServer {
    /// Listens on a free port of the loopback address and serves until the tasks end.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn start(
        runtime: Arc<dyn RuntimeService>,
        tasks: &Tasks,
        clock: Clock,
        random: Random,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, waiting) = (listener.local_addr()?, Mutex::default());
        let server = Self(Arc::new(Inner { runtime, address, waiting, tasks: tasks.clone(), clock, random }));
        tasks.spawn("cri streaming server", server.clone().serve(listener));
        Ok(server)
    }

    async fn serve(self, listener: TcpListener) {
        let limit = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(permit) = limit.clone().acquire_owned().await else { return };
            let (stream, _) = base::listen::accepted("CRI streaming server", || listener.accept()).await;
            let server = self.clone();
            self.0.tasks.spawn("cri streaming connection", async move {
                server.connection(stream).await;
                drop(permit);
            });
        }
    }

    async fn connection(self, stream: TcpStream) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection to the streaming server is slow");
        }
        let service = service_fn(move |request| {
            let answer = self.route(request);
            let answer = answer.unwrap_or_else(|Refusal(code, message)| text(code, message));
            async move { Ok::<_, Infallible>(answer) }
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(TokioTimer::new());
        let served = builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
        if let Err(error) = served {
            tracing::debug!(%error, "a connection to the streaming server ended");
        }
    }

    /// A URL for one connection.
    fn url(&self, kind: &str, request: Call) -> CriResult<String> {
        let Inner { waiting, clock, random, address, .. } = &*self.0;
        let (token, now) = (random.uuid(), clock.now());
        let mut waiting = waiting.lock();
        waiting.retain(|_, (until, _)| *until > now);
        if waiting.len() >= TOKENS_MAX {
            return Err(CriError::Internal("maximum number of in-flight requests exceeded".into()));
        }
        let until = now.saturating_add(TOKEN_LIFETIME).unwrap_or(Timestamp::MAX);
        waiting.insert(token.clone(), (until, request));
        Ok(format!("http://{address}/{kind}/{token}"))
    }

    fn route(&self, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let not_found = || Refusal::not_found("404 page not found");
        let path = request.uri().path().to_owned();
        let (kind, token) = path.trim_start_matches('/').split_once('/').ok_or_else(not_found)?;
        let now = self.0.clock.now();
        let found = self.0.waiting.lock().remove(token);
        let runtime = self.0.runtime.clone();
        match (kind, found.filter(|(until, _)| *until > now)) {
            ("exec", Some((_, Call::Exec(call)))) => {
                let v1::ExecRequest { stdin, stdout, stderr, tty, .. } = call;
                let start = async move { runtime.exec(call).await };
                self.converse(request, Wishes { stdin, stdout, stderr, tty }, start, Ending::ExitCode)
            }
            ("attach", Some((_, Call::Attach(call)))) => {
                let v1::AttachRequest { stdin, stdout, stderr, tty, .. } = call;
                let start = async move { runtime.attach(call).await };
                self.converse(request, Wishes { stdin, stdout, stderr, tty }, start, Ending::Success)
            }
            ("portforward", Some((_, Call::PortForward(call)))) => self.port_forward(call, request),
            _ => Err(not_found()),
        }
    }

    /// Connects the client to what `start` starts.
    fn converse(
        &self,
        mut request: Request<Incoming>,
        wishes: Wishes,
        start: impl Future<Output = CriResult<Streams>> + Send + 'static,
        ending: Ending,
    ) -> Result<Response<Body>, Refusal> {
        let upgrade = Upgrade::of(request.headers(), &streams::PROTOCOLS)?;
        let (response, client) = (upgrade.response(), hyper::upgrade::on(&mut request));
        let wishes = Wishes { stderr: wishes.stderr && !wishes.tty, ..wishes };
        self.0.tasks.spawn("cri stream", async move {
            streams::connect(IDLE_TIMEOUT, client, &upgrade, wishes, start, ending).await;
        });
        Ok(response)
    }

    fn port_forward(
        &self,
        call: v1::PortForwardRequest,
        mut request: Request<Incoming>,
    ) -> Result<Response<Body>, Refusal> {
        let upgrade = Upgrade::of(request.headers(), &port_forward::PROTOCOLS)?;
        let ports = port_forward::ports(&upgrade, request.uri().query())?;
        let (response, client) = (upgrade.response(), hyper::upgrade::on(&mut request));
        let target = port_forward::Target { runtime: self.0.runtime.clone(), sandbox: call.pod_sandbox_id };
        self.0.tasks.spawn("cri port forward", async move {
            port_forward::carry(IDLE_TIMEOUT, client, &upgrade, ports, &target).await;
        });
        Ok(response)
    }
}

#[async_trait::async_trait]
impl cri::server::Streaming for StreamingServer {
    async fn exec(&self, request: v1::ExecRequest) -> CriResult<String> {
        wanted(request.stdin || request.stdout || request.stderr)?;
        self.running(&request.container_id).await?;
        self.url("exec", Call::Exec(request))
    }

    async fn attach(&self, request: v1::AttachRequest) -> CriResult<String> {
        wanted(request.stdin || request.stdout || request.stderr)?;
        self.running(&request.container_id).await?;
        self.url("attach", Call::Attach(request))
    }

    async fn port_forward(&self, request: v1::PortForwardRequest) -> CriResult<String> {
        let pod_sandbox_id = request.pod_sandbox_id.clone();
        let status = v1::PodSandboxStatusRequest { pod_sandbox_id, verbose: false };
        let status = self.0.runtime.pod_sandbox_status(status).await?.status.unwrap_or_default();
        if status.state() != v1::PodSandboxState::SandboxReady {
            let id = &request.pod_sandbox_id;
            return Err(CriError::FailedPrecondition(format!("sandbox container {id:?} is not running")));
        }
        self.url("portforward", Call::PortForward(request))
    }
}

fn wanted(is_any: bool) -> CriResult<()> {
    if is_any {
        return Ok(());
    }
    Err(CriError::InvalidArgument("one of `stdin`, `stdout`, or `stderr` must be set".into()))
}

impl StreamingServer {
    async fn running(&self, id: &str) -> CriResult<()> {
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let status = self.0.runtime.container_status(request).await?.status.unwrap_or_default();
        if status.state() == v1::ContainerState::ContainerRunning {
            return Ok(());
        }
        let state = status.state().as_str_name();
        Err(CriError::FailedPrecondition(format!("container is in {state} state")))
    }
}
