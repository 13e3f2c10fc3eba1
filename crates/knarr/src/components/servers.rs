//! Which API server a Node talks to: its own host's if it has one, and any other while that is away.
//!
//! There is no proxy in between: whoever opens a connection is given one to the first server that takes it. All
//! servers have certificates for the same names, so that TLS is end to end. Which servers there are is learnt from
//! where the `kubernetes` Service leads, and kept in a file for the next start. Source: k3s' client-side load balancer.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use anyhow::{Context, Result};
use auth::pki;
use base::KeepAlive;
use controller::Informers;
use http::Uri;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tower::{Service, ServiceExt};

use super::api_client::{self, Dial};
use crate::layout::Layout;

/// How long one server gets to take a connection.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// A server that is gone is noticed while nothing is asked, and while something is.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { idle_seconds: 10, every_seconds: 5, probes_max: 2, unconfirmed_max_ms: Some(20_000) };
const NAME: &str = "kubernetes";

/// The servers. Cloning shares them.
#[derive(Clone)]
pub(super) struct Servers(Arc<Inner>);

struct Inner {
    /// This host's own.
    home: Option<SocketAddr>,
    /// All that are known, in a fixed order.
    known: watch::Sender<Vec<SocketAddr>>,
    /// Where they are kept for the next start, by whoever keeps them.
    file: Option<PathBuf>,
}

impl Servers {
    /// This host's own, and those that were known when the Node last ran.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn load(home: Option<SocketAddr>, layout: &Layout) -> Result<Self> {
        let file = layout.servers();
        let known: Vec<SocketAddr> = match std::fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).with_context(|| format!("read {}", file.display()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error).with_context(|| format!("read {}", file.display())),
        };
        Ok(Self(Arc::new(Inner { home, known: watch::Sender::new(known), file: Some(file) })))
    }

    /// The same for a process that has no files.
    pub(super) fn forgetful(self) -> Self {
        let known = self.0.known.borrow().clone();
        Self(Arc::new(Inner { home: self.0.home, known: watch::Sender::new(known), file: None }))
    }

    /// All that are known, as they come and go; this host's own is among them if others know it.
    pub(super) fn known(&self) -> watch::Receiver<Vec<SocketAddr>> {
        self.0.known.subscribe()
    }

    /// One of them and no other.
    pub(super) fn only(&self, server: SocketAddr) -> Self {
        Self(Arc::new(Inner { home: Some(server), known: watch::Sender::default(), file: None }))
    }

    /// A client whose connections lead to whichever server takes them.
    ///
    /// # Errors
    /// If the configuration's keys cannot be used.
    pub(super) fn client(&self, config: &kube::Config) -> Result<kube::Client> {
        // Whoever asks tries again by themselves.
        let mut config = config.clone();
        config.default_retry = false;
        api_client::client(&config, &Dial::new(self.clone().map_err(Into::into)))
    }

    /// Learns for ever where servers are.
    pub(super) async fn follow(self, informers: Informers) {
        let slices = informers.informer::<EndpointSlice>();
        let mut changes = slices.subscribe();
        loop {
            let all = slices.list();
            let found: Vec<SocketAddr> = all.iter().flat_map(|slice| addresses(slice)).collect();
            if let Err(error) = self.learn(found) {
                tracing::warn!(error = format!("{error:#}"), "the API servers' addresses were not kept");
            }
            changes.next().await;
        }
    }

    /// None is no news: the API says so only while it is being set up.
    fn learn(&self, mut found: Vec<SocketAddr>) -> Result<()> {
        found.sort_unstable();
        found.dedup();
        if found.is_empty() || found == *self.0.known.borrow() {
            return Ok(());
        }
        tracing::info!(servers = ?found, "API servers");
        if let Some(file) = &self.0.file {
            pki::write_file(file, &serde_json::to_vec(&found)?, 0o600)?;
        }
        self.0.known.send_replace(found);
        Ok(())
    }

    fn in_order(&self) -> Vec<SocketAddr> {
        let known = self.0.known.borrow();
        self.0.home.into_iter().chain(known.iter().copied()).collect()
    }

    async fn connect(self) -> io::Result<TokioIo<TcpStream>> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "no API server is known");
        for server in self.in_order() {
            let connected = tokio::time::timeout(CONNECT_MAX, TcpStream::connect(server)).await;
            match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(stream) => return set_up(stream).map(TokioIo::new),
                Err(error) => {
                    tracing::debug!(%server, %error, "an API server cannot be reached");
                    last = error;
                }
            }
        }
        Err(last)
    }
}

/// Writes down where the first server is, for a Node that knows no other yet.
///
/// # Errors
/// If the URL has no address that can be found.
pub(crate) fn seed(url: &str, layout: &Layout) -> Result<()> {
    if layout.servers().exists() {
        return Ok(());
    }
    write(&look_up(url)?, layout)
}

/// The same for a Node whose server is on its own host: that one is asked before all others that are known.
///
/// # Errors
/// As [`seed`].
pub(super) fn put_first(url: &str, layout: &Layout) -> Result<()> {
    let known = std::fs::read(layout.servers()).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let mut servers = look_up(url)?;
    let known: Vec<SocketAddr> = known.unwrap_or_default();
    servers.extend(known.into_iter().filter(|server| !servers.contains(server)).collect::<Vec<_>>());
    write(&servers, layout)
}

fn look_up(url: &str) -> Result<Vec<SocketAddr>> {
    let uri: Uri = url.parse().with_context(|| format!("--server {url}"))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let found = (host, uri.port_u16().unwrap_or(443)).to_socket_addrs();
    Ok(found.with_context(|| format!("look up --server {url}"))?.collect())
}

fn write(servers: &[SocketAddr], layout: &Layout) -> Result<()> {
    Ok(pki::write_file(&layout.servers(), &serde_json::to_vec(servers)?, 0o600)?)
}

/// Notices when the other host is gone without a word.
fn set_up(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    KEEP_ALIVE.set(&stream)?;
    Ok(stream)
}

impl Service<Uri> for Servers {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Where the URI leads does not matter: only the name in it, which TLS checks.
    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

/// Where the `kubernetes` Service leads.
fn addresses(slice: &EndpointSlice) -> Vec<SocketAddr> {
    let (metadata, labels) = (&slice.metadata, slice.metadata.labels.as_ref());
    let service = labels.and_then(|labels| labels.get("kubernetes.io/service-name"));
    let is_ours = metadata.namespace.as_deref() == Some("default")
        && service.is_some_and(|service| service == NAME)
        && metadata.name.as_deref() == Some(NAME);
    let port = slice.ports.iter().flatten().find_map(|port| u16::try_from(port.port?).ok());
    let Some(port) = port.filter(|_| is_ours) else { return Vec::new() };
    let all = slice.endpoints.iter().flat_map(|endpoint| &endpoint.addresses);
    all.filter_map(|address| Some(SocketAddr::new(address.parse().ok()?, port))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(name: &str) -> EndpointSlice {
        let slice = serde_json::json!({
            "metadata": {"name": name, "namespace": "default",
                         "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["192.0.2.12"]}, {"addresses": ["192.0.2.11"]}],
            "ports": [{"name": "https", "port": 6443}],
        });
        serde_json::from_value(slice).unwrap()
    }

    #[test]
    fn servers_are_where_the_kubernetes_service_leads() {
        let text: Vec<String> = addresses(&slice("kubernetes")).iter().map(ToString::to_string).collect();
        assert_eq!(text, ["192.0.2.12:6443", "192.0.2.11:6443"]);
        assert_eq!(addresses(&slice("kubernetes-by-hand")), []);
    }

    #[tokio::test]
    async fn a_connection_leads_to_the_first_server_that_takes_it() {
        let listen = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (home, other) = (listen(), listen());
        let address = |listener: &std::net::TcpListener| listener.local_addr().unwrap();
        let folder = std::env::temp_dir().join(format!("knarr-servers-{}", std::process::id()));
        let layout = Layout::new(&folder).unwrap();
        let servers = Servers::load(Some(address(&home)), &layout).unwrap();
        servers.learn(vec![address(&other)]).unwrap();
        let peer = async |servers: &Servers| {
            servers.clone().connect().await.unwrap().into_inner().peer_addr().unwrap()
        };
        assert_eq!(peer(&servers).await, address(&home));
        // A process that another test is just starting may hold a copy: closing it would not do.
        let down = nix::sys::socket::shutdown(
            std::os::fd::AsRawFd::as_raw_fd(&home),
            nix::sys::socket::Shutdown::Both,
        );
        down.unwrap();
        assert_eq!(peer(&servers).await, address(&other));
        let again = Servers::load(None, &layout).unwrap();
        assert_eq!(peer(&again).await, address(&other), "what was learnt is kept");
        again.learn(Vec::new()).unwrap();
        assert_eq!(peer(&again).await, address(&other), "nothing is no news");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
