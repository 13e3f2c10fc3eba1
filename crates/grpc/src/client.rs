//! The calling end.

use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use crate::{MESSAGE_BYTES_MAX, socket};

/// A channel to the server at `socket`, which is connected to when something is called, and again when it was lost.
pub fn channel(socket: &Path) -> Channel {
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let connected = socket::connect(&socket);
        async move { connected.map(TokioIo::new) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
}

/// The channel once it is connected.
///
/// # Errors
/// Unavailable: nobody listens.
pub async fn ready(channel: &Channel) -> Result<Grpc<Channel>, Status> {
    let mut grpc = Grpc::new(channel.clone())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    grpc.ready().await.map_err(|failure| Status::unavailable(base::error_chain(&failure)))?;
    Ok(grpc)
}

/// One request, one response; `path` names the call, such as `/csi.v1.Node/NodeGetInfo`.
///
/// # Errors
/// What the server said, that nobody listens, that it took longer than `limit`, or that the request is too large.
pub async fn call<Q, A>(
    channel: &Channel,
    path: &'static str,
    request: Q,
    limit: Option<Duration>,
) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let length = request.encoded_len();
    if length > MESSAGE_BYTES_MAX {
        // The connection would just break off. The words are grpc-go's.
        let text = format!("trying to send message larger than max ({length} vs. {MESSAGE_BYTES_MAX})");
        return Err(Status::resource_exhausted(text));
    }
    let answer = async {
        let codec = ProstCodec::<Q, A>::default();
        ready(channel).await?.unary(Request::new(request), PathAndQuery::from_static(path), codec).await
    };
    let answer = tokio::time::timeout(limit.unwrap_or(Duration::MAX), answer).await;
    let expired = |_| Err(Status::deadline_exceeded("context deadline exceeded"));
    Ok(answer.unwrap_or_else(expired)?.into_inner())
}
