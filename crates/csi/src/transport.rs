//! gRPC over a unix socket: both ends of one call, and the path tricks that sockets need.
//!
//! A socket's path may have 107 bytes only, data directories may be long: a longer one is reached through its folder's
//! descriptor.

use std::convert::Infallible;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tonic::body::Body;
use tonic::client::Grpc as ClientGrpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::server::{Grpc as ServerGrpc, UnaryService};
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// Connections at the same time.
const CONNECTIONS_MAX: usize = 64;
/// How long an accept waits after a failure: others must close their descriptors first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The longest path of a socket, less its terminating zero.
const PATH_BYTES_MAX: usize = 107;

pub(crate) type Asked = hyper::Request<Incoming>;
pub(crate) type Answer = http::Response<Body>;

/// Answers calls by their path, such as `/csi.v1.Node/NodeGetInfo`.
pub(crate) trait Router: Send + Sync + 'static {
    fn answer(&self, path: &str, request: Asked) -> BoxFuture<'static, Answer>;
}

/// Runs `work` with a path to the same place that is short enough for a socket.
fn with_short<T>(path: &Path, work: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return work(path) };
    if path.as_os_str().len() <= PATH_BYTES_MAX {
        return work(path);
    }
    let folder = std::fs::File::open(folder)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
    work(&short)
}

/// Listens at `path` with mode 0600; what a dead server has left there is replaced.
pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o750).create(folder)?;
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = with_short(path, |short| UnixListener::bind(short))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// A channel to the server at `socket`, which is connected to when something is called, and again when it was lost.
pub(crate) fn channel(socket: &Path) -> Channel {
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move {
            let stream = with_short(&socket, |short| {
                let stream = std::os::unix::net::UnixStream::connect(short)?;
                stream.set_nonblocking(true)?;
                UnixStream::from_std(stream)
            })?;
            Ok::<_, io::Error>(TokioIo::new(stream))
        }
    });
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
}

/// One call from the client's side.
pub(crate) async fn call<Q, A>(
    channel: &Channel,
    path: &'static str,
    request: Q,
    limit: Duration,
) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let answer = async {
        let mut grpc = ClientGrpc::new(channel.clone());
        grpc.ready().await.map_err(|failure| Status::unavailable(chain(&failure)))?;
        let codec = ProstCodec::<Q, A>::default();
        grpc.unary(Request::new(request), PathAndQuery::from_static(path), codec).await
    };
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => Ok(answer?.into_inner()),
        Err(_) => Err(Status::deadline_exceeded("context deadline exceeded")),
    }
}

/// A failure with its causes: the first names no socket.
fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |error| error.source())
        .fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Answers until the tasks end.
pub(crate) async fn serve(listener: UnixListener, router: Arc<dyn Router>, tasks: Tasks) {
    let limit = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = limit.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection to a plugin was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let router = router.clone();
        tasks.spawn("csi connection", async move {
            let answering = service_fn(move |request: Asked| {
                let path = request.uri().path().to_owned();
                let answer = router.answer(&path, request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new());
            if let Err(error) = builder.serve_connection(TokioIo::new(stream), answering).await {
                tracing::debug!(%error, "a connection to a plugin ended");
            }
            drop(permit);
        });
    }
}

/// What is said of a call that nobody has.
pub(crate) fn unknown(path: &str) -> BoxFuture<'static, Answer> {
    std::future::ready(Status::unimplemented(format!("unknown method {path}")).into_http()).boxed()
}

/// One request, one response. A call goes on when its client has left: what it began must not be left half done.
pub(crate) fn unary<Q, A>(
    request: Asked,
    method: impl FnOnce(Q) -> BoxFuture<'static, Result<A, Status>> + Send + 'static,
) -> BoxFuture<'static, Answer>
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
{
    struct Once<F>(Option<F>);
    impl<Q, A, F> UnaryService<Q> for Once<F>
    where
        F: FnOnce(Q) -> BoxFuture<'static, Result<A, Status>>,
        A: Send + 'static,
    {
        type Response = A;
        type Future = BoxFuture<'static, Result<Response<A>, Status>>;

        fn call(&mut self, request: Request<Q>) -> Self::Future {
            let Some(method) = self.0.take() else {
                return Box::pin(async { Err(Status::internal("a call was made twice")) });
            };
            let running = tokio::spawn(method(request.into_inner()));
            Box::pin(async move {
                let done = running.await.map_err(|error| Status::internal(error.to_string()))?;
                Ok(Response::new(done?))
            })
        }
    }
    let mut grpc = ServerGrpc::new(ProstCodec::<A, Q>::default());
    async move { grpc.unary(Once(Some(method)), request).await }.boxed()
}
