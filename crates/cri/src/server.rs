//! A runtime on a unix socket: CRI v1 over gRPC, for `crictl` and any kubelet.
//!
//! Only the socket's owner may connect: whoever reaches a container runtime is root on its host. Exec, attach and
//! port-forward answer with URLs, which [`Streaming`] hands out; this file knows nothing of who serves them.

use std::sync::Arc;

use async_trait::async_trait;
use base::Tasks;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryFutureExt};
pub use grpc::bind;
use grpc::{Answer, Asked, Router, unary, unknown};
use tokio::net::UnixListener;
use tonic::server::{Grpc, ServerStreamingService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::calls::{image_calls, runtime_calls};
use crate::{CriResult, ImageService, RuntimeService, v1};

/// The maker of the URLs that exec, attach and port-forward answer with. Each is good for one connection, soon.
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

/// The services that are served.
#[derive(Clone)]
pub struct Services {
    /// The runtime.
    pub runtime: Arc<dyn RuntimeService>,
    /// Its images.
    pub images: Arc<dyn ImageService>,
    /// Its URLs.
    pub streaming: Arc<dyn Streaming>,
}

/// Answers until the tasks end.
pub async fn serve(listener: UnixListener, services: Services, tasks: Tasks) {
    grpc::serve(listener, "container runtime", Arc::new(services), tasks).await;
}

impl Router for Services {
    fn answer(&self, path: &str, request: Asked) -> BoxFuture<'static, Answer> {
        let services = self.clone();
        if let Some(call) = path.strip_prefix("/runtime.v1.RuntimeService/") {
            return services.runtime_answer(call, request);
        }
        if let Some(call) = path.strip_prefix("/runtime.v1.ImageService/") {
            return services.image_answer(call, request);
        }
        unknown(path)
    }
}

macro_rules! runtime_answers {
    ($($name:literal $method:ident $request:ident $response:ident $limit:ident;)*) => {
        fn runtime_answer(self, call: &str, request: Asked) -> BoxFuture<'static, Answer> {
            let Self { runtime, streaming, .. } = self;
            match call {
                $($name => {
                    let method = move |asked| async move { runtime.$method(asked).await }.boxed();
                    unary::<v1::$request, v1::$response, _>(request, method)
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
                _ => unknown(call),
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
                    unary::<v1::$request, v1::$response, _>(request, method)
                })*
                _ => unknown(call),
            }
        }
    };
}

impl Services {
    runtime_calls!(runtime_answers);
    image_calls!(image_answers);
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
