//! This Node's tunnels: one to each API server but its own host's, through which servers that have no way to this host reach
//! its kubelet and its Pods (ADR 34).
//!
//! A tunnel is opened with the kubelet's certificate, which is read anew each time, and again whenever it ends: soon where a
//! server does not answer, late where it refuses. What stands is written down for those who ask this host.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use auth::pki;
use base::{Backoff, Random, Tasks};
use controller::{Informer, Informers, Scope};
use http::StatusCode;
use http::header::{CONNECTION, UPGRADE};
use http_body_util::BodyExt;
use hyper::upgrade::Upgraded;
use k8s_openapi::api::core::v1::Node;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::{info, warn};
use tunnel::Destinations;
use tunnel::agent::Guard;
use tunnel::destinations::Refusal;

use super::servers::Servers;
use crate::kube_client;
use crate::layout::Layout;

/// How long the opening of a tunnel may take.
const OPEN_MAX: Duration = Duration::from_secs(15);
/// Between two attempts where a server does not answer, and where it refuses, which it does until somebody changes something.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
const REFUSED_AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// A tunnel that stood so long was no failure.
const STOOD: Duration = Duration::from_secs(30);
/// How many servers there are tunnels to.
const SERVERS_MAX: usize = 32;
/// How much of a refusal is read.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Whose tunnels they are.
pub(super) struct Tunnels {
    pub(super) node_name: String,
    pub(super) node_ips: Vec<IpAddr>,
    /// Where the kubelet listens.
    pub(super) kubelet: SocketAddr,
    /// This host's own API server, which needs none.
    pub(super) home: Option<SocketAddr>,
    pub(super) servers: Servers,
    pub(super) layout: Layout,
    pub(super) random: Random,
}

/// What is known of a tunnel; `agent/tunnels.json` has all of them, by server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// Why it does not stand; nothing if it does.
    pub(crate) broken: Option<String>,
}

/// The tunnels of the Node in a folder; none if it has none.
pub(crate) fn read(layout: &Layout) -> BTreeMap<SocketAddr, Standing> {
    let text = std::fs::read(layout.tunnels()).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Why there is no tunnel.
#[derive(Debug)]
enum Failure {
    /// The server answered: no.
    Refused(String),
    /// Whatever else.
    Broken(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => write!(f, "the server refuses it: {why}"),
            Self::Broken(why) => f.write_str(why),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Broken(format!("{error:#}"))
    }
}

impl Tunnels {
    /// Keeps a tunnel to each server there is, as these come and go.
    pub(super) fn start(self, informers: &Informers, tasks: &Tasks) {
        let scope =
            Scope { field_selector: Some(format!("metadata.name={}", self.node_name)), ..Scope::default() };
        let guard = Arc::new(NodeGuard {
            name: self.node_name.clone(),
            addresses: self.node_ips.clone(),
            kubelet: self.kubelet,
            nodes: informers.scoped::<Node>(scope),
        });
        let told = Told { file: self.layout.tunnels(), all: Mutex::default() };
        let shared = Arc::new(Shared { of: self, guard, told, tasks: tasks.clone() });
        tasks.spawn("tunnels", follow(shared));
    }
}

struct Shared {
    of: Tunnels,
    guard: Arc<NodeGuard>,
    told: Told,
    tasks: Tasks,
}

async fn follow(shared: Arc<Shared>) {
    let mut known = shared.of.servers.known();
    let mut open: BTreeMap<SocketAddr, Tasks> = BTreeMap::new();
    loop {
        let wanted = wanted(&known.borrow_and_update(), shared.of.home, is_of_this_host);
        open.retain(|server, tasks| {
            let stays = wanted.contains(server);
            if !stays {
                tasks.stop();
            }
            stays
        });
        shared.told.retain(&wanted);
        for server in wanted {
            open.entry(server).or_insert_with(|| {
                let tasks = shared.tasks.child();
                tasks.spawn("tunnel", keep(Arc::clone(&shared), server));
                tasks
            });
        }
        if known.changed().await.is_err() {
            return;
        }
    }
}

/// The servers that there are to be tunnels to: all but this host's own, by whichever of its addresses it is known.
fn wanted(
    known: &[SocketAddr],
    home: Option<SocketAddr>,
    is_of_this_host: impl Fn(IpAddr) -> bool,
) -> Vec<SocketAddr> {
    let is_own = |server: &SocketAddr| {
        home.is_some_and(|home| {
            home == *server || (home.port() == server.port() && is_of_this_host(server.ip()))
        })
    };
    known.iter().copied().filter(|server| !is_own(server)).take(SERVERS_MAX).collect()
}

/// Keeps the tunnel to a server for ever.
async fn keep(shared: Arc<Shared>, server: SocketAddr) {
    let mut soon = Backoff::new(AGAIN.0, AGAIN.1, 0.5);
    let mut late = Backoff::new(REFUSED_AGAIN.0, REFUSED_AGAIN.1, 0.5);
    loop {
        let begun = Instant::now();
        let failure = match hold(&shared, server).await {
            Ok(why) => Failure::Broken(why),
            Err(failure) => failure,
        };
        if begun.elapsed() >= STOOD {
            soon.reset();
            late.reset();
        }
        shared.told.tell(server, Some(&failure.to_string()));
        let delay = match failure {
            Failure::Refused(_) => late.next(&shared.of.random),
            Failure::Broken(_) => soon.next(&shared.of.random),
        };
        tokio::time::sleep(delay).await;
    }
}

/// Opens a tunnel and serves it until it ends: why it did.
async fn hold(shared: &Shared, server: SocketAddr) -> Result<String, Failure> {
    let opened = tokio::time::timeout(OPEN_MAX, open(shared, server)).await;
    let stream = opened.map_err(|_| Failure::Broken("the server does not answer".to_owned()))??;
    shared.told.tell(server, None);
    let guard: Arc<dyn Guard> = Arc::clone(&shared.guard) as Arc<dyn Guard>;
    let ended = tunnel::agent::serve(stream, guard, &shared.tasks).await;
    Ok(ended.map_or_else(|error| base::error_chain(&error), |()| "the server has ended it".to_owned()))
}

async fn open(shared: &Shared, server: SocketAddr) -> Result<Upgraded, Failure> {
    let config = kube_client::config(&shared.of.layout.agent_kubeconfig(), "kubelet").await?;
    let client = shared.of.servers.only(server).client(&config)?;
    let request = http::Request::get(tunnel::PATH)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, tunnel::PROTOCOL)
        .body(kube::client::Body::empty())
        .map_err(anyhow::Error::from)?;
    let response = client.send(request).await.map_err(|error| Failure::Broken(base::error_chain(&error)))?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let switched = hyper::upgrade::on(response).await;
        return switched.map_err(|error| Failure::Broken(base::error_chain(&error)));
    }
    let (status, body) = (response.status(), response.into_body());
    let text = http_body_util::Limited::new(body, REFUSAL_BYTES_MAX).collect().await;
    let text = text.map(|text| text.to_bytes()).unwrap_or_default();
    let message = serde_json::from_slice::<serde_json::Value>(&text).ok();
    let message = message.and_then(|message| Some(message["message"].as_str()?.to_owned()));
    let why = message.unwrap_or_else(|| status.to_string());
    let is_final = status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS;
    Err(if is_final { Failure::Refused(why) } else { Failure::Broken(why) })
}

/// What is told of all tunnels: in the log when it changes, and in a file.
struct Told {
    file: PathBuf,
    all: Mutex<BTreeMap<SocketAddr, Standing>>,
}

impl Told {
    fn tell(&self, server: SocketAddr, broken: Option<&str>) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let standing = Standing { broken: broken.map(str::to_owned) };
        if all.insert(server, standing.clone()).as_ref() == Some(&standing) {
            return;
        }
        match broken {
            None => info!(%server, "the tunnel to a server stands"),
            Some(why) => warn!(%server, why, "the tunnel to a server does not stand"),
        }
        self.write(&all);
    }

    /// Forgets those of other servers.
    fn retain(&self, servers: &[SocketAddr]) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|server, _| servers.contains(server));
        self.write(&all);
    }

    fn write(&self, all: &BTreeMap<SocketAddr, Standing>) {
        let written = serde_json::to_vec(all).map_err(anyhow::Error::from);
        let written = written.and_then(|text| Ok(pki::write_file(&self.file, &text, 0o600)?));
        if let Err(error) = written {
            warn!(error = format!("{error:#}"), "which tunnels stand is not written down");
        }
    }
}

/// Lets servers to this Node's kubelet and to its Pods, whose ranges the Node's object names.
struct NodeGuard {
    name: String,
    addresses: Vec<IpAddr>,
    kubelet: SocketAddr,
    nodes: Informer<Node>,
}

impl Guard for NodeGuard {
    fn find(&self, host: &str, port: u16) -> Result<SocketAddr, Refusal> {
        let ranges = self.nodes.get(&self.name).and_then(|node| node.spec.as_ref()?.pod_cidrs.clone());
        let own = Destinations {
            name: self.name.clone(),
            addresses: self.addresses.clone(),
            kubelet: self.kubelet,
            pod_ranges: ranges.unwrap_or_default().iter().filter_map(|range| range.parse().ok()).collect(),
        };
        own.find(host, port, is_of_this_host)
    }
}

/// Whether an address is one of this host's links'; if they cannot be looked at, every one is.
fn is_of_this_host(address: IpAddr) -> bool {
    let Ok(links) = nix::ifaddrs::getifaddrs() else { return true };
    let mut addresses = links.filter_map(|link| {
        let address = link.address?;
        let four = address.as_sockaddr_in().map(|four| IpAddr::V4(four.ip()));
        four.or_else(|| address.as_sockaddr_in6().map(|six| IpAddr::V6(six.ip())))
    });
    addresses.any(|own| own.to_canonical() == address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_tunnel_to_each_server_elsewhere() {
        let check = |known: &[&str], home: Option<&str>, expect: &[&str]| {
            let known: Vec<SocketAddr> = known.iter().map(|server| server.parse().unwrap()).collect();
            let is_own = |ip: IpAddr| ip == IpAddr::from([192, 0, 2, 11]);
            let found = wanted(&known, home.map(|home| home.parse().unwrap()), is_own);
            assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
        };
        let all = ["192.0.2.11:6443", "192.0.2.12:6443", "[2001:db8::1]:6443"];
        check(&all, None, &all);
        check(&all, Some("127.0.0.1:6443"), &all[1..]);
        check(&all, Some("192.0.2.12:6443"), &["[2001:db8::1]:6443"]);
        // Another cluster's server on this host.
        check(&all, Some("127.0.0.1:7443"), &all);
        check(&[], None, &[]);
    }

    #[test]
    fn what_stands_is_written_down_when_it_changes() {
        let folder = std::env::temp_dir().join(format!("knarr-tunnels-{}", std::process::id()));
        let layout = Layout::new(&folder).unwrap();
        std::fs::create_dir_all(layout.agent()).unwrap();
        assert!(read(&layout).is_empty());
        let told = Told { file: layout.tunnels(), all: Mutex::default() };
        let [one, two]: [SocketAddr; 2] =
            ["192.0.2.11:6443", "[2001:db8::1]:6443"].map(|server| server.parse().unwrap());
        told.tell(one, None);
        told.tell(two, Some("the server does not answer"));
        let broken = |server: SocketAddr| read(&layout).remove(&server).map(|standing| standing.broken);
        assert_eq!(broken(one), Some(None));
        assert_eq!(broken(two), Some(Some("the server does not answer".to_owned())));
        told.tell(two, None);
        assert_eq!(broken(two), Some(None));
        told.retain(&[two]);
        assert_eq!(broken(one), None);
        std::fs::write(layout.tunnels(), "garbage").unwrap();
        assert!(read(&layout).is_empty());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn this_host_has_its_loopback() {
        assert!(is_of_this_host(IpAddr::from([127, 0, 0, 1])));
        assert!(!is_of_this_host(IpAddr::from([192, 0, 2, 77])));
    }
}
