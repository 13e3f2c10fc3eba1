//! The port of a part that runs alone, which says how the part is: health and metrics, over TLS.
//!
//! Certificates and bearer tokens say who asks, the API server says whether they may; some paths are everybody's.
//! Source: `k8s.io/controller-manager/app/serve.go`, `DelegatingAuthenticationOptions`, `DelegatingAuthorizationOptions`.

mod access;

use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use auth::pki::{Subject, self_signed};
use base::connections::{Connections, Kept, Limits, Share, Slot, Standing};
use base::health::{Checks, Results};
use cli::args::ServingArgs;
use controller::Informers;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use access::{Certified, PortAccess, Refusal};

/// How long a handshake may take, and how long a connection may wait for a request.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEAD_TIMEOUT: Duration = Duration::from_secs(32);

/// How many connections there may be: those who ask are few.
const LIMITS: Limits = Limits {
    strangers: Share { all: 64, of_source: 16 },
    known: Share { all: 64, of_source: 32 },
    own: Share { all: 64, of_source: 64 },
    is_loopback_own: false,
};

type Answer = Response<Full<Bytes>>;

/// The port.
struct Port {
    access: PortAccess,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    /// The authority of clients, as it was last, and what follows from it.
    tls: Mutex<Option<(Option<String>, Arc<rustls::ServerConfig>)>>,
    informers: Informers,
}

/// Listens, unless the port is 0.
///
/// # Errors
/// If files cannot be read, or somebody else has the port.
pub(super) async fn start(args: &ServingArgs, default_port: u16, informers: &Informers) -> Result<()> {
    let port = args.secure_port.unwrap_or(default_port);
    if port == 0 {
        return Ok(());
    }
    let address = SocketAddr::new(args.bind_address, port);
    let access = PortAccess::new(args, informers.tasks()).await?;
    let (chain, key) = identity(args, informers)?;
    let registry = informers.metrics().registry();
    base::metrics::process::register(registry);
    let (name, help, labels) = machinery::version::build_info();
    registry.info(name, help, &labels);
    let tls = Mutex::new(None);
    let port = Arc::new(Port { access, chain, key, tls, informers: informers.clone() });
    // A certificate that cannot be used is told of now.
    port.tls()?;
    let listener = base::listen::everywhere(address);
    let listener =
        listener.with_context(|| format!("listen on {address} (--bind-address, --secure-port)"))?;
    tracing::info!(%address, "health and metrics are served");
    informers.tasks().spawn("serving", serve(port, listener));
    Ok(())
}

/// Serves health and metrics to whoever reaches this listener, which is on loopback and tells nothing but numbers.
pub(super) fn start_plain(listener: TcpListener, informers: &Informers) {
    let registry = informers.metrics().registry();
    base::metrics::process::register(registry);
    let (name, help, labels) = machinery::version::build_info();
    registry.info(name, help, &labels);
    let connections = Connections::new(LIMITS);
    let informers = informers.clone();
    informers.tasks().clone().spawn("serving", async move {
        loop {
            let (stream, slot) = accepted(&listener, &connections).await;
            let known = informers.clone();
            informers.tasks().spawn("serving connection", async move {
                let service = service_fn(move |request: Request<Incoming>| {
                    let query = request.uri().query().unwrap_or_default();
                    let told = match *request.method() {
                        Method::GET | Method::HEAD => route(&known, request.uri().path(), query),
                        _ => text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n".to_owned()),
                    };
                    std::future::ready(Ok::<_, Infallible>(told))
                });
                let mut builder = http1::Builder::new();
                builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
                let stream = Kept::new(stream, slot);
                if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
                    tracing::debug!(%error, "a connection ended");
                }
            });
        }
    });
}

/// The next connection, and its slot.
async fn accepted(listener: &TcpListener, connections: &Arc<Connections>) -> (TcpStream, Arc<Slot>) {
    let (stream, address) = base::listen::accepted("component", || listener.accept()).await;
    (stream, connections.take(base::listen::plain(address).ip()))
}

/// The certificate of the files, or one of our own.
fn identity(
    args: &ServingArgs,
    informers: &Informers,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    if let (Some(certificate), Some(key)) = (&args.tls_cert_file, &args.tls_private_key_file) {
        let key = PrivateKeyDer::from_pem_file(key).with_context(|| format!("read {}", key.display()))?;
        return Ok((read_certificates(certificate)?, key));
    }
    let addresses = [args.bind_address, Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let addresses = addresses.into_iter().filter(|address| !address.is_unspecified()).collect();
    let name = informers.metrics().part();
    let subject = Subject::server(name, name, vec!["localhost".to_owned()], addresses);
    let own = self_signed(&subject, informers.clock().now())?;
    let chain = CertificateDer::pem_slice_iter(own.certificate_pem.as_bytes()).collect::<Result<_, _>>()?;
    Ok((chain, PrivateKeyDer::from_pem_slice(own.key_pem.as_bytes())?))
}

/// The certificates of a PEM file.
///
/// # Errors
/// If it cannot be read.
pub(super) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    all.with_context(|| format!("read {}", path.display()))
}

/// TLS for a port whose clients may show a certificate of these authorities; what their holders may do is said elsewhere.
///
/// # Errors
/// If an authority, the certificate or its key is none.
pub(super) fn tls(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    authorities: Option<Vec<CertificateDer<'static>>>,
) -> Result<rustls::ServerConfig> {
    let provider = tls::provider();
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions()?;
    let builder = if let Some(authorities) = authorities {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in authorities {
            roots.add(certificate)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        // Who has no certificate may have a token.
        builder.with_client_cert_verifier(verifier.allow_unauthenticated().build()?)
    } else {
        builder.with_no_client_auth()
    };
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

impl Port {
    /// TLS with the authority of clients as it is now.
    fn tls(&self) -> Result<Arc<rustls::ServerConfig>> {
        let authority = self.access.client_authority();
        let mut known = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, config)) = &*known
            && *of == authority
        {
            return Ok(config.clone());
        }
        let read = |pem: &String| CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>();
        let authorities =
            authority.as_ref().map(read).transpose().context("read the authority of clients")?;
        let config = Arc::new(tls(self.chain.clone(), self.key.clone_key(), authorities)?);
        *known = Some((authority, config.clone()));
        Ok(config)
    }
}

async fn serve(port: Arc<Port>, listener: TcpListener) {
    let connections = Connections::new(LIMITS);
    loop {
        let (stream, slot) = accepted(&listener, &connections).await;
        let port = port.clone();
        port.informers.tasks().clone().spawn("serving connection", async move {
            let ended = tokio::select! {
                ended = connection(port, stream, slot.clone()) => ended,
                () = slot.gives_way() => Ok(()),
            };
            if let Err(error) = ended {
                tracing::debug!(error = format!("{error:#}"), "a connection ended");
            }
        });
    }
}

async fn connection(port: Arc<Port>, stream: TcpStream, slot: Arc<Slot>) -> Result<()> {
    stream.set_nodelay(true)?;
    let acceptor = TlsAcceptor::from(port.tls()?);
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await??;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let certified = Arc::new(certificate.and_then(|certificate| Certified::of(certificate)));
    let stream = Kept::new(stream, slot.clone());
    let service = service_fn(move |request| {
        let (port, certified, slot) = (port.clone(), certified.clone(), slot.clone());
        async move { Ok::<_, Infallible>(answer(&port, certified.as_ref().as_ref(), &slot, &request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    Ok(builder.serve_connection(TokioIo::new(stream), service).await?)
}

async fn answer(
    port: &Port,
    certified: Option<&Certified>,
    slot: &Slot,
    request: &Request<Incoming>,
) -> Answer {
    let (method, path) = (request.method(), request.uri().path());
    let now = port.informers.clock().now();
    // A connection may outlive the certificate that it began with.
    let certified = certified.filter(|certified| certified.is_valid(now));
    match port.access.pass(certified, method, path, request.headers()).await {
        Err(refusal) => return refused(&refusal),
        Ok(is_known) if is_known => slot.prove(Standing::Known),
        Ok(_) => {}
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n".to_owned());
    }
    route(&port.informers, path, request.uri().query().unwrap_or_default())
}

fn route(informers: &Informers, path: &str, query: &str) -> Answer {
    let registry = informers.metrics().registry();
    let results = Results::of(registry);
    let exposition = match path {
        "/metrics" => Some(registry.render()),
        "/metrics/slis" => Some(results.render()),
        _ => None,
    };
    if let Some(exposition) = exposition {
        let mut answer = text(StatusCode::OK, exposition);
        let value = header::HeaderValue::from_static(base::metrics::CONTENT_TYPE);
        answer.headers_mut().insert(header::CONTENT_TYPE, value);
        return answer;
    }
    let mut parts = path.trim_matches('/').splitn(2, '/');
    let (endpoint, rest) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let not_found = || text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
    if !["healthz", "livez", "readyz"].contains(&endpoint) {
        return not_found();
    }
    let words = || query.split('&').map(|word| word.split_once('=').unwrap_or((word, "")));
    let is_excluded = |name: &str| words().any(|word| word == ("exclude", name));
    let is_asked = |name: &str| (rest.is_empty() || rest == name) && !is_excluded(name);
    // Who lives does not get better by a restart because what it follows is away.
    let parts = if endpoint == "livez" { Vec::new() } else { Checks::of(registry).all() };
    let checks = [("ping".to_owned(), Ok(()))].into_iter().chain(parts);
    let checks: Vec<_> = checks.filter(|(name, _)| is_asked(name)).collect();
    checks.iter().for_each(|(name, found)| results.note(endpoint, name, found.is_ok()));
    let is_verbose = words().any(|(key, _)| key == "verbose");
    let report = base::health::report(endpoint, checks, |_| true, is_verbose);
    match report {
        Some((true, told)) => text(StatusCode::OK, told),
        Some((false, told)) => text(StatusCode::INTERNAL_SERVER_ERROR, told),
        None => not_found(),
    }
}

fn text(code: StatusCode, content: String) -> Answer {
    let mut response = Response::new(Full::new(content.into()));
    *response.status_mut() = code;
    let value = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    let value = header::HeaderValue::from_static("no-cache, private");
    response.headers_mut().insert(header::CACHE_CONTROL, value);
    response
}

/// A Status, as clients of the API expect it; whoever was refused does not keep the connection.
fn refused(refusal: &Refusal) -> Answer {
    let (code, reason) = refusal.code_and_reason();
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": refusal.to_string(), "reason": reason, "code": code.as_u16(),
    });
    let mut answer = text(code, status.to_string());
    let value = header::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, value);
    answer.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    answer
}
