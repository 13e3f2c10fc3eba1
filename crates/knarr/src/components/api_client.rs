//! The connections of a part to the API server, where that is another process.
//!
//! Requests share one connection over HTTP/2, as client-go's do; a server that does not speak it gets a connection per
//! request under way. What lasts (watches, followed logs, streams that switch protocols) has a connection of its own: servers
//! bound how many share one, and a watch holds its place for ever.

use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Result, ensure};
use http::{Request, Response, Uri, header};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tower::retry::RetryLayer;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};

/// How long a connection is kept on which nothing is asked. Source: `IdleConnTimeout` of upstream's transport.
const IDLE_MAX: Duration = Duration::from_secs(90);
/// How often a connection is looked at while something is asked on it, and how long it may be silent then. Source:
/// `ReadIdleTimeout` and `PingTimeout` of upstream's transport.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_MAX: Duration = Duration::from_secs(15);
/// How long a silent connection is trusted. Source: `KeepAlive` of upstream's dialer.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The way to open a connection.
pub(super) type Dial = BoxCloneSyncService<Uri, TokioIo<TcpStream>, BoxError>;

/// Opens connections to the host that a URI names.
///
/// # Errors
/// If `config` asks for a proxy: none is spoken to, and going around it is not what was asked for.
pub(super) fn by_name(config: &kube::Config) -> Result<Dial> {
    ensure!(
        config.proxy_url.is_none(),
        "{} is to be reached through a proxy, which is not supported: take proxy-url out of the kubeconfig, and HTTPS_PROXY out \
         of the environment",
        config.cluster_url
    );
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(SILENCE_MAX));
    Ok(BoxCloneSyncService::new(connector.map_err(Into::into)))
}

/// A client of the API server that `config` names, whose connections `dial` opens.
///
/// # Errors
/// If the configuration's keys cannot be used.
pub(super) fn client(config: &kube::Config, dial: &Dial) -> Result<kube::Client> {
    Ok(builder(config, dial)?.build())
}

/// The same, for layers to be put over it.
///
/// # Errors
/// As [`client`].
pub(super) fn builder(
    config: &kube::Config,
    dial: &Dial,
) -> Result<
    ClientBuilder<
        impl Service<Request<Body>, Response = Response<Incoming>, Error = BoxError, Future: Send> + Send + use<>,
    >,
> {
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(Connections::new(config, dial)?);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()))
}

/// Cloning shares them.
#[derive(Clone)]
struct Connections {
    short: Client<Connector, Body>,
    lasting: Client<Connector, Body>,
}

type Connector = TimeoutConnector<HttpsConnector<Dial>>;

impl Connections {
    fn new(config: &kube::Config, dial: &Dial) -> Result<Self> {
        let pool = |protocols: Protocols| -> Result<_> {
            let mut builder = Client::builder(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE_MAX)
                .http2_keep_alive_interval(PING_EVERY)
                .http2_keep_alive_timeout(PING_MAX);
            Ok(builder.build(connector(config, dial, protocols)?))
        };
        Ok(Self { short: pool(Protocols::All)?, lasting: pool(Protocols::Http1)? })
    }
}

#[derive(Clone, Copy)]
enum Protocols {
    All,
    Http1,
}

fn connector(config: &kube::Config, dial: &Dial, protocols: Protocols) -> Result<Connector> {
    let builder =
        HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    let builder = match &config.tls_server_name {
        None => builder,
        Some(name) => builder
            .with_server_name_resolver(FixedServerNameResolver::new(ServerName::try_from(name.clone())?)),
    };
    let https = match protocols {
        Protocols::All => builder.enable_all_versions().wrap_connector(dial.clone()),
        Protocols::Http1 => builder.enable_http1().wrap_connector(dial.clone()),
    };
    let mut connector = TimeoutConnector::new(https);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    Ok(connector)
}

impl Service<Request<Body>> for Connections {
    type Response = Response<Incoming>;
    type Error = legacy::Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), legacy::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> ResponseFuture {
        if is_lasting(&request) { self.lasting.request(request) } else { self.short.request(request) }
    }
}

/// Whether the answer has no end of its own.
fn is_lasting(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let is_followed = query.split('&').any(|field| {
        matches!(field.split_once('='), Some(("watch" | "follow", value)) if value == "true" || value == "1")
    });
    is_followed || request.headers().contains_key(header::UPGRADE)
}

#[cfg(test)]
mod tests;
