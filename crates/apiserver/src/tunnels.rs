//! The tunnels of Nodes that stand at this server, and which of them leads to a kubelet or a Pod.
//!
//! Of the tunnels of a Node the newest is taken: an older one may be broken already, or have come by another of the server's
//! addresses. An address belongs to the Node that has been given the
//! range that it is in; one in the ranges of two Nodes belongs to neither, so that a Node cannot draw others' connections
//! by the ranges that its own object names.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use base::metrics::Metrics as Registry;
use jiff::Timestamp;
use machinery::net::Cidr;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use serde::Serialize;
use tokio::sync::oneshot;
use tunnel::{Connection, Tunnel};

/// How many tunnels a Node may have; the oldest gives way.
const OF_NODE_MAX: usize = 4;

/// The connections that go through tunnels, where there are some. Source: k3s' `--egress-selector-mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EgressSelectorMode {
    /// Nothing; none are taken.
    Disabled,
    /// What is for kubelets.
    #[default]
    Agent,
    /// That, and what is for Pods.
    Pod,
}

/// The reason why a tunnel ends that could go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its Node has so many newer ones.
    Replaced,
    /// Its Node is gone.
    NodeGone,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Replaced => "the node has opened others",
            Self::NodeGone => "the node was deleted",
        })
    }
}

/// The facts about a tunnel.
#[derive(Clone, Debug, Serialize)]
pub struct Told {
    /// The Node that it belongs to.
    pub node: String,
    /// The address that it comes from.
    pub from: Option<IpAddr>,
    /// Since when it stands.
    pub since: Timestamp,
    /// The number of connections through it.
    pub connections: usize,
}

/// The tunnels of a server.
pub struct Tunnels {
    mode: EgressSelectorMode,
    held: Mutex<Held>,
    metrics: Metrics,
}

impl fmt::Debug for Tunnels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnels").field("mode", &self.mode).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Held {
    last: u64,
    /// Of each Node that has some, the oldest first.
    standing: BTreeMap<String, Vec<Standing>>,
    /// The ranges of all Nodes that have some, with tunnels or without.
    ranges: BTreeMap<String, Vec<Cidr>>,
}

struct Standing {
    id: u64,
    tunnel: Tunnel,
    from: Option<IpAddr>,
    since: Timestamp,
    end: oneshot::Sender<Ended>,
}

/// The registration of a tunnel; it ends when dropped.
pub struct Registration {
    tunnels: Arc<Tunnels>,
    node: String,
    id: u64,
    end: oneshot::Receiver<Ended>,
}

impl Registration {
    /// Ends when the tunnel must.
    pub async fn ends(&mut self) -> Ended {
        (&mut self.end).await.unwrap_or(Ended::Replaced)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut held = self.tunnels.held.lock();
        held.end(&self.node, |standing| standing.id == self.id, Ended::Replaced);
        self.tunnels.metrics.standing.set(held.count());
    }
}

impl Tunnels {
    /// None yet.
    pub fn new(mode: EgressSelectorMode, registry: &Registry) -> Arc<Self> {
        Arc::new(Self { mode, held: Mutex::default(), metrics: Metrics::of(registry) })
    }

    /// The connections that go through them.
    pub fn mode(&self) -> EgressSelectorMode {
        self.mode
    }

    /// A tunnel of a Node stands.
    pub fn begin(
        self: &Arc<Self>,
        node: &str,
        tunnel: Tunnel,
        from: Option<IpAddr>,
        now: Timestamp,
    ) -> Registration {
        let (end, ends) = oneshot::channel();
        let mut held = self.held.lock();
        held.last += 1;
        let id = held.last;
        let of_node = held.standing.entry(node.to_owned()).or_default();
        of_node.push(Standing { id, tunnel, from, since: now, end });
        let is_full = of_node.len() > OF_NODE_MAX;
        if let Some(oldest) = of_node.first().filter(|_| is_full).map(|oldest| oldest.id) {
            held.end(node, |standing| standing.id == oldest, Ended::Replaced);
        }
        self.metrics.standing.set(held.count());
        Registration { tunnels: Arc::clone(self), node: node.to_owned(), id, end: ends }
    }

    /// Notes the ranges that a Node has.
    pub fn set_discovery(&self, node: &str, ranges: Vec<Cidr>) {
        let mut held = self.held.lock();
        match ranges.is_empty() {
            true => held.ranges.remove(node),
            false => held.ranges.insert(node.to_owned(), ranges),
        };
    }

    /// A Node is gone, and so is its tunnel.
    pub fn forget(&self, node: &str) {
        let mut held = self.held.lock();
        held.ranges.remove(node);
        held.end(node, |_| true, Ended::NodeGone);
        self.metrics.standing.set(held.count());
    }

    /// These are all Nodes that there are, with their ranges.
    pub fn learn_all(&self, nodes: BTreeMap<String, Vec<Cidr>>) {
        let mut held = self.held.lock();
        let gone: Vec<String> =
            held.standing.keys().filter(|node| !nodes.contains_key(*node)).cloned().collect();
        for node in gone {
            held.end(&node, |_| true, Ended::NodeGone);
        }
        self.metrics.standing.set(held.count());
        held.ranges = nodes.into_iter().filter(|(_, ranges)| !ranges.is_empty()).collect();
    }

    /// The way to a Node's kubelet, if a tunnel is to be taken and there is one.
    pub fn to_kubelet(&self, node: &str) -> Option<Tunnel> {
        if self.mode == EgressSelectorMode::Disabled {
            return None;
        }
        self.held.lock().newest(node)
    }

    /// The same for the Pod that has an address.
    pub fn to_pod(&self, address: IpAddr) -> Option<Tunnel> {
        if self.mode != EgressSelectorMode::Pod {
            return None;
        }
        let held = self.held.lock();
        let node = held.node_of(address.to_canonical())?;
        held.newest(node)
    }

    /// Connects through a tunnel.
    ///
    /// # Errors
    /// As [`Tunnel::connect`].
    pub async fn connect(&self, tunnel: &Tunnel, host: &str, port: u16) -> io::Result<Connection> {
        let begun = Instant::now();
        self.metrics.started.get_or_create(&DIAL).inc();
        let connected = tunnel.connect(host, port).await;
        if connected.is_err() {
            self.metrics.failed.get_or_create(&FAILED).inc();
        }
        self.metrics.durations.get_or_create(&DIAL).observe(begun.elapsed().as_secs_f64());
        connected
    }

    /// All that stand, by name.
    pub fn list(&self) -> Vec<Told> {
        let held = self.held.lock();
        let all = held.standing.iter().flat_map(|(node, all)| all.iter().map(move |one| (node, one)));
        let told = all.map(|(node, standing)| Told {
            node: node.clone(),
            from: standing.from,
            since: standing.since,
            connections: standing.tunnel.streams(),
        });
        told.collect()
    }
}

impl Held {
    /// Ends tunnels of a Node.
    fn end(&mut self, node: &str, which: impl Fn(&Standing) -> bool, why: Ended) {
        let Some(all) = self.standing.get_mut(node) else { return };
        for standing in all.extract_if(.., |standing| which(standing)) {
            // Whoever holds it may have noticed its end already.
            standing.end.send(why).ok();
        }
        if all.is_empty() {
            self.standing.remove(node);
        }
    }

    fn newest(&self, node: &str) -> Option<Tunnel> {
        Some(self.standing.get(node)?.last()?.tunnel.clone())
    }

    /// How many Nodes have a tunnel.
    fn count(&self) -> i64 {
        i64::try_from(self.standing.len()).unwrap_or(i64::MAX)
    }

    /// The only Node that has an address in its ranges.
    fn node_of(&self, address: IpAddr) -> Option<&str> {
        let has_it = |ranges: &[Cidr]| ranges.iter().any(|range| range.contains(address));
        let mut found = self.ranges.iter().filter(|(_, ranges)| has_it(ranges));
        let (node, _) = found.next()?;
        found.next().is_none().then_some(node.as_str())
    }
}

/// What is counted. Names and labels of dials are upstream's, of `k8s.io/apiserver/pkg/server/egressselector`.
struct Metrics {
    standing: Gauge,
    started: Family<Dial, Counter>,
    failed: Family<Failed, Counter>,
    durations: Family<Dial, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Dial {
    protocol: &'static str,
    transport: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Failed {
    protocol: &'static str,
    transport: &'static str,
    stage: &'static str,
}

const DIAL: Dial = Dial { protocol: "http_connect", transport: "tcp" };
const FAILED: Failed = Failed { protocol: "http_connect", transport: "tcp", stage: "connect" };

impl Metrics {
    fn of(registry: &Registry) -> Self {
        let made = Self {
            standing: Gauge::default(),
            started: Family::default(),
            failed: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new([0.005, 0.025, 0.1, 0.5, 2.5, 12.5])),
        };
        registry.register("knarr_node_tunnels", "Nodes whose tunnel to this server stands", &made.standing);
        registry.register("apiserver_egress_dialer_dial_start", "Dials through tunnels", &made.started);
        registry.register_plain(
            "apiserver_egress_dialer_dial_failure_count",
            "Dials through tunnels that failed",
            &made.failed,
        );
        registry.register(
            "apiserver_egress_dialer_dial_duration_seconds",
            "How long dials through tunnels take",
            &made.durations,
        );
        made
    }
}

#[cfg(test)]
mod tests {
    use hyper_util::rt::TokioIo;

    use super::*;

    async fn tunnel() -> Tunnel {
        let (near, far) = tokio::io::duplex(1 << 10);
        std::mem::forget(far);
        Tunnel::over(TokioIo::new(near), &base::Tasks::new()).await.unwrap().0
    }

    fn of_mode(mode: EgressSelectorMode) -> Arc<Tunnels> {
        Tunnels::new(mode, &Registry::new())
    }

    fn ranges(texts: &[&str]) -> Vec<Cidr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[tokio::test]
    async fn what_goes_through_a_tunnel_is_said_by_the_mode() {
        for (mode, kubelet, pod) in [
            (EgressSelectorMode::Disabled, false, false),
            (EgressSelectorMode::Agent, true, false),
            (EgressSelectorMode::Pod, true, true),
        ] {
            let tunnels = of_mode(mode);
            let _place = tunnels.begin("a", tunnel().await, None, Timestamp::UNIX_EPOCH);
            tunnels.set_discovery("a", ranges(&["10.42.1.0/24"]));
            assert_eq!(tunnels.to_kubelet("a").is_some(), kubelet, "{mode:?}");
            assert_eq!(tunnels.to_pod("10.42.1.9".parse().unwrap()).is_some(), pod, "{mode:?}");
            assert!(tunnels.to_kubelet("b").is_none());
        }
    }

    #[tokio::test]
    async fn an_address_belongs_to_the_only_node_that_has_its_range() {
        let tunnels = of_mode(EgressSelectorMode::Pod);
        let _places = [
            tunnels.begin("a", tunnel().await, None, Timestamp::UNIX_EPOCH),
            tunnels.begin("thief", tunnel().await, None, Timestamp::UNIX_EPOCH),
        ];
        let check = |address: &str, expect: bool| {
            assert_eq!(tunnels.to_pod(address.parse().unwrap()).is_some(), expect, "{address}");
        };
        tunnels.set_discovery("a", ranges(&["10.42.1.0/24", "fd42:1::/64"]));
        tunnels.set_discovery("b", ranges(&["10.42.2.0/24"]));
        for (address, expect) in [
            ("10.42.1.9", true),
            ("::ffff:10.42.1.9", true),
            ("fd42:1::9", true),
            // A Node without a tunnel, and nobody's.
            ("10.42.2.9", false),
            ("10.42.3.9", false),
            ("192.0.2.1", false),
        ] {
            check(address, expect);
        }
        // A Node that names what others have gets nothing of theirs, with a wider range or with a narrower one.
        for wrong in ["10.42.0.0/16", "10.42.1.8/29", "0.0.0.0/0"] {
            tunnels.set_discovery("thief", ranges(&[wrong]));
            check("10.42.1.9", false);
            check("10.42.2.9", false);
        }
        tunnels.set_discovery("thief", Vec::new());
        check("10.42.1.9", true);
    }

    #[tokio::test]
    async fn the_newest_tunnels_stay_and_a_node_that_goes_has_none() {
        let tunnels = of_mode(EgressSelectorMode::Agent);
        let count = || tunnels.list().len();
        let mut registrations = Vec::new();
        for _ in 0..=OF_NODE_MAX {
            registrations.push(tunnels.begin("a", tunnel().await, None, Timestamp::UNIX_EPOCH));
        }
        assert_eq!(registrations[0].ends().await, Ended::Replaced);
        assert_eq!(count(), OF_NODE_MAX);
        registrations.drain(..2);
        assert_eq!(count(), OF_NODE_MAX - 1, "one that is over is given up once");
        tunnels.learn_all([("a".to_owned(), Vec::new())].into());
        assert!(tunnels.to_kubelet("a").is_some());
        tunnels.learn_all([("b".to_owned(), Vec::new())].into());
        for registration in &mut registrations {
            assert_eq!(registration.ends().await, Ended::NodeGone);
        }
        assert!(tunnels.to_kubelet("a").is_none() && count() == 0);
        let mut again = tunnels.begin("a", tunnel().await, None, Timestamp::UNIX_EPOCH);
        drop(registrations);
        assert!(tunnels.to_kubelet("a").is_some(), "it has a place of its own");
        tunnels.forget("a");
        assert_eq!(again.ends().await, Ended::NodeGone);
        assert_eq!(count(), 0);
    }
}
