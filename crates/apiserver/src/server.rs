//! Starts an API server: loads the cache, listens, serves, drains.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base::connections::{self, Activity, Connections, Kept, Limits, Slot};
use base::{Clock, Random, Tasks, listen};
use encryption::Encryption;
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use store::{Store, StoreError};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;
use tracing::{debug, info, warn};

use crate::aggregation::{self, Aggregation};
use crate::api::Api;
use crate::at_rest::AtRest;
use crate::audit::Audit;
use crate::authorization_config::Authorization;
use crate::body::while_body::WhileBody;
use crate::cache::{Cache, CacheEvent, Keys, feed};
use crate::catalogue::{Catalogue, ChangeError, Kinds, Offer};
use crate::cluster::Cluster;
use crate::config::Config;
use crate::configuration_error::{ConfigurationError, ReadFile};
use crate::conversion::Converters;
use crate::custom::Definitions;
use crate::flow_control::FlowControl;
use crate::kubelet_client::KubeletClient;
use crate::match_conditions::MatchConditions;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::policies::Policies;
use crate::progress::Progress;
use crate::resource_metrics::ResourceMetrics;
use crate::respond::Body;
use crate::security::peer::{Certificates, Presented};
use crate::security::{Outside, Security};
use crate::service::ApiService;
use crate::trace::Trace;
use crate::tunnels::Tunnels;
use crate::webhook_dial::Dialer;
use crate::webhooks::Webhooks;
use crate::webhooks::client::Dial;
use crate::webhooks::conditions::Compile;
use crate::write::allocation::quota::UsageCache;
use crate::write::allocation::service::{self, NodePorts};
use crate::write::door::Door;
use crate::write::{Writer, loopback};

/// How long a client may take to ask for something. Source: `ReadHeaderTimeout` of upstream's server.
const FIRST_REQUEST_MAX: Duration = Duration::from_secs(32);
/// How long a connection is kept on which nothing is asked. Source: `IdleTimeout` of upstream's server.
const IDLE_MAX: Duration = Duration::from_secs(90);
/// How many descriptors there are taken to be where the kernel does not say.
const DESCRIPTORS_MAX: usize = 4096;
/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long connections get to finish at shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The reason why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store could not be read.
    #[error("cannot read the store")]
    Store(#[from] StoreError),
    /// Built-in kinds cannot be served.
    #[error("cannot serve the built-in kinds")]
    Kinds(#[source] ChangeError),
    /// The address could not be taken.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The audit log cannot be opened.
    #[error("cannot open the audit log")]
    Audit(#[source] std::io::Error),
    /// Certificates or keys are not usable.
    #[error("cannot set up TLS")]
    Tls(#[source] ConfigurationError),
}

impl From<ChangeError> for StartError {
    fn from(failure: ChangeError) -> Self {
        match failure {
            ChangeError::Store(failure) => Self::Store(failure),
            failure => Self::Kinds(failure),
        }
    }
}

/// A running API server.
pub struct ApiServer {
    api: Arc<Api>,
    address: Option<SocketAddr>,
}

impl ApiServer {
    /// The in-process entrance; put an [`auth::UserInfo`] into the requests' extensions.
    pub fn service(&self) -> ApiService {
        ApiService::new(Arc::clone(&self.api))
    }

    /// The kinds that it serves: more can be added while it runs.
    pub fn catalogue(&self) -> &Catalogue {
        &self.api.catalogue
    }

    /// The address on which it listens, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The process's metrics: parts that run beside the server count in the same registry.
    pub fn metrics(&self) -> &base::Metrics {
        self.api.metrics.registry()
    }

    /// Waits until definitions of kinds after `revision` are served, and then no other for as long as `rest`: up to which
    /// revision.
    pub async fn definitions_rested(&self, revision: store::Revision, rest: Duration) -> store::Revision {
        self.api.custom.rested(revision, rest).await
    }

    /// Keeps what caused what for the next run, where [`Options::trace_file`] says.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save_trace(&self) -> std::io::Result<()> {
        self.api.config.options.trace_file.as_deref().map_or(Ok(()), |file| self.api.trace.save(file))
    }

    /// Encrypts by another configuration from now on; says whether it is another one.
    ///
    /// # Errors
    /// If it cannot be used. Then nothing changes.
    pub async fn reload_encryption(&self, text: &[u8]) -> Result<bool, encryption::ConfigError> {
        match self.api.at_rest.encryption() {
            Some(encryption) => encryption.reload(text).await,
            None => Ok(false),
        }
    }

    /// Has those asked whether somebody may whom an AuthorizationConfiguration names; says whether they are others.
    /// `read` reads what it names.
    ///
    /// # Errors
    /// If it cannot be used. Then nothing changes.
    pub fn reload_authorization(&self, text: &str, read: impl ReadFile) -> Result<bool, ConfigurationError> {
        self.api.security.reload_authorization(text, read)
    }

    /// The same for those whom flags name, whose files have changed.
    ///
    /// # Errors
    /// As [`Self::reload_authorization`].
    pub fn replace_authorization(&self, config: Authorization) -> Result<bool, ConfigurationError> {
        self.api.security.replace_authorization(config)
    }

    /// Believes from now on the issuers of another AuthenticationConfiguration, as soon as they have told their keys; says
    /// whether it is another one.
    ///
    /// # Errors
    /// If it cannot be used. Then nothing changes.
    pub async fn reload_authentication(&self, text: &str) -> Result<bool, ConfigurationError> {
        self.api.security.reload_authentication(text).await
    }

    /// Waits until the bootstrap objects are there.
    pub async fn ready(&self) {
        self.api.wait_bootstrapped().await;
    }
}

/// Starts a server; it runs in `tasks` until these stop.
///
/// # Errors
/// As [`StartError`].
pub async fn start(
    config: Config,
    store: Arc<dyn Store>,
    tasks: Tasks,
    clock: Clock,
    random: Random,
) -> Result<ApiServer, StartError> {
    let metrics = Metrics::default();
    let at_rest = Arc::new(at_rest(&config, &metrics, &clock, &tasks).await);
    let dialer = Arc::new(Dialer::default());
    let cache = Cache::encrypted(Arc::clone(&store), Arc::clone(&at_rest));
    let cluster = cluster(config, cache, metrics, clock, random, &dialer, &tasks).await?;
    let definitions = Definitions::load(&cluster).await;
    // Nobody is let in before there is something to read.
    let listener = bind(cluster.config.bind).await?;
    let tls = listener.as_ref().map(|_| tls(&cluster.config)).transpose()?;
    let bound = listener.as_ref().and_then(|listener| listener.local_addr().ok());
    let cluster = Cluster { bound, ..cluster };
    let (config, clock, cache) = (&cluster.config, cluster.clock.clone(), Arc::clone(&cluster.cache));
    let (serving, ending) = (tasks.outlasting(), tasks.outlasting());
    let audit = config.options.audit.clone();
    let audit = audit
        .map(|audit| {
            let (registry, random) = (cluster.metrics.registry(), cluster.random.clone());
            Audit::start(audit, &ending, registry, clock.clone(), random).map(Arc::new)
        })
        .transpose()
        .map_err(StartError::Audit)?;
    let trace = Arc::new(Trace::new(clock.clone()));
    let file = config.options.trace_file.clone();
    tasks.spawn("trace", Arc::clone(&trace).remember(file, Arc::clone(&cache), cache.revision()));
    let quota = Arc::new(UsageCache::default());
    let (catalogue, security) = (Arc::clone(&cluster.catalogue), Arc::clone(&cluster.security));
    let followers =
        Followers { catalogue, trace: Arc::clone(&trace), security, quota: Arc::clone(&quota), clock };
    // Requests that are under way while the server stops need the cache to the end.
    let follow = feed::follow(Arc::clone(&cache), Arc::new(followers), cluster.random.clone());
    ending.spawn("watch-cache", follow);
    tasks.spawn("compaction", crate::compaction::run(Arc::clone(&cache), Arc::clone(&store)));
    let api = Arc::new(Api {
        flow: FlowControl::new(config.requests_in_flight_max, cluster.metrics.registry()),
        kubelets: KubeletClient::new(config),
        custom: Progress::default(),
        state: crate::api::State::new(config.requests_in_flight_max),
        writer: Writer {
            door: Door::new(store, Arc::clone(&at_rest), cache),
            node_ports: NodePorts::new(config.node_ports),
            loopback: &loopback::Client,
            quota,
            cluster,
        },
        at_rest,
        audit,
        trace,
        tasks,
        serving,
    });
    dialer.is_for(&api);
    api.catalogue.delegate(Arc::new(ResourceMetrics::new(Arc::downgrade(&api)))).await;
    spawn_followers(&api, definitions);
    if let Some(address) = bound {
        info!(%address, "serving");
    }
    let served = Arc::clone(&api);
    api.tasks.spawn_to_end("listener", async move {
        match listener.zip(tls) {
            Some((listener, tls)) => listen(served, listener, tls).await,
            None => {
                closing(&served).await;
                served.serving.stop();
            }
        }
        ending.stop();
    });
    Ok(ApiServer { api, address: bound })
}

/// What is known at the start: the built-in kinds, what the store has of them, and who may what.
async fn cluster(
    config: Config,
    cache: Cache,
    metrics: Metrics,
    clock: Clock,
    random: Random,
    dialer: &Arc<Dialer>,
    tasks: &Tasks,
) -> Result<Cluster, StartError> {
    let cache = Arc::new(cache);
    cache.begin(Keys::below(crate::addresses::PREFIX));
    cache.begin(Keys::below(service::PREFIX));
    let catalogue = Arc::new(Catalogue::new(Arc::clone(&cache)));
    catalogue.add(Offer::builtin()).await?;
    let builtin = Kinds::clone(&catalogue.current());
    let known = (Arc::clone(&cache), builtin.clone());
    let registry = metrics.registry().clone();
    let outside = Outside { tasks: tasks.clone(), random: random.clone(), registry };
    let security = Security::new(&config, clock.clone(), known, outside);
    let security = Arc::new(security.map_err(StartError::Tls)?);
    security.load(&cache);
    let dial: Arc<dyn Dial> = Arc::clone(dialer) as Arc<dyn Dial>;
    let conditions: Arc<dyn Compile> = Arc::new(MatchConditions(Arc::clone(&security)));
    let credentials = config.options.webhook_credentials.clone();
    let webhooks = Webhooks::new(&builtin, credentials, &dial, tasks, &conditions, metrics.registry());
    let policies = Policies::new(&builtin, metrics.registry());
    let converters = Arc::new(Converters::new(&dial, tasks, &random, metrics.registry()));
    let tunnels = Tunnels::new(config.options.egress_selector_mode, metrics.registry());
    let bound = None;
    Ok(Cluster {
        config,
        bound,
        cache,
        catalogue,
        builtin,
        security,
        webhooks,
        policies,
        converters,
        tunnels,
        metrics,
        clock,
        random,
    })
}

/// Who is told of every change before clients are.
struct Followers {
    catalogue: Arc<Catalogue>,
    trace: Arc<Trace>,
    security: Arc<Security>,
    quota: Arc<UsageCache>,
    clock: Clock,
}

impl feed::Observer for Followers {
    fn loaded(&self, cache: &Cache) {
        self.security.load(cache);
        self.quota.clear();
    }

    fn committed(&self, cache: &Cache, event: &store::Event) {
        self.trace.committed(cache, event);
    }

    fn changed(&self, prefix: &str, event: &CacheEvent) {
        self.quota.observe(&self.catalogue, prefix, event, self.clock.now());
        self.security.observe(prefix, event);
    }
}

async fn bind(address: Option<SocketAddr>) -> Result<Option<TcpListener>, StartError> {
    let Some(address) = address else { return Ok(None) };
    let listener = listen::everywhere(address);
    listener.map(Some).map_err(|source| StartError::Listen { address, source })
}

/// How values are stored. KMS plugins are asked for the first time here.
async fn at_rest(config: &Config, metrics: &Metrics, clock: &Clock, tasks: &Tasks) -> AtRest {
    let Options { encryption, reloads_encryption, .. } = &config.options;
    let id = config.advertise_address.to_string();
    let (registry, clock) = (metrics.registry(), clock.clone());
    AtRest::new(
        Encryption::start(encryption.as_ref(), *reloads_encryption, &id, registry, clock, tasks).await,
    )
}

/// Our certificate, and whose certificates are believed.
fn tls(config: &Config) -> Result<Tls, StartError> {
    let proxy_ca = config.options.front_proxy.as_ref().map(|proxy| proxy.client_ca_pem.as_slice());
    let certificates = Certificates::new(&config.client_ca_pem, proxy_ca).map_err(StartError::Tls)?;
    let certificates = Arc::new(certificates);
    let acceptor = acceptor(config, Arc::clone(&certificates));
    let acceptor = acceptor.map_err(|failure| StartError::Tls(ConfigurationError::unusable(failure)))?;
    Ok(Tls { acceptor, certificates })
}

/// What makes the first objects, and what follows the cache beside requests.
fn spawn_followers(api: &Arc<Api>, definitions: Definitions) {
    let custom = Arc::clone(api);
    api.serving.spawn("custom-kinds", async move { definitions.follow(&custom).await });
    let bootstrap = Arc::clone(api);
    api.tasks.spawn("bootstrap", async move { crate::bootstrap::run_until_done(&bootstrap).await });
    let addresses = Arc::clone(api);
    api.serving.spawn("service-addresses", async move {
        addresses.wait_bootstrapped().await;
        service::repair::follow(&addresses).await;
    });
    let checked = Arc::clone(api);
    api.serving.spawn("policy-status", async move { crate::policy_status::follow(&checked).await });
    let tunnelled = Arc::clone(api);
    api.serving.spawn("tunnels", async move { crate::tunnel_requests::follow(&tunnelled).await });
    let used = Arc::clone(api);
    api.serving.spawn("token-use", async move { crate::token_use::follow(&used).await });
    spawn_aggregation(api);
    let alive = Arc::clone(api);
    api.serving.spawn("identity lease", async move { crate::lease::identity::follow(&alive).await });
    if api.config.options.is_one_of_many {
        let alive = Arc::clone(api);
        api.tasks.spawn_to_end("master lease", async move { crate::lease::follow(&alive).await });
    }
    if api.config.options.is_fair {
        let fair = Arc::clone(api);
        api.serving.spawn("flow-control", async move {
            let maintain = || bootstrap_flow(&fair);
            fair.flow.follow(&fair, maintain).await;
        });
    }
}

/// What follows APIServices, and whoever is behind them.
fn spawn_aggregation(api: &Arc<Api>) {
    let aggregation = Arc::new(Aggregation::new(api));
    let (known, followed) = (Arc::clone(&aggregation), Arc::clone(api));
    api.serving.spawn("api-services", async move { aggregation::follow(&followed, &known).await });
    let attended = Arc::clone(api);
    api.serving.spawn("aggregated apis", async move {
        aggregation::servers::follow(&attended, &aggregation).await;
    });
    let own = Arc::clone(api);
    api.serving.spawn("autoregister", async move { aggregation::auto_register::follow(&own).await });
}

/// Keeps flow control's own objects, once the first of them are there.
fn bootstrap_flow(api: &Api) -> BoxFuture<'_, crate::status::Result<()>> {
    Box::pin(async move {
        if !api.is_bootstrapped() {
            return Ok(());
        }
        crate::bootstrap::flow::maintain(api).await
    })
}

fn acceptor(config: &Config, certificates: Arc<Certificates>) -> Result<TlsAcceptor, tls::Error> {
    let chain = tls::certificates(&config.certificate_pem)?;
    let key = PrivateKeyDer::from_pem_slice(&config.key_pem).map_err(tls::Error::Key)?;
    let mut server = rustls::ServerConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(certificates)
        .with_single_cert(chain, key)?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(server)))
}

/// What handshakes need.
#[derive(Clone)]
struct Tls {
    acceptor: TlsAcceptor,
    certificates: Arc<Certificates>,
}

/// Accepts connections until the tasks stop, then lets those under way finish.
async fn listen(api: Arc<Api>, listener: TcpListener, tls: Tls) {
    let (draining, is_draining) = watch::channel(false);
    let usual = || Limits::of(connections::descriptors_max(DESCRIPTORS_MAX));
    let connections = Connections::new(api.config.options.connections.unwrap_or_else(usual));
    let (open, mut all_ended) = mpsc::channel::<()>(1);
    let closing = closing(&api);
    tokio::pin!(closing);
    loop {
        let (stream, address) = tokio::select! {
            accepted = listen::accepted("API server", || listener.accept()) => accepted,
            () = &mut closing => break,
        };
        let address = listen::plain(address);
        let held = Held { tls: tls.clone(), ending: is_draining.clone(), _open: open.clone() };
        let slot = connections.take(address.ip());
        let api = Arc::clone(&api);
        let tasks = api.tasks.clone();
        tasks.spawn_to_end("connection", async move {
            tokio::select! {
                () = connection(api, stream, address, Arc::clone(&slot), held) => {}
                () = slot.gives_way() => debug!(%address, "a connection gave way to another"),
            }
        });
    }
    drop(listener);
    api.serving.stop();
    draining.send_replace(true);
    drop(open);
    // Nothing is ever sent: it ends with the last connection.
    if tokio::time::timeout(DRAIN_TIMEOUT, all_ended.recv()).await.is_err() {
        warn!("connections were cut at shutdown");
    }
}

/// What a connection has of the listener.
struct Held {
    tls: Tls,
    /// Whether the listener has closed.
    ending: watch::Receiver<bool>,
    /// That there is a connection.
    _open: mpsc::Sender<()>,
}

async fn connection(api: Arc<Api>, stream: TcpStream, address: SocketAddr, slot: Arc<Slot>, mut held: Held) {
    if let Err(failure) = stream.set_nodelay(true) {
        debug!(%failure, "cannot set TCP_NODELAY");
    }
    let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, held.tls.acceptor.accept(stream));
    let stream = match handshake.await {
        Ok(Ok(stream)) => stream,
        Ok(Err(failure)) => return debug!(%failure, %address, "TLS handshake failed"),
        Err(_) => return debug!(%address, "TLS handshake took too long"),
    };
    let presented = Presented::new(held.tls.certificates, stream.get_ref().1.peer_certificates(), address);
    let activity = Activity::begin();
    // What has switched protocols goes on without this task, and keeps its slot.
    let stream = Kept::new(stream, Arc::clone(&slot));
    let service = service(Arc::clone(&api), Arc::new(presented), slot, activity.clone());
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(FIRST_REQUEST_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(1000)
        .keep_alive_interval(Duration::from_secs(30));
    let serving =
        builder.serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(service));
    let graceful = GracefulShutdown::new();
    let serving = graceful.watch(serving.into_owned());
    tokio::pin!(serving);
    let served = tokio::select! {
        served = &mut serving => served,
        () = cut(&api) => return debug!(%address, "connection cut"),
        // What is asked by then is answered, and nothing more.
        () = ended(&activity, &mut held.ending) => tokio::select! {
            served = &mut serving => served,
            // Its end is that the future above is dropped.
            () = graceful.shutdown() => return,
            () = tokio::time::sleep(DRAIN_TIMEOUT) => return debug!(%address, "connection cut"),
        },
    };
    if let Err(failure) = served {
        debug!(%failure, %address, "connection ended");
    }
}

/// Ends when no more requests are taken on a connection: the listener has closed, or nobody asks.
async fn ended(activity: &Activity, ending: &mut watch::Receiver<bool>) {
    tokio::select! {
        () = activity.is_idle(FIRST_REQUEST_MAX, IDLE_MAX) => {}
        _ = ending.wait_for(|is_ending| *is_ending) => {}
    }
}

/// The API for one connection: requests know where they come from, and the connection knows of them.
fn service(
    api: Arc<Api>,
    presented: Arc<Presented>,
    slot: Arc<Slot>,
    activity: Activity,
) -> impl tower::Service<
    http::Request<hyper::body::Incoming>,
    Response = http::Response<Body>,
    Error = Infallible,
    Future: Send,
> + Clone
+ Send {
    let clock = api.clock.clone();
    let api = ApiService::new(api);
    tower::service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
        let underway = activity.request();
        request.extensions_mut().insert(presented.peer(clock.now()));
        request.extensions_mut().insert(Arc::clone(&slot));
        let answered = api.clone().oneshot(request);
        async move {
            let response = answered.await?;
            Ok(response.map(|body| WhileBody::new(body, underway).boxed_unsync()))
        }
    })
}

/// Ends when no more connections are taken: readiness fails first, so that load balancers look elsewhere.
async fn closing(api: &Api) {
    api.tasks.stopping().await;
    tokio::time::sleep(api.config.options.shutdown_delay).await;
}

/// Ends when the drain's time is over.
async fn cut(api: &Api) {
    api.serving.stopping().await;
    tokio::time::sleep(DRAIN_TIMEOUT).await;
}
