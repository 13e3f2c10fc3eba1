//! The socket at which device plugins register.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::api::{Empty, RegisterRequest};
use crate::context::Context;

const SOCKET: &str = "kubelet.sock";
/// Connections at the same time.
const CONNECTIONS_MAX: usize = 64;

/// Answers until the group of tasks stops. A new socket at every start tells plugins to register again.
pub(super) async fn serve(context: &Arc<Context>) {
    let path = context.devices.folder.join(SOCKET);
    let listener = match cri::server::bind(&path) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "there is no socket for device plugins");
            return;
        }
    };
    accept(context, listener).await;
}

async fn accept(context: &Arc<Context>, listener: UnixListener) {
    let limit = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = limit.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a device plugin's connection was not accepted");
                // Out of descriptors: others must close theirs first.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let context = context.clone();
        context.tasks.clone().spawn("device plugin registration", async move {
            let service = service_fn(move |request| {
                let context = context.clone();
                async move { Ok::<_, Infallible>(answer(context, request).await) }
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%error, "a device plugin's connection ended");
            }
            drop(permit);
        });
    }
}

struct Register(Arc<Context>);

impl UnaryService<RegisterRequest> for Register {
    type Response = Empty;
    type Future = BoxFuture<'static, Result<Response<Empty>, Status>>;

    fn call(&mut self, request: Request<RegisterRequest>) -> Self::Future {
        let registered = super::register(&self.0, request.into_inner());
        std::future::ready(registered.map(|()| Response::new(Empty {})).map_err(Status::unknown)).boxed()
    }
}

async fn answer(context: Arc<Context>, request: hyper::Request<Incoming>) -> http::Response<Body> {
    match request.uri().path() {
        "/v1beta1.Registration/Register" => {
            Grpc::new(ProstCodec::<Empty, RegisterRequest>::default()).unary(Register(context), request).await
        }
        other => Status::unimplemented(format!("unknown method {other}")).into_http(),
    }
}
