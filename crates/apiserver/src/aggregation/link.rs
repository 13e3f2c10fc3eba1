//! Connections to a server that an APIService names, each for many requests at a time where that server speaks HTTP/2.
//!
//! The Service is looked up for each request, so that what is not ready any more gets none. Every connection shows the
//! certificate of our own front proxy and believes nobody but whom the APIService says. Connections are bounded in number; one
//! on which nothing is under way ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::HOST;
use http::{Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls_pki_types::ServerName;
use tls::Identity;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tracing::debug;
use tunnel::Connection;

use super::registration::{Target, Trust};
use crate::api::Api;
use crate::backend;
use crate::body::Body;
use crate::configuration_error::{Cause, ConfigurationError};
use crate::connection_error::ConnectionError;
use crate::dial::Destination;
use crate::options::ProxyClient;

/// Requests at a time on one connection: what every server of HTTP/2 should allow. Source: RFC 9113, section 6.5.2.
const STREAMS_MAX: usize = 100;
/// Connections to one group-version's servers that many requests share.
const CONNECTIONS_MAX: usize = 64;
/// Connections to them that serve a request each: HTTP/1.1.
const SINGLE_MAX: usize = 256;
/// How long a connection is kept on which nothing is under way. Source: `IdleConnTimeout` of upstream's transport.
const IDLE_MAX: Duration = Duration::from_secs(90);
/// How long a handshake may take. Source: `TLSHandshakeTimeout` of upstream's transport.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// How often a connection is looked at, and how long it may be silent then. Source: `ReadIdleTimeout` and `PingTimeout`
/// of upstream's transport.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_MAX: Duration = Duration::from_secs(15);

/// The way to whoever serves a group-version.
pub struct Link {
    target: Target,
    tls: Result<Tls, Arc<ConfigurationError>>,
    shared: Mutex<Vec<Shared>>,
    single: Arc<Semaphore>,
}

struct Tls {
    name: ServerName<'static>,
    /// Whatever both sides speak best.
    any: TlsConnector,
    /// What can switch protocols.
    first: TlsConnector,
}

struct Shared {
    authority: String,
    sender: http2::SendRequest<Body>,
    /// As many others as requests are under way.
    under_way: Arc<()>,
    last_used: Instant,
}

/// The resources that a request holds as long as its answer comes.
pub enum Held {
    /// A place on a connection.
    Stream(Arc<()>),
    /// A connection.
    Single(OwnedSemaphorePermit),
    /// Nothing: a client's own connection that has switched protocols counts.
    Nothing,
}

/// A connection that is new.
enum Fresh {
    Shared(http2::SendRequest<Body>),
    Single(Box<TlsStream<Connection>>),
}

impl Link {
    /// The way to `target`, for which nothing is connected yet.
    pub fn new(target: Target, client: Option<&ProxyClient>) -> Self {
        Self::by(both(&target, client), target)
    }

    /// A way that leads nowhere, and why.
    pub fn faulty(target: Target, why: impl Into<Cause>) -> Self {
        Self::by(Err(ConfigurationError::unusable(why)), target)
    }

    fn by(tls: Result<Tls, ConfigurationError>, target: Target) -> Self {
        let tls = tls.map_err(Arc::new);
        Self { target, tls, shared: Mutex::default(), single: Arc::new(Semaphore::new(SINGLE_MAX)) }
    }

    /// The target.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The reason why it leads nowhere, if what the APIService says of certificates cannot be used.
    pub fn fault(&self) -> Option<&Arc<ConfigurationError>> {
        self.tls.as_ref().err()
    }

    /// Sends a request, whose URI is a path, and answers with the head of the response.
    ///
    /// # Errors
    /// What went wrong, in Go's words where it has some.
    pub async fn send(
        &self,
        api: &Api,
        to: &Destination,
        mut request: Request<Body>,
    ) -> Result<(Response<Incoming>, Held), ConnectionError> {
        let authority = to.authority();
        let path = request.uri().clone();
        // A connection that was closed while nobody used it gives the request back.
        while let Some((mut sender, under_way)) = self.take(&authority) {
            *request.uri_mut() = absolute(&authority, &path)?;
            *request.version_mut() = Version::HTTP_2;
            request.headers_mut().remove(HOST);
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, Held::Stream(under_way))),
                Err(mut failure) => match failure.take_message() {
                    Some(unsent) => {
                        self.shared.lock().retain(|one| !Arc::ptr_eq(&one.under_way, &under_way));
                        request = unsent;
                    }
                    None => return Err(ConnectionError::Stream(failure.into_error())),
                },
            }
        }
        match self.connect(api, to).await? {
            Fresh::Shared(mut sender) => {
                let under_way = self.keep(&authority, sender.clone())?;
                *request.uri_mut() = absolute(&authority, &path)?;
                *request.version_mut() = Version::HTTP_2;
                request.headers_mut().remove(HOST);
                let response = sender.send_request(request).await.map_err(ConnectionError::Stream)?;
                Ok((response, Held::Stream(under_way)))
            }
            Fresh::Single(stream) => {
                let permit = Arc::clone(&self.single).try_acquire_owned();
                let permit = permit.map_err(|_| ConnectionError::TooMany)?;
                *request.uri_mut() = path;
                let response = single(api, &authority, *stream, request).await?;
                Ok((response, Held::Single(permit)))
            }
        }
    }

    /// Sends a request that is to switch protocols, on a connection of its own.
    ///
    /// # Errors
    /// As [`Link::send`].
    pub async fn switch(
        &self,
        api: &Api,
        to: &Destination,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, ConnectionError> {
        let tls = self.tls.as_ref().map_err(Clone::clone)?;
        let stream = handshake(&tls.first, tls.name.clone(), to).await?;
        single(api, &to.authority(), stream, request).await
    }

    /// A place on a connection that is there.
    fn take(&self, authority: &str) -> Option<(http2::SendRequest<Body>, Arc<()>)> {
        let now = Instant::now();
        let mut shared = self.shared.lock();
        shared.retain(|one| {
            let is_idle = Arc::strong_count(&one.under_way) == 1;
            let is_over = is_idle && now.duration_since(one.last_used) > IDLE_MAX;
            !(is_over || one.sender.is_closed())
        });
        let has_room = |one: &&mut Shared| {
            one.authority == authority && Arc::strong_count(&one.under_way) <= STREAMS_MAX
        };
        let found = shared.iter_mut().find(has_room)?;
        found.last_used = now;
        Some((found.sender.clone(), Arc::clone(&found.under_way)))
    }

    /// Keeps a connection for others, and takes the first place on it.
    fn keep(&self, authority: &str, sender: http2::SendRequest<Body>) -> Result<Arc<()>, ConnectionError> {
        let under_way = Arc::new(());
        let mut shared = self.shared.lock();
        if shared.len() >= CONNECTIONS_MAX {
            return Err(ConnectionError::TooMany);
        }
        let held = Arc::clone(&under_way);
        shared.push(Shared { authority: authority.to_owned(), sender, under_way, last_used: Instant::now() });
        Ok(held)
    }

    async fn connect(&self, api: &Api, to: &Destination) -> Result<Fresh, ConnectionError> {
        let tls = self.tls.as_ref().map_err(Clone::clone)?;
        let stream = handshake(&tls.any, tls.name.clone(), to).await?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Ok(Fresh::Single(Box::new(stream)));
        }
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).keep_alive_interval(PING_EVERY).keep_alive_timeout(PING_MAX);
        let (sender, connection) =
            builder.handshake(TokioIo::new(stream)).await.map_err(ConnectionError::Stream)?;
        api.serving.spawn("aggregated connection", async move {
            if let Err(failure) = connection.await {
                debug!(%failure, "connection to an aggregated API ended");
            }
        });
        Ok(Fresh::Shared(sender))
    }
}

async fn handshake(
    connector: &TlsConnector,
    name: ServerName<'static>,
    to: &Destination,
) -> Result<TlsStream<Connection>, ConnectionError> {
    let connecting = connector.connect(name, backend::connect(to).await?);
    match tokio::time::timeout(HANDSHAKE_MAX, connecting).await {
        Ok(connected) => connected.map_err(ConnectionError::Tls),
        Err(_) => Err(ConnectionError::HandshakeTimeout),
    }
}

async fn single(
    api: &Api,
    authority: &str,
    stream: TlsStream<Connection>,
    mut request: Request<Body>,
) -> Result<Response<Incoming>, ConnectionError> {
    *request.version_mut() = Version::HTTP_11;
    if let Ok(value) = authority.parse() {
        request.headers_mut().insert(HOST, value);
    }
    backend::exchange(api, stream, request).await
}

fn absolute(authority: &str, path: &Uri) -> Result<Uri, ConnectionError> {
    let path = path.path_and_query().map_or("/", |path| path.as_str());
    Ok(Uri::builder().scheme("https").authority(authority).path_and_query(path).build()?)
}

fn both(target: &Target, client: Option<&ProxyClient>) -> Result<Tls, ConfigurationError> {
    let name = target.service.server_name();
    let name = ServerName::try_from(name.clone())
        .map_err(|_| ConfigurationError::rule(format!("{name:?} is no name of a server")))?;
    let config = |protocols| -> Result<TlsConnector, ConfigurationError> {
        let identity = client.map(|client| Identity::from_pem(&client.certificate_pem, &client.key_pem));
        let identity = identity.transpose().map_err(ConfigurationError::unusable)?;
        tls::connector(trust(&target.trust)?, identity, protocols).map_err(ConfigurationError::unusable)
    };
    Ok(Tls { name, any: config(tls::HTTP2)?, first: config(tls::HTTP1)? })
}

fn trust(trust: &Trust) -> Result<tls::Trust, ConfigurationError> {
    let (roots, without) = match trust {
        Trust::Anybody => return Ok(tls::Trust::Anybody),
        Trust::Authorities(pem) => (
            tls::usable_authorities(pem),
            "unable to load root certificates: unable to parse bytes as PEM block",
        ),
        Trust::Host => {
            (tls::authorities_of_host(), "the host has no certificate authorities, and caBundle names none")
        }
    };
    match roots.is_empty() {
        true => Err(ConfigurationError::rule(without)),
        false => Ok(tls::Trust::Authorities(roots)),
    }
}
