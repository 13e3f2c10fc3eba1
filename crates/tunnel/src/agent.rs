//! The Node's end: it takes streams, asks where they may lead, and joins each to a connection of its own.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use base::relay::relay;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::destinations::Refusal;

/// How long a connection may take; less than a server waits, so that it is told.
const CONNECT_MAX: Duration = Duration::from_secs(20);

/// A guard that says where connections go.
pub trait Guard: Send + Sync + 'static {
    /// Where one to `host` and `port` goes.
    ///
    /// # Errors
    /// Why there is none.
    fn find(&self, host: &str, port: u16) -> Result<SocketAddr, Refusal>;
}

/// What all streams of a tunnel share.
struct Shared {
    guard: Arc<dyn Guard>,
    places: Arc<Semaphore>,
    relays: Tasks,
}

/// Serves a server over a connection that has switched protocols, until it or the server ends. What goes through the tunnel
/// ends with it.
///
/// # Errors
/// Why the tunnel broke.
pub async fn serve<T>(connection: T, guard: Arc<dyn Guard>, tasks: &Tasks) -> hyper::Result<()>
where
    T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let relays = Relays(tasks.child());
    let places = Arc::new(Semaphore::new(crate::STREAMS_MAX));
    let shared = Arc::new(Shared { guard, places, relays: relays.0.clone() });
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(answer(request, &shared).await) }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(crate::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(crate::WINDOW_BYTES)
        .max_concurrent_streams(crate::STREAMS_MAX as u32)
        .max_send_buf_size(crate::SEND_BYTES_MAX)
        .max_header_list_size(crate::HEADERS_BYTES_MAX)
        .keep_alive_interval(crate::PING_EVERY)
        .keep_alive_timeout(crate::PING_MAX);
    builder.serve_connection(connection, service).await
}

/// Connections that end with their tunnel.
struct Relays(Tasks);

impl Drop for Relays {
    fn drop(&mut self) {
        self.0.stop();
    }
}

async fn answer(request: Request<Incoming>, shared: &Shared) -> Response<Empty<Bytes>> {
    let authority = request.uri().authority().cloned();
    let asked = authority.as_ref().and_then(|authority| Some((authority.host(), authority.port_u16()?)));
    let Some((host, port)) = asked.filter(|_| request.method() == Method::CONNECT) else {
        return refusal(StatusCode::BAD_REQUEST);
    };
    let address = match shared.guard.find(host, port) {
        Ok(address) => address,
        Err(refused) => {
            tracing::warn!(host, port, why = %refused, "a server is not connected");
            return refusal(StatusCode::FORBIDDEN);
        }
    };
    let Ok(place) = Arc::clone(&shared.places).try_acquire_owned() else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE);
    };
    let stream = match connect(address).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%address, %error, "a server cannot be connected");
            let mut response = refusal(StatusCode::BAD_GATEWAY);
            let reason = HeaderValue::from_static(crate::reason_of(error.kind()));
            response.headers_mut().insert(crate::REASON, reason);
            return response;
        }
    };
    shared.relays.spawn("tunnelled connection", async move {
        match hyper::upgrade::on(request).await {
            Ok(client) => relay(TokioIo::new(client), stream).await,
            Err(error) => tracing::debug!(%error, "a stream ended before it began"),
        }
        drop(place);
    });
    Response::new(Empty::new())
}

fn refusal(status: StatusCode) -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    *response.status_mut() = status;
    response
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let connected = tokio::time::timeout(CONNECT_MAX, TcpStream::connect(address)).await;
    let stream = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
