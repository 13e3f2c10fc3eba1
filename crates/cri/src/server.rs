//! A runtime on a unix socket: CRI v1 over gRPC, for `crictl` and any kubelet.
//!
//! Only the socket's owner may connect: whoever reaches a container runtime is root on its host. Exec, attach and
//! port-forward answer with URLs, which [`Streaming`] hands out; this file knows nothing of who serves them.

use std::convert::Infallible;
use std::future::Ready;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base::Tasks;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryFutureExt};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tonic::body::Body;
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::calls::{image_calls, runtime_calls};
use crate::status::MESSAGE_BYTES_MAX;
use crate::{CriResult, ImageService, RuntimeService, v1};

/// Connections at the same time.
const CONNECTIONS_MAX: usize = 256;
/// How long an accept waits after a failure: others must close their descriptors first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who makes the URLs that exec, attach and port-forward answer with. Each is good for one connection, soon.
#[async_trait]
pub trait Streaming: Send + Sync + 'static {
    /// Where a client runs the command.
    ///
    /// # Errors
    /// The container does not run, or too many URLs wait.
    async fn exec(&self, request: v1::ExecRequest) -> CriResult<String>;
    /// Where a client meets the container's first process.
    ///
    /// # Errors
    /// As [`Streaming::exec`].
    async fn attach(&self, request: v1::AttachRequest) -> CriResult<String>;
    /// Where a client reaches the sandbox's ports.
    ///
    /// # Errors
    /// As [`Streaming::exec`].
    async fn port_forward(&self, request: v1::PortForwardRequest) -> CriResult<String>;
}

/// What is served.
#[derive(Clone)]
pub struct Services {
    /// The runtime.
    pub runtime: Arc<dyn RuntimeService>,
    /// Its images.
    pub images: Arc<dyn ImageService>,
    /// Its URLs.
    pub streaming: Arc<dyn Streaming>,
}

/// Listens at `path` with mode 0600; what a dead server has left there is replaced. The folder is made if it is not
/// there, for its owner alone: there is no moment at which somebody else could connect.
///
/// # Errors
/// The folder or the socket cannot be made.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent()
        && !folder.exists()
    {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Answers until the tasks end.
pub async fn serve(listener: UnixListener, services: Services, tasks: Tasks) {
    let limit = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = limit.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection to the container runtime was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let services = services.clone();
        tasks.spawn("cri connection", async move {
            let answering = service_fn(move |request| {
                let services = services.clone();
                async move { Ok::<_, Infallible>(services.answer(request).await) }
            });
            let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new());
            if let Err(error) = builder.serve_connection(TokioIo::new(stream), answering).await {
                tracing::debug!(%error, "a connection to the container runtime ended");
            }
            drop(permit);
        });
    }
}

type Asked = hyper::Request<Incoming>;
type Answer = http::Response<Body>;

macro_rules! runtime_answers {
    ($($name:literal $method:ident $request:ident $response:ident $limit:ident;)*) => {
        fn runtime_answer(self, call: &str, request: Asked) -> BoxFuture<'static, Answer> {
            let Self { runtime, streaming, .. } = self;
            match call {
                $($name => {
                    let method = move |asked| async move { runtime.$method(asked).await }.boxed();
                    unary::<v1::$request, v1::$response>(request, method)
                })*
                "Exec" => {
                    let url = move |asked| async move { streaming.exec(asked).await };
                    unary(request, |asked| url(asked).map_ok(|url| v1::ExecResponse { url }).boxed())
                }
                "Attach" => {
                    let url = move |asked| async move { streaming.attach(asked).await };
                    unary(request, |asked| url(asked).map_ok(|url| v1::AttachResponse { url }).boxed())
                }
                "PortForward" => {
                    let url = move |asked| async move { streaming.port_forward(asked).await };
                    unary(request, |asked| url(asked).map_ok(|url| v1::PortForwardResponse { url }).boxed())
                }
                "GetContainerEvents" => events(runtime, request).boxed(),
                _ => unknown(call).boxed(),
            }
        }
    };
}

macro_rules! image_answers {
    ($($name:literal $method:ident $request:ident $response:ident $limit:ident;)*) => {
        fn image_answer(self, call: &str, request: Asked) -> BoxFuture<'static, Answer> {
            let images = self.images;
            match call {
                $($name => {
                    let method = move |asked| async move { images.$method(asked).await }.boxed();
                    unary::<v1::$request, v1::$response>(request, method)
                })*
                _ => unknown(call).boxed(),
            }
        }
    };
}

impl Services {
    fn answer(self, request: Asked) -> BoxFuture<'static, Answer> {
        let path = request.uri().path().to_owned();
        if let Some(call) = path.strip_prefix("/runtime.v1.RuntimeService/") {
            return self.runtime_answer(call, request);
        }
        if let Some(call) = path.strip_prefix("/runtime.v1.ImageService/") {
            return self.image_answer(call, request);
        }
        unknown(&path).boxed()
    }

    runtime_calls!(runtime_answers);
    image_calls!(image_answers);
}

fn unknown(call: &str) -> Ready<Answer> {
    std::future::ready(Status::unimplemented(format!("unknown method {call}")).into_http())
}

/// One request, one response. A call goes on when its client has left: what it began must not be left half done.
fn unary<Q, A>(
    request: Asked,
    method: impl FnOnce(Q) -> BoxFuture<'static, CriResult<A>> + Send + 'static,
) -> BoxFuture<'static, Answer>
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
{
    struct Once<F>(Option<F>);
    impl<Q, A, F> UnaryService<Q> for Once<F>
    where
        F: FnOnce(Q) -> BoxFuture<'static, CriResult<A>>,
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
    let codec = ProstCodec::<A, Q>::default();
    let mut grpc = Grpc::new(codec)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    async move { grpc.unary(Once(Some(method)), request).await }.boxed()
}

async fn events(runtime: Arc<dyn RuntimeService>, request: Asked) -> Answer {
    struct Events(Arc<dyn RuntimeService>);
    type Stream = BoxStream<'static, Result<v1::ContainerEventResponse, Status>>;
    impl ServerStreamingService<v1::GetEventsRequest> for Events {
        type Response = v1::ContainerEventResponse;
        type ResponseStream = Stream;
        type Future = BoxFuture<'static, Result<Response<Stream>, Status>>;

        fn call(&mut self, request: Request<v1::GetEventsRequest>) -> Self::Future {
            let runtime = self.0.clone();
            Box::pin(async move {
                let events = runtime.get_container_events(request.into_inner()).await?;
                Ok(Response::new(events.map(|event| event.map_err(Status::from)).boxed()))
            })
        }
    }
    let codec = ProstCodec::<v1::ContainerEventResponse, v1::GetEventsRequest>::default();
    Grpc::new(codec).server_streaming(Events(runtime), request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_for_its_owner_alone_and_replaces_a_dead_servers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/cri.sock");
        drop(bind(&path).unwrap());
        let _listener = bind(&path).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }
}
