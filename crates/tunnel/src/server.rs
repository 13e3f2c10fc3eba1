//! The API server's end: it opens streams, as many as there are places.
//!
//! Whoever is at the other end may send anything, or nothing: it can end its own tunnel and no more. An answer that does not
//! come in time is a connection that could not be made.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::TokioTimer;
use tokio::sync::Semaphore;

use crate::connection::Connection;

/// How long a connection may take. Source: `net.Dialer.Timeout` of upstream's transports.
const CONNECT_MAX: Duration = Duration::from_secs(30);

/// A tunnel that stands. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Tunnel {
    streams: SendRequest<Empty<Bytes>>,
    places: Arc<Semaphore>,
}

impl Tunnel {
    /// A tunnel over a connection that has switched protocols, and what carries it, with tasks in `tasks`: the tunnel
    /// stands for as long as that runs, and all that goes through it ends with it.
    ///
    /// # Errors
    /// If nothing can be written.
    pub async fn over<T>(
        connection: T,
        tasks: &Tasks,
    ) -> hyper::Result<(Self, impl Future<Output = hyper::Result<()>> + Send + use<T>)>
    where
        T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let own = Destinations(tasks.child());
        let mut builder = http2::Builder::new(Spawner(own.0.clone()));
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(crate::STREAM_WINDOW_BYTES)
            .initial_connection_window_size(crate::WINDOW_BYTES)
            .initial_max_send_streams(crate::STREAMS_MAX)
            .max_send_buf_size(crate::SEND_BYTES_MAX)
            .max_header_list_size(crate::HEADERS_BYTES_MAX)
            .keep_alive_interval(crate::PING_EVERY)
            .keep_alive_timeout(crate::PING_MAX)
            .keep_alive_while_idle(true);
        let (streams, carrying) = builder.handshake(connection).await?;
        let carrying = async move {
            let ended = carrying.await;
            drop(own);
            ended
        };
        Ok((Self { streams, places: Arc::new(Semaphore::new(crate::STREAMS_MAX)) }, carrying))
    }

    /// Connects to a host and port as the Node knows them.
    ///
    /// # Errors
    /// That of the Node; or that there are too many connections already, no answer in time, or no tunnel any more.
    pub async fn connect(&self, host: &str, port: u16) -> io::Result<Connection> {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return Err(io::Error::other("too many connections through the node's tunnel"));
        };
        let request =
            request(host, port).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let mut streams = self.streams.clone();
        let opened = async {
            let response = streams.send_request(request).await.map_err(broken)?;
            if response.status() != StatusCode::OK {
                return Err(failure(&response));
            }
            hyper::upgrade::on(response).await.map_err(broken)
        };
        match tokio::time::timeout(CONNECT_MAX, opened).await {
            Ok(opened) => Ok(Connection::tunnelled(opened?, place)),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "i/o timeout")),
        }
    }

    /// The number of connections through it.
    pub fn streams(&self) -> usize {
        crate::STREAMS_MAX - self.places.available_permits()
    }
}

/// Tasks that end with their tunnel.
struct Destinations(Tasks);

impl Drop for Destinations {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs the parts of a connection among them.
#[derive(Clone)]
struct Spawner(Tasks);

impl<F> hyper::rt::Executor<F> for Spawner
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, part: F) {
        self.0.spawn("tunnel", async move {
            part.await;
        });
    }
}

fn request(host: &str, port: u16) -> Result<Request<Empty<Bytes>>, http::Error> {
    let authority = match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    let uri = Uri::builder().authority(authority).build()?;
    Request::builder().method(Method::CONNECT).uri(uri).body(Empty::new())
}

fn broken(error: hyper::Error) -> io::Error {
    tracing::debug!(%error, "a tunnel does not take a connection");
    io::Error::new(io::ErrorKind::NotConnected, "the node's tunnel is broken")
}

/// The error that an answer stands for.
fn failure(response: &Response<Incoming>) -> io::Error {
    match response.status() {
        StatusCode::FORBIDDEN => {
            io::Error::new(io::ErrorKind::PermissionDenied, "the node's agent does not connect there")
        }
        StatusCode::SERVICE_UNAVAILABLE => io::Error::other("too many connections through the node's tunnel"),
        _ => {
            let reason = response.headers().get(crate::REASON).and_then(|reason| reason.to_str().ok());
            match crate::kind_of(reason.unwrap_or_default()) {
                io::ErrorKind::Other => io::Error::other("the node's agent cannot connect there"),
                kind => kind.into(),
            }
        }
    }
}
