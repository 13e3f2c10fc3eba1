//! Routes to the Pods of other Nodes: each Node's range lies behind its address, which must be on a network of this
//! host; or, with an overlay ([`overlay`]), be reached from it in any way. Made when Nodes come, taken back when they go and
//! by `knarr reset`. What cannot be made is tried again, and told: on the Node ([`availability`]), by an event, and once in
//! the log.
//!
//! Source: flannel's `host-gw`, kubenet.

mod availability;
mod overlay;
mod vxlan;
mod wireguard;

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
use overlay::Made;
pub(super) use overlay::{Overlay, pod_mtu};

/// One route, as the file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// What packets go through, if it is no plain routes.
    pub(super) overlay: Option<Overlay>,
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
            let mut now = Made::default();
            // What is behind an overlay is looked at whenever there is news: somebody may have changed it.
            if made.as_ref() != Some(&wanted) || self.overlay.is_some() {
                now = self.make(&wanted, &nodes).await;
                made = now.failures.is_empty().then_some(wanted);
            }
            let failures = now.failures;
            if told != failures {
                self.tell(&recorder, &failures);
                told.clone_from(&failures);
            }
            let is_shown = self.show(&nodes, now.public_key).await;
            let is_written = self.write(&nodes, failures.into_keys().collect()).await;
            let again_in = if made.is_some() && is_written && is_shown {
                backoff.reset();
                now.again_in
            } else {
                Some(backoff.next(self.informers.random()))
            };
            tokio::select! {
                _ = changes.next() => {}
                () = tokio::time::sleep(again_in.unwrap_or_default()), if again_in.is_some() => {}
            }
        }
    }

    async fn make(&self, wanted: &[PodRoute], nodes: &[Arc<Node>]) -> Made {
        let keys = self.overlay.map(|overlay| overlay.keys(&self.own_name, nodes)).unwrap_or_default();
        let (layout, routes, overlay) = (self.layout.clone(), wanted.to_vec(), self.overlay);
        let now = self.informers.clock().now();
        let make = move || match overlay {
            Some(overlay) => overlay.apply(&layout, &routes, &keys, now),
            None => {
                overlay::remove(&layout)?;
                Ok(Made { failures: apply(&layout, &routes, None)?, ..Made::default() })
            }
        };
        let error = match tokio::task::spawn_blocking(make).await {
            Ok(Ok(made)) => return made,
            Ok(Err(error)) => format!("{error:#}"),
            Err(error) => error.to_string(),
        };
        let failures = wanted.iter().map(|route| (route.gateway, error.clone())).collect();
        Made { failures, ..Made::default() }
    }

    /// Says whether the Node's object has what others have to know, if there is anything.
    async fn show(&self, nodes: &[Arc<Node>], public_key: Option<String>) -> bool {
        let Some(key) = public_key else { return true };
        let own = nodes.iter().find(|node| node.metadata.name.as_deref() == Some(&self.own_name));
        let annotations = own.and_then(|own| own.metadata.annotations.as_ref());
        if annotations.and_then(|all| all.get(wireguard::PUBLIC_KEY)) == Some(&key) {
            return true;
        }
        let patch = serde_json::json!({ "metadata": { "annotations": { wireguard::PUBLIC_KEY: key } } });
        let api: Api<Node> = Api::all(self.kubelet.client().clone());
        let patched = api.patch(&self.own_name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        if let Err(error) = &patched {
            tracing::debug!(%error, "the Node's key was not shown");
        }
        patched.is_ok()
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

/// What is behind which address. Only ranges of the cluster are believed, and addresses that a host may have: one of the
/// cluster's Pods would lead packets in a circle.
fn wanted(own_name: &str, cluster: Cidr, nodes: &[Arc<Node>]) -> Vec<PodRoute> {
    let is_inside = |cidr: Cidr| cidr.bits() > cluster.bits() && cluster.covers(cidr);
    let others = nodes.iter().filter(|node| node.metadata.name.as_deref() != Some(own_name));
    // A range belongs to the first Node that has it.
    let mut routes = BTreeMap::new();
    for node in others {
        let destination = node.spec.as_ref().and_then(|spec| Cidr::legacy(spec.pod_cidr.as_deref()?));
        let gateway = internal_ip(node).filter(|ip| is_hosts(*ip) && !cluster.contains((*ip).into()));
        let Some((destination, gateway)) = destination.zip(gateway) else { continue };
        if let Some(destination) = destination.network().v4().filter(|_| is_inside(destination)) {
            routes.entry(destination).or_insert(gateway);
        }
    }
    routes.into_iter().map(|(destination, gateway)| PodRoute { destination, gateway }).collect()
}

fn is_hosts(ip: Ipv4Addr) -> bool {
    !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || ip.is_broadcast())
}

fn internal_ip(node: &Node) -> Option<Ipv4Addr> {
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    addresses.iter().find(|address| address.type_ == "InternalIP")?.address.parse().ok()
}

/// Makes what is wanted, on one link if that is given, and takes back what was made before and is not wanted. The file
/// knows of both in between.
fn apply(layout: &Layout, wanted: &[PodRoute], link: Option<u32>) -> Result<Failures> {
    let before = read(layout)?;
    let is_same = before == wanted;
    let stale: Vec<PodRoute> = before.into_iter().filter(|route| !wanted.contains(route)).collect();
    if !is_same {
        keep(layout, &[wanted, &stale].concat())?;
    }
    let mut table = Route::open()?;
    for route in &stale {
        table.delete_route(&request(route))?;
    }
    let mut failures = Failures::new();
    for route in wanted {
        if let Err(error) = table.add_route(&NewRoute { link, on_link: link.is_some(), ..request(route) }) {
            failures.insert(route.gateway, error.to_string());
        }
    }
    if !is_same {
        keep(layout, wanted)?;
    }
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
    overlay::remove(layout)
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
            node("h", "10.42.8.0/24", "10.42.9.1"),
            node("i", "10.42.9.0/24", "224.0.0.1"),
            node("j", "10.42.10.0/24", "127.0.0.1"),
            node("k", "10.42.11.0/24", "0.0.0.0"),
            node("l", "10.42.12.0/24", "255.255.255.255"),
        ];
        let found = wanted("a", "10.42.0.0/16".parse().unwrap(), &nodes);
        let b = PodRoute { destination: ([10, 42, 1, 0].into(), 24), gateway: [192, 0, 2, 12].into() };
        assert_eq!(found, [b]);
    }
}
