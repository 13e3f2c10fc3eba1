//! The answering end.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use base::Tasks;
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore};
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::MESSAGE_BYTES_MAX;

/// Connections to one server at the same time.
const CONNECTIONS_MAX: usize = 1024;
/// Connections beyond these that are being told so.
const REFUSALS_MAX: usize = 64;
/// How long a client may take to leave that was told to.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A call as it arrives.
pub type Asked = hyper::Request<Incoming>;
/// An answer to a call.
pub type Answer = http::Response<Body>;

/// A router that answers calls by their path, such as `/csi.v1.Node/NodeGetInfo`.
pub trait Router: Send + Sync + 'static {
    /// Answers one call; [`unknown`] what it does not have.
    fn answer(&self, path: &str, request: Asked) -> BoxFuture<'static, Answer>;
}

/// Answers until the tasks end. `what` names the server in the log.
///
/// There is room for whoever comes: when there are too many connections, the one that has been idle for longest is closed
/// in good order, and its client makes another when it has something to ask. Where none is idle, the new one is told so.
pub async fn serve(listener: UnixListener, what: &'static str, router: Arc<dyn Router>, tasks: Tasks) {
    serve_at_most(CONNECTIONS_MAX, listener, what, router, tasks).await;
}

async fn serve_at_most(
    connections_max: usize,
    listener: UnixListener,
    what: &'static str,
    router: Arc<dyn Router>,
    tasks: Tasks,
) {
    let connections = Arc::new(Connections::default());
    let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
    loop {
        let (stream, _) = base::listen::accepted(what, || listener.accept()).await;
        let (id, close) = connections.admit(connections_max);
        let refusal = match id {
            Some(_) => None,
            None => match refusals.clone().try_acquire_owned() {
                Ok(refusal) => Some(refusal),
                // It is told by the end of the connection.
                Err(_) => continue,
            },
        };
        let (router, connections) = (router.clone(), connections.clone());
        tasks.spawn("grpc connection", async move {
            converse(stream, what, router, id, close, &connections).await;
            if let Some(id) = id {
                connections.forget(id);
            }
            drop(refusal);
        });
    }
}

/// Answers one client until it leaves or is to leave.
async fn converse(
    stream: UnixStream,
    what: &'static str,
    router: Arc<dyn Router>,
    id: Option<u64>,
    close: Arc<Notify>,
    connections: &Arc<Connections>,
) {
    let counting = connections.clone();
    let answering = service_fn(move |request: Asked| {
        let call = id.map(|id| Call::begin(&counting, id));
        let path = request.uri().path().to_owned();
        let answer = match id {
            Some(_) => router.answer(&path, request),
            None => too_many_calls(),
        };
        async move { Ok::<_, Infallible>(answer.await.map(|body| Body::new(Counted { body, _call: call }))) }
    });
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new());
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), answering));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = close.notified() => {
            connection.as_mut().graceful_shutdown();
            loop {
                match tokio::time::timeout(CLOSE_TIMEOUT, connection.as_mut()).await {
                    Ok(ended) => break ended,
                    // A call that came before its client was told is answered.
                    Err(_) if id.is_some_and(|id| connections.is_busy(id)) => {}
                    Err(_) => return,
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, what, "a connection ended");
    }
}

/// Who is connected, and since when without a call.
#[derive(Default)]
struct Connections(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// Counts connections and ends of calls: the larger, the later.
    now: u64,
    open: BTreeMap<u64, Connection>,
}

struct Connection {
    /// It was told to go, and takes nobody's room.
    is_leaving: bool,
    calls: usize,
    idle_since: u64,
    close: Arc<Notify>,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for one more, for which another may have to go; none, and word to go, if all are busy.
    fn admit(&self, most: usize) -> (Option<u64>, Arc<Notify>) {
        let mut known = self.lock();
        known.now += 1;
        let (id, close) = (known.now, Arc::new(Notify::new()));
        let staying = || known.open.values().filter(|connection| !connection.is_leaving);
        if staying().count() >= most {
            let idle =
                known.open.values_mut().filter(|connection| !connection.is_leaving && connection.calls == 0);
            let Some(oldest) = idle.min_by_key(|connection| connection.idle_since) else {
                close.notify_one();
                return (None, close);
            };
            oldest.is_leaving = true;
            oldest.close.notify_one();
        }
        let connection = Connection { is_leaving: false, calls: 0, idle_since: id, close: close.clone() };
        known.open.insert(id, connection);
        (Some(id), close)
    }

    fn is_busy(&self, id: u64) -> bool {
        self.lock().open.get(&id).is_some_and(|connection| connection.calls > 0)
    }

    fn forget(&self, id: u64) {
        self.lock().open.remove(&id);
    }
}

/// A call, until all of its answer is sent.
struct Call {
    connections: Arc<Connections>,
    id: u64,
}

impl Call {
    fn begin(connections: &Arc<Connections>, id: u64) -> Self {
        if let Some(connection) = connections.lock().open.get_mut(&id) {
            connection.calls += 1;
        }
        Self { connections: connections.clone(), id }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut known = self.connections.lock();
        known.now += 1;
        let now = known.now;
        if let Some(connection) = known.open.get_mut(&self.id) {
            connection.calls = connection.calls.saturating_sub(1);
            connection.idle_since = now;
        }
    }
}

/// An answer that is a call as long as it is being sent.
struct Counted {
    body: Body,
    _call: Option<Call>,
}

impl hyper::body::Body for Counted {
    type Data = <Body as hyper::body::Body>::Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Status>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn too_many_calls() -> BoxFuture<'static, Answer> {
    let refused = Status::resource_exhausted("too many connections, and a call runs on each of them");
    std::future::ready(refused.into_http()).boxed()
}

/// The answer to a call that nobody has.
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

#[cfg(test)]
mod tests;
