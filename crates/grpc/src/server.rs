//! Who answers.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::MESSAGE_BYTES_MAX;

/// Connections to one server at the same time.
const CONNECTIONS_MAX: usize = 256;
/// How long an accept waits after a failure: others must close their descriptors first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A call as it arrives.
pub type Asked = hyper::Request<Incoming>;
/// What goes back.
pub type Answer = http::Response<Body>;

/// Answers calls by their path, such as `/csi.v1.Node/NodeGetInfo`.
pub trait Router: Send + Sync + 'static {
    /// Answers one call; [`unknown`] what it does not have.
    fn answer(&self, path: &str, request: Asked) -> BoxFuture<'static, Answer>;
}

/// Answers until the tasks end. `what` names the server in the log.
pub async fn serve(listener: UnixListener, what: &'static str, router: Arc<dyn Router>, tasks: Tasks) {
    let limit = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = limit.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, what, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let router = router.clone();
        tasks.spawn("grpc connection", async move {
            let answering = service_fn(move |request: Asked| {
                let path = request.uri().path().to_owned();
                let answer = router.answer(&path, request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new());
            if let Err(error) = builder.serve_connection(TokioIo::new(stream), answering).await {
                tracing::debug!(%error, what, "a connection ended");
            }
            drop(permit);
        });
    }
}

/// What is said of a call that nobody has.
pub fn unknown(path: &str) -> BoxFuture<'static, Answer> {
    std::future::ready(Status::unimplemented(format!("unknown method {path}")).into_http()).boxed()
}

/// One request, one response. A call goes on when its client has left: what it began must not be left half done.
pub fn unary<Q, A, E>(
    request: Asked,
    method: impl FnOnce(Q) -> BoxFuture<'static, Result<A, E>> + Send + 'static,
) -> BoxFuture<'static, Answer>
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
    E: Into<Status> + Send + 'static,
{
    struct Once<F>(Option<F>);
    impl<Q, A, E, F> UnaryService<Q> for Once<F>
    where
        F: FnOnce(Q) -> BoxFuture<'static, Result<A, E>>,
        A: Send + 'static,
        E: Into<Status> + Send + 'static,
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
                done.map(Response::new).map_err(Into::into)
            })
        }
    }
    let mut grpc = Grpc::new(ProstCodec::<A, Q>::default())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    async move { grpc.unary(Once(Some(method)), request).await }.boxed()
}
