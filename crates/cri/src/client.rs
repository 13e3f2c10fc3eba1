//! A container runtime behind a unix socket: the same traits as the built-in one, over gRPC.
//!
//! Calls reconnect by themselves after the runtime was restarted. Exec, attach and port-forward ask for a URL and
//! speak SPDY with it (`streams`). A runtime without an events call is listed once per second instead (`relist`).

mod relist;
mod streams;

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use base::{Backoff, Clock, Random, Tasks};
use futures::StreamExt;
use futures::stream::BoxStream;
use prost::Message;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::calls::{Limit, command, endless, grace, image_calls, runtime_calls, twice, usual};
use crate::{CriError, CriResult, ImageService, RuntimeService, Streams, v1};

/// How long a runtime may take to be there, as upstream's kubelet waits for it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(120);
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(3);

/// How often a runtime is asked for its status, which it does not tell by itself. Source: `updateRuntimeUp` of upstream.
const STATUS_PERIOD: Duration = Duration::from_secs(5);

/// An address that is not one of a container runtime.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} must be a unix socket, such as unix:///run/containerd/containerd.sock")]
pub struct EndpointError(pub String);

/// The socket's path. Source: the kubelet's `--container-runtime-endpoint`, which takes a bare path as well.
///
/// # Errors
/// It is another kind of address, or the path is not absolute.
pub fn socket_of(endpoint: &str) -> Result<PathBuf, EndpointError> {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    let path = PathBuf::from(path);
    if path.is_absolute() { Ok(path) } else { Err(EndpointError(endpoint.to_owned())) }
}

/// A runtime behind a socket. Cloning shares the connection.
#[derive(Clone)]
pub struct Client {
    channel: Channel,
    tasks: Tasks,
    clock: Clock,
}

impl Client {
    /// A client of the runtime at `endpoint`, which is connected to when something is called.
    ///
    /// # Errors
    /// As [`socket_of`].
    pub fn new(endpoint: &str, tasks: Tasks, clock: Clock) -> Result<Self, EndpointError> {
        let socket = socket_of(endpoint)?;
        let channel = grpc::channel(&socket);
        Ok(Self { channel, tasks, clock })
    }

    /// Waits until the runtime is there and speaks CRI v1.
    ///
    /// # Errors
    /// It does not, or is not there for two minutes.
    pub async fn ready(&self, random: &Random) -> CriResult<v1::VersionResponse> {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX, 0.2);
        let trying = async {
            loop {
                match self.version(v1::VersionRequest { version: "v1".into() }).await {
                    Ok(version) => return Ok(version),
                    Err(error @ CriError::Unimplemented(_)) => return Err(error),
                    Err(error) => tracing::info!(%error, "waiting for the container runtime"),
                }
                tokio::time::sleep(backoff.next(random)).await;
            }
        };
        let timeout = || CriError::DeadlineExceeded("the container runtime does not answer".into());
        tokio::time::timeout(CONNECT_TIMEOUT, trying).await.unwrap_or_else(|_| Err(timeout()))
    }

    async fn call<Q, A>(&self, path: &'static str, request: Q, limit: Limit) -> CriResult<A>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        Ok(grpc::call(&self.channel, path, request, limit).await?)
    }

    async fn stream(&self) -> Result<BoxStream<'static, CriResult<v1::ContainerEventResponse>>, Status> {
        let path = PathAndQuery::from_static("/runtime.v1.RuntimeService/GetContainerEvents");
        let request = Request::new(v1::GetEventsRequest {});
        let events =
            grpc::ready(&self.channel).await?.server_streaming(request, path, ProstCodec::default()).await?;
        Ok(events.into_inner().map(|event| event.map_err(CriError::from)).boxed())
    }
}

macro_rules! call_runtime {
    ($($name:literal $method:ident $request:ident $response:ident $limit:ident;)*) => {
        #[async_trait]
        impl RuntimeService for Client {
            $(async fn $method(&self, request: v1::$request) -> CriResult<v1::$response> {
                let limit = $limit(&request);
                self.call(concat!("/runtime.v1.RuntimeService/", $name), request, limit).await
            })*

            fn status_changes(&self) -> BoxStream<'static, ()> {
                let tick = |()| async { Some((tokio::time::sleep(STATUS_PERIOD).await, ())) };
                futures::stream::unfold((), tick).boxed()
            }

            async fn exec(&self, request: v1::ExecRequest) -> CriResult<Streams> {
                let wishes = streams::Wishes::of_exec(&request);
                let path = "/runtime.v1.RuntimeService/Exec";
                let limit = usual(&request);
                let answer: v1::ExecResponse = self.call(path, request, limit).await?;
                streams::command(&answer.url, wishes, &self.tasks).await
            }

            async fn attach(&self, request: v1::AttachRequest) -> CriResult<Streams> {
                let wishes = streams::Wishes::of_attach(&request);
                let path = "/runtime.v1.RuntimeService/Attach";
                let limit = usual(&request);
                let answer: v1::AttachResponse = self.call(path, request, limit).await?;
                streams::command(&answer.url, wishes, &self.tasks).await
            }

            async fn port_forward(&self, request: v1::PortForwardRequest) -> CriResult<Streams> {
                let [port] = request.port.as_slice() else {
                    return Err(CriError::InvalidArgument("exactly one port must be set".into()));
                };
                let (port, path) = (*port, "/runtime.v1.RuntimeService/PortForward");
                let limit = usual(&request);
                let answer: v1::PortForwardResponse = self.call(path, request, limit).await?;
                streams::port(&answer.url, port, &self.tasks).await
            }

            async fn get_container_events(
                &self,
                _: v1::GetEventsRequest,
            ) -> CriResult<BoxStream<'static, CriResult<v1::ContainerEventResponse>>> {
                match self.stream().await.map_err(CriError::from) {
                    Err(CriError::Unimplemented(_)) => {
                        tracing::info!("the container runtime has no events; it is listed every second");
                        relist::events(self.clone(), &self.tasks, self.clock.clone()).await
                    }
                    other => other,
                }
            }
        }
    };
}

macro_rules! call_images {
    ($($name:literal $method:ident $request:ident $response:ident $limit:ident;)*) => {
        #[async_trait]
        impl ImageService for Client {
            $(async fn $method(&self, request: v1::$request) -> CriResult<v1::$response> {
                let limit = $limit(&request);
                self.call(concat!("/runtime.v1.ImageService/", $name), request, limit).await
            })*
        }
    };
}

runtime_calls!(call_runtime);
image_calls!(call_images);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_unix_socket() {
        let check = |endpoint: &str, expect: Option<&str>| {
            assert_eq!(socket_of(endpoint).ok().as_deref(), expect.map(std::path::Path::new), "{endpoint}");
        };
        check("unix:///run/containerd/containerd.sock", Some("/run/containerd/containerd.sock"));
        check("/run/crio/crio.sock", Some("/run/crio/crio.sock"));
        check("unix://run/crio.sock", None);
        check("tcp://127.0.0.1:1234", None);
        check("", None);
    }
}
