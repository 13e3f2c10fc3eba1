//! One request on a connection of its own, in HTTP/1.1: probes, documents, upgrades. What is asked often has a client that
//! keeps its connections.

use std::error::Error;

use base::Tasks;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// The answer to `request` on `stream`, whatever `read` makes of it. The connection ends with it.
///
/// # Errors
/// The exchange broke, or `read` failed.
pub async fn ask<S, B, T, E, F>(
    stream: S,
    request: Request<B>,
    read: impl FnOnce(Response<Incoming>) -> F,
) -> Result<T, E>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
    E: From<hyper::Error>,
    F: Future<Output = Result<T, E>>,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async { read(sender.send_request(request).await?).await };
    tokio::pin!(connection, exchange);
    tokio::select! {
        result = &mut exchange => result,
        // The last bytes may be here although the other end has closed; and what broke the connection is told there.
        _ = &mut connection => exchange.await,
    }
}

/// The head of the answer to `request` on `stream`. The connection is a task of `tasks` from then on, until both ends are done
/// with it, also after an upgrade; `other_end` says in the log who was asked.
///
/// # Errors
/// The exchange broke before the answer.
pub async fn send<S, B>(
    stream: S,
    request: Request<B>,
    tasks: &Tasks,
    other_end: &'static str,
) -> Result<Response<Incoming>, hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tasks.spawn(other_end, async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, other_end, "a connection ended");
        }
    });
    sender.send_request(request).await
}

#[cfg(test)]
mod tests;
