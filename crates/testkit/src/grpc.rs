//! The server's end of gRPC, as much as doubles of etcd and of plugins need.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::body::Body;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

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
