//! The ports: one for the proxy, one for each Service with health checks; and one for metrics, on loopback.
//!
//! Whoever reaches them may ask. They answer what is known, one request at a time, to a bounded number of connections.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use controller::{EventType, Recorder};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::api::core::v1::ObjectReference;
use machinery::net::Family;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;

use super::{Check, CheckKey, Health};
use crate::unspecified;

/// Connections to one port at a time; more wait.
const CONNECTIONS_MAX: usize = 64;
/// Connections that nobody has looked at yet.
const BACKLOG: u32 = 1024;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// A whole connection: those who check come again.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

type Answer = Response<Full<Bytes>>;
/// What a port answers at a path.
type Answers = dyn Fn(&str) -> Answer + Send + Sync;

/// What is asked at a port of the proxy itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// `/healthz` and `/livez`.
    Health,
    /// `/metrics`, `/proxyMode` and `/healthz`, which says `ok`.
    Metrics {
        /// The mode's name.
        mode: &'static str,
    },
}

/// Serves one of the proxy's own ports; at all addresses it is those of the families that are programmed. A port that
/// somebody else has is told of, and the proxy works on without it.
pub(crate) async fn serve(
    port: Port,
    address: SocketAddr,
    health: Health,
    registry: base::metrics::Metrics,
    tasks: &Tasks,
) {
    let answers: Arc<Answers> = match port {
        Port::Health => {
            let health = health.clone();
            Arc::new(move |path| own(&health, path))
        }
        Port::Metrics { mode } => Arc::new(move |path| metrics(&registry, mode, path)),
    };
    for address in meant(address, health.families()) {
        match bind(address) {
            Ok(listener) => tasks.spawn("proxy port", listen(listener, answers.clone(), tasks.clone())),
            Err(error) => tracing::error!(%error, %address, ?port, "the proxy does not answer there"),
        }
    }
}

/// The addresses that one stands for.
fn meant(address: SocketAddr, families: &[Family]) -> Vec<SocketAddr> {
    if !address.ip().is_unspecified() {
        return vec![address];
    }
    families.iter().map(|family| SocketAddr::new(unspecified(*family), address.port())).collect()
}

/// Listens at an address of one family, and leaves the port to others at all addresses of the other one.
fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if address.is_ipv6() {
        setsockopt(&socket, sockopt::Ipv6V6Only, &true)?;
    }
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn own(health: &Health, path: &str) -> Answer {
    let report = health.state().report(path, &health.families, health.clock.now());
    match report {
        Some((code, report)) => {
            health.metrics.asked(path, code);
            in_json(code, &report)
        }
        None => text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
    }
}

fn metrics(registry: &base::metrics::Metrics, mode: &str, path: &str) -> Answer {
    match path {
        "/metrics" => {
            let mut answer = text(StatusCode::OK, registry.render());
            let value = HeaderValue::from_static(base::metrics::CONTENT_TYPE);
            answer.headers_mut().insert(header::CONTENT_TYPE, value);
            answer
        }
        "/healthz" => text(StatusCode::OK, "ok".to_owned()),
        "/proxyMode" => text(StatusCode::OK, mode.to_owned()),
        _ => text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
    }
}

fn text(code: StatusCode, content: String) -> Answer {
    let mut answer = Response::new(Full::new(content.into()));
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

fn in_json(code: StatusCode, report: &serde_json::Value) -> Answer {
    let mut answer = text(code, report.to_string());
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

async fn listen(listener: TcpListener, answers: Arc<Answers>, tasks: Tasks) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let (stream, _) = base::listen::accepted("proxy's health", || listener.accept()).await;
        let answers = answers.clone();
        tasks.spawn("proxy connection", async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = answers(request.uri().path());
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            if let Ok(Err(error)) = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await {
                tracing::debug!(%error, "a connection ended");
            }
            drop(permit);
        });
    }
}

/// The ports of Services.
pub(crate) struct CheckServers {
    health: Health,
    /// Where they listen in each family, on which Node.
    ips: BTreeMap<Family, IpAddr>,
    node: String,
    recorder: Recorder,
    tasks: Tasks,
    open: BTreeMap<CheckKey, Open>,
}

struct Open {
    port: u16,
    /// Ends what serves the port.
    tasks: Tasks,
}

impl CheckServers {
    pub(crate) fn new(
        health: Health,
        (node, ips): (String, BTreeMap<Family, IpAddr>),
        recorder: Recorder,
        tasks: Tasks,
    ) -> Self {
        Self { health, ips, node, recorder, tasks, open: BTreeMap::new() }
    }

    /// Opens and closes ports. What cannot be opened is told in an event, and tried again after the next change.
    pub(crate) fn sync(&mut self, checks: &BTreeMap<CheckKey, Check>) {
        let is_wanted =
            |key: &CheckKey, open: &Open| checks.get(key).is_some_and(|check| check.port == open.port);
        let gone: Vec<CheckKey> = self
            .open
            .iter()
            .filter(|(key, open)| !is_wanted(key, open))
            .map(|(key, _)| key.clone())
            .collect();
        for key in gone {
            if let Some(open) = self.open.remove(&key) {
                open.tasks.stop();
            }
        }
        for (key, check) in checks {
            let Some(ip) = self.ips.get(&key.1).filter(|_| !self.open.contains_key(key)) else { continue };
            match bind(SocketAddr::new(*ip, check.port)) {
                Ok(listener) => self.open(key, check.port, listener),
                Err(error) => self.tell(&key.0, check.port, &error),
            }
        }
    }

    fn open(&mut self, key: &CheckKey, port: u16, listener: TcpListener) {
        let (health, asked) = (self.health.clone(), key.clone());
        let answers: Arc<Answers> = Arc::new(move |_| {
            let report = health.state().check(&asked, health.clock.now());
            let Some((code, count, report)) = report else {
                return text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
            };
            let mut answer = in_json(code, &report);
            answer.headers_mut().insert("x-load-balancing-endpoint-weight", HeaderValue::from(count));
            answer
        });
        let tasks = self.tasks.child();
        tasks.spawn("health check port", listen(listener, answers, tasks.clone()));
        self.open.insert(key.clone(), Open { port, tasks });
    }

    fn tell(&self, service: &str, port: u16, error: &std::io::Error) {
        tracing::warn!(service, port, %error, "no health checks of a service");
        let (namespace, name) = service.split_once('/').unwrap_or_default();
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Service".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        };
        let message =
            format!("node {} failed to start healthcheck {service:?} on port {port}: {error}", self.node);
        self.recorder.event(regarding, EventType::Warning, "FailedToStartServiceHealthcheck", message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;
    use crate::families::{BOTH, ipvs_options};

    #[test]
    fn all_addresses_are_those_of_the_families() {
        let (v4, v6) = (&BOTH[..1], &BOTH[1..]);
        for (address, families, expect) in [
            ("0.0.0.0:1", v4, &["0.0.0.0:1"][..]),
            ("0.0.0.0:1", v6, &["[::]:1"]),
            ("0.0.0.0:1", &BOTH, &["0.0.0.0:1", "[::]:1"]),
            ("[::]:1", v4, &["0.0.0.0:1"]),
            ("127.0.0.1:1", v6, &["127.0.0.1:1"]),
            ("[2001:db8::1]:1", &BOTH, &["[2001:db8::1]:1"]),
        ] {
            let found = meant(address.parse().unwrap(), families);
            assert_eq!(found.iter().map(SocketAddr::to_string).collect::<Vec<_>>(), expect, "{address}");
        }
    }

    #[tokio::test]
    async fn each_family_has_a_listener_of_its_own_at_one_port() {
        let v4 = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = v4.local_addr().unwrap().port();
        let v6 = bind(SocketAddr::new(unspecified(Family::V6), port)).unwrap();
        let all = bind(SocketAddr::new(unspecified(Family::V4), 0)).unwrap();
        let other = all.local_addr().unwrap().port();
        let all_v6 = bind(SocketAddr::new(unspecified(Family::V6), other)).unwrap();
        for (listener, to) in [
            (v4, format!("127.0.0.1:{port}")),
            (v6, format!("[::1]:{port}")),
            (all, format!("127.0.0.1:{other}")),
            (all_v6, format!("[::1]:{other}")),
        ] {
            let _client = tokio::net::TcpStream::connect(&to).await.unwrap();
            let (_, peer) = listener.accept().await.unwrap();
            assert_eq!(peer.is_ipv4(), to.starts_with("127"), "{to}");
        }
    }
    async fn said(answer: Answer) -> (u16, String, String) {
        let kind = answer.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
        let code = answer.status().as_u16();
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
        (code, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Source: `serveMetrics` of upstream's `cmd/kube-proxy/app`.
    #[tokio::test]
    async fn the_port_of_metrics_says_which_mode_it_is() {
        let (plain, registry) = ("text/plain; charset=utf-8", base::metrics::Metrics::new());
        for mode in [Mode::Nftables, Mode::Iptables, Mode::Ipvs(ipvs_options("rr"))] {
            let name = mode.as_str();
            for (path, code, body) in [
                ("/proxyMode", 200, name),
                ("/healthz", 200, "ok"),
                ("/proxymode", 404, "404 page not found\n"),
                ("/", 404, "404 page not found\n"),
                ("/metrics/", 404, "404 page not found\n"),
            ] {
                let expect = (code, plain.to_owned(), body.to_owned());
                assert_eq!(said(metrics(&registry, name, path)).await, expect, "{name} {path}");
            }
            let (code, kind, _) = said(metrics(&registry, name, "/metrics")).await;
            assert_eq!((code, kind.as_str()), (200, base::metrics::CONTENT_TYPE));
        }
    }

    /// Source: `TestServeHTTPHeaders`, `TestHealthzServer` and `TestLivezServer` of upstream's `pkg/proxy/healthcheck`.
    #[tokio::test]
    async fn who_asks_after_the_proxy_is_told_in_json() {
        let now: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = base::Clock::manual(now);
        let registry = base::metrics::Metrics::new();
        let health =
            Health::new(clock.clone(), registry.part(crate::metrics::ProxyMetrics::new), BOTH.to_vec());
        let ask = async |path: &str| {
            let (code, kind, body) = said(own(&health, path)).await;
            assert_eq!(kind, "application/json", "{path}");
            let report: serde_json::Value = serde_json::from_str(&body).unwrap();
            (code, report["healthy"].as_bool().unwrap(), report["nodeEligible"].as_bool())
        };
        assert_eq!(ask("/healthz").await, (503, true, Some(false)), "before its Node is known");
        assert_eq!(ask("/livez").await, (200, true, None));
        let after = |seconds| clock.set(now + jiff::SignedDuration::from_secs(seconds));
        health.update(true, &BTreeMap::new());
        assert_eq!(ask("/healthz").await, (200, true, Some(true)));
        after(3600);
        assert_eq!(ask("/healthz").await, (200, true, Some(true)), "nothing to do for an hour");
        health.queue();
        after(3659);
        health.queue();
        assert_eq!(ask("/healthz").await, (200, true, Some(true)));
        after(3660);
        assert_eq!(ask("/healthz").await, (503, false, Some(true)), "since the first that waits");
        assert_eq!(ask("/livez").await, (503, false, None));
        health.update(false, &BTreeMap::new());
        assert_eq!(ask("/healthz").await, (503, true, Some(false)), "the Node goes");
        assert_eq!(ask("/livez").await, (200, true, None));
        health.update(true, &BTreeMap::new());
        assert_eq!(ask("/healthz").await, (200, true, Some(true)), "it stays after all");
        assert_eq!(said(own(&health, "/")).await.0, 404);
        assert_eq!(said(own(&health, "/healthz/")).await.0, 404);
    }
}
