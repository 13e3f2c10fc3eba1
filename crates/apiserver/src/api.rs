//! What one API server consists of, and how it is configured.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base::{Clock, Random, Tasks};
use machinery::net::Cidrs;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::admission::service_addresses::NodePorts;
use crate::at_rest::AtRest;
use crate::audit::Audit;
use crate::cache::Cache;
use crate::catalogue::{Catalogue, Kinds};
use crate::custom::Progress;
use crate::door::Door;
use crate::flow_control::FlowControl;
use crate::kinds::Kind;
use crate::kubelet_client::KubeletClient;
use crate::metrics::Metrics;
use crate::security::Security;
use crate::status::{Error, Result};
use crate::trace::Trace;

/// How many requests may wait for a place.
const WAITING_MAX: usize = 4096;
/// How long a request waits for a place.
const WAITING_TIME_MAX: Duration = Duration::from_secs(15);

/// How an API server is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen; `None` for in-process only. Port 0 takes any.
    pub bind: Option<SocketAddr>,
    /// The serving certificate's chain, PEM.
    pub certificate_pem: Vec<u8>,
    /// Its key, PEM.
    pub key_pem: Vec<u8>,
    /// Who signs client certificates, PEM.
    pub client_ca_pem: Vec<u8>,
    /// Who signs the serving certificate, PEM: what Pods get as `kube-root-ca.crt`.
    pub root_ca_pem: Vec<u8>,
    /// Signs and checks service account tokens: PKCS#8, ECDSA P-256 (`auth::pki::service_account_key`).
    pub service_account_key: Vec<u8>,
    /// `iss` of service account tokens.
    pub service_account_issuer: String,
    /// The audiences that mean this server; the first is the default of new tokens.
    pub service_account_audiences: Vec<String>,
    /// The client certificate for kubelets, PEM.
    pub kubelet_client_certificate_pem: Vec<u8>,
    /// Its key, PEM.
    pub kubelet_client_key_pem: Vec<u8>,
    /// Who signs kubelets' serving certificates, PEM.
    pub kubelet_ca_pem: Vec<u8>,
    /// Where other nodes and Pods reach this server; the endpoint of the `kubernetes` Service.
    pub advertise_address: SocketAddr,
    /// Cluster IPs come from here, at first. The main family is what Services are of that do not say.
    pub service_cidrs: Cidrs,
    /// Node ports come from here.
    pub node_ports: PortRange,
    /// How many requests, watches apart, may be under way.
    pub requests_in_flight_max: usize,
    /// What operators may choose.
    pub options: crate::Options,
}

/// A range of ports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

impl PortRange {
    /// Whether a port is inside.
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Everything that requests work with. One per server, shared by all of them.
pub struct Api {
    /// The set-up.
    pub config: Config,
    /// Where it listens, if it does.
    pub bound: Option<SocketAddr>,
    /// What reads are served from.
    pub cache: Arc<Cache>,
    /// What is served.
    pub catalogue: Arc<Catalogue>,
    /// The built-in kinds, which stay as they are: what the server itself looks at.
    pub builtin: Kinds,
    /// Where writes go.
    pub door: Door,
    /// How values lie in the store.
    pub at_rest: Arc<AtRest>,
    /// Who is it, may they.
    pub security: Arc<Security>,
    /// Which node ports are given out.
    pub node_ports: NodePorts,
    /// Streams to kubelets.
    pub kubelets: KubeletClient,
    /// Who may go first.
    pub flow: FlowControl,
    /// The audit log, if there is one.
    pub audit: Option<Arc<Audit>>,
    /// What caused what.
    pub trace: Arc<Trace>,
    /// Counters.
    pub metrics: Metrics,
    /// Time.
    pub clock: Clock,
    /// Chance.
    pub random: Random,
    /// The server's tasks.
    pub tasks: Tasks,
    /// What serves clients: goes on through the delay after readiness has failed, and ends when the drain begins.
    pub serving: Tasks,
    /// How far CustomResourceDefinitions are served.
    pub custom: Progress,
    /// What changes while it runs.
    pub state: State,
}

/// What changes while a server runs.
pub struct State {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    bootstrapped: watch::Sender<bool>,
}

impl State {
    /// A server that is not bootstrapped, with room for so many requests.
    pub fn new(requests_in_flight_max: usize) -> Self {
        let places = Arc::new(Semaphore::new(requests_in_flight_max));
        Self { places, waiting: AtomicUsize::new(0), bootstrapped: watch::Sender::new(false) }
    }
}

impl Api {
    /// A built-in kind, if this process serves it.
    pub fn kind(&self, group: &str, version: &str, resource: &str) -> Option<&Kind> {
        self.builtin.find(group, version, resource)
    }

    /// A place among the requests under way; it is given back when dropped. Waits for one in a bounded queue.
    ///
    /// # Errors
    /// 429 when the queue is full or none becomes free in time.
    pub async fn place(&self) -> Result<OwnedSemaphorePermit> {
        let refused = || Error::too_many_requests("Too many requests, please try again later.", 1);
        let places = Arc::clone(&self.state.places);
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            return Ok(place);
        }
        let waiting = self.state.waiting.fetch_add(1, Ordering::Relaxed);
        let place = if waiting < WAITING_MAX {
            tokio::time::timeout(WAITING_TIME_MAX, places.acquire_owned())
                .await
                .ok()
                .and_then(|place| place.ok())
        } else {
            None
        };
        self.state.waiting.fetch_sub(1, Ordering::Relaxed);
        place.ok_or_else(refused)
    }

    /// Says that the bootstrap objects are there.
    pub fn bootstrapped(&self) {
        self.state.bootstrapped.send_replace(true);
    }

    /// Whether the bootstrap objects are there.
    pub fn is_bootstrapped(&self) -> bool {
        *self.state.bootstrapped.borrow()
    }

    /// Waits until the bootstrap objects are there.
    pub async fn wait_bootstrapped(&self) {
        let mut receiver = self.state.bootstrapped.subscribe();
        if receiver.wait_for(|done| *done).await.is_err() {
            tracing::debug!("the server ended before it was ready");
        }
    }
}
