//! The data plane: connections of clients, and what is asked on them.
//!
//! Everything that comes is bounded: connections by their source, heads by size and time, requests by number, waiting by
//! patience. Bodies are never gathered. HTTP/2 is spoken with whoever asks for it, with TLS (ALPN) or without.

mod asked;
mod body;
mod connect;
mod endpoint;
mod entry;
mod forward;
mod headers;
mod limits;
mod live;
mod mirror;
mod plane;
mod tunnel;
mod write_timeout;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use base::connections::{Activity, Connections, Kept, Slot, Standing};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::certificates::At;
pub use crate::scheme::Scheme;
use crate::table::Entrance;
pub use entry::AccessLog;
use forward::{From, Led, answer};
pub use limits::Limits;
use limits::{
    CONNECTION_WINDOW_BYTES, HEAD_BYTES_MAX, HEAD_LIST_BYTES_MAX, HEADERS_MAX, RESETS_MAX,
    SEND_BUFFER_BYTES_MAX, STREAM_WINDOW_BYTES, STREAMS_MAX,
};
pub use plane::{Options, Plane};
use write_timeout::WriteTimeout;

/// How long a client over HTTP/2 may be silent before it is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// A port that clients connect to.
#[derive(Debug)]
pub struct Port {
    /// Bound and listening.
    pub listener: TcpListener,
    /// The scheme that clients speak there.
    pub scheme: Scheme,
    /// The entrance that it is to rows.
    pub entrance: Entrance,
    /// The tasks: when they are told to stop, it takes no more connections.
    pub tasks: Tasks,
    /// The shares of connections; ports share it.
    pub connections: Arc<Connections>,
}

/// TLS for clients: every certificate of the place, HTTP/2 and HTTP/1.1.
///
/// # Errors
/// If the provider of cryptography lacks what TLS needs.
fn acceptor(plane: &Plane, entrance: Entrance) -> Result<TlsAcceptor, rustls::Error> {
    let provider = tls::provider();
    let builder =
        rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let at = At { certificates: Arc::clone(&plane.certificates), entrance };
    let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(at));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Takes connections until the port's tasks are told to stop, then gives requests under way time to end.
///
/// # Errors
/// If TLS cannot be set up.
pub fn listen(plane: &Arc<Plane>, port: Port) -> Result<(), rustls::Error> {
    let tls = match port.scheme {
        Scheme::Http => None,
        Scheme::Https => Some(acceptor(plane, port.entrance)?),
    };
    let plane = Arc::clone(plane);
    plane.begin_listening();
    plane.tasks.clone().spawn_to_end("ingress listener", accept(plane, port, tls));
    Ok(())
}

/// What a connection has of its listener.
#[derive(Clone)]
struct Held {
    /// What handshakes need, if there are any.
    tls: Option<TlsAcceptor>,
    /// Whether the listener has closed.
    ending: watch::Receiver<bool>,
    /// That there is a connection.
    _open: mpsc::Sender<()>,
}

async fn accept(plane: Arc<Plane>, port: Port, tls: Option<TlsAcceptor>) {
    let Port { listener, scheme, entrance, tasks, connections } = port;
    let number = listener.local_addr().map_or(0, |address| address.port());
    let (draining, ending) = watch::channel(false);
    let (open, mut all_ended) = mpsc::channel::<()>(1);
    let held = Held { tls, ending, _open: open };
    loop {
        let (stream, address) = tokio::select! {
            accepted = base::listen::accepted("ingress", || listener.accept()) => accepted,
            () = tasks.stopping() => break,
        };
        let from = From { address, scheme, port: number, entrance, server_name: None };
        let slot = connections.take(address.ip());
        let (plane, held) = (Arc::clone(&plane), held.clone());
        plane.tasks.clone().spawn_to_end("ingress connection", async move {
            tokio::select! {
                () = connection(plane, stream, from, Arc::clone(&slot), held) => {}
                () = slot.gives_way() => tracing::debug!(%address, "a connection gave way to another"),
            }
        });
    }
    drop((listener, held));
    draining.send_replace(true);
    // Nothing is ever sent: it ends with the last connection.
    if tokio::time::timeout(plane.limits.drain, all_ended.recv()).await.is_err() {
        tracing::debug!("connections were cut at the end");
    }
    plane.end_listening();
}

async fn connection(plane: Arc<Plane>, stream: TcpStream, from: From, slot: Arc<Slot>, mut held: Held) {
    let address = from.address;
    let _counted = plane.metrics.connection(from.scheme.as_str());
    let stream = match connect::set_up(stream) {
        Ok(stream) => WriteTimeout::new(stream, plane.limits.download),
        Err(error) => return tracing::debug!(%error, %address, "a connection was gone at once"),
    };
    let Some(tls) = held.tls.take() else { return serve(plane, stream, from, slot, held).await };
    match tokio::time::timeout(plane.limits.handshake, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            let named =
                stream.get_ref().1.server_name().map(|name| name.trim_end_matches('.').to_ascii_lowercase());
            let from = From { server_name: named.map(Arc::from), ..from };
            serve(plane, stream, from, slot, held).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, %address, "TLS handshake failed"),
        Err(_) => tracing::debug!(%address, "TLS handshake took too long"),
    }
}

async fn serve<S>(plane: Arc<Plane>, stream: S, from: From, slot: Arc<Slot>, mut held: Held)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (address, activity) = (from.address, Activity::begin());
    // What has switched protocols goes on without this task, and keeps its slot.
    let stream = Kept::new(stream, Arc::clone(&slot));
    let (asked, limits) = (activity.clone(), plane.limits);
    let service = service_fn(move |request| {
        let (plane, slot, underway) = (Arc::clone(&plane), Arc::clone(&slot), asked.request());
        let from = from.clone();
        async move {
            let (answer, led) = answer(&plane, &from, request).await;
            if led == Led::Somewhere {
                slot.prove(Standing::Known);
            }
            // Until the answer's body has gone: what is being sent is no idle connection.
            Ok::<_, Infallible>(answer.map(|body| body.while_under_way(underway)))
        }
    });
    let builder = builder(&limits);
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let graceful = GracefulShutdown::new();
    let serving = graceful.watch(serving.into_owned());
    tokio::pin!(serving);
    let ended = async {
        tokio::select! {
            () = activity.is_idle(limits.head, limits.idle) => {}
            _ = held.ending.wait_for(|is_ending| *is_ending) => {}
        }
    };
    let served = tokio::select! {
        served = &mut serving => served,
        // What is asked by then is answered, and nothing more.
        () = ended => tokio::select! {
            served = &mut serving => served,
            () = graceful.shutdown() => return,
            () = tokio::time::sleep(limits.drain) => return tracing::debug!(%address, "connection cut"),
        },
    };
    if let Err(error) = served {
        tracing::debug!(%error, %address, "connection ended");
    }
}

fn builder(limits: &Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_LIST_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES_MAX);
    builder
}

#[cfg(test)]
mod tests;
