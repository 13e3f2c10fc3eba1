//! Calls of a KMS plugin.
//!
//! As upstream's, a call waits for a plugin that is not there yet, as long as its time lasts.

use std::io;
use std::time::{Duration, Instant};

use base::{Backoff, Random};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::api;
use crate::metrics::Metrics;
use crate::socket::{Socket, socket_of};

/// Between tries to reach a plugin.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_millis(500);

/// One plugin.
pub(crate) struct Client {
    provider: String,
    channel: Channel,
    timeout: Duration,
    metrics: Metrics,
    random: Random,
}

impl Client {
    /// A client of the plugin at `endpoint`, which is connected to when it is needed; `None` for an endpoint that
    /// validation would refuse.
    pub(crate) fn new(provider: &str, endpoint: &str, timeout: Duration, metrics: Metrics) -> Option<Self> {
        let socket = socket_of(endpoint).ok()?;
        let connector = tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { connect(&socket).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector);
        Some(Self { provider: provider.to_owned(), channel, timeout, metrics, random: Random::from_system() })
    }

    pub(crate) async fn status(&self) -> Result<api::StatusResponse, Status> {
        self.call(api::STATUS, api::StatusRequest {}).await
    }

    pub(crate) async fn encrypt(&self, plaintext: Vec<u8>) -> Result<api::EncryptResponse, Status> {
        self.call(api::ENCRYPT, api::EncryptRequest { plaintext, uid: self.random.uuid() }).await
    }

    pub(crate) async fn decrypt(&self, mut request: api::DecryptRequest) -> Result<Vec<u8>, Status> {
        request.uid = self.random.uuid();
        let response: api::DecryptResponse = self.call(api::DECRYPT, request).await?;
        Ok(response.plaintext)
    }

    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let started = Instant::now();
        let answered = tokio::time::timeout(self.timeout, self.until_connected(path, request)).await;
        let answer = answered.unwrap_or_else(|_| Err(Status::deadline_exceeded("context deadline exceeded")));
        let code = answer.as_ref().err().map_or(Code::Ok, Status::code);
        self.metrics.called(&self.provider, path, started.elapsed(), code);
        answer
    }

    async fn until_connected<Q, A>(&self, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX, 0.2);
        loop {
            let mut client = Grpc::new(self.channel.clone());
            let sent = async {
                client.ready().await.map_err(|failure| Status::unavailable(failure.to_string()))?;
                let codec = ProstCodec::<Q, A>::default();
                client.unary(Request::new(request.clone()), PathAndQuery::from_static(path), codec).await
            };
            match sent.await {
                Ok(response) => return Ok(response.into_inner()),
                Err(status) if status.code() == Code::Unavailable => {
                    tracing::debug!(provider = self.provider, path, %status, "the KMS plugin is not there");
                    tokio::time::sleep(backoff.next(&self.random)).await;
                }
                Err(status) => return Err(status),
            }
        }
    }
}

async fn connect(socket: &Socket) -> io::Result<UnixStream> {
    match socket {
        Socket::Path(path) => UnixStream::connect(path).await,
        Socket::Abstract(name) => {
            use std::os::linux::net::SocketAddrExt;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
            let stream = std::os::unix::net::UnixStream::connect_addr(&address)?;
            stream.set_nonblocking(true)?;
            UnixStream::from_std(stream)
        }
    }
}
