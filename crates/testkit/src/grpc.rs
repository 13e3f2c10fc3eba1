//! gRPC: the server's end, as much as doubles of etcd and of plugins need, and one call of a client.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::path::Path;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tonic::body::Body;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// Length of what comes before a message: whether it is compressed, and how long it is.
const PREFIX_BYTES: usize = 5;

/// Asks the server at `socket` once.
///
/// # Errors
/// Nobody answers, or with something else.
pub(crate) async fn call<Q, A>(socket: &Path, path: &str, question: &Q) -> Result<A>
where
    Q: prost::Message,
    A: prost::Message + Default,
{
    let stream = UnixStream::connect(socket).await.with_context(|| format!("call {}", socket.display()))?;
    let stream = TokioIo::new(stream);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await?;
    let connection = tokio::spawn(connection);
    let mut message = vec![0];
    message.extend(u32::try_from(question.encoded_len())?.to_be_bytes());
    question.encode(&mut message)?;
    let request = hyper::Request::post(format!("http://localhost{path}"));
    let request = request.header("content-type", "application/grpc").header("te", "trailers");
    let answer = sender.send_request(request.body(Full::new(Bytes::from(message)))?).await?;
    let answer = answer.into_body().collect().await?;
    let status = answer.trailers().and_then(|trailers| trailers.get("grpc-status")).cloned();
    anyhow::ensure!(status.as_ref().is_some_and(|status| status == "0"), "{path} answered {status:?}");
    connection.abort();
    let message = answer.to_bytes();
    Ok(A::decode(message.get(PREFIX_BYTES..).context("an answer without a message")?)?)
}

/// Answers everything that comes on one connection.
pub(crate) async fn serve<S, F, R>(stream: S, answer: F)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(hyper::Request<Incoming>) -> R + Send + 'static,
    R: Future<Output = hyper::Response<Body>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    // A connection that breaks is the client's business.
    serving.serve_connection(TokioIo::new(stream), service).await.ok();
}

/// Answers one call.
pub(crate) async fn unary<Q, A, F>(request: hyper::Request<Incoming>, answer: F) -> hyper::Response<Body>
where
    Q: prost::Message + Default + 'static,
    A: prost::Message + Default + 'static,
    F: Fn(Q) -> Result<A, Status> + Send + 'static,
{
    struct Unary<F>(F);
    impl<Q, A, F> tonic::server::UnaryService<Q> for Unary<F>
    where
        F: Fn(Q) -> Result<A, Status>,
    {
        type Response = A;
        type Future = Ready<Result<Response<A>, Status>>;
        fn call(&mut self, request: Request<Q>) -> Self::Future {
            ready((self.0)(request.into_inner()).map(Response::new))
        }
    }
    tonic::server::Grpc::new(ProstCodec::<A, Q>::default()).unary(Unary(answer), request).await
}
