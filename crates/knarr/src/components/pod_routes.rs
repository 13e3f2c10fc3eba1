//! Routes to the Pods of other Nodes: each Node's range lies behind its address, which must be on a network of this
//! host. Made when Nodes come, taken back when they go and by `knarr reset`. What cannot be made is tried again, and
//! told: on the Node ([`availability`]), by an event, and once in the log.
//!
//! Source: flannel's `host-gw`, kubenet.

mod availability;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use auth::pki;
use base::Backoff;
use controller::record::Recorder;
use controller::{EventType, Informers};
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::api::{Api, Patch, PatchParams};
use machinery::net::Cidr;
use serde::{Deserialize, Serialize};
use sys::netlink::{NewRoute, Route};

use crate::layout::Layout;
pub(super) use availability::PodNetwork;

/// One route, as the file has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct PodRoute {
    pub(crate) destination: (Ipv4Addr, u8),
    pub(crate) gateway: Ipv4Addr,
}

/// How soon is tried again what could not be made or told, in the first place and at last.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Whose routes, and where they are told.
pub(super) struct Follower {
    pub(super) own_name: String,
    pub(super) cluster: Cidr,
    pub(super) layout: Layout,
    pub(super) network: PodNetwork,
    /// All Nodes.
    pub(super) informers: Informers,
    /// The kubelet's, who may write to its own Node.
    pub(super) kubelet: Informers,
}

/// Routes that could not be made: why, by the address that they lead to.
type Failures = BTreeMap<Ipv4Addr, String>;

impl Follower {
    /// Follows the Nodes for ever.
    pub(super) async fn follow(self) {
        let nodes = self.informers.informer::<Node>();
        let mut changes = nodes.subscribe();
        nodes.synced().await;
        let recorder = Recorder::start_on(&self.kubelet, "route_controller", &self.own_name);
        let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX, 0.2);
        let (mut made, mut told) = (None, Failures::new());
        loop {
            let nodes = nodes.list();
            let wanted = wanted(&self.own_name, self.cluster, &nodes);
            let mut failures = Failures::new();
            if made.as_ref() != Some(&wanted) {
                failures = self.make(&wanted).await;
                made = failures.is_empty().then_some(wanted);
            }
            if told != failures {
                self.tell(&recorder, &failures);
                told.clone_from(&failures);
            }
            let is_written = self.write(&nodes, failures.into_keys().collect()).await;
            if made.is_some() && is_written {
                backoff.reset();
                changes.next().await;
                continue;
            }
            tokio::select! {
                _ = changes.next() => {}
                () = tokio::time::sleep(backoff.next(self.informers.random())) => {}
            }
        }
    }

    async fn make(&self, wanted: &[PodRoute]) -> Failures {
        let (layout, routes) = (self.layout.clone(), wanted.to_vec());
        let error = match tokio::task::spawn_blocking(move || apply(&layout, &routes)).await {
            Ok(Ok(failures)) => return failures,
            Ok(Err(error)) => format!("{error:#}"),
            Err(error) => error.to_string(),
        };
        wanted.iter().map(|route| (route.gateway, error.clone())).collect()
    }

    fn tell(&self, recorder: &Recorder, failures: &Failures) {
        if failures.is_empty() {
            return tracing::info!("the Pods of all Nodes are reached");
        }
        let whose = failures.keys().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let causes = failures.values().cloned().collect::<BTreeSet<_>>();
        let error = causes.into_iter().collect::<Vec<_>>().join("; ");
        tracing::warn!(nodes = whose, error, "no route to the Pods of other Nodes; it is tried again");
        let regarding = ObjectReference {
            kind: Some("Node".into()),
            // As the kubelet's own events: `kubectl describe` looks for the name here.
            uid: Some(self.own_name.clone()),
            name: Some(self.own_name.clone()),
            ..ObjectReference::default()
        };
        let message = format!("Could not create routes to the Pods of the Nodes at {whose}: {error}");
        recorder.event(regarding, EventType::Warning, "FailedToCreateRoute", message);
    }

    /// Says whether the Node has been told what there was to tell.
    async fn write(&self, nodes: &[Arc<Node>], missing: BTreeSet<Ipv4Addr>) -> bool {
        let now = self.informers.clock().now();
        let own = self.own_name.as_str();
        let Some(condition) = availability::condition(self.network, own, nodes, &missing, now) else {
            return true;
        };
        let patch = Patch::Strategic(serde_json::json!({ "status": { "conditions": [condition] } }));
        let api: Api<Node> = Api::all(self.kubelet.client().clone());
        let written = api.patch_status(own, &PatchParams::default(), &patch).await;
        if let Err(error) = &written {
            tracing::debug!(%error, "the Node was not told of its network");
        }
        written.is_ok()
    }
}

/// What is behind which address. Only ranges of the cluster are believed.
fn wanted(own_name: &str, cluster: Cidr, nodes: &[Arc<Node>]) -> Vec<PodRoute> {
    let is_inside = |cidr: Cidr| cidr.bits() > cluster.bits() && cluster.covers(cidr);
    let others = nodes.iter().filter(|node| node.metadata.name.as_deref() != Some(own_name));
    // A range belongs to the first Node that has it.
    let mut routes = BTreeMap::new();
    for node in others {
        let destination = node.spec.as_ref().and_then(|spec| Cidr::legacy(spec.pod_cidr.as_deref()?));
        let Some((destination, gateway)) = destination.zip(internal_ip(node)) else { continue };
        if let Some(destination) = destination.network().v4().filter(|_| is_inside(destination)) {
            routes.entry(destination).or_insert(gateway);
        }
    }
    routes.into_iter().map(|(destination, gateway)| PodRoute { destination, gateway }).collect()
}

fn internal_ip(node: &Node) -> Option<Ipv4Addr> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    addresses.iter().find(|address| address.type_ == "InternalIP")?.address.parse().ok()
}

/// Makes what is wanted, and takes back what was made before and is not wanted. The file knows of both in between.
fn apply(layout: &Layout, wanted: &[PodRoute]) -> Result<Failures> {
    let before = read(layout)?;
    let stale: Vec<PodRoute> = before.into_iter().filter(|route| !wanted.contains(route)).collect();
    keep(layout, &[wanted, &stale].concat())?;
    let mut table = Route::open()?;
    for route in &stale {
        table.delete_route(&request(route))?;
    }
    let mut failures = Failures::new();
    for route in wanted {
        if let Err(error) = table.add_route(&request(route)) {
            failures.insert(route.gateway, error.to_string());
        }
    }
    keep(layout, wanted)?;
    Ok(failures)
}

/// Takes back all that were made.
///
/// # Errors
/// If the kernel refuses.
pub(super) fn remove(layout: &Layout) -> Result<()> {
    let mut table = Route::open()?;
    for route in read(layout)? {
        table.delete_route(&request(&route))?;
    }
    Ok(())
}

fn request(route: &PodRoute) -> NewRoute {
    NewRoute {
        destination: Some((route.destination.0.into(), route.destination.1)),
        gateway: Some(route.gateway.into()),
        ..NewRoute::default()
    }
}

/// What the Node in this folder wants to have.
pub(crate) fn read(layout: &Layout) -> Result<Vec<PodRoute>> {
    let path = layout.pod_routes();
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("read {}", path.display()))
}

fn keep(layout: &Layout, routes: &[PodRoute]) -> Result<()> {
    Ok(pki::write_file(&layout.pod_routes(), &serde_json::to_vec(routes)?, 0o600)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, cidr: &str, ip: &str) -> Arc<Node> {
        let node = serde_json::json!({
            "metadata": {"name": name},
            "spec": {"podCIDR": cidr},
            "status": {"addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": ip}]},
        });
        Arc::new(serde_json::from_value(node).unwrap())
    }

    #[test]
    fn every_other_nodes_range_is_behind_its_address() {
        let nodes = [
            node("a", "10.42.0.0/24", "192.0.2.11"),
            node("b", "10.42.1.0/24", "192.0.2.12"),
            node("c", "10.42.1.0/24", "192.0.2.13"),
            node("d", "192.0.2.0/24", "192.0.2.14"),
            node("e", "10.42.0.0/16", "192.0.2.15"),
            node("f", "10.42.7.0/24", "no address"),
            node("g", "", "192.0.2.17"),
        ];
        let found = wanted("a", "10.42.0.0/16".parse().unwrap(), &nodes);
        let b = PodRoute { destination: ([10, 42, 1, 0].into(), 24), gateway: [192, 0, 2, 12].into() };
        assert_eq!(found, [b]);
    }
}
